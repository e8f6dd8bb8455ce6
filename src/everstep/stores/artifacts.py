"""Artifacts as files: content-addressed, written aside, synced, then renamed into place."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from everstep.errors import StateCorrupted, StoreError
from everstep.model.records import ArtifactRef
from everstep.model.removal import StoredBlob
from everstep.ports.system import Clock, time_for_store
from everstep.stores.os_errors import explain

_KEY = r"[0-9a-f]{2}/[0-9a-f]{64}|\.[0-9a-f-]+\.tmp"
"""An artifact, or what a put left behind that was cut off; neither names anything outside the folder."""

_SHA256 = "[0-9a-f]{64}"

_PIECE = 1024 * 1024


class Syncs(NamedTuple):
    """How what was written is made to last."""

    file: Callable[[int], None]
    folder: Callable[[Path], None]


class ArtifactFolder:
    """Keeps each artifact in a file named by the SHA-256 of its data, touched when it is put."""

    def __init__(self, folder: Path, clock: Clock, *, syncs: Syncs | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._syncs = syncs or _ON_DISK
        self._lock = threading.Lock()
        self._count = 0
        self._lasting: set[Path] = set()
        """Folders whose own names are known to last. One that is there may be another process's, or of one
        that was killed before it synced it."""

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        """Write, sync, rename, sync the folder; the hash is worked out while the disk is busy."""
        named = data if plain is None else plain
        try:
            digest = self._write(header, data, named)
        except OSError as error:
            raise explain(error, f"write {len(data)} bytes to {self._folder}") from error
        return ArtifactRef("file", f"{digest[:2]}/{digest}", len(named), content_type, digest)

    def restore_checkpoint_blob(self, ref: ArtifactRef, stored: bytes) -> None:
        try:
            self._make(self._folder)
            temporary, file = self._temporary()
            try:
                self._fill(file, stored)
                self._rename(temporary, _checked(ref.checksum))
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise explain(error, f"write {len(stored)} bytes to {self._folder}") from error

    def _write(self, header: bytes, data: bytes, named: bytes) -> str:
        self._make(self._folder)
        temporary, file = self._temporary()
        hasher = _Hasher(named)
        hasher.start()
        try:
            self._fill(file, header, data)
            hasher.join()
            self._rename(temporary, hasher.digest)
        except BaseException:
            hasher.join()
            temporary.unlink(missing_ok=True)
            raise
        return hasher.digest

    def _fill(self, file: int, *parts: bytes) -> None:
        """Write a file that lasts, touched now by the clock that the store goes by, and close it."""
        try:
            for part in parts:
                _write_all(file, part)
            told = time_for_store(self._clock)
            if told is not None:
                os.utime(file, (told.timestamp(), told.timestamp()))
            self._syncs.file(file)
        finally:
            os.close(file)

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Keep who removes artifacts apart from those who put them, in other processes too.

        Where files cannot be locked none is removed, so that a put need not care.
        """
        file = os.open(self._folder, os.O_RDONLY)
        try:
            try:
                fcntl.flock(file, kind)
            except OSError:
                if kind == fcntl.LOCK_EX:
                    raise
            yield
        finally:
            os.close(file)

    def _rename(self, temporary: Path, digest: str) -> None:
        target = self._path(digest)
        self._make(target.parent)
        with self._locked(fcntl.LOCK_SH):
            temporary.rename(target)
        self._syncs.folder(target.parent)

    def _make(self, folder: Path) -> None:
        if folder not in self._lasting or not folder.exists():
            make_lasting(folder, self._syncs.folder)
            self._lasting.add(folder)

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest

    def _temporary(self) -> tuple[Path, int]:
        """Make a new file that no other thread or process writes to."""
        while True:
            with self._lock:
                self._count += 1
                path = self._folder / f".{os.getpid()}-{id(self):x}-{self._count}.tmp"
            try:
                return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                continue

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        with self._reading(ref) as path:
            return path.read_bytes()

    def stream_checkpoint_blob(self, ref: ArtifactRef) -> Iterator[bytes]:
        with self._reading(ref) as path, path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    @contextmanager
    def _reading(self, ref: ArtifactRef) -> Iterator[Path]:
        try:
            yield self._path(_checked(ref.checksum))
        except FileNotFoundError:
            raise StateCorrupted(
                f"artifact {ref.key} is missing from {self._folder}.",
                fix="Restore the folder that belongs to this database.",
            ) from None
        except OSError as error:
            raise StoreError(f"cannot read artifact {ref.key}: {error.strerror or error}.") from error

    def list_checkpoint_blobs(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        """Return artifacts, and what puts left behind that were cut off, sorted by key."""
        found: list[StoredBlob] = []
        now = self._clock.now()
        for key in self._keys(after):
            with suppress(FileNotFoundError):
                seen = (self._folder / key).stat()
                found.append(StoredBlob(key, seen.st_size, now - _touched_at(seen)))
            if len(found) == limit:
                break
        return found

    def _keys(self, after: str) -> Iterator[str]:
        """Go through one folder at a time: no more names are held than lie in one."""
        if not self._folder.exists():
            return
        for entry in sorted(self._folder.iterdir()):
            inside = [entry.name]
            if len(entry.name) == 2 and entry.name >= after[:2]:
                inside = sorted(f"{entry.name}/{each.name}" for each in entry.iterdir())
            yield from (key for key in inside if key > after and re.fullmatch(_KEY, key))

    def delete_checkpoint_blobs(self, keys: Sequence[str], *, untouched_for: timedelta) -> list[str]:
        removed: list[str] = []
        if not self._folder.exists():
            return removed
        try:
            with self._locked(fcntl.LOCK_EX):
                latest = self._clock.now() - untouched_for
                for key in keys:
                    if re.fullmatch(_KEY, key) and self._is_older(key, latest):
                        (self._folder / key).unlink()
                        removed.append(key)
        except OSError as error:
            raise StoreError(
                f"cannot remove artifacts from {self._folder}: {error.strerror or error}.",
                fix="Check the folder's permissions, and whether its files can be locked.",
            ) from error
        return removed

    def _is_older(self, key: str, latest: datetime) -> bool:
        try:
            return _touched_at((self._folder / key).stat()) <= latest
        except FileNotFoundError:
            return False


def _checked(checksum: str) -> str:
    """Return a checksum that leads to no other folder."""
    if not re.fullmatch(_SHA256, checksum):
        raise StateCorrupted(f"{checksum!r} names no artifact.")
    return checksum


class _Hasher(threading.Thread):
    def __init__(self, data: bytes) -> None:
        super().__init__(name="everstep-hash")
        self._data = data
        self.digest = ""

    def run(self) -> None:
        self.digest = hashlib.sha256(self._data).hexdigest()


def _touched_at(seen: os.stat_result) -> datetime:
    return datetime.fromtimestamp(seen.st_mtime, UTC)


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


_ON_DISK = Syncs(getattr(os, "fdatasync", os.fsync), _sync_folder)


def make_lasting(folder: Path, sync_folder: Callable[[Path], None] = _sync_folder) -> None:
    """Make a folder, and those above it that are missing, so that a power cut takes none of their names."""
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        with suppress(PermissionError):  # a folder that may be used and not read
            sync_folder(each.parent)
