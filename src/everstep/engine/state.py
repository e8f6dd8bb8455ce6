"""Where a run stands: the fold of its steps.

`evolve` is the only thing that changes a state, and it looks at nothing but the step. The one addition is
`begin`: which nodes this process has started is not part of the fold, since a crash forgets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from everstep.graph.loops import bits
from everstep.graph.node import Gate
from everstep.graph.plan import Plan
from everstep.model.enums import Status
from everstep.model.records import (
    FORK,
    INPUTS,
    Counters,
    ErrorInfo,
    FlowFrontier,
    FrontierEntry,
    IdempotencyState,
    NodeState,
    StepRecord,
)

_NOTHING: dict[str, int] = {}


class RunState:
    """Versions of values and the standing of each node, indexed as in the plan."""

    __slots__ = (
        "active",
        "attempts",
        "chosen",
        "consumed",
        "due",
        "error",
        "key_run",
        "keys",
        "missing",
        "plan",
        "reads",
        "retry_at",
        "running",
        "statuses",
        "steps",
        "versions",
        "visits",
    )

    def __init__(self, plan: Plan) -> None:
        count = len(plan.nodes)
        self.plan = plan
        self.versions: dict[str, int] = {}
        self.missing = [len(names) for names in plan.required]
        self.visits = [0] * count
        self.attempts = [0] * count
        self.statuses: list[Status | None] = [None] * count
        self.reads: list[dict[str, int]] = [_NOTHING] * count
        self.chosen = [0] * count
        self.keys: dict[int, str] = {}
        """Keys of visits under way, to be used again."""
        self.key_run: str | None = None
        """The fork whose id goes into keys; none while those of the first run are used."""
        self.consumed: dict[int, str] = {}
        """The key of each node's last finished visit."""
        self.retry_at: dict[int, datetime] = {}
        self.due: dict[int, int] = {}
        """Nodes that should run or are running, in the order they became due, each with its round."""
        self.running: set[int] = set()
        self.active = 0
        """The same nodes as a bit mask."""
        self.steps = 0
        self.error: ErrorInfo | None = None

    def evolve(self, step: StepRecord) -> None:
        """Take one recorded step into account."""
        if step.path == INPUTS:
            self._admit(step)
            return
        if step.path == FORK:
            self._fork(step)
            return
        i = self.plan.index[step.path]
        if step.status is Status.RUNNING:
            self.keys[i] = step.key or ""
            return
        if step.status is Status.RETRYING:
            self.attempts[i] = step.attempts
            self.statuses[i] = Status.RETRYING
            self._note_retry(i, step)
            self.running.discard(i)
            return
        self.visits[i] = step.visit
        self.statuses[i] = step.status
        self.reads[i] = step.reads
        self.attempts[i] = 0
        self.steps += 1
        self.running.discard(i)
        if self.retry_at:
            self.retry_at.pop(i, None)
        if step.status is not Status.COMPLETED:
            self.error = step.error
            return
        if step.key is not None:
            self.keys.pop(i, None)
            self.consumed[i] = step.key
        self._settle(i, step)

    def _settle(self, i: int, step: StepRecord) -> None:
        round_ = self.due.pop(i, 0)
        self.active &= ~(1 << i)
        for write in step.writes:
            self._write(write.name, write.version, round_)
        if step.decision is not None:
            for target in step.decision:
                t = self.plan.index[target]
                self.chosen[t] += 1
                self._activate(t, self._round_of_choice(i, t, round_))
        if self.plan.is_target[i]:
            if self.chosen[i] > 0:
                self.chosen[i] -= 1
            if self.chosen[i] > 0:
                self._activate(i, self._round_of_choice(i, i, round_))
        elif self._is_stale(i):
            self._activate(i, round_)

    def _round_of_choice(self, gate: int, target: int, round_: int) -> int:
        """A gate that chooses the head of its own loop begins a new round; else the present one goes on.

        Two gates may begin rounds at the same time. Which is the earlier follows from the rounds they are in
        and their places in the flow, never from which of them was quicker.
        """
        members = self.plan.loops.get(target)
        if members is None or not (members | 1 << target) >> gate & 1:
            return round_
        width = len(self.visits) + 1
        return (round_ // width + 1) * width + gate

    def _admit(self, step: StepRecord) -> None:
        # Several entries of one loop begin one after the other: each is a round of its own.
        heads = [i for i in self.plan.entry if self.plan.is_target[i]]
        for round_, i in enumerate(heads):
            self.chosen[i] += 1
            self._activate(i, round_)
        for write in step.writes:
            self._write(write.name, write.version, 0)
        for i, count in enumerate(self.missing):
            if count == 0 and not self.plan.is_target[i]:
                self._activate(i, 0)

    def _fork(self, step: StepRecord) -> None:
        """Go on as another run: a failure is forgotten, and what was edited is newer than it was."""
        self.reopen()
        if step.key is not None:
            self.key_run = step.key
            self.keys.clear()
        self._withdraw_choices(write.name for write in step.writes)
        for write in step.writes:
            self._write(write.name, write.version or self.versions.get(write.name, 0) + 1, 0)

    def _withdraw_choices(self, edited: Iterable[str]) -> None:
        """Take back what a gate chose and nobody acted on, if an edit makes the gate choose again."""
        plan, visits = self.plan, self.visits
        reached: set[int] = set()
        names = list(edited)
        for name in names:
            for i in plan.readers.get(name, ()):
                if i not in reached and not plan.is_target[i]:
                    reached.add(i)
                    names.extend(plan.nodes[i].outputs)
        gates = {i: node for i, node in enumerate(plan.nodes) if isinstance(node, Gate) and visits[i]}
        for g in reached & gates.keys() - self.due.keys():
            for name in gates[g].targets:
                t = plan.index.get(name)
                # Where another gate may have chosen the same node, that choice must stand.
                if t is None or not self.chosen[t] or any(name in gates[o].targets for o in gates if o != g):
                    continue
                self.chosen[t] -= 1
                if not self.chosen[t]:
                    self.due.pop(t, None)
                    self.active &= ~(1 << t)

    def _write(self, name: str, version: int, round_: int) -> None:
        is_first = name not in self.versions
        self.versions[name] = version
        plan = self.plan
        if is_first:
            for i in plan.needed_by.get(name, ()):
                self.missing[i] -= 1
        for i in plan.readers.get(name, ()):
            if not plan.is_target[i] and not self.missing[i]:
                self._activate(i, round_)

    def _is_stale(self, i: int) -> bool:
        reads, versions = self.reads[i], self.versions
        return any(versions.get(name, 0) > reads.get(name, 0) for name in self.plan.sources[i])

    def _note_retry(self, i: int, step: StepRecord) -> None:
        if step.retry_at is not None:
            self.retry_at[i] = step.retry_at
        if step.key is not None:
            self.keys[i] = step.key

    def _activate(self, i: int, round_: int) -> None:
        known = self.due.get(i)
        if known is None:
            self.due[i] = round_
            self.active |= 1 << i
        elif round_ < known:
            self.due[i] = round_

    def begin(self, i: int) -> None:
        """Mark a due node as started by this process."""
        self.running.add(i)
        self.retry_at.pop(i, None)

    def ready(self, now: datetime | None = None) -> list[int]:
        """Return the nodes that may start: inputs there, no active node upstream, no pause left.

        Without `now`, pauses count as over.
        """
        active, blockers, missing, running = self.active, self.plan.blockers, self.missing, self.running
        loops = self.plan.loops
        found = []
        for i, round_ in self.due.items():
            if missing[i] or i in running:
                continue
            conflict = active & blockers[i]
            if conflict and not (loops and self._all_begin_later(conflict, i, round_)):
                continue
            if i in loops and self._is_round_under_way(active & loops[i], i, round_):
                continue
            if self.retry_at and now is not None and self.retry_at.get(i, now) > now:
                continue
            found.append(i)
        return found

    def _all_begin_later(self, conflict: int, i: int, round_: int) -> bool:
        """True if only heads of a later round of this node's own loop stand in its way: they wait for it."""
        loops, due = self.plan.loops, self.due
        return all(
            j in loops and loops[j] >> i & 1 and j not in self.running and due[j] > round_
            for j in bits(conflict)
        )

    def _is_round_under_way(self, members: int, head: int, round_: int) -> bool:
        """True if some node of an earlier round is still active, or another head comes first in this one."""
        due, loops = self.due, self.plan.loops
        return any(due[j] < round_ or (due[j] == round_ and j < head and j in loops) for j in bits(members))

    def oldest(self) -> list[int]:
        """Return the node to run when every node waits for another, as in loops that overlap."""
        able = [i for i in self.due if not self.missing[i] and i not in self.running]
        if not able or self.running:
            return []
        return [min(able, key=lambda i: (self.due[i], i not in self.plan.looping, i))]

    def has_limits(self, max_visits: int | None) -> bool:
        """True if some node may be visited only so often."""
        return max_visits is not None or self.plan.has_visit_limits

    def next_retry(self) -> datetime | None:
        """Return when the earliest pause between attempts ends."""
        return min(self.retry_at.values(), default=None)

    def starved(self) -> list[tuple[str, list[str]]]:
        """Return the chosen nodes that wait for values, with the names that are missing."""
        return [
            (self.plan.paths[i], sorted(self.plan.required[i] - self.versions.keys()))
            for i in self.due
            if self.missing[i]
        ]

    def reopen(self) -> None:
        """Forget the failure: its nodes are waiting again, with a fresh retry budget."""
        self.error = None
        for i in self.due:
            if self.statuses[i] is Status.FAILED:
                self.visits[i] -= 1
                self.steps -= 1
                self.statuses[i] = None
            self.attempts[i] = 0
        self.retry_at.clear()

    def nodes(self) -> dict[str, NodeState]:
        """Return the standing of every node that has one, for a keyframe."""
        settled = [i for i, visits in enumerate(self.visits) if visits and i not in self.due]
        # Due nodes come last, in the order they became due: a resume starts them in the same order.
        return {
            self.plan.paths[i]: NodeState(
                visits=self.visits[i],
                status=self.statuses[i],
                attempts=self.attempts[i],
                reads=self.reads[i],
                chosen=self.chosen[i],
                retry_at=self.retry_at.get(i),
                key=self.keys.get(i),
                consumed=self.consumed.get(i),
                is_due=i in self.due,
                round=self.due.get(i, 0),
            )
            for i in (*settled, *self.due)
        }

    def restore(self, versions: Mapping[str, int], nodes: Mapping[str, NodeState], steps: int) -> None:
        """Become the state a keyframe describes."""
        self.versions = dict(versions)
        self.steps = steps
        for i, required in enumerate(self.plan.required):
            self.missing[i] = len(required - versions.keys())
        for path, node in nodes.items():
            i = self.plan.index[path]
            self.visits[i] = node.visits
            self.statuses[i] = node.status
            self.attempts[i] = node.attempts
            self.reads[i] = node.reads
            self.chosen[i] = node.chosen
            if node.key is not None:
                self.keys[i] = node.key
            if node.consumed is not None:
                self.consumed[i] = node.consumed
            if node.retry_at is not None:
                self.retry_at[i] = node.retry_at
            if node.is_due:
                self._activate(i, node.round)

    def frontier(self) -> FlowFrontier:
        """Say what is done and what comes next."""
        done = tuple(
            FrontierEntry(self.plan.paths[i], output)
            for i, status in enumerate(self.statuses)
            if status is Status.COMPLETED
            for output in self.plan.nodes[i].outputs or ("",)
        )
        return FlowFrontier(done, tuple(self.plan.paths[i] for i in self.due))

    def idempotency(self) -> IdempotencyState:
        """Say which keys are used up and which are to be used again."""
        paths = self.plan.paths
        return IdempotencyState(
            consumed={paths[i]: [key] for i, key in self.consumed.items()},
            pending={paths[i]: key for i, key in self.keys.items()},
        )

    def counters(self) -> Counters:
        paths = self.plan.paths
        return Counters(
            steps=self.steps,
            visits={paths[i]: n for i, n in enumerate(self.visits) if n},
            retries={paths[i]: n for i, n in enumerate(self.attempts) if n},
        )
