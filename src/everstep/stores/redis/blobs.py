"""Artifacts as keys of Redis, named by the digest of their data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from everstep.errors import StateCorrupted
from everstep.model.records import ArtifactRef
from everstep.model.removal import StoredBlob
from everstep.ports.system import Clock, time_for_store
from everstep.stores.columns import check_size
from everstep.stores.redis.fields import micros, span
from everstep.stores.redis.link import Links
from everstep.stores.redis.wire import Argument

_PIECE = 1024 * 1024
MOST = 2**29 - 2**16
"""Bytes of an artifact: a key holds less than 512 MiB."""


class RedisBlobs:
    """Keeps each artifact in a key of its own, as durably as the server keeps any write."""

    def __init__(self, links: Links, clock: Clock) -> None:
        self._links = links
        self._clock = clock

    def _call(self, name: str, *arguments: Argument) -> Any:
        now = time_for_store(self._clock)
        return self._links.call(name, b"" if now is None else str(micros(now)), *arguments)

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        check_size(len(header) + len(data), MOST, f"the Redis at {self._links.address.shown}")
        named = data if plain is None else plain
        digest = hashlib.sha256(named).hexdigest()
        self._call("put_blob", digest, header + data)
        return ArtifactRef("redis", digest, len(named), content_type, digest)

    def restore_checkpoint_blob(self, ref: ArtifactRef, stored: bytes) -> None:
        check_size(len(stored), MOST, f"the Redis at {self._links.address.shown}")
        self._call("put_blob", ref.checksum, stored)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        found = self._links.command("GET", f"{self._links.address.keys}blob:{ref.checksum}")
        if found is None:
            raise StateCorrupted(
                f"artifact {ref.key} is missing from the Redis at {self._links.address.shown}.",
                fix="See whether the server evicts keys: everstep doctor says so.",
            )
        return bytes(found)

    def list_checkpoint_blobs(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        return [
            StoredBlob(digest.decode(), size, timedelta(microseconds=int(age)))
            for digest, size, age in self._call("blobs", after, limit)
        ]

    def delete_checkpoint_blobs(self, keys: Sequence[str], *, untouched_for: timedelta) -> list[str]:
        return [digest.decode() for digest in self._call("delete_blobs", span(untouched_for), *keys)]

    def stream_checkpoint_blob(self, ref: ArtifactRef) -> Iterator[bytes]:
        at, key = 0, self._key(ref.checksum)
        while piece := bytes(self._links.command("GETRANGE", key, at, at + _PIECE - 1)):
            yield piece
            at += len(piece)
        if not at:
            yield self.get_checkpoint_blob(ref)

    def _key(self, digest: str) -> str:
        return f"{self._links.address.keys}blob:{digest}"
