"""A run as people see it: a tree of steps with items, attempts, waits and times, from pages of records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from everstep.model.acts import Act, Known
from everstep.model.address import Address, item_of, map_of, plain_of
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord, ErrorInfo, OpenedState, StepRecord
from everstep.model.shapes import Count, OrNull


class Line:
    """A step with a line of its own."""

    def __init__(self, record: CheckpointRecord, step: StepRecord, depth: int, name: str) -> None:
        self.record = record
        self.step = step
        self.depth = depth
        self.name = name
        """As people see it below what stands above: `draft@2`, `#7/inner@1`, `inputs`."""


class Fold:
    """Steps inside a map that follow one another, in one line, whichever checkpoints hold them."""

    def __init__(self, record: CheckpointRecord, path: str, depth: int, *, begins_record: bool) -> None:
        self.first = self.last = record
        self.path = path
        """The visit to the map."""
        self.depth = depth
        self.begins_record = begins_record
        self.steps = 0
        self.completed: set[str] = set()
        self.failed: set[str] = set()
        self.failures: list[Line] = []
        self.began: datetime | None = None
        self.ended: datetime | None = None

    def take(self, record: CheckpointRecord, step: StepRecord) -> None:
        """Add a step of one of the items."""
        self.last = record
        self.steps += 1
        item = item_of(step.path)
        assert item is not None
        if step.started_at is not None:
            self.began = min(self.began or step.started_at, step.started_at)
        if step.ended_at is not None:
            self.ended = max(self.ended or step.ended_at, step.ended_at)
        if step.status is Status.FAILED:
            if item != step.path or not any(item_of(line.step.path) == item for line in self.failures[-8:]):
                self.failures.append(Line(record, step, self.depth, inside(step)))
            if item == step.path:
                self.failed.add(item)
        elif step.status is Status.COMPLETED and item == step.path:
            self.completed.add(item)
            self.failed.discard(item)  # it was tried again

    @property
    def lasting(self) -> list[Line]:
        """The failures of items that did not complete later."""
        return [line for line in self.failures if item_of(line.step.path) not in self.completed]


class Tally:
    """How the items of each visit to a map have ended so far."""

    def __init__(self, records: Iterable[CheckpointRecord]) -> None:
        self._sizes = {
            base_of(step): step.items for record in records for step in record.steps if step.items is not None
        }
        self._failed: dict[str, set[str]] = {}

    def begin(self, opened: Mapping[str, OpenedState]) -> None:
        """Note the maps that were under way before the first of the records."""
        for path, visit in opened.items():
            if visit.items is not None:
                base = path + (f"@{visit.visit}" if visit.visit > 1 else "")
                self._sizes.setdefault(base, visit.items)
                self.count(base, {f"{base}#{item}" for item in visit.failed}, set())

    def size(self, base: str) -> int | None:
        """Return over how many items a visit goes; none if it is no map."""
        return self._sizes.get(base)

    def failed(self, base: str) -> int:
        """Return how many items of a visit have failed."""
        return len(self._failed.get(base, ()))

    def take(self, step: StepRecord) -> None:
        """Count an item that has ended."""
        base = map_of(step.path)
        if base is not None and step.path == item_of(step.path):
            if step.status is Status.FAILED:
                self.count(base, {step.path}, set())
            elif step.status is Status.COMPLETED:
                self.count(base, set(), {step.path})

    def count(self, base: str, failed: set[str], completed: set[str]) -> None:
        """Note items of a visit that have failed, and those that have completed, maybe after a failure."""
        known = self._failed.setdefault(base, set())
        known |= failed
        known -= completed


def base_of(step: StepRecord) -> str:
    """Return what the paths inside a visit begin with: `rag`, `rag@2`."""
    return step.path + (f"@{step.visit}" if step.visit > 1 else "")


def name_of(step: StepRecord) -> str:
    """Name a step in full, as people see it: `draft@2`, `rag@1/inner@1`, `inputs`, `fork`."""
    return step.path[1:] if step.path.startswith("@") else str(Address.of(step.path, step.visit))


def inside(step: StepRecord) -> str:
    """Name a step of a map's item below the map: `#7/inner@1`."""
    return "#" + name_of(step).partition("#")[2]


def lines(
    records: Sequence[CheckpointRecord], *, full: bool, below: StepRecord | None = None
) -> Iterator[Line | Fold]:
    """Lay the steps out in order; with `full`, those of a map's items line by line as well."""
    above: set[str] = set() if below is None else _scopes(below)
    fold: Fold | None = None
    for record in records:
        for k, step in enumerate(record.steps):
            base = map_of(step.path)
            if base is not None and not full:
                if fold is None or fold.path != base:
                    if fold is not None:
                        yield fold
                    depth = base.count("/") + 1
                    fold = Fold(record, base, depth, begins_record=k == 0)
                fold.take(record, step)
                continue
            if fold is not None:
                yield fold
                fold = None
            yield _line(record, step, above)
            above = _scopes(step)
        if not record.steps:
            if fold is not None:
                yield fold
                fold = None
            yield Line(record, StepRecord(path="@"), 0, "–")
    if fold is not None:
        yield fold


def _line(record: CheckpointRecord, step: StepRecord, above: set[str]) -> Line:
    base = map_of(step.path)
    if base is not None:
        is_below = base in above
        return Line(
            record, step, base.count("/") + 1 if is_below else 0, inside(step) if is_below else name_of(step)
        )
    outer, _, _ = step.path.rpartition("/")
    name = name_of(step)
    if outer and outer in above:
        return Line(record, step, outer.count("/") + 1, name.rpartition("/")[2])
    return Line(record, step, 0, name)


def _scopes(step: StepRecord) -> set[str]:
    """Return the flows below whose lines the next step may stand."""
    parts = base_of(step).split("/")
    found = {"/".join(parts[: k + 1]) for k in range(len(parts))}
    return found | {part for path in found if (part := map_of(path))}


class NodeLine:
    """What the records say of one node, over all visits to it and to the flows around it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status: Status | None = None
        self.attempts = 0
        self.seconds = 0.0
        self.last: StepRecord | None = None
        self.was_opened = False
        """True for a flow whose steps are recorded."""
        self.items: int | None = None
        self.fold: Fold | None = None
        """The items of the last visit to a map."""
        self._visits: set[tuple[str, int]] = set()
        self.removed = 0
        """Visits whose steps were removed; a keyframe tells of them."""

    @property
    def visits(self) -> int:
        return len(self._visits) + self.removed

    @property
    def completed(self) -> int:
        return len(self.fold.completed) if self.fold is not None else 0

    @property
    def failed(self) -> int:
        return len(self.fold.failed) if self.fold is not None else 0

    def take(self, record: CheckpointRecord, step: StepRecord) -> None:
        """Take a step of the node itself."""
        self.status, self.last = step.status, step
        self._visits.add((step.path.rpartition("/")[0], step.visit))
        if step.status is Status.RUNNING:
            self.was_opened = self.was_opened or (
                step.key is None and step.stream is None and step.spent is None
            )
            if step.items is not None:
                self.items = step.items
                self.fold = Fold(record, base_of(step), 0, begins_record=False)
            return
        if step.status is Status.HALTED:
            return
        self.attempts += 1 if step.started_at is not None else 0
        if step.started_at is not None and step.ended_at is not None:
            self.seconds += (step.ended_at - step.started_at).total_seconds()

    def info(self, *, is_pending: bool) -> NodeInfo:
        """Return what is told of the node as JSON has it."""
        last, items = self.last, None
        if self.items is not None:
            items = ItemsInfo(count=self.items, completed=self.completed, failed=self.failed)
        return NodeInfo(
            node=self.name,
            status=self.status,
            visits=self.visits,
            attempts=self.attempts,
            seconds=self.seconds,
            items=items,
            decision=None if last is None else last.decision,
            error=None if last is None else last.error,
            act=None if last is None else last.act,
            is_pending=is_pending,
        )


class ActInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a person did to a run, and why."""

    checkpoint: Count
    trigger: Trigger
    step: str | None
    """The step that tells of it; none if the checkpoint does."""
    by: OrNull
    comment: OrNull
    how: Known


class ItemsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How the items of the last visit to a map have ended."""

    count: Count
    completed: Count
    failed: Count


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the records say of one node, over all visits to it and to the flows around it."""

    node: str
    status: Status | None
    visits: Count
    attempts: Count
    seconds: float
    items: ItemsInfo | None
    decision: tuple[str, ...] | None
    error: ErrorInfo | None
    act: Act | None
    is_pending: bool


class Projection:
    """A run as people see it: its nodes as a tree, with visits, attempts, items, times, and who did what.

    It takes the records page by page, oldest first, and keeps what they say of nodes, not the records.
    `cursor` is the last checkpoint that it took: with the pages behind that one it goes on.
    """

    def __init__(self) -> None:
        self.cursor = 0
        self.acts: list[ActInfo] = []
        self._lines: dict[str, NodeLine] = {}

    def take(self, records: Iterable[CheckpointRecord]) -> None:
        """Take the next page; what was taken before is passed by."""
        for record in records:
            if record.sequence > self.cursor:
                self._take(record)
                self.cursor = record.sequence

    def _take(self, record: CheckpointRecord) -> None:
        if self.cursor == 0 and record.keyframe:
            self._lines = _from_keyframe(record)
        if record.trigger is Trigger.MIGRATION:
            self._lines = _under_new_names(self._lines, (record.metadata or {}).get("migrations", ()))
        self._note_act(record, record.act, None)
        for step in record.steps:
            self._note_act(record, step.act, step)
            if not step.path.startswith("@"):
                self._take_step(record, step)

    def _take_step(self, record: CheckpointRecord, step: StepRecord) -> None:
        base = map_of(step.path)
        if base is None:
            path = plain_of(step.path)
            self._lines.setdefault(path, NodeLine(path)).take(record, step)
        elif (line := self._lines.get(plain_of(base))) is not None and line.fold is not None:
            line.fold.take(record, step)

    def _note_act(self, record: CheckpointRecord, act: Act | None, step: StepRecord | None) -> None:
        if act is not None:
            self.acts.append(
                ActInfo(
                    checkpoint=record.sequence,
                    trigger=record.trigger,
                    step=None if step is None else name_of(step),
                    by=act.by,
                    comment=act.comment,
                    how=act.how,
                )
            )

    def nodes(self, others: Iterable[str]) -> list[NodeLine]:
        """List the nodes in the order they first ran, then the others; those inside a flow below it."""
        lines = dict(self._lines)
        for name in others:
            outer = lines.get(name.rpartition("/")[0])
            if "/" not in name or (outer is not None and outer.was_opened and outer.items is None):
                lines.setdefault(name, NodeLine(name))
        return list(_nested(lines, ""))


def fold(records: Iterable[CheckpointRecord], others: Iterable[str]) -> list[NodeLine]:
    """List the nodes of a run that is read already."""
    projection = Projection()
    projection.take(records)
    return projection.nodes(others)


def _from_keyframe(record: CheckpointRecord) -> dict[str, NodeLine]:
    """Return how nodes stood where what came before was removed; the keyframe's own steps follow."""
    lines: dict[str, NodeLine] = {}
    own = Counter(plain_of(step.path) for step in record.steps)
    for path, node in record.state.nodes.items() if record.state is not None else ():
        if "#" not in path and node.visits > own[plain_of(path)]:
            line = lines.setdefault(plain_of(path), NodeLine(plain_of(path)))
            line.status = node.status or Status.COMPLETED
            line.removed += node.visits - own[plain_of(path)]
    return lines


_MOVED = re.compile(r"(rename|drop)_node\('([^']+)'(?:, '([^']+)')?\)")


def _under_new_names(lines: dict[str, NodeLine], rules: Iterable[str]) -> dict[str, NodeLine]:
    """Call nodes what the flow that the run went over to calls them; what was dropped is not at work."""
    for old, new in ((found[2], found[3]) for rule in rules if (found := _MOVED.fullmatch(rule))):
        moved: dict[str, NodeLine] = {}
        for name, line in lines.items():
            if name == old or name.startswith(f"{old}/"):
                if new is not None:
                    place, slash, _ = old.rpartition("/")
                    line.name = place + slash + new.rpartition("/")[2] + name[len(old) :]
                elif line.status not in (Status.COMPLETED, Status.FAILED):
                    line.status = Status.CANCELLED
            moved[line.name] = line
        lines = moved
    return lines


def _nested(lines: dict[str, NodeLine], around: str) -> Iterator[NodeLine]:
    below: dict[str, list[NodeLine]] = {}
    for name, line in lines.items():
        below.setdefault(name.rpartition("/")[0], []).append(line)
    todo = list(reversed(below.get(around, [])))
    while todo:
        line = todo.pop()
        yield line
        todo += reversed(below.get(line.name, []))
