"""The store itself over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.server.endpoint import Service
from everstep.server.wire import answer


async def show(service: Service, request: Request) -> Response:
    """Say how the store is, and what it keeps."""
    return answer(await service.looked_over.seen(service.host, service.flows.values()))
