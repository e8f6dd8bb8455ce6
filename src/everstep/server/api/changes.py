"""What changes in the store, for all who look on: one watcher asks it for them all."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from everstep.client.looking.changes import MOST_NAMED, Changes
from everstep.codec.wire import wire
from everstep.errors import BadRequest
from everstep.server.access.roles import Principal
from everstep.server.bodies import cut
from everstep.server.callers import check_run_seen, seen_by, tags_for
from everstep.server.checks import CHANGE_ID, RUN_ID
from everstep.server.endpoint import Service
from everstep.server.streams import frame, stream, streamed, wants_stream
from everstep.server.wire import answer


async def changes(service: Service, request: Request) -> Response:
    """Tell which runs change, as a stream; or, as JSON, which have changed since a message."""
    caller, after = seen_by(request), _after(request)
    run_ids = await _named(service, caller, request)
    if not wants_stream(request):
        async with aclosing(service.host.changes(run_ids, after=after, live=False)) as source:
            return answer(await _seen(service, caller, await anext(source)))
    source = _as_seen(service, caller, service.host.changes(run_ids, after=after))
    return streamed(stream(service, source, lambda one: frame(one.id, one.kind, wire(one)), caller))


def _after(request: Request) -> str | None:
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    if after is not None and not re.fullmatch(CHANGE_ID, after):
        raise BadRequest(f"{cut(after)} is not the id of a message.", fix="Use the last one you saw.")
    return after


async def _named(service: Service, caller: Principal, request: Request) -> list[str]:
    named = list(dict.fromkeys(request.query_params.getlist("run_id")))
    if len(named) > MOST_NAMED:
        raise BadRequest(f"{len(named)} runs are named.", fix=f"Name {MOST_NAMED}, or none for all.")
    for run_id in named:
        if not re.fullmatch(RUN_ID, run_id):
            raise BadRequest(f"run_id is {cut(run_id)}.", fix="Use one that the service gave out.")
        await check_run_seen(service, caller, run_id)
        await service.host.info(run_id)
    return named


async def _as_seen(
    service: Service, caller: Principal, source: AsyncGenerator[Changes, None]
) -> AsyncGenerator[Changes, None]:
    async with aclosing(source) as told:
        async for one in told:
            yield await _seen(service, caller, one)


async def _seen(service: Service, caller: Principal, told: Changes) -> Changes:
    """Return a message without the runs that the caller does not see."""
    if not caller.is_restricted:
        return told
    runs = [run for run in told.runs if caller.sees_flow(run.flow)]
    tags = await tags_for(service, caller, [run.run_id for run in runs if not run.is_gone])
    return replace(told, runs=[run for run in runs if caller.sees(run.flow, tags.get(run.run_id))])
