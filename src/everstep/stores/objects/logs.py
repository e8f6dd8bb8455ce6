"""Where the logs of runs lie: a place is taken once, and holds an entry. Every rule about them is above this.

`BucketLogs` keeps each entry as an object of bytes; the store in memory keeps entries as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from everstep.model.leases import Lease
from everstep.model.waits import WaitRow
from everstep.stores.columns import to_int
from everstep.stores.objects import names
from everstep.stores.objects.bucket import Bucket, Found
from everstep.stores.objects.entries import Entry, Record, Standing, decode, encode, new_nonce


class LogHead(NamedTuple):
    """The newest entry of a run that was seen."""

    place: int
    standing: Standing


class RunLine:
    """What a client knows of one run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.head: LogHead | None = None
        self.rows: dict[str, tuple[int, WaitRow]] = {}
        self.counts: dict[int, int] = {}
        """The newest checkpoint at places that were looked for."""
        self.beat: Lease | None = None
        """The lease as it was last seen prolonged."""
        self.read: dict[int, Found] | None = None
        """What was read at its places while it is believed; none while every call looks anew."""

    def move(self, place: int, standing: Standing) -> None:
        if self.head is None or place > self.head.place:
            self.head = LogHead(place, standing)

    @property
    def standing(self) -> Standing | None:
        """How the run stands; none if it is not there, or was removed."""
        standing = self.head.standing if self.head is not None else None
        return None if standing is None or standing.gone else standing


class Logs(Protocol):
    """The logs of all runs."""

    is_slow: bool
    """True if to add an entry waits for a disk or a network, so that several at once take less time."""

    def numbers(self, many: int) -> range:
        """Return so many numbers that rise from call to call, reserved for this caller."""

    def at(self, line: RunLine, place: int, *, anew: bool = False) -> Entry | None:
        """Return what stands at a place; `StateCorrupted` if it cannot be read.

        While the run is believed, as it was read before, unless it is to be read `anew`.
        """

    def records(self, line: RunLine, first: int, last: int) -> list[Sequence[Record]] | None:
        """Return the records at places in a row, if they lie here; none if each place has to be fetched."""

    def last(self, line: RunLine, after: int) -> int:
        """Return the last place that is taken; 0 if there is none after another."""

    def add(self, line: RunLine, place: int, entry: Entry) -> bool:
        """Take a place; false if it was taken. Whole, durable, for one caller only."""

    def add_steps(self, line: RunLine, place: int, standing: Standing, records: tuple[Record, ...]) -> bool:
        """Take a place for records that change nothing of the run but its newest checkpoint."""

    def rewrite(self, line: RunLine, place: int, change: Callable[[Entry], Entry]) -> int:
        """Replace an entry by one that says the same; 1 if it was replaced."""


class BucketLogs:
    """Logs of bytes in a bucket."""

    is_slow = True

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._last = 0

    def numbers(self, many: int) -> range:
        """They follow the time of the place, so that those of two clients are in order, too."""
        now = to_int(self._bucket.now()) or 0
        with self._lock:
            first = max(self._last + 1, now)
            self._last = first + many - 1
            return range(first, first + many)

    def at(self, line: RunLine, place: int, *, anew: bool = False) -> Entry | None:
        name = names.place_name(line.run_id, place)
        found = self._bucket.get(name) if anew else self._found(line, place, name)
        return None if found is None else decode(found.data, self._where(name))

    def records(self, line: RunLine, first: int, last: int) -> list[Sequence[Record]] | None:
        return None

    def _found(self, line: RunLine, place: int, name: str) -> Found | None:
        read = line.read
        if read is not None and place in read:
            return read[place]
        there = self._bucket.get(name)
        if read is not None and there is not None:
            read[place] = there
        return there

    def _where(self, name: str) -> str:
        return f"{name} in {self._bucket.place}"

    def last(self, line: RunLine, after: int) -> int:
        behind = names.place_name(line.run_id, after) if after else ""
        found = self._bucket.names(names.log_prefix(line.run_id), after=behind)
        return names.place_of(found[-1]) if found else 0

    def add(self, line: RunLine, place: int, entry: Entry) -> bool:
        entry = msgspec.structs.replace(entry, nonce=new_nonce())
        name, data = names.place_name(line.run_id, place), encode(entry)
        if not self._bucket.create(name, data) and not self._is_ours(name, entry):
            return False
        if line.read is not None:
            line.read[place] = Found(data, "")  # no tag: it is read before it is replaced
        return True

    def _is_ours(self, name: str, entry: Entry) -> bool:
        found = self._bucket.get(name)
        return found is not None and decode(found.data, self._where(name)).nonce == entry.nonce

    def add_steps(self, line: RunLine, place: int, standing: Standing, records: tuple[Record, ...]) -> bool:
        before = line.head.standing.keyframe if line.head is not None else 0
        has_more = (
            standing.tree
            or standing.tags
            or standing.attributes
            or standing.row.started_by
            or standing.undoing
        )
        is_told = standing.told or standing.notices
        entry = Entry(
            version=2 if has_more or is_told else 1,
            standing=standing,
            records=records,
            keyframe_before=before,
            what="record",
        )
        return self.add(line, place, entry)

    def rewrite(self, line: RunLine, place: int, change: Callable[[Entry], Entry]) -> int:
        name = names.place_name(line.run_id, place)
        found = self._found(line, place, name)
        while True:
            if found is None:
                return 0
            entry = decode(found.data, name)
            changed = change(entry)
            if changed == entry:
                return 0
            if found.tag and self._bucket.swap(name, encode(changed), found.tag):
                return 1
            found = self._bucket.get(name)
