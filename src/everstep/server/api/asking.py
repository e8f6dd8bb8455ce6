"""What takes the code of a flow: of flows of the service at once, of others asked of a live worker."""

from __future__ import annotations

import re

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from everstep.client.views import RunInfo
from everstep.errors import FlowNotFound
from everstep.graph.author.flow import Flow
from everstep.server.bodies import cut
from everstep.server.callers import flows_for, page_for, seen_by
from everstep.server.checks import FLOW_NAME, limit_of, run_id_of
from everstep.server.endpoint import Service
from everstep.server.wire import answer

_UNFINISHED = "status in (running, halted)"


async def explain(service: Service, request: Request) -> Response:
    """Say what a resume of a run would do."""
    run_id, host = run_id_of(request), service.host
    flow = flows_for(service, request).get((await host.info(run_id)).flow)
    if flow is not None:
        return answer(await host.explain(run_id, flow))
    async with service.questions:
        return answer(await host.fleet.explain(run_id))


async def report(service: Service, request: Request) -> Response:
    """Say what of a flow is durable."""
    async with service.questions:
        return answer(await service.host.fleet.report(_flow_of(service, request)))


async def findings(service: Service, request: Request) -> Response:
    """Say what is wrong or odd about a flow."""
    async with service.questions:
        return answer(await service.host.fleet.findings(_flow_of(service, request)))


async def compat(service: Service, request: Request) -> Response:
    """Say which of the newest unfinished runs can go on with a flow."""
    flow, limit, caller = _flow_of(service, request), limit_of(request), seen_by(request)
    if caller.tags is None:
        async with service.questions:
            return answer(await service.host.fleet.compat(flow, newest=limit))
    name = flow if isinstance(flow, str) else flow.name

    async def fetch(before: str | None, limit: int) -> tuple[list[RunInfo], str | None]:
        found = await service.host.runs(flow=name, where=_UNFINISHED, before=before, limit=limit)
        return found, found.next

    page = await page_for(service, caller, fetch, lambda run: run.run_id, None, limit)
    async with service.questions:
        found = await service.host.fleet.compat(flow, run_ids=[run.run_id for run in page.rows])
    return answer(replace(found, is_whole=found.is_whole and page.next is None))


def _flow_of(service: Service, request: Request) -> Flow | str:
    """Return the flow in the path: as the service has it, or its name if a worker is to be asked."""
    name: str = request.path_params["flow"]
    if not re.fullmatch(FLOW_NAME, name) or not seen_by(request).sees_flow(name):
        raise FlowNotFound(f"there is no flow {cut(name)} here.", fix="List the runs: GET /runs")
    return service.flows.get(name, name)
