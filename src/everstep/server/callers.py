"""Who calls, as handlers ask for it, and what of a listing that caller sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request

from everstep.client.views import RunInfo, WaitInfo
from everstep.errors import BadRequest, RunNotFound, WaitNotFound
from everstep.graph.author.flow import Flow
from everstep.server.access.roles import ANYONE, Principal
from everstep.server.checks import MOST
from everstep.server.endpoint import Service, caller_of

_PAGES = 20
"""How many pages are looked through for a caller who sees some flows only."""


def seen_by(request: Request) -> Principal:
    """Return who looks; that is anyone where no name restricts it."""
    return caller_of(request) or ANYONE


def flows_for(service: Service, request: Request) -> Mapping[str, Flow]:
    """Return the flows of the service that the caller sees."""
    caller = seen_by(request)
    if not caller.is_restricted:
        return service.flows
    return {name: flow for name, flow in service.flows.items() if caller.sees(name)}


async def check_run_seen(service: Service, caller: Principal, run_id: str) -> None:
    """Raise as if a run were not there unless the caller sees it."""
    run_id = run_id.partition("/")[0].partition("@")[0]
    if not await is_run_hidden(service, caller, run_id):
        return
    raise RunNotFound(f"there is no run {run_id!r}.", fix="List them with: everstep runs")


async def is_run_hidden(service: Service, caller: Principal, run_id: str) -> bool:
    """Say whether there is a run that the caller does not see; raise if there is none of that id."""
    return caller.is_restricted and not caller.sees((await service.host.info(run_id)).flow)


async def check_wait_seen(service: Service, caller: Principal, wait_id: str) -> None:
    """Raise as if a wait were not there unless the caller sees its run."""
    if caller.is_restricted and not caller.sees((await service.host.wait(wait_id)).flow):
        raise WaitNotFound(f"there is no wait {wait_id!r}.", fix="Look with: everstep waits")


Row = TypeVar("Row", RunInfo, WaitInfo)


class Page(NamedTuple):
    """What a caller sees of a listing, and behind what it goes on."""

    rows: list[Any]
    next: str | None


Fetch = Callable[[str | None, int], Awaitable[tuple[Sequence[Row], str | None]]]
"""Gives a page behind some row, and behind which the next begins."""


async def page_for(
    caller: Principal, fetch: Fetch[Row], name: Callable[[Row], str], after: str | None, limit: int
) -> Page:
    """Return a page of a listing with what the caller sees; `next` never names what it does not."""
    if not caller.is_restricted:
        rows, following = await fetch(after, limit)
        return Page(list(rows), following)
    found: list[Row] = []
    following = after
    for _ in range(_PAGES):
        rows, following = await fetch(following, MOST)
        found += [row for row in rows if caller.sees(row.flow)]
        if following is None or len(found) >= limit:
            break
    else:
        if not found:
            raise BadRequest("too much had to be looked through.", fix="Name a flow: ?flow=NAME")
    goes_on = following is not None or len(found) > limit
    found = found[:limit]
    return Page(found, name(found[-1]) if found and goes_on else None)
