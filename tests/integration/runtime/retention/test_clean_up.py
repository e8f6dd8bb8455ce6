"""Removing old checkpoints: what is left can be read, resumed, forked and verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from everstep import END, Flow, Host, Status, ifelse, node
from everstep.errors import BadRequest, InputsDiffer, RunNotFound, StateCorrupted
from everstep.ports.store import Commit, StoredRecord, Verdict
from everstep.registry import Opened
from everstep.runtime.system import SystemClock
from everstep.stores.sqlite.store import SqliteStore
from tests.integration.noise import noise

WIDE = 9_000
LAST = 30


@node(output=("page", "round"))
def write_page(round: int, salt: str) -> tuple[str, int]:
    return f"{round}{salt}" + noise((round, salt), WIDE), round + 1


@ifelse(when_true="write_page", when_false=END)
def again(round: int) -> bool:
    return round < LAST


BOOK = Flow("book", [write_page, again], entry="write_page", durability="strong")
INPUTS = {"round": 0, "salt": "ab"}


@pytest.fixture(params=["memory", "sqlite"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db?synchronous=off"
    with Host(url) as opened:
        opened.run(BOOK, INPUTS, run_id="run")
        yield opened


def keyframes(host: Host, run_id: str = "run") -> list[int]:
    return [c.sequence for c in host.checkpoints(run_id) if c.keyframe]


class TestCleanUp:
    def test_what_lies_before_the_keyframe_that_covers_the_kept_ones_is_removed(self, host: Host) -> None:
        *_, older, newest = keyframes(host)
        head = host.info("run").checkpoints
        keep = head - newest + 2
        assert host.retention.clean_up("run", keep=keep) == older - 1
        assert host.info("run").trimmed_before == older
        assert host.retention.clean_up("run", keep=keep) == 0
        assert host.retention.clean_up("run", keep=head - newest + 1) == newest - older
        listed = host.checkpoints("run")
        assert [c.sequence for c in listed] == list(range(1, head + 1))
        assert [c.is_trimmed for c in listed] == [c.sequence < newest for c in listed]
        assert host.info("run").checkpoints == head

    def test_what_is_kept_can_be_looked_at_and_forked(self, host: Host) -> None:
        before = host.history("run")
        states = {c.sequence: dict(host.state("run", c.sequence)) for c in before}
        removed = host.retention.clean_up("run")
        assert 0 < removed <= len(before) - 5
        assert host.history("run") == before[removed:]
        for at in range(removed + 1, len(before) + 1):
            assert dict(host.state("run", at)) == states[at]
        result = host.resume(host.fork("run", at=removed + 1).run_id, BOOK)
        assert dict(result) == {name: v for name, v in states[len(before)].items() if name != "salt"}

    def test_what_was_removed_is_refused_with_the_oldest_one_that_is_there(self, host: Host) -> None:
        ids = [c.checkpoint_id for c in host.checkpoints("run")]
        oldest = host.retention.clean_up("run") + 1
        for at in (1, oldest - 1, ids[0]):
            for ask in (host.state, host.fork):
                with pytest.raises(RunNotFound, match=f"oldest one still there is {oldest}") as caught:
                    ask("run", at=at)
                assert caught.value.details["oldest"] == oldest
        assert host.state("run", ids[oldest - 1]).sequence == oldest

    def test_a_short_run_stays_whole(self, host: Host) -> None:
        brief = host.fork("run", at=1, inputs={"round": LAST - 1}).run_id
        host.resume(brief, BOOK)
        assert host.retention.clean_up(brief, keep=1) == 0
        assert not any(c.is_trimmed for c in host.checkpoints(brief))

    def test_keeping_more_than_there_is_removes_nothing(self, host: Host) -> None:
        assert host.retention.clean_up("run", keep=10_000) == 0

    @pytest.mark.parametrize("keep", [0, -1, True, 1.5])
    def test_something_must_be_kept(self, host: Host, keep: int) -> None:
        with pytest.raises(BadRequest, match="keep"):
            host.retention.clean_up("run", keep=keep)

    def test_an_unknown_run_cannot_be_cleaned_up(self, host: Host) -> None:
        with pytest.raises(RunNotFound):
            host.retention.clean_up("stranger")

    def test_what_a_fork_needs_is_kept(self, host: Host) -> None:
        first, second, *_ = keyframes(host)
        fork = host.fork("run", at=second + 1).run_id
        early = host.fork("run", at=second - 1).run_id
        assert host.retention.clean_up("run", keep=1) == first - 1
        for run_id in (fork, early):
            assert dict(host.resume(run_id, BOOK)) == dict(host.run(BOOK, run_id="run"))

    def test_a_fork_before_the_first_keyframe_keeps_everything(self, host: Host) -> None:
        host.fork("run", at=1)
        assert host.retention.clean_up("run", keep=1) == 0

    def test_a_fork_is_cleaned_up_apart_from_its_parent(self, host: Host) -> None:
        fork = host.fork("run", at=3).run_id
        host.resume(fork, BOOK)
        before = host.history(fork)
        removed = host.retention.clean_up(fork, keep=1)
        assert removed == keyframes(host, fork)[-1] - 4
        assert host.history(fork) == [*before[:3], *before[3 + removed :]]
        assert not any(c.is_trimmed for c in host.checkpoints("run"))
        assert dict(host.state(fork, 3)) == dict(host.state("run", 3))
        with pytest.raises(RunNotFound, match="oldest"):
            host.state(fork, 4)
        assert host.state(fork)["round"] == LAST

    def test_a_fork_with_a_gap_is_recalled_compared_and_replayed(self, host: Host) -> None:
        fork = host.fork("run", at=3, inputs={"salt": "cd"}).run_id
        host.resume(fork, BOOK)
        ends = [(c.sequence, s) for c in host.history(fork) for s in c.steps if s.path == "write_page"]
        host.retention.clean_up(fork, keep=1)
        oldest = host.info(fork).trimmed_before
        first, second, *_ = [s for sequence, s in ends if sequence >= oldest]
        versions = [(w.name, w.version) for w in (*ends[0][1].writes, *first.writes)]
        found = host.debug.recall(fork, versions)
        assert [v for (name, _), v in found.items() if name == "round"] == [1, first.visit]
        assert host.debug.replay(fork, f"write_page@{second.visit}", BOOK).is_equal
        part = host.debug.bisect("run", fork)
        assert part is not None and part.visit == first.visit

    def test_inputs_are_still_compared_as_far_as_they_are_known(self, host: Host) -> None:
        host.retention.clean_up("run")
        assert host.run(BOOK, INPUTS, run_id="run").status is Status.COMPLETED
        with pytest.raises(InputsDiffer, match="salt"):
            host.run(BOOK, {**INPUTS, "salt": "zz"}, run_id="run")

    def test_a_run_that_failed_is_resumed_after_a_clean_up(self, host: Host) -> None:
        is_broken = [True]

        @node(output="end")
        def close(page: str, round: int) -> int:
            if is_broken[0] and round == LAST:
                raise RuntimeError("broken")
            return round

        flow = Flow("closing", [write_page, again, close], entry="write_page", durability="strong")
        assert host.run(flow, INPUTS, run_id="failing").status is Status.FAILED
        assert host.retention.clean_up("failing", keep=1) > 0
        is_broken[0] = False
        assert host.resume("failing", flow)["end"] == LAST


class TestVerifying:
    def test_the_chain_is_verified_across_what_was_removed(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.db"
        with Host(f"sqlite:///{path}") as host:
            host.run(BOOK, INPUTS, run_id="run")
            removed = host.retention.clean_up("run")
            assert host.history("run")[0].sequence == removed + 1
        database = apsw.Connection(str(path))
        database.execute(
            "UPDATE checkpoints SET body = zeroblob(32) WHERE position & 0xffffffff = ?", (removed,)
        )
        database.close()
        with Host(f"sqlite:///{path}") as host, pytest.raises(StateCorrupted):
            host.history("run")

    def test_nothing_is_removed_if_what_would_be_left_cannot_be_read(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.db"
        with Host(f"sqlite:///{path}") as host:
            host.run(BOOK, INPUTS, run_id="run")
            before = keyframes(host)[-1]
        database = apsw.Connection(str(path))
        database.execute(
            "UPDATE checkpoints SET body = zeroblob(999) WHERE position & 0xffffffff = ?", (before,)
        )
        database.close()
        with Host(f"sqlite:///{path}") as host:
            with pytest.raises(StateCorrupted):
                host.retention.clean_up("run", keep=1)
            assert host.info("run").trimmed_before == 0


class CountingStore(SqliteStore):
    """Counts what is read and written."""

    records = written = 0

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        found = await super().get(run_id, first=first, last=last)
        self.records += len(found)
        return found

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        found = await super().tail(run_id, at=at)
        self.records += len(found)
        return found

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        self.written += sum(len(commit.body) for commit in commits)
        return super().put_blocking(commits)


class TestCost:
    @pytest.mark.parametrize("steps", [100, 2000])
    def test_a_fork_costs_the_same_however_long_the_run_is(self, tmp_path: Path, steps: int) -> None:
        @node(output="n")
        def step(n: int) -> int:
            return n + 1

        @ifelse(when_true="step", when_false=END)
        def more(n: int) -> bool:
            return n < steps // 2

        flow = Flow("loop", [step, more], entry="step", durability="strong")
        store = CountingStore(tmp_path / "runs.db", SystemClock(), synchronous="OFF")
        with Host(Opened(store, None)) as host:
            host.run(flow, {"n": 0}, run_id="run")
            head = host.info("run").checkpoints
            assert head == steps + 1
            statements = traced(store)
            for at in (None, head // 2, 2):
                store.records = store.written = 0
                statements.clear()
                host.fork("run", at=at, state={"n": 1})
                assert store.records == 2
                assert store.written < 512
                assert len(statements) < 20

    def test_a_step_is_put_with_one_statement(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "runs.db", SystemClock(), synchronous="OFF")
        with Host(Opened(store, None)) as host:
            host.run(BOOK, INPUTS, run_id="run")
            fork = host.fork("run", at=1).run_id
            statements = traced(store)
            host.resume(fork, BOOK)
            steps = host.info(fork).checkpoints - 2
        puts = [k for k, sql in enumerate(statements) if sql.startswith("INSERT INTO checkpoints")]
        assert len(puts) == steps
        # The last one also changes the status, in a transaction.
        assert puts[-2] - puts[0] == steps - 2


def traced(store: SqliteStore) -> list[str]:
    """Return a list that gets every statement from now on."""
    statements: list[str] = []

    def note(cursor: Any, sql: str, bindings: Any) -> bool:
        statements.append(sql)
        return True

    store._db.exec_trace = note
    return statements
