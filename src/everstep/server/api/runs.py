"""Runs: start, list, show, cancel, resume; and the workers that drive them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from everstep.client.shaping import shaped_channel, shaped_inputs
from everstep.client.views import RunInfo, StartedRun, WorkerInfo
from everstep.errors import BadRequest, EverstepError
from everstep.graph.author.flow import Flow
from everstep.model.commits import BULK_FLOW
from everstep.server.access.roles import Principal, Role
from everstep.server.access.withheld import check_fields
from everstep.server.bodies import read_struct, who_of
from everstep.server.callers import (
    check_id_free,
    check_run_seen,
    check_start_seen,
    flows_for,
    page_for,
    seen_by,
    tags_for,
)
from everstep.server.checks import (
    CHECKPOINT,
    COUNT,
    DEFAULT_LIMIT,
    DURATIONS,
    MOST,
    RUNS,
    asked_in,
    flow_named,
    limit_of,
    matching,
    run_id_of,
)
from everstep.server.endpoint import Service
from everstep.server.shapes import (
    Cancelled,
    Driver,
    Halted,
    Result,
    Resume,
    RunCounts,
    Runs,
    ShownRun,
    Signed,
    Start,
    State,
    Tags,
    Undone,
    UntakenRuns,
    Workers,
)
from everstep.server.wire import answer


async def start(service: Service, request: Request) -> Response:
    """Accept a run durably; a worker drives it."""
    body = await read_struct(request, service.max_body, Start)
    flow = flow_named(flows_for(service, request), body.flow)
    check_start_seen(seen_by(request), body.flow, body.tags)
    await check_id_free(service, request, body.run_id)
    info = await service.host.start(
        flow,
        shaped_inputs(body.inputs or {}, flow.input_hints),
        run_id=body.run_id,
        channel=None if body.channel is None else shaped_channel(body.channel, flow.channel),
        priority=body.priority,
        group=body.group,
        tags=body.tags,
        attributes=body.attributes,
        at=body.at,
        after=body.after,
        deadline=body.deadline,
        **who_of(request, body),
    )
    status = 202
    if isinstance(info, StartedRun) and info.joined:
        await check_run_seen(service, seen_by(request), info.run_id)  # another may have started it
        status = 200
    return answer(info, status, {"Location": f"/runs/{info.run_id}"})


async def listing(service: Service, request: Request) -> Response:
    """List runs, newest first."""
    caller, asked = seen_by(request), asked_in(request, RUNS)
    if caller.role is Role.VIEWER:
        check_fields(asked, service.host.clock.now())
    before, limit = asked.pop("before", None), asked.pop("limit", DEFAULT_LIMIT)
    if before is not None:
        await check_run_seen(service, caller, before)
    asked |= _narrowed(caller, asked)

    async def fetch(before: str | None, limit: int) -> tuple[list[RunInfo], str | None]:
        found = await service.host.runs(**asked, before=before, limit=limit)
        return found, found.next

    found = await page_for(service, caller, fetch, lambda run: run.run_id, before, limit)
    return answer(Runs(runs=found.rows, next=found.next))


def _narrowed(caller: Principal, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a store can leave out for a caller who sees some runs only."""
    found: dict[str, Any] = {}
    if caller.flows is not None and len(caller.flows) == 1 and "flow" not in asked:
        [found["flow"]] = caller.flows
    if caller.tags is not None and len(caller.tags) == 1:
        found["tag"] = [*asked.get("tag", ()), *caller.tags]
    return found


async def count(service: Service, request: Request) -> Response:
    """Count runs."""
    asked = asked_in(request, COUNT)
    if seen_by(request).role is Role.VIEWER:
        check_fields(asked, service.host.clock.now())
    found = await service.host.fleet.count(**asked)
    return answer(RunCounts(by=found.by, runs=found.runs, next=found.next))


async def durations(service: Service, request: Request) -> Response:
    """Say how long runs took."""
    asked = asked_in(request, DURATIONS)
    if seen_by(request).role is Role.VIEWER:
        check_fields(asked, service.host.clock.now())
    return answer(await service.host.fleet.durations(**asked))


async def tag(service: Service, request: Request) -> Response:
    """Tag a run, and take tags away."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Tags)
    told = who_of(request, body)
    return answer(await service.host.fleet.tag(run_id, body.add, remove=body.remove, **told))


async def workers(service: Service, request: Request) -> Response:
    """List the workers that are alive."""
    caller, found = seen_by(request), await service.host.fleet.workers()
    if caller.is_restricted:
        found = [worker for worker in found if caller.of_those(worker.flows)]
        tags = await tags_for(service, caller, [run.run_id for worker in found for run in worker.longest])
        found = [_as_seen(caller, worker, tags) for worker in found]
    return answer(Workers(workers=found))


def _as_seen(caller: Principal, worker: WorkerInfo, tags: Mapping[str, Mapping[str, str]]) -> WorkerInfo:
    longest = [run for run in worker.longest if caller.sees(run.flow_id, tags.get(run.run_id))]
    takes = [taken for taken in worker.takes if caller.sees_flow(taken.flow_id)]
    return replace(worker, flows=caller.of_those(worker.flows), longest=longest, takes=takes)


async def untaken(service: Service, request: Request) -> Response:
    """List runs that no live worker will take."""
    caller, limit = seen_by(request), limit_of(request)
    found = await service.host.fleet.untaken(limit=MOST if caller.is_restricted else limit)
    tags = await tags_for(service, caller, [run.run_id for run in found])
    seen = [run for run in found if caller.sees(run.flow, tags.get(run.run_id))]
    return answer(UntakenRuns(runs=seen[:limit]))


async def show(service: Service, request: Request) -> Response:
    """Show one run."""
    run_id = run_id_of(request)
    told = ShownRun(**asdict(await service.host.info(run_id)))
    with suppress(EverstepError):  # asking for its state says what is wrong with its records
        state = await service.host.state(run_id)
        told = replace(told, guards=state.guards, **state.times())
        if told.flow == BULK_FLOW:
            told = replace(told, bulk=await service.host.fleet.bulk_progress(told.run_id))
    if told.is_driven:
        told = replace(told, driver=await _driver(service, told.run_id))
    return answer(told)


async def _driver(service: Service, run_id: str) -> Driver | UnsetType:
    """Return the worker that drives a run, if it says so."""
    for worker in await service.host.fleet.workers():
        for driven in worker.longest:
            if driven.run_id == run_id:
                return Driver(host=worker.host, pid=worker.pid, since=driven.since)
    return UNSET


async def state(service: Service, request: Request) -> Response:
    """Show the values of a run at a checkpoint."""
    run_id = run_id_of(request)
    at = matching(request, "at", CHECKPOINT)
    place = int(at) if at is not None and at.isdecimal() else at
    return answer(State.of(await service.host.state(run_id, place)))


async def cancel(service: Service, request: Request) -> Response:
    """Cancel a run."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    status = await service.host.cancel(run_id, **who_of(request, body))
    return answer(Cancelled(run_id=run_id, status=status))


async def undo(service: Service, request: Request) -> Response:
    """Undo what a run did."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    status = await service.host.undo(run_id, **who_of(request, body))
    undoing = (await service.host.info(run_id)).undoing
    return answer(Undone(run_id=run_id, status=status, undoing=undoing))


async def resume(service: Service, request: Request) -> Response:
    """Drive a run in this process until it ends or halts."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Resume, is_required=False)
    info = await service.host.info(run_id)
    run_id, flows, signed = info.run_id, flows_for(service, request), who_of(request, body)
    if body.deadline is not None:
        signed["deadline"] = body.deadline
    if not service.works or not body.drive:
        flow = flows.get(info.flow)
        return await _leave_to_workers(service, run_id, flow, body.start, signed, falls_back=body.fallback)
    flow = flow_named(flows, info.flow)
    how: dict[str, Any] = {"start": body.start, "fallback": body.fallback, **signed}
    result = await service.host.resume(run_id, flow, at_once=True, **how)
    if result.status == "halted" or result.is_paused:
        told = Halted(
            halted=result.status == "halted",
            run_id=result.run_id,
            waits=result.waits,
            paused=result.is_paused,
            fallback=UNSET if result.fallback is None else result.fallback,
        )
        return answer(told, 202)
    return answer(Result.of(result))


async def _leave_to_workers(
    service: Service,
    run_id: str,
    flow: Flow | None,
    start: str | None,
    signed: dict[str, Any],
    *,
    falls_back: bool,
) -> Response:
    if falls_back:
        raise BadRequest(
            "this service drives no runs, and a fallback begins with driving one.",
            fix=f"Where the run can be driven: everstep resume {run_id} --fallback",
        )
    info = await service.host.fleet.reopen(run_id, flow, start=start, **signed)
    waits = await service.host.waits(run_id)
    return answer(Halted(halted=info.status == "halted", run_id=run_id, waits=waits), 202)
