"""The disk of a simulated machine: files in memory that a power cut takes back to what was synced. Apart from
the store on it, as it knows files and no runs.

Every write and every sync that a process asks for is a point at which it may die, or the power fail. SQLite's
stack cannot be left there, so the disk fails until it has come back, and what was decided happens then.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw

from everstep.stores.artifacts import Syncs
from everstep.testing.power_cut import Act, Op, PowerCutVfs, RecordedFile, survivors
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.process import SimProcess, Surroundings

T = TypeVar("T")
_MEMORY = Path("/dev/shm")
_DIES = (Fault.CRASH, Fault.POWER_CUT)
Stamp = tuple[int, int, int]
"""Which file, and when it was written: its inode, length and time."""


class _Doom(NamedTuple):
    """What happens to a process as soon as it has come back from the disk."""

    process: SimProcess
    point: str
    fault: Fault
    artifacts: dict[Path, bytes]
    """As they were: what a process does that is dead already does not count."""


class Disk:
    """The files of a store, and what of them lasts."""

    def __init__(self, world: Surroundings, is_full: Callable[[], bool]) -> None:
        self._world = world
        self.is_full = is_full
        place = _MEMORY if _MEMORY.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="everstep-world-", dir=place))
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.database = self.folder / "runs.db"
        self.artifacts = self.folder / "runs.db.artifacts"
        self.vfs = _Vfs(self)
        self._doom: _Doom | None = None
        self._is_frozen = False
        self._synced: set[Stamp] = set()
        """Files whose content lasts."""
        self._lasting: set[Path] = set()
        """Files and folders whose names last."""

    def close(self) -> None:
        self.vfs.unregister()
        self._remove()

    # -- who does something, and whether it comes to that -------------------------------------------------

    def process_here(self) -> SimProcess | None:
        """Return the process that asks; none if it is the one who checks."""
        thread = self._world.hub.current
        owner = thread.owner if thread is not None else None
        assert owner is None or isinstance(owner, SimProcess)
        return owner

    def goes_on(self, process: SimProcess | None, act: Act) -> bool:
        """Come to a point before a process does something. False if it does not live to do it."""
        if self._is_frozen or self._doom is not None:
            return False
        if process is None:
            return True
        if process.is_dead:
            return False
        point = f"before {act.value} {process.count(act.value)}"
        fault = self._world.decide(process, point, _DIES)
        if fault is None:
            return True
        self._doom = _Doom(process, point, fault, self._artifacts())
        return False

    def use(self, work: Callable[[], T]) -> T:
        """Let a process do something with its files. Does not return if it dies on the way."""
        try:
            return work()
        finally:
            doom, self._doom = self._doom, None
            if doom is not None:
                for path, content in doom.artifacts.items():
                    if not path.exists():
                        path.write_bytes(content)
                self._world.strike(doom.process, doom.point, doom.fault)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let files be closed without a trace, as the system closes those of a process that is gone."""
        self._is_frozen = True
        try:
            yield
        finally:
            self._is_frozen = False

    def fill(self, files: Mapping[str, bytes]) -> None:
        """Add files that last."""
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
            self.vfs.ops += [Op(Act.TRUNCATE, name), Op(Act.WRITE, name, 0, content), Op(Act.SYNC, name)]

    # -- power cuts ---------------------------------------------------------------------------------------

    def lose_power(self, label: str) -> None:
        """Let the files be what a power cut leaves: it follows from the seed and the point."""
        chance = random.Random(f"{self._world.seed} {label}")
        left = survivors(self.vfs.ops, chance)
        for path in self.folder.iterdir():
            if path.is_file():
                path.unlink()
        self.vfs.ops.clear()
        self.fill({name: left[name] for name in left if name.startswith(self.database.name)})
        if self.artifacts.exists():
            self._lose_artifacts(label)

    def _lose_artifacts(self, label: str) -> None:
        for path in (self.artifacts, *sorted(self.artifacts.rglob("*"))):
            chance = random.Random(f"{self._world.seed} {label} {path.relative_to(self.folder)}")
            if path.exists() and path not in self._lasting and chance.random() < 0.5:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif path.is_file() and _stamp(path.stat()) not in self._synced and chance.random() < 0.7:
                seen = path.stat()
                os.truncate(path, chance.randrange(seen.st_size + 1))
                os.utime(path, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
            if path.exists():
                self._lasting.add(path)
            if path.is_file():
                self._synced.add(_stamp(path.stat()))

    # -- artifacts ----------------------------------------------------------------------------------------

    def syncs_of(self, process: SimProcess) -> Syncs:
        """Return how a process makes artifacts last."""
        return Syncs(partial(self._sync_file, process), partial(self._sync_folder, process))

    def _sync_file(self, process: SimProcess, file: int) -> None:
        self._come_to_sync(process)
        if self.is_full():
            process.was_cut_off = True
            raise OSError(errno.ENOSPC, "no space is left")
        self._synced.add(_stamp(os.fstat(file)))

    def _sync_folder(self, process: SimProcess, folder: Path) -> None:
        self._come_to_sync(process)
        gone = {path for path in self._lasting if path.parent == folder and not path.exists()}
        self._lasting = (self._lasting - gone) | set(folder.iterdir())

    def _come_to_sync(self, process: SimProcess) -> None:
        if not self.goes_on(process, Act.SYNC):
            raise OSError(errno.EIO, "the process is gone")

    def _artifacts(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.artifacts.rglob("*") if path.is_file()}


def _stamp(seen: os.stat_result) -> Stamp:
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


class _Vfs(PowerCutVfs):
    """SQLite's way to the disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = weakref.proxy(disk)
        super().__init__(disk.folder.name)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _File:  # noqa: N802  SQLite's name
        return _File(self._disk, self.ops, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        _check(self._disk.goes_on(self._disk.process_here(), Act.DELETE))
        super().xDelete(filename, syncdir)


class _File(RecordedFile):
    """One of SQLite's files, as a process has it open."""

    def __init__(
        self, disk: Disk, ops: list[Op], name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._disk = disk
        self._process = disk.process_here()
        super().__init__(ops, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        _check(self._disk.goes_on(self._process, Act.WRITE))
        if self._process is not None and self._disk.is_full():
            self._process.was_cut_off = True
            raise apsw.FullError
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        _check(self._disk.goes_on(self._process, Act.TRUNCATE))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        _check(self._disk.goes_on(self._process, Act.SYNC))
        super().xSync(flags)


def _check(goes_on: bool) -> None:
    if not goes_on:
        raise apsw.IOError("the process is gone")
