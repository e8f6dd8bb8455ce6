"""Schedules over HTTP: made, shown, changed, paused, asked to run, filled, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from everstep.client.shaping import shaped_inputs
from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.results import ScheduleInfo
from everstep.server.access.roles import Principal
from everstep.server.bodies import read_struct, who_of
from everstep.server.callers import check_id_free, check_run_seen, check_start_seen, flows_for, seen_by
from everstep.server.checks import MOST, RUN_ID, limit_of, matching, run_id_of
from everstep.server.endpoint import Service
from everstep.server.shapes import (
    AskedRun,
    ChangeSchedule,
    DeletedSchedule,
    Fill,
    MakeSchedule,
    RunSchedule,
    ScheduleList,
    Signed,
    Times,
)
from everstep.server.wire import answer

_PAGES = 20


async def create(service: Service, request: Request) -> Response:
    """Make a schedule of a flow, which need not be here."""
    body = await read_struct(request, service.max_body, MakeSchedule)
    check_start_seen(seen_by(request), body.flow, body.tags or [])
    await check_id_free(service, request, body.id)
    flow = flows_for(service, request).get(body.flow)
    said = body.said() | {"inputs": _shaped(flow, body.inputs)}
    told = await service.host.schedules.create(flow or body.flow, body.id, **said, **who_of(request, body))
    return answer(told, headers={"Location": f"/schedules/{told.schedule_id}"})


def _shaped(flow: Flow | None, inputs: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return inputs if flow is None or inputs is None else shaped_inputs(inputs, flow.input_hints)


async def listing(service: Service, request: Request) -> Response:
    """List schedules, the newest first."""
    caller, limit = seen_by(request), limit_of(request)
    flow, before = request.query_params.get("flow"), matching(request, "before", RUN_ID)
    if before is not None:
        await check_run_seen(service, caller, before)
    schedules = service.host.schedules
    found: list[ScheduleInfo] = []
    for _ in range(_PAGES):
        page = await schedules.list(flow, limit=MOST if caller.is_restricted else limit, before=before)
        found += [one for one in page if _is_seen(caller, one)]
        is_last = len(page) < (MOST if caller.is_restricted else limit)
        if is_last or len(found) >= limit:
            break
        before = page[-1].schedule_id
    else:
        if not found:
            raise BadRequest("too much had to be looked through.", fix="Ask for less: ?flow=NAME")
    goes_on = not is_last or len(found) > limit
    found = found[:limit]
    return answer(ScheduleList(schedules=found, next=found[-1].schedule_id if found and goes_on else None))


def _is_seen(caller: Principal, one: ScheduleInfo) -> bool:
    return caller.sees(one.flow, one.tags)


async def show(service: Service, request: Request) -> Response:
    """Show one schedule."""
    return answer(await service.host.schedules.get(run_id_of(request)))


async def times(service: Service, request: Request) -> Response:
    """Say the next times of a schedule."""
    count = limit_of(request, "count", 10)
    return answer(Times(times=list(await service.host.schedules.times(run_id_of(request), count))))


async def pause(service: Service, request: Request) -> Response:
    """Let a schedule start nothing."""
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(await service.host.schedules.pause(run_id_of(request), **who_of(request, body)))


async def unpause(service: Service, request: Request) -> Response:
    """Let a schedule go on."""
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(await service.host.schedules.unpause(run_id_of(request), **who_of(request, body)))


async def run(service: Service, request: Request) -> Response:
    """Start a run of a schedule now; a worker does it."""
    body = await read_struct(request, service.max_body, RunSchedule, is_required=False)
    told = who_of(request, body)
    run_id = await service.host.schedules.run_now(run_id_of(request), id=body.id, **told)
    return answer(AskedRun(run_id=run_id), 202, {"Location": f"/runs/{run_id}"})


async def change(service: Service, request: Request) -> Response:
    """Change a schedule; a worker does it."""
    schedules, name = service.host.schedules, run_id_of(request)
    body = await read_struct(request, service.max_body, ChangeSchedule)
    told = await schedules.get(name)
    if body.tags is not None:
        check_start_seen(seen_by(request), told.flow, body.tags)
    flow = flows_for(service, request).get(told.flow)
    said = body.said() | {"inputs": _shaped(flow, body.inputs)}
    await schedules.change(name, **said, **who_of(request, body))
    return answer(await schedules.get(name), 202)


async def backfill(service: Service, request: Request) -> Response:
    """Run times gone by; a worker does it."""
    schedules, name = service.host.schedules, run_id_of(request)
    body = await read_struct(request, service.max_body, Fill)
    who = who_of(request, body)
    await schedules.backfill(name, body.since, body.until, at_most=body.at_most, at_once=body.at_once, **who)
    return answer(await schedules.get(name), 202)


async def stop_backfill(service: Service, request: Request) -> Response:
    """Start no more times gone by."""
    schedules, name = service.host.schedules, run_id_of(request)
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    await schedules.stop_backfill(name, **who_of(request, body))
    return answer(await schedules.get(name), 202)


async def delete(service: Service, request: Request) -> Response:
    """Remove a schedule for good."""
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    is_gone = await service.host.schedules.delete(run_id_of(request), **who_of(request, body))
    return answer(DeletedSchedule(deleted=is_gone))
