"""Calls that look into what happened: where two runs part, and one step again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any

from msgspec.structs import replace

from everstep.client.checkpoint_steps import CheckpointLine, CheckpointPage, StepLogInfo
from everstep.client.diff import Diff, compare_states
from everstep.client.looking.comparison import SEARCHED, Comparison, compared
from everstep.client.looking.drawing import RunDrawing, drawn_flow
from everstep.client.looking.edges import EdgeFold, RunEdges
from everstep.client.looking.shown_values import RawValue, RunValues, all_values, cutting, one_value, raw_at
from everstep.client.looking.stretches import read_stretch
from everstep.client.looking.timeline import Lanes, Timeline
from everstep.client.looking.visits import StepVisit, describe, find_visit, no_such_visit, with_values
from everstep.client.outline import next_of, standing_of
from everstep.client.parts import Parts, check_limit
from everstep.client.projection import Fold, Log, LogLine, Maps, Projection, RunNodes, StepLine, StepPage
from everstep.client.views import RunState
from everstep.errors import BadRequest, RunNotFound
from everstep.graph.author.flow import Flow
from everstep.graph.draw.outline import outline
from everstep.model.address import Part, plain_of
from everstep.model.records import CheckpointRecord, NodeState
from everstep.ports.store import RunRow
from everstep.runtime.addresses import addressed, in_run, part_with
from everstep.runtime.history import history, shared_until
from everstep.runtime.live.step_logs import look_at_log
from everstep.runtime.run_ids import split_address
from everstep.runtime.travel.bisect import Divergence, bisect
from everstep.runtime.travel.fork import Edits, ForkPreview, preview_fork
from everstep.runtime.travel.recall import recall
from everstep.runtime.travel.replay import Replay, replay

PAGE = 500
"""How many checkpoints are read at a time."""


class DebugCalls:
    """What happened in runs, and where two of them part."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._services, self._runs = parts, parts.services, parts.runs.reader

    async def diff(
        self,
        run_id: str,
        other: str | None = None,
        *,
        start: int | str | None = None,
        end: int | str | None = None,
    ) -> Diff:
        """Compare a run at `start` with `other`, or with itself, at `end`: values, nodes and status.

        Both are sequences or checkpoint ids. `end` is the newest by default; so is `start` if there is
        another run, and otherwise the oldest that was not removed. Of parts such as A17/rag or A17/check#7
        what lies inside is compared, whatever they are called.
        """
        if other is not None:
            before = await self._state(run_id, start)
            return compare_states(before, await self._state(other, end), self._services.values)
        name, at, part = await addressed(self._runs, run_id)
        if at is not None and start is not None:
            raise BadRequest("the checkpoint is given twice.", fix=f"Leave out `start`, or write {name}.")
        if at is None:
            at = max(1, (await self._runs.row(name)).trimmed_before) if start is None else start
        # A part may have begun after the first of the two.
        before = RunState(name, await self._runs.look_back(name, at), part)
        return compare_states(
            before,
            RunState(name, await self._runs.look_back(name, end), part),
            self._services.values,
        )

    async def compare(self, run_id: str, other: str) -> Comparison:
        """Compare two runs, or two moments such as A17@3 and A17@9, for people who look at both.

        What `diff` says, with long values cut and at most 500 differences; the newest checkpoint that both
        have; and what `bisect` says, if neither has more than 2,000 checkpoints behind that one.
        """
        before, after = await self._state(run_id, None), await self._state(other, None)
        moments = [(one.run_id, one.sequence) for one in (before, after)]
        shared = await shared_until(self._runs, *moments)
        beyond = max(before.sequence, after.sequence) - (shared or 0)
        is_searched = before.part is None and after.part is None and beyond <= SEARCHED
        found = None
        if is_searched and before.run_id != after.run_id:
            good, bad = [f"{name}@{at}" for name, at in moments]
            found = await bisect(self._runs, self._services.values, good, bad, behind=shared)
        return compared(
            before,
            after,
            self._services.values,
            shared_until=shared,
            first=found,
            is_searched=is_searched,
        )

    async def _state(self, run_id: str, at: int | str | None) -> RunState:
        run_id, at, part = await addressed(self._runs, run_id, at)
        return RunState(run_id, await self._runs.look_back(run_id, at), part)

    async def logs(self, run_id: str) -> list[StepLogInfo]:
        """Return what nodes logged and printed, if their flow has `logs=True`, by step and attempt.

        Of a part such as A17/draft@2, the logs of steps in it. An attempt whose process died has another
        epoch than the one that took its place.
        """
        name = run_id.partition("/")[0] if isinstance(run_id, str) else run_id
        row = await self._runs.row(split_address(name, None)[0])
        kept = await self._services.live.logs_of(row.run_id)
        part = await part_with(self._runs, run_id, [(log.place.path, log.place.visit) for log in kept])
        codecs = self._services.codecs
        return [
            StepLogInfo.of(log, look_at_log(codecs, log))
            for log in kept
            if part is None or part.holds(log.place.path, log.place.visit)
        ]

    async def nodes(self, run_id: str, *, newest: int | None = None) -> RunNodes:
        """Return a run at a glance: its nodes with visits, attempts, items, waits, times, and who did what.

        It is read page by page; with `newest`, only so many checkpoints are, and of what came before them it
        is known how often nodes were visited. Of a part such as A17/rag, the nodes in it; A17@3 is how it
        stood there.
        """
        run_id, at, part = await addressed(self._runs, run_id)
        row, last = await self._runs.find(run_id, at)
        told, before = Projection(part), await self._before(row, last, newest, part)
        if before is not None:
            told.take(await history(self._runs, run_id, 1, part=part))  # who started it
            told.begin(_in_order(before), before.opened)
            told.cursor = before.sequence
        while page := await history(self._runs, run_id, last, count=PAGE, after=told.cursor, part=part):
            told.take(page)
        state = RunState(run_id, await self._runs.look_back(run_id, last), part)
        stands = standing_of(told, state)
        return RunNodes(
            run_id=run_id,
            sequence=told.cursor,
            nodes=[line.info(is_pending=line.name in stands.due) for line in stands.nodes],
            acts=told.acts,
            guards=state.guards,
            left_out=max(0, row.trimmed_before - 1) if before is None else before.sequence,
        )

    async def _before(
        self, row: RunRow, last: int, newest: int | None, part: Part | None = None
    ) -> RunState | None:
        """Return how a run stood before its newest checkpoints; none if there is nothing before them."""
        if newest is None:
            return None
        check_limit(newest)
        try:
            found = await self._runs.look_back(row.run_id, last - newest) if last > newest else None
        except RunNotFound:  # it was removed
            return None
        return None if found is None else RunState(row.run_id, found, part)

    async def edges(self, run_id: str, at: int | str | None = None, *, newest: int = 1000) -> RunEdges:
        """Return which edges of its flow a run took up to a checkpoint, how often, and in which round.

        So many checkpoints are read, the newest up to there; how often edges were taken before them is
        estimated by the visits to nodes. Of a part such as A17/rag it is told of the whole run.
        """
        run_id, at, _ = await addressed(self._runs, run_id, at)
        row, last = await self._runs.find(run_id, at)
        told, before = EdgeFold(await self._runs.plan_at(row, last)), await self._before(row, last, newest)
        after = 0 if before is None else before.sequence
        if before is not None:
            told.begin(before.nodes)
        while page := await history(self._runs, run_id, last, count=PAGE, after=after):
            first = page[0]
            if not after and first.sequence > 1 and first.state is not None:
                told.begin(first.state.nodes)
                after, page = first.sequence, page[1:]
            told.take(page)
            after = page[-1].sequence if page else after
        return RunEdges(
            run_id=run_id,
            sequence=last,
            left_out=max(0, row.trimmed_before - 1) if before is None else before.sequence,
            edges=list(told.edges()),
            loops=told.loops(),
        )

    async def drawing(
        self,
        run_id: str,
        *,
        opened: Collection[str] | None = None,
        around: str | None = None,
        all_open: bool = False,
    ) -> RunDrawing:
        """Return where each node of a run's flow stands in a picture of it, as the flow was declared.

        `opened` are paths of inner flows whose nodes are shown; by default all of a flow of up to 300 nodes,
        but for maps and atomic flows, and with `all_open` every one. If more than 2,000 nodes would be shown,
        the 300 nearest to `around` are. A17@3 is the flow by which the run went at checkpoint 3.
        """
        run_id, at, part = await addressed(self._runs, run_id)
        row, sequence = await self._runs.find(run_id, at)
        flow = await self._runs.lineage.flow_at(row, sequence)
        plan = await self._runs.plan(row, flow.flow_hash)
        around = plain_of(part.path) if part is not None and around is None else around
        told = row.flow_id, flow.flow_version, plan, opened, around, all_open
        return RunDrawing.of(row.run_id, await self._services.system.to_thread(drawn_flow, *told))

    async def steps(self, run_id: str, *, after: int = 0, limit: int = 100, full: bool = False) -> StepPage:
        """Return the steps of the first `limit` checkpoints behind `after`, as `log` lists them.

        Those of a map's items are counted in one line, and those that failed follow; with `full` each has its
        own. `next` of a page is the `after` of the one that follows. Of a part such as A17/rag, the steps in
        it; of one in an item, such as A17/check#7, each has its own line.
        """
        check_limit(limit)
        run_id, at, part = await addressed(self._runs, run_id)
        last = None if at is None else (await self._runs.find(run_id, at))[1]
        page = await history(self._runs, run_id, last, count=limit, after=after, part=part)
        log = Log(full=full or (part is not None and "#" in part.path))
        if page and page[0].sequence > 1:
            with suppress(RunNotFound):  # it was removed
                before = await self._runs.look_back(run_id, page[0].sequence - 1)
                log.maps.begin(RunState(run_id, before).opened)
        lines = chain(log.take(page), log.rest())
        steps = [step for line in lines for step in (StepLine.of(line, log.maps), *_failures(line, page))]
        return StepPage(run_id=run_id, steps=steps, next=page[-1].sequence if len(page) == limit else None)

    async def timeline(
        self,
        run_id: str,
        *,
        at: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        most: int = 300,
    ) -> Timeline:
        """Return when what of a run happened: of each node attempts, pauses and waits, of maps their items.

        It is read from the newest 2,000 checkpoints, or those around `at`, or the newest of those made
        between `since` and `until`; fewer where they hold more than 20,000 steps. `left_out` says what it
        does not tell of. Above `most` segments the nearest ones are told as one. A17@3 is how the run stood
        there, and of A17/rag what lies inside.
        """
        check_limit(most)
        run_id, seen_at, part = await addressed(self._runs, run_id)
        row, last = await self._runs.find(run_id, seen_at)
        read = await read_stretch(self._runs, row, last, at=at, since=since, until=until, part=part)
        lanes = Lanes()
        lanes.take(read.records)
        is_live = seen_at is None and read.last == row.checkpoints and not row.status.is_final
        state = RunState(run_id, await self._runs.look_back(run_id, read.last), part)
        if not state.status.is_final:
            is_driven = is_live and self._parts.info(row).is_driven
            lanes.stand(state.nodes, state.opened, next_of(state)[0] if is_driven else ())
        now = self._services.clock.now() if is_live else None
        return lanes.timeline(row, state.plan, (read.first, read.last), most, now)

    async def checkpoints(
        self, run_id: str, *, after: int | None = None, before: int | None = None, limit: int = 100
    ) -> CheckpointPage:
        """List checkpoints: the newest first, those before one, or with `after`, those behind one in order.

        `next` is the `before`, or the `after`, of the page that follows. Of A17/rag, those with steps in it.
        """
        check_limit(limit)
        run_id, at, part = await addressed(self._runs, run_id)
        row, last = await self._runs.find(run_id, at)
        if after is not None:
            page = await history(self._runs, run_id, last, count=limit, after=after, part=part)
        else:
            last = last if before is None else min(last, before - 1)
            page = (await history(self._runs, run_id, last, count=limit, part=part))[::-1] if last > 0 else []
        oldest = max(1, row.trimmed_before)
        is_end = not page or (page[-1].sequence >= last if after is not None else page[-1].sequence <= oldest)
        return CheckpointPage(
            run_id=run_id,
            checkpoints=[CheckpointLine.of(record) for record in page],
            next=None if is_end else page[-1].sequence,
        )

    async def visit(
        self, run_id: str, address: str, *, at: int | None = None, values: bool = True
    ) -> StepVisit:
        """Return one visit to a node in full: attempts, values before and after, units, its record.

        `address` is that of a step, such as `draft@2`, `check#7`, `rag/embed` or `agent@2/$search`; a visit
        that it leaves out is the last one. With `at`, as that checkpoint has it. The chain is read back from
        there to its beginning, 2,000 checkpoints at most. Values are cut as those of `values` are; with
        `values=False` there are none.
        """
        name, slash, around_it = run_id.partition("/")
        path = f"{around_it}{slash}{address}" if slash else address
        row, last = await self._runs.find(name, at)
        found = await find_visit(self._runs, row, last, path)
        if found is None:
            await addressed(self._runs, f"{row.run_id}@{last}/{path}")  # says why there is none
            raise no_such_visit(row.run_id, path)
        told = describe(row.run_id, found)
        return await with_values(self._runs, found, told) if values else told

    async def values(
        self,
        run_id: str,
        name: str | None = None,
        *,
        at: int | None = None,
        version: int | None = None,
        pointer: str = "",
        start: int = 0,
        count: int | None = None,
    ) -> RunValues:
        """Return the values of a run at a checkpoint, cut: 100 members a level, 2,000 characters of a text.

        With `name`, a whole name, that one alone: the part that `pointer` leads to (`/lines/3`, as JSON
        pointers have it), and of that `count` members or characters from `start` on. With `version`, as it
        was before it was overwritten, if that was in one of the last 64 checkpoints. What lies beside the
        records is read only if it is named.
        """
        run_id, seen_at, part = await addressed(self._runs, run_id, at)
        row, last = await self._runs.find(run_id, seen_at)
        if name is None:
            return all_values(RunState(run_id, await self._runs.look_back(run_id, last), part))
        see = cutting(pointer, start, count)
        found = await one_value(self._runs, row, last, (name, version), see)
        return RunValues(run_id=row.run_id, sequence=last, values={name: found}, count=1)

    async def raw_value(
        self, run_id: str, name: str, *, at: int | None = None, version: int | None = None, pointer: str = ""
    ) -> RawValue:
        """Return one value, or a part of one, as bytes: bytes and images as they are, texts, else JSON."""
        run_id, seen_at, _ = await addressed(self._runs, run_id, at)
        row, last = await self._runs.find(run_id, seen_at)
        return await one_value(self._runs, row, last, (name, version), raw_at(pointer))

    async def bisect(self, good: str, bad: str) -> Divergence | None:
        """Return the first step of a bad run that a good one lacks, or that came out differently there.

        None if every finished step of the bad run is the same in the good one.
        """
        return await bisect(self._runs, self._services.values, good, bad)

    async def preview_fork(
        self,
        run_id: str,
        *,
        at: int | str | None = None,
        inputs: Iterable[str] = (),
        state: Iterable[str] = (),
        channel: Iterable[str] = (),
        choose_again: bool = False,
    ) -> ForkPreview:
        """Say what `host.fork` would start first and run again, if these were edited; nothing is written.

        Of what is edited the names are enough. It goes by what is stored, so no flow is needed.
        """
        name, sequence, part = await addressed(self._runs, run_id, at)
        inside = [one if part is None else part.within(one) for one in state]
        edits = Edits(dict.fromkeys(inputs), dict.fromkeys(inside), dict.fromkeys(channel))
        return await preview_fork(
            self._services, self._runs, name, sequence, edits, choose_again=choose_again
        )

    async def replay(self, run_id: str, step: str, flow: Flow, *, allow_effects: bool = False) -> Replay:
        """Run one recorded step again, alone, on the values it read, and compare. Nothing is written.

        `step` is an address: a node (its last finished visit), `"draft@2"`, `"rag/embed"`, `"check#7"`. An
        effectful node is refused unless `allow_effects` is true. Durable calls in it give what is recorded;
        effectful ones that are not are refused likewise. After A17/rag, `step` lies inside it.
        """
        run_id, part = await in_run(self._runs, run_id)
        step = step if part is None else part.within(step)
        return await replay(self._runs, self._services, run_id, step, flow, allow_effects=allow_effects)

    async def recall(self, run_id: str, versions: Collection[tuple[str, int]]) -> dict[tuple[str, int], Any]:
        """Return values as steps wrote them, by whole name and version, also those overwritten since.

        Where one cannot be read, what stands in its place says why. Of A17@512, those up to there; nothing
        newer is read to find them.
        """
        return await recall(self._runs, run_id, versions)


def _in_order(state: RunState) -> dict[str, NodeState]:
    """Return where a run stood with its nodes, in the order of the outline."""
    order = {place.name: k for k, place in enumerate(outline(state.plan))}
    return dict(sorted(state.nodes.items(), key=lambda node: order.get(plain_of(node[0]), len(order))))


def _failures(line: LogLine | Fold, page: Sequence[CheckpointRecord]) -> Iterator[StepLine]:
    """Yield the failures that a line of items has counted."""
    failures = line.items.failures if isinstance(line, Fold) else []
    places = {id(step): record for record in page for step in record.steps} if failures else {}
    for step in failures:
        told = StepLine.of(LogLine(places[id(step)], step, 0, ""), Maps())
        yield replace(told, steps=0)
