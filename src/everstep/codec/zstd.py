"""Compression with zstd, where it helps."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

from everstep.errors import BadRequest, StateCorrupted

NAME: Final = "zstd"
FROM: Final = 512
"""Data of fewer bytes is left as it is."""
_LEVEL: Final = 1
_MOST: Final = 1 << 30
"""The most that data of unknown size may become."""


class Zstd:
    """The codec `zstd`. Its library loads when it is first needed."""

    name = NAME

    def __init__(self) -> None:
        self._compress: Any = None
        self._flush: Any = None

    def encode(self, data: bytes) -> bytes | None:
        """Return data compressed, or none if it is small or would not be smaller."""
        if len(data) < FROM:
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
