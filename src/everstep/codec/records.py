"""Records as bytes: a header that is hashed into the chain, and the payloads it names by digest.

The digest covers the header, the id that a store keeps beside the record, and the digest before it; the
header names every value by the digest of its serialized bytes. So a payload may be compressed or encrypted
anew without touching the chain, and no byte of it can change unseen. A chain may hold records of several
versions: each is hashed onto the digest before it in the way of its own version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec.structs import force_setattr, replace

from everstep.codec.payload import LEFT_OUT, body_of
from everstep.errors import IncompatibleVersion, StateCorrupted
from everstep.model.enums import ValueForm
from everstep.model.records import SCHEMA_VERSION, CheckpointRecord, Stored, Written
from everstep.model.shapes import understood

_encoder = msgspec.msgpack.Encoder()


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    version: int
    digest: bytes
    base_digest: bytes
    header: bytes
    payloads: list[bytes]
    notes: list[bytes] = []


_WHOLE = ValueForm.WHOLE
LOST = b"\xc1"
"""What a store gives for a record that is gone or cannot be read: no record."""
_PAYLOADS, _NOTES = 4, 5
"""The places of payloads and notes in an envelope; what a later release puts behind them is kept.

Notes are who did something and why where records are encrypted. Releases that know of none pass them by."""
_anything = msgspec.msgpack.Decoder()


# Made when a record is first read, as to look at all its types takes a while, and many processes only write.


@cache
def _headers() -> msgspec.msgpack.Decoder[CheckpointRecord]:
    return msgspec.msgpack.Decoder(understood(CheckpointRecord))


@cache
def _envelopes() -> msgspec.msgpack.Decoder[_Envelope]:
    return msgspec.msgpack.Decoder(understood(_Envelope))


class OpenRecord(msgspec.Struct, frozen=True):
    """A record read back: the header, its digest, and the payloads in the order of `record.writes()`."""

    record: CheckpointRecord
    digest: bytes
    payloads: list[bytes]
    notes: list[bytes] = []


def seal(
    record: CheckpointRecord, base_digest: bytes, payloads: Sequence[bytes], notes: Sequence[bytes] = ()
) -> tuple[bytes, bytes]:
    """Return the bytes of a record and its digest. A keyframe also keeps the one before it."""
    if record.version != SCHEMA_VERSION:
        record = replace(record, version=SCHEMA_VERSION)
    header = _encoder.encode(replace(record, checkpoint_id=""))
    digest = hashlib.sha256(base_digest + record.checkpoint_id.encode() + header).digest()
    kept = base_digest if record.keyframe else b""
    envelope = (SCHEMA_VERSION, digest, kept, header, payloads)
    return _encoder.encode((*envelope, notes) if notes else envelope), digest


class Glance(msgspec.Struct, frozen=True):
    """A record as it says that it is; nothing of it is checked yet."""

    record: CheckpointRecord
    digest: bytes
    base_digest: bytes
    """Only a keyframe keeps it: the digest that it was hashed onto."""
    header: bytes
    payloads: list[bytes]
    notes: list[bytes] = []

    def joins(self, base_digest: bytes) -> bool:
        """True if the record was hashed onto this digest and is as it was then."""
        record = self.record
        return _digest(base_digest, record.checkpoint_id, self.header, record.version) == self.digest

    @property
    def stands_alone(self) -> bool:
        """True for a keyframe that is as it was written, whatever lies before it."""
        return self.record.keyframe and self.joins(self.base_digest)


def glance(body: bytes, where: str, checkpoint_id: str = "") -> Glance:
    """Read a record without checking its digest; raises a named error if it cannot be read at all."""
    envelope = _opened(body, where)
    record = _record(envelope, where, checkpoint_id)
    parts = (envelope.digest, envelope.base_digest, envelope.header, envelope.payloads, envelope.notes)
    return Glance(record, *parts)


def _record(envelope: _Envelope, where: str, checkpoint_id: str) -> CheckpointRecord:
    """Return what a header says, whichever version it is of."""
    try:
        if envelope.version == 1:
            return _read_version_1(envelope.header)
        record = _headers().decode(envelope.header)
    except (msgspec.DecodeError, LookupError, ValueError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"{where} cannot be read: {error}.") from error
    force_setattr(record, "checkpoint_id", checkpoint_id)  # it was made just here
    return record


def _digest(base_digest: bytes, checkpoint_id: str, header: bytes, version: int) -> bytes:
    beside = b"" if version == 1 else checkpoint_id.encode()
    return hashlib.sha256(base_digest + beside + header).digest()


def unseal(body: bytes, where: str, base_digest: bytes | None, checkpoint_id: str) -> OpenRecord:
    """Read a record and check its digest; without the digest before it only a keyframe can be read.

    The id is the one that the store keeps beside the record.
    """
    envelope = _opened(body, where)
    record = _record(envelope, where, checkpoint_id)
    before = envelope.base_digest if base_digest is None else base_digest
    if _digest(before, checkpoint_id, envelope.header, envelope.version) != envelope.digest:
        raise _altered(where)
    return OpenRecord(record, envelope.digest, envelope.payloads, envelope.notes)


def look_into(body: bytes, where: str, checkpoint_id: str = "") -> OpenRecord:
    """Read a record without checking it against the one before: for people to look at, not to go on from."""
    seen = glance(body, where, checkpoint_id)
    return OpenRecord(seen.record, seen.digest, seen.payloads, seen.notes)


def header_of(body: bytes, where: str) -> CheckpointRecord:
    """Read what a record says without the record before it, and so without checking its digest."""
    return glance(body, where).record


def digest_of(body: bytes) -> bytes:
    """Return the digest that a record claims to have: all that is left of one that is trimmed."""
    return _opened(body, "a record").digest


def with_payloads(body: bytes, payloads: Sequence[bytes], notes: Sequence[bytes] = ()) -> bytes:
    """Return a record with other bytes for the values it names, and for its notes if these are given.

    Its digest stays, and every field it has.
    """
    _opened(body, "a record")
    fields = list(_anything.decode(body))
    fields[_PAYLOADS] = payloads
    if notes:
        fields[_NOTES] = notes
    return _encoder.encode(fields)


def read_checked(body: bytes, checkpoint_id: str) -> OpenRecord:
    """Return a record whose digest was checked before."""
    envelope = _envelopes().decode(body)
    record = _record(envelope, "a record", checkpoint_id)
    return OpenRecord(record, envelope.digest, envelope.payloads, envelope.notes)


def check_digest(body: bytes, where: str, base_digest: bytes | None, checkpoint_id: str) -> bytes:
    """Return a record's digest once it is checked, without reading what the record says."""
    envelope = _opened(body, where)
    before = envelope.base_digest if base_digest is None else base_digest
    if _digest(before, checkpoint_id, envelope.header, envelope.version) != envelope.digest:
        raise _altered(where)
    return envelope.digest


def _opened(body: bytes, where: str) -> _Envelope:
    if body == LOST:
        raise StateCorrupted(f"{where} cannot be read: its place in the log is missing or damaged.")
    try:
        envelope = _envelopes().decode(body)
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError) as error:
        newer = version_of(body)
        if newer is not None and newer > SCHEMA_VERSION:  # whose envelope may be another
            raise _newer(where, newer) from error
        raise StateCorrupted(f"{where} cannot be read: {error}.") from error
    if envelope.version > SCHEMA_VERSION:
        raise _newer(where, envelope.version)
    if envelope.version < 1:
        raise StateCorrupted(f"{where} cannot be read: schema version {envelope.version}.")
    return envelope


def version_of(body: bytes) -> int | None:
    """Return the schema version of a record, also of one that cannot be read; none if it is no record."""
    try:
        parts = _anything.decode(body)
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError):
        return None
    return parts[0] if isinstance(parts, list) and parts and type(parts[0]) is int else None


def check_values(opened: OpenRecord, where: str) -> None:
    """Raise `StateCorrupted` unless every inline payload is there with the digest that the header names."""
    writes = opened.record.writes()
    inline = [w for w in writes if (w.form is _WHOLE and w.artifact is None) or w.is_inline]
    if len(inline) != len(opened.payloads):
        raise StateCorrupted(f"{where} does not hold the values it names.")
    for write, payload in zip(inline, opened.payloads, strict=True):
        if payload == LEFT_OUT:
            continue
        if hashlib.sha256(body_of(payload, write.name)).digest() != write.digest:
            raise StateCorrupted(f"{where}: the bytes of value {write.name!r} were altered.")


def _altered(where: str) -> StateCorrupted:
    return StateCorrupted(f"{where} was altered, or the record before it is missing.")


def _newer(where: str, version: int) -> IncompatibleVersion:
    return IncompatibleVersion(
        f"{where} has schema version {version}; this everstep knows up to {SCHEMA_VERSION}.",
        fix="Use the newer everstep that wrote it.",
    )


# -- version 1 --------------------------------------------------------------------------------------------
# Every field under its own name, the id in the header. It is read as structs of its own, which C code makes
# into those of now, so that nothing else knows two spellings; they are made when such a record is met.


def _read_version_1(header: bytes) -> CheckpointRecord:
    record = msgspec.convert(
        _spelled_headers().decode(header), understood(CheckpointRecord), from_attributes=True
    )
    return replace(record, version=1)


def read_channel_entry(entry: bytes) -> tuple[tuple[Written, ...], list[bytes]]:
    """Return the values of a channel that 0.1 kept beside its chain, and their payloads."""
    writes, payloads = _spelled_entries().decode(entry)
    return msgspec.convert(writes, understood(tuple[Written, ...]), from_attributes=True), payloads


@cache
def _spelled_headers() -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(understood(_spelled_out(CheckpointRecord)))


@cache
def _spelled_entries() -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(understood(_spelled_out(tuple[tuple[Written, ...], list[bytes]])))


def _spelled_out(hint: Any) -> Any:
    """Return a type with the same fields, stored under their own names."""
    if isinstance(hint, type) and issubclass(hint, Stored):
        return _with_whole_names(hint)
    parts = tuple(map(_spelled_out, get_args(hint)))
    if not parts or get_origin(hint) is Annotated:
        return hint
    return reduce(or_, parts) if isinstance(hint, UnionType) else get_origin(hint)[parts]


def _with_whole_names(struct: type[Stored]) -> Any:
    fields = [(f.name, _spelled_out(f.type), *_default(f)) for f in msgspec.structs.fields(struct)]
    return msgspec.defstruct(struct.__name__, fields, kw_only=True, omit_defaults=True)


def _default(field: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    if field.required:
        return ()
    return (field.default_factory() if field.default is msgspec.NODEFAULT else field.default,)
