"""Records that a process which looks at the same runs again and again keeps as they were opened.

Apart from the calls that look: most hosts look once, and keep nothing. What is kept is found only by the very
bytes that the store gives, behind the very digest: a run that was erased, trimmed or changed is read as it is
now, and nothing is ever answered from here that the store does not hold.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from everstep.codec.records import OpenRecord
from everstep.runtime.lineage import Place
from everstep.runtime.runs import Runs

MOST = 48_000_000
"""How many bytes of records a service keeps opened."""


class _Kept(NamedTuple):
    body: bytes
    before: bytes | None
    opened: OpenRecord


class OpenedRecords:
    """Keeps as many as hold so many bytes together, those used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._kept: dict[Place, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, place: Place, body: bytes, before: bytes | None) -> OpenRecord | None:
        """Return what these bytes were read as, if that is known."""
        found = self._kept.get(place)
        if found is None or found.before != before or found.body != body:
            return None
        del self._kept[place]  # the one used last stands at the end
        self._kept[place] = found
        return found.opened

    def keep(self, place: Place, body: bytes, before: bytes | None, opened: OpenRecord) -> None:
        """Keep what was read; what was not used for the longest time goes."""
        old = self._kept.pop(place, None)
        self._held += len(body) - (0 if old is None else len(old.body))
        self._kept[place] = _Kept(body, before, opened)
        while self._held > self._most and self._kept:
            first = next(iter(self._kept))
            self._held -= len(self._kept.pop(first).body)


class Hosts(Protocol):
    """What has a host's runs."""

    _runs: Runs


def keep_opened(host: Hosts, most: int = MOST) -> None:
    """Have a host keep records that it read lately as they were opened, this many bytes of them."""
    host._runs.reader.lineage.kept = OpenedRecords(most)
