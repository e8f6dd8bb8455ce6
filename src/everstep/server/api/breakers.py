"""Shared breakers over HTTP."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from everstep.errors import RunNotFound
from everstep.server.bodies import cut, read_struct, who_of
from everstep.server.checks import BREAKER_NAME
from everstep.server.endpoint import Service
from everstep.server.shapes import Breakers, Signed
from everstep.server.wire import answer


async def listing(service: Service, request: Request) -> Response:
    """List the shared breakers of the store."""
    return answer(Breakers(breakers=await service.host.fleet.breakers()))


async def reset(service: Service, request: Request) -> Response:
    """Close a shared breaker."""
    name: str = request.path_params["breaker"]
    if not re.fullmatch(BREAKER_NAME, name):
        raise RunNotFound(f"{cut(name)} is not a breaker.", fix="List them: GET /breakers")
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(await service.host.fleet.reset_breaker(name, **who_of(request, body)))
