"""Words about the nodes of a flow that only a terminal needs."""

from __future__ import annotations

from collections.abc import Iterable

from everstep.cli.view.text import count
from everstep.client.outline import node_at, plan_around
from everstep.frontends.phases.places import place_of
from everstep.graph.compile.plan import Plan
from everstep.model.address import item_of, map_of


def is_beside_a_phase(plan: Plan, name: str) -> bool:
    """True for the gate of a phase and what leads on from it: told of once they are reached."""
    node = node_at(plan, name)
    place = place_of(node) if node is not None else None
    return place is not None and place.role != "phase"


def is_tolerated(plan: Plan, path: str) -> bool:
    """True if a group tolerates the failure of the node at a path, so that the run may go on."""
    found = plan_around(plan, path)
    i = found.index.get(path.rpartition("/")[2], -1) if found is not None else -1
    return found is not None and any(found.meetings[j].tolerates for j in found.meets_at.get(i, ()))


def gathered(paths: Iterable[str]) -> list[str]:
    """Write paths for people, those inside one map together: `check (32 items)`."""
    found: dict[str, set[str | None]] = {}
    for path in paths:
        found.setdefault(map_of(path) or path, set()).add(item_of(path))
    return [
        f"{path} ({count(len(items - {None}), 'item')})" if items - {None} else path
        for path, items in found.items()
    ]
