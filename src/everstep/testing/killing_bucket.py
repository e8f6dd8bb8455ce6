"""A bucket whose every write is a point to die at, so that no order of two objects is left untried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from everstep.ports.health import Health
from everstep.stores.objects.bucket import Bucket, Found, Listed
from everstep.testing.killing import Points

_BEATS = "beats/"


class KillingBucket:
    """The same bucket with points around every write: `before create 3`, `after mark 1`."""

    def __init__(self, bucket: Bucket, killer: Points) -> None:
        self._bucket = bucket
        self._killer = killer
        self.is_local = bucket.is_local
        self.place = bucket.place

    def create(self, name: str, data: bytes) -> bool:
        with self._killer.write("create"):
            return self._bucket.create(name, data)

    def mark(self, names: Sequence[str]) -> None:
        with self._killer.write("mark"):
            self._bucket.mark(names)

    def swap(self, name: str, data: bytes, tag: str) -> bool:
        with self._killer.write("swap"):
            return self._bucket.swap(name, data, tag)

    def put(self, name: str, data: bytes) -> None:
        with self._killer.write("renew" if name.startswith(_BEATS) else "replace"):
            self._bucket.put(name, data)

    def delete(self, names: Iterable[str]) -> None:
        with self._killer.write("remove"):
            self._bucket.delete(names)

    def get(self, name: str) -> Found | None:
        return self._bucket.get(name)

    def names(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        return self._bucket.names(prefix, after=after, limit=limit)

    def listed(self, prefix: str) -> Iterable[Listed]:
        return self._bucket.listed(prefix)

    def now(self) -> datetime:
        return self._bucket.now()

    def changes(self) -> int | None:
        return self._bucket.changes()

    def health(self) -> Health:
        return self._bucket.health()

    def close(self) -> None:
        self._bucket.close()
