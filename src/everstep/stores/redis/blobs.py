"""Artifacts as keys of Redis, named by the digest of their data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from everstep.errors import StateCorrupted
from everstep.model.records import ArtifactRef
from everstep.stores.redis.link import Links

_PIECE = 1024 * 1024


class RedisBlobs:
    """Keeps each artifact in a key of its own, as durably as the server keeps any write."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        named = data if plain is None else plain
        digest = hashlib.sha256(named).hexdigest()
        self._links.command("SET", self._key(digest), header + data)
        return ArtifactRef("redis", digest, len(named), content_type, digest)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        found = self._links.command("GET", self._key(ref.key))
        if found is None:
            raise StateCorrupted(
                f"artifact {ref.key} is missing from the Redis at {self._links.address.shown}.",
                fix="See whether the server evicts keys: everstep doctor says so.",
            )
        return bytes(found)

    def stream_checkpoint_blob(self, ref: ArtifactRef) -> Iterator[bytes]:
        at, key = 0, self._key(ref.key)
        while piece := bytes(self._links.command("GETRANGE", key, at, at + _PIECE - 1)):
            yield piece
            at += len(piece)
        if not at:
            yield self.get_checkpoint_blob(ref)

    def _key(self, digest: str) -> str:
        return f"{self._links.address.keys}blob:{digest}"
