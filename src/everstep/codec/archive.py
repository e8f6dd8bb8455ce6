"""One file that holds many: a ZIP in one spelling only.

Any program can open it. Nothing in it is compressed and every byte follows from names and contents. So the
same contents always give the same file, a reader needs no more memory than the largest part, and a byte that
changed anywhere, or was added, is found.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple, Protocol

from everstep.errors import BundleInvalid, TooLarge

_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_OFFSET: Final = struct.Struct("<HHQ")
_END_64: Final = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR: Final = struct.Struct("<4sIQI")
_END: Final = struct.Struct("<4sHHHHIIH")
_LOCAL_MARK: Final = b"PK\x03\x04"
_NEEDS: Final = 20
_NEEDS_64: Final = 45
_DATE: Final = 0x21  # 1 January 1980, the first that there is
_FULL: Final = 0xFFFFFFFF
_LONGEST_NAME: Final = 512
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
MOST_PARTS: Final = 4_000_000
"""How many parts a reader takes."""


class Hash(Protocol):
    """What has been read or written so far, as a digest."""

    def hexdigest(self) -> str: ...


class _Part(NamedTuple):
    name: bytes
    crc: int
    size: int
    offset: int


class ArchiveWriter:
    """Writes parts one after the other; `close` makes the file whole."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._parts: list[_Part] = []
        self._at = 0
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """SHA-256 of everything that was written so far."""
        return self._hash.copy().hexdigest()

    def add(self, name: str, data: bytes) -> None:
        """Write one part."""
        if len(data) >= _FULL:
            raise TooLarge(f"{name} has {len(data):,} bytes.", fix="Keep it elsewhere, its name in the run.")
        part = _Part(name.encode(), zlib.crc32(data), len(data), self._at)
        for piece in (_local(part), data):
            self._file.write(piece)
            self._hash.update(piece)
        self._at += _LOCAL.size + len(part.name) + len(data)
        self._parts.append(part)

    def close(self) -> None:
        """Write the list of parts, without which the file is not whole."""
        for piece in _directory(self._parts, self._at):
            self._file.write(piece)


class ArchiveReader:
    """Reads parts one after the other, and believes nothing."""

    def __init__(self, file: BinaryIO, shown: str) -> None:
        self._file = file
        self._shown = shown
        self._size = file.seek(0, 2)

    def parts(self) -> Iterator[tuple[str, bytes, str]]:
        """Yield the name of each part, its bytes, and the digest of all that stands before it.

        Raises `BundleInvalid` at the first byte that no writer of ours would write, those behind the last
        part included.
        """
        self._file.seek(0)
        hasher = hashlib.sha256()
        known: list[_Part] = []
        names: set[bytes] = set()
        at = 0
        while True:
            head = self._file.read(_LOCAL.size)
            if head[:4] != _LOCAL_MARK:
                break
            part = self._header(head, at)
            name = self._name(part.name, names)
            if len(known) >= MOST_PARTS:
                raise TooLarge(f"{self._shown} has more than {MOST_PARTS:,} parts.")
            data = self._file.read(part.size)
            if len(data) != part.size or zlib.crc32(data) != part.crc:
                raise self._invalid(f"the bytes of {name} were altered")
            yield name, data, hasher.copy().hexdigest()
            hasher.update(_local(part))
            hasher.update(data)
            at += _LOCAL.size + len(part.name) + part.size
            known.append(part)
        self._check_end(head, known, at)

    def _header(self, head: bytes, at: int) -> _Part:
        if len(head) < _LOCAL.size:
            raise self._invalid("it is cut short")
        fields = _LOCAL.unpack(head)
        crc, size, length, extra = fields[6], fields[8], fields[9], fields[10]
        if length > _LONGEST_NAME or extra:
            raise self._invalid("a name in it is too long")
        if size > self._size - at:
            raise self._invalid("it is cut short, or a part claims to be larger than the file")
        part = _Part(self._file.read(length), crc, size, at)
        if _local(part) != head + part.name:
            raise self._invalid(f"{part.name.decode(errors='replace')!r} is packed in another way")
        return part

    def _name(self, name: bytes, names: set[bytes]) -> str:
        shown = name.decode(errors="replace")
        if not _NAME.fullmatch(shown) or not name.isascii():
            raise self._invalid(f"{shown!r} is no name of a part: it may lead elsewhere")
        if name in names:
            raise self._invalid(f"{shown!r} is there twice")
        names.add(name)
        return shown

    def _check_end(self, begun: bytes, parts: list[_Part], at: int) -> None:
        if not parts:
            raise self._invalid("it is no bundle")
        for wanted in _directory(parts, at):
            found, begun = (begun + self._file.read(max(0, len(wanted) - len(begun))), b"")
            if len(found) > len(wanted):
                found, begun = found[: len(wanted)], found[len(wanted) :]
            if found != wanted:
                raise self._invalid("the list of its parts was altered or is cut short")
        if begun or self._file.read(1):
            raise self._invalid("there is something behind its end")

    def _invalid(self, why: str) -> BundleInvalid:
        return BundleInvalid(
            f"{self._shown} cannot be read: {why}.",
            fix="Export it again; a bundle is read only as everstep wrote it.",
        )


def _local(part: _Part) -> bytes:
    return (
        _LOCAL.pack(_LOCAL_MARK, _NEEDS, 0, 0, 0, _DATE, part.crc, part.size, part.size, len(part.name), 0)
        + part.name
    )


def _directory(parts: list[_Part], at: int) -> Iterator[bytes]:
    """Yield what stands behind the last part."""
    size = 0
    for part in parts:
        is_far = part.offset >= _FULL
        extra = _OFFSET.pack(1, 8, part.offset) if is_far else b""
        needs = _NEEDS_64 if is_far else _NEEDS
        fixed = _CENTRAL.pack(
            *(b"PK\x01\x02", needs, needs, 0, 0, 0, _DATE, part.crc, part.size, part.size),
            *(len(part.name), len(extra), 0, 0, 0, 0, min(part.offset, _FULL)),
        )
        entry = fixed + part.name + extra
        size += len(entry)
        yield entry
    count = len(parts)
    if count >= 0xFFFF or at >= _FULL or size >= _FULL:
        yield _END_64.pack(b"PK\x06\x06", 44, _NEEDS_64, _NEEDS_64, 0, 0, count, count, size, at)
        yield _LOCATOR.pack(b"PK\x06\x07", 0, at + size, 1)
    few = min(count, 0xFFFF)
    yield _END.pack(b"PK\x05\x06", 0, 0, few, few, min(size, _FULL), min(at, _FULL), 0)
