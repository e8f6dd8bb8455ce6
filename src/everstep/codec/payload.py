"""The header in front of every payload: format version, serializer, codecs in the order they were applied."""

from __future__ import annotations

from everstep.errors import IncompatibleVersion, ValueUnreadable

FORMAT = 1
SERIALIZER = 1
"""The tagged, data-only encoding of `codec.values`."""

HEADER = bytes((FORMAT, SERIALIZER, 0))


def body_of(payload: bytes, where: str) -> memoryview:
    """Return the serialized bytes behind the header, or say why they cannot be read."""
    if len(payload) < len(HEADER):
        raise ValueUnreadable(f"the stored bytes of {where!r} are cut short.")
    if payload[0] != FORMAT or payload[1] != SERIALIZER or payload[2] != 0:
        raise IncompatibleVersion(
            f"{where!r} was written in format {payload[0]} serializer {payload[1]}, {payload[2]} codecs; "
            f"this everstep reads format {FORMAT}, serializer {SERIALIZER}.",
            fix="Use the newer everstep that wrote it.",
        )
    return memoryview(payload)[len(HEADER) :]
