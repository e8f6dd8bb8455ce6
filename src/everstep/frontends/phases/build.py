"""`phases(...)`: a list of phases becomes a flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from everstep.errors import BadRequest
from everstep.frontends.phases.nodes import Spot, gate_nodes, next_node, work_nodes
from everstep.frontends.phases.phase import Functions, Phase, phase_of
from everstep.frontends.phases.places import BREAKERS, GATES, LESSONS_GIVEN, RESERVED
from everstep.frontends.phases.progress import Process
from everstep.graph.author.node import END, Node
from everstep.graph.author.wiring import Chain, Wired
from everstep.model.durability import Durability, DurabilityMode

if TYPE_CHECKING:
    from everstep.compat import Flow
else:
    from everstep.graph.author.flow import Flow

OWN_KEYS: Final = (*RESERVED, BREAKERS, GATES, LESSONS_GIVEN)


def phases(
    name: str,
    stages: Iterable[Phase | Mapping[str, Any]],
    *,
    functions: Functions | None = None,
    lessons: Iterable[Any] | None = None,
    durability: DurabilityMode | Durability = "strong",
    channel: Mapping[str, Any] | None = None,
    **options: Any,
) -> Flow:
    """Return a flow whose phases follow each other, each behind the gate of the one before it.

    A phase is a `Phase`, or a dict that describes one, with functions by their names in `functions`.
    `lessons` are what the run is to heed; they are kept in its channel, and a resume warns if they have
    changed. The other options are those of `Flow`.
    """
    if isinstance(stages, str | Mapping) or not isinstance(stages, Iterable):
        raise BadRequest(f"process {name!r} has the phases {stages!r:.60}.", fix="Give a list of phases.")
    given = [phase_of(one, functions or {}, f"phases[{k}]") for k, one in enumerate(stages)]
    if not given:
        raise BadRequest(f"process {name!r} has no phases.", fix="Give at least one.")
    if "entry" in options or "tasks" in options:
        raise BadRequest(
            f"process {name!r} is given entry= or tasks=.", fix="A process begins with its first phase."
        )
    kept = _lessons(lessons, name)
    spots = [Spot(phase, number, kept) for phase, number in zip(given, _numbers(given, name), strict=True)]
    _check_names(given, name)
    work = [work_nodes(spot) for spot in spots]
    parts: list[Node | Wired] = []
    for k, spot in enumerate(spots):
        is_last = k + 1 == len(spots)
        parts += _parts(spot, work[k], None if is_last else spots[k + 1], None if is_last else work[k + 1][0])
    keys = None if channel is None else {**dict.fromkeys(OWN_KEYS, Any), **channel}
    first = spots[0]
    entry = (first.start,) if first.phase.gate is not None else ()
    flow = Flow(name, parts, entry=entry, durability=durability, channel=keys, **options)
    flow.extension = Process(kept)
    return flow


def _parts(spot: Spot, work: Sequence[Node], following: Spot | None, then: Node | None) -> list[Node | Wired]:
    """Return the nodes of a phase, chained as far as they simply follow each other."""
    # A check is a gate: it leads to the work by choosing it.
    lead = [node for node in work if node.is_gate]
    chained = [node for node in work if not node.is_gate]
    target = then.name if then is not None else END
    if spot.phase.gate is not None:
        gate, again, review = gate_nodes(spot, target)
        return [*lead, Chain([*chained, gate]), again, review]
    if following is not None and following.phase.gate is not None:
        return [*lead, Chain([*chained, next_node(spot, target)])]
    return [*lead, Chain([*chained, *((then,) if then is not None else ())])]


def _numbers(given: Sequence[Phase], name: str) -> list[str]:
    """Return each phase's number; one without goes on from the one before it."""
    found: list[str] = []
    for phase in given:
        number = phase.number
        if number is None:
            number = str(int(found[-1].partition("_")[0]) + 1) if found else "0"
        if number in found:
            other = given[found.index(number)].name
            raise BadRequest(
                f"process {name!r}: phases {other!r} and {phase.name!r} are both number {number}.",
                fix="Number each phase once.",
            )
        found.append(number)
    return found


def _check_names(given: Sequence[Phase], name: str) -> None:
    names = [phase.name for phase in given]
    for twice in {one for one in names if names.count(one) > 1}:
        raise BadRequest(f"process {name!r} has two phases {twice!r}.", fix="Name each phase once.")
    written: dict[str, str] = {}
    for phase in given:
        for output in phase.outputs:
            if written.setdefault(output, phase.name) != phase.name:
                raise BadRequest(
                    f"process {name!r}: phases {written[output]!r} and {phase.name!r} both write {output!r}.",
                    fix="Name what one of them writes with output=.",
                )


def _lessons(lessons: Any, name: str) -> tuple[Any, ...] | None:
    if lessons is None:
        return None
    if isinstance(lessons, str) or not isinstance(lessons, Iterable):
        raise BadRequest(f"process {name!r}: lessons are {lessons!r:.60}.", fix="Give a list.")
    return tuple(lessons)
