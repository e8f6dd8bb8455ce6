"""Runs: start, list, show, cancel, resume; and the workers that drive them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from everstep.client.shaping import shaped, shaped_inputs
from everstep.codec.wire import wire
from everstep.errors import BadRequest, EverstepError
from everstep.graph.author.flow import Flow
from everstep.server.bodies import read_struct, who_of
from everstep.server.checks import CHECKPOINT, COUNT, RUNS, asked_in, flow_named, matching, run_id_of
from everstep.server.endpoint import Service
from everstep.server.shapes import (
    Cancelled,
    Halted,
    Result,
    Resume,
    Runs,
    Signed,
    Start,
    State,
    Tags,
    Workers,
)
from everstep.server.wire import answer


async def start(service: Service, request: Request) -> Response:
    """Accept a run durably; a worker drives it."""
    body = await read_struct(request, service.max_body, Start)
    flow = flow_named(service.flows, body.flow)
    info = await service.host.start(
        flow,
        shaped_inputs(body.inputs or {}, flow.input_hints),
        run_id=body.run_id,
        channel=_channel(flow, body.channel),
        priority=body.priority,
        group=body.group,
        tags=body.tags,
        attributes=body.attributes,
        **who_of(request, body),
    )
    return answer(info, 202, {"Location": f"/runs/{info.run_id}"})


def _channel(flow: Flow, channel: dict[str, Any] | None) -> dict[str, Any] | None:
    if channel is None:
        return None
    hints = flow.channel or {}
    return {key: shaped(key, value, [hints[key]] if key in hints else []) for key, value in channel.items()}


async def listing(service: Service, request: Request) -> Response:
    """List runs, newest first."""
    found = await service.host.runs(**asked_in(request, RUNS))
    return answer(Runs(runs=found, next=found.next))


async def count(service: Service, request: Request) -> Response:
    """Count runs."""
    return answer(await service.host.fleet.count(**asked_in(request, COUNT)))


async def tag(service: Service, request: Request) -> Response:
    """Tag a run, and take tags away."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Tags)
    told = who_of(request, body)
    return answer(await service.host.fleet.tag(run_id, body.add, remove=body.remove, **told))


async def workers(service: Service, request: Request) -> Response:
    """List the workers that are alive."""
    return answer(Workers(workers=await service.host.fleet.workers()))


async def show(service: Service, request: Request) -> Response:
    """Show one run."""
    run_id = run_id_of(request)
    told = wire(await service.host.info(run_id))
    with suppress(EverstepError):  # asking for its state says what is wrong with its records
        told["guards"] = wire((await service.host.state(run_id)).guards)
    return answer(told)


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


async def resume(service: Service, request: Request) -> Response:
    """Drive a run in this process until it ends or halts."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Resume, is_required=False)
    info = await service.host.info(run_id)
    run_id, flow = info.run_id, flow_named(service.flows, info.flow)
    signed = who_of(request, body)
    if not service.works:
        return await _leave_to_workers(service, run_id, flow, body.start, signed, falls_back=body.fallback)
    how: dict[str, Any] = {"start": body.start, "fallback": body.fallback, **signed}
    result = await service.host.resume(run_id, flow, at_once=True, **how)
    if result.status == "halted":
        fallback = UNSET if result.fallback is None else result.fallback
        return answer(Halted(halted=True, run_id=result.run_id, waits=result.waits, fallback=fallback), 202)
    return answer(Result.of(result))


async def _leave_to_workers(
    service: Service,
    run_id: str,
    flow: Flow,
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
