"""What is checked before a flow runs on a host: everything that `validate` finds."""

from __future__ import annotations

from copy import copy

from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.graph.check.validate import validate
from everstep.model.durability import Durability
from everstep.model.enums import Mode
from everstep.runtime.services import Cleared, Services


def preflight(flow: Flow, services: Services) -> Flow:
    """Return the flow as this host runs it, or raise for its errors and for what the host lacks.

    Without a store nothing can be kept, so the flow runs with durability off. A flow without errors is not
    examined again.
    """
    check_flow(flow)
    cleared = services.cleared.get(flow)
    if cleared is None or cleared.durability is not flow.durability:
        validate(flow, services.offers).raise_for_errors()
        ready = None
        if services.max_mode is Mode.OFF and flow.durability.mode is not Mode.OFF:
            ready = copy(flow)
            ready.durability = Durability("off")
        cleared = services.cleared[flow] = Cleared(flow.durability, ready)
    return cleared.ready or flow


def check_flow(flow: object) -> None:
    """Raise if this is no flow; a node passed by mistake is told how to become one."""
    if isinstance(flow, Node):
        raise BadRequest(f"{flow.name!r} is a node.", fix=f"Run a flow: Flow({flow.name!r}, [{flow.name}]).")
    if not isinstance(flow, Flow):
        raise BadRequest(f"{flow!r} is not a flow.", fix="Build one with Flow(name, nodes).")
