"""Locks in files, which hold across threads, processes and the machines that share a folder. Apart from the
bucket as what a system gives.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from everstep.errors import StoreUnavailable
from everstep.stores.objects.folder.handles import Handles, open_for_all

_PATIENCE = 10.0
_PAUSE = 0.005


class FolderLocks:
    """A few files that stand for all names; a name shares its lock with some others."""

    def __init__(self, handles: Handles, folder: str) -> None:
        self._handles = handles
        self._folder = folder

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold the lock of a name; `StoreUnavailable` if another process does not release it."""
        fd = self._acquire(hashlib.sha256(name.encode()).hexdigest()[:2])
        try:
            yield
        finally:
            os.close(fd)

    def _acquire(self, stripe: str) -> int:
        pause = threading.Event()
        for _ in range(int(_PATIENCE / _PAUSE)):
            fd = self.open(stripe)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A file that was removed meanwhile locks nothing.
                if os.fstat(fd).st_nlink:
                    return fd
            except BlockingIOError:
                pass
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
            pause.wait(_PAUSE)
        raise StoreUnavailable(
            f"another process holds a lock in {self._folder} and does not let go of it.",
            fix="Try again, or see which process is stopped.",
        )

    def open(self, stripe: str) -> int:
        """Open the file of a lock; it is there for good."""
        try:
            return open_for_all(f"{self._folder}/{stripe}", self._handles.root.fd)
        except FileNotFoundError:
            self._handles.forget(self._folder)
            return open_for_all(stripe, self._handles.get(self._folder).fd)
