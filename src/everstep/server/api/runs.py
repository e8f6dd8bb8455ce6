"""Runs: start, list, show, cancel, resume; and the workers that drive them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from everstep.client.shaping import shaped, shaped_inputs
from everstep.errors import BadRequest, EverstepError
from everstep.graph.author.flow import Flow
from everstep.server.bodies import WHO, cut, expect_object, read_json, who_of
from everstep.server.checks import (
    CHECKPOINT,
    RUN_ID,
    RUN_STATUSES,
    flow_named,
    limit_of,
    matching,
    one_of,
    run_id_of,
)
from everstep.server.endpoint import Service
from everstep.server.wire import (
    answer,
    fallback_wire,
    result_wire,
    run_wire,
    state_wire,
    wait_wire,
    worker_wire,
)


async def start(service: Service, request: Request) -> Response:
    """Accept a run durably; a worker drives it."""
    body = expect_object(
        await read_json(request, service.max_body),
        required=["flow"],
        optional=["inputs", "run_id", "channel", "priority", "group", *WHO],
    )
    run_id = body.get("run_id")
    if run_id is not None and (not isinstance(run_id, str) or not re.fullmatch(RUN_ID, run_id)):
        raise BadRequest(f"run_id is {cut(str(run_id))}.", fix="Use letters, digits, '.', '_' and '-'.")
    inputs, channel = _object_or_none(body, "inputs"), _object_or_none(body, "channel")
    flow = flow_named(service.flows, body["flow"])
    info = await service.host.start(
        flow,
        _inputs(flow, inputs),
        run_id=run_id,
        channel=_channel(flow, channel),
        priority=body.get("priority", 0),
        group=body.get("group"),
        **who_of(request, body),
    )
    return answer(run_wire(info), 202, {"Location": f"/runs/{info.run_id}"})


def _object_or_none(body: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise BadRequest(f"{name} is not an object.", fix='Send {"name": value}.')
    return value


def _inputs(flow: Flow, inputs: dict[str, Any] | None) -> dict[str, Any]:
    return shaped_inputs(inputs or {}, flow.input_hints)


def _channel(flow: Flow, channel: dict[str, Any] | None) -> dict[str, Any] | None:
    if channel is None:
        return None
    hints = flow.channel or {}
    return {key: shaped(key, value, [hints[key]] if key in hints else []) for key, value in channel.items()}


async def listing(service: Service, request: Request) -> Response:
    """List runs, newest first."""
    limit = limit_of(request)
    found = await service.host.runs(
        flow=request.query_params.get("flow"),
        status=one_of(request, "status", RUN_STATUSES),
        needs_repair=one_of(request, "needs_repair", ["true", "false"]) == "true",
        pinned=one_of(request, "pinned", ["true", "false"]) == "true",
        limit=limit,
        before=matching(request, "before", RUN_ID),
    )
    following = found[-1].run_id if len(found) == limit else None
    return answer({"runs": [run_wire(info) for info in found], "next": following})


async def workers(service: Service, request: Request) -> Response:
    """List the workers that are alive."""
    return answer({"workers": [worker_wire(info) for info in await service.host.fleet.workers()]})


async def show(service: Service, request: Request) -> Response:
    """Show one run."""
    run_id = run_id_of(request)
    told = run_wire(await service.host.info(run_id))
    with suppress(EverstepError):  # asking for its state says what is wrong with its records
        told["guards"] = (await service.host.state(run_id)).guards.to_json()
    return answer(told)


async def state(service: Service, request: Request) -> Response:
    """Show the values of a run at a checkpoint."""
    run_id = run_id_of(request)
    at = matching(request, "at", CHECKPOINT)
    place = int(at) if at is not None and at.isdecimal() else at
    return answer(state_wire(await service.host.state(run_id, place)))


async def cancel(service: Service, request: Request) -> Response:
    """Cancel a run."""
    run_id = run_id_of(request)
    status = await service.host.cancel(run_id, **who_of(request))
    return answer({"run_id": run_id, "status": status.value})


async def resume(service: Service, request: Request) -> Response:
    """Drive a run in this process until it ends or halts."""
    run_id = run_id_of(request)
    body = expect_object(
        await read_json(request, service.max_body, default={}), optional=["start", "fallback", *WHO]
    )
    begin = body.get("start")
    if begin is not None and not isinstance(begin, str):
        raise BadRequest("start is not the name of a node.", fix='Send {"start": "node"}.')
    falls_back = body.get("fallback", False)
    if not isinstance(falls_back, bool):
        raise BadRequest("fallback is neither true nor false.", fix='Send {"fallback": true}.')
    info = await service.host.info(run_id)
    run_id, flow = info.run_id, flow_named(service.flows, info.flow)
    signed = who_of(request, body)
    if not service.works:
        return await _leave_to_workers(service, run_id, flow, begin, signed, falls_back=falls_back)
    how: dict[str, Any] = {"start": begin, "fallback": falls_back, **signed}
    result = await service.host.resume(run_id, flow, at_once=True, **how)
    if result.status == "halted":
        waits = [wait_wire(wait) for wait in result.waits]
        halted = {"halted": True, "run_id": result.run_id, "waits": waits}
        return answer(fallback_wire(result) | halted, 202)
    return answer(result_wire(result))


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
    waits = [wait_wire(wait) for wait in await service.host.waits(run_id)]
    return answer({"halted": info.status == "halted", "run_id": run_id, "waits": waits}, 202)
