"""Zeros written ahead of SQLite's log change nothing but its length."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from everstep.model.enums import Status
from everstep.ports.store import Admission, Commit, Verdict
from everstep.runtime.system import SystemClock
from everstep.stores.sqlite.room import CHECKPOINT_PAGES, FIRST, LogRoom
from everstep.stores.sqlite.store import SqliteStore

SOURCES = Path(__file__).parents[4] / "src"


def admit(store: SqliteStore, run_id: str) -> None:
    admission = Admission(
        flow_id="f",
        flow_version="1",
        flow_hash="h",
        blueprint=b"{}",
        created_at=datetime.now(UTC),
        owner="me",
        ttl=timedelta(seconds=30),
        process=None,
    )
    first = Commit(run_id, 1, f"{run_id}-1", None, 1, b"first", status=Status.RUNNING, admission=admission)
    assert store.put_blocking([first]) == [Verdict.ACCEPTED]


def put(store: SqliteStore, run_id: str, sequence: int) -> None:
    body = f"{run_id} {sequence}".encode() * 40
    commit = Commit(run_id, sequence, f"{run_id}-{sequence}", f"{run_id}-{sequence - 1}", 1, body)
    assert store.put_blocking([commit]) == [Verdict.ACCEPTED]


def bodies(path: Path) -> list[bytes]:
    connection = apsw.Connection(str(path))
    try:
        assert connection.pragma("integrity_check") == "ok"
        return [body for (body,) in connection.execute("SELECT body FROM checkpoints ORDER BY position")]
    finally:
        connection.close()


def snapshot(path: Path, to: Path) -> Path:
    """Copy the database and its log as a crash would leave them."""
    to.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", to / (path.name + suffix))
    return to / path.name


def length_of_log(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def test_the_log_has_room_after_some_commits(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path, SystemClock())
    admit(store, "r")
    for k in range(2, 10):
        put(store, "r", k)
    assert length_of_log(path) < FIRST, "a process that writes little pays for nothing"
    for k in range(10, 60):
        put(store, "r", k)
    assert length_of_log(path) > FIRST
    expected = [b"first", *(f"r {k}".encode() * 40 for k in range(2, 60))]
    assert bodies(snapshot(path, tmp_path / "copy")) == expected


def test_a_log_that_is_not_synced_gets_none(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db", SystemClock(), synchronous="NORMAL")
    admit(store, "r")
    for k in range(2, 60):
        put(store, "r", k)
    assert length_of_log(tmp_path / "runs.db") < FIRST


def test_two_writers_leave_each_others_frames_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    stores = {name: SqliteStore(path, SystemClock()) for name in ("a", "b")}
    for name, store in stores.items():
        admit(store, name)
    for k in range(2, 300):
        for name, store in stores.items():
            put(store, name, k)
        if k % 50 == 0:
            assert len(bodies(snapshot(path, tmp_path / f"copy{k}"))) == 2 * k
    assert len(bodies(path)) == 2 * 299


def test_the_log_is_still_folded_back(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path, SystemClock())
    admit(store, "r")
    for k in range(2, 2500):
        put(store, "r", k)
    assert path.stat().st_size > 300_000, "pages must have moved from the log to the database"
    assert length_of_log(path) < 16 << 20
    assert len(bodies(path)) == 2499


@pytest.mark.parametrize("puts", [30, 700])
def test_a_killed_process_loses_nothing_it_was_promised(tmp_path: Path, puts: int) -> None:
    path = tmp_path / "runs.db"
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_log_preallocation import *
store = SqliteStore(Path({str(path)!r}), SystemClock())
admit(store, "r")
for k in range(2, {puts}):
    put(store, "r", k)
os.kill(os.getpid(), 9)
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    died = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert died.returncode == -9
    assert len(bodies(path)) == puts - 1


def test_the_first_commit_of_a_client_folds_only_a_long_log(tmp_path: Path) -> None:
    class Folding:
        """Counts how often the log would be folded."""

        folds = 0

        def wal_checkpoint(self, *_: object) -> None:
            self.folds += 1

    store = SqliteStore(tmp_path / "runs.db", SystemClock())
    room, folding = store._room, Folding()
    assert room is not None
    for pages, folds in ((CHECKPOINT_PAGES, 0), (CHECKPOINT_PAGES - 1, 0), (CHECKPOINT_PAGES, 1)):
        room._on_commit(folding, "main", pages)  # type: ignore[arg-type]
        assert folding.folds == folds
    other = LogRoom(store._db, tmp_path / "runs.db")
    other._on_commit(folding, "main", 4 * CHECKPOINT_PAGES)  # type: ignore[arg-type]
    assert folding.folds == 2


def test_a_commit_counts_even_if_the_log_cannot_be_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.stores.sqlite.room.CHECKPOINT_PAGES", 1)

    class Failing:
        """A connection on whose disk the log cannot be folded back."""

        def __init__(self, connection: apsw.Connection) -> None:
            self._connection = connection

        def wal_checkpoint(self, *_: object) -> None:
            raise apsw.FullError("disk is full")

    path = tmp_path / "runs.db"
    store = SqliteStore(path, SystemClock())
    room = store._room
    assert room is not None
    store._db.set_wal_hook(lambda connection, *rest: room._on_commit(Failing(connection), *rest))  # type: ignore[arg-type]
    admit(store, "r")
    put(store, "r", 2)
    assert len(bodies(path)) == 2
