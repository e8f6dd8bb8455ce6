"""Events of a run: as a stream that a client can pick up again, with what nodes emit, or a page as JSON."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from everstep.codec.wire import wire
from everstep.errors import BadRequest
from everstep.runtime.events import Event
from everstep.server.access.roles import ANYONE, Principal, Role
from everstep.server.access.withheld import without_values
from everstep.server.bodies import cut
from everstep.server.callers import seen_by
from everstep.server.checks import EVENT_ID, limit_of, run_id_of
from everstep.server.endpoint import Service
from everstep.server.shapes import Events
from everstep.server.streams import frame, stream, streamed, wants_stream
from everstep.server.wire import HEADERS, answer


async def events(service: Service, request: Request) -> Response:
    """Give the events of a run after the one that the client saw last."""
    run_id = run_id_of(request)
    after = _after(request)
    limit = limit_of(request)
    info = await service.host.info(run_id)
    if not wants_stream(request):
        return await _page(service, run_id, after, limit)
    if after is not None and info.status.is_final:
        async with aclosing(service.host.events(run_id, after=after, live=False)) as source:
            first = await anext(source, None)
        if first is None:
            return Response(
                status_code=204, headers=HEADERS
            )  # this, and only this, stops a browser's retries
    return streamed(_stream(service, service.host.follow(run_id, after=after), seen_by(request)))


def _after(request: Request) -> str | None:
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    if after is not None and not re.fullmatch(EVENT_ID, after):
        raise BadRequest(f"{cut(after)} is not the id of an event.", fix="Use the last one you saw.")
    return after


async def _page(service: Service, run_id: str, after: str | None, limit: int) -> Response:
    found: list[Event] = []
    async with aclosing(service.host.events(run_id, after=after, live=False)) as source:
        async for event in source:
            found.append(event)
            if len(found) == limit:
                break
    info = await service.host.info(run_id)
    is_last = info.status.is_final and len(found) < limit
    last = found[-1].id if found else after
    return answer(Events(events=found, next=last, ended=is_last))


def _stream(
    service: Service, source: AsyncGenerator[Event, None], caller: Principal = ANYONE
) -> AsyncGenerator[bytes, None]:
    """Send events as the caller may see them."""
    is_viewer = caller.role is Role.VIEWER

    def framed(event: Event) -> bytes:
        return _frame(without_values(event) if is_viewer else event)

    return stream(service, source, framed, caller)


def _frame(event: Event) -> bytes:
    return frame(event.id, event.kind, wire(event))
