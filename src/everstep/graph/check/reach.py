"""Which nodes of a flow can ever run, and what keeps the others from it. Apart from the other checks as an
algorithm of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from everstep.graph.author.node import END, Gate
from everstep.graph.compile.loops import components
from everstep.graph.compile.plan import Plan


class Stuck(NamedTuple):
    """Nodes that wait for each other, so that none of them can be the first."""

    members: tuple[int, ...]
    reasons: tuple[str, ...]
    """What each of them waits for."""
    behind: tuple[int, ...]
    """Nodes that can only run after them."""


def startable(plan: Plan, inputs: frozenset[str] | None = None) -> set[int]:
    """Return the nodes that some run may come to, whatever its gates choose: with these inputs, or with any.

    The least such set: a node is in it once all its required parameters can have values and something that is
    in it leads there; to the target of a gate, only that gate does. Tasks are in it: they bring arguments.
    """
    given = _given(plan, inputs)
    missing = [0 if i in plan.tasks else len(names - given) for i, names in enumerate(plan.required)]
    called = [
        not (plan.is_target[i] or plan.is_led[i]) or plan.is_entry(i) or i in plan.tasks
        for i in range(len(plan.nodes))
    ]
    """True once something leads there: a gate, an edge, or nothing has to."""
    found: set[int] = set()
    todo = [i for i in range(len(plan.nodes)) if called[i] and not missing[i]]
    written = set(given)
    while todo:
        i = todo.pop()
        if i in found:
            continue
        found.add(i)
        n = plan.nodes[i]
        led = [t for t in plan.follows.get(i, ()) if not plan.is_target[t]]  # a target has to be chosen
        if isinstance(n, Gate):
            led += [plan.index[t] for t in n.targets if t != END]
        for t in led:
            called[t] = True
        fresh = [o for o in n.outputs if o not in written]
        written.update(fresh)
        for output in fresh:
            for r in plan.needed_by.get(output, ()):
                missing[r] -= r not in plan.tasks
                led.append(r)
        todo += [t for t in led if called[t] and not missing[t]]
    return found


def _given(plan: Plan, inputs: frozenset[str] | None) -> frozenset[str]:
    """Return the values that need no node; inputs that no node writes are taken for given."""
    return plan.free_inputs | (plan.seeds if inputs is None else inputs)


def stuck(plan: Plan, inputs: frozenset[str] | None = None) -> Iterator[Stuck]:
    """Yield why nodes can never run, with these inputs or any: once for each set that wait for each other."""
    found = startable(plan, inputs)
    left = [i for i in range(len(plan.nodes)) if i not in found]
    if not left:
        return
    gates = {
        t: [g for g, n in enumerate(plan.nodes) if isinstance(n, Gate) and plan.paths[t] in n.targets]
        for t in left
    }
    before = {t: [u for u, vs in plan.follows.items() if t in vs] for t in left}
    written = {o for i in found for o in plan.nodes[i].outputs} | _given(plan, inputs)
    waits = {i: set(_waits_for(plan, i, gates[i], before[i], found, written)) for i in left}
    for members in components(waits):
        if any(other not in members for m in members for other in waits[m]):
            continue  # it waits for others that are told of
        behind = _behind(waits, set(members))
        reasons = tuple(_reason(plan, m, gates[m], before[m], written) for m in members)
        yield Stuck(tuple(members), reasons, tuple(sorted(behind)))


def _waits_for(
    plan: Plan, i: int, gates: list[int], before: list[int], found: set[int], written: set[str]
) -> Iterator[int]:
    """Yield the nodes without which a node cannot start; none of them can start, either."""
    leads = gates if plan.is_target[i] else before
    if (plan.is_target[i] or plan.is_led[i]) and not plan.is_entry(i) and found.isdisjoint(leads):
        yield from leads
    for name in plan.required[i] - written:
        yield from plan.writers.get(name, ())


def _behind(waits: dict[int, set[int]], members: set[int]) -> set[int]:
    behind: set[int] = set()
    grows = True
    while grows:
        fresh = {i for i, others in waits.items() if others & (members | behind)} - members - behind
        behind |= fresh
        grows = bool(fresh)
    return behind


def _reason(plan: Plan, i: int, gates: list[int], before: list[int], written: set[str]) -> str:
    """Say what a node waits for."""
    parts = []
    name = plan.paths[i]
    if before:
        parts.append(f"comes after {_either(plan, before)}")
    if gates:
        parts.append(f"is chosen by {_either(plan, gates)}")
    parts += [
        f"reads {value!r} from {_either(plan, list(plan.writers[value]))}"
        for value in sorted(plan.required[i] - written)
    ]
    return f"{name!r} {' and '.join(parts)}"


def _either(plan: Plan, nodes: list[int]) -> str:
    return " or ".join(repr(plan.paths[n]) for n in nodes)
