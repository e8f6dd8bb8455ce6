"""Going on from the newest valid checkpoint of a run whose head is not: as a fork, which keeps its keys.

The fork is called after the run and the checkpoint, so a second call after a crash gets the same one.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from typing import Any

from everstep.codec.records import glance
from everstep.errors import BadRequest, EverstepError, StateCorrupted
from everstep.graph.author.flow import Flow
from everstep.graph.compile.plan import Plan
from everstep.model.acts import Act
from everstep.model.durations import Ends
from everstep.model.enums import Effects, Status
from everstep.model.leases import Lease
from everstep.model.records import StepRecord
from everstep.ports.store import RunRow
from everstep.runtime.at_rest import RestingRuns
from everstep.runtime.integrity.findings import Fallback, Repeated
from everstep.runtime.integrity.run_check import Checking
from everstep.runtime.outcome import Outcome
from everstep.runtime.run_ids import LONGEST
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.travel.fork import Edits, fork
from everstep.runtime.waits.inbox import copy_untaken

log = logging.getLogger("everstep")
_HARMLESS = (Effects.PURE, Effects.READ_ONLY)
_PAGE = 64
_NOTHING = Edits({}, {}, {})


async def resume_with_fallback(
    services: Services,
    runs: Runs,
    run_id: str,
    flow: Flow,
    start: str | None,
    *,
    wait: bool,
    is_patient: bool,
    act: Act | None = None,
    ends: Ends | None = None,
) -> Outcome:
    """Continue a run, or if what a resume reads of it is damaged, a fork from its newest valid checkpoint."""
    try:
        return await runs.resume(run_id, flow, start, wait=wait, is_patient=is_patient, act=act, ends=ends)
    except StateCorrupted as error:
        told = await fall_back(
            services, runs.resting, await runs.reader.named(run_id), flow, error, is_patient=is_patient
        )
    outcome = await runs.resume(told.fork, flow, start, wait=wait, is_patient=is_patient, act=act, ends=ends)
    return outcome._replace(fallback=told)


async def fall_back(
    services: Services, runs: RestingRuns, row: RunRow, flow: Flow, error: StateCorrupted, *, is_patient: bool
) -> Fallback:
    """Make the fork that a damaged run goes on as, and leave the run itself alone from now on."""
    newest = (await Checking(services, runs.reader).run(row)).newest_valid
    if newest is None:
        raise error
    lease = await runs.claim(row.run_id, flow.durability, waits=is_patient)
    try:
        may_repeat, unread = await _behind(services, row, newest, flow)
        name, lost = await _fork(services, runs, row, newest)
        told = Fallback(
            run_id=row.run_id,
            fork=name,
            at=newest,
            reason=error.message,
            may_repeat=may_repeat,
            unread=unread,
            lost_signals=tuple(lost),
        )
    except BaseException:
        await runs.release(lease)
        raise
    await _leave_alone(services, runs, lease, told)
    log.warning(
        "run %r is damaged: it goes on from checkpoint %d as run %r.", told.run_id, told.at, told.fork
    )
    return told


def name_of_fork(run_id: str, at: int) -> str:
    """Return what the fork is called that a run falls back to."""
    ending = f"-from-{at}"
    if len(run_id) + len(ending) <= LONGEST:
        return run_id + ending
    short = hashlib.sha256(run_id.encode()).hexdigest()[:8]
    return f"{run_id[: LONGEST - len(ending) - 9]}-{short}{ending}"


async def _fork(services: Services, runs: RestingRuns, row: RunRow, at: int) -> tuple[str, list[str]]:
    """Make the fork, if it is not there; returns its name, and the signals that it has not got."""
    name, home = name_of_fork(row.run_id, at), await runs.reader.lineage.home(row, at)
    there = await services.store.run(name)
    if there is None:
        has_undo = (await runs.reader.look_back(row.run_id, at)).state.undo is not None
        as_it_is: dict[str, Any] = {"keep_keys": True, "keep_undo": has_undo}
        made = await fork(services, runs.reader, row.run_id, at, _NOTHING, fork_id=name, **as_it_is)
        return made.run_id, await copy_untaken(services, row.run_id, made.run_id, at)
    if (there.parent_run_id, there.forked_at) != (home.run_id, at):
        raise BadRequest(
            f"there is a run {name!r} that does not come from checkpoint {at} of run {row.run_id!r}.",
            fix=f"Fork it under another id: everstep fork {row.run_id} --at {at} --as ID",
        )
    return name, await copy_untaken(services, row.run_id, name, at)  # a crash may have come in between


async def _leave_alone(services: Services, runs: RestingRuns, lease: Lease, told: Fallback) -> None:
    reason = f"{told.reason} It goes on from checkpoint {told.at} as run {told.fork!r}."
    if not await services.store.set_aside(told.run_id, epoch=lease.epoch, reason=reason):
        await runs.release(lease)


async def _behind(
    services: Services, row: RunRow, at: int, flow: Flow
) -> tuple[tuple[Repeated, ...], tuple[int, ...]]:
    """Return what the checkpoints behind one tell of effects, and those that tell nothing."""
    steps: dict[tuple[str, int], Repeated] = {}
    unread: list[int] = []
    first = max(at + 1, row.first)
    while first <= row.checkpoints and len(unread) < 100:
        last = min(first + _PAGE - 1, row.checkpoints)
        bodies = await _bodies(services, row.run_id, first, last)
        for sequence in range(first, last + 1):
            try:
                record = glance(bodies.get(sequence, b""), f"checkpoint {sequence}").record
            except EverstepError:
                unread.append(sequence)
                continue
            for one in _effects_of(record.steps, sequence, flow.plan):
                steps[one.path, one.visit] = one
        first = last + 1
    return tuple(steps.values()), tuple(unread[:100])


async def _bodies(services: Services, run_id: str, first: int, last: int) -> dict[int, bytes]:
    try:
        return {r.sequence: r.body for r in await services.store.get(run_id, first=first, last=last)}
    except StateCorrupted:
        if first == last:
            return {}
    found: dict[int, bytes] = {}
    for sequence in range(first, last + 1):
        found |= await _bodies(services, run_id, sequence, sequence)
    return found


def _effects_of(steps: tuple[StepRecord, ...], sequence: int, plan: Plan) -> Iterator[Repeated]:
    for step in steps:
        if step.path[:1] in ("@", "") or step.status is Status.HALTED:
            continue
        effects = _effects_at(plan, step.path)
        if effects is None or effects in _HARMLESS:
            continue
        yield Repeated(
            path=step.path,
            visit=step.visit,
            sequence=sequence,
            status=step.status,
            effects=effects,
            key=step.key,
        )


def _effects_at(plan: Plan, path: str) -> Effects | None:
    """Return the effects of the node that a path names; none if that only opens or ends what lies inside."""
    *outer, last = path.split("/")
    for segment in outer:
        i = plan.index.get(_name(segment))
        if i is None or i not in plan.children:
            return Effects.UNDECLARED
        plan = plan.children[i].plan
    i = plan.index.get(_name(last))
    if i is None:
        return Effects.UNDECLARED
    child = plan.children.get(i)
    if child is not None and not child.is_atomic and (not child.is_leaf or "#" not in last):
        return None
    return Effects(plan.nodes[i].effects)


def _name(segment: str) -> str:
    return segment.partition("#")[0].partition("@")[0]
