"""Which edges of a flow a run took: from what its steps read and wrote, and what its gates chose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from everstep.client.projection import ENDED, moved_path, moves_of
from everstep.graph.compile.plan import Plan
from everstep.graph.draw.connections import ENDS, edges_within, first_nodes
from everstep.graph.draw.picture import END_MARK
from everstep.model.address import plain_of
from everstep.model.enums import Status, Trigger
from everstep.model.records import INPUTS, CheckpointRecord, NodeState, StepRecord
from everstep.model.shapes import Count

MOST_ROUNDS: Final = 100
"""Of so many rounds of a loop it is told where they began, the newest."""


class TakenEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An edge that a run took."""

    source: str
    target: str
    times: Count
    round: Count
    """The round of its loop in which it was last taken; 0 in no loop."""
    is_newest: bool
    """True if no loop around it has begun another round since."""


class LoopRounds(msgspec.Struct, frozen=True, kw_only=True):
    """How often a loop went round."""

    node: str
    """Where it begins."""
    rounds: Count
    began: list[Count]
    """The checkpoints with the first steps of its newest rounds, at most 100 of them."""


class RunEdges(msgspec.Struct, frozen=True, kw_only=True):
    """Which edges of its flow a run took, and how often."""

    run_id: str
    sequence: Count
    """The newest checkpoint that it tells of."""
    left_out: Count
    """Checkpoints before those that were read; how often an edge was taken in them is an estimate."""
    edges: list[TakenEdge]
    loops: list[LoopRounds]


class _Taken:
    """One edge: how often it was taken, and how far the loops around it were then."""

    def __init__(self, loops: tuple[str, ...]) -> None:
        self.loops = loops
        """Where the loops around it begin, the innermost last."""
        self.times = 0
        self.rounds: tuple[int, ...] = ()


class _Level:
    """One flow, as far as edges are asked for."""

    def __init__(self, plan: Plan, prefix: str, around: tuple[str, ...]) -> None:
        self.plan = plan
        self.prefix = prefix
        self.around = around
        """Where the loops begin that go over this flow."""
        self.edges = edges_within(plan)
        self.firsts = first_nodes(plan, self.edges) if not prefix else set()
        self.gates_before: dict[int, list[int]] = {}
        for (u, v), edge in self.edges.items():
            if edge.kind == "choice":
                self.gates_before.setdefault(v, []).append(u)
        by_size = sorted(plan.loops, key=lambda head: -plan.loops[head].bit_count())
        self.bodies = {head: plan.loops[head] | 1 << head for head in by_size}

    def name(self, i: int) -> str:
        return self.prefix + (END_MARK if i == ENDS else self.plan.paths[i])

    def loops_of(self, *nodes: int) -> tuple[str, ...]:
        """Return where the loops begin that hold all of some nodes, and those around the flow."""
        held = [head for head, body in self.bodies.items() if all(i != ENDS and body >> i & 1 for i in nodes)]
        return (*self.around, *(self.name(head) for head in held))


class EdgeFold:
    """Counts the edges that a run took, from its records, oldest first."""

    def __init__(self, plan: Plan) -> None:
        self._levels: dict[str, _Level | None] = {"": _Level(plan, "", ())}
        self._taken: dict[tuple[str, str], _Taken] = {}
        self._rounds: dict[str, int] = {}
        self._began: dict[str, list[int]] = {}
        self._seen: set[tuple[str, int]] = set()
        """Visits that have begun."""
        self._read: set[tuple[str, int]] = set()
        """Those of which it is known what they read: that may be noted after their beginning."""
        self._writers: dict[tuple[str, int], str] = {}
        """By whole name and version of a value, the path of the step that wrote it."""

    def begin(self, nodes: Mapping[str, NodeState]) -> None:
        """Know how a run stood before the first record: estimate what it took by the visits to nodes."""
        visited: list[tuple[_Level, int, NodeState]] = []
        for path, node in nodes.items():
            level, i = self._place(path)
            if level is None or not node.visits:
                continue
            visited.append((level, i, node))
            if i in level.bodies:
                self._rounds[level.name(i)] = node.visits
            if node.status is not None and node.status not in ENDED:
                self._seen.add((path, node.visits))
                self._read.add((path, node.visits))
        for level, i, node in visited:
            if i in level.firsts:
                self._note(level, None, i, node.visits)
            sources = [w[0] for name in node.reads if len(w := level.plan.writers.get(name, ())) == 1]
            gates = level.gates_before.get(i, [])
            sources += gates if len(gates) == 1 else []
            for u in dict.fromkeys(sources):
                # A loop is entered once without going back.
                self._note(level, u, i, node.visits - ((u, i) in level.edges and level.edges[u, i].is_back))
            if node.status is Status.COMPLETED:
                for v in level.plan.follows.get(i, ()):
                    self._note(level, i, v, node.visits)

    def take(self, records: Iterable[CheckpointRecord]) -> None:
        """Take records that follow one another."""
        records = list(records)
        moves = [
            (record.sequence, old, new)
            for record in records
            if record.trigger is Trigger.MIGRATION
            for old, new in moves_of(record)
            if new is not None
        ]
        for record in records:
            for step in record.steps:
                path = step.path
                for sequence, old, new in moves:
                    path = moved_path(path, old, new) if record.sequence < sequence else path
                self._take(path, step, record.sequence)

    def _take(self, path: str, step: StepRecord, sequence: int) -> None:
        level, i = (None, 0) if path[0] == "@" else self._place(path)
        if level is not None:
            if (path, step.visit) not in self._seen:
                self._seen.add((path, step.visit))
                self._begin_visit(level, i, sequence)
            if step.reads and (path, step.visit) not in self._read:
                self._read.add((path, step.visit))
                self._note_reads(level, i, step)
            if step.status in (Status.COMPLETED, Status.FAILED):
                self._end_visit(level, i, step)
        for write in step.writes:
            self._writers[step.whole_name(write.name), write.version] = path

    def _begin_visit(self, level: _Level, i: int, sequence: int) -> None:
        if i in level.bodies:
            head = level.name(i)
            self._rounds[head] = self._rounds.get(head, 0) + 1
            self._began.setdefault(head, []).append(sequence)
        if i in level.firsts:
            self._note(level, None, i)

    def _note_reads(self, level: _Level, i: int, step: StepRecord) -> None:
        sources: dict[int, None] = {}
        for name, version in step.reads.items():
            writer = self._writers.get((step.whole_name(name), version))
            found = level.plan.writers.get(name, ())
            if writer is None and len(found) == 1:
                sources[found[0]] = None
            elif writer is not None and (u := level.plan.index.get(writer.rpartition("/")[2])) in found:
                sources[u] = None
        for u in sources:
            self._note(level, u, i)

    def _end_visit(self, level: _Level, i: int, step: StepRecord) -> None:
        if step.decision is not None:
            for target in step.decision:
                self._note(level, i, level.plan.index.get(target, ENDS), is_ahead=True)
            if not step.decision:
                self._note(level, i, ENDS)
        for v in level.plan.follows.get(i, ()) if not (step.goto or step.ends) else ():
            # Of a branch that failed, the place where branches meet is told.
            if step.status is Status.COMPLETED or v in level.plan.meetings:
                self._note(level, i, v, is_ahead=True)

    def _note(self, level: _Level, u: int | None, v: int, times: int = 1, *, is_ahead: bool = False) -> None:
        """Count an edge; without a source, that from the inputs. Told ahead, it may begin a round."""
        if times < 1 or (u is not None and (u, v) not in level.edges):
            return
        source, target = INPUTS if u is None else level.name(u), level.name(v)
        taken = self._taken.get((source, target))
        if taken is None:
            taken = _Taken(level.loops_of(v) if u is None else level.loops_of(u, v))
            self._taken[source, target] = taken
        taken.times += times
        taken.rounds = tuple(
            self._rounds.get(head, 0) + (is_ahead and head == target) for head in taken.loops
        )

    def _place(self, path: str) -> tuple[_Level | None, int]:
        """Return the flow that a step is of, and the number of its node; no flow for calls and items."""
        around, _, name = path.rpartition("/")
        level = self._level(plain_of(around) if "@" in around or "#" in around else around)
        i = None if level is None else level.plan.index.get(name)
        return (None, 0) if level is None or i is None else (level, i)

    def _level(self, around: str) -> _Level | None:
        if around not in self._levels:
            outer, _, name = around.rpartition("/")
            level = self._level(outer)
            i = None if level is None else level.plan.index.get(name)
            child = None if level is None or i is None else level.plan.children.get(i)
            self._levels[around] = (
                None
                if level is None or i is None or child is None or child.is_leaf
                else _Level(child.plan, f"{around}/", level.loops_of(i))
            )
        return self._levels[around]

    def edges(self) -> Iterator[TakenEdge]:
        """Yield what was taken, in the order of the first times."""
        for (source, target), taken in self._taken.items():
            at_now = tuple(self._rounds.get(head, 0) for head in taken.loops)
            yield TakenEdge(
                source=source,
                target=target,
                times=taken.times,
                round=taken.rounds[-1] if taken.rounds else 0,
                is_newest=all(was >= now for was, now in zip(taken.rounds, at_now, strict=True)),
            )

    def loops(self) -> list[LoopRounds]:
        """Return how often the loops went round."""
        return [
            LoopRounds(node=head, rounds=rounds, began=self._began.get(head, [])[-MOST_ROUNDS:])
            for head, rounds in self._rounds.items()
        ]
