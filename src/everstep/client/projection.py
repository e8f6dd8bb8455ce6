"""A run as people see it: a tree of steps with items, attempts, waits and times, from pages of records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from everstep.client.guards import GuardedInfo, RunGuards
from everstep.model.acts import Act, Known
from everstep.model.address import Address, Part, item_of, map_of, maps_around, plain_of
from everstep.model.enums import Status, Trigger
from everstep.model.records import (
    UNDOING,
    CheckpointRecord,
    ErrorInfo,
    NodeState,
    OpenedState,
    StepRecord,
)
from everstep.model.shapes import Count, Instant, OrNull, shown
from everstep.model.waits import WaitOpened
from everstep.runtime.events import STEP_KINDS, Event

ENDED: Final = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
"""How a visit ends."""
_STATUSES: Final = {kind: status for status, kind in STEP_KINDS.items()}


class LogLine:
    """A step with a line of its own."""

    def __init__(self, record: CheckpointRecord, step: StepRecord, depth: int, name: str) -> None:
        self.record = record
        self.step = step
        self.depth = depth
        self.name = name
        """As people see it below what stands above: `draft@2`, `#7/inner@1`, `inputs`."""


class Items:
    """How items of one visit to a map have ended so far."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        """Over how many items the visit goes."""
        self.completed = 0
        self.failed: set[str] = set()
        self.waiting: set[str] = set()
        """The steps inside its items that wait for an answer."""
        self.failures: list[StepRecord] = []
        """The steps that failed inside its items, and items that failed where no step inside tells of it."""
        self._broken: set[str] = set()
        """What failed, items and visits inside them, and has not completed since."""

    @property
    def ended(self) -> int:
        """How many items have completed or failed."""
        return self.completed + len(self.failed)

    @property
    def lasting(self) -> list[StepRecord]:
        """The failures of what did not complete later."""
        return [step for step in self.failures if _place(step) in self._broken]

    def take(self, step: StepRecord, item: str) -> bool:
        """Note a step of one of the items; true for a failure that no step before it has told of."""
        if step.status is Status.HALTED:
            self.waiting.add(step.path)
        else:
            self.waiting.discard(step.path)
        if step.status is Status.FAILED:
            is_news = item != step.path or not any(_is_of(item, s) for s in self.failures[-8:])
            self.failures += [step] if is_news else []
            self._broken.add(_place(step))
            self.failed |= {item} if item == step.path else set()
            return is_news
        if step.status is Status.COMPLETED:
            if self._broken:
                self._broken.discard(_place(step))
            if item == step.path:
                self._complete(item)
        return False

    def _complete(self, item: str) -> None:
        self.completed += 1
        if item in self.failed:  # it was tried again
            self.failed.discard(item)
            self._broken -= {_place(step) for step in self.failures if _is_of(item, step)}

    def info(self) -> ItemsInfo:
        """Return it as JSON has it."""
        return ItemsInfo(count=self.count, completed=self.completed, failed=len(self.failed))


def _place(step: StepRecord) -> str:
    """Return the item that a step is of, whichever visit, or the visit inside one."""
    return step.path if item_of(step.path[step.path.rfind("/") + 1 :]) else base_of(step)


def _is_of(item: str, step: StepRecord) -> bool:
    return step.path == item or step.path.startswith(f"{item}/")


class Maps:
    """The visits to maps that are under way, each with its items."""

    def __init__(self) -> None:
        self._visits: dict[str, Items] = {}
        self._over = ""

    def begin(self, opened: Mapping[str, OpenedState], own: Iterable[StepRecord] = ()) -> None:
        """Note the maps that were under way; of their items those steps are left out that come again."""
        for path, visit in opened.items():
            if visit.items is not None:
                base = path + (f"@{visit.visit}" if visit.visit > 1 else "")
                items = self._visits[base] = Items(visit.items)
                items.completed = len(visit.done)
                items.failed = {f"{base}#{item}" for item in visit.failed}
        for step in own:
            base, item = next(reversed(maps_around(step.path)), ("", ""))
            if step.status is Status.COMPLETED and item == step.path and base in self._visits:
                self._visits[base].completed -= 1

    def __len__(self) -> int:
        return len(self._visits)

    def open(self, base: str, count: int) -> Items:
        """Note that a visit to a map began."""
        items = self._visits[base] = Items(count)
        return items

    def of(self, base: str) -> Items | None:
        """Return the items of a visit that is under way or has just ended; none if it is no map."""
        return self._visits.get(base)

    def take(self, step: StepRecord, around: list[tuple[str, str]] | None = None) -> bool:
        """Note a step: of a map, or of one of its items; true for a failure of an item that is news.

        `around` are the maps that it lies in, where that is known already.
        """
        if self._over:
            self._forget_what_ended()
        if step.items is not None:
            self.open(base_of(step), step.items)
        elif step.status in ENDED and step.status is not Status.FAILED:
            # One that failed may be resumed, and goes on with the items it has.
            self._over = base_of(step)
        news = [
            items.take(step, item)
            for base, item in (maps_around(step.path) if around is None else around)
            if (items := self._visits.get(base)) is not None
        ]
        return bool(news) and news[0]

    def _forget_what_ended(self) -> None:
        """Let go of the visit that the last step ended, which could be shown until now."""
        ended, self._over = self._over, ""
        if self._visits.pop(ended, None) is not None and "#" not in ended:
            # Maps that failed inside items, where the items could be done without.
            inner = [base for base in self._visits if base.startswith(f"{ended}#")]
            for base in inner:
                del self._visits[base]


class Fold:
    """Steps inside a map that follow one another, in one line, whichever checkpoints hold them."""

    def __init__(
        self, record: CheckpointRecord, path: str, depth: int, *, begins_record: bool, undoes: bool = False
    ) -> None:
        self.first = self.last = record
        self.path = path
        """The visit to the map."""
        self.undoes = undoes
        """True if these steps undo what was done in it."""
        self.undone = 0
        self.depth = depth
        self.begins_record = begins_record
        self.steps = 0
        self.items = Items()
        """Those of this line alone."""
        self.began: datetime | None = None
        self.ended: datetime | None = None

    def take(self, record: CheckpointRecord, step: StepRecord) -> None:
        """Add a step of one of the items."""
        self.last = record
        self.steps += 1
        self.items.take(step, item_of(step.path) or "")
        self.undone += self.undoes and step.status is Status.COMPLETED
        if step.started_at is not None:
            self.began = min(self.began or step.started_at, step.started_at)
        if step.ended_at is not None:
            self.ended = max(self.ended or step.ended_at, step.ended_at)


def base_of(step: StepRecord) -> str:
    """Return what the paths inside a visit begin with: `rag`, `rag@2`."""
    return step.path + (f"@{step.visit}" if step.visit > 1 else "")


def seconds_of(step: StepRecord) -> float | None:
    """Return how long a step took; none if it has not ended."""
    if step.started_at is None or step.ended_at is None:
        return None
    return (step.ended_at - step.started_at).total_seconds()


def name_of(step: StepRecord) -> str:
    """Name a step in full, as people see it: `draft@2`, `rag@1/inner@1`, `inputs`, `fork`."""
    return step.path[1:] if step.path.startswith("@") else str(Address.of(step.path, step.visit))


def in_full(base: str) -> str:
    """Write what the paths inside a visit begin with in full: `rag@1/check@2`."""
    address = Address.parse(base)
    assert address is not None, base
    return "/".join(str(part._replace(visit=part.visit or 1)) for part in address.segments)


def inside(step: StepRecord) -> str:
    """Name a step of a map's item below the map: `#7/inner@1`."""
    return "#" + name_of(step).partition("#")[2]


class Log:
    """Lays the steps of a run out in lines, page by page; with `full`, those of a map's items line by line.

    It keeps no records but those at the two ends of the line under way. A line of items is there once
    something else follows it; `rest` gives the last one.
    """

    def __init__(self, *, full: bool, below: StepRecord | None = None) -> None:
        self.maps = Maps()
        """How far the maps are with the newest line."""
        self.full = full
        self._above: set[str] = set() if below is None else _scopes(below)
        self._fold: Fold | None = None

    def take(self, records: Iterable[CheckpointRecord]) -> Iterator[LogLine | Fold]:
        """Yield the lines of the next page."""
        for record in records:
            for k, step in enumerate(record.steps):
                base, undoes = map_of(step.path), is_undo(step)
                if base is not None and not self.full:
                    if self._fold is None or (self._fold.path, self._fold.undoes) != (base, undoes):
                        yield from self.rest()
                        depth = 0 if undoes else base.count("/") + 1
                        self._fold = Fold(record, base, depth, begins_record=k == 0, undoes=undoes)
                    self._fold.take(record, step)
                    self.maps.take(step)
                    continue
                yield from self.rest()
                self.maps.take(step)
                yield _line(record, step, self._above)
                self._above = _scopes(step)
            if not record.steps:
                yield from self.rest()
                yield LogLine(record, StepRecord(path="@"), 0, "–")

    def rest(self) -> Iterator[Fold]:
        """Yield the line of items that is under way, if any."""
        if self._fold is not None:
            yield self._fold
            self._fold = None


def lines(
    records: Iterable[CheckpointRecord], *, full: bool, below: StepRecord | None = None
) -> Iterator[LogLine | Fold]:
    """Lay out the steps of records that are read already."""
    log = Log(full=full, below=below)
    yield from log.take(records)
    yield from log.rest()


def is_undo(step: StepRecord) -> bool:
    """True of a step that undoes another."""
    return step.path.endswith(f"/{UNDOING}")


def _line(record: CheckpointRecord, step: StepRecord, above: set[str]) -> LogLine:
    if is_undo(step):  # of a step that ended long ago, above other lines
        return LogLine(record, step, 0, name_of(step).removesuffix("@1"))
    base = map_of(step.path)
    if base is not None:
        is_below = base in above
        return LogLine(
            record, step, base.count("/") + 1 if is_below else 0, inside(step) if is_below else name_of(step)
        )
    outer, _, _ = step.path.rpartition("/")
    name = name_of(step)
    if outer and outer in above:
        return LogLine(record, step, outer.count("/") + 1, name.rpartition("/")[2])
    return LogLine(record, step, 0, name)


def _scopes(step: StepRecord) -> set[str]:
    """Return the flows below whose lines the next step may stand."""
    parts = base_of(step).split("/")
    found = {"/".join(parts[: k + 1]) for k in range(len(parts))}
    return found | {part for path in found if (part := map_of(path))}


class NodeLine:
    """What is known of one node, over all visits to it and to the flows around it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status: Status | None = None
        self.attempts = 0
        self.seconds = 0.0
        self.first_started_at: datetime | None = None
        self.last: StepRecord | None = None
        self.was_opened = False
        """True for a flow whose steps are recorded."""
        self.items: Items | None = None
        """Those of the last visit to a map."""
        self.visits = 0
        self.removed = 0
        """Visits among them whose steps were removed, or come before the first that was taken."""

    def take(self, step: StepRecord, maps: Maps, *, is_new: bool) -> None:
        """Take a step of the node itself, maybe the first of a visit."""
        self.status, self.last = step.status, step
        self.visits += is_new
        self.first_started_at = self.first_started_at or step.started_at
        if step.status is Status.RUNNING:
            self.was_opened = self.was_opened or (
                step.key is None and step.stream is None and step.spent is None
            )
            self.items = maps.of(base_of(step)) if step.items is not None else self.items
            return
        if step.status is Status.HALTED:
            return
        self.attempts += 1 if step.started_at is not None else 0
        self.seconds += seconds_of(step) or 0.0

    def info(self, *, is_pending: bool) -> NodeInfo:
        """Return what is told of the node as JSON has it."""
        last = self.last or StepRecord(path="@")
        return NodeInfo(
            node=self.name,
            status=self.status,
            visits=self.visits,
            attempts=self.attempts,
            seconds=self.seconds,
            started_at=self.first_started_at,
            ended_at=last.ended_at if last.status in ENDED else None,
            items=None if self.items is None else self.items.info(),
            decision=last.decision,
            error=last.error,
            wait=WaitingFor.of(last),
            act=last.act,
            is_pending=is_pending,
        )


class RunAct(msgspec.Struct, frozen=True, kw_only=True):
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


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed, without the traceback."""

    type: str
    code: str
    message: str

    @classmethod
    def of(cls, error: ErrorInfo | None) -> RunError | None:
        """Describe a kept error."""
        return None if error is None else cls(type=error.type, code=error.code, message=error.message)


class WaitingFor(msgspec.Struct, frozen=True, kw_only=True):
    """What a step waits for, or waited for."""

    id: str
    kind: str
    due_at: Instant | None

    @classmethod
    def of(cls, step: StepRecord) -> WaitingFor | None:
        """Return what a step waits for, if anything."""
        wait = step.wait
        return None if wait is None else cls(id=wait.wait_id, kind=wait.kind, due_at=wait.due_at)


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the records say of one node, over all visits to it and to the flows around it."""

    node: str
    status: Status | None
    visits: Count
    attempts: Count
    seconds: float
    started_at: Instant | None
    """When its first visit began."""
    ended_at: Instant | None
    """When its last visit ended, if it has."""
    items: ItemsInfo | None
    decision: tuple[str, ...] | None
    error: ErrorInfo | None
    wait: WaitingFor | None
    act: Act | None
    is_pending: bool


class RunNodes(msgspec.Struct, frozen=True, kw_only=True):
    """A run at a glance: its nodes in order, those inside a flow below it, and who did what."""

    run_id: str
    sequence: Count
    """The newest checkpoint that it tells of."""
    nodes: list[NodeInfo]
    acts: list[RunAct]
    guards: RunGuards
    left_out: Count = 0
    """Checkpoints before those that were read: of them it is only known how often nodes were visited."""


class StepLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a log: a recorded step, or steps of a map's items that follow one another."""

    checkpoint: Count
    last_checkpoint: Count
    """The same, but for items that several checkpoints hold."""
    trigger: Trigger
    address: str | None
    """The step in full, or the visit to the map; none for a checkpoint without steps."""
    depth: Count
    """How many flows and maps are around it."""
    steps: Count
    """How many recorded steps the line stands for; 0 for a failure that the line before has counted."""
    status: Status | None
    """None for items, which are counted."""
    attempts: Count
    started_at: Instant | None
    ended_at: Instant | None
    items: ItemsInfo | None
    """Of a map and of its items: how many have ended with this line."""
    decision: tuple[str, ...] | None
    error: RunError | None
    wait: WaitingFor | None
    spent: Mapping[str, Decimal] | None
    guards: GuardedInfo | None
    act: Act | None

    @shown
    def seconds(self) -> float | None:
        """How long it took; none if it has not ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()

    @classmethod
    def of(cls, line: LogLine | Fold, maps: Maps) -> StepLine:
        """Describe a line, with how far its map is."""
        step = line.step if isinstance(line, LogLine) else StepRecord(path="@")
        record, last = (line.record,) * 2 if isinstance(line, LogLine) else (line.first, line.last)
        is_step, base = step.path != "@", line.path if isinstance(line, Fold) else base_of(step)
        items = maps.of(base)
        return cls(
            checkpoint=record.sequence,
            last_checkpoint=last.sequence,
            trigger=record.trigger,
            address=name_of(step) if is_step else in_full(line.path) if isinstance(line, Fold) else None,
            depth=base.count("/") + base.count("#") + isinstance(line, Fold),
            steps=line.steps if isinstance(line, Fold) else int(is_step),
            status=step.status if is_step else None,
            attempts=step.attempts if is_step else 0,
            started_at=line.began if isinstance(line, Fold) else step.started_at,
            ended_at=line.ended if isinstance(line, Fold) else step.ended_at,
            items=None if items is None else items.info(),
            decision=step.decision,
            error=RunError.of(step.error),
            wait=WaitingFor.of(step),
            spent=step.spent,
            guards=None if step.guards is None else GuardedInfo.of(step.guards),
            act=step.act,
        )


class StepPage(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of some checkpoints of a run, oldest first."""

    run_id: str
    steps: list[StepLine]
    next: Count | None
    """The checkpoint to go on after; none if that was the newest."""


class Visit(NamedTuple):
    """What is known of a visit to a node that may go on."""

    last: StepRecord
    has_begun: bool
    """True if a step said that it began, before any said how it went on."""

    @property
    def is_waiting(self) -> bool:
        return self.last.status is Status.HALTED


def _under_way(nodes: Mapping[str, NodeState], opened: Mapping[str, OpenedState]) -> Iterator[StepRecord]:
    """Yield the steps that tell of visits which have begun and not ended."""
    for path, node in nodes.items():
        status = Status.HALTED if node.wait is not None else node.status
        if status is not None and status not in ENDED:
            yield StepRecord(
                path=path, visit=node.visits, status=status, wait=node.wait, started_at=node.since
            )
    for path, visit in opened.items():
        began, items = visit.started_at, visit.items
        yield StepRecord(path=path, visit=visit.visit, status=Status.RUNNING, started_at=began, items=items)


class Projection:
    """A run as people see it: its nodes as a tree, with visits, attempts, items, times, and who did what.

    It takes the records page by page, oldest first, and keeps what they say of nodes, not the records.
    `cursor` is the last checkpoint that it took: with the pages behind that one it goes on. Of a run that is
    watched it takes the events, which come before there is a record. Of a part it takes the part's records.
    """

    def __init__(self, part: Part | None = None) -> None:
        self._part = part
        self.cursor = 0
        self.acts: list[RunAct] = []
        self.maps = Maps()
        self.under_way: dict[tuple[str, int], Visit] = {}
        """Visits that have begun and not ended, by path and number."""
        self._reopenable: dict[tuple[str, int], Visit] = {}
        """Visits that failed or were cancelled; a resumed run goes on with them."""
        self._lines: dict[str, NodeLine] = {}

    def begin(self, nodes: Mapping[str, NodeState], opened: Mapping[str, OpenedState]) -> None:
        """Know how a run stood before the first step that is taken."""
        self._begin(nodes, opened, ())

    def _begin(
        self, nodes: Mapping[str, NodeState], opened: Mapping[str, OpenedState], own: Iterable[StepRecord]
    ) -> None:
        """Know how a run stood with some steps that are still to be taken."""
        if (part := self._part) is not None:
            nodes = {path: node for path, node in nodes.items() if part.holds(path)}
            opened = {path: visit for path, visit in opened.items() if part.holds(path, visit.visit)}
        self.maps.begin(opened, own)
        steps = {(step.path, step.visit): step for step in _under_way(nodes, opened)}
        visits = Counter({path: node.visits for path, node in nodes.items()})
        visits |= Counter({path: visit.visit for path, visit in opened.items()})
        # Those under way are counted here, whichever step began them.
        visits -= Counter(path for path, _ in {(step.path, step.visit) for step in own} - steps.keys())
        for path, count in visits.items():
            if self._map_around(path) is None:
                line = self._line(path)
                line.status = (
                    Status.COMPLETED if path not in nodes else nodes[path].status or Status.COMPLETED
                )
                line.removed += count
                line.visits = line.removed
        for step in steps.values():
            self._is_under_way(step)

    def _is_under_way(self, step: StepRecord) -> None:
        """Note what was under way before the first step that is taken."""
        self.under_way[step.path, step.visit] = Visit(step, step.status is Status.RUNNING)
        around = self._map_around(step.path)
        if around is None:
            line = self._line(step.path)
            line.status, line.last = step.status, step
            line.was_opened, line.items = step.status is Status.RUNNING, self.maps.of(base_of(step))
        elif (items := self.maps.of(around[0])) is not None:
            items.take(step, around[1])

    def take(self, records: Iterable[CheckpointRecord]) -> None:
        """Take the next page; what was taken before is passed by."""
        for record in records:
            if record.sequence > self.cursor:
                self._take(record)
                self.cursor = record.sequence

    def _take(self, record: CheckpointRecord) -> None:
        if self.cursor == 0 and record.keyframe and record.state is not None:
            self._begin(record.state.nodes, record.state.opened, record.steps)
        if record.trigger is Trigger.MIGRATION:
            for old, new in moves_of(record):
                self._lines = _under_new_names(self._lines, old, new)
                if new is not None:
                    self.under_way = _renamed(self.under_way, old, new)
                    self._reopenable = _renamed(self._reopenable, old, new)
        self._note_act(record, record.act, None)
        for step in record.steps:
            self._note_act(record, step.act, step)
            if not step.path.startswith("@"):
                self.note(step)
        if record.trigger is Trigger.CANCELLED:
            self._withdraw_waits()

    def _withdraw_waits(self) -> None:
        """Note that a run was cancelled: what stands still in it waits for nothing any more."""
        for line in self._lines.values():
            if line.last is not None and line.last.status is Status.HALTED:
                line.last = msgspec.structs.replace(line.last, wait=None)

    def hear(self, event: Event) -> bool:
        """Take what a listener is told; true for a failure of a map's item that is news."""
        step = step_of(event)
        if event.kind == "run_ended" and event.data.get("status") == Status.CANCELLED:
            self._withdraw_waits()
        if step is None:
            return False
        base = map_of(step.path)
        if base is not None and self.maps.of(base) is None:  # its beginning was not heard
            self._line(base).items = self.maps.open(base, 0)
        return self.note(step)

    def note(self, step: StepRecord) -> bool:
        """Take one step; true for a failure of a map's item that is news."""
        place, before = (step.path, step.visit), self.visit(step)
        has_begun = step.status is Status.RUNNING or (before is not None and before.has_begun)
        self._reopenable.pop(place, None)
        self.under_way.pop(place, None)
        if step.status is not Status.COMPLETED:
            kept = self._reopenable if step.status in ENDED else self.under_way
            kept[place] = Visit(step, has_begun)
        around = maps_around(step.path)
        is_news = self.maps.take(step, around)
        if self._outermost(around) is None:
            self._line(step.path).take(step, self.maps, is_new=before is None)
        return is_news

    def _map_around(self, path: str) -> tuple[str, str] | None:
        """Return the outermost map around a step, and the item; a part may lie in others."""
        return self._outermost(maps_around(path))

    def _outermost(self, around: list[tuple[str, str]]) -> tuple[str, str] | None:
        if self._part is None:
            return around[0] if around else None
        least = len(self._part.path)
        return next((found for found in around if len(found[0]) >= least), None)

    def _line(self, path: str) -> NodeLine:
        name = plain_of(path)
        return self._lines.setdefault(name, NodeLine(name))

    def _note_act(self, record: CheckpointRecord, act: Act | None, step: StepRecord | None) -> None:
        if act is not None:
            self.acts.append(
                RunAct(
                    checkpoint=record.sequence,
                    trigger=record.trigger,
                    step=None if step is None else name_of(step),
                    by=act.by,
                    comment=act.comment,
                    how=act.how,
                )
            )

    def visit(self, step: StepRecord) -> Visit | None:
        """Return what is known of the visit that a step belongs to; nothing if it completed or is new."""
        place = step.path, step.visit
        return self.under_way.get(place) or self._reopenable.get(place)

    def node(self, path: str) -> NodeLine | None:
        """Return what is known of the node at a path without visits and items."""
        return self._lines.get(path)

    def nodes(self, others: Iterable[str]) -> list[NodeLine]:
        """List the nodes in the order they first ran, then the others; those inside a flow below it."""
        lines = dict(self._lines)
        top = "" if self._part is None else plain_of(self._part.path)
        if top in lines:
            top = top.rpartition("/")[0]
        for name in others:
            around = name.rpartition("/")[0]
            outer = lines.get(around)
            if around == top or (outer is not None and outer.was_opened and outer.items is None):
                lines.setdefault(name, NodeLine(name))
        return list(_nested(lines, top))


def step_of(event: Event) -> StepRecord | None:
    """Return the step that an event tells of, as far as it tells; none if it tells of no step."""
    status = _STATUSES.get(event.kind)
    if status is None:
        return None
    data, seconds, error = event.data, event.data.get("seconds"), event.data.get("error")
    kind, _, message = (error or "").partition(": ")
    decision, wait = data.get("decision"), data.get("wait")
    began = event.at if status is Status.RUNNING else None
    began = began if seconds is None else event.at - timedelta(seconds=seconds)
    return StepRecord(
        path=event.node,
        visit=event.visit,
        status=status,
        attempts=event.attempt,
        started_at=began,
        ended_at=None if seconds is None else event.at,
        items=data.get("items"),
        decision=None if decision is None else tuple(decision),
        outcome=data.get("outcome", ""),
        error=None if error is None else ErrorInfo(type=kind, message=message),
        wait=None if wait is None else _wait_of(wait),
    )


def _wait_of(told: Mapping[str, Any]) -> WaitOpened:
    due = told["due_at"]
    return WaitOpened(told["id"], told["kind"], None if due is None else datetime.fromisoformat(due))


def fold(records: Iterable[CheckpointRecord], others: Iterable[str]) -> list[NodeLine]:
    """List the nodes of a run that is read already."""
    projection = Projection()
    projection.take(records)
    return projection.nodes(others)


_MOVED = re.compile(r"(rename|drop)_node\('([^']+)'(?:, '([^']+)')?\)")


def moves_of(record: CheckpointRecord) -> list[tuple[str, str | None]]:
    """Return what nodes are called in the flow that a run goes over to; none for one that was dropped."""
    rules = (record.metadata or {}).get("migrations", ())
    return [(found[2], found[3]) for rule in rules if (found := _MOVED.fullmatch(rule))]


def moved_path(path: str, old: str, new: str) -> str:
    """Return the path of a step of a renamed node, or inside it, under the new name."""
    parts = path.split("/")
    depth = old.count("/")
    if plain_of("/".join(parts[: depth + 1])) != old:
        return path
    name = old.rpartition("/")[2]
    parts[depth] = new.rpartition("/")[2] + parts[depth][len(name) :]
    return "/".join(parts)


def _renamed(visits: dict[tuple[str, int], Visit], old: str, new: str) -> dict[tuple[str, int], Visit]:
    return {(moved_path(path, old, new), number): visit for (path, number), visit in visits.items()}


def _under_new_names(lines: dict[str, NodeLine], old: str, new: str | None) -> dict[str, NodeLine]:
    """Call nodes what the flow that the run went over to calls them; what was dropped is not at work."""
    moved: dict[str, NodeLine] = {}
    for name, line in lines.items():
        if name == old or name.startswith(f"{old}/"):
            if new is not None:
                line.name = moved_path(name, old, new)
            elif line.status not in (Status.COMPLETED, Status.FAILED):
                line.status = Status.CANCELLED
        moved[line.name] = line
    return moved


def _nested(lines: dict[str, NodeLine], around: str) -> Iterator[NodeLine]:
    below: dict[str, list[NodeLine]] = {}
    for name, line in lines.items():
        below.setdefault(name.rpartition("/")[0], []).append(line)
    todo = list(reversed(below.get(around, [])))
    while todo:
        line = todo.pop()
        yield line
        todo += reversed(below.get(line.name, []))
