"""Pausing runs, flows and groups over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from everstep.client.views import PauseInfo
from everstep.errors import Forbidden
from everstep.server.access.roles import Principal
from everstep.server.bodies import read_struct, who_of
from everstep.server.callers import seen_by, tags_for
from everstep.server.checks import one_of, run_id_of
from everstep.server.endpoint import Service
from everstep.server.shapes import Pauses, PausesLane, Signed, Unpaused
from everstep.server.wire import answer


async def listing(service: Service, request: Request) -> Response:
    """List what is paused."""
    runs = one_of(request, "runs", ["true", "false"]) != "false"
    caller, found = seen_by(request), await service.host.fleet.pauses(runs=runs)
    if caller.is_restricted:
        tags = await tags_for(service, caller, [one.run_id for one in found if one.run_id is not None])
        found = [one for one in found if _is_seen(caller, one, tags)]
    return answer(Pauses(pauses=found))


def _is_seen(caller: Principal, one: PauseInfo, tags: Mapping[str, Mapping[str, str]]) -> bool:
    if one.run_id is not None:
        return caller.sees(one.flow or "", tags.get(one.run_id))
    return one.flow is None or caller.sees_flow(one.flow)


async def pause(service: Service, request: Request) -> Response:
    """Pause a run."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(await service.host.fleet.pause(run_id, **who_of(request, body)))


async def unpause(service: Service, request: Request) -> Response:
    """Let a run go on."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(Unpaused(unpaused=await service.host.fleet.unpause(run_id, **who_of(request, body))))


async def pause_lane(service: Service, request: Request) -> Response:
    """Pause a flow or a group."""
    body = await read_struct(request, service.max_body, PausesLane)
    _check_seen(seen_by(request), body.flow)
    told = who_of(request, body)
    return answer(await service.host.fleet.pause(flow=body.flow, group=body.group, **told))


async def unpause_lane(service: Service, request: Request) -> Response:
    """Let a flow or a group go on."""
    body = await read_struct(request, service.max_body, PausesLane)
    _check_seen(seen_by(request), body.flow)
    told = who_of(request, body)
    is_done = await service.host.fleet.unpause(flow=body.flow, group=body.group, **told)
    return answer(Unpaused(unpaused=is_done))


def _check_seen(caller: Principal, flow: str | None) -> None:
    """Refuse a flow that the caller does not see, and every flow at once of who sees some only."""
    is_whole = flow is not None and caller.tags is None and caller.sees_flow(flow)
    if caller.is_restricted and not is_whole:
        raise Forbidden(
            f"this is about runs that {caller.name} does not see.", fix="Name a flow of yours, or ask others."
        )
