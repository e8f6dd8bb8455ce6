"""One act on many runs, and how far it has come."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from everstep.errors import Forbidden
from everstep.server.access.roles import Principal, Role
from everstep.server.bodies import read_struct, who_of
from everstep.server.callers import seen_by
from everstep.server.endpoint import Service
from everstep.server.shapes import Bulk
from everstep.server.wire import answer


async def bulk(service: Service, request: Request) -> Response:
    """Do something to all runs that a query asks for, or say what would be done."""
    body, caller = await read_struct(request, service.max_body, Bulk), seen_by(request)
    _check_may(caller, body.act)
    how = {**body.options(), "flows": caller.flows, "tags": caller.tags, **who_of(request, body)}
    fleet = service.host.fleet
    if body.dry_run:
        return answer(await fleet.bulk(body.act, body.where, dry_run=True, sample=body.sample, **how))
    run_id = await fleet.bulk(body.act, body.where, **how)
    return answer(await fleet.bulk_progress(run_id), 202, {"Location": f"/runs/{run_id}"})


def _check_may(caller: Principal, act: str) -> None:
    """Refuse to do to many runs what the caller may not do to one."""
    if act == "erase" and not caller.role.includes(Role.ADMIN):
        raise Forbidden(
            f"to erase runs takes the role {Role.ADMIN}, and {caller.name} has the role {caller.role}.",
            fix="Ask someone who has it.",
        )
