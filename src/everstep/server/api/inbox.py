"""Signals and events: send one to a run, look at its inbox, publish."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from everstep.errors import BadRequest
from everstep.server.bodies import read_struct, who_of
from everstep.server.callers import flows_for
from everstep.server.checks import event_of, flow_named, limit_of, matching, run_id_of
from everstep.server.endpoint import Service
from everstep.server.shapes import Drop, Inbox, Publish, Send, Turn
from everstep.server.wire import answer

NUMBER = r"[0-9]{1,12}"


async def send(service: Service, request: Request) -> Response:
    """Send a signal to a run, or take a turn: drive it on in this process until it waits again or ends."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Send)
    how: dict[str, Any] = {"id": body.id, **who_of(request, body)}
    if not body.drive:
        return answer(await service.host.send(run_id, body.name, body.value, **how))
    if not service.works:
        raise BadRequest(
            "this service drives no runs.",
            fix=f"Leave `drive` out: workers go on with it, and GET /runs/{run_id}/events tells how.",
        )
    flow = flow_named(flows_for(service, request), (await service.host.info(run_id)).flow)
    result = await service.host.send(run_id, body.name, body.value, drive=flow, **how)
    return answer(Turn.of(result), 202 if result.status == "halted" else 200)


async def publish(service: Service, request: Request) -> Response:
    """Publish an event."""
    name = event_of(request)
    body = await read_struct(request, service.max_body, Publish, is_required=False)
    how: dict[str, Any] = {"id": body.id, "keep": body.keep_seconds}
    return answer(await service.host.publish(name, body.value, **how, **who_of(request, body)))


async def look(service: Service, request: Request) -> Response:
    """List what was sent to a run and not taken."""
    limit, after = limit_of(request), matching(request, "after", NUMBER)
    found = await service.host.inbox(run_id_of(request), after=int(after or 0), limit=limit)
    following = found[-1].number if len(found) == limit else None
    return answer(Inbox(signals=found, next=following))


async def drop(service: Service, request: Request) -> Response:
    """Take a signal out of an inbox unread."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Drop)
    return answer(await service.host.drop_signal(run_id, body.id, **who_of(request, body)))
