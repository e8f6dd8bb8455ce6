"""Calls that look after all workers and runs of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import msgspec

from everstep.client.audit import AuditInfo, read_audit
from everstep.client.guards import BreakerInfo
from everstep.client.parts import Parts, check_asked, check_goes_on, check_limit
from everstep.client.views import PauseInfo, RunInfo, RunState, WorkerInfo
from everstep.errors import BadRequest, FlowNotFound
from everstep.graph.author.flow import Flow
from everstep.graph.labels import label_name, tags_of
from everstep.model.acts import act_of
from everstep.model.address import Part
from everstep.model.commits import BULK_FLOW, AttributeValue
from everstep.model.compat import FlowCompat
from everstep.model.durations import Span, seconds_of
from everstep.model.enums import Status
from everstep.on_demand import on_demand
from everstep.ports.store import Counts, RunFilter, RunRow
from everstep.runtime.addresses import in_run
from everstep.runtime.inputs import Given, check_name
from everstep.runtime.operations.labels import change_tags
from everstep.runtime.operations.untaken import Untaken, due, untaken
from everstep.runtime.run_ids import check_run_id

SAMPLE = 20
"""Runs that a dry run shows."""
LONGEST = 600.0
"""Seconds that a worker has to answer at most: what is much older has no asker any more."""

if TYPE_CHECKING:
    from everstep.client.looking.drawing import FlowDrawing, drawn_flow
    from everstep.client.queries import BulkOptions
    from everstep.engine.query.text import query_of
    from everstep.runtime.drive.timed.times import deadline_of
    from everstep.runtime.metrics.families import text_of
    from everstep.runtime.operations.asking.answers import (
        FlowFindings,
        FlowReport,
        compat_on,
        findings_on,
        report_on,
    )
    from everstep.runtime.operations.asking.ask import Asker
    from everstep.runtime.operations.bulk.flow import BulkProgress, bulk_flow, progress_of
    from everstep.runtime.operations.bulk.order import BulkOrder, ordered
    from everstep.runtime.operations.bulk.pages import BulkPreview, check_store, preview
    from everstep.runtime.operations.count import RunCount, count_runs
    from everstep.runtime.operations.durations import Durations, durations
    from everstep.runtime.operations.flows import FlowInfo, flows_of
    from everstep.runtime.operations.limits import LimitInfo, limits_of
    from everstep.runtime.travel.explain import Explanation
else:
    drawn_flow = on_demand("everstep.client.looking.drawing:drawn_flow")
    limits_of = on_demand("everstep.runtime.operations.limits:limits_of")
    flows_of = on_demand("everstep.runtime.operations.flows:flows_of")
    compat_on = on_demand("everstep.runtime.operations.asking.answers:compat_on")
    findings_on = on_demand("everstep.runtime.operations.asking.answers:findings_on")
    report_on = on_demand("everstep.runtime.operations.asking.answers:report_on")
    Asker = on_demand("everstep.runtime.operations.asking.ask:Asker")
    query_of = on_demand("everstep.engine.query.text:query_of")
    deadline_of = on_demand("everstep.runtime.drive.timed.times:deadline_of")
    text_of = on_demand("everstep.runtime.metrics.families:text_of")
    bulk_flow = on_demand("everstep.runtime.operations.bulk.flow:bulk_flow")
    progress_of = on_demand("everstep.runtime.operations.bulk.flow:progress_of")
    ordered = on_demand("everstep.runtime.operations.bulk.order:ordered")
    check_store = on_demand("everstep.runtime.operations.bulk.pages:check_store")
    preview = on_demand("everstep.runtime.operations.bulk.pages:preview")
    count_runs = on_demand("everstep.runtime.operations.count:count_runs")
    durations = on_demand("everstep.runtime.operations.durations:durations")


class FleetCalls:
    """The workers of a store, what they share, and runs for them to drive."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services, self._runs = parts.services, parts.runs

    async def workers(self) -> list[WorkerInfo]:
        """List the workers that are alive, the longest serving first, with what they drive."""
        rows, is_gone = await self._services.store.workers(), self._services.processes.is_gone
        return [WorkerInfo.of(row) for row in rows if row.process is None or not is_gone(row.process)]

    async def flows(
        self, *, only: Collection[str] | None = None, tags: Iterable[str] | None = None
    ) -> list[FlowInfo]:
        """List the flows that the store has runs of, or that workers drive, by name.

        Statuses and versions are counted among the newest 5,000 runs, of flows named in `only`, and among
        runs with one of these `tags`, `vip` or `team=blue`.
        """
        workers = Counter(flow for worker in await self.workers() for flow in set(worker.flows))
        return await flows_of(self._services, workers, only, tags)

    async def drawing(
        self,
        flow: str | Flow,
        *,
        opened: Collection[str] | None = None,
        around: str | None = None,
        all_open: bool = False,
    ) -> FlowDrawing:
        """Return where the nodes of a flow stand in a picture of it; of a name, that of its newest run.

        `opened`, `around` and `all_open` are those of `host.debug.drawing`.
        """
        if isinstance(flow, Flow):
            name, version, plan = flow.name, flow.version, flow.plan
        else:
            check_asked(flow=flow)
            rows = await self._services.store.list(RunFilter(flow_id=flow, limit=1))
            if not rows:
                raise FlowNotFound(f"there are no runs of a flow {flow!r}.", fix="List them: everstep runs")
            name, version, plan = flow, rows[0].flow_version, await self._runs.reader.plan(rows[0])
        told = name, version, plan, opened, around, all_open
        return await self._services.system.to_thread(drawn_flow, *told)

    async def untaken(self, *run_ids: str, limit: int = 100) -> list[Untaken]:
        """Return runs that are due and that no live worker will take, each with why and what to do about it.

        Of those that are named, or of the first `limit` that are due. Of a run that is named and waits for an
        answer it says whether a worker would take it then.
        """
        reader = self._runs.reader
        if run_ids:
            rows = [await reader.row((await in_run(reader, run_id))[0]) for run_id in run_ids]
        else:
            check_limit(limit)
            rows = await due(self._services, limit, lambda row: self._parts.info(row).is_driven)
        left = [row for row in rows if not (row.status.is_final or self._parts.info(row).is_driven)]
        return await untaken(self._services, reader, left)

    async def explain(self, run_id: str, *, within: Span = 5.0) -> Explanation:
        """Say what a resume of a run would do, as `host.explain` does: a live worker with its flow says it.

        `flow.not_loaded` if none has it, and `flow.no_answer` if none answered within that time.
        """
        run_id, part = await in_run(self._runs.reader, run_id)
        row = await self._runs.reader.row(run_id)
        told: Explanation = await self._asked("explain", row.flow_id, within, [run_id])
        return told if part is None else told.within(part)

    async def report(self, flow: Flow | str, *, within: Span = 5.0) -> FlowReport:
        """Say what of a flow is durable, as `everstep report` does; of a name, a live worker says it."""
        if isinstance(flow, str):
            found: FlowReport = await self._asked("report", flow, within)
            return found
        return report_on(self._services, flow)

    async def findings(self, flow: Flow | str, *, within: Span = 5.0) -> FlowFindings:
        """Say what is wrong or odd about a flow, as `validate` does; of a name, a live worker says it."""
        if isinstance(flow, str):
            found: FlowFindings = await self._asked("findings", flow, within)
            return found
        return findings_on(self._services, flow)

    async def compat(
        self,
        flow: Flow | str,
        *,
        run_ids: Iterable[str] | None = None,
        newest: int = 100,
        within: Span = 5.0,
    ) -> FlowCompat:
        """Say which unfinished runs can go on with a flow as it is; of a name, a live worker says it.

        Of the newest ones, or of those that are named. Nothing is written.
        """
        check_limit(newest)
        name = flow if isinstance(flow, str) else flow.name
        named = None if run_ids is None else [check_run_id(run_id) for run_id in run_ids]
        asked = await self._unfinished(name, newest + 1) if named is None else named
        is_whole, asked = named is not None or len(asked) <= newest, asked if named else asked[:newest]
        if isinstance(flow, str):
            found: FlowCompat = await self._asked("compat", flow, within, asked)
            return msgspec.structs.replace(found, is_whole=is_whole and found.is_whole)
        return await compat_on(self._services, self._runs.reader, flow, asked, is_whole=is_whole)

    async def _unfinished(self, flow: str, limit: int) -> list[str]:
        """Return the newest unfinished runs of a flow."""
        check_asked(flow=flow)
        rows: list[RunRow] = []
        for status in (Status.RUNNING, Status.HALTED):
            rows += await self._services.store.list(RunFilter(flow_id=flow, status=status, limit=limit))
        rows.sort(key=lambda row: row.created_at, reverse=True)
        return [row.run_id for row in rows[:limit]]

    async def _asked(self, about: str, flow: str, within: Span, run_ids: Sequence[str] = ()) -> Any:
        check_asked(flow=flow)
        seconds = seconds_of(within, "within", least=0)
        if seconds > LONGEST:
            raise BadRequest(f"within is {within!r}.", fix=f"Give up to {LONGEST:.0f} seconds.")
        return await Asker(self._services, self._runs).ask(about, flow, run_ids, seconds)

    async def counts(self) -> Counts:
        """Count runs by status and open waits by kind, and what runs driven here have spent."""
        spent, warnings, trips = self._services.tally.counts()
        found = await self._services.store.counts()
        return msgspec.structs.replace(found, spent=spent, warnings=warnings, trips=trips)

    async def metrics(self) -> str:
        """Return what is counted and measured, as Prometheus reads it, at once also while the store is away.

        What runs and workers do here is counted by a host that was opened with `metrics=True`, from then on.
        """
        return await self._services.system.to_thread(text_of, self._services)

    async def count(
        self,
        by: str = "status",
        *,
        where: str | None = None,
        tag: str | Iterable[str] = (),
        attribute: str | Iterable[str] | Mapping[str, AttributeValue] = (),
        before: str | None = None,
    ) -> RunCount:
        """Count runs by a field of queries: `status`, `flow`, `group`, `tag`, `tag.team`, `attribute.region`.

        All runs by status, flow or label are counted by an index, where the store has one. Any other call
        looks at 5,000 runs at most, and `next` says where to go on, if anywhere.
        """
        if before is not None:
            check_run_id(before)
        query = None
        if where is not None or tag or attribute:
            query = query_of(where, tag, attribute, self._services.time.now())
        found = await count_runs(self._services, self._runs.reader, by, query, before)
        if not found.runs and found.next is None:
            await check_goes_on(self._runs.reader, before)
        return found

    async def durations(
        self, flow: str | None = None, *, where: str | None = None, newest: int = 200
    ) -> Durations:
        """Say how long the newest ended runs took, and the visits to their nodes; of one flow, or of all.

        Their checkpoints tell, so nothing is counted while runs are driven; what was read of a run is kept
        in mind. With `where`, of those that a query asks for: `where="started > -1d and status = completed"`.
        """
        check_asked(flow=flow)
        query = None if where is None else query_of(where, (), (), self._services.time.now())
        return await durations(self._services, self._runs.reader, flow, query, newest)

    async def tag(
        self,
        run_id: str,
        add: Iterable[str] | Mapping[str, str] = (),
        *,
        remove: Iterable[str] = (),
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Tag a run, also one that has ended: names, or names with values; and take tags away.

        A tag of the same name gets the new value. `host.runs(where="tag = vip")` finds what is tagged.
        """
        act = act_of(by, comment)

        async def change() -> RunRow:
            name, _ = await in_run(self._runs.reader, run_id)
            gone = [label_name(one, "tag") for one in remove]
            await change_tags(self._services, name, tags_of(add), gone, act)
            return await self._runs.reader.row(name)

        return (await self._parts.infos([await self._parts.audited("tag", act, change(), run_id)]))[0]

    async def pause(
        self,
        run_id: str | None = None,
        *,
        flow: str | None = None,
        group: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> PauseInfo:
        """Pause a run; or a flow, a group of it, or with `group` alone that group of every flow.

        Nothing of it starts: no node, no item of a map, no durable call and no retry. Owners record what is
        under way and give their runs back. Waits take their answers and their times run. What is paused
        already stays as it is. `unpause` lets it go on.
        """
        act, pauses = act_of(by, comment), self._runs.pauses
        if run_id is None:
            lane = _lane_named(flow, group)
            doing = self._parts.audited("pause", act, pauses.pause_lane(*lane, act), about=_lane_text(*lane))
            return PauseInfo.of_lane(await doing)

        async def pause() -> RunRow:
            _check_alone(flow, group)
            name, part = await in_run(self._runs.reader, run_id)
            _check_whole(part, run_id)
            return await pauses.pause(name, act)

        return PauseInfo.of_run(await self._parts.audited("pause", act, pause(), run_id))

    async def unpause(
        self,
        run_id: str | None = None,
        *,
        flow: str | None = None,
        group: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> bool:
        """Let a run, a flow or a group go on that was paused by that name; false if it was not paused.

        What is due of it is so at once. A run of a flow that is still paused goes on when that does.
        """
        act, pauses = act_of(by, comment), self._runs.pauses
        if run_id is None:
            lane = _lane_named(flow, group)
            lifting = pauses.unpause_lane(*lane, act)
            return await self._parts.audited("unpause", act, lifting, about=_lane_text(*lane))

        async def unpause() -> bool:
            _check_alone(flow, group)
            name, part = await in_run(self._runs.reader, run_id)
            _check_whole(part, run_id)
            return await pauses.unpause(name, act)

        return await self._parts.audited("unpause", act, unpause(), run_id)

    async def pauses(self, *, runs: bool = True) -> list[PauseInfo]:
        """Return what is paused: flows and groups first, then up to a thousand runs, the newest first.

        Without `runs`, flows and groups alone, which is one small question to any store.
        """
        lanes = [PauseInfo.of_lane(lane) for lane in await self._runs.pauses.lanes()]
        return [*lanes, *map(PauseInfo.of_run, await self._runs.pauses.rows())] if runs else lanes

    async def limits(self) -> list[LimitInfo]:
        """Return what limits hold back, by key: what runs, what has started, what waits, and why.

        Those for which most runs wait come first. The limits of a flow are those that live workers have.
        """
        return await limits_of(self._services, await self._services.store.workers())

    async def reopen(
        self,
        run_id: str,
        flow: Flow | None = None,
        *,
        start: str | None = None,
        deadline: Span | datetime | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Let a run that failed or was abandoned go on, as `resume` does, but leave it to workers to drive.

        With `start` it begins at that node, whatever was due, also if it has ended otherwise; that takes the
        flow. Without a flow nothing is checked against its code: the worker that takes the run does. It has
        the `deadline` that is given here, and no other.
        """
        act = act_of(by, comment)
        ends = None if deadline is None else deadline_of(deadline)

        async def let_go_on() -> RunRow:
            name, _ = await in_run(self._runs.reader, run_id)
            return await self._runs.reopen(name, flow, start, act=act, ends=ends)

        return self._parts.info(await self._parts.audited("reopen", act, let_go_on(), run_id))

    @overload
    async def bulk(
        self, act: str, where: str, *, dry_run: Literal[True], **options: Unpack[BulkOptions]
    ) -> BulkPreview: ...
    @overload
    async def bulk(
        self, act: str, where: str, *, dry_run: Literal[False] = False, **options: Unpack[BulkOptions]
    ) -> str: ...
    @overload
    async def bulk(
        self, act: str, where: str, *, dry_run: bool = False, **options: Unpack[BulkOptions]
    ) -> BulkPreview | str: ...
    async def bulk(
        self, act: str, where: str, *, dry_run: bool = False, **options: Unpack[BulkOptions]
    ) -> BulkPreview | str:
        """Do something to all runs that a query asks for, as a run that any worker drives; returns its id.

        Acts: `cancel`, `retry` (reopen what failed, for workers), `resume` (let workers drive again what was
        set aside as damaged), `fork`, `pause`, `unpause`, `tag`, `pin`, `unpin`, `erase`. With `dry_run`
        nothing is done, and it is returned how many runs there are, by status and flow, and what would come
        of them.

        Only runs that were there before are acted on, each at most once and as long as the query asks for it
        then. `at_most` stops after so many; `per_second` limits the speed. Each act is in the audit log.
        `tag` takes `add` and `remove`, `pin` a `reason`, `fork` what `host.fork` takes.
        `bulk_progress` says how far it has come, `host.cancel` ends it, `drive_bulk` goes on with it here.
        """
        services, shown = self._services, options.pop("sample", SAMPLE)
        check_limit(shown)

        def order() -> BulkOrder:
            made = ordered(act, where, services.time.now(), **options)
            check_store(services.store.capabilities, made.act)
            return made

        if dry_run:
            return await preview(services, self._runs.reader, order(), shown)
        by = act_of(options.get("by"), options.get("comment"))

        async def start() -> RunRow:
            told = Given({"order": order().told()}, act=by)
            return await self._runs.start(bulk_flow(services, self._runs), told, None)

        return (await self._parts.audited("bulk", by, start(), about=act)).run_id

    async def drive_bulk(self, run_id: str) -> BulkProgress:
        """Go on here and now with a run that acts on many runs, until it is over: no worker is needed."""
        await self.bulk_progress(run_id)
        await self._runs.resume(run_id, bulk_flow(self._services, self._runs))
        return await self.bulk_progress(run_id)

    async def bulk_progress(self, run_id: str) -> BulkProgress:
        """Say how far a run that acts on many runs has come."""
        row = await self._runs.reader.row(run_id)
        if row.flow_id != BULK_FLOW:
            raise BadRequest(
                f"run {run_id!r} is of flow {row.flow_id!r}: it acts on no others.",
                fix=f"Find those that do: everstep runs --flow {BULK_FLOW}",
            )
        folded = await self._runs.reader.look_back(run_id, None)
        return progress_of(run_id, folded.status.value, RunState(run_id, folded))

    async def audit(
        self,
        run_id: str | None = None,
        *,
        by: str | None = None,
        act: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[AuditInfo]:
        """Say who did what, the newest acts last: of one run, by one name, of one kind, in some time.

        An act with a name is there, done or refused. `since` and `until` are times, or
        text such as `-7d`. With `after` the first acts behind that number, so that all can be read page by
        page: `after=0`, then the number of the last. Acts on runs that were removed are there, too.
        """
        check_limit(limit)
        if run_id is not None:
            run_id = check_run_id(run_id.partition("/")[0])
        check_asked(by=by, act=act)
        narrowed: dict[str, Any] = {"run_id": run_id, "by": by, "act": act, "since": since, "until": until}
        return await read_audit(self._services, limit=limit, after=after, **narrowed)

    async def breakers(self) -> dict[str, BreakerInfo]:
        """Return the shared breakers of the store that ever changed, by name."""
        return {name: BreakerInfo.of(name, at) for name, at in (await self._runs.shared.all()).items()}

    async def reset_breaker(
        self, name: str, *, by: str | None = None, comment: str | None = None
    ) -> BreakerInfo:
        """Close a shared breaker; what it has counted is forgotten. Runs that wait for review still do."""
        act = act_of(by, comment)
        doing = self._runs.shared.reset(name, act)
        return BreakerInfo.of(name, await self._parts.audited("reset_breaker", act, doing, about=name))


def _lane_named(flow: str | None, group: str | None) -> tuple[str, str]:
    """Return the flow and the group that a caller names."""
    if flow is None and group is None:
        raise BadRequest(
            "nothing is named to be paused, or to go on.", fix="Give a run, flow=NAME, group=NAME, or both."
        )
    for what, name in (("flow", flow), ("group", group)):
        if name is not None:
            check_name(what, name)
    return flow or "", group or ""


def _lane_text(flow: str, group: str) -> str:
    """Return a flow and a group as the audit log has them."""
    return f"{flow or '*'}/{group}" if group else flow


def _check_alone(flow: str | None, group: str | None) -> None:
    """Raise if a flow or a group is named beside a run."""
    if flow is not None or group is not None:
        raise BadRequest(
            "a run is named, and a flow or a group as well.", fix="Name the run alone, or leave it out."
        )


def _check_whole(part: Part | None, run_id: str) -> None:
    """Raise if a part of a run is named."""
    if part is not None:
        raise BadRequest(
            f"{run_id!r:.80} is a part of a run: it is not paused by itself.",
            fix=f"Name the whole run: {run_id.partition('/')[0]}",
        )
