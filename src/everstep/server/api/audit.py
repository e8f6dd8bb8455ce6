"""The audit log over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.server.checks import AUDIT, asked_in
from everstep.server.endpoint import Service
from everstep.server.shapes import AuditLog
from everstep.server.wire import answer


async def listing(service: Service, request: Request) -> Response:
    """Say who did what."""
    asked = asked_in(request, AUDIT)
    after = asked.pop("after", None)
    found = await service.host.fleet.audit(**asked, after=None if after is None else int(after))
    is_full = len(found) == asked.get("limit", 100)
    return answer(AuditLog(audit=found, next=found[-1].number if is_full else None))
