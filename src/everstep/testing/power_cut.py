"""Bad disks for SQLite files. Apart from the simulated world, which they do not need.

Power cuts: record what was written and synced, then ask what a cut would have left. And disks that fill up
or cannot be written.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import apsw

_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL


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
    syncs_folder: bool = False
    """A deletion or a sync that also makes every deletion in the folder last."""


class PowerCutVfs(apsw.VFS):
    """The usual files, with a record of every operation on them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ops: list[Op] = []
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> RecordedFile:  # noqa: N802  SQLite's name
        return RecordedFile(self.ops, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self.ops.append(Op(Act.DELETE, Path(filename).name, syncs_folder=bool(syncdir)))


class RecordedFile(apsw.VFSFile):
    """One of these files."""

    def __init__(self, ops: list[Op], name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._ops = ops
        self._name = Path(path).name if path else "temporary"
        # As SQLite's own files do: the first sync of a new journal or log syncs its folder too.
        self._syncs_folder = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _JOURNALS)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._ops.append(Op(Act.WRITE, self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._ops.append(Op(Act.TRUNCATE, self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._ops.append(Op(Act.SYNC, self._name, syncs_folder=self._syncs_folder))
        self._syncs_folder = False


def survivors(ops: Sequence[Op], chance: random.Random) -> dict[str, bytes]:
    """Return what the files may hold if the power fails after `ops`.

    What was synced is there. Of what was not, any part may be there: each write whole, torn or not at all.
    """
    durable: dict[str, bytearray] = {}
    pending: dict[str, list[Op]] = {}
    for op in ops:
        pending.setdefault(op.file, []).append(op)
        if op.act is Act.SYNC:
            for earlier in pending.pop(op.file):
                _apply(durable, earlier)
        if op.syncs_folder:
            for file, waiting in pending.items():
                pending[file] = _settle_deletions(durable, waiting)
    for unsynced in pending.values():
        for op in unsynced:
            luck = chance.random()
            if luck < 0.4:
                _apply(durable, op)
            elif luck < 0.6 and op.act is Act.WRITE:
                torn = op.data[: chance.randrange(len(op.data))]
                _apply(durable, Op(Act.WRITE, op.file, op.offset, torn))
    return {file: bytes(content) for file, content in durable.items()}


def _settle_deletions(files: dict[str, bytearray], waiting: list[Op]) -> list[Op]:
    """Carry out a file's deletions, and return what was done to its successor since."""
    deletions = [k for k, op in enumerate(waiting) if op.act is Act.DELETE]
    if not deletions:
        return waiting
    _apply(files, waiting[deletions[-1]])
    return waiting[deletions[-1] + 1 :]


def _apply(files: dict[str, bytearray], op: Op) -> None:
    if op.act is Act.SYNC:
        return
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


class MoodyVfs(apsw.VFS):
    """The usual files, on a disk that can fill up or turn read-only."""

    def __init__(self) -> None:
        self.name = f"moody-{id(self)}"
        self.space: int | None = None
        """How many writes there is room for; none means plenty."""
        self.is_tidied = False
        """True if there is room again as soon as one write has failed."""
        self.is_read_only = False
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _MoodyFile:  # noqa: N802  SQLite's name
        if self.is_read_only:
            if flags[0] & apsw.SQLITE_OPEN_WAL:
                raise apsw.CantOpenError
            flags[0] &= ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            flags[0] |= apsw.SQLITE_OPEN_READONLY
        return _MoodyFile(self, name, flags)


class _MoodyFile(apsw.VFSFile):
    def __init__(self, vfs: MoodyVfs, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._vfs.space == 0:
            if self._vfs.is_tidied:
                self._vfs.space = None
            raise apsw.FullError
        if self._vfs.space is not None:
            self._vfs.space -= 1
        super().xWrite(data, offset)
