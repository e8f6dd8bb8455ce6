"""Bytes that are too large for one file: kept in several, and named by a list in their place."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from everstep.errors import StateCorrupted
from everstep.model.shapes import understood

LARGEST = 10 * 1024 * 1024
"""Bytes in one file; GitHub takes no file above a hundred megabytes."""
BESIDE = "+"
"""What the folder with the parts of a name ends in; no name has it."""
_MAGIC = b'{"everstep":"parts",'


class Part(msgspec.Struct, frozen=True):
    path: str
    """Where it lies, from the folder of the store."""
    size: int
    sha256: str


class PartList(msgspec.Struct, frozen=True, tag="parts", tag_field="everstep"):
    """What is kept in place of the bytes."""

    size: int
    sha256: str
    parts: tuple[Part, ...]


class Packed(NamedTuple):
    """Bytes as they are written: what goes under the name, and files that are written before it."""

    content: bytes
    sides: tuple[tuple[str, bytes], ...] = ()


def pack(name: str, data: bytes) -> Packed:
    """Split what is too large, and what looks like a list of parts, so that it never passes for one."""
    if len(data) <= LARGEST and not is_list(data):
        return Packed(data)
    whole = hashlib.sha256(data).hexdigest()
    sides, parts = [], []
    for number, first in enumerate(range(0, len(data), LARGEST), start=1):
        piece = data[first : first + LARGEST]
        # Named by what they are parts of, so that two writers never meet in one file.
        path = f"{name}{BESIDE}/{whole[:32]}/{number:04d}"
        sides.append((path, piece))
        parts.append(Part(path, len(piece), hashlib.sha256(piece).hexdigest()))
    return Packed(msgspec.json.encode(PartList(len(data), whole, tuple(parts))), tuple(sides))


def is_list(content: bytes) -> bool:
    """True for what is kept in place of the bytes."""
    return content.startswith(_MAGIC)


def parts_of(name: str, content: bytes) -> PartList | None:
    """Return the list that is kept in place of the bytes; none if these are the bytes."""
    if not is_list(content):
        return None
    try:
        found = msgspec.json.decode(content, type=understood(PartList))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _altered(name, f"its list of parts cannot be read: {error}") from error
    if any(not part.path.startswith(f"{name}{BESIDE}/") for part in found.parts):
        raise _altered(name, "it names a part elsewhere")
    return found


def join(name: str, wanted: PartList, pieces: list[bytes]) -> bytes:
    """Put parts together, and check that they are whole."""
    data = b"".join(pieces)
    if len(data) != wanted.size or hashlib.sha256(data).hexdigest() != wanted.sha256:
        raise _altered(name, "its parts are not what was written")
    return data


def missing(name: str, part: Part) -> StateCorrupted:
    """Return the error of a part that is not there."""
    return _altered(name, f"{part.path} is missing")


def is_beside(path: str) -> bool:
    """True for a file that is part of another."""
    return BESIDE in path


def _altered(name: str, why: str) -> StateCorrupted:
    return StateCorrupted(f"{name} cannot be read: {why}.", fix="Restore it from the repository's history.")
