"""Records as bytes: a header that is hashed into the chain, and the payloads it names by digest.

The digest covers the header and the digest before it, and the header names every value by the digest of its
serialized bytes. So a payload may be compressed or encrypted anew without touching the chain, and no byte
of it can change unseen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from everstep.codec.payload import body_of
from everstep.errors import IncompatibleVersion, StateCorrupted
from everstep.model.records import SCHEMA_VERSION, CheckpointRecord

_encoder = msgspec.msgpack.Encoder()
_headers = msgspec.msgpack.Decoder(CheckpointRecord)


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    version: int
    digest: bytes
    base_digest: bytes
    header: bytes
    payloads: list[bytes]


_envelopes = msgspec.msgpack.Decoder(_Envelope)


class OpenRecord(msgspec.Struct, frozen=True):
    """A record read back: the header, its digest, and the payloads in the order of `record.writes()`."""

    record: CheckpointRecord
    digest: bytes
    payloads: list[bytes]


def seal(record: CheckpointRecord, base_digest: bytes, payloads: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the bytes of a record and its digest. A keyframe also keeps the one before it."""
    header = _encoder.encode(record)
    digest = hashlib.sha256(base_digest + header).digest()
    kept = base_digest if record.keyframe else b""
    return _encoder.encode((SCHEMA_VERSION, digest, kept, header, payloads)), digest


def unseal(body: bytes, where: str, base_digest: bytes | None) -> OpenRecord:
    """Read a record and check its digest; without the digest before it only a keyframe can be read."""
    try:
        envelope = _envelopes.decode(body)
        if envelope.version > SCHEMA_VERSION:
            raise _newer(where, envelope.version)
        if envelope.version < 1:
            raise ValueError(f"schema version {envelope.version}")
        record = _headers.decode(envelope.header)
        if envelope.version != record.version:
            record = msgspec.structs.replace(record, version=envelope.version)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError, TypeError) as error:
        raise StateCorrupted(f"{where} cannot be read: {error}.") from error
    before = envelope.base_digest if base_digest is None else base_digest
    if hashlib.sha256(before + envelope.header).digest() != envelope.digest:
        raise StateCorrupted(f"{where} was altered, or the record before it is missing.")
    return OpenRecord(record, envelope.digest, envelope.payloads)


def header_of(body: bytes, where: str) -> CheckpointRecord:
    """Read what a record says without the record before it, and so without checking its digest."""
    try:
        envelope = _envelopes.decode(body)
        if envelope.version > SCHEMA_VERSION:
            raise _newer(where, envelope.version)
        return _headers.decode(envelope.header)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError, TypeError) as error:
        raise StateCorrupted(f"{where} cannot be read: {error}.") from error


def digest_of(body: bytes) -> bytes:
    """Return the digest that a record claims to have: all that is left of one that is trimmed."""
    try:
        return _envelopes.decode(body).digest
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateCorrupted(f"a record cannot be read: {error}.") from error


def with_payloads(body: bytes, payloads: Sequence[bytes]) -> bytes:
    """Return a record with other bytes for the values it names. Its digest stays."""
    envelope = _envelopes.decode(body)
    return _encoder.encode(
        (envelope.version, envelope.digest, envelope.base_digest, envelope.header, payloads)
    )


def check_digest(body: bytes, where: str, base_digest: bytes | None) -> bytes:
    """Return a record's digest once it is checked, without reading what the record says."""
    try:
        envelope = _envelopes.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateCorrupted(f"{where} cannot be read: {error}.") from error
    if envelope.version > SCHEMA_VERSION:
        raise _newer(where, envelope.version)
    before = envelope.base_digest if base_digest is None else base_digest
    if hashlib.sha256(before + envelope.header).digest() != envelope.digest:
        raise StateCorrupted(f"{where} was altered, or the record before it is missing.")
    return envelope.digest


def check_values(opened: OpenRecord, where: str) -> None:
    """Raise `StateCorrupted` unless every inline payload is there with the digest that the header names."""
    inline = [w for w in opened.record.writes() if w.is_inline]
    if len(inline) != len(opened.payloads):
        raise StateCorrupted(f"{where} does not hold the values it names.")
    for write, payload in zip(inline, opened.payloads, strict=True):
        if hashlib.sha256(body_of(payload, write.name)).digest() != write.digest:
            raise StateCorrupted(f"{where}: the bytes of value {write.name!r} were altered.")


def _newer(where: str, version: int) -> IncompatibleVersion:
    return IncompatibleVersion(
        f"{where} has schema version {version}; this everstep knows up to {SCHEMA_VERSION}.",
        fix="Use the newer everstep that wrote it.",
    )
