"""What a run did: its nodes at a glance, and its steps in order."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.server.checks import limit_of, matching, one_of, run_id_of
from everstep.server.endpoint import Service
from everstep.server.shapes import Logs, Nodes
from everstep.server.wire import answer


async def nodes(service: Service, request: Request) -> Response:
    """Show a run at a glance."""
    return answer(Nodes.of(await service.host.debug.nodes(run_id_of(request))))


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
