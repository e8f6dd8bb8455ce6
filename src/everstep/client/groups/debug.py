"""Calls that look into what happened: where two runs part, and one step again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from msgspec.structs import replace

from everstep.client.checkpoint_steps import StepLogInfo
from everstep.client.diff import Diff, compare_states
from everstep.client.outline import standing_of
from everstep.client.parts import Parts, check_limit
from everstep.client.projection import Fold, Log, LogLine, Maps, Projection, RunNodes, StepLine, StepPage
from everstep.client.views import RunState
from everstep.errors import BadRequest, RunNotFound
from everstep.graph.author.flow import Flow
from everstep.model.records import CheckpointRecord
from everstep.runtime.addresses import addressed, in_run
from everstep.runtime.history import history
from everstep.runtime.live.step_logs import look_at_log
from everstep.runtime.travel.bisect import Divergence, bisect
from everstep.runtime.travel.recall import recall
from everstep.runtime.travel.replay import Replay, replay

PAGE = 500
"""How many checkpoints are read at a time."""


class DebugCalls:
    """What happened in runs, and where two of them part."""

    def __init__(self, parts: Parts) -> None:
        self._services, self._runs = parts.services, parts.runs.reader

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

    async def _state(self, run_id: str, at: int | str | None) -> RunState:
        run_id, at, part = await addressed(self._runs, run_id, at)
        return RunState(run_id, await self._runs.look_back(run_id, at), part)

    async def logs(self, run_id: str) -> list[StepLogInfo]:
        """Return what nodes logged and printed, if their flow has `logs=True`, by step and attempt.

        Of a part such as A17/draft@2, the logs of steps in it. An attempt whose process died has another
        epoch than the one that took its place.
        """
        run_id, part = await in_run(self._runs, run_id)
        await self._runs.row(run_id)
        kept = await self._services.live.logs_of(run_id)
        codecs = self._services.codecs
        return [
            StepLogInfo.of(log, look_at_log(codecs, log))
            for log in kept
            if part is None or part.holds(log.place.path, log.place.visit)
        ]

    async def nodes(self, run_id: str) -> RunNodes:
        """Return a run at a glance: its nodes with visits, attempts, items, waits, times, and who did what.

        It is read page by page. Of a part such as A17/rag, the nodes in it; A17@3 is how it stood there.
        """
        run_id, at, part = await addressed(self._runs, run_id)
        last = None if at is None else (await self._runs.find(run_id, at))[1]
        told, page = Projection(part), await history(self._runs, run_id, last, count=PAGE, after=0, part=part)
        while page:
            told.take(page)
            page = await history(self._runs, run_id, last, count=PAGE, after=told.cursor, part=part)
        state = RunState(run_id, await self._runs.look_back(run_id, last), part)
        stands = standing_of(told, state)
        return RunNodes(
            run_id=run_id,
            sequence=told.cursor,
            nodes=[line.info(is_pending=line.name in stands.due) for line in stands.nodes],
            acts=told.acts,
            guards=state.guards,
        )

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

    async def bisect(self, good: str, bad: str) -> Divergence | None:
        """Return the first step of a bad run that a good one lacks, or that came out differently there.

        None if every finished step of the bad run is the same in the good one.
        """
        return await bisect(self._runs, self._services.values, good, bad)

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


def _failures(line: LogLine | Fold, page: Sequence[CheckpointRecord]) -> Iterator[StepLine]:
    """Yield the failures that a line of items has counted."""
    failures = line.items.failures if isinstance(line, Fold) else []
    places = {id(step): record for record in page for step in record.steps} if failures else {}
    for step in failures:
        told = StepLine.of(LogLine(places[id(step)], step, 0, ""), Maps())
        yield replace(told, steps=0)
