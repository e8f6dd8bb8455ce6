"""Commits that the store could not take, kept on this machine until it can.

Several processes may write and empty a spool at once: a lock file stands for the folder, and what is dropped
is named, so that nothing is dropped that was added meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from everstep.errors import StateCorrupted, StoreError, StoreNotWritable
from everstep.model.shapes import understood
from everstep.ports.store import Commit

_encoder = msgspec.msgpack.Encoder()
_LENGTH = 8
_SUM = 8
_HEAD = _LENGTH + 2 * _SUM
"""How long what follows is, a checksum of that, and one of what follows."""
SUFFIX = ".spool"


@cache
def _decoder() -> msgspec.msgpack.Decoder[Commit]:
    return msgspec.msgpack.Decoder(understood(Commit))


class _Frame(msgspec.Struct, frozen=True):
    end: int
    """Where the next one begins."""
    body: bytes


class Spool:
    """A folder with one file per run; what is in it is fsynced before anything counts as recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ends: dict[str, int] = {}
        """How long the files were when this process last wrote to them."""

    def add(self, commit: Commit) -> None:
        """Keep a commit behind those of its run that are there already. Raises `StoreError` if it cannot."""
        path = self.path(commit.run_id)
        try:
            self._make_folder()
            with self._locked(), path.open("ab") as file:
                is_new = file.tell() == 0
                if file.tell() != self._ends.get(commit.run_id, 0):
                    # A process may have died while it wrote: what it left would swallow what comes after it.
                    file.truncate(_end_of(path))
                self._ends[commit.run_id] = _append(file, _frame(_encoder.encode(commit)))
                if is_new:
                    self._sync_folder()
        except OSError as error:
            kind = StoreNotWritable if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
            raise kind(
                f"checkpoint {commit.sequence} of run {commit.run_id!r} could not be kept in {path}: "
                f"{error.strerror or error}.",
                fix="Make room, or let Host(spool=...) or EVERSTEP_SPOOL name a folder that can be written.",
            ) from error

    def of(self, run_id: str) -> list[Commit]:
        """Return the commits of a run, in order. One that was cut off while it was written never counted."""
        return list(self.each(run_id))

    def each(self, run_id: str) -> Iterator[Commit]:
        """Yield the commits of a run, in order, as they were when the first was asked for."""
        path = self.path(run_id)
        try:
            for frame in _frames(path):
                commit = _decoder().decode(frame.body)
                if commit.run_id != run_id:
                    raise _damaged(path, f"it holds a checkpoint of run {commit.run_id!r}")
                yield commit
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}.", fix="Check whose it is.") from error
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise _damaged(path, str(error)) from error

    def has(self, run_id: str) -> bool:
        """True if commits of a run may be here."""
        return self.path(run_id).exists()

    def runs(self) -> list[str]:
        """Return the runs that have commits here."""
        return sorted(file.name.removesuffix(SUFFIX) for file in self.folder.glob(f"*{SUFFIX}"))

    def drop(self, run_id: str, checkpoint_ids: Collection[str]) -> None:
        """Forget commits of a run: they are in the store. Those that were added meanwhile stay."""
        if not self.has(run_id):
            return
        path = self.path(run_id)
        with self._locked():
            left = [commit for commit in self.each(run_id) if commit.checkpoint_id not in checkpoint_ids]
            if left:
                kept = path.with_suffix(".rest")
                with kept.open("wb") as file:
                    end = _append(file, b"".join(_frame(_encoder.encode(commit)) for commit in left))
                kept.replace(path)
                self._ends[run_id] = end
            else:
                path.unlink(missing_ok=True)
                self._ends.pop(run_id, None)
            self._sync_folder()

    def path(self, run_id: str) -> Path:
        """Return the file with the commits of a run."""
        return self.folder / f"{run_id}{SUFFIX}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make_folder(self) -> None:
        """Make the folder, if it is not there, with those above it; their names last, too."""
        if not self.folder.exists():
            missing = [self.folder, *(above for above in self.folder.parents if not above.exists())]
            self.folder.mkdir(parents=True, exist_ok=True)
            for made in missing:
                self._sync_folder(made.parent)

    def _sync_folder(self, folder: Path | None = None) -> None:
        handle = os.open(folder or self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _frame(body: bytes) -> bytes:
    length = len(body).to_bytes(_LENGTH, "big")
    return length + _sum(length) + _sum(body) + body


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:_SUM]


def _append(file: BinaryIO, data: bytes) -> int:
    """Write and sync; if that fails, leave the file as it was. Returns its new length."""
    before = file.seek(0, os.SEEK_END)
    try:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), before)
        raise
    return before + len(data)


def _frames(path: Path) -> Iterator[_Frame]:
    """Yield what was written whole; only the last may be cut off."""
    with path.open("rb") as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        while size - at >= _HEAD:
            head = file.read(_HEAD)
            length, sums = head[:_LENGTH], (head[_LENGTH:-_SUM], head[-_SUM:])
            body = file.read(int.from_bytes(length, "big")) if _sum(length) == sums[0] else b""
            end = at + _HEAD + len(body)
            if not body or _sum(body) != sums[1]:
                if end < size and any(file.read()):
                    raise _damaged(path, f"it was altered from byte {at} on")
                return
            yield _Frame(end, body)
            at = end


def _end_of(path: Path) -> int:
    end = 0
    for frame in _frames(path):
        end = frame.end
    return end


def _damaged(path: Path, why: str) -> StateCorrupted:
    return StateCorrupted(
        f"{path} cannot be read: {why}.",
        fix="Restore it from a copy, or move it away: the run then goes on without what was kept in it.",
    )
