"""What a run did: its nodes at a glance, and its steps in order."""

from __future__ import annotations

from typing import NoReturn

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from everstep.client.looking.comparison import Comparison
from everstep.errors import BadRequest
from everstep.server.access.roles import Role
from everstep.server.callers import check_run_seen, seen_by
from everstep.server.checks import (
    ADDRESS,
    CHECKPOINT,
    DRAWING,
    NEWEST,
    asked_in,
    drawn_as,
    limit_of,
    matching,
    one_of,
    run_id_of,
)
from everstep.server.endpoint import Service
from everstep.server.shapes import Logs, Nodes
from everstep.server.wire import answer


async def nodes(service: Service, request: Request) -> Response:
    """Show a run at a glance."""
    newest = asked_in(request, [NEWEST]).get(NEWEST.name)
    return answer(Nodes.of(await service.host.debug.nodes(run_id_of(request), newest=newest)))


async def edges(service: Service, request: Request) -> Response:
    """Say which edges of its flow a run took."""
    at = matching(request, "at", CHECKPOINT)
    place = int(at) if at is not None and at.isdecimal() else at
    newest = asked_in(request, [NEWEST])
    return answer(await service.host.debug.edges(run_id_of(request), place, **newest))


async def compare(service: Service, request: Request) -> Response:
    """Compare two runs, or two moments of one."""
    caller = seen_by(request)
    names = [matching(request, name, ADDRESS) for name in ("a", "b")]
    before, after = [name for name in names if name is not None] if None not in names else _nothing()
    for name in (before, after):
        await check_run_seen(service, caller, name)
    found = await service.host.debug.compare(before, after)
    return answer(_without_paths(found) if caller.role is Role.VIEWER else found)


def _nothing() -> NoReturn:
    raise BadRequest("two runs are compared.", fix="Ask for /compare?a=A17&b=A18, or a=A17@3&b=A17@9.")


def _without_paths(found: Comparison) -> Comparison:
    """Return it with a line for each value: what lies inside is called by keys, which are values too."""
    lines = {one.name: replace(one, path=one.name) for one in found.values}
    return replace(found, values=list(lines.values()))


async def logs(service: Service, request: Request) -> Response:
    """Show what the nodes of a run logged and printed."""
    return answer(Logs(logs=await service.host.debug.logs(run_id_of(request))))


async def steps(service: Service, request: Request) -> Response:
    """List the steps of a run, a page at a time."""
    found = await service.host.debug.steps(
        run_id_of(request),
        after=int(matching(request, "after", "[0-9]{1,10}") or 0),
        limit=limit_of(request),
        full=one_of(request, "full", ["true", "false"]) == "true",
    )
    return answer(found)


async def drawing(service: Service, request: Request) -> Response:
    """Say where the nodes of a run's flow stand in a picture of it."""
    asked = drawn_as(asked_in(request, DRAWING))
    found = await service.host.debug.drawing(run_id_of(request), **asked)
    return answer(found, headers={"Cache-Control": "private, no-cache"})
