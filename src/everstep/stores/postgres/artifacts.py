"""Artifacts as rows of a table, each named by the SHA-256 of its data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial

from everstep.errors import StateCorrupted
from everstep.model.records import ArtifactRef
from everstep.model.removal import StoredBlob
from everstep.ports.system import Clock, time_for_store
from everstep.stores.columns import check_size, span_to_int, to_int
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.columns import text
from everstep.stores.postgres.connections import Connections, rows

_PIECE = 1024 * 1024
MOST = 2**30 - 2**16
"""Bytes of an artifact: a column, and a message to the server, hold less than 1 GiB."""


class ArtifactTable:
    """Keeps each artifact once, in the database that keeps the runs."""

    def __init__(
        self, at: PostgresAddress, connections: Connections, queries: dict[str, str], clock: Clock
    ) -> None:
        self._at = at
        self._connections = connections
        self._sql = queries
        self._clock = clock

    def _now(self) -> int | None:
        return to_int(time_for_store(self._clock))

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        check_size(len(header) + len(data), MOST, self._at.shown)
        named = data if plain is None else plain
        digest = hashlib.sha256(named).hexdigest()
        values = (digest, header + data, self._now())
        self._connections.use(lambda c: c.execute(self._sql["put_artifact"], values))
        return ArtifactRef("postgres", digest, len(named), content_type, digest)

    def restore_checkpoint_blob(self, ref: ArtifactRef, stored: bytes) -> None:
        check_size(len(stored), MOST, self._at.shown)
        values = (ref.checksum, stored, self._now())
        self._connections.use(lambda c: c.execute(self._sql["put_artifact"], values))

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        found = self._connections.use(lambda c: rows(c, self._sql["artifact"], (ref.checksum,)))
        if not found:
            raise self._missing(ref)
        return bytes(found[0][0])

    def list_checkpoint_blobs(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        values = (self._now(), text(after), limit)
        found = self._connections.use(lambda c: rows(c, self._sql["artifacts"], values))
        return [StoredBlob(key, size, timedelta(microseconds=age)) for key, size, age in found]

    def delete_checkpoint_blobs(self, keys: Sequence[str], *, untouched_for: timedelta) -> list[str]:
        values = (self._now(), [text(key) for key in keys], span_to_int(untouched_for))
        found = self._connections.use(lambda c: rows(c, self._sql["delete_artifacts"], values))
        return [key for (key,) in found]

    def stream_checkpoint_blob(self, ref: ArtifactRef) -> Iterator[bytes]:
        at = 1
        while True:
            found = self._connections.use(
                partial(rows, query=self._sql["artifact_piece"], values=(ref.checksum, at, _PIECE))
            )
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
