"""Which runs have files for people that are not written yet, so that they are written after a crash."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from everstep.stores.objects import names


class Unkept:
    """Remembers nothing: where a process died, the files are made anew when its run goes on."""

    def add(self, run: str) -> None:
        return

    def done(self, run: str) -> None:
        return

    def adopt(self) -> Iterable[str]:
        return ()


class Unwritten(Unkept):
    """Empty files, each named after a run and the process that owes its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._host = names.quoted(socket.gethostname())
        self._mine: set[tuple[int, str]] = set()

    def add(self, run: str) -> None:
        """Note that files of a run are owed."""
        me = os.getpid()
        if (me, run) in self._mine:
            return
        path = self._folder / f"{run}~{self._host}~{me}"
        try:
            path.touch()
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.touch()
        self._mine.add((me, run))

    def done(self, run: str) -> None:
        """Note that they are written."""
        me = os.getpid()
        if (me, run) in self._mine:
            self._mine.discard((me, run))
            (self._folder / f"{run}~{self._host}~{me}").unlink(missing_ok=True)

    def adopt(self) -> Iterator[str]:
        """Yield the runs that processes of this machine owe which are gone; from now on we owe them."""
        try:
            owed = [entry.name for entry in os.scandir(self._folder)]
        except FileNotFoundError:
            return
        for name in owed:
            run, host, pid = (*name.rsplit("~", 2), "", "")[:3]
            if host == self._host and pid.isdecimal() and not _is_alive(int(pid)):
                self.add(run)
                (self._folder / name).unlink(missing_ok=True)
                yield run


def _is_alive(pid: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
