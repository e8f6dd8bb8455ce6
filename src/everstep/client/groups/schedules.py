"""Calls that start runs again and again by the clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from everstep.client.looking.schedules import BackfillInfo, ScheduleInfo
from everstep.client.parts import Parts, check_limit
from everstep.client.views import RunState
from everstep.engine.query.text import query_of
from everstep.errors import BadRequest, RunErased, RunNotFound
from everstep.graph.author.flow import Flow
from everstep.model.acts import Act, act_of
from everstep.model.commits import SCHEDULE_FLOW, Labels, Tag, scheduling
from everstep.model.durations import Span, time_of
from everstep.model.enums import Status
from everstep.on_demand import on_demand
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.after_run import retaining_store
from everstep.runtime.inputs import Given
from everstep.runtime.operations.find import find
from everstep.runtime.operations.schedules.calendar import times
from everstep.runtime.operations.schedules.deciding import run_asked_for, spelled
from everstep.runtime.operations.schedules.flow import MOST_PENDING, SIGNAL, schedule_flow
from everstep.runtime.operations.schedules.spec import ScheduleSpec, checked, spec_of
from everstep.runtime.operations.schedules.state import Backfill, State, state_of
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.waits.inbox import Inboxes

if TYPE_CHECKING:
    from everstep.runtime.retention.erase import erase_at
else:
    erase_at = on_demand("everstep.runtime.retention.erase:erase_at")

SCHEDULE_OF = "schedule-of"
"""The tag of schedules, with the flow that they start."""
MOST_TIMES = 1000
MOST_FILLED = 10_000
"""Runs that one backfill starts at most."""


class ScheduleCalls:
    """Runs of a flow, started by the clock: workers that have the flow start them and drive them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services, self._runs = parts.services, parts.runs

    async def create(
        self,
        flow: Flow | str,
        schedule_id: str,
        *,
        cron: str | None = None,
        every: Span | None = None,
        zone: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        time_input: str | None = None,
        overlap: str | None = None,
        catch_up: Span | None = None,
        jitter: Span | None = None,
        priority: int | None = None,
        group: str | None = None,
        tags: Iterable[str] | Mapping[str, str] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> ScheduleInfo:
        """Start runs of a flow at the times of a cron expression in a zone, or after each span of time.

        `time_input` names the input that gets the scheduled time, in UTC. `overlap` says what becomes of a
        time at which a run before is not over: `skip` (the default), `queue`, `replace` or `allow`. A time
        that comes later than `catch_up`, by default an hour, as no worker was there, is missed. Starts are
        put off by up to `jitter`. The same call again changes nothing.
        """
        act = act_of(by, comment)
        name = flow if isinstance(flow, str) else flow.name
        given: dict[str, Any] = {"cron": cron, "every": every, "zone": zone, "inputs": inputs}
        given |= {
            "time_input": time_input,
            "overlap": overlap,
            "catch_up": catch_up,
            "jitter": jitter,
            "tags": tags,
        }

        async def create() -> RunRow:
            spec = checked(name, {**given, "priority": priority, "group": group})
            self._check_inputs(flow, spec)
            self._check_store()
            return await self._start(check_run_id(schedule_id), spec, act)

        row = await self._parts.audited("create_schedule", act, create(), schedule_id, name)
        return await self._told(row)

    async def _start(self, schedule_id: str, spec: ScheduleSpec, act: Act | None) -> RunRow:
        made = schedule_flow(self._services, self._runs, spec.flow)
        labels = Labels((Tag(SCHEDULE_OF, spec.flow),))
        given = Given({"spec": spec.told()}, act=act, labels=labels)
        try:
            return await self._runs.start(made, given, schedule_id)
        except RunErased:
            await retaining_store(self._services).forget([schedule_id])  # one that was deleted
            return await self._runs.start(made, given, schedule_id)

    def _check_inputs(self, flow: Flow | str, spec: ScheduleSpec) -> None:
        if isinstance(flow, Flow):
            flow.check_inputs(spec.inputs_at(self._services.time.now()), None)

    def _check_store(self) -> None:
        able = self._services.store.capabilities
        if not (able.has_children and able.has_inbox and able.retains):
            raise BadRequest(
                "this store keeps no schedules.", fix="Use SQLite, PostgreSQL, Redis, files or a bucket."
            )

    async def list(
        self, flow: str | None = None, *, limit: int = 100, before: str | None = None
    ) -> Sequence[ScheduleInfo]:
        """List schedules, the newest first; of one flow, or of all. `before` is the last one seen."""
        check_limit(limit)
        query = query_of("status != cancelled", (SCHEDULE_OF,), (), self._services.time.now())
        flow_id = None if flow is None else scheduling(flow)
        wanted = RunFilter(flow_id=flow_id, limit=limit, before=before)
        found = await find(self._services, self._runs.reader, wanted, query)
        return [await self._told(row) for row in found.rows]

    async def get(self, schedule_id: str) -> ScheduleInfo:
        """Return one schedule."""
        return await self._told(await self._row(schedule_id))

    async def times(self, schedule_id: str, count: int = 10) -> Sequence[datetime]:
        """Return the next times of a schedule, in UTC, whether or not it is paused."""
        check_limit(count)
        row = await self._row(schedule_id)
        state = await self._state(row)
        now = max(self._services.time.now(), state.after)
        calendar = spec_of(state.spec).calendar(state.created)
        return list(times(calendar, now, min(count, MOST_TIMES)))

    async def pause(
        self, schedule_id: str, *, by: str | None = None, comment: str | None = None
    ) -> ScheduleInfo:
        """Let a schedule start nothing until it is let go on. Its runs go on."""
        act = act_of(by, comment)

        async def pause() -> None:
            await self._runs.pauses.pause((await self._row(schedule_id)).run_id, act)

        await self._parts.audited("pause", act, pause(), schedule_id)
        return await self.get(schedule_id)

    async def unpause(
        self, schedule_id: str, *, by: str | None = None, comment: str | None = None
    ) -> ScheduleInfo:
        """Let a schedule go on. Times that passed meanwhile count as late: see `catch_up`."""
        act = act_of(by, comment)

        async def unpause() -> None:
            await self._runs.pauses.unpause((await self._row(schedule_id)).run_id, act)

        await self._parts.audited("unpause", act, unpause(), schedule_id)
        return await self.get(schedule_id)

    async def run_now(
        self, schedule_id: str, *, id: str | None = None, by: str | None = None, comment: str | None = None
    ) -> str:
        """Start a run of a schedule now, whatever its times; returns the id that the run will have.

        A worker starts it, once for the same `id`. It does not if the schedule is paused, until it goes on.
        """
        key = self._services.ids.new_id() if id is None else id

        async def run(row: RunRow) -> Any:
            return {"act": "run", "key": key}

        await self._send(schedule_id, "run_schedule", run, key, by, comment)
        return run_asked_for(schedule_id, key)

    async def change(
        self,
        schedule_id: str,
        *,
        cron: str | None = None,
        every: Span | None = None,
        zone: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        time_input: str | None = None,
        overlap: str | None = None,
        catch_up: Span | None = None,
        jitter: Span | None = None,
        priority: int | None = None,
        group: str | None = None,
        tags: Iterable[str] | Mapping[str, str] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> None:
        """Change what is said, and leave the rest of a schedule as it is; a worker does it.

        Times count from then on. What was asked of it before is done first.
        """
        given: dict[str, Any] = {"cron": cron, "every": every, "zone": zone, "inputs": inputs}
        given |= {
            "time_input": time_input,
            "overlap": overlap,
            "catch_up": catch_up,
            "jitter": jitter,
            "tags": tags,
        }
        given |= {"priority": priority, "group": group}
        said = {name: value for name, value in given.items() if value is not None}

        async def change(row: RunRow) -> Any:
            before = dict((await self._state(row)).spec)
            if "cron" in said or "every" in said:
                before |= {"cron": None, "every": None}
            if "every" in said:
                before["zone"] = "UTC"
            spec = checked(before.pop("flow"), before | said)
            return {"act": "change", "spec": spec.told()}

        await self._send(schedule_id, "change_schedule", change, None, by, comment)

    async def backfill(
        self,
        schedule_id: str,
        since: datetime | str,
        until: datetime | str,
        *,
        at_most: int = 100,
        at_once: int = 1,
        by: str | None = None,
        comment: str | None = None,
    ) -> None:
        """Run the times between two moments that have no run yet, the oldest first; a worker does it.

        At most so many, and so many at once; each run has the tag `backfill`. A time that was started before
        is left alone, so the same again does what is missing. One more backfill takes the place of the first.
        """

        async def backfill(row: RunRow) -> Any:
            now = self._services.time.now()
            first, last = time_of(since, now, "since"), time_of(until, now, "until")
            if not first < last <= now:
                raise BadRequest(
                    f"{spelled(first)} to {spelled(last)} is no time gone by.",
                    fix="Give `since` before `until`, up to now.",
                )
            for name, value, most in (("at_most", at_most, MOST_FILLED), ("at_once", at_once, MOST_PENDING)):
                if type(value) is not int or not 1 <= value <= most:
                    raise BadRequest(
                        f"{name} is {value!r:.40}.", fix=f"Give a whole number from 1 to {most:,}."
                    )
            before = first - datetime.resolution
            fill = Backfill(after=before.astimezone(UTC), until=last, left=at_most, at_once=at_once)
            return {"act": "backfill", "backfill": msgspec.to_builtins(fill)}

        await self._send(schedule_id, "backfill_schedule", backfill, None, by, comment)

    async def stop_backfill(
        self, schedule_id: str, *, by: str | None = None, comment: str | None = None
    ) -> None:
        """Start no more times gone by; those that were started go on."""

        async def stop(row: RunRow) -> Any:
            return {"act": "stop_backfill"}

        await self._send(schedule_id, "stop_backfill", stop, None, by, comment)

    async def delete(self, schedule_id: str, *, by: str | None = None, comment: str | None = None) -> None:
        """Remove a schedule for good; its id is free again. Runs that it has started go on.

        One that starts something at this moment is removed when asked again.
        """
        act = act_of(by, comment)

        async def delete() -> None:
            row = await self._row(schedule_id)
            if (await self._runs.cancel(row.run_id, act)).is_final:
                await erase_at(self._services, await self._runs.reader.row(row.run_id), act)

        await self._parts.audited("delete_schedule", act, delete(), schedule_id)

    async def _send(
        self,
        schedule_id: str,
        what: str,
        ask: Callable[[RunRow], Awaitable[Any]],
        key: str | None,
        by: str | None,
        comment: str | None,
    ) -> None:
        """Send a schedule what `ask` makes of its row; what that raises is a refusal of the act."""
        act = act_of(by, comment)

        async def send() -> None:
            row = await self._row(schedule_id)
            value = await ask(row)
            inboxes = Inboxes(self._services, self._runs.keeper)
            await inboxes.send(row.run_id, SIGNAL, value, signal_id=key, act=act)

        await self._parts.audited(what, act, send(), schedule_id)

    async def _row(self, schedule_id: str) -> RunRow:
        row = await self._runs.reader.row(check_run_id(schedule_id))
        if not row.flow_id.startswith(SCHEDULE_FLOW) or row.status is Status.CANCELLED:
            raise RunNotFound(f"run {schedule_id!r} is no schedule.", fix="List them: everstep schedule list")
        return row

    async def _state(self, row: RunRow) -> State:
        values = RunState(row.run_id, await self._runs.reader.look_back(row.run_id, None))
        if (told := values.get("state")) is not None:
            return state_of(told)
        return State(spec=values["spec"], created=row.created_at, after=row.created_at)

    async def _told(self, row: RunRow) -> ScheduleInfo:
        state = await self._state(row)
        spec, fill = spec_of(state.spec), state.backfill
        is_paused = row.is_paused
        following = None
        if not (is_paused or row.status.is_final):
            following = spec.calendar(state.created).after(state.after)
        return ScheduleInfo(
            schedule_id=row.run_id,
            flow=spec.flow,
            cron=spec.cron,
            every=spec.every,
            zone=spec.zone,
            overlap=str(spec.overlap),
            catch_up=spec.catch_up,
            jitter=spec.jitter,
            time_input=spec.time_input,
            status=str(row.status),
            paused=is_paused,
            next=following,
            last=state.last,
            last_run=state.last_run,
            started=state.started,
            skipped=state.skipped,
            missed=state.missed,
            pending=len(state.pending),
            refused=state.refused,
            said=state.said,
            backfill=None
            if fill is None
            else BackfillInfo(
                after=fill.after, until=fill.until, started=fill.started, there=fill.there, left=fill.left
            ),
        )
