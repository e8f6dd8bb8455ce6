"""Where `memory:` keeps things: named bytes in a dictionary, logs as lists of entries that are not encoded.
Apart from its package, which only says where it is.

A step in memory should cost little, and encoding is most of what it would cost.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, cast

import msgspec

from everstep.model.acts import AuditRow
from everstep.model.removal import Erasure
from everstep.on_demand import on_demand
from everstep.ports.health import Finding, Health, Level
from everstep.ports.store import Capabilities
from everstep.ports.system import Clock
from everstep.stores.objects.blobs import ObjectBlobs
from everstep.stores.objects.bucket import Found, Listed
from everstep.stores.objects.entries import Entry, Record, Standing
from everstep.stores.objects.logs import RunLine
from everstep.stores.objects.store import ObjectStore

if TYPE_CHECKING:
    from everstep.ports.live import LiveRing
    from everstep.stores.memory.live import MemoryRing
else:
    MemoryRing = on_demand("everstep.stores.memory.live:MemoryRing")


class MemoryLog:
    """The log of one run."""

    def __init__(self) -> None:
        self.places: list[Entry | tuple[Record, ...]] = []
        """Of plain steps only the records are kept: they tell how the run stood after them."""
        self.standing: Standing | None = None
        """How the run stands after the last place."""


class MemoryData:
    """What several memory stores may share, as processes share a database."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.kept: dict[str, tuple[bytes, int, datetime]] = {}
        """Bytes by their names, with a number that tells two writes apart and the time."""
        self.names: list[str] = []
        """The same names, sorted."""
        self.logs: dict[str, MemoryLog] = {}
        """By the ids of their runs."""
        self.writes = 0
        self.numbers = 0
        """How many numbers were given out."""
        self.ring: MemoryRing | None = None


class MemoryBucket:
    """Named bytes in a dictionary."""

    is_local = True
    place = "memory"

    def __init__(self, data: MemoryData, clock: Clock) -> None:
        self._data = data
        self._clock = clock

    def get(self, name: str) -> Found | None:
        found = self._data.kept.get(name)
        return None if found is None else Found(found[0], str(found[1]))

    def create(self, name: str, data: bytes) -> bool:
        with self._data.lock:
            if name in self._data.kept:
                return False
            self.put(name, data)
            return True

    def mark(self, names: Sequence[str]) -> None:
        now, data = self.now(), self._data
        with data.lock:
            for name in names:
                if name not in data.kept:
                    insort(data.names, name)
                    data.writes += 1
                    data.kept[name] = (b"", data.writes, now)

    def swap(self, name: str, data: bytes, tag: str) -> bool:
        with self._data.lock:
            found = self.get(name)
            if found is None or found.tag != tag:
                return False
            self.put(name, data)
            return True

    def put(self, name: str, data: bytes) -> None:
        with self._data.lock:
            if name not in self._data.kept:
                insort(self._data.names, name)
            self._data.writes += 1
            self._data.kept[name] = (bytes(data), self._data.writes, self.now())

    def delete(self, names: Iterable[str]) -> None:
        with self._data.lock:
            for name in names:
                if self._data.kept.pop(name, None) is not None:
                    del self._data.names[bisect_left(self._data.names, name)]

    def names(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        with self._data.lock:
            known = self._data.names
            first = max(bisect_left(known, prefix), bisect_right(known, after) if after else 0)
            last = bisect_left(known, prefix + "\U0010ffff")
            return known[first : last if limit is None else min(last, first + limit)]

    def listed(self, prefix: str) -> Iterable[Listed]:
        with self._data.lock:
            kept = [(name, self._data.kept[name]) for name in self.names(prefix)]
        return [Listed(name, len(data), at) for name, (data, _, at) in kept]

    def now(self) -> datetime:
        return self._clock.now()

    def changes(self) -> int | None:
        return self._data.writes

    def health(self) -> Health:
        text = "it keeps everything in this process: when that ends, every run is lost."
        return Health(server="memory", findings=(Finding(Level.WARNING, text, "Give a URL to keep runs."),))

    def close(self) -> None:
        return


class MemoryLogs:
    """Logs as lists of entries."""

    is_slow = False

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def numbers(self, many: int) -> range:
        with self._data.lock:
            first = self._data.numbers + 1
            self._data.numbers += many
            return range(first, first + many)

    def at(self, line: RunLine, place: int, *, anew: bool = False) -> Entry | None:
        with self._data.lock:
            log = self._data.logs.get(line.run_id)
            if log is None or not 0 < place <= len(log.places):
                return None
            kept, standing = log.places[place - 1], log.standing
            if not isinstance(kept, tuple):
                return kept
            if anew and place < len(log.places):
                standing = _standing_at(log.places, place)
        assert standing is not None
        return Entry(standing=standing, records=kept, keyframe_before=place - 1)

    def records(self, line: RunLine, first: int, last: int) -> list[Sequence[Record]] | None:
        with self._data.lock:
            log = self._data.logs.get(line.run_id)
            places = log.places[first - 1 : last] if log is not None else []
        return [kept if type(kept) is tuple else cast(Entry, kept).records for kept in places]

    def last(self, line: RunLine, after: int) -> int:
        log = self._data.logs.get(line.run_id)
        return len(log.places) if log is not None and len(log.places) > after else 0

    def add(self, line: RunLine, place: int, entry: Entry) -> bool:
        return self._add(line, place, entry.standing, entry)

    def add_steps(self, line: RunLine, place: int, standing: Standing, records: tuple[Record, ...]) -> bool:
        return self._add(line, place, standing, records)

    def _add(self, line: RunLine, place: int, standing: Standing, kept: Entry | tuple[Record, ...]) -> bool:
        data = self._data
        with data.lock:
            log = data.logs.get(line.run_id)
            if log is None:
                log = data.logs[line.run_id] = MemoryLog()
            if len(log.places) != place - 1:
                return False
            log.places.append(kept)
            log.standing = standing
            data.writes += 1
            return True

    def rewrite(self, line: RunLine, place: int, change: Callable[[Entry], Entry]) -> int:
        with self._data.lock:
            entry = self.at(line, place)
            changed = entry if entry is None else change(entry)
            if changed is None or changed == entry:
                return 0
            places = self._data.logs[line.run_id].places
            if changed.standing.gone:
                # What is left of a removed run is the same everywhere, and kept once.
                before = places[place - 2] if place > 1 else None
                places[place - 1] = before if isinstance(before, Entry) and before == changed else changed
            else:
                is_bare = isinstance(places[place - 1], tuple)
                places[place - 1] = changed.records if is_bare else changed
            self._data.writes += 1
            return 1


def _standing_at(places: Sequence[Entry | tuple[Record, ...]], place: int) -> Standing:
    """Return how a run stood after a plain step: as before, but for its newest checkpoint."""
    keyframe, newest = 0, None
    for k in range(place, 0, -1):
        kept = places[k - 1]
        records = kept.records if isinstance(kept, Entry) else kept
        newest = newest or records[-1]
        if isinstance(kept, Entry):
            row = kept.standing.row.changed(checkpoints=newest.sequence)
            keyframe = keyframe or kept.standing.keyframe
            return msgspec.structs.replace(
                kept.standing, row=row, head=newest.checkpoint_id, keyframe=keyframe
            )
        if not keyframe and any(record.keyframe for record in kept):
            keyframe = k
    raise AssertionError("a log begins with an admission")


class MemoryBlobs(ObjectBlobs):
    storage = "memory"


class MemoryStore(ObjectStore):
    """A store that forgets everything when the process ends."""

    capabilities = Capabilities(
        durable=False,
        single_writer=True,
        recodes=True,
        compares=True,
        takes_head=True,
        retains=True,
        restores=True,
        fences=True,
        live=True,
        has_inbox=True,
        has_events=True,
        audits=True,
        has_labels=True,
        has_notices=True,
        pauses=True,
        has_children=True,
        limits=True,
        undoes=True,
    )

    def __init__(self, clock: Clock, data: MemoryData | None = None) -> None:
        self.data = data or MemoryData()
        bucket = MemoryBucket(self.data, clock)
        super().__init__(bucket, clock, logs=MemoryLogs(self.data))
        self.artifacts = MemoryBlobs(bucket, clock)

    async def erase(
        self,
        run_id: str,
        *,
        head: int,
        reason: str,
        summary: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> Erasure:
        verdict = await super().erase(run_id, head=head, reason=reason, summary=summary, audit=audit)
        if verdict is Erasure.ERASED and self.data.ring is not None:
            self.data.ring.forget(run_id)
        return verdict

    def live(self) -> LiveRing:
        with self.data.lock:
            if self.data.ring is None:
                self.data.ring = MemoryRing()
            return self.data.ring
