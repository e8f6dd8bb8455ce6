"""Bad disks: whether the power fails, space runs out or writing is forbidden, nothing recorded is lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from everstep import Flow, Host, Node, Status
from everstep.errors import EverstepError, RunNotFound, StoreError
from everstep.ports.store import Commit, Verdict
from everstep.registry import Opened
from everstep.stores.sqlite.database import open_database
from everstep.stores.sqlite.store import SqliteStore
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import TTL, Chain
from everstep.testing.power_cut import Act, MoodyVfs, Op, PowerCutVfs, survivors, write_files
from tests.integration.stores.sqlite.test_database import (
    FLOW,
    INPUTS,
    RESULT,
    closing_store,
    drain,
    finish,
    interrupt_run,
    sql,
    url_of,
)

STEPS = 15
CUTS_PER_OP = 3
FRAMES_PER_MERGE = 8
"""How many pages the write-ahead log may hold before they are moved into the database."""


def add_one(n: int) -> int:
    return n + 1


CHAIN = Flow(
    "chain",
    [Node(add_one, name=f"add{k}", output=f"x{k + 1}").with_inputs(n=f"x{k}") for k in range(STEPS)],
    durability="strong",
)


class AckedStore(SqliteStore):
    """Notes how many operations had been asked of the disk when each put was acknowledged."""

    def __init__(self, path: Path, vfs: PowerCutVfs, synchronous: str) -> None:
        super().__init__(path, ManualClock(), synchronous=synchronous, vfs=vfs.name)
        self._ops = vfs.ops
        self.acks: list[tuple[int, int]] = []

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        verdicts = super().put_blocking(commits)
        assert verdicts == [Verdict.ACCEPTED] * len(commits)
        self.acks += [(len(self._ops), commit.sequence) for commit in commits]
        return verdicts


@contextmanager
def merging_often(is_wanted: bool) -> Iterator[None]:
    """Let SQLite move the write-ahead log into the database every few pages, in the middle of a run."""

    def hook(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(FRAMES_PER_MERGE)

    hooks = [hook] if is_wanted else []
    apsw.connection_hooks.extend(hooks)
    try:
        yield
    finally:
        for added in hooks:
            apsw.connection_hooks.remove(added)


def record_run(
    folder: Path, synchronous: str, *, merges_often: bool
) -> tuple[list[Op], list[tuple[int, int]]]:
    """Run the chain, and return what the disk was asked for and when each checkpoint was acknowledged."""
    vfs = PowerCutVfs(f"cut-{folder.name}")
    with merging_often(merges_often):
        store = AckedStore(folder / "runs.db", vfs, synchronous)
    with Host(Opened(store, None)) as host:
        result = host.run(CHAIN, {"x0": 0}, run_id="run")
    assert result[f"x{STEPS}"] == STEPS
    vfs.unregister()
    assert [sequence for _, sequence in store.acks] == list(range(1, STEPS + 2))
    return vfs.ops, store.acks


def recovered(folder: Path) -> int:
    """Return how far the run got according to what the power cut left, having checked all of it."""
    with Host(f"sqlite:///{folder}/runs.db", clock=ManualClock()) as host:
        try:
            state = host.state("run")
        except RunNotFound:
            assert host.runs() == [], "a run without its first record"
            return 0
        assert [record.sequence for record in host.history("run")] == list(range(1, state.sequence + 1))
        assert dict(state) == {f"x{k}": k for k in range(state.sequence)} | (
            {f"x{STEPS}": STEPS} if state.status is Status.COMPLETED else {}
        )
        return state.sequence


def check_goes_on(folder: Path) -> None:
    """Run it to its end from what is left."""
    clock = ManualClock()
    clock.advance(CHAIN.durability.lease_ttl)
    with Host(f"sqlite:///{folder}/runs.db", clock=clock) as host:
        result = host.run(CHAIN, {"x0": 0}, run_id="run")
        assert result.status is Status.COMPLETED
        assert result[f"x{STEPS}"] == STEPS


def losses(
    ops: Sequence[Op], acks: Sequence[tuple[int, int]], folder: Path, after: Callable[[int], None]
) -> list[str]:
    """Cut the power at every operation, several times, and say what was lost that had been acknowledged.

    Many cuts leave the same files, byte for byte, and from these the same is recovered: they are read once.
    """
    chance = random.Random(20300101)
    known: dict[frozenset[tuple[str, bytes]], int] = {}
    lost: list[str] = []
    for cut in range(len(ops) + 1):
        acked = max((sequence for done, sequence in acks if done <= cut), default=0)
        for _ in range(CUTS_PER_OP):
            left = survivors(ops[:cut], chance)
            files = frozenset(left.items())
            write_files(left, folder)
            try:
                sequence = known[files] if files in known else recovered(folder)
            except (EverstepError, AssertionError) as error:
                lost.append(f"cut {cut}: {error}")
                continue
            known[files] = sequence
            if sequence < acked:
                lost.append(f"cut {cut}: {acked} checkpoints were acknowledged, {sequence} are left")
        after(cut)
    return lost


@pytest.mark.parametrize("merges_often", [False, True], ids=["merged at the end", "merged often"])
def test_no_acknowledged_checkpoint_is_lost_in_a_power_cut(tmp_path: Path, merges_often: bool) -> None:
    ops, acks = record_run(tmp_path / "recorded", "FULL", merges_often=merges_often)
    assert sum(op.act is Act.SYNC for op in ops) > STEPS
    gone_on: list[int] = []

    def after(cut: int) -> None:
        if cut % 7 == 0:
            check_goes_on(tmp_path / "cut")
            gone_on.append(cut)

    assert losses(ops, acks, tmp_path / "cut", after) == []
    assert len(gone_on) > 5


def test_without_syncs_the_same_check_finds_lost_checkpoints(tmp_path: Path) -> None:
    ops, acks = record_run(tmp_path / "recorded", "OFF", merges_often=False)
    assert any("were acknowledged" in loss for loss in losses(ops, acks, tmp_path / "cut", lambda cut: None))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def disk() -> Iterator[MoodyVfs]:
    vfs = MoodyVfs()
    yield vfs
    vfs.unregister()


class TestDisk:
    def test_a_full_disk_stops_a_run_and_loses_nothing(self, path: Path, disk: MoodyVfs) -> None:
        clock = ManualClock(auto=True)  # a step that is done is held for a while
        with Host(Opened(SqliteStore(path, clock, vfs=disk.name), None), clock=clock) as host:
            for space in itertools.count():
                run_id = f"run-{space}"
                disk.space = space
                try:
                    result = host.run(FLOW, INPUTS, run_id=run_id)
                except StoreError as error:
                    assert "the disk that holds" in error.message
                    assert error.fix == "Free some space, and try again."
                else:
                    break
                finally:
                    disk.space = None
                is_known = run_id in [info.run_id for info in host.runs()]
                recorded = host.history(run_id) if is_known else []
                clock.advance(TTL)
                assert dict(host.run(FLOW, INPUTS, run_id=run_id)) == RESULT
                history = host.history(run_id)
                assert history[: len(recorded)] == recorded
                assert len(history) == 4
                assert host.state(run_id)["c"] == RESULT["c"]
            assert dict(result) == RESULT
            assert space >= 8

    def test_a_full_disk_at_admission_leaves_nothing_behind(self, path: Path, disk: MoodyVfs) -> None:
        clock = ManualClock()
        open_database(path, synchronous="FULL", create=True).close()
        for space in itertools.count():
            failing = SqliteStore(path, clock, vfs=disk.name)
            disk.space = space
            mine, other = Chain(f"mine-{space}", clock), Chain(f"other-{space}", clock, flow_hash="f" * 64)
            mine.flow_hash = f"{space:064}"
            try:
                failing.put_blocking([mine.admission(status=None)])
                break
            except StoreError:
                pass
            finally:
                disk.space = None
            with Host(Opened(SqliteStore(path, clock), None), clock=clock) as host:
                assert f"mine-{space}" not in [info.run_id for info in host.runs()]
            with closing_store(SqliteStore(path, clock)) as store:
                store.put_blocking([other.admission(b"theirs")])
            with closing_store(failing):
                assert records(failing, f"mine-{space}") == []
                failing.put_blocking([mine.admission(b"mine")])
                assert records(failing, f"mine-{space}") == [b"mine"]
            assert sql(path, "SELECT count(*) FROM blueprints WHERE flow_hash = ?", mine.flow_hash) == [(1,)]
        assert space >= 2

    # SQLite goes on after some failed writes, and Python then has no one to give the VFS's exception to.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_a_database_whose_making_ran_out_of_space_can_be_made_later(
        self, tmp_path: Path, disk: MoodyVfs
    ) -> None:
        disk.is_tidied = True
        refusals = 0
        for space in itertools.count():
            disk.space = space
            path = tmp_path / f"{space}.db"
            try:
                store = SqliteStore(path, ManualClock(), vfs=disk.name)
            except StoreError as error:
                assert "is full" in error.message
                refusals += 1
            else:
                had_room, disk.space = disk.space is not None, None
                drain(store.close())
                if had_room:
                    break
            assert finish(path) == RESULT
        assert refusals >= 3

    def test_a_read_only_file_is_named_and_left_alone(self, path: Path, disk: MoodyVfs) -> None:
        interrupt_run(path)
        before = path.read_bytes()
        disk.is_read_only = True
        with pytest.raises(StoreError, match=r"runs\.db.* Check the (path|permissions)") as caught:
            clock = ManualClock(auto=True)
            with Host(Opened(SqliteStore(path, clock, vfs=disk.name), None), clock=clock) as host:
                host.run(FLOW, INPUTS, run_id="run")
        assert caught.value.code == "store.failed"
        assert path.read_bytes() == before
        assert finish(path) == RESULT

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(StoreError, match=r"cannot use .*file/sub/runs\.db"):
            Host(url_of(tmp_path / "file" / "sub" / "runs.db"))


def records(store: SqliteStore, run_id: str) -> list[bytes]:
    return [record.body for record in drain(store.get(run_id))]
