"""Waits: list, show, answer, issue a token anew."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from everstep.client.views import WaitInfo
from everstep.model.waits import UNSAID, WaitStatus
from everstep.server.access.roles import Principal, Role
from everstep.server.bodies import read_json, read_struct, who_of
from everstep.server.callers import check_run_seen, check_wait_seen, page_for, seen_by
from everstep.server.checks import (
    ADDRESS,
    WAIT_ID,
    WAIT_STATUSES,
    limit_of,
    matching,
    one_of,
    run_id_of,
    token_of,
    wait_id_of,
)
from everstep.server.endpoint import Service
from everstep.server.shapes import Reissue, Settle, Settled, Signed, Waits
from everstep.server.wire import answer

KIND = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


async def listing(service: Service, request: Request) -> Response:
    """List waits, the oldest first."""
    caller, limit = seen_by(request), limit_of(request)
    run_id, after = matching(request, "run_id", ADDRESS), matching(request, "after", WAIT_ID)
    wanted: dict[str, Any] = {
        "flow": request.query_params.get("flow"),
        "kind": matching(request, "kind", KIND),
        "status": WaitStatus(one_of(request, "status", WAIT_STATUSES) or WaitStatus.OPEN),
    }
    if run_id is not None:
        await check_run_seen(service, caller, run_id)
    if after is not None:
        await check_wait_seen(service, caller, after)

    async def fetch(after: str | None, limit: int) -> tuple[list[WaitInfo], str | None]:
        rows = await service.host.waits(run_id, **wanted, limit=limit, after=after)
        return rows, rows[-1].id if len(rows) == limit else None

    found = await page_for(service, caller, fetch, lambda wait: wait.id, after, limit)
    rows = [_without_secret(caller, wait) for wait in found.rows]
    return answer(Waits(waits=rows, next=found.next))


def _without_secret(caller: Principal, wait: WaitInfo) -> WaitInfo:
    """Return a wait without its token unless the caller may act on its run anyway: a token is no name."""
    if caller.role.includes(Role.OPERATOR):
        return wait
    return replace(wait, token=None, link=None)


async def show(service: Service, request: Request) -> Response:
    """Show one wait."""
    wait = await service.host.wait(wait_id_of(request))
    return answer(_without_secret(seen_by(request), wait))


async def settle(service: Service, request: Request) -> Response:
    """Answer a wait as its operator."""
    wait_id = wait_id_of(request)
    given = await _given(service, request, await service.host.wait(wait_id))
    settled = await service.host.answer(wait_id, given, **who_of(request))
    return answer(_without_secret(seen_by(request), settled))


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


async def fire(service: Service, request: Request) -> Response:
    """Settle a wait as its clock would."""
    wait_id = wait_id_of(request)
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(await service.host.waiting.fire(wait_id, **who_of(request, body)))


async def revoke(service: Service, request: Request) -> Response:
    """Make the token of a wait worthless."""
    wait_id = wait_id_of(request)
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    await service.host.waiting.revoke(wait_id, **who_of(request, body))
    return answer(await service.host.wait(wait_id))


async def settle_effect(service: Service, request: Request) -> Response:
    """Say what became of an effect that was begun and never reported."""
    run_id = run_id_of(request)
    body = await read_struct(request, service.max_body, Settle)
    done = UNSAID if body.done is UNSET else body.done
    settling = service.host.waiting.settle
    said: dict[str, Any] = {"done": done, "rerun": body.rerun, "skip": body.skip}
    return answer(await settling(run_id, body.step, **said, **who_of(request, body)))


async def answer_by_token(service: Service, request: Request) -> Response:
    """Answer a wait with its token alone. Nothing more of the wait is told."""
    token = token_of(request)
    # Without a token nothing else is looked at.
    given = await _given(service, request, await service.host.wait(token))
    wait = await service.host.answer(token, given, **who_of(request))
    if wait.status is WaitStatus.OPEN:
        return answer(Settled(status="open", settled_at=None))
    return answer(Settled(settled_at=wait.settled_at))
