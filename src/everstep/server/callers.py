"""Who calls, as handlers ask for it, and what of a listing that caller sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request

from everstep.client.queries import tags_of_runs
from everstep.client.views import RunInfo, WaitInfo
from everstep.errors import BadRequest, FlowChanged, Forbidden, RunNotFound, WaitNotFound
from everstep.graph.author.flow import Flow
from everstep.model.commits import BULK_FLOW, SCHEDULE_FLOW
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
    return {name: flow for name, flow in service.flows.items() if caller.sees_flow(name)}


async def check_run_seen(service: Service, caller: Principal, run_id: str) -> None:
    """Raise as if a run were not there unless the caller sees it."""
    run_id = run_id.partition("/")[0].partition("@")[0]
    if not await is_run_hidden(service, caller, run_id):
        return
    raise RunNotFound(f"there is no run {run_id!r}.", fix="List them with: everstep runs")


async def is_run_hidden(service: Service, caller: Principal, run_id: str) -> bool:
    """Say whether there is a run that the caller does not see; raise if there is none of that id."""
    if not caller.is_restricted:
        return False
    info = await service.host.info(run_id)
    if info.flow == BULK_FLOW and caller.sees_within(await service.host.fleet.bulk_progress(info.run_id)):
        return False
    if info.flow.startswith(SCHEDULE_FLOW):
        told = await service.host.schedules.get(info.run_id)
        return not caller.sees(told.flow, told.tags)
    return not caller.sees(info.flow, info.tags)


async def check_id_free(service: Service, request: Request, run_id: str | None) -> None:
    """Refuse the id of a run that the caller does not see, with nothing told of that run."""
    if run_id is None or not seen_by(request).is_restricted:
        return
    with suppress(RunNotFound):
        if await is_run_hidden(service, seen_by(request), run_id):
            raise FlowChanged(f"the run id {run_id!r} is taken.", fix="Use another one.")


def check_start_seen(caller: Principal, flow: str, tags: Sequence[str] | Mapping[str, str]) -> None:
    """Raise if the caller would not see the run that it starts."""
    given = tags if isinstance(tags, Mapping) else dict.fromkeys(tags, "")
    if not caller.sees(flow, given):
        raise Forbidden(
            f"{caller.name} may start runs with some tags only.",
            fix=f"Give it one of them: {', '.join(sorted(caller.tags or ()))}.",
        )


async def check_wait_seen(service: Service, caller: Principal, wait_id: str) -> None:
    """Raise as if a wait were not there unless the caller sees its run."""
    if not caller.is_restricted:
        return
    wait = await service.host.wait(wait_id)
    if not caller.sees(wait.flow, (await tags_for(service, caller, [wait.run_id])).get(wait.run_id)):
        raise WaitNotFound(f"there is no wait {wait_id!r}.", fix="Look with: everstep waits")


async def tags_for(
    service: Service, caller: Principal, run_ids: Iterable[str]
) -> Mapping[str, Mapping[str, str]]:
    """Return the tags of runs, if what the caller sees depends on them."""
    return {} if caller.tags is None else await tags_of_runs(service.host, dict.fromkeys(run_ids))


Row = TypeVar("Row", RunInfo, WaitInfo)


class Page(NamedTuple):
    """What a caller sees of a listing, and behind what it goes on."""

    rows: list[Any]
    next: str | None


Fetch = Callable[[str | None, int], Awaitable[tuple[Sequence[Row], str | None]]]
"""Gives a page behind some row, and behind which the next begins."""


async def page_for(
    service: Service,
    caller: Principal,
    fetch: Fetch[Row],
    name: Callable[[Row], str],
    after: str | None,
    limit: int,
) -> Page:
    """Return a page of a listing with what the caller sees; `next` never names what it does not."""
    if not caller.is_restricted:
        rows, following = await fetch(after, limit)
        return Page(list(rows), following)
    found: list[Row] = []
    following = after
    for _ in range(_PAGES):
        rows, following = await fetch(following, MOST)
        tags = await tags_for(service, caller, [row.run_id for row in rows])
        found += [row for row in rows if caller.sees(row.flow, tags.get(row.run_id))]
        if following is None or len(found) >= limit:
            break
    else:
        if not found:
            raise BadRequest(
                "too much had to be looked through.", fix="Ask for less: ?flow=NAME, ?where=started > -1d"
            )
    goes_on = following is not None or len(found) > limit
    found = found[:limit]
    return Page(found, name(found[-1]) if found and goes_on else None)
