"""What a run did and when, a stretch at a time: its timeline, its checkpoints, one visit in full."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from everstep.errors import BadRequest
from everstep.server.access.roles import Role
from everstep.server.bodies import cut
from everstep.server.callers import seen_by
from everstep.server.checks import address_of, limit_of, matching, run_id_of
from everstep.server.endpoint import Service
from everstep.server.wire import HEADERS, answer

NUMBER = "[0-9]{1,10}"
NAME = r"[^\x00]{1,1000}"
POINTER = r"|/[^\x00]{0,2000}"
SEGMENTS = 300


def _number(request: Request, name: str) -> int | None:
    said = matching(request, name, NUMBER)
    return None if said is None else int(said)


def _moment(request: Request, name: str) -> datetime | None:
    said = request.query_params.get(name)
    if said is None:
        return None
    try:
        moment = datetime.fromisoformat(said.replace(" ", "+"))
    except ValueError:
        raise BadRequest(f"{name} is {cut(said)}.", fix="Use a time such as 2026-01-31T12:00:00Z.") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


async def timeline(service: Service, request: Request) -> Response:
    """Say when what of a run happened."""
    return answer(
        await service.host.debug.timeline(
            run_id_of(request),
            at=_number(request, "at"),
            since=_moment(request, "since"),
            until=_moment(request, "until"),
            most=limit_of(request, "most", SEGMENTS),
        )
    )


async def checkpoints(service: Service, request: Request) -> Response:
    """List the checkpoints of a run."""
    after, before = _number(request, "after"), _number(request, "before")
    if after is not None and before is not None:
        raise BadRequest("it goes on after a checkpoint, or before one.", fix="Leave one of them out.")
    found = await service.host.debug.checkpoints(
        run_id_of(request), after=after, before=before, limit=limit_of(request)
    )
    return answer(found)


async def visit(service: Service, request: Request) -> Response:
    """Show one visit to a node in full; values of it only to those who may see them."""
    found = await service.host.debug.visit(
        run_id_of(request),
        address_of(request),
        at=_number(request, "at"),
        values=seen_by(request).role is not Role.VIEWER,
    )
    return answer(found)


async def values(service: Service, request: Request) -> Response:
    """Show the values of a run, cut; of one that is named a part and a range."""
    found = await service.host.debug.values(
        run_id_of(request),
        matching(request, "name", NAME),
        at=_number(request, "at"),
        version=_number(request, "version"),
        pointer=matching(request, "pointer", POINTER) or "",
        start=_number(request, "from") or 0,
        count=_number(request, "count"),
    )
    return answer(found)


async def raw_value(service: Service, request: Request) -> Response:
    """Give one value as a file. A browser runs nothing of it and shows nothing but images."""
    name = matching(request, "name", NAME)
    if name is None:
        raise BadRequest("no value is named.", fix="Give its whole name: ?name=order")
    found = await service.host.debug.raw_value(
        run_id_of(request),
        name,
        at=_number(request, "at"),
        version=_number(request, "version"),
        pointer=matching(request, "pointer", POINTER) or "",
    )
    shown = "inline" if found.is_image else "attachment"
    headers = {"Content-Disposition": shown, "Content-Security-Policy": "sandbox; default-src 'none'"}
    return Response(found.data, headers={**HEADERS, **headers}, media_type=found.content_type)
