"""A bucket in memory, which several clients may share: for tests of what is built on buckets."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from everstep.ports.health import Finding, Health, Level
from everstep.stores.objects.bucket import Found, Listed


class DictObjects:
    """What clients share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.kept: dict[str, tuple[bytes, int, datetime]] = {}
        self.names: list[str] = []
        self.writes = 0


class DictBucket:
    """Keeps objects in a dictionary."""

    is_local = True
    place = "memory"

    def __init__(self, objects: DictObjects) -> None:
        self.objects = objects

    def get(self, name: str) -> Found | None:
        found = self.objects.kept.get(name)
        return None if found is None else Found(found[0], str(found[1]))

    def create(self, name: str, data: bytes) -> bool:
        with self.objects.lock:
            if name in self.objects.kept:
                return False
            self.put(name, data)
            return True

    def mark(self, names: Sequence[str]) -> None:
        for name in names:
            self.create(name, b"")

    def swap(self, name: str, data: bytes, tag: str) -> bool:
        with self.objects.lock:
            found = self.get(name)
            if found is None or found.tag != tag:
                return False
            self.put(name, data)
            return True

    def put(self, name: str, data: bytes) -> None:
        with self.objects.lock:
            if name not in self.objects.kept:
                insort(self.objects.names, name)
            self.objects.writes += 1
            self.objects.kept[name] = (bytes(data), self.objects.writes, self.now())

    def delete(self, names: Iterable[str]) -> None:
        with self.objects.lock:
            for name in names:
                if self.objects.kept.pop(name, None) is not None:
                    del self.objects.names[bisect_left(self.objects.names, name)]

    def names(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        with self.objects.lock:
            known = self.objects.names
            first = max(bisect_left(known, prefix), bisect_right(known, after) if after else 0)
            last = bisect_left(known, prefix + "\U0010ffff")
            return known[first : last if limit is None else min(last, first + limit)]

    def listed(self, prefix: str) -> Iterable[Listed]:
        with self.objects.lock:
            kept = [(name, self.objects.kept[name]) for name in self.names(prefix)]
        return [Listed(name, len(data), at) for name, (data, _, at) in kept]

    def now(self) -> datetime:
        return datetime.now(UTC)

    def changes(self) -> int | None:
        return self.objects.writes

    def health(self) -> Health:
        return Health(server="memory", findings=(Finding(Level.WARNING, "it forgets everything."),))

    def close(self) -> None:
        return
