"""What limits hold back, over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.server.endpoint import Service
from everstep.server.shapes import Limits
from everstep.server.wire import answer


async def listing(service: Service, request: Request) -> Response:
    """List the keys of limits that are in use."""
    return answer(Limits(limits=await service.host.fleet.limits()))
