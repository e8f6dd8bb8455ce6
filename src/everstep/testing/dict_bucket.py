"""A bucket in memory, which several clients may share: for tests of what is built on buckets."""

from __future__ import annotations

from datetime import UTC, datetime

from everstep.stores.memory import MemoryBucket
from everstep.stores.memory import MemoryData as DictObjects

__all__ = ["DictBucket", "DictObjects"]


class DictBucket(MemoryBucket):
    """Keeps objects in a dictionary, by the time of this machine."""

    def __init__(self, objects: DictObjects) -> None:
        self.objects = objects
        self._data = objects

    def now(self) -> datetime:
        return datetime.now(UTC)
