"""Artifacts in a bucket, named by their digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from everstep.errors import StateCorrupted
from everstep.model.records import ArtifactRef
from everstep.model.removal import StoredBlob
from everstep.ports.system import Clock, time_for_store
from everstep.stores.columns import to_int, to_time
from everstep.stores.objects import names
from everstep.stores.objects.bucket import Bucket, Listed

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TIME = 8
"""The bytes before an artifact that say when it was put. What was removed is left without any."""


class ObjectBlobs:
    """Keeps artifacts beside the runs of a bucket."""

    storage = "objects"
    """What their references say."""

    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock

    def _now(self) -> datetime:
        return time_for_store(self._clock) or self._bucket.now()

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        named = data if plain is None else plain
        digest = hashlib.sha256(named).hexdigest()
        self._put(digest, header + data)
        return ArtifactRef(self.storage, digest, len(named), content_type, digest)

    def restore_checkpoint_blob(self, ref: ArtifactRef, stored: bytes) -> None:
        self._put(_checked(ref.checksum), stored)

    def _put(self, digest: str, data: bytes) -> None:
        at = (to_int(self._now()) or 0).to_bytes(_TIME, "big", signed=True)
        self._bucket.put(names.blob_name(digest), at + data)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        found = self._bucket.get(names.blob_name(_checked(ref.checksum)))
        if found is None or len(found.data) < _TIME:
            raise StateCorrupted(f"artifact {ref.key} is missing from {self._bucket.place}.")
        return found.data[_TIME:]

    def list_checkpoint_blobs(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        found: list[StoredBlob] = []
        now = self._now()
        for listed in self._listed(after):
            if len(found) == limit:
                break
            found.append(StoredBlob(_key(listed.name), listed.size - _TIME, now - self._touched_at(listed)))
        return found

    def _listed(self, after: str) -> Iterator[Listed]:
        """Go through one part at a time: no more names are held than lie in one."""
        for part in self._parts():
            if part >= after[:2]:
                inside = self._bucket.listed(f"blobs/{part}/")
                kept = [one for one in inside if _key(one.name) > after and one.size >= _TIME]
                yield from sorted(kept, key=lambda one: one.name)

    def _parts(self) -> Iterable[str]:
        """Return the two digits that names begin with, in order."""
        return (f"{number:02x}" for number in range(256))

    def _touched_at(self, listed: Listed) -> datetime:
        """Return when an artifact was put, by the clock that counts here."""
        if time_for_store(self._clock) is None:
            return listed.modified_at
        found = self._bucket.get(listed.name)
        return listed.modified_at if found is None else _put_at(found.data)

    def delete_checkpoint_blobs(self, keys: Sequence[str], *, untouched_for: timedelta) -> list[str]:
        """Take out the bytes of those that were not put for so long: what is put meanwhile stays."""
        latest = self._now() - untouched_for
        removed = []
        for key in keys:
            found = self._bucket.get(names.blob_name(key)) if _SHA256.fullmatch(key) else None
            if found is None or len(found.data) < _TIME or _put_at(found.data) > latest:
                continue
            if self._bucket.swap(names.blob_name(key), b"", found.tag):
                removed.append(key)
        return removed


def _put_at(data: bytes) -> datetime:
    at = to_time(int.from_bytes(data[:_TIME], "big", signed=True))
    assert at is not None
    return at


def _key(name: str) -> str:
    return name.rpartition("/")[2]


def _checked(checksum: str) -> str:
    """Return a checksum that leads to no other name."""
    if not _SHA256.fullmatch(checksum):
        raise StateCorrupted(f"{checksum!r} names no artifact.")
    return checksum
