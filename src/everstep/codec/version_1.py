"""What 0.1 wrote: every field under its own name, the id in the header. Apart, as newer chains do without.

Read as structs of its own and made into those of now by C code, so that nothing else knows two spellings.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import msgspec

from everstep.model.records import CheckpointRecord, Stored, Written


def read_header(header: bytes) -> CheckpointRecord:
    """Return the record that a header of version 1 tells of."""
    return msgspec.convert(_headers().decode(header), CheckpointRecord, from_attributes=True)


def read_channel_entry(entry: bytes) -> tuple[tuple[Written, ...], list[bytes]]:
    """Return the values of a channel that is kept beside its chain, and their payloads."""
    writes, payloads = _entries().decode(entry)
    return msgspec.convert(writes, tuple[Written, ...], from_attributes=True), payloads


@cache
def _headers() -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(_spelled_out(CheckpointRecord))


@cache
def _entries() -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(_spelled_out(tuple[tuple[Written, ...], list[bytes]]))


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
