"""Artifacts as rows of a table, each named by the SHA-256 of its data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial

from everstep.errors import StateCorrupted
from everstep.model.records import ArtifactRef
from everstep.stores.postgres.address import Address
from everstep.stores.postgres.connections import Connections, rows

_PIECE = 1024 * 1024


class ArtifactTable:
    """Keeps each artifact once, in the database that keeps the runs."""

    def __init__(self, at: Address, connections: Connections, queries: dict[str, str]) -> None:
        self._at = at
        self._connections = connections
        self._put, self._get = queries["put_artifact"], queries["artifact"]
        self._piece = queries["artifact_piece"]

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        named = data if plain is None else plain
        digest = hashlib.sha256(named).hexdigest()
        self._connections.use(lambda c: c.execute(self._put, (digest, header + data)))
        return ArtifactRef("postgres", digest, len(named), content_type, digest)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        found = self._connections.use(lambda c: rows(c, self._get, (ref.key,)))
        if not found:
            raise self._missing(ref)
        return bytes(found[0][0])

    def stream_checkpoint_blob(self, ref: ArtifactRef) -> Iterator[bytes]:
        at = 1
        while True:
            found = self._connections.use(partial(rows, query=self._piece, values=(ref.key, at, _PIECE)))
            if not found:
                raise self._missing(ref)
            piece = bytes(found[0][0])
            yield piece
            at += len(piece)
            if len(piece) < _PIECE:
                return

    def _missing(self, ref: ArtifactRef) -> StateCorrupted:
        return StateCorrupted(
            f"artifact {ref.key} is missing from {self._at.shown}.",
            fix="Restore the table of artifacts that belongs to these runs.",
        )
