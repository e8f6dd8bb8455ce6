"""Breakers that stand alike in all runs of a store: each is a run of its own that no worker drives.

Its chain has a step for each change, so every store can keep it and every change can be looked up. A
change claims it for that long.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from everstep.engine import breaking
from everstep.engine.breaking import Happened
from everstep.errors import BadRequest, LeaseConflict, LeaseLost, RunCancelled, RunNotFound
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.model.acts import Act
from everstep.model.breakers import Breaker
from everstep.model.durability import Durability
from everstep.model.enums import Status, Trigger
from everstep.model.leases import Lease
from everstep.model.ledger import BreakerAt, BreakerState, Guarded
from everstep.model.records import GUARDS, StepRecord
from everstep.ports.store import RunFilter, RunRow, Verdict
from everstep.runtime.at_rest import RestingRuns
from everstep.runtime.inputs import Given, draft_run
from everstep.runtime.services import Services
from everstep.runtime.workers.claim import give_back

FLOW_ID = "everstep.breaker"
PREFIX = "breaker."
"""How the ids of their runs begin."""
FRESH = 0.5
"""For how many seconds what was seen of one is believed."""
TRIAL = timedelta(minutes=1)
"""How long the one that may try has, before others may."""
_BRIEFLY = Durability(lease_ttl=timedelta(seconds=10))
"""The lease of a change is short; if its owner dies, others need not wait long."""
_PATIENCE = 200
_REST = 0.02
_CLOSED = BreakerAt()


def _review() -> None:
    """Stand for the person who looks after the breaker; it is never called."""


def is_stale(at: BreakerAt, now: datetime) -> bool:
    """True if the one that was to try has not come back."""
    return at.state is BreakerState.HALF_OPEN and now - (at.since or now) >= TRIAL


class SharedBreakers:
    """The shared breakers of a host's store."""

    def __init__(self, services: Services, runs: RestingRuns) -> None:
        self._runs = runs
        self._services = services
        self._seen: dict[str, tuple[float, int, BreakerAt]] = {}

    def seen(self, name: str) -> BreakerAt:
        """Return how a breaker stood when this process last looked."""
        found = self._seen.get(name)
        return found[2] if found is not None else _CLOSED

    async def look(self, name: str) -> BreakerAt:
        """Return how a breaker stands, or stood a moment ago."""
        now, found = self._services.clock.monotonic(), self._seen.get(name)
        if found is not None and 0 <= now - found[0] < FRESH:
            return found[2]
        row = await self._services.store.run(PREFIX + name)
        if row is None:
            return self._note(name, 0, _CLOSED)
        if found is not None and found[1] == row.checkpoints:
            return self._note(name, row.checkpoints, found[2])
        return self._note(name, row.checkpoints, await self._folded(name, row))

    async def change(self, name: str, rule: Breaker, happened: Happened) -> tuple[BreakerAt, BreakerAt]:
        """Let something happen to a breaker; returns how it stood before and how it stands now."""
        return await self._change(name, lambda at: breaking.after(rule, at, happened))

    async def half_open(self, name: str, now: datetime) -> bool:
        """Let one call try; false if another tries already, or it is closed."""

        def tried(at: BreakerAt) -> BreakerAt:
            may_try = at.state is BreakerState.OPEN or is_stale(at, now)
            return breaking.half_open(at, now) if may_try else at

        before, after = await self._change(name, tried)
        return after is not before

    async def reset(self, name: str, act: Act | None = None) -> BreakerAt:
        """Close a breaker that has ever changed."""
        if not isinstance(name, str) or await self._services.store.run(PREFIX + name) is None:
            known = ", ".join(await self.all()) or "none so far"
            raise RunNotFound(f"there is no shared breaker {name!r:.60}.", fix=f"There is {known}.")
        now = self._services.clock.now()

        def shut(at: BreakerAt) -> BreakerAt:
            anew = breaking.closed(at, now)
            return at if at.changed(since=now) == anew else anew

        return (await self._change(name, shut, act))[1]

    async def all(self) -> dict[str, BreakerAt]:
        """Return every shared breaker that ever changed, by name."""
        found: dict[str, BreakerAt] = {}
        for row in await self._services.store.list(RunFilter(flow_id=FLOW_ID, limit=1000)):
            name = row.run_id.removeprefix(PREFIX)
            found[name] = self._note(name, row.checkpoints, await self._folded(name, row))
        return dict(sorted(found.items()))

    def _note(self, name: str, sequence: int, at: BreakerAt) -> BreakerAt:
        self._seen[name] = (self._services.clock.monotonic(), sequence, at)
        return at

    async def _folded(self, name: str, row: RunRow) -> BreakerAt:
        if row.flow_id != FLOW_ID:
            raise BadRequest(
                f"the shared breaker {name!r} has no place: {row.run_id!r} is a run of {row.flow_id!r}.",
                fix="Rename the breaker, or the run.",
            )
        folded = await self._runs.reader.rehydrate(row, await self._runs.reader.plan(row))
        return folded.state.books.breakers.get(name, _CLOSED)

    async def _change(
        self, name: str, change: Callable[[BreakerAt], BreakerAt], act: Act | None = None
    ) -> tuple[BreakerAt, BreakerAt]:
        """Claim the run of a breaker, fold it, and write what a change makes of it."""
        run_id = PREFIX + name
        if await self._services.store.run(run_id) is None:
            await self._begin(run_id)
        while True:
            lease = await self._claim(run_id)
            try:
                return await self._write(name, lease, change, act)
            except LeaseLost:
                continue  # it was not quick enough, and nothing was written
            except RunCancelled:
                # That is about the breaker's run, not about the one that is driven; it begins again.
                await self._runs.end_cancelled(await self._runs.reader.row(run_id), lease)
            except BaseException:
                await give_back(self._services, self._runs.keeper, lease)
                raise

    async def _claim(self, run_id: str) -> Lease:
        for _ in range(_PATIENCE):
            try:
                return await self._runs.claim(run_id, _BRIEFLY, waits=False)
            except LeaseConflict:
                await self._services.system.pause(_REST)
        return await self._runs.claim(run_id, _BRIEFLY, waits=True)

    async def _write(
        self, name: str, lease: Lease, change: Callable[[BreakerAt], BreakerAt], act: Act | None
    ) -> tuple[BreakerAt, BreakerAt]:
        row = await self._runs.reader.row(PREFIX + name)
        before = await self._folded(name, row)
        after = change(before)
        if after == before:
            await give_back(self._services, self._runs.keeper, lease)
            self._note(name, row.checkpoints, before)
            return before, before
        journal, _ = await self._runs.journal_at_rest(row, lease)
        journal.act = act
        journal.add(StepRecord(path=GUARDS, guards=Guarded(breakers={name: after})), ())
        trigger = Trigger.CIRCUIT_BREAKER if after.state is BreakerState.OPEN else Trigger.HALT
        await journal.flush(trigger, status=Status.HALTED, changes_status=True)
        self._note(name, journal.head.sequence, after)
        return before, after

    async def _begin(self, run_id: str) -> None:
        """Make the run of a breaker; if another process was quicker, take that one."""
        flow = Flow(FLOW_ID, [Node(_review, name="review")], durability="strong")
        journal, _, _, drafts = await draft_run(self._services, flow, Given({}), run_id)
        if await journal.admit(drafts, self._services.ids.new_id()) is not Verdict.EXISTS:
            with suppress(LeaseLost, RunCancelled):  # the next owner sees to that
                await journal.flush(Trigger.HALT, status=Status.HALTED, changes_status=True)
