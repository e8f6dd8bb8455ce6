"""Two runs, or two moments, side by side for people who look at both: bounded, and with long values cut.
Apart from the diff, which says all there is to say.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Literal

import msgspec

from everstep.client.diff import Moment, differing, node_changes, value_changes
from everstep.client.projection import RunError
from everstep.client.views import RunState
from everstep.codec.compare import Change, ChangeKind
from everstep.codec.plain_json import jsonable
from everstep.codec.values import Values
from everstep.graph.compile.plan import Plan
from everstep.model.enums import Status
from everstep.model.shapes import Count
from everstep.runtime.travel.bisect import Divergence

MOST = 500
"""So many differences of values, and of nodes, are told."""
LONGEST = 2000
"""So many characters of a value are shown."""
LARGEST = 1 << 20
"""So many bytes a value may have and still be read to be compared part by part."""
SEARCHED = 2000
"""Behind what two runs share, so many checkpoints of each are searched for the first step that differs."""


class CutValue(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a difference."""

    text: str
    """The value as JSON, or its beginning."""
    is_cut: bool = False

    @classmethod
    def of(cls, value: object) -> CutValue:
        """Write a value, as far as it is shown."""
        text = json.dumps(jsonable(value), ensure_ascii=False)
        return cls(text=text[:LONGEST], is_cut=len(text) > LONGEST)


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value differs."""

    name: str
    """The value."""
    path: str
    """What of it differs, such as `order.lines[2].price`."""
    kind: ChangeKind
    before: CutValue | None
    after: CutValue | None

    @classmethod
    def of(cls, name: str, change: Change) -> ValueDifference:
        """Describe a change, its values cut."""
        return cls(
            name=name,
            path=change.path,
            kind=change.kind,
            before=None if change.kind == "added" else CutValue.of(change.before),
            after=None if change.kind == "removed" else CutValue.of(change.after),
        )


class NodeDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was visited more often, stands elsewhere, or wrote something else."""

    path: str = msgspec.field(name="node")
    kind: ChangeKind
    """`added` if only the second has visited it, `removed` if only the first."""
    visits: tuple[Count, Count] | None
    """None if only what it writes differs; so is `status`."""
    status: tuple[Status | None, Status | None] | None
    values: list[str]
    """What it writes that differs."""


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two."""

    run_id: str
    checkpoint: Count
    status: Status
    error: RunError | None
    part: str | None
    """What of it is compared; none for all."""

    @classmethod
    def of(cls, moment: Moment) -> ComparedRun:
        """Describe a moment."""
        return cls(
            run_id=moment.run_id,
            checkpoint=moment.sequence,
            status=moment.status,
            error=RunError.of(moment.error),
            part=None if moment.part is None else moment.part.base,
        )


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step of the second run that the first did not take, or that came out differently there."""

    path: str = msgspec.field(name="node")
    visit: Count
    address: str
    checkpoint: Count
    """The checkpoint of the second run that holds it."""
    before_checkpoint: Count | None
    """The checkpoint of the first run that holds it; none if it has no such step."""
    what: Literal["only_here", "other_inputs", "other_outcome"]
    """Whether the first run has no such step, it read something else, or came out differently of itself."""

    @classmethod
    def of(cls, found: Divergence) -> FirstDifference:
        """Describe it without its values."""
        alone: Literal["other_inputs", "other_outcome"] = (
            "other_outcome" if found.is_culprit else "other_inputs"
        )
        return cls(
            path=found.path,
            visit=found.visit,
            address=found.address,
            checkpoint=found.bad.sequence,
            before_checkpoint=None if found.good is None else found.good.sequence,
            what="only_here" if found.good is None else alone,
        )


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two runs, or two moments of one."""

    before: ComparedRun
    after: ComparedRun
    shared_until: Count | None
    """The newest checkpoint that both have; none if they have none in common."""
    values: list[ValueDifference]
    nodes: list[NodeDifference]
    is_cut: bool
    """True if there are more differences than are told."""
    first_difference: FirstDifference | None
    is_searched: bool
    """False if it was not looked for: too many steps, or only parts of runs are compared."""


def compared(
    before: RunState,
    after: RunState,
    values: Values,
    *,
    shared_until: int | None,
    first: Divergence | None,
    is_searched: bool,
) -> Comparison:
    """Put together what was found, and what differs between two states."""
    found = list(islice(value_changes(before, after, values, largest=LARGEST), MOST + 1))
    nodes = list(_nodes(before, after))
    return Comparison(
        before=ComparedRun.of(Moment.of(before)),
        after=ComparedRun.of(Moment.of(after)),
        shared_until=shared_until,
        values=[ValueDifference.of(name, change) for name, change in found[:MOST]],
        nodes=nodes[:MOST],
        is_cut=len(found) > MOST or len(nodes) > MOST,
        first_difference=None if first is None else FirstDifference.of(first),
        is_searched=is_searched,
    )


def _nodes(before: RunState, after: RunState) -> Iterator[NodeDifference]:
    """Yield the nodes that differ in how often they ran, where they stand, or what they write."""
    writes: dict[str, list[str]] = defaultdict(list)
    for name in differing(before, after):
        for path in _writers(after.plan if after.part is None else before.plan, name):
            writes[path].append(name)
    stand = {change.path: change for change in node_changes(before, after)}
    for path in dict.fromkeys([*stand, *writes]):
        change = stand.get(path)
        visits = (0, 0) if change is None else change.visits
        kind: ChangeKind = "changed"
        if change is not None and 0 in visits and visits != (0, 0):
            kind = "removed" if visits[0] else "added"
        yield NodeDifference(
            path=path,
            kind=kind,
            visits=visits if change is not None else None,
            status=change.status if change is not None else None,
            values=writes.get(path, []),
        )


def _writers(plan: Plan, name: str) -> Iterator[str]:
    """Yield the paths of the nodes that write a value; of one inside a part they are not known."""
    if name[0] == "@":
        return
    head, _, local = name.rpartition("/")
    for segment in head.split("/") if head else ():
        i = plan.index.get(segment.partition("#")[0])
        if i is None or i not in plan.children:
            return
        plan = plan.children[i].plan
    for writer in plan.writers.get(local, ()):
        yield f"{head}/{plan.paths[writer]}" if head else plan.paths[writer]
