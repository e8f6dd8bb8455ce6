"""Artifacts as files: content-addressed, written aside, synced, then renamed into place."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everstep.errors import StateCorrupted, StoreError
from everstep.model.records import ArtifactRef

_PIECE = 1024 * 1024
_KEY = re.compile("[0-9a-f]{2}/[0-9a-f]{64}")


class ArtifactFolder:
    """Keeps each artifact in a file named by the SHA-256 of its data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._count = 0

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        """Write, sync, rename, sync the folder; the hash is worked out while the disk is busy."""
        named = data if plain is None else plain
        try:
            digest = self._write(header, data, named)
        except OSError as error:
            raise StoreError(
                f"cannot write {len(data)} bytes to {self._folder}: {error.strerror or error}.",
                fix="Free some space or check the folder's permissions, then resume the run.",
            ) from error
        return ArtifactRef("file", f"{digest[:2]}/{digest}", len(named), content_type, digest)

    def _write(self, header: bytes, data: bytes, named: bytes) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary, file = self._temporary()
        hasher = _Hasher(named)
        hasher.start()
        try:
            try:
                for part in (header, data):
                    _write_all(file, part)
                os.fdatasync(file)
            finally:
                os.close(file)
            hasher.join()
            target = self._folder / hasher.digest[:2] / hasher.digest
            if not target.parent.exists():
                target.parent.mkdir(exist_ok=True)
                _sync_folder(self._folder)
            temporary.rename(target)
            _sync_folder(target.parent)
        except BaseException:
            hasher.join()
            temporary.unlink(missing_ok=True)
            raise
        return hasher.digest

    def _temporary(self) -> tuple[Path, int]:
        """Make a new file that nobody else, in this process or another, writes to."""
        while True:
            with self._lock:
                self._count += 1
                path = self._folder / f".{os.getpid()}-{id(self):x}-{self._count}.tmp"
            try:
                return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                continue

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        with self._reading(ref):
            return (self._folder / ref.key).read_bytes()

    def stream_checkpoint_blob(self, ref: ArtifactRef) -> Iterator[bytes]:
        with self._reading(ref), (self._folder / ref.key).open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    @contextmanager
    def _reading(self, ref: ArtifactRef) -> Iterator[None]:
        if _KEY.fullmatch(ref.key) is None:  # a record that came from elsewhere may name any path
            raise StateCorrupted(f"{ref.key!r} is no artifact of {self._folder}.")
        try:
            yield
        except FileNotFoundError:
            raise StateCorrupted(
                f"artifact {ref.key} is missing from {self._folder}.",
                fix="Restore the folder that belongs to this database.",
            ) from None
        except OSError as error:
            raise StoreError(f"cannot read artifact {ref.key}: {error.strerror or error}.") from error


class _Hasher(threading.Thread):
    def __init__(self, data: bytes) -> None:
        super().__init__(name="everstep-hash")
        self._data = data
        self.digest = ""

    def run(self) -> None:
        self.digest = hashlib.sha256(self._data).hexdigest()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
