"""The flow whose runs are schedules: it rests until a time is due or a signal comes, and starts runs.

What is due is recorded before anything is started, and the id of a run follows from its scheduled time. So
who takes over starts the same runs, and each once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from everstep.errors import CheckpointPinned, EverstepError, RunErased, RunNotFound, StoreError
from everstep.graph.author.context import AsyncContext
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import END, ifelse, node
from everstep.graph.author.wait_options import Wait
from everstep.graph.author.wiring import chain
from everstep.graph.tells import Occasion, Tell
from everstep.model.commits import OnParentCancel, scheduling
from everstep.model.enums import Status
from everstep.model.shapes import understood
from everstep.model.waits import SIGNAL_KIND
from everstep.on_demand import on_demand
from everstep.runtime.drive.children.admitting import admit
from everstep.runtime.drive.children.orders import ChildOrder
from everstep.runtime.operations.bulk.flow import PATIENCE, STEPS, again_if_store_is_away
from everstep.runtime.operations.schedules.deciding import (
    AT_ONCE,
    Due,
    due,
    pause_after,
    run_asked_for,
    run_for,
)
from everstep.runtime.operations.schedules.spec import (
    BACKFILL_TAG,
    SCHEDULE_TAG,
    Overlap,
    ScheduleSpec,
    checked,
    spec_of,
)
from everstep.runtime.operations.schedules.state import Backfill, State, state_of
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.runtime.retention.trim import clean_up
else:
    clean_up = on_demand("everstep.runtime.retention.trim:clean_up")

log = logging.getLogger("everstep")

SIGNAL = "schedule"
"""What schedules are told by."""
STATE, SPEC = "state", "spec"
MOST_PENDING = 1000
KEPT = 1000
"""Checkpoints that a schedule keeps of what it did: those of the last 250 times or more."""
TIDIES = 100
"""Wakings between two times at which it removes those before them."""


_TOLD = (Occasion.FAILED, Occasion.ABANDONED, Occasion.NEEDS_REPAIR, Occasion.MISSED_SCHEDULE)


class _Missed(Wait):
    """A wait whose checkpoint tells that times were missed."""

    tells: ClassVar[str] = Occasion.MISSED_SCHEDULE


def schedule_flow(
    services: Services, runs: Runs, name: str, flows: Sequence[Flow] = (), *, tells: Iterable[Tell] = ()
) -> Flow:
    """Return the flow of schedules of a flow, given in the versions that this process has.

    `tells` says who is told of one that is about to be made.
    """

    @node(output="seen", effects="read_only", retry=PATIENCE)
    async def look(
        spec: dict[str, Any], ctx: AsyncContext, state: dict[str, Any] | None = None, said: Any = None
    ) -> Any:
        with again_if_store_is_away():
            if state is None:
                created = (await runs.reader.row(ctx.run_id)).created_at
                state = State(spec=spec, created=created, after=created).told()
            return _seen(state_of(state), said, ctx.run_id, services.time.now())

    @node(output=STATE, effects="effectful", idempotency_key="auto", retry=PATIENCE)
    async def begin(seen: dict[str, Any], ctx: AsyncContext) -> Any:
        with again_if_store_is_away():
            starts = _Starts(services, runs, flows[-1], ctx.run_id, seen)
            done = await starts.all()
            if done.wakings % TIDIES == 0:
                await _tidy(services, runs, ctx.run_id)
            return done.told()

    @ifelse(when_true="rest", when_false=END)
    def goes_on(state: dict[str, Any]) -> bool:
        return state["wake"] is not None  # else no time will ever come

    @node(output="said", halts=True)
    def rest(state: dict[str, Any], seen: dict[str, Any]) -> Wait:
        made = _Missed if seen["missed"] else Wait
        return made(kind=SIGNAL_KIND, signal=SIGNAL, until=state["wake"], default=None)

    parts = [chain(look, begin, goes_on), chain(rest, look)]
    return Flow(scheduling(name), parts, entry="look", max_steps=STEPS, max_visits=STEPS, notify=tuple(tells))


def tells_of_schedule(tells: Iterable[Tell], spec: ScheduleSpec) -> list[Tell]:
    """Return who is told of a schedule: those who are told of its runs, as far as it can be in trouble."""
    found = []
    for tell in tells:
        if tell.concerns(spec.flow, spec.tags) and (on := [one for one in tell.on if one in _TOLD]):
            found.append(Tell(tell.notifier, on=on))
    return found


async def _tidy(services: Services, runs: Runs, schedule_id: str) -> None:
    """Remove what a schedule did long ago from its chain, or it would grow for ever."""
    try:
        await clean_up(services.store, runs.reader, schedule_id, KEPT)
    except StoreError:
        raise  # that is done again
    except CheckpointPinned:
        return  # by a person, or a fork that was made meanwhile
    except EverstepError as error:
        log.warning("schedule %r keeps what it did long ago: %s", schedule_id, error)


def _seen(state: State, said: Any, schedule_id: str, now: datetime) -> dict[str, Any]:
    """Say what is to be done now, as it is recorded before it is done."""
    state.wakings += 1
    asked = None
    if isinstance(said, Mapping):
        try:
            asked = _take(state, said)
        except EverstepError as error:
            state.refused += 1
            state.said = str(error)
    found = _due(state, schedule_id, now)
    is_behind = found.next is not None and found.next <= now
    if state.change is not None and not is_behind:  # what was due before it is started as it was said before
        if found.start or asked is not None:
            found = msgspec.structs.replace(found, wake=now)
        else:
            state.spec, state.change, state.after = state.change, None, now
            found = msgspec.structs.replace(_due(state, schedule_id, now), missed=found.missed)
    state.missed += found.missed
    state.after, state.wake = found.after, found.wake
    times = [at.isoformat() for at in found.start]
    told = {"state": state.told(), "times": times, "asked": asked, "missed": found.missed}
    return {**told, "now": now.isoformat()}


def _due(state: State, schedule_id: str, now: datetime) -> Due:
    spec = spec_of(state.spec)
    return due(spec, spec.calendar(state.created), schedule_id, state.after, now)


def _take(state: State, said: Mapping[str, Any]) -> str | None:
    """Do what a signal says; returns what a run is asked for by, if one is."""
    match said.get("act"):
        case "change":
            given = dict(said["spec"])
            state.change = checked(given.pop("flow"), given).told()
        case "run":
            return str(said["key"])
        case "backfill":
            state.backfill = msgspec.convert(said["backfill"], understood(Backfill))
            state.poll = 0.0
        case "stop_backfill":
            state.backfill = None
    return None


class _Starts:
    """The runs that are started in one go."""

    def __init__(
        self, services: Services, runs: Runs, flow: Flow, schedule_id: str, seen: Mapping[str, Any]
    ) -> None:
        self._services, self._runs, self._flow, self._id = services, runs, flow, schedule_id
        self._state = state_of(seen["state"])
        self._spec = spec_of(self._state.spec)
        self._times = [datetime.fromisoformat(one) for one in seen["times"]]
        self._asked, self._now = seen["asked"], datetime.fromisoformat(seen["now"])

    async def all(self) -> State:
        """Start what is due, and return how far the schedule has come."""
        state = self._state
        state.running = await self._under_way(state.running)
        if self._asked is not None:
            await self._begin(run_asked_for(self._id, self._asked), self._now)
        for at in self._times:
            await self._at(at)
        while state.pending and not state.running:
            await self._begin(run_for(self._id, at := state.pending.pop(0)), at)
        if state.backfill is not None:
            await self._fill(state.backfill)
        if state.pending or state.backfill is not None:
            state.poll, pause = pause_after(state.poll)
            again = self._services.time.now() + pause
            state.wake = again if state.wake is None else min(state.wake, again)
        return state

    async def _at(self, at: datetime) -> None:
        """Start the run of a time, unless those before it have it otherwise."""
        state, run_id, overlap = self._state, run_for(self._id, at), self._spec.overlap
        if overlap is not Overlap.ALLOW and not await self._is_there(run_id):
            if overlap is Overlap.SKIP and state.running:
                state.skipped += 1
                return
            if overlap is Overlap.QUEUE and (state.running or state.pending):
                if len(state.pending) < MOST_PENDING:
                    state.pending.append(at)
                    state.poll = 0.0
                else:
                    state.skipped += 1
                return
            if overlap is Overlap.REPLACE:
                for other in state.running:
                    with suppress(RunErased, RunNotFound):  # meanwhile
                        await self._runs.cancel(other)
                state.running = []
        await self._begin(run_id, at)

    async def _begin(self, run_id: str, at: datetime, *more: str) -> bool:
        """Start a run unless it is there; says whether it may be under way."""
        state, spec = self._state, self._spec
        tags = {**spec.tags, SCHEDULE_TAG: self._id, **dict.fromkeys(more, "")}
        order = ChildOrder(
            run_id,
            self._flow.name,
            self._id,
            "begin",
            1,
            spec.inputs_at(at),
            OnParentCancel.LEAVE,
            spec.priority,
            spec.group,
            tuple(tags.items()),
        )
        try:
            order.given.check(self._flow)
            await admit(self._services, self._flow, order)
        except StoreError:
            raise  # that is done again
        except EverstepError as error:
            state.refused += 1
            state.said = str(error)
            return False
        state.started += 1
        if not more:
            state.last, state.last_run = at, run_id
            if spec.overlap is not Overlap.ALLOW:
                state.running.append(run_id)
        return True

    async def _fill(self, fill: Backfill) -> None:
        """Start runs of times gone by, the oldest first, as many as there may be at once."""
        fill.running = await self._under_way(fill.running)
        calendar, begun = self._spec.calendar(self._state.created), 0
        while fill.left > 0 and len(fill.running) < fill.at_once and begun < AT_ONCE:
            at = calendar.after(fill.after)
            if at is None or at > fill.until:
                fill.left = 0
                break
            run_id = run_for(self._id, at)
            if await self._is_there(run_id):
                fill.there += 1
            elif await self._begin(run_id, at, BACKFILL_TAG):
                fill.running.append(run_id)
                fill.started += 1
                self._state.poll = 0.0
            fill.after, fill.left, begun = at, fill.left - 1, begun + 1
        if fill.left <= 0 and not fill.running:
            self._state.backfill = None

    async def _is_there(self, run_id: str) -> bool:
        return await self._services.store.run(run_id) is not None

    async def _under_way(self, run_ids: Sequence[str]) -> list[str]:
        """Return those that are not over."""
        rows = [await self._services.store.run(run_id) for run_id in run_ids]
        return [row.run_id for row in rows if row is not None and row.status in _UNDER_WAY]


_UNDER_WAY = (Status.RUNNING, Status.HALTED)
