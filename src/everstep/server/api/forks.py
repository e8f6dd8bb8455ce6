"""Forks over HTTP: make one, and look at what it would do first."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.client.shaping import shaped_channel, shaped_inputs
from everstep.server.bodies import read_struct, who_of
from everstep.server.callers import check_id_free, flows_for
from everstep.server.checks import CHECKPOINT, matching, one_of, run_id_of
from everstep.server.endpoint import Service
from everstep.server.shapes import Fork
from everstep.server.wire import answer


async def preview(service: Service, request: Request) -> Response:
    """Say what a fork would do first; of what would be edited only the names count."""
    run_id = run_id_of(request)
    at = matching(request, "at", CHECKPOINT)
    names = request.query_params.getlist
    found = await service.host.debug.preview_fork(
        run_id,
        at=int(at) if at is not None and at.isdecimal() else at,
        inputs=names("input"),
        state=names("state"),
        channel=names("channel"),
        choose_again=one_of(request, "choose_again", ["true", "false"]) == "true",
    )
    return answer(found)


async def fork(service: Service, request: Request) -> Response:
    """Make a run that goes on from a checkpoint of another; a worker drives it."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Fork, is_required=False)
    await check_id_free(service, request, body.fork_id)
    flow = flows_for(service, request).get((await service.host.info(run_id.partition("@")[0])).flow)
    inputs, channel = body.inputs, body.channel
    if flow is not None:  # else they are taken as JSON has them
        inputs, channel = shaped_inputs(inputs, flow.input_hints), shaped_channel(channel, flow.channel)
    info = await service.host.fork(
        run_id,
        at=body.at,
        inputs=inputs,
        state=body.state,
        channel=channel,
        fork_id=body.fork_id,
        keep_keys=body.keep_keys,
        choose_again=body.choose_again,
        **who_of(request, body),
    )
    return answer(info, 202, {"Location": f"/runs/{info.run_id}"})
