"""A file that is there whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from everstep.errors import BadRequest, StoreError


class NewFile:
    """Writes beside the place where a file is to be, and puts it there when it is whole.

    Only the user may read it: it holds what a run holds.
    """

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        self._path = path
        self._replaces = replaces
        self._aside = path.with_name(f".{path.name}.{os.getpid()}-{id(self):x}.tmp")
        self.stream: BinaryIO

    def __enter__(self) -> Self:
        if not self._replaces and os.path.lexists(self._path):
            raise _is_there(self._path)
        try:
            file = os.open(self._aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise _cannot(self._path, error) from error
        self.stream = os.fdopen(file, "w+b")
        return self

    def commit(self) -> None:
        """Let the file appear, durably; a file that appeared there meanwhile is left alone unless told."""
        try:
            self.stream.flush()
            os.fsync(self.stream.fileno())
            if self._replaces:
                self._aside.replace(self._path)
            else:
                self._link()
            sync_folder(self._path.parent)
        except FileExistsError:
            raise _is_there(self._path) from None
        except OSError as error:
            raise _cannot(self._path, error) from error

    def _link(self) -> None:
        try:
            os.link(self._aside, self._path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if os.path.lexists(self._path):
                raise _is_there(self._path) from None
            self._aside.rename(self._path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stream.close()
        except OSError as failed:
            if error is None:
                raise _cannot(self._path, failed) from failed
        finally:
            self._aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _cannot(self._path, error) from error


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_there(path: Path) -> BadRequest:
    return BadRequest(f"{path} is there already.", fix="Choose another name, or say --force (force=True).")


def _cannot(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror or error}.", fix="Check the folder and its space."
    )
