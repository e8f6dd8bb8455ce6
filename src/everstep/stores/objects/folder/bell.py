"""A number in a file that is another one after every write, for all processes of one machine. Apart from the
files of runs, none of which it is.
"""

from __future__ import annotations

import os
import threading

from everstep.stores.forking import free_in_children
from everstep.stores.objects.folder.handles import FileHandle, open_for_all

_SIZE = 8


class Bell:
    """Rung by the writer. It is read with one short call, and says that there may be something to read."""

    def __init__(self, root: FileHandle, name: str) -> None:
        self._root = root
        self._name = name
        self._file: FileHandle | None = None
        self._lock = threading.Lock()
        free_in_children(self, "_lock")
        self._count = 0

    def read(self) -> int | None:
        """Return a number that is another one once it rang; none where that cannot be told."""
        try:
            return int.from_bytes(os.pread(self._open().fd, _SIZE, 0))
        except OSError:
            return None

    def ring(self) -> None:
        """Write a unique number. A client that misses it polls after a while."""
        with self._lock:
            self._count += 1
            number = hash((os.getpid(), id(self), self._count)) & (1 << 64) - 1
        try:
            os.pwrite(self._open().fd, number.to_bytes(_SIZE), 0)
        except OSError:
            self._file = None

    def _open(self) -> FileHandle:
        file = self._file
        if file is None or file.is_removed():
            file = self._file = FileHandle(open_for_all(self._name, self._root.fd), self._name, None)
        return file
