"""What is checked before a flow runs on a host: whether the host has what the flow needs."""

from __future__ import annotations

from copy import copy

from everstep.errors import BadRequest, HaltNeedsDurability, ServiceMissing
from everstep.graph.flow import Flow
from everstep.graph.node import Node
from everstep.graph.plan import deep_nodes
from everstep.model.durability import Durability
from everstep.model.enums import Mode
from everstep.runtime.services import Services

_RANK = {Mode.OFF: 0, Mode.PARTIAL: 1, Mode.STRONG: 2}


def preflight(flow: Flow, services: Services) -> Flow:
    """Return the flow as this host runs it, or raise for what the host lacks.

    Without a store nothing can be kept, so the flow runs with durability off.
    """
    check_flow(flow)
    halting = [(path, node) for path, node in deep_nodes(flow.plan) if node.halts or node.requires]
    if halting:
        _check_services(flow, halting, services)
    if services.max_mode is Mode.OFF:
        if flow.durability.mode is not Mode.OFF:
            flow = copy(flow)
            flow.durability = Durability("off")
    elif _RANK[flow.durability.mode] > _RANK[services.max_mode]:
        raise ServiceMissing(
            f"flow {flow.name!r} wants durability {flow.durability.mode.value!r}; "
            f"this host keeps at most {services.max_mode.value!r}.",
            fix="Ask for less, or raise max_durability_mode of the host.",
        )
    return flow


def _check_services(flow: Flow, halting: list[tuple[str, Node]], services: Services) -> None:
    has = services.provided
    for path, node in halting:
        if not node.halts:
            continue
        if flow.durability.mode is Mode.OFF:
            raise HaltNeedsDurability(
                f"{path!r} halts, but flow {flow.name!r} is kept nowhere (durability off).",
                fix="Use durability 'partial' or 'strong'.",
            )
        if "checkpoint_store" not in has:
            raise ServiceMissing(
                f"{path!r} halts, and this host has no durability::checkpoint_store.",
                fix="Open the host on a store, such as sqlite:///runs.db.",
                services=["durability::checkpoint_store"],
            )
    wanted = {name for _, node in halting for name in node.requires}
    lacking = sorted(f"durability::{name}" for name in wanted - has)
    if lacking:
        raise ServiceMissing(
            f"flow {flow.name!r} needs {', '.join(lacking)}, which this host does not have.",
            fix=f"It has {', '.join(sorted(has))}.",
            services=lacking,
        )
    for _, node in halting:
        for alias in node.schedulers:
            services.schedulers.of(alias)
        for alias in node.notifiers:
            services.notifiers.of(alias)


def check_flow(flow: object) -> None:
    """Raise if this is no flow; a node passed by mistake is told how to become one."""
    if isinstance(flow, Node):
        raise BadRequest(f"{flow.name!r} is a node.", fix=f"Run a flow: Flow({flow.name!r}, [{flow.name}]).")
    if not isinstance(flow, Flow):
        raise BadRequest(f"{flow!r} is not a flow.", fix="Build one with Flow(name, nodes).")
