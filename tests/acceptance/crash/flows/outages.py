"""Runs whose store is out of reach in the middle, or to the end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from everstep import Context, Durability, Flow, Host, node, wait
from everstep.errors import StoreUnavailable
from everstep.model.enums import Mode
from everstep.model.leases import Lease
from everstep.ports.store import BlockingStore, CheckpointStore, Commit, Verdict
from everstep.registry import Opened
from everstep.results import RunResult
from everstep.testing.killing import BlockingKillingStore, Killer
from tests.acceptance.crash.scenarios import RUN, Bodies, Facts, Parts, Scenario, clock_of

BEST_EFFORT = Durability(Mode.STRONG, on_store_failure="best_effort")


class Line:
    """The way to a store, which a file cuts off."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "cut"

    def cut(self) -> None:
        self._file.touch()

    def restore(self) -> None:
        self._file.unlink(missing_ok=True)

    def check(self) -> None:
        if self._file.exists():
            raise StoreUnavailable("the line is cut.")

    def to(self, opened: Opened) -> Opened:
        """Return a store at the other end of this line."""
        assert isinstance(opened.store, BlockingStore)
        return Opened(_Distant(opened.store, opened.store, self), opened.blobs, opened.url)


class _Distant(BlockingKillingStore):
    """A real store that can be out of reach."""

    def __init__(self, store: CheckpointStore, blocking: BlockingStore, line: Line) -> None:
        super().__init__(store, blocking, Killer())
        self._line = line

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        self._line.check()
        return await self._store.put(commits)

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        self._line.check()
        return self._blocking.put_blocking(commits)

    def renew_blocking(self, leases: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        self._line.check()
        return self._blocking.renew_blocking(leases, ttl)

    async def release_lease(self, lease: Lease) -> None:
        self._line.check()
        await self._store.release_lease(lease)

    async def fire(self, run_id: str) -> list[Any]:
        self._line.check()
        return await self._store.fire(run_id)


def cut_off(*, recovers: bool = True, waits: bool = False) -> Any:
    """Return the parts of a flow whose second node loses the store, and whose fourth finds it again."""

    def parts(body: Bodies) -> Parts:
        line = Line(body.folder)

        @node(output="a")
        def first(text: list[str]):
            with body("first"):
                return [*text, "first"]

        @node(output="b")
        def second(a: list[str]):
            with body("second"):
                line.cut()
                return [*a, "second"]

        @node(output="c", effects="effectful", idempotency_key="auto")
        def third(b: list[str], ctx: Context):
            with body("third", ctx):
                return [*b, "third"]

        @node(output="d")
        def fourth(c: list[str]):
            with body("fourth"):
                if recovers:
                    line.restore()
                return [*c, "fourth"]

        @node(output="e")
        def fifth(d: list[str]):
            with body("fifth"):
                return [*d, "fifth"]

        more = [wait.approval("ok", context="e")] if waits else []
        return [first, second, third, fourth, fifth, *more]

    return parts


def drained(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Run until the end, fix the line, bring what waits to the store, and answer what is asked."""
    result = host.run(flow, inputs, run_id=RUN)
    while result.spooled or result.status == "halted":
        Line(clock_of(host).folder).restore()
        host.storage.drain()
        for asked in host.waits(RUN):
            host.answer(asked.id, {"approved": True})
        result = host.resume(RUN, flow)
    return result


def asked_while_cut_off(body: Bodies) -> Parts:
    """A wait that opens while the store cannot be reached, and an effect behind it."""
    line = Line(body.folder)

    @node(output="a")
    def first(text: list[str]):
        with body("first"):
            line.cut()
            return [*text, "first"]

    ok = wait.approval("ok", context="a")

    @node(output="sent", effects="effectful", idempotency_key="auto")
    def send(a: list[str], ok: Any, ctx: Context):
        with body("send", ctx):
            return [*a, ok.approver]

    return [first, ok, send]


def answered_at_once(host: Host, flow: Flow, inputs: Facts) -> RunResult:
    """Run until it waits, find the line again, and answer: that brings to the store what waits here."""
    result = host.run(flow, inputs, run_id=RUN)
    while result.spooled or result.status == "halted":
        asked = host.waits(RUN)
        assert [one.id for one in result.waits] == [one.id for one in asked]
        assert asked or result.status != "halted"
        Line(clock_of(host).folder).restore()
        for one in asked:
            host.answer(one.id, {"approved": True}, by="ada")
        result = host.resume(RUN, flow)
    return result


TEXT: Facts = {"text": ["a"]}
CUT_OFF = {
    "cut-off": Scenario(cut_off(), TEXT, BEST_EFFORT, program=drained),
    "asked-while-cut-off": Scenario(asked_while_cut_off, TEXT, BEST_EFFORT, program=answered_at_once),
}
MORE_CUT_OFF = {
    "cut-off-to-the-end": Scenario(cut_off(recovers=False), TEXT, BEST_EFFORT, program=drained),
    "cut-off-while-it-waits": Scenario(
        cut_off(recovers=False, waits=True), TEXT, BEST_EFFORT, program=drained
    ),
}
