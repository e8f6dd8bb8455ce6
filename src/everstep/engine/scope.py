"""One flow under way: where each of its nodes stands, and which may start.

The root of a run is a scope, and so is every visit to an inner flow and every item of a map. `take` is the
only thing that changes a scope, and it looks at nothing but the step. The one addition is `begin`: which
nodes this process has started is not part of the fold, since a crash forgets it.
"""

from __future__ import annotations

from datetime import datetime

from everstep.engine import halts, meetings
from everstep.engine.opened import Opened
from everstep.graph.compile.loops import bits
from everstep.graph.compile.plan import Plan
from everstep.model.enums import OnError, Status
from everstep.model.records import ErrorInfo, QueuedTask, StepRecord, StreamAt

_NOTHING: dict[str, int] = {}
_UNDER_WAY = frozenset({Status.RUNNING, Status.RETRYING, Status.HALTED})
"""What a step says of a visit that goes on."""


class Scope:
    """Versions of values and the standing of each node of one flow, indexed as in its plan."""

    __slots__ = (
        "active",
        "arrived",
        "attempts",
        "begun",
        "busy",
        "chosen",
        "consumed",
        "due",
        "ended",
        "error",
        "fired",
        "is_hidden",
        "item",
        "keys",
        "lost",
        "missing",
        "opened",
        "parent",
        "place",
        "plan",
        "prefix",
        "queue",
        "reads",
        "retry_at",
        "running",
        "statuses",
        "steps",
        "streams",
        "versions",
        "visits",
        "waiting",
        "winners",
        "won",
    )

    def __init__(
        self, plan: Plan, *, parent: Scope | None = None, place: int = 0, item: int = 0, prefix: str = ""
    ) -> None:
        count = len(plan.nodes)
        self.plan = plan
        self.parent = parent
        self.place = place
        """The number of the node that this flow is inside of, in the flow around it."""
        self.item = item
        self.prefix = prefix
        self.is_hidden: bool = parent is not None and (
            parent.is_hidden or parent.plan.children[place].is_atomic
        )
        """True inside an atomic flow: nothing of it is recorded."""
        self.versions: dict[str, int] = {}
        self.missing = [len(names) for names in plan.required]
        self.visits = [0] * count
        self.attempts = [0] * count
        self.statuses: list[Status | None] = [None] * count
        self.reads: list[dict[str, int]] = [_NOTHING] * count
        self.chosen = [0] * count
        self.arrived = [0] * count
        """Control edges along which each node was reached since its last visit."""
        self.keys: dict[int, str] = {}
        """Keys of visits under way, to be used again."""
        self.consumed: dict[int, str] = {}
        """The key of each node's last finished visit."""
        self.retry_at: dict[int, datetime] = {}
        self.due: dict[int, int] = {}
        """Nodes that should run or are running, in the order they became due, each with its round."""
        self.running: set[int] = set()
        self.busy = 0
        """Calls under way in this flow and in those inside it."""
        self.active = 0
        """The due nodes as a bit mask."""
        self.opened: dict[int, Opened] = {}
        self.queue: dict[int, list[QueuedTask]] = {}
        """Visits that nodes asked for, the most urgent first."""
        self.won: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        self.fired: set[int] = set()
        """Joins that went on before all their branches had settled."""
        self.winners: dict[int, int] = {}
        """The branches that had succeeded when each join last went on, as bit masks."""
        self.begun: set[int] = set()
        """Nodes of which a call was recorded before it was made, and not yet what became of it."""
        self.waiting: dict[int, StepRecord] = {}
        """Nodes that halted, each with the step that says so; they count as running."""
        self.streams: dict[int, StreamAt] = {}
        """How far the streams under way have come."""
        self.steps = 0
        self.ended = False
        self.error: ErrorInfo | None = None

    def path_of(self, i: int) -> str:
        """Return the whole path of a node."""
        if self.parent is not None and self.parent.plan.children[self.place].is_leaf:
            return self.prefix[:-1]
        return self.prefix + self.plan.paths[i]

    def hold(self) -> None:
        """Count a call under way here and in the flows around."""
        outer: Scope | None = self
        while outer is not None:
            outer.busy += 1
            outer = outer.parent

    def let_go(self) -> None:
        """A call under way has ended."""
        outer: Scope | None = self
        while outer is not None:
            outer.busy -= 1
            outer = outer.parent

    def is_inside(self, scope: Scope, i: int) -> bool:
        """True if this flow lies inside a node of another, at any depth."""
        here: Scope = self
        while here.parent is not None:
            if here.parent is scope and here.place == i:
                return True
            here = here.parent
        return False

    def awaits(self, i: int) -> bool:
        """True if a node is under way here, and so is every flow around this one; neither was called off."""
        here: Scope = self
        while i in here.running:
            if here.parent is None:
                return True
            opened = here.parent.opened.get(here.place)
            if opened is None or opened.scopes.get(here.item) is not here:
                return False
            here, i = here.parent, here.place
        return False

    # -- the fold -----------------------------------------------------------------------------------------

    def take(self, i: int, step: StepRecord) -> None:
        """Take one recorded step of a node into account."""
        status = step.status
        if status in _UNDER_WAY:
            self._take_under_way(i, step)
            return
        if step.unknown:
            self.begun.add(i)
        elif self.begun:
            self.begun.discard(i)
        self.visits[i] = step.visit
        self.statuses[i] = status
        self.reads[i] = step.reads
        self.attempts[i] = 0
        if self.waiting:
            self.waiting.pop(i, None)
        self.steps += 1
        if self.retry_at:
            self.retry_at.pop(i, None)
        if status is Status.FAILED:
            self._fail(i, step)
            return
        self.running.discard(i)
        if self.streams:
            self.streams.pop(i, None)
        if self.opened:
            self.opened.pop(i, None)
        if step.key is not None:
            self.keys.pop(i, None)
            self.consumed[i] = step.key
        if status is Status.CANCELLED:
            self._leave(i, step)
            return
        plan = self.plan
        round_ = self.due.pop(i, 0)
        self.active &= ~(1 << i)
        for write in step.writes:
            if write.name[0] != "@":
                self.write(write.name, write.version, round_, not step.goto)
        if step.decision is not None or plan.is_target[i]:
            self._choose(i, step, round_)
        if not plan.is_target[i]:
            reads, versions = step.reads, self.versions
            for name in plan.watched[i]:
                if versions.get(name, 0) > reads.get(name, 0) and not meetings.is_left_out(self, i, name):
                    self.activate(i, round_)  # what it read is no longer the newest
                    break
        if plan.is_wired or self.queue or step.queued or step.ends:
            self._lead_on(i, step, round_)

    def _take_under_way(self, i: int, step: StepRecord) -> None:
        """Take a step of a visit that goes on: it was announced, failed to be tried again, or waits."""
        if step.status is Status.RUNNING:
            if i in self.plan.children:
                self._open(i, step)
            elif step.stream is not None:
                self.streams[i] = step.stream
            elif step.spent is None:
                self.keys[i] = step.key or ""
                self.begun.add(i)
            return
        if step.unknown:
            self.begun.add(i)
        elif self.begun:
            self.begun.discard(i)
        if step.status is Status.HALTED:
            halts.halt(self, i, step)
            return
        self.attempts[i] = step.attempts
        self.statuses[i] = step.status
        self._note_retry(i, step)
        self.running.discard(i)
        self.waiting.pop(i, None)

    def admit(self, names: dict[str, int]) -> None:
        """Begin with these inputs."""
        # Several entries of one loop begin one after the other: each is a round of its own.
        heads = [i for i in self.plan.entry if self.plan.is_entry(i)]
        for round_, i in enumerate(heads):
            (self.chosen if self.plan.is_target[i] else self.arrived)[i] += 1
            self.activate(i, round_)
        for name, version in names.items():
            self.write(name, version, 0)
        for i, count in enumerate(self.missing):
            if count == 0 and not self.plan.is_target[i] and not self.plan.is_led[i]:
                self.activate(i, 0)

    def _open(self, i: int, step: StepRecord) -> None:
        visit = self.opened[i] = self.visit_of(i, step)
        if step.task is not None:
            visit.task = step.task
            visit.given = next((q.arguments for q in self.queue.get(i, ()) if q.number == step.task), ())
        self.running.add(i)

    def visit_of(self, i: int, step: StepRecord) -> Opened:
        """Return the visit to an inner flow that a step tells of."""
        base = self.prefix + self.plan.paths[i] + (f"@{step.visit}" if step.visit > 1 else "")
        return Opened(base, step.visit, step.reads, step.items, step.started_at)

    def enter(self, i: int, item: int) -> Scope:
        """Return the scope of one item of an open visit, opened now unless it is."""
        opened, child = self.opened[i], self.plan.children[i]
        scope = opened.scopes.get(item)
        if scope is None:
            scope = Scope(child.plan, parent=self, place=i, item=item, prefix=opened.prefix_of(item))
            opened.scopes[item] = scope
            names = {
                p.name: 1
                for p in self.plan.nodes[i].params
                if p.source in opened.reads or p.name in opened.given
            }
            scope.admit(names)
        return scope

    def _fail(self, i: int, step: StepRecord) -> None:
        if i in self.opened:
            if self.plan.children[i].is_atomic and not self.opened[i].is_map:
                self.running.discard(i)
                del self.opened[i]
        else:
            self.running.discard(i)
        if meetings.tolerates(self, i):
            self._leave(i, step)
        else:
            self.error = step.error

    def _leave(self, i: int, step: StepRecord) -> None:
        """A node ended without output: a tolerated failure, or cancelled."""
        self.begun.discard(i)
        if step.task is not None:
            self._dequeue(i, step.task)
        elif self.plan.is_target[i] and self.chosen[i]:
            self.chosen[i] -= 1
        self.arrived[i] = 0
        round_ = self.due.pop(i, 0)
        self.active &= ~(1 << i)
        self.running.discard(i)
        self.opened.pop(i, None)
        self.streams.pop(i, None)
        self.keys.pop(i, None)
        if self.chosen[i] or i in self.queue:
            self.activate(i, round_)
        meetings.meet(self, i, round_)

    def _choose(self, i: int, step: StepRecord, round_: int) -> None:
        """Reach the nodes that a gate chose; a node that was chosen itself has used one choice up."""
        plan = self.plan
        for target in step.decision or ():
            t = plan.index[target]
            self.chosen[t] += 1
            self.activate(t, self._round_of_choice(i, t, round_))
        if plan.is_target[i]:
            if step.task is None and self.chosen[i] > 0:
                self.chosen[i] -= 1
            if self.chosen[i] > 0:
                self.activate(i, self._round_of_choice(i, i, round_))

    def _lead_on(self, i: int, step: StepRecord, round_: int) -> None:
        """Reach the nodes that follow, unless this one asked for others instead."""
        plan = self.plan
        self.arrived[i] = 0
        if step.task is not None:
            self._dequeue(i, step.task)
        if not step.goto:
            for t in plan.follows.get(i, ()):
                self.arrived[t] += 1
                # Reached without all its values it waits for them, and fails by name if they cannot come.
                if not plan.is_target[t] and t not in plan.meetings:
                    self.activate(t, round_)
        for task in step.queued:
            self.enqueue(task, round_)
        if i in self.queue:
            self.activate(i, round_)
        if i in plan.meetings:
            meetings.go_on(self, i)
        meetings.meet(self, i, round_)
        if step.ends:
            self._end()

    def enqueue(self, task: QueuedTask, round_: int = 0) -> None:
        """Note a visit that was asked for."""
        t = self.plan.index[task.node]
        waiting = self.queue.setdefault(t, [])
        waiting.append(task)
        waiting.sort(key=lambda q: (-q.priority, q.number))
        self.activate(t, round_)

    def _dequeue(self, i: int, number: int) -> None:
        left = [q for q in self.queue.get(i, ()) if q.number != number]
        if left:
            self.queue[i] = left
        else:
            self.queue.pop(i, None)

    def task_of(self, i: int) -> QueuedTask | None:
        """Return the queued task that the next visit of a node answers."""
        waiting = self.queue.get(i) if self.queue else None
        return waiting[0] if waiting else None

    def _end(self) -> None:
        """Nothing more starts; what runs is still recorded if it ends.

        Which nodes this process runs is not part of the fold, so only inner flows that are open stay due.
        """
        self.ended = True
        children = self.plan.children
        self.due = {
            i: r
            for i, r in self.due.items()
            if i in self.opened and (self.opened[i].is_map or not children[i].is_atomic)
        }
        self.active = 0
        for i in self.due:
            self.active |= 1 << i
        self.queue.clear()
        self.running -= self.waiting.keys()
        self.waiting.clear()
        self.streams.clear()

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

    def write(self, name: str, version: int, round_: int, wakes: bool = True) -> None:
        """Note a new version of a value, and wake its readers."""
        is_first = name not in self.versions
        self.versions[name] = version
        plan = self.plan
        if is_first:
            for i in plan.needed_by.get(name, ()):
                self.missing[i] -= 1
                # Behind an early join, it may be the only thing that the node was still waiting for.
                if wakes and self.arrived[i] and not (self.missing[i] or plan.is_target[i]):
                    self.activate(i, round_)
        if wakes:
            for i in plan.wakes.get(name, ()):
                if plan.is_target[i] or self.missing[i]:
                    continue
                if not plan.is_led[i] or self.arrived[i] or self.visits[i]:
                    self.activate(i, round_)

    def _note_retry(self, i: int, step: StepRecord) -> None:
        if step.retry_at is not None:
            self.retry_at[i] = step.retry_at
        if step.key is not None:
            self.keys[i] = step.key

    def activate(self, i: int, round_: int) -> None:
        """Make a node due, unless the flow has ended."""
        if self.ended:
            return
        known = self.due.get(i)
        if known is None:
            self.due[i] = round_
            self.active |= 1 << i
        elif round_ < known:
            self.due[i] = round_

    def take_back(self, i: int) -> None:
        """Undo the end of a visit that failed."""
        self.visits[i] -= 1
        self.steps -= 1
        self.statuses[i] = None

    # -- readiness ----------------------------------------------------------------------------------------

    def begin(self, i: int) -> None:
        """Mark a due node as started by this process."""
        self.running.add(i)
        self.retry_at.pop(i, None)

    def ready(self, now: datetime | None = None) -> list[int]:
        """Return the nodes that may start: inputs there, no active node upstream, no pause left.

        Without `now`, pauses count as over.
        """
        if self.error is not None:
            return []
        active, blockers, missing, running = self.active, self.plan.blockers, self.missing, self.running
        loops = self.plan.loops
        if self.retry_at and now is not None:
            # One that is over is forgotten even if its node waits for others: it must not wake the drive.
            self.retry_at = {i: at for i, at in self.retry_at.items() if at > now}
        found = []
        for i, round_ in self.due.items():
            if i in running or (missing[i] and not self.is_fed(i)):
                continue
            conflict = active & blockers[i]
            if conflict and self.fired:
                conflict = meetings.still_in_the_way(self, i, conflict)
            is_held = conflict and not (loops and self._all_begin_later(conflict, i, round_))
            if is_held and not (self.won and meetings.may_go_on(self, i)):
                continue
            if self.queue and self._awaits_task(i):
                continue
            if i in loops and self._is_round_under_way(active & loops[i], i, round_):
                continue
            if now is not None and i in self.retry_at:
                continue
            found.append(i)
        if self.queue:
            found.sort(key=lambda i: -(task.priority if (task := self.task_of(i)) is not None else 0))
        return found

    def _awaits_task(self, i: int) -> bool:
        """True if a node before this one asked for a visit that is still to come."""
        plan = self.plan
        return any(
            q.asked_by in plan.index and t != i and i in plan.graph[plan.index[q.asked_by]]
            for t, waiting in self.queue.items()
            for q in waiting
        )

    def is_fed(self, i: int) -> bool:
        """True if a queued task brings what is missing."""
        task = self.task_of(i)
        if task is None:
            return False
        given = {p.source for p in self.plan.nodes[i].params if p.name in task.arguments}
        return self.plan.required[i] <= given | self.versions.keys()

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
        able = [i for i in self.due if not (self.missing[i] and not self.is_fed(i)) and i not in self.running]
        if not able or self.running or self.error is not None:
            return []
        return [min(able, key=lambda i: (self.due[i], i not in self.plan.looping, i))]

    @property
    def is_at_rest(self) -> bool:
        """True if nothing more will happen in this flow."""
        return self.busy == 0 and (self.error is not None or not self.due)

    def clear(self) -> None:
        """Forget what is due, waited for, or under way here; what was done stays."""
        halts.ask_again(self)
        self.ended = False
        self.due, self.active, self.queue = {}, 0, {}
        for under_way in (
            self.opened,
            self.running,
            self.begun,
            self.streams,
            self.won,
            self.lost,
            self.fired,
        ):
            under_way.clear()
        self.chosen, self.arrived = [0] * len(self.chosen), [0] * len(self.arrived)

    def reopen(self) -> None:
        """Forget the failure: its nodes are waiting again, with a fresh retry budget."""
        self.error = None
        for i in tuple(self.due):
            if self.statuses[i] is Status.FAILED:
                self.take_back(i)
                if i in self.plan.meetings:
                    meetings.reopen(self, i)
            self.attempts[i] = 0
        self.retry_at.clear()
        for i, opened in self.opened.items():
            over = self.plan.children[i].over
            if over is not None and over.on_error is OnError.FINISH:
                opened.failed.clear()
                opened.next = 0
            for scope in opened.scopes.values():
                scope.reopen()
