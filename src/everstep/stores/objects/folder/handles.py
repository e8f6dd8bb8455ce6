"""The folders below one folder, kept open, because a write that is durable has to sync them."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from everstep.stores.forking import free_in_children

_MOST = 256
_TRIES = 50
"""How often a folder that is removed while it is wanted is made again."""
_AS_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FileHandle:
    """An open folder or file, closed once nothing refers to it, so that no thread loses one in use."""

    __slots__ = ("__weakref__", "fd", "is_anchored", "parent", "path")

    def __init__(self, fd: int, path: str, parent: FileHandle | None) -> None:
        self.fd = fd
        self.path = path
        self.parent = parent
        self.is_anchored = parent is None
        """True once the folder above was synced with this one in it."""

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)

    def is_removed(self) -> bool:
        """True if it no longer has a name."""
        return os.fstat(self.fd).st_nlink == 0


class Handles:
    """Opens folders by their path below a root, makes those that are missing, and keeps the latest open."""

    def __init__(self, root: str) -> None:
        self.root = FileHandle(os.open(root, _AS_FOLDER), "", None)
        self._kept: OrderedDict[str, FileHandle] = OrderedDict()
        self._lock = threading.Lock()
        free_in_children(self, "_lock")

    def get(self, path: str, *, make: bool = True) -> FileHandle:
        """Return a folder; `FileNotFoundError` if it is not there and not to be made, or the root is gone."""
        with self._lock:
            if (kept := self._kept.get(path)) is not None:
                self._kept.move_to_end(path)
                return kept
        if not path:
            return self.root
        above, _, leaf = path.rpartition("/")
        for _ in range(_TRIES):
            parent = self.get(above, make=make)
            try:
                opened = FileHandle(_open(parent.fd, leaf, make), path, parent)
            except FileNotFoundError:
                if not make or parent is self.root or not parent.is_removed():
                    if not make or self.root.is_removed():
                        raise
                    continue
                self.forget(above)
            else:
                return self._keep(opened)
        raise FileNotFoundError(2, "the folder is removed again and again", path)

    def _keep(self, opened: FileHandle) -> FileHandle:
        with self._lock:
            kept = self._kept.setdefault(opened.path, opened)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
            return kept

    def forget(self, path: str) -> None:
        """Open a folder anew when it is wanted next, and those below it."""
        with self._lock:
            for kept in [kept for kept in self._kept if kept == path or kept.startswith(f"{path}/")]:
                del self._kept[kept]

    def close(self) -> None:
        with self._lock:
            self._kept.clear()


def sync(folder: FileHandle, *, alone: bool = False) -> None:
    """Make what is in a folder last, and that the folder itself is found again.

    Another process may have made it, or one above it, without having come to sync that; so it is done once
    by everybody who writes there. It is not done where the sync of one folder is enough.
    """
    os.fsync(folder.fd)
    if folder.is_anchored or alone:
        return
    adrift, each = [], folder
    while each.parent is not None and not each.is_anchored:
        os.fsync(each.parent.fd)
        adrift.append(each)
        each = each.parent
    for each in adrift:
        each.is_anchored = True


def open_for_all(path: str, folder: int) -> int:
    """Open a file that holds nothing of anybody's, so that all who may enter the folder may use it."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(path, flags, dir_fd=folder)
    except FileNotFoundError:
        fd = os.open(path, flags | os.O_CREAT, 0o666, dir_fd=folder)
        with suppress(PermissionError):
            os.fchmod(fd, 0o666)
        return fd


def _open(parent: int, leaf: str, make: bool) -> int:
    try:
        return os.open(leaf, _AS_FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(leaf, dir_fd=parent)
    return os.open(leaf, _AS_FOLDER, dir_fd=parent)
