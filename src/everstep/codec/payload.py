"""The header of a payload, which names the codecs in the order they were applied; and one of them, zstd."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

import msgspec

from everstep.errors import (
    BadRequest,
    IncompatibleVersion,
    KeyUnavailable,
    StateCorrupted,
    ValueLeftOut,
    ValueUnreadable,
)

FORMAT = 1
SERIALIZER = 1
"""The tagged, data-only encoding of `codec.values`."""

HEADER = bytes((FORMAT, SERIALIZER, 0))
_HEADER_SIZE = len(HEADER)
AES_GCM = "aes-256-gcm"


class Layer(msgspec.Struct, frozen=True):
    """One codec that was applied to a payload, and what it must know to undo that."""

    codec: str
    note: bytes = b""


def header_with(layers: Iterable[Layer]) -> bytes:
    """Return the header of a payload to which these codecs were applied, in this order."""
    spelled = [
        bytes((len(name := layer.codec.encode()),)) + name + bytes((len(layer.note),)) + layer.note
        for layer in layers
    ]
    return bytes((FORMAT, SERIALIZER, len(spelled))) + b"".join(spelled)


LEFT_OUT = header_with([Layer("left-out")])
"""Stands for a value that an export left behind. There is nothing behind it."""


def layers_of(payload: bytes, where: str) -> tuple[list[Layer], int]:
    """Return the codecs that were applied to a payload, in that order, and where its data begins."""
    if len(payload) < len(HEADER):
        raise ValueUnreadable(f"the stored bytes of {where!r} are cut short.")
    if payload[0] != FORMAT:
        raise _newer(payload, where)
    layers, at = [], len(HEADER)
    try:
        for _ in range(payload[2]):
            name_end = at + 1 + payload[at]
            end = name_end + 1 + payload[name_end]
            if end > len(payload):
                raise IndexError
            layers.append(Layer(payload[at + 1 : name_end].decode(), payload[name_end + 1 : end]))
            at = end
    except (IndexError, UnicodeDecodeError):
        raise StateCorrupted(f"the header before the stored bytes of {where!r} is damaged.") from None
    return layers, at


def body_of(payload: bytes, where: str) -> memoryview:
    """Return the serialized bytes behind the header, or say why they cannot be read."""
    if payload.startswith(HEADER):
        return memoryview(payload)[_HEADER_SIZE:]
    if len(payload) < _HEADER_SIZE:
        raise ValueUnreadable(f"the stored bytes of {where!r} are cut short.")
    raise _locked(payload, where) or _newer(payload, where)


def key_missing(where: str, key_id: str) -> KeyUnavailable:
    """Say that a payload is encrypted with a key that is not at hand."""
    return KeyUnavailable(
        f"{where!r} is encrypted with the key {key_id!r}, which this host does not have.",
        fix="Give it with Host(encrypt=...), or in EVERSTEP_ENCRYPT_KEYS or EVERSTEP_ENCRYPT_KEYS_FILE.",
        key_id=key_id,
    )


def _locked(payload: bytes, where: str) -> ValueUnreadable | None:
    """Say why a payload that was left as it is stored cannot be read; none if it says nothing of that."""
    if payload == LEFT_OUT:
        return ValueLeftOut(
            f"{where!r} was left out when the run was exported.",
            fix="Import the bundle again where the run is not, with the value: --value NAME=VALUE",
        )
    layers = layers_of(payload, where)[0] if payload[2] else []
    return key_missing(where, key_id_of(layers[-1])) if layers and layers[-1].codec == AES_GCM else None


def key_id_of(layer: Layer) -> str:
    """Return the id of the key that a payload is encrypted with; before it stands its fingerprint."""
    return layer.note[4:].decode(errors="replace")


def _newer(payload: bytes, where: str) -> IncompatibleVersion:
    return IncompatibleVersion(
        f"{where!r} was written in format {payload[0]} serializer {payload[1]}, {payload[2]} codecs; "
        f"this everstep reads format {FORMAT}, serializer {SERIALIZER}.",
        fix="Use the newer everstep that wrote it.",
    )


ZSTD: Final = "zstd"
COMPRESSED_FROM: Final = 512
"""Data of fewer bytes is left as it is."""
_LEVEL: Final = 1
_MOST: Final = 1 << 30
"""The most that data of unknown size may become."""


class Zstd:
    """The codec `zstd`. Its library loads when it is first needed."""

    name = ZSTD

    def __init__(self) -> None:
        self._compress: Any = None
        self._flush: Any = None

    def encode(self, data: bytes) -> bytes | None:
        """Return data compressed, or none if it is small or would not be smaller."""
        if len(data) < COMPRESSED_FROM:
            return None
        if self._compress is None:
            library = _library()
            # One for all, which has a lock: to set one up takes longer than to compress a small value.
            compressor = library.ZstdCompressor(level=_LEVEL)
            self._flush, self._compress = compressor.FLUSH_FRAME, compressor.compress
        made = bytes(self._compress(data, self._flush))
        return made if len(made) < len(data) else None

    def decode(self, data: bytes) -> bytes:
        """Return data decompressed."""
        return self.decompress(data, "value", None)

    def decompress(self, data: bytes, where: str, size: int | None) -> bytes:
        """Return what was compressed, never more than `size`."""
        library = _library()
        most = _MOST if size is None else size
        try:
            stream = library.ZstdDecompressor()
            made = bytes(stream.decompress(data, most + 1))
            is_whole = stream.eof and not stream.unused_data
        except library.ZstdError as error:
            raise StateCorrupted(f"the compressed bytes of {where!r} are damaged: {error}.") from None
        if not is_whole or len(made) > most:
            raise StateCorrupted(f"the compressed bytes of {where!r} are cut short or too long.")
        return made


def _library() -> Any:
    try:
        return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ModuleNotFoundError as missing:
        raise BadRequest(
            f"compression needs the package {missing.name}.",
            fix="Install it with: pip install 'everstep[zstd]'",
        ) from missing
