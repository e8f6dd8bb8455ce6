"""What is kept of runs: pin, unpin, ack, erase."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.errors import BadRequest
from everstep.model.shapes import LONGEST_TEXT
from everstep.server.bodies import cut, read_struct, who_of
from everstep.server.checks import run_id_of
from everstep.server.endpoint import Service
from everstep.server.shapes import Pin, Signed
from everstep.server.wire import answer


async def pin(service: Service, request: Request) -> Response:
    """Keep a run, whatever retention says."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Pin, is_required=False)
    if not body.reason.strip() or "\0" in body.reason:
        raise BadRequest(
            f"reason is {cut(body.reason)}.", fix=f"Send a text of 1 to {LONGEST_TEXT} characters."
        )
    return answer(await service.host.retention.pin(run_id, body.reason, **who_of(request, body)))


async def unpin(service: Service, request: Request) -> Response:
    """Let retention apply to a run again."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(await service.host.retention.unpin(run_id, **who_of(request, body)))


async def ack(service: Service, request: Request) -> Response:
    """Note that the result of a run was taken."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(await service.host.retention.ack(run_id, **who_of(request, body)))


async def erase(service: Service, request: Request) -> Response:
    """Remove a run for good."""
    return answer(await service.host.retention.erase(run_id_of(request), **who_of(request)))
