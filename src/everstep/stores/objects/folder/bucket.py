"""A folder as a bucket: files that appear whole under names that are taken only once. Apart from `readable`,
which adds files for people to it.

An object is written aside, synced, and linked to its name, which the file system refuses if that is taken;
then its folder is synced. Replacing or removing one needs a lock. The folder `.everstep` has the locks
and nothing else; other names that begin with a dot are files being written.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from time import CLOCK_REALTIME, clock_gettime, monotonic
from urllib.parse import quote

from everstep.errors import StoreError, StoreMissing, StoreUnavailable
from everstep.ports.health import Health
from everstep.stores.forking import free_in_children
from everstep.stores.objects.bucket import Found, Listed
from everstep.stores.objects.folder.bell import Bell
from everstep.stores.objects.folder.fitness import CONTROL, NEW_FILE, UNNAMED, Unfit, examine, look_at
from everstep.stores.objects.folder.handles import FileHandle, Handles, sync
from everstep.stores.objects.folder.locks import FolderLocks
from everstep.stores.objects.folder.mounts import mount_of
from everstep.stores.objects.folder.walking import sorted_names, survey
from everstep.stores.objects.naming import check_prefix, checked
from everstep.stores.os_errors import explain, plainly

_TRIES = 50
_LEFTOVER = timedelta(days=1)
"""A file that was being written for so long has no writer any more."""
_REMEASURED = 60.0
"""Seconds after which the clock of a file server is looked at again."""
_LOOKS = 8
"""How often it is looked at then."""
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


class Folder:
    """Named bytes in a folder, on a local disk or a network file system that honours links and locks."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = Path.cwd() / path
        self.place = f"file://{quote(str(self.path))}"
        self._lock = threading.Lock()
        self._count = 0
        self._handles = self._open_root(create)
        self.mount = mount_of(self.path)
        self.is_local = not self.mount.is_shared
        self._keeps_order = self.mount.keeps_order
        self._syncs_folders = True
        self._in_doubt: set[str] = set()
        """Folders in which something was linked, perhaps, and was not synced."""
        self._failed: StoreError | None = None
        self._refusal: StoreError | None = None
        self._marked: dict[str, tuple[FileHandle, int]] = {}
        """Folders with new marks in them that are not synced yet, and which is the newest."""
        self._marking = threading.Lock()
        free_in_children(self, "_lock", "_marking")
        self._offset: tuple[float, timedelta] | None = None
        self._has_unnamed = False
        self._locks = FolderLocks(self._handles, f"{CONTROL}/locks")
        self._examine(create)
        self._bell = Bell(self._handles.root, f"{CONTROL}/changes") if self.is_local else None

    # Opening

    def _open_root(self, create: bool) -> Handles:
        with plainly(f"use the folder {self.path}"):
            if not create and not self.path.exists():
                raise StoreMissing(
                    f"there is no folder at {self.path}.", fix="Check the path, or start a run to make it."
                )
            _make_folders(self.path)
            return Handles(str(self.path))

    def _examine(self, create: bool) -> None:
        """Refuse a folder that cannot keep writers apart; one that can only be read may be read."""
        try:
            self._has_unnamed = examine(self._handles, self.mount, self._new_name, self._locks.open)
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
        check_prefix(prefix)
        self._check_trust()
        with plainly(f"list {prefix or 'the objects'} in {self.path}"):
            found = list(
                islice(filter(self._is_ours, sorted_names(self._handles.root.fd, prefix, after)), limit)
            )
            if not found:
                self._check_root()
            return found

    def _is_ours(self, name: str) -> bool:
        """False for a file that is no object."""
        return True

    def listed(self, prefix: str) -> Iterable[Listed]:
        """Return names with sizes and times; files that were never finished are removed on the way."""
        check_prefix(prefix)
        self._check_trust()
        with plainly(f"list {prefix or 'the objects'} in {self.path}"):
            found = survey(self._handles.root.fd, prefix, self.now() - _LEFTOVER)
            return [listed for listed in found if self._is_ours(listed.name)]

    # Writing

    def create(self, name: str, data: bytes) -> bool:
        self._check_writing(name)
        with plainly(f"write {name} in {self.path}"):
            for _ in range(_TRIES):
                folder, leaf = self._place_of(name)
                try:
                    return self._create_in(folder, leaf, data)
                except OSError as error:
                    self._expect_removed(folder, error)
            raise _restless(name)

    def _create_in(self, folder: FileHandle, leaf: str, data: bytes) -> bool:
        fd, temporary = self._write_aside(folder, data, named=not self._has_unnamed)
        try:
            self._sync_marks()
            is_new = self._link(fd, temporary, folder, leaf)
        finally:
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder.fd)
            os.close(fd)
        if is_new:
            self._sync(folder)
            self._ring()
        return is_new

    def _link(self, fd: int, temporary: str | None, folder: FileHandle, leaf: str) -> bool:
        source = temporary if temporary is not None else f"/proc/self/fd/{fd}"
        for _ in range(_TRIES):
            try:
                os.link(source, leaf, src_dir_fd=folder.fd, dst_dir_fd=folder.fd, follow_symlinks=True)
            except OSError as error:
                # Over a network the first reply can be lost; a second try then finds what the first one did.
                is_ours = self._is_at(fd, folder, leaf, error)
                if is_ours is None and isinstance(error, FileExistsError):
                    continue
                if not is_ours and not isinstance(error, FileExistsError):
                    raise
                return bool(is_ours)
            else:
                return True
        return False

    def _is_at(self, fd: int, folder: FileHandle, leaf: str, error: OSError) -> bool | None:
        """Say whether our file is under that name, although we were told otherwise; none if nothing is."""
        mine = os.fstat(fd)
        try:
            there = os.stat(leaf, dir_fd=folder.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError:
            self._in_doubt.add(folder.path)
            raise error from None
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def mark(self, names: Sequence[str]) -> None:
        for name in names:
            self._check_writing(name)
        with plainly(f"write to {self.path}"):
            for name in names:
                self._mark(name)

    def _mark(self, name: str) -> None:
        for _ in range(_TRIES):
            folder, leaf = self._place_of(name)
            try:
                mark = os.open(leaf, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=folder.fd)
                try:
                    os.utime(mark)  # one that was left long ago is new again
                finally:
                    os.close(mark)
            except OSError as error:
                self._expect_removed(folder, error)
                continue
            if self._keeps_order:
                return
            with self._lock:
                self._count += 1
                self._marked[folder.path] = folder, self._count
            return
        raise _restless(name)

    def _sync_marks(self) -> None:
        """Make marks last before the object that they lead to is there."""
        if not self._marked:
            return
        # The second one waits, because it may be its own marks that are being synced.
        with self._marking:
            for path, (folder, number) in list(self._marked.items()):
                self._sync(folder)
                with self._lock:
                    if self._marked[path][1] == number:
                        del self._marked[path]

    def swap(self, name: str, data: bytes, tag: str) -> bool:
        self._check_writing(name)
        with plainly(f"replace {name} in {self.path}"), self._locks.held(name):
            found = self._read(name)
            if found is None or _tag(found) != tag:
                return False
            self._replace(name, data)
        self._ring()
        return True

    def put(self, name: str, data: bytes) -> None:
        self._check_writing(name)
        with plainly(f"write {name} in {self.path}"), self._locks.held(name):
            self._replace(name, data)
        self._ring()

    def write_soon(self, name: str, data: bytes) -> None:
        """Put an object that may be lost when the power fails, for what can be made again."""
        self._check_writing(name)
        with plainly(f"write {name} in {self.path}"):
            self._replace(name, data, durably=False)

    def _replace(self, name: str, data: bytes, *, durably: bool = True) -> None:
        for _ in range(_TRIES):
            folder, leaf = self._place_of(name)
            try:
                fd, temporary = self._write_aside(folder, data, named=True, durably=durably)
            except OSError as error:
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
        raise _restless(name)

    def _rename(self, fd: int, temporary: str, folder: FileHandle, leaf: str) -> None:
        try:
            os.rename(temporary, leaf, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
        except OSError as error:
            if not self._is_at(fd, folder, leaf, error):
                raise

    def _write_aside(
        self, folder: FileHandle, data: bytes, *, named: bool, durably: bool = True
    ) -> tuple[int, str | None]:
        """Write a file that has no name yet, or one that is not read yet."""
        temporary = None
        if named:
            temporary = self._new_name()
            fd = os.open(temporary, NEW_FILE, 0o644, dir_fd=folder.fd)
        else:
            fd = os.open(".", os.O_WRONLY | UNNAMED | os.O_CLOEXEC, 0o644, dir_fd=folder.fd)
        try:
            _write_all(fd, data)
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
        touched: dict[str, FileHandle] = {}
        emptied: set[str] = set()
        for name in names:
            self._check_writing(name)
            above, _, leaf = name.rpartition("/")
            with plainly(f"remove {name} in {self.path}"):
                try:
                    folder = touched.get(above) or self._handles.get(above, make=False)
                    # A mark says too little to be swapped, or to be gone for good at once.
                    if os.stat(leaf, dir_fd=folder.fd, follow_symlinks=False).st_size:
                        with self._locks.held(name):
                            os.unlink(leaf, dir_fd=folder.fd)
                        touched[above] = folder
                    else:
                        os.unlink(leaf, dir_fd=folder.fd)
                        emptied.add(above)
                except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    continue
        with plainly(f"remove objects in {self.path}"):
            for folder in touched.values():
                self._sync(folder)
        for above in sorted(emptied | touched.keys(), key=len, reverse=True):
            self._prune(above)

    def _prune(self, path: str) -> None:
        """Remove a folder and those above it as far as they are empty; those at the top stay."""
        while "/" in path:
            try:
                os.rmdir(path, dir_fd=self._handles.root.fd)
            except OSError:
                return
            self._handles.forget(path)
            path = path.rpartition("/")[0]

    # What both need

    def _place_of(self, name: str) -> tuple[FileHandle, str]:
        above, _, leaf = name.rpartition("/")
        return self._handles.get(above), leaf

    def _expect_removed(self, folder: FileHandle, error: OSError) -> None:
        """Go on if another process removed an empty folder meanwhile; anything else is an error."""
        self._check_root()
        # What a file system says of a folder that is gone differs: no such file, or not permitted.
        if not folder.is_removed():
            raise error
        self._handles.forget(folder.path)

    def _sync(self, folder: FileHandle) -> None:
        """Make a change of a folder last. If that fails it is unknown what is on disk, so nothing goes on."""
        if not self._syncs_folders:
            return
        try:
            sync(folder, alone=self._keeps_order)
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

    # Time and health

    def changes(self) -> int | None:
        return None if self._bell is None else self._bell.read()

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.ring()

    def health(self) -> Health:
        with plainly(f"look at {self.path}"):
            now = None if self.is_local else self.now()
            return look_at(self.path, self.mount, now, syncs_folders=self._syncs_folders)

    def now(self) -> datetime:
        """Return the time of the disk: this machine's, or a file server's."""
        if self.is_local or self._refusal is not None:
            return _local_time()
        measured = self._offset
        if measured is None or monotonic() - measured[0] > _REMEASURED:
            with plainly(f"read the clock of {self.path}"):
                measured = self._offset = (monotonic(), self._measure())
        return _local_time() + measured[1]

    def _measure(self) -> timedelta:
        """Return how far the clock that stamps files is ahead of ours."""
        control = self._handles.get(CONTROL)
        name = self._new_name()
        fd = os.open(name, NEW_FILE, 0o600, dir_fd=control.fd)
        try:
            # A stamp is older than the answer that tells it, and often by a tick: the best of a few is taken.
            return max(self._lead(fd) for _ in range(_LOOKS))
        finally:
            os.close(fd)
            with suppress(OSError):
                os.unlink(name, dir_fd=control.fd)

    def _lead(self, fd: int) -> timedelta:
        os.utime(fd)
        stamp = datetime.fromtimestamp(os.fstat(fd).st_mtime, UTC)
        return stamp - _local_time()

    def close(self) -> None:
        """Let go of open folders; a call that still writes opens them anew."""
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


def _local_time() -> datetime:
    """Return the time by which this machine stamps files, whatever clock a host was given."""
    return datetime.fromtimestamp(clock_gettime(CLOCK_REALTIME), UTC)


def _restless(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"the folder of {name} is removed again and again.", fix="Try again.")


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
