"""Flows: those that there are runs of, and those that the service has; each with its drawing."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from everstep.errors import FlowNotFound
from everstep.graph.check.report import report
from everstep.graph.check.validate import validate
from everstep.results import FlowInfo
from everstep.server.bodies import cut
from everstep.server.callers import flows_for, seen_by
from everstep.server.checks import DRAWING, asked_in, drawn_as
from everstep.server.endpoint import Service
from everstep.server.shapes import Flows, OneFlow, ShownFlow
from everstep.server.wire import answer


async def listing(service: Service, request: Request) -> Response:
    """List flows by name."""
    found = await _flows(service, request)
    return answer(Flows(flows=[found[name] for name in sorted(found)]))


async def show(service: Service, request: Request) -> Response:
    """Show one flow."""
    name = request.path_params["flow"]
    known = (await _flows(service, request)).get(name)
    if known is None:
        raise FlowNotFound(f"there is no flow {cut(name)} here.", fix="List them: GET /flows")
    loaded = flows_for(service, request).get(name)
    asked = drawn_as(asked_in(request, DRAWING))
    drawing = None
    with suppress(FlowNotFound):  # only workers have it
        drawing = await service.host.fleet.drawing(name if loaded is None else loaded, **asked)
    sound = loaded is not None and not loaded.problems.errors
    told = OneFlow(
        **asdict(known),
        drawing=drawing,
        report=report(loaded, service.host).to_json() if loaded is not None and sound else None,
        findings=None if loaded is None else validate(loaded, service.host).to_json(),
        asks="everstep console FILE.py" if loaded is None else None,
    )
    return answer(told)


async def _flows(service: Service, request: Request) -> dict[str, ShownFlow]:
    caller, loaded = seen_by(request), flows_for(service, request)
    told = await service.host.fleet.flows(only=caller.flows, tags=caller.tags)
    found = {one.flow: ShownFlow(**asdict(one), is_loaded=one.flow in loaded) for one in told}
    for name in loaded.keys() - found.keys():
        nothing = FlowInfo(flow=name, runs={}, versions={}, total=0, workers=0)
        found[name] = ShownFlow(**asdict(nothing), is_loaded=True)
    return found
