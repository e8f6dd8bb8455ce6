"""Calls that start runs again and again by the clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from everstep.client.looking.schedules import AppliedSchedule, BackfillInfo, ScheduleInfo
from everstep.client.parts import Parts, check_limit
from everstep.client.views import RunState
from everstep.engine.query.text import query_of
from everstep.errors import BadRequest, RunErased, RunNotFound
from everstep.graph.author.flow import Flow
from everstep.graph.tells import Tell
from everstep.model.acts import Act, act_of
from everstep.model.commits import NO_LABELS, SCHEDULE_FLOW, Labels, Tag, scheduling
from everstep.model.durations import Span, time_of
from everstep.model.enums import Status
from everstep.on_demand import on_demand
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.after_run import retaining_store
from everstep.runtime.inputs import Given
from everstep.runtime.operations.find import find
from everstep.runtime.operations.labels import change_tags, labels_of_runs
from everstep.runtime.operations.schedules.calendar import times
from everstep.runtime.operations.schedules.deciding import run_asked_for, spelled
from everstep.runtime.operations.schedules.declared import DECLARED, GONE, Wanted, differences, wanted
from everstep.runtime.operations.schedules.flow import (
    MOST_PENDING,
    SIGNAL,
    schedule_flow,
    tells_of_schedule,
)
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
            if isinstance(flow, Flow):
                flow.check_inputs(spec.inputs_at(self._services.time.now()), None)
            notify = flow.notify if isinstance(flow, Flow) else ()
            return await self._start(check_run_id(schedule_id), spec, act, notify)

        row = await self._parts.audited("create_schedule", act, create(), schedule_id, name)
        return (await self._each([row]))[0]

    async def _start(
        self,
        schedule_id: str,
        spec: ScheduleSpec,
        act: Act | None,
        notify: Iterable[Tell],
        *tags: Tag,
    ) -> RunRow:
        self._check_store()
        tells = tells_of_schedule((*notify, *self._services.notify), spec)
        made = schedule_flow(self._services, self._runs, spec.flow, tells=tells)
        labels = Labels((Tag(SCHEDULE_OF, spec.flow), *tags))
        given = Given({"spec": spec.told()}, act=act, labels=labels)
        before = await self._services.store.run(schedule_id)
        if before is not None and before.status is Status.CANCELLED and _is_schedule(before):
            await erase_at(self._services, before, act)  # one whose deletion was not over
        try:
            return await self._runs.start(made, given, schedule_id)
        except RunErased:
            await retaining_store(self._services).forget([schedule_id])  # one that was deleted
            return await self._runs.start(made, given, schedule_id)

    async def apply(
        self,
        flows: Flow | Iterable[Flow],
        *,
        dry_run: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> Sequence[AppliedSchedule]:
        """Make the schedules of these flows what they declare, and say what was done about each.

        One that is declared no more is paused, and goes on when it is declared again. Those that were made
        by hand under other ids are left alone. With `dry_run` it is only said what would be done.
        """
        act = act_of(by, comment)
        given = [flows] if isinstance(flows, Flow) else list(flows)

        async def apply() -> list[AppliedSchedule]:
            found = wanted(given, self._services.time.now())
            steps = [await self._applying(name, one) for name, one in found.items()]
            for flow in {flow.name for flow in given}:
                steps += [await self._leaving(row) for row in await self._declared(flow, found)]
            return steps if dry_run else [await self._apply(step, found, act) for step in steps]

        return await apply() if dry_run else await self._parts.audited("apply_schedules", act, apply())

    async def _applying(self, schedule_id: str, one: Wanted) -> AppliedSchedule:
        """Say what is to be done about a schedule that is declared."""
        row, flow = await self._services.store.run(schedule_id), one.flow.name
        if row is None or (row.status is Status.CANCELLED and _is_schedule(row)):
            return AppliedSchedule(schedule_id=schedule_id, flow=flow, act="create")
        state = await self._state(await self._row(schedule_id))
        if state.spec["flow"] != flow:
            raise BadRequest(
                f"{schedule_id!r} is a schedule of flow {state.spec['flow']!r:.60}, not of {flow!r}.",
                fix="Give one of them another id.",
            )
        there = state.change or state.spec
        before, after = differences(there, one.spec, self._services.values.canonical)
        tags = await self._tags(row)
        is_back, is_new = GONE in tags, DECLARED not in tags
        act: Literal["unpause", "change", "none"]
        act = "unpause" if is_back else "change" if after or is_new else "none"
        return AppliedSchedule(schedule_id=schedule_id, flow=flow, act=act, before=before, after=after)

    async def _leaving(self, row: RunRow) -> AppliedSchedule:
        """Say what is to be done about a schedule that is declared no more."""
        act: Literal["none", "pause"] = "none" if row.is_paused else "pause"
        flow = (await self._state(row)).spec["flow"]
        return AppliedSchedule(schedule_id=row.run_id, flow=flow, act=act)

    async def _declared(self, flow: str, found: Mapping[str, Wanted]) -> list[RunRow]:
        """Return the schedules of a flow that were declared, and are no more."""
        rows: list[RunRow] = []
        while True:
            before = rows[-1].run_id if rows else None
            page = await self._find(scheduling(flow), MOST_TIMES, before, DECLARED)
            rows += page
            if len(page) < MOST_TIMES:
                return [row for row in rows if row.run_id not in found]

    async def _apply(
        self, step: AppliedSchedule, found: Mapping[str, Wanted], act: Act | None
    ) -> AppliedSchedule:
        """Do what is to be done; who dies in between is to do it again."""
        name, declared = step.schedule_id, Tag(DECLARED, "")
        if step.act == "create":
            one = found[name]
            await self._start(name, one.spec, act, one.flow.notify, declared)
        elif step.act == "pause":
            await change_tags(self._services, name, [Tag(GONE, "")], [], act)
            await self._runs.pauses.pause(name, act)
        elif step.act != "none":
            if step.after:
                row, spec = await self._row(name), found[name].spec
                key = f"{row.checkpoints} {sha256(self._services.values.canonical(spec.told())).hexdigest()}"
                await self._tell(name, {"act": "change", "spec": spec.told()}, key, act)
            if step.act == "unpause":
                await self._runs.pauses.unpause(name, act)
            await change_tags(self._services, name, [declared], [GONE], act)
        return step

    async def _tags(self, row: RunRow) -> set[str]:
        labels = await labels_of_runs(self._services, [row])
        return {tag.name for tag in labels.get(row.run_id, NO_LABELS).tags}

    async def _tell(self, schedule_id: str, value: Any, key: str | None, act: Act | None) -> None:
        inboxes = Inboxes(self._services, self._runs.keeper)
        await inboxes.send(schedule_id, SIGNAL, value, signal_id=key, act=act)

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
        return await self._each(await self._find(None if flow is None else scheduling(flow), limit, before))

    async def _find(
        self, flow_id: str | None, limit: int, before: str | None, tag: str = SCHEDULE_OF
    ) -> Sequence[RunRow]:
        query = query_of("status != cancelled", (tag,), (), self._services.time.now())
        filtered = RunFilter(flow_id=flow_id, limit=limit, before=before)
        return (await find(self._services, self._runs.reader, filtered, query)).rows

    async def _each(self, rows: Sequence[RunRow]) -> Sequence[ScheduleInfo]:
        labels = await labels_of_runs(self._services, rows)
        return [await self._told(row, labels.get(row.run_id, NO_LABELS)) for row in rows]

    async def get(self, schedule_id: str) -> ScheduleInfo:
        """Return one schedule."""
        return (await self._each([await self._row(schedule_id)]))[0]

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
            state = await self._state(row)
            before = dict(state.change or state.spec)
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

    async def delete(self, schedule_id: str, *, by: str | None = None, comment: str | None = None) -> bool:
        """Remove a schedule for good; its id is free again. Runs that it has started go on.

        One that starts something at this moment starts no more: false, and it is removed when asked again.
        """
        act = act_of(by, comment)

        async def delete() -> bool:
            row = await self._row(schedule_id)
            is_over = (await self._runs.cancel(row.run_id, act)).is_final
            if is_over:
                await erase_at(self._services, await self._runs.reader.row(row.run_id), act)
            return is_over

        return await self._parts.audited("delete_schedule", act, delete(), schedule_id)

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
            await self._tell(row.run_id, await ask(row), key, act)

        await self._parts.audited(what, act, send(), schedule_id)

    async def _row(self, schedule_id: str) -> RunRow:
        row = await self._runs.reader.row(check_run_id(schedule_id))
        if not _is_schedule(row) or row.status is Status.CANCELLED:
            raise RunNotFound(f"run {schedule_id!r} is no schedule.", fix="List them: everstep schedule list")
        return row

    async def _state(self, row: RunRow) -> State:
        values = RunState(row.run_id, await self._runs.reader.look_back(row.run_id, None))
        if (told := values.get("state")) is not None:
            return state_of(told)
        return State(spec=values["spec"], created=row.created_at, after=row.created_at)

    async def _told(self, row: RunRow, labels: Labels) -> ScheduleInfo:
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
            priority=spec.priority,
            group=spec.group,
            tags=dict(spec.tags),
            declared=DECLARED in {tag.name for tag in labels.tags},
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


def _is_schedule(row: RunRow) -> bool:
    return row.flow_id.startswith(SCHEDULE_FLOW)
