"""Notices over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.server.bodies import read_struct, who_of
from everstep.server.checks import NOTICES, asked_in
from everstep.server.endpoint import Service
from everstep.server.shapes import NoticeList, NoticesAgain, Signed
from everstep.server.wire import answer


async def listing(service: Service, request: Request) -> Response:
    """Say whom runs told of what, and what became of it."""
    asked = asked_in(request, NOTICES)
    before = asked.pop("before", None)
    found = await service.host.notices.find(**asked, before=None if before is None else int(before))
    is_full = len(found) == asked.get("limit", 100)
    return answer(NoticeList(notices=found, next=found[-1].number if is_full else None))


async def again(service: Service, request: Request) -> Response:
    """Have a notice sent once more."""
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(await service.host.notices.again(request.path_params["notice_id"], **who_of(request, body)))


async def again_all(service: Service, request: Request) -> Response:
    """Have all dead letters sent once more."""
    body = await read_struct(request, service.max_body, Signed, is_required=False)
    return answer(NoticesAgain(again=await service.host.notices.again_all(**who_of(request, body))))
