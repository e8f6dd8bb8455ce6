"""A folder as a bucket: files that appear whole under names that are taken only once.

An object is written aside, synced, and linked to its name, which the file system refuses if that is taken;
then its folder is synced. Whoever replaces or removes one holds a lock. The folder `.everstep` has the locks
and nothing else; other names that begin with a dot are files being written.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from everstep.errors import StoreError, StoreUnavailable
from everstep.ports.system import Clock, time_for_store
from everstep.stores.objects.bucket import Found, Listed
from everstep.stores.objects.fitness import CONTROL, NEW_FILE, UNNAMED, Unfit, examine
from everstep.stores.objects.handles import Handle, Handles, sync
from everstep.stores.objects.mounts import mount_of
from everstep.stores.objects.naming import checked
from everstep.stores.objects.os_errors import explain, plainly

_LOCKS = f"{CONTROL}/locks"
_PATIENCE = 10.0
_TRIES = 50
_LEFTOVER = timedelta(days=1)
"""A file that was being written for so long belongs to nobody any more."""
_REMEASURED = 60.0
"""Seconds after which the clock of a file server is looked at again."""
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


class Folder:
    """Named bytes in a folder, on a local disk or a network file system that honours links and locks."""

    def __init__(self, path: Path, clock: Clock, *, create: bool = True) -> None:
        self.path = Path.cwd() / path
        self.place = f"file://{quote(str(self.path))}"
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._handles = self._open_root(create)
        self.mount = mount_of(self.path)
        self.is_local = not self.mount.is_shared
        self._syncs_folders = True
        self._in_doubt: set[str] = set()
        """Folders in which something was linked, perhaps, and was not synced."""
        self._failed: StoreError | None = None
        self._refusal: StoreError | None = None
        self._offset: tuple[float, timedelta] | None = None
        self._has_unnamed = False
        self._examine(create)

    # Opening

    def _open_root(self, create: bool) -> Handles:
        if not create and not self.path.is_dir():
            raise StoreError(
                f"there is no folder at {self.path}.", fix="Check the path, or start a run to make it."
            )
        with plainly(f"use the folder {self.path}"):
            _make_folders(self.path)
            return Handles(str(self.path))

    def _examine(self, create: bool) -> None:
        """Refuse a folder that cannot keep writers apart; one that can only be read may be read."""
        try:
            self._has_unnamed = examine(self._handles, self.mount, self._new_name, self._open_lock)
        except OSError as error:
            self._refusal = explain(error, f"write to the folder {self.path}")
            if create:
                raise self._refusal from error
        except Unfit as reason:
            raise StoreError(
                f"runs cannot be kept in {self.path}: {reason}.",
                fix="Use a folder on a local disk or an NFS mount with locks, or a database.",
            ) from reason

    def _new_name(self) -> str:
        with self._lock:
            self._count += 1
            return f".{os.getpid()}-{id(self):x}-{self._count}.tmp"

    # Reading

    def get(self, name: str) -> Found | None:
        checked(name)
        self._check_trust()
        with plainly(f"read {name} in {self.path}"):
            if self._in_doubt:
                self._settle_doubt(name.rpartition("/")[0])
            data = self._read(name)
        return None if data is None else Found(data, _tag(data))

    def _read(self, name: str) -> bytes | None:
        for attempt in range(_TRIES):
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._handles.root.fd)
                try:
                    return _read_all(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                if error.errno in _ABSENT:
                    self._check_root()
                    return None
                # A file server has forgotten the file that another machine has just replaced.
                if error.errno != errno.ESTALE or attempt == _TRIES - 1:
                    raise
        return None

    def _check_root(self) -> None:
        if self._handles.root.is_removed():
            raise FileNotFoundError(errno.ENOENT, "the folder is gone", str(self.path))

    def names(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        self._check_trust()
        with plainly(f"list {prefix or 'the objects'} in {self.path}"):
            return list(islice(self._walk("", prefix, after), limit))

    def _walk(self, above: str, prefix: str, after: str) -> Iterator[str]:
        """Yield names in the order of their bytes; a folder sorts as what is in it, with its slash."""
        for key in sorted(self._keys(above)):
            path = above + key
            if key.endswith("/"):
                is_wanted = path.startswith(prefix) or prefix.startswith(path)
                if is_wanted and (path > after or after.startswith(path)):
                    yield from self._walk(path, prefix, after)
            elif path.startswith(prefix) and path > after:
                yield path

    def _keys(self, above: str) -> list[str]:
        try:
            fd = os.open(
                above or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._handles.root.fd
            )
        except FileNotFoundError:
            self._check_root()
            return []
        try:
            with os.scandir(fd) as entries:
                return [
                    f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                    for entry in entries
                    if not entry.name.startswith(".")
                ]
        finally:
            os.close(fd)

    def listed(self, prefix: str) -> Iterable[Listed]:
        """Return names with sizes and times; files that were never finished are removed on the way."""
        self._check_trust()
        with plainly(f"list {prefix or 'the objects'} in {self.path}"):
            return list(self._survey("", prefix, self.now() - _LEFTOVER))

    def _survey(self, above: str, prefix: str, leftover: datetime) -> Iterator[Listed]:
        try:
            fd = os.open(
                above or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._handles.root.fd
            )
        except FileNotFoundError:
            return
        below = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    path = above + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if not entry.name.startswith("."):
                            below.append(f"{path}/")
                        continue
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        modified_at = datetime.fromtimestamp(found.st_mtime, UTC)
                        if entry.name.startswith("."):
                            if entry.name.endswith(".tmp") and modified_at < leftover:
                                os.unlink(entry.name, dir_fd=fd)
                        elif path.startswith(prefix):
                            yield Listed(path, found.st_size, modified_at)
        finally:
            os.close(fd)
        for path in below:
            if path.startswith(prefix) or prefix.startswith(path):
                yield from self._survey(path, prefix, leftover)

    # Writing

    def create(self, name: str, data: bytes) -> bool:
        self._check_writing(name)
        with plainly(f"write {name} in {self.path}"):
            for _ in range(_TRIES):
                folder, leaf = self._place_of(name)
                try:
                    return self._create_in(folder, leaf, data)
                except FileNotFoundError as error:
                    self._expect_removed(folder, error)
            raise StoreUnavailable(f"the folder of {name} is removed again and again.", fix="Try again.")

    def _create_in(self, folder: Handle, leaf: str, data: bytes) -> bool:
        fd, temporary = self._write_aside(folder, data, named=not self._has_unnamed)
        try:
            is_new = self._link(fd, temporary, folder, leaf)
        finally:
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder.fd)
            os.close(fd)
        if is_new:
            self._sync(folder)
        return is_new

    def _link(self, fd: int, temporary: str | None, folder: Handle, leaf: str) -> bool:
        source = temporary if temporary is not None else f"/proc/self/fd/{fd}"
        try:
            os.link(source, leaf, src_dir_fd=folder.fd, dst_dir_fd=folder.fd, follow_symlinks=True)
        except OSError as error:
            # Over a network the first reply can be lost; the second try then finds what the first one did.
            if self._is_at(fd, folder, leaf, error):
                return True
            if isinstance(error, FileExistsError):
                return False
            raise
        return True

    def _is_at(self, fd: int, folder: Handle, leaf: str, error: OSError) -> bool:
        """Say whether our file is under that name, although we were told otherwise."""
        mine = os.fstat(fd)
        try:
            there = os.stat(leaf, dir_fd=folder.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            self._in_doubt.add(folder.path)
            raise error from None
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def swap(self, name: str, data: bytes, tag: str) -> bool:
        self._check_writing(name)
        with plainly(f"replace {name} in {self.path}"), self._locked(name):
            found = self._read(name)
            if found is None or _tag(found) != tag:
                return False
            self._replace(name, data)
            return True

    def put(self, name: str, data: bytes) -> None:
        self._check_writing(name)
        with plainly(f"write {name} in {self.path}"), self._locked(name):
            self._replace(name, data)

    def _replace(self, name: str, data: bytes, *, durably: bool = True) -> None:
        for _ in range(_TRIES):
            folder, leaf = self._place_of(name)
            try:
                fd, temporary = self._write_aside(folder, data, named=True, durably=durably)
            except FileNotFoundError as error:
                self._expect_removed(folder, error)
                continue
            assert temporary is not None
            try:
                self._rename(fd, temporary, folder, leaf)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder.fd)
                raise
            finally:
                os.close(fd)
            if durably:
                self._sync(folder)
            return
        raise StoreUnavailable(f"the folder of {name} is removed again and again.", fix="Try again.")

    def _rename(self, fd: int, temporary: str, folder: Handle, leaf: str) -> None:
        try:
            os.rename(temporary, leaf, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
        except OSError as error:
            if not self._is_at(fd, folder, leaf, error):
                raise

    def _write_aside(
        self, folder: Handle, data: bytes, *, named: bool, durably: bool = True
    ) -> tuple[int, str | None]:
        """Write a file that has no name yet, or one that nobody looks at."""
        temporary = None
        if named:
            temporary = self._new_name()
            fd = os.open(temporary, NEW_FILE, 0o644, dir_fd=folder.fd)
        else:
            fd = os.open(".", os.O_WRONLY | UNNAMED | os.O_CLOEXEC, 0o644, dir_fd=folder.fd)
        try:
            _write_all(fd, data)
            if (time := time_for_store(self._clock)) is not None:
                os.utime(fd, (time.timestamp(), time.timestamp()))
            if durably:
                os.fsync(fd)
        except BaseException:
            os.close(fd)
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder.fd)
            raise
        return fd, temporary

    def delete(self, names: Iterable[str]) -> None:
        """Remove what is there of these, and folders that are empty then."""
        touched: dict[str, Handle] = {}
        for name in names:
            self._check_writing(name)
            above, _, leaf = name.rpartition("/")
            with plainly(f"remove {name} in {self.path}"):
                try:
                    folder = touched.get(above) or self._handles.get(above, make=False)
                    with self._locked(name):
                        os.unlink(leaf, dir_fd=folder.fd)
                except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    continue
                touched[above] = folder
        with plainly(f"remove objects in {self.path}"):
            for folder in touched.values():
                self._sync(folder)
        for above in sorted(touched, key=len, reverse=True):
            self._prune(above)

    def _prune(self, path: str) -> None:
        """Remove a folder and those above it as far as they are empty."""
        while path:
            try:
                os.rmdir(path, dir_fd=self._handles.root.fd)
            except OSError:
                return
            self._handles.forget(path)
            path = path.rpartition("/")[0]

    # What both need

    def _place_of(self, name: str) -> tuple[Handle, str]:
        above, _, leaf = name.rpartition("/")
        return self._handles.get(above), leaf

    def _expect_removed(self, folder: Handle, error: FileNotFoundError) -> None:
        """Go on if somebody removed an empty folder under our hands; anything else is an error."""
        if self._handles.root.is_removed() or not folder.is_removed():
            raise error
        self._handles.forget(folder.path)

    def _sync(self, folder: Handle) -> None:
        """Make a change of a folder last. If that fails nobody knows what is on disk, so nothing goes on."""
        if not self._syncs_folders:
            return
        try:
            sync(folder)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOTSUP):
                self._syncs_folders = False
                return
            self._failed = explain(error, f"sync {self.path / folder.path}")
            raise

    def _settle_doubt(self, above: str) -> None:
        if above in self._in_doubt:
            with suppress(FileNotFoundError):
                self._sync(self._handles.get(above, make=False))
            self._in_doubt.discard(above)

    def _check_trust(self) -> None:
        if self._failed is not None:
            raise StoreError(
                f"a sync failed here before: {self._failed.message} What was written last may be lost, "
                "though it can still be read.",
                fix=f"{self._failed.fix} Then open the store anew.",
            )

    def _check_writing(self, name: str) -> None:
        checked(name)
        self._check_trust()
        if self._refusal is not None:
            raise self._refusal

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold the lock that a name shares with a few others, across threads, processes and machines."""
        fd = self._lock_file(hashlib.sha256(name.encode()).hexdigest()[:2])
        try:
            yield
        finally:
            os.close(fd)

    def _lock_file(self, stripe: str) -> int:
        began = self._clock.monotonic()
        pause = threading.Event()
        for _ in range(int(_PATIENCE / 0.01)):
            fd = self._open_lock(stripe)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_nlink:
                    return fd
            except BlockingIOError:
                pass
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
            pause.wait(0.01)
        raise StoreUnavailable(
            f"another process has held a lock in {self.path} for {self._clock.monotonic() - began:.0f} s.",
            fix="Try again, or see which process is stopped.",
        )

    def _open_lock(self, stripe: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(f"{_LOCKS}/{stripe}", flags, 0o666, dir_fd=self._handles.root.fd)
        except FileNotFoundError:
            self._handles.forget(CONTROL)
            self._handles.get(_LOCKS)
            return os.open(f"{_LOCKS}/{stripe}", flags, 0o666, dir_fd=self._handles.root.fd)

    # Time

    def now(self) -> datetime:
        """Return the time of the disk: this machine's, or a file server's."""
        if self.is_local or time_for_store(self._clock) is not None or self._refusal is not None:
            return self._clock.now()
        measured = self._offset
        if measured is None or self._clock.monotonic() - measured[0] > _REMEASURED:
            with plainly(f"read the clock of {self.path}"):
                measured = self._offset = (self._clock.monotonic(), self._measure())
        return self._clock.now() + measured[1]

    def _measure(self) -> timedelta:
        """Return how far the clock that stamps files is ahead of ours."""
        control = self._handles.get(CONTROL)
        name = self._new_name()
        fd = os.open(name, NEW_FILE, 0o600, dir_fd=control.fd)
        try:
            before = self._clock.now()
            os.utime(fd)
            stamp = os.fstat(fd).st_mtime
            after = self._clock.now()
        finally:
            os.close(fd)
            with suppress(OSError):
                os.unlink(name, dir_fd=control.fd)
        return datetime.fromtimestamp(stamp, UTC) - (before + (after - before) / 2)

    def close(self) -> None:
        self._handles.close()


def _make_folders(path: Path) -> None:
    """Make a folder and those above it, each synced into the one above."""
    if path.is_dir():
        return
    _make_folders(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_all(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts = []
    while part := os.read(fd, max(size + 1, 4096)):
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
