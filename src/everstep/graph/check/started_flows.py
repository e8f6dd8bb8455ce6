"""Flows whose runs the nodes of another flow may start. Apart, as few flows have such nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from everstep.errors import BadRequest
from everstep.graph.author.definition import Definition
from everstep.model.enums import Mode


def checked_flows(flow: str, given: Any) -> tuple[Any, ...]:
    """Return the flows that a flow says its nodes may start, or raise what is wrong with them."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise BadRequest(f"flow {flow!r}: starts is {given!r:.60}.", fix="Give a list of flows.")
    listed = tuple(given)
    for one in listed:
        if not (hasattr(one, "plan") and hasattr(one, "durability")):
            raise BadRequest(
                f"flow {flow!r} starts {one!r:.60}.", fix="Give flows: Flow(..., starts=[ship])."
            )
        if one.durability.mode is Mode.OFF:
            raise BadRequest(
                f"flow {flow!r} starts {one.name!r}, whose runs are kept nowhere (durability off).",
                fix="Give it durability 'partial' or 'strong': a run is started once because it is recorded.",
            )
    return joined(flow, listed)


def joined(flow: str, listed: Iterable[Any]) -> tuple[Any, ...]:
    """Return these flows, each once; two of one name cannot be told apart where a start is recorded."""
    found: dict[str, Any] = {}
    for one in listed:
        if found.setdefault(one.name, one) is not one and found[one.name].plan.hash != one.plan.hash:
            raise BadRequest(
                f"flow {flow!r} starts two flows called {one.name!r}.", fix="Call one of them otherwise."
            )
    return tuple(found.values())


def all_started(flows: Iterable[Any]) -> list[Any]:
    """Return these flows with all that their nodes may start, and those of these, each once."""
    found: dict[tuple[str, str], Any] = {}
    left = list(flows)
    while left:
        flow = left.pop(0)
        if found.setdefault((flow.name, flow.plan.hash), flow) is flow:
            left += flow.starts
    return list(found.values())


def startable(flow: Any, wanted: object) -> Any:
    """Return the flow that a node asks to have started, by itself or by its name, if that is declared."""
    name = wanted if isinstance(wanted, str) else getattr(wanted, "name", None)
    for one in (*flow.starts, flow):
        if one.name == name and (
            isinstance(wanted, str) or cast(Definition, wanted).plan.hash == one.plan.hash
        ):
            return one
    return None
