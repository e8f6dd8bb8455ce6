"""Waits: list, show, answer, issue a token anew."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from everstep.client.views import WaitInfo
from everstep.model.waits import WaitStatus
from everstep.server.bodies import read_json, read_struct, who_of
from everstep.server.checks import (
    ADDRESS,
    WAIT_ID,
    WAIT_STATUSES,
    limit_of,
    matching,
    one_of,
    token_of,
    wait_id_of,
)
from everstep.server.endpoint import Service
from everstep.server.shapes import Reissue, Settled, Waits
from everstep.server.wire import answer

KIND = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


async def listing(service: Service, request: Request) -> Response:
    """List waits, the oldest first."""
    limit = limit_of(request)
    found = await service.host.waits(
        matching(request, "run_id", ADDRESS),
        flow=request.query_params.get("flow"),
        kind=matching(request, "kind", KIND),
        status=WaitStatus(one_of(request, "status", WAIT_STATUSES) or WaitStatus.OPEN),
        limit=limit,
        after=matching(request, "after", WAIT_ID),
    )
    following = found[-1].id if len(found) == limit else None
    return answer(Waits(waits=found, next=following))


async def show(service: Service, request: Request) -> Response:
    """Show one wait."""
    return answer(await service.host.wait(wait_id_of(request)))


async def settle(service: Service, request: Request) -> Response:
    """Answer a wait as its operator."""
    wait_id = wait_id_of(request)
    given = await _given(service, request, await service.host.wait(wait_id))
    return answer(await service.host.answer(wait_id, given, **who_of(request)))


async def _given(service: Service, request: Request, wait: WaitInfo) -> Any:
    """Read an answer. Only a timer may go without: an empty body is no answer."""
    return await read_json(request, service.max_body, default=None if wait.kind == "timer" else ...)


async def reissue(service: Service, request: Request) -> Response:
    """Give a wait another token; the one it had dies."""
    wait_id = wait_id_of(request)
    body = await read_struct(request, service.max_body, Reissue, is_required=False)
    ttl = None if body.ttl_seconds is None else timedelta(seconds=body.ttl_seconds)
    how: dict[str, Any] = {"ttl": ttl, "single_use": body.single_use, "metadata": body.metadata}
    wait = await service.host.waiting.reissue(wait_id, **how, **who_of(request, body))
    return answer(wait)


async def answer_by_token(service: Service, request: Request) -> Response:
    """Answer a wait with its token alone. Nothing more of the wait is told."""
    token = token_of(request)
    # Without a token nothing else is looked at.
    given = await _given(service, request, await service.host.wait(token))
    wait = await service.host.answer(token, given, **who_of(request))
    return answer(Settled(settled_at=wait.settled_at))
