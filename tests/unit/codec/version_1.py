"""Records as 0.1 wrote them, for tests of chains that it began."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from everstep.codec import records
from everstep.model.records import CheckpointRecord

_STRUCT = records._spelled_out(CheckpointRecord)


def header_of_version_1(record: CheckpointRecord) -> bytes:
    """Return the header that 0.1 made of a record."""
    record = msgspec.structs.replace(record, version=2)  # the default, so that none is written
    return msgspec.msgpack.encode(msgspec.convert(record, _STRUCT, from_attributes=True))


def seal_as_version_1(
    record: CheckpointRecord, base_digest: bytes, payloads: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """Return the bytes of a record and its digest as 0.1 made them."""
    header = header_of_version_1(record)
    digest = hashlib.sha256(base_digest + header).digest()
    kept = base_digest if record.keyframe else b""
    return msgspec.msgpack.encode((1, digest, kept, header, payloads)), digest
