"""Asking a live worker a question, and taking the answer away: what was asked leaves nothing behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from everstep.errors import EverstepError, FlowNotLoaded, NoAnswer
from everstep.model.commits import asking_about
from everstep.model.compat import FlowCompat
from everstep.model.enums import Status
from everstep.model.leases import WorkerRow
from everstep.model.shapes import PRIORITIES, understood
from everstep.ports.retention import TombstoneFilter
from everstep.ports.store import RunFilter, RunRow, Traits
from everstep.runtime.after_run import retaining_store
from everstep.runtime.inputs import Given
from everstep.runtime.operations.asking.answers import FlowFindings, FlowReport
from everstep.runtime.operations.asking.flow import ask_flow
from everstep.runtime.operations.asking.question import ANSWER, About, Question, check_refusal, quiet
from everstep.runtime.operations.untaken import alive, takers
from everstep.runtime.retention.erase import erase_at
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.travel.explain import Explanation

_LOOKS = (0.01, 0.2)
"""Seconds between two looks whether the answer is there: the first time, and at most."""
_ASKED, _ANSWERED = timedelta(hours=1), timedelta(minutes=1)
"""What was asked, or answered, so long ago has no asker any more."""
_SOME, _NEWEST = 100, 5
_HIGHEST = Traits(priority=PRIORITIES[-1])
"""A worker that has room for one run more answers first."""

_SHAPES: Mapping[About, type[msgspec.Struct]] = {
    About.EXPLAIN: Explanation,
    About.COMPAT: FlowCompat,
    About.REPORT: FlowReport,
    About.FINDINGS: FlowFindings,
}


class Asker:
    """Asks the workers of a store."""

    def __init__(self, services: Services, runs: Runs) -> None:
        self._services, self._runs = quiet(services, runs)

    async def ask(self, about: str, flow: str, run_ids: Sequence[str], within: float) -> Any:
        """Return what a live worker with this flow answers within so many seconds, or raise why none does."""
        told = await self._told(About(about), flow, run_ids, within)
        try:
            return msgspec.convert(told, understood(_SHAPES[About(about)]))
        except msgspec.ValidationError as error:
            raise NoAnswer(
                f"a worker with flow {flow!r} answered as another version of everstep does: {error}.",
                fix="Use the same version here and there.",
                flow=flow,
            ) from error

    async def _told(self, about: About, flow: str, run_ids: Sequence[str], within: float) -> Any:
        made = ask_flow(self._services, self._runs.reader, flow)
        self._check_taken(flow, made.plan.hash, await self._workers())
        until = self._services.time.now() + timedelta(seconds=within)
        question = Question(about=about, flow=flow, runs=tuple(run_ids), until=until)
        given = Given({"question": question.told()}, traits=_HIGHEST)
        run_id = (await self._runs.start(made, given, None)).run_id
        try:
            row = await self._ended(run_id, within)
            if not row.status.is_final:
                await self._runs.cancel(run_id)
                ended = await self._runs.reader.row(run_id)
                if ended.status is not Status.COMPLETED:
                    raise self._late(flow, row, made.plan.hash, await self._workers(), within)
                row = ended
            return await self._answer(row)
        finally:
            with suppress(EverstepError):  # what is left goes the next time
                await self._clear(made.name, run_id)

    async def _workers(self) -> list[WorkerRow]:
        return alive(self._services, await self._services.store.workers())

    async def _ended(self, run_id: str, within: float) -> RunRow:
        """Return the row of a run once it has ended, or as it is after so many seconds."""
        clock, (look, most) = self._services.clock, _LOOKS
        began, paused = clock.monotonic(), 0.0
        while True:
            row = await self._runs.reader.row(run_id)
            left = within - max(paused, clock.monotonic() - began)
            if row.status.is_final or left <= 0:
                return row
            await self._services.system.pause(min(look, left))
            paused, look = paused + min(look, left), min(2 * look, most)

    async def _answer(self, row: RunRow) -> Any:
        outcome = await self._runs.reader.recorded(row)
        if outcome.status is not Status.COMPLETED:
            why = outcome.status.value if outcome.error is None else outcome.error.type
            raise NoAnswer(f"the worker could not answer: {why}.", fix="The worker's log may say more.")
        answer = outcome.space.peek(ANSWER)
        check_refusal(answer)
        return answer

    def _check_taken(self, flow: str, flow_hash: str, workers: Sequence[WorkerRow]) -> None:
        if takers(workers, asking_about(flow), flow_hash):
            return
        older = [worker for worker in workers if flow in worker.flows]
        if older:
            releases = ", ".join(sorted({worker.release or "0.1.0" for worker in older}))
            raise FlowNotLoaded(
                f"live workers with flow {flow!r} are of everstep {releases}, which takes no questions.",
                fix="Start one of this version: everstep worker FILE.py",
                flow=flow,
            )
        some = f"no live worker has flow {flow!r}" if workers else "no worker is alive"
        raise FlowNotLoaded(
            f"{some}, and this takes its code.",
            fix="Start one: everstep worker FILE.py; or give the file here: everstep console FILE.py",
            flow=flow,
        )

    def _late(
        self, flow: str, row: RunRow, flow_hash: str, workers: Sequence[WorkerRow], within: float
    ) -> EverstepError:
        """Say why no answer came, with the run as it stood last."""
        self._check_taken(flow, flow_hash, workers)
        having = takers(workers, asking_about(flow), flow_hash)
        seconds = f"within {within:g} s"
        if row.lease is not None:
            said = f"a worker began to answer about flow {flow!r}, and did not come to an end {seconds}."
        elif all(worker.driving >= worker.concurrency for worker in having):
            slots = sum(worker.concurrency for worker in having)
            said = f"every worker with flow {flow!r} is busy, in all {slots} slots; none answered {seconds}."
        else:
            said = f"no worker with flow {flow!r} answered {seconds}."
        fix = "Ask again, or start another: everstep worker FILE.py"
        return NoAnswer(said, fix=fix, flow=flow)

    async def _clear(self, name: str, run_id: str) -> None:
        """Remove a question, and what was left by those who were killed while they waited for an answer."""
        able = self._services.store.capabilities
        if not able.retains:
            return
        now = self._services.clock.now()
        for row in await self._services.store.list(RunFilter(flow_id=name, limit=_SOME)):
            is_left = row.created_at < now - _ASKED or (row.ended_at or now) < now - _ANSWERED
            if row.run_id == run_id or is_left:
                with suppress(EverstepError):  # another keeps none from going
                    await self._remove(row.run_id)
        if not able.rationed:
            await self._forget(name)

    async def _remove(self, run_id: str) -> None:
        if (await self._runs.cancel(run_id)).is_final:
            row = await self._runs.reader.row(run_id)
            if await erase_at(self._services, row, None) is not None:
                await retaining_store(self._services).forget([run_id])

    async def _forget(self, name: str) -> None:
        """Free the id of a question whose asker was killed before its last write, if that was of late."""
        store = retaining_store(self._services)
        newest = await store.tombstones(TombstoneFilter(limit=_NEWEST))
        left = [one.run_id for one in newest if one.flow_id == name]
        if left:
            await store.forget(left)
