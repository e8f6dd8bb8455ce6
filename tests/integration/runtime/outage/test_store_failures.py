"""A store that fails: by default the run stops; with `best_effort` it goes on and is written later."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from everstep import END, Context, Durability, Flow, Host, node, route, wait
from everstep.engine.leases import conflict
from everstep.errors import BadRequest, LeaseLost, StoreError, StoreUnavailable
from everstep.model.leases import Lease
from everstep.ports.store import Commit, Verdict
from everstep.registry import Opened, open_store
from everstep.testing import ManualClock
from everstep.testing.killing import BlockingKillingStore, Killer


class Flaky(BlockingKillingStore):
    """A real store that can be out of reach."""

    fails_with: StoreError | None = None
    keeps_leases = False
    """True if no lease can be given back."""
    loses_replies = False
    """True if a lease is granted, and a caller that asked for it gets an error."""
    on_put: Callable[[Sequence[Commit]], None] | None = None

    def _reach(self) -> None:
        if self.fails_with is not None:
            raise self.fails_with

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        if self.on_put is not None:
            self.on_put(commits)
        self._reach()
        return await super().put(commits)

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        if self.on_put is not None:
            self.on_put(commits)
        self._reach()
        return super().put_blocking(commits)

    def renew_blocking(self, leases: Sequence[Lease], ttl: Any) -> list[Lease | Verdict]:
        self._reach()
        return super().renew_blocking(leases, ttl)

    async def release_lease(self, lease: Lease) -> None:
        if self.keeps_leases:
            raise FULL
        self._reach()
        await super().release_lease(lease)

    async def lease(self, run_id: str, *, void_epoch: int | None = None, **wanted: Any) -> Lease:
        row = await self.run(run_id)
        if self.fails_with is not None and row is not None:
            if row.lease is not None and row.lease.epoch != void_epoch:
                raise conflict(row.lease, 30.0)  # a store that may be read judges before it writes
            raise self.fails_with
        granted = await super().lease(run_id, void_epoch=void_epoch, **wanted)
        if self.loses_replies:
            raise StoreError("the reply was lost.")
        return granted

    async def fire(self, run_id: str) -> list[Any]:
        self._reach()
        return await super().fire(run_id)


class Place:
    """A store that can fail, the flow's world, and hosts on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(auto=True)
        self.ran: list[str] = []
        opened = open_store(f"sqlite:///{folder}/runs.db", self.clock)
        self.store = Flaky(opened.store, opened.store, Killer(None))  # type: ignore[arg-type]
        self.opened = Opened(self.store, opened.blobs, opened.url)

    def host(self) -> Host:
        return Host(self.opened, clock=self.clock, spool=self.folder / "spool")

    def flow(self, policy: str = "best_effort", *more: Any) -> Flow:
        place = self

        @node(output="a")
        def first(x: int) -> int:
            place.ran.append("first")
            return x + 1

        @node(output="b", effects="effectful", idempotency_key="auto")
        def second(a: int, ctx: Context) -> str:
            place.ran.append("second")
            if ctx.visit == 1 and place.breaks is not None:
                place.store.fails_with, place.breaks = place.breaks, None
            return f"{a}:{ctx.idempotency_key}"

        @node(output="c")
        def third(b: str) -> str:
            place.ran.append("third")
            if place.recovers:
                place.store.fails_with = None
            return b + "!"

        durability = Durability("strong", on_store_failure=policy)  # type: ignore[arg-type]
        return Flow("f", [first, second, third, *more], durability=durability)

    breaks: StoreError | None = None
    recovers = False


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


DOWN = StoreUnavailable("the line is cut.")
FULL = StoreError("the disk is full.")


@pytest.mark.parametrize("trouble", [DOWN, FULL])
def test_by_default_the_run_stops_and_nothing_unrecorded_is_skipped(
    place: Place, trouble: StoreError
) -> None:
    place.breaks = trouble
    flow = place.flow("required")
    with place.host() as host:
        with pytest.raises(StoreError):
            host.run(flow, {"x": 1}, run_id="A")
        place.store.fails_with = None
        result = host.run(flow, {"x": 1}, run_id="A")
        assert result.status == "completed"
        assert result.spooled == 0
    assert place.ran == ["first", "second", "second", "third"]


def test_a_store_that_refuses_is_named_each_time_and_not_another_driver(place: Place) -> None:
    place.breaks = FULL
    flow = place.flow("required")
    with place.host() as host:
        for _ in range(3):
            with pytest.raises(StoreError, match="the disk is full"):
                host.run(flow, {"x": 1}, run_id="A")
        for _ in range(2):
            with pytest.raises(StoreError, match="the disk is full"):
                host.resume("A", flow)
        place.store.fails_with = None
        before = place.clock.now()
        assert host.resume("A", flow).status == "completed"
        assert place.clock.now() - before < flow.durability.lease_ttl / 2


def test_a_claim_without_a_reply_keeps_no_other_here_from_the_run(place: Place) -> None:
    flow = place.flow("required")
    with place.host() as host:
        host.start(flow, {"x": 1}, run_id="A")
        place.store.loses_replies = True
        for _ in range(3):
            with pytest.raises(StoreError, match="the reply was lost"):
                host.resume("A", flow)
        place.store.loses_replies = False
        assert host.resume("A", flow).status == "completed"


def test_a_run_whose_copy_could_not_let_it_go_can_go_on_where_it_is(place: Place, tmp_path: Path) -> None:
    flow = place.flow("required")
    with place.host() as host:
        host.start(flow, {"x": 1}, run_id="A")
        place.store.keeps_leases = True
        assert "the disk is full" in host.transfer.copy(f"sqlite:///{tmp_path}/other.db", ["A"])[0].problem
        place.store.keeps_leases = False
        assert host.resume("A", flow).status == "completed"


@pytest.mark.parametrize("trouble", [DOWN, FULL])
def test_with_best_effort_it_goes_on_says_so_and_is_written_later(place: Place, trouble: StoreError) -> None:
    place.breaks = trouble
    flow = place.flow()
    with place.host() as host:
        result = host.run(flow, {"x": 1}, run_id="A")
        assert result.status == "completed"
        assert result.spooled == 2
        assert host.info("A").status == "running", "the store knows nothing of it yet"
        with pytest.raises(StoreError):
            host.storage.drain()
        place.store.fails_with = None
        (drained,) = host.storage.drain()
        assert (drained.run_id, drained.checkpoints, drained.fork) == ("A", 2, None)
        assert host.storage.drain() == []
        assert host.info("A").status == "completed"
        assert not host.info("A").is_driven
        assert host.run(flow, {"x": 1}, run_id="A")["c"] == result["c"]
        assert [s.path for c in host.history("A") for s in c.steps] == ["@inputs", "first", "second", "third"]
    assert place.ran == ["first", "second", "third"]


def test_when_the_store_is_back_before_the_end_everything_is_written_in_order(place: Place) -> None:
    place.breaks, place.recovers = DOWN, True
    with place.host() as host:
        result = host.run(place.flow(), {"x": 1}, run_id="A")
        assert (result.status, result.spooled) == ("completed", 0)
        assert [c.sequence for c in host.history("A")] == [1, 2, 3, 4]
        assert host.storage.drain() == []


def test_another_process_writes_what_was_left_and_a_resume_does_so_first(place: Place) -> None:
    place.breaks = DOWN
    flow = place.flow()
    with place.host() as host:
        result = host.run(flow, {"x": 1}, run_id="A")
    place.store.fails_with = None
    again = Place(place.folder)
    with again.host() as host:
        assert host.run(again.flow(), {"x": 1}, run_id="A")["c"] == result["c"]
        assert host.info("A").status == "completed"
    assert again.ran == []


def test_a_worker_writes_what_was_left(place: Place) -> None:
    place.breaks = DOWN
    with place.host() as host:
        host.run(place.flow(), {"x": 1}, run_id="A")
    place.store.fails_with = None
    again = Place(place.folder)
    with again.host() as host:
        host.work([again.flow()], until_idle=True)
        assert host.info("A").status == "completed"
    assert again.ran == []


def test_what_was_done_here_becomes_a_fork_if_another_went_on_without_it(place: Place) -> None:
    place.breaks = DOWN
    with place.host() as host:
        result = host.run(place.flow(), {"x": 1}, run_id="A")
    place.store.fails_with = None
    other = Place(place.folder)
    other.clock.advance(3600)
    with Host(other.opened, clock=other.clock, spool=other.folder / "elsewhere") as host:
        assert host.resume("A", other.flow()).status == "completed"
    assert other.ran == ["second", "third"]
    with Place(place.folder).host() as host:
        (drained,) = host.storage.drain()
        assert drained.fork is not None
        fork = host.info(drained.fork)
        assert (fork.status, fork.parent_run_id, fork.forked_at) == ("completed", "A", 2)
        assert host.state(drained.fork)["c"] == result["c"]
        assert host.storage.drain() == []


def test_a_drive_that_was_taken_over_meanwhile_is_told_of_the_fork(place: Place) -> None:
    place.breaks = DOWN
    other = Place(place.folder)
    goes_on = True

    @node(output="d")
    def fourth(c: str) -> str:
        nonlocal goes_on
        if goes_on:
            goes_on = False
            other.clock.advance(3600)
            with Host(other.opened, clock=other.clock, spool=other.folder / "elsewhere") as host:
                host.resume("A", other.flow("best_effort", fourth)).raise_for_status()
            place.store.fails_with = None
        return c

    with place.host() as host:
        with pytest.raises(LeaseLost) as lost:
            host.run(place.flow("best_effort", fourth), {"x": 1}, run_id="A").raise_for_status()
        fork = lost.value.details["fork"]
        assert isinstance(fork, str)
        assert host.info(fork).parent_run_id == "A"
        assert host.info("A").status == "completed"


def test_a_wait_opened_while_the_store_was_away_can_be_answered_once_it_is_written(place: Place) -> None:
    place.breaks = DOWN
    flow = place.flow("best_effort", wait.approval("ok", context="c"))
    with place.host() as host:
        halted = host.run(flow, {"x": 1}, run_id="A")
        assert halted.status == "halted"
        assert halted.spooled > 0
        place.store.fails_with = None
        host.storage.drain()
        (asked,) = host.waits("A")
        host.answer(asked.id, {"approved": True})
        assert host.resume("A", flow)["ok"].approved


def test_a_caller_that_stays_with_a_run_stays_while_the_store_is_away(place: Place) -> None:
    place.breaks = DOWN
    flow = place.flow("best_effort", wait.timer("nap", duration="1h", payload="c"))
    seen: list[int] = []

    def look(commits: Sequence[Commit]) -> None:
        seen.append(len(commits))
        if len(seen) == 12:
            place.store.fails_with = None

    place.store.on_put = look
    with place.host() as host:
        result = host.run(flow, {"x": 1}, run_id="A", wait=True)
        assert (result.status, result.spooled) == ("completed", 0)
        assert result["nap"].payload == result["c"]
    assert place.ran == ["first", "second", "third"]


def test_a_run_that_cannot_be_accepted_is_not_begun(place: Place) -> None:
    place.store.fails_with = DOWN
    with place.host() as host, pytest.raises(StoreUnavailable):
        host.run(place.flow(), {"x": 1}, run_id="A")
    assert place.ran == []


def test_a_commit_that_was_cut_off_in_the_spool_never_counted(place: Place) -> None:
    place.breaks = DOWN
    with place.host() as host:
        host.run(place.flow(), {"x": 1}, run_id="A")
    (file,) = (place.folder / "spool").rglob("*.spool")
    file.write_bytes(file.read_bytes()[:-5])
    place.store.fails_with = None
    again = Place(place.folder)
    again.clock.advance(3600)
    with again.host() as host:
        assert host.run(again.flow(), {"x": 1}, run_id="A").status == "completed"
    assert again.ran == ["third"]


def test_there_are_two_policies() -> None:
    with pytest.raises(BadRequest, match="best_effort"):
        Durability(on_store_failure="whatever")  # type: ignore[arg-type]


def test_a_locked_file_holds_up_a_run_that_can_do_without_it_only_briefly(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "runs.db"))

    @node(output="a")
    def locks(start: int) -> int:
        other.execute("BEGIN IMMEDIATE")
        return start

    @node(output=("x", "more"))
    def goes_round(a: int, x: int) -> tuple[int, bool]:
        return x + 1, x < 40

    @route(["goes_round", END])
    def again(more: bool) -> str:
        return "goes_round" if more else END

    durability = Durability("strong", on_store_failure="best_effort")
    flow = Flow("f", [locks, goes_round, again], entry="goes_round", durability=durability)
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        began = time.monotonic()
        result = host.run(flow, {"start": 1, "x": 1}, run_id="A")
        took = time.monotonic() - began
        assert result.spooled > 40
        other.execute("ROLLBACK")
        assert host.storage.drain()[0].checkpoints == result.spooled
    assert took < 60, "it waited for the lock in each of forty rounds"
