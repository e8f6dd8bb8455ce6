"""The real store on a SQLite file in the simulated world: one for each process, on the disk of a machine.
Apart from `store`, whose rules are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

import apsw

from everstep.ports.store import CheckpointStore, Commit, RunRow
from everstep.ports.system import Clock
from everstep.registry import Opened
from everstep.runtime.system import SystemClock
from everstep.stores.artifacts import ArtifactFolder
from everstep.stores.sqlite.database import rows
from everstep.stores.sqlite.store import SqliteStore
from everstep.testing.simulation.disk import Disk
from everstep.testing.simulation.faults import Fault
from everstep.testing.simulation.hub import Dead
from everstep.testing.simulation.process import SimProcess, Surroundings
from everstep.testing.simulation.store import BEFORE, BlobLine, LocalLine, Shared, finished, method

T = TypeVar("T")
FOLD = 8
"""Pages of the log after which it is folded into the database: few, so that short runs come to it, too."""


class SqliteShared(Shared):
    """One database and its artifacts, on a disk that loses power with its machine."""

    def __init__(
        self,
        world: Surroundings,
        *,
        synchronous: str = "FULL",
        fold: int = FOLD,
        made: bytes | None = None,
        disk: Callable[[Surroundings, Callable[[], bool]], Disk] = Disk,
    ) -> None:
        """`made` is a database to begin with, as of `made_before`; else the first process makes one."""
        super().__init__(world)
        self._synchronous = synchronous
        self._fold = fold
        self.disk = disk(world, lambda: world.hub.now < self.full_until)
        if made is not None:
            self.disk.fill({self.disk.database.name: made})
        self._lines: dict[SimProcess, list[SqliteLine]] = {}
        self._plain: SqliteStore | None = None

    def open_for(self, process: SimProcess) -> Opened:
        if process.is_dead:
            raise Dead
        clock, disk = process.system.clock, self.disk
        line = SqliteLine(self, process, disk.use(partial(self._open, clock)))
        self._lines.setdefault(process, []).append(line)
        blobs = ArtifactFolder(disk.artifacts, clock, syncs=disk.syncs_of(process))
        return Opened(cast(CheckpointStore, line), BlobLine(line, blobs), "simulated:")

    def _open(self, clock: Clock) -> SqliteStore:
        store = SqliteStore(self.disk.database, clock, synchronous=self._synchronous, vfs=self.disk.vfs.name)
        store._db.wal_autocheckpoint(self._fold)
        return store

    def row(self, run_id: str) -> RunRow | None:
        # On a connection that is there: another one could fold the log when it is closed.
        for lines in self._lines.values():
            for line in lines:
                found: RunRow | None = finished(line.store.run, (run_id,), {})
                return found
        return None

    def plain(self) -> Opened:
        if self._plain is None:
            self._plain = self._open(self.clock)
        return Opened(self._plain, ArtifactFolder(self.disk.artifacts, self.clock), "simulated:")

    def flaws(self) -> list[str]:
        self.plain()
        assert self._plain is not None
        try:
            found = rows(self._plain._db, "PRAGMA integrity_check")
        except apsw.Error as error:
            return [str(error)]
        return [str(said) for (said,) in found if said != "ok"]

    def abandon(self, process: SimProcess) -> None:
        with self.disk.frozen():
            for line in self._lines.pop(process, ()):
                line.drop()

    def lose_power(self, label: str) -> None:
        assert not self._lines, "a SQLite file is used on one machine"
        self.disk.lose_power(label)

    def let_go(self, line: SqliteLine) -> None:
        """Forget a line that was closed."""
        self._lines[line.process].remove(line)
        if not self._lines[line.process]:
            del self._lines[line.process]

    def close(self) -> None:
        for process in list(self._lines):
            self.abandon(process)
        if self._plain is not None:
            finished(self._plain.close, (), {})
        self.disk.close()


def made_before() -> bytes:
    """Return a database that keeps nothing yet, for worlds that need not begin with making one."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        finished(SqliteStore(path, SystemClock(), synchronous="OFF").close, (), {})
        return path.read_bytes()


class SqliteLine(LocalLine):
    """A process's own connections to the file."""

    def __init__(self, shared: SqliteShared, process: SimProcess, store: SqliteStore) -> None:
        super().__init__(shared, process, store)
        self.store = store
        self._shared = shared
        self.capabilities = store.capabilities

    def possible(self, name: str, commits: Sequence[Commit]) -> tuple[Fault, ...]:
        return BEFORE  # a call comes once, and a group of commits is one transaction

    def carry_out(self, work: Callable[[], T]) -> T:
        return self._shared.disk.use(work)

    def check_reachable(self, *, is_write: bool) -> None:
        super().check_reachable(is_write=False)  # a full disk says so itself

    take_up = method("take_up", writes=True)

    async def close(self) -> None:
        if not self.process.is_dead:
            self.carry_out(self._close)
            self._shared.let_go(self)

    def _close(self) -> None:
        while True:
            # SQLite closes a file all the same if it cannot fold the log first; only apsw tells of it.
            with suppress(apsw.FullError):
                finished(self.store.close, (), {})
                return

    def drop(self) -> None:
        """Close the files as the system does for a process that is gone: nothing is written any more."""
        for connection in (self.store._db, self.store._renewals, self.store._watch):
            if connection is not None:
                with suppress(apsw.Error):
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                with suppress(apsw.Error):
                    connection.close(force=True)
