"""Files for people in a repository: many in one commit, seldom, and not while few calls are left. Apart from
`told`, which says what is to be written.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic
from typing import Protocol

from everstep.model.enums import Status
from everstep.stores.objects import readable
from everstep.stores.objects.bucket import Bucket
from everstep.stores.objects.entries import Entry, decode
from everstep.stores.objects.github.api import hurries
from everstep.stores.objects.github.parts import LARGEST
from everstep.stores.objects.scribe import Scribe
from everstep.stores.objects.unwritten import Unkept

LAG = 30.0
"""Seconds that the files of a run that goes on may be behind."""
GATHER = 1.0
"""Seconds for which those of a run that has come to rest wait for those of others."""
QUIET = 2.0
"""Seconds without a further change after which the files of a run are made anew."""
_LOOK = 0.2


class Repository(Bucket, Protocol):
    @property
    def is_rationed(self) -> bool: ...

    def sizes(self, prefix: str) -> dict[str, int]: ...

    def tell(self, files: Mapping[str, bytes | None], message: str) -> None: ...


class GithubScribe(Scribe):
    """Gathers what is to be written, and writes it in one commit."""

    largest: int = LARGEST

    def __init__(self, bucket: Repository) -> None:
        self._files: dict[str, bytes | None] = {}
        self._changed: dict[str, float] = {}
        """Runs in whose logs something was replaced or removed, and when that was."""
        super().__init__(bucket, self._files.__setitem__, Unkept())
        self._repository = bucket

    def note_change(self, name: str) -> None:
        """Make the files of a run anew once nothing more changes in its log: it costs a dozen calls."""
        with self._lock:
            self._changed[name.split("/")[1]] = monotonic()
            self._wake()

    def _is_idle(self) -> bool:
        return super()._is_idle() and not self._changed

    def _take_quiet(self) -> None:
        quiet = monotonic() - (0 if self._is_last() else QUIET)
        with self._lock:
            done = {part for part, at in self._changed.items() if at <= quiet}
            self._behind |= done
            self._changed = {part: at for part, at in self._changed.items() if part not in done}

    def _is_last(self) -> bool:
        return self._is_closing or not threading.main_thread().is_alive()

    def _pause(self) -> None:
        ends = monotonic() + LAG
        while (left := ends - monotonic()) > 0:
            if self._hurry.wait(min(left, _LOOK)):
                self._hurry.clear()
                ends = min(ends, monotonic() + GATHER)
            if self._is_last():
                return
            if self._changed and all(monotonic() - at > QUIET for at in list(self._changed.values())):
                return

    def _discard(self, files: list[str]) -> None:
        self._files |= dict.fromkeys(files)

    def _try(self, batch: list[tuple[str, bytes]], behind: set[str]) -> None:
        self._take_quiet()
        with self._lock:
            behind, self._behind = behind | self._behind, set()
        if self._repository.is_rationed and not self._is_closing and not any(map(_is_at_rest, batch)):
            with self._lock:
                self._waiting, self._behind = batch + self._waiting, behind | self._behind
            return
        super()._try(batch, behind)

    def _write_all(self, batch: list[tuple[str, bytes]], behind: set[str]) -> None:
        token = hurries.set(True)
        self._files.clear()
        try:
            super()._write_all(batch, behind)
            if self._files:
                runs = sorted({name.split("/")[1] for name in self._files})
                few = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
                self._repository.tell(dict(self._files), f"Tell of {few}")
        finally:
            hurries.reset(token)

    def _sizes(self, folder: str) -> dict[str, int]:
        return self._repository.sizes(folder)

    def _write_entry(
        self, entry: Entry, trimmed_before: int, there: dict[str, int] | None
    ) -> list[tuple[readable.IndexRow, bytes]]:
        found = self._told(entry, trimmed_before)
        rows, told = readable.batch(entry.standing.row.run_id, found) if len(found) > 1 else ([], b"")
        if not rows or len(told) > self.largest:
            return self._write_each(found, there)
        if there is None or there.get(rows[0].file_path) != len(told):
            self._write(rows[0].file_path, told)
        return list(zip(rows, (one for _, one in found), strict=True))


def _is_at_rest(noted: tuple[str, bytes]) -> bool:
    name, data = noted
    return decode(data, name).standing.row.status is not Status.RUNNING
