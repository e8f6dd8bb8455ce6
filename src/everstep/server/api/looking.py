"""What a run did: its nodes at a glance, and its steps in order. Tracebacks stay with the service."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from everstep.client.projection import NodeInfo, StepLine
from everstep.server.checks import limit_of, matching, one_of, run_id_of
from everstep.server.endpoint import Service
from everstep.server.wire import answer

T = TypeVar("T", NodeInfo, StepLine)


async def nodes(service: Service, request: Request) -> Response:
    """Show a run at a glance."""
    found = await service.host.debug.nodes(run_id_of(request))
    return answer(replace(found, nodes=_untraced(found.nodes)))


async def steps(service: Service, request: Request) -> Response:
    """List the steps of a run, a page at a time."""
    found = await service.host.debug.steps(
        run_id_of(request),
        after=int(matching(request, "after", "[0-9]{1,10}") or 0),
        limit=limit_of(request),
        full=one_of(request, "full", ["true", "false"]) == "true",
    )
    return answer(replace(found, steps=_untraced(found.steps)))


def _untraced(found: list[T]) -> list[T]:
    """Leave out the tracebacks of errors, which name files and show code."""
    return [
        one if one.error is None else replace(one, error=replace(one.error, traceback="")) for one in found
    ]
