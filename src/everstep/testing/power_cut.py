"""Power cuts for SQLite files: record what was written and synced, then ask what a cut would have left."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import apsw


class Act(StrEnum):
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    DELETE = "delete"


@dataclass(frozen=True)
class Op:
    """One thing SQLite asked of the disk."""

    act: Act
    file: str
    offset: int = 0
    """Where a write begins, or what a truncation leaves."""
    data: bytes = b""
    is_durable: bool = False
    """A deletion after which the folder was synced."""


class PowerCutVfs(apsw.VFS):
    """The usual files, with a record of every operation on them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ops: list[Op] = []
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _File:  # noqa: N802  SQLite's name
        return _File(self.ops, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self.ops.append(Op(Act.DELETE, Path(filename).name, is_durable=bool(syncdir)))


class _File(apsw.VFSFile):
    def __init__(self, ops: list[Op], name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._ops = ops
        self._name = Path(path).name if path else "temporary"
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._ops.append(Op(Act.WRITE, self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._ops.append(Op(Act.TRUNCATE, self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._ops.append(Op(Act.SYNC, self._name))


def survivors(ops: Sequence[Op], chance: random.Random) -> dict[str, bytes]:
    """Return what the files may hold if the power fails after `ops`.

    What was synced is there. Of what was not, any part may be there: each write whole, torn or not at all.
    """
    durable: dict[str, bytearray] = {}
    pending: dict[str, list[Op]] = {}
    for op in ops:
        if op.act is Act.SYNC:
            for earlier in pending.pop(op.file, []):
                _apply(durable, earlier)
        elif op.act is Act.DELETE and op.is_durable:
            pending.pop(op.file, None)
            _apply(durable, op)
        else:
            pending.setdefault(op.file, []).append(op)
    for unsynced in pending.values():
        for op in unsynced:
            luck = chance.random()
            if luck < 0.4:
                _apply(durable, op)
            elif luck < 0.6 and op.act is Act.WRITE:
                torn = op.data[: chance.randrange(len(op.data))]
                _apply(durable, Op(Act.WRITE, op.file, op.offset, torn))
    return {file: bytes(content) for file, content in durable.items()}


def _apply(files: dict[str, bytearray], op: Op) -> None:
    if op.act is Act.DELETE:
        files.pop(op.file, None)
        return
    content = files.setdefault(op.file, bytearray())
    if op.act is Act.TRUNCATE:
        del content[op.offset :]
        return
    end = op.offset + len(op.data)
    content.extend(bytes(max(0, end - len(content))))
    content[op.offset : end] = op.data


def write_files(files: dict[str, bytes], folder: Path) -> None:
    """Put the files into a folder of their own, as a machine finds them when the power is back."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
