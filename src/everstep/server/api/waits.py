"""Waits: list, show, answer, issue a token anew."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from everstep.client.views import WaitInfo
from everstep.errors import BadRequest
from everstep.model.waits import WaitStatus
from everstep.server.bodies import WHO, expect_object, read_json, who_of
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
from everstep.server.wire import answer, moment, wait_wire

KIND = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
LONGEST_TTL = 10 * 365 * 24 * 3600


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
    return answer({"waits": [wait_wire(wait) for wait in found], "next": following})


async def show(service: Service, request: Request) -> Response:
    """Show one wait."""
    return answer(wait_wire(await service.host.wait(wait_id_of(request))))


async def settle(service: Service, request: Request) -> Response:
    """Answer a wait as its operator."""
    wait_id = wait_id_of(request)
    given = await _given(service, request, await service.host.wait(wait_id))
    return answer(wait_wire(await service.host.answer(wait_id, given, **who_of(request))))


async def _given(service: Service, request: Request, wait: WaitInfo) -> Any:
    """Read an answer. Only a timer may go without: an empty body is no answer."""
    return await read_json(request, service.max_body, default=None if wait.kind == "timer" else ...)


async def reissue(service: Service, request: Request) -> Response:
    """Give a wait another token; the one it had dies."""
    wait_id = wait_id_of(request)
    body = expect_object(
        await read_json(request, service.max_body, default={}),
        optional=["ttl_seconds", "single_use", "metadata", *WHO],
    )
    single_use = body.get("single_use", True)
    if not isinstance(single_use, bool):
        raise BadRequest("single_use is neither true nor false.", fix='Send {"single_use": true}.')
    how: dict[str, Any] = {"ttl": _ttl(body.get("ttl_seconds")), "single_use": single_use}
    how["metadata"] = body.get("metadata")
    wait = await service.host.waiting.reissue(wait_id, **how, **who_of(request, body))
    return answer(wait_wire(wait))


def _ttl(seconds: Any) -> timedelta | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 1 <= seconds <= LONGEST_TTL:
        raise BadRequest(
            "ttl_seconds is not a number of seconds.", fix=f"Use a number from 1 to {LONGEST_TTL}."
        )
    return timedelta(seconds=seconds)


async def answer_by_token(service: Service, request: Request) -> Response:
    """Answer a wait with its token alone. Nothing more of the wait is told."""
    token = token_of(request)
    # Without a token nothing else is looked at.
    given = await _given(service, request, await service.host.wait(token))
    wait = await service.host.answer(token, given, **who_of(request))
    return answer({"status": "settled", "settled_at": moment(wait.settled_at)})
