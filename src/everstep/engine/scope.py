"""One flow under way: what is known of it. `fold` changes it, `readiness` says what may start.

The root of a run is a scope, and so is every visit to an inner flow and every item of a map.
"""

from __future__ import annotations

from datetime import datetime

from everstep.graph.compile.plan import Plan
from everstep.model.enums import Status
from everstep.model.records import ErrorInfo, QueuedTask, StepRecord, StreamAt, UnitAt, visit_path

_NOTHING: dict[str, int] = {}
_NO_ITEMS: frozenset[int] = frozenset()


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
        "units",
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
        self.missing = plan.lacking.copy()
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
        self.opened: dict[int, OpenedVisit] = {}
        self.queue: dict[int, list[QueuedTask]] = {}
        """Visits that nodes asked for, the most urgent first."""
        self.won: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        self.fired: set[int] = set()
        """Joins that went on before all their branches had ended."""
        self.winners: dict[int, int] = {}
        """The branches that had succeeded when each join last went on, as bit masks."""
        self.begun: set[int] = set()
        """Nodes of which a call was recorded before it was made, and not yet what became of it."""
        self.waiting: dict[int, StepRecord] = {}
        """Nodes that halted, each with the step that says so; they count as running."""
        self.streams: dict[int, StreamAt] = {}
        """How far the streams under way have come."""
        self.units: dict[int, OpenUnits] = {}
        """The durable calls of visits under way."""
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

    def visit_of(self, i: int, step: StepRecord) -> OpenedVisit:
        """Return the visit to an inner flow that a step tells of."""
        base = self.prefix + self.plan.paths[i] + (f"@{step.visit}" if step.visit > 1 else "")
        return OpenedVisit(base, step.visit, step.reads, step.items, step.started_at)

    def task_of(self, i: int) -> QueuedTask | None:
        """Return the queued task that the next visit of a node answers."""
        waiting = self.queue.get(i) if self.queue else None
        return waiting[0] if waiting else None

    def begin(self, i: int) -> None:
        """Mark a due node as started by this process."""
        self.running.add(i)
        if self.retry_at:
            self.retry_at.pop(i, None)

    def start(self, i: int) -> None:
        """Mark a due node as started by this process with a call, which is under way from now on."""
        self.running.add(i)
        if self.retry_at:
            self.retry_at.pop(i, None)
        self.busy += 1
        if self.parent is not None:
            self.parent.hold()

    @property
    def is_at_rest(self) -> bool:
        """True if nothing more will happen in this flow."""
        return self.busy == 0 and (self.error is not None or not self.due)


def place_of(scope: Scope, i: int) -> str:
    """Return the path of what waits at a node: the node, or the place inside it that it was left at."""
    wait, path = scope.waiting[i].wait, scope.path_of(i)
    if wait is None or not wait.unit:
        return path
    return f"{visit_path(path, scope.visits[i] + 1)}/{wait.unit.rpartition('@')[0]}"


class OpenUnits:
    """The durable calls of one visit under way."""

    __slots__ = ("at", "began_as")

    def __init__(self) -> None:
        self.at: dict[str, UnitAt] = {}
        """How each stands, such as `$search@1`."""
        self.began_as = ""
        """The path that their keys are made of, if the node was renamed since."""


class OpenedVisit:
    """One visit to an inner flow under way, and how far its items are. A flow that is no map has one item."""

    __slots__ = (
        "base",
        "begun",
        "count",
        "done",
        "failed",
        "given",
        "is_map",
        "next",
        "reads",
        "scopes",
        "started_at",
        "task",
        "visit",
    )

    def __init__(
        self, base: str, visit: int, reads: dict[str, int], items: int | None, started_at: datetime | None
    ) -> None:
        self.base = base
        """The path of the visit, such as `rag@2`."""
        self.visit = visit
        self.reads = reads
        self.is_map = items is not None
        self.count = 1 if items is None else items
        self.scopes: dict[int, Scope] = {}
        """The items that are open."""
        self.done: set[int] = set()
        self.failed: set[int] = set()
        """Items whose failure is tolerated."""
        self.begun = _NO_ITEMS
        """Items that are atomic flows, can be undone and may have made effects, and have not ended."""
        self.next = 0
        """No item before this one is still to be opened."""
        self.started_at = started_at
        self.task: int | None = None
        """The queued task that the visit answers."""
        self.given: tuple[str, ...] = ()
        """The inputs that the task brings."""

    def prefix_of(self, item: int) -> str:
        """Return what the paths inside an item begin with."""
        return f"{self.base}#{item}/" if self.is_map else f"{self.base}/"

    @property
    def is_over(self) -> bool:
        return len(self.done) + len(self.failed) == self.count

    def next_item(self) -> int | None:
        """Return an item that is neither open nor over, the first in order."""
        while self.next < self.count:
            item = self.next
            self.next += 1
            if item not in self.scopes and item not in self.done and item not in self.failed:
                return item
        return None
