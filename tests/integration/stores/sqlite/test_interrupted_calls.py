"""Ctrl-C at any moment of a call to SQLite: no transaction stays open, and what was acknowledged is kept."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from everstep import Host
from everstep.model.enums import Status
from everstep.model.waits import SettledBy, WaitChange
from everstep.ports.store import Commit, StopRequest, Verdict
from everstep.runtime.system import SystemClock
from everstep.stores.sqlite.store import SqliteStore
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import TTL, Chain

T = TypeVar("T")


class Countdown:
    """When Ctrl-C comes: after so many statements of a client that is interrupted."""

    left = -1

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


COUNTDOWN = Countdown()


class InterruptibleCursor(apsw.Cursor):
    """A signal that arrives while SQLite works is raised when its call returns, as Python does it."""

    def execute(self, *arguments: Any, **named: Any) -> apsw.Cursor:
        cursor = super().execute(*arguments, **named)
        COUNTDOWN.tick()
        return cursor


class Interruptible(apsw.Connection):
    """A connection that is interrupted whichever of its cursors works."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.cursor_factory = InterruptibleCursor


@pytest.fixture(autouse=True)
def interruptible(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(apsw, "Connection", Interruptible)
    COUNTDOWN.left = -1
    yield
    COUNTDOWN.left = -1


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Call an async method that never waits, without a loop that Ctrl-C would stop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # it is what the method returned
    raise AssertionError("it waited")


@dataclass
class World:
    """A store with a run that goes on, one that waits and one without an owner."""

    store: SqliteStore
    clock: ManualClock
    running: Chain
    halted: Chain

    @classmethod
    def make(cls, path: Path) -> World:
        clock = ManualClock()
        store = SqliteStore(path, clock)
        running, halted = Chain("running", clock), Chain("halted", clock)
        for chain in (running, halted, Chain("accepted", clock, has_lease=False)):
            chain.head = chain.admission()
            assert store.put_blocking([chain.head]) == [Verdict.ACCEPTED]
        wait = halted.wait("w", due_at=clock.now())
        halted.head = halted.following(status=Status.HALTED, waits=(wait,))
        assert store.put_blocking([halted.head]) == [Verdict.ACCEPTED]
        return cls(store, clock, running, halted)

    def grow(self) -> Commit:
        self.running.head = commit = self.running.following()
        assert self.store.put_blocking([commit]) == [Verdict.ACCEPTED]
        return commit


def admit(world: World) -> None:
    world.store.put_blocking([Chain("new", world.clock).admission()])


def put_step(world: World) -> None:
    world.store.put_blocking([world.running.following()])


def put_last(world: World) -> None:
    world.store.put_blocking([world.running.final()])


def put_several(world: World) -> None:
    world.store.put_blocking([Chain("new", world.clock).admission(), world.running.following()])


def lease(world: World) -> None:
    finish(world.store.lease("accepted", owner="me", ttl=TTL, process=None))


def claim(world: World) -> None:
    finish(
        world.store.claim_due(
            flows=[("flow", "0" * 64)], new_owner=lambda: "me", ttl=TTL, process=None, limit=9
        )
    )


def change_wait(world: World) -> None:
    finish(world.store.change_wait("w", WaitChange(generation=2)))


def settle(world: World) -> None:
    finish(world.store.settle("w", by=SettledBy.ANSWER, answer=b"1"))


def erase(world: World) -> None:
    finish(world.store.erase("accepted", head=1, reason="asked for"))


def probe(world: World) -> None:
    finish(world.store.write_probe())


def signal(world: World) -> None:
    finish(world.store.request_stop("running", StopRequest.CANCEL))


ACTS: list[Callable[[World], None]] = [
    admit,
    put_step,
    put_last,
    put_several,
    lease,
    claim,
    change_wait,
    settle,
    erase,
    probe,
    signal,
]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_ctrl_c_at_any_statement_leaves_no_transaction_open(
    quick_folder: Path, act: Callable[[World], None]
) -> None:
    for moment in range(1, 60):
        path = quick_folder / f"{moment}.db"
        world = World.make(path)
        COUNTDOWN.left = moment
        try:
            act(world)
        except KeyboardInterrupt:
            is_over = False
        else:
            is_over = True
        COUNTDOWN.left = -1
        with closing(apsw.Connection(str(path))) as other:
            other.execute("BEGIN IMMEDIATE; ROLLBACK")  # the file is locked for no other
        assert not world.store._db.in_transaction
        finish(world.store.close())
        if is_over:
            break
    assert is_over and moment > 1


def test_a_step_acknowledged_after_ctrl_c_is_there_after_the_end_of_the_process(quick_folder: Path) -> None:
    for moment in range(1, 12):
        path = quick_folder / f"{moment}.db"
        world = World.make(path)
        COUNTDOWN.left = moment
        with suppress(KeyboardInterrupt):
            put_several(world)
        COUNTDOWN.left = -1
        records = finish(world.store.get("running"))
        if len(records) == 1:
            world.grow()
        # A client that opens the file sees what a process would leave behind that ends now.
        other = SqliteStore(path, world.clock)
        assert len(finish(other.get("running"))) == 2
        finish(other.close())
        finish(world.store.close())


def test_a_transaction_that_two_interrupts_left_open_is_ended_by_the_next_call(quick_folder: Path) -> None:
    world = World.make(quick_folder / "runs.db")
    apsw.Connection.execute(world.store._db, "BEGIN IMMEDIATE")
    world.grow()
    lease(world)
    assert not world.store._db.in_transaction
    finish(world.store.close())


def test_ctrl_c_while_room_is_made_in_the_log_locks_no_other_out(quick_folder: Path) -> None:
    for moment in range(1, 5):
        path = quick_folder / f"{moment}.db"
        world = World.make(path)
        COUNTDOWN.left = 17 + moment
        with pytest.raises(KeyboardInterrupt):
            for _ in range(40):
                world.grow()
        COUNTDOWN.left = -1
        assert not world.store._db.in_transaction
        finish(world.store.close())


def test_ctrl_c_while_the_schema_is_made_leaves_nothing_half_made(quick_folder: Path) -> None:
    for moment in range(1, 40):
        path = quick_folder / f"{moment}.db"
        COUNTDOWN.left = moment
        try:
            finish(SqliteStore(path, SystemClock()).close())
        except KeyboardInterrupt:
            pass
        else:
            break
        COUNTDOWN.left = -1
        with Host(f"sqlite:///{path}") as host:
            assert host.runs() == []
    assert moment > 5
