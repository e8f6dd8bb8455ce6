"""When what of a run happened: a lane for each node, its attempts, pauses and waits one after the other.

Apart from the projection, which counts visits and keeps no times of each: here there are the times. It is
made of the records of one stretch of a run, and of where the run stood at its end; how much it tells is
bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from everstep.client.outline import node_at
from everstep.client.projection import ItemsInfo, base_of, is_undo, name_of
from everstep.graph.author.joins import JoinNode
from everstep.graph.author.subflow import Subflow
from everstep.graph.compile.plan import Plan
from everstep.graph.draw.outline import outline
from everstep.model.acts import Known
from everstep.model.address import map_of, plain_of
from everstep.model.enums import Status, Trigger
from everstep.model.leases import pause_of
from everstep.model.records import OWNER, CheckpointRecord, NodeState, OpenedState, StepRecord, unit_of
from everstep.model.shapes import Count, Instant, OrNull
from everstep.ports.store import RunRow

MOST_BUCKETS = 60
"""How many buckets tell of the items of a map."""

SegmentKind = Literal["attempt", "retry_pause", "wait", "under_way"]
MarkKind = Literal[
    "start", "resume", "takeover", "crash", "interrupted", "pause", "fork", "cancel", "migration"
]

_MARKS: Mapping[Trigger, MarkKind] = {
    Trigger.ADMISSION: "start",
    Trigger.RESUME: "resume",
    Trigger.FORK: "fork",
    Trigger.MIGRATION: "migration",
    Trigger.CANCELLED: "cancel",
    Trigger.INTERRUPTED: "interrupted",
    Trigger.ABANDONED: "crash",
}
_GRAVEST = (Status.FAILED, Status.RETRYING, Status.CANCELLED, Status.HALTED, Status.RUNNING, Status.COMPLETED)
"""What several are called by that are told as one: the first of these that one of them is."""
_RANK = {status: k for k, status in enumerate(_GRAVEST)}


class TimeSegment(Struct, frozen=True, kw_only=True):
    """A time in which a visit to a node was in one way: at work, paused before it is tried again, waiting."""

    began: Instant = msgspec.field(name="from")
    ended: Instant | None = msgspec.field(name="to")
    """None while it goes on."""
    kind: SegmentKind
    """`under_way` is a visit whose beginning is recorded and whose end is not."""
    status: Status
    address: str
    """The visit; of several, the gravest of them."""
    attempt: Count
    sequence: Count
    """The checkpoint that tells of it."""
    count: Count
    """How many stand here as one, because there would be too many."""


class TimeBucket(Struct, frozen=True, kw_only=True):
    """Items of a map that ended in the same way and took about as long."""

    status: Status
    began: Instant = msgspec.field(name="from")
    ended: Instant | None = msgspec.field(name="to")
    """None while one of them goes on."""
    count: Count
    slowest: float
    """Seconds."""
    first_item: str
    """The address of the slowest of them."""
    sequence: Count
    """The checkpoint that tells of that one."""


class TimeLane(Struct, frozen=True, kw_only=True):
    """One node of a run, or the durable calls of one name inside a node, over all visits."""

    node: str
    """Its path without visits and items."""
    kind: str
    visits: Count
    """The number of its newest visit that is told of."""
    items: ItemsInfo | None
    """Of a map: how the items of its newest visit have ended, as far as is told here."""
    segments: list[TimeSegment]
    buckets: list[TimeBucket]
    """Of a map: its items, those that failed first, then the slowest."""


class TimeCommit(Struct, frozen=True, kw_only=True):
    """A checkpoint, and when it was made."""

    sequence: Count
    at: Instant
    trigger: Trigger


class TimeMark(Struct, frozen=True, kw_only=True):
    """Something that happened to the run as a whole."""

    kind: MarkKind
    at: Instant
    sequence: Count
    worker: str | None
    """Which process drives the run from here on, if that is known."""
    by: OrNull
    """Who did it, if that was said."""
    how: Known | None
    text: str
    """Why, if that was said."""


class TimeLeftOut(Struct, frozen=True, kw_only=True):
    """What a timeline does not tell of."""

    checkpoints_before: Count
    """Checkpoints before the first that it is read from; those that were removed are among them."""
    checkpoints_after: Count
    removed: Count
    """How many of those before were removed."""
    lanes: Count
    """Nodes that have no lane, because there would be too many."""
    commits: Count
    """Checkpoints among those that it is read from which are not in `commits`."""


class Timeline(Struct, frozen=True, kw_only=True):
    """When what of a run happened, in a stretch of its checkpoints."""

    run_id: str
    began_at: Instant
    """When the run began."""
    until: Instant
    """When it ended; of one that goes on, now; of one that is looked at as it was, then."""
    is_live: bool
    """True if more may come behind what is told here."""
    first: Count
    """The first checkpoint that it is read from."""
    last: Count
    lanes: list[TimeLane]
    """In the order in which the flow shows its nodes."""
    commits: list[TimeCommit]
    marks: list[TimeMark]
    left_out: TimeLeftOut | None
    """None if nothing is."""


class _Piece:
    """A segment that may still grow."""

    __slots__ = ("attempt", "began", "ended", "kind", "sequence", "status", "step")

    def __init__(
        self,
        kind: SegmentKind,
        step: StepRecord,
        began: datetime,
        ended: datetime | None,
        sequence: int,
    ) -> None:
        self.kind, self.step, self.began, self.ended, self.sequence = kind, step, began, ended, sequence
        self.status, self.attempt = step.status, step.attempts


class _Item:
    """An item of a map."""

    __slots__ = ("began", "ended", "path", "sequence", "status")

    def __init__(self, path: str) -> None:
        self.path = path
        self.status = Status.RUNNING
        self.began: datetime | None = None
        self.ended: datetime | None = None
        self.sequence = 0


class _Lane:
    def __init__(self, node: str) -> None:
        self.node = node
        self.visits = 0
        self.pieces: list[_Piece] = []
        self.base = ""
        """Of a map: its newest visit, as paths inside it begin."""
        self.count: int | None = None
        self.items: dict[str, _Item] = {}


class Lanes:
    """Takes the records of a stretch, oldest first, then where the run stood behind the last of them."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._by_path: dict[str, _Lane] = {}
        self._open: dict[tuple[str, int], _Piece] = {}
        """Pieces that have not ended, by path and number of the visit."""
        self._last: datetime | None = None
        self.commits: list[TimeCommit] = []
        self.marks: list[TimeMark] = []

    def take(self, records: Iterable[CheckpointRecord]) -> None:
        """Take the next records."""
        for record in records:
            self._last = record.created_at
            self.commits.append(
                TimeCommit(sequence=record.sequence, at=record.created_at, trigger=record.trigger)
            )
            self._mark(record)
            for step in record.steps:
                if step.path[0] != "@":
                    self._step(record, step)
            if record.status.is_final:
                self._end_all(record.created_at)

    def _mark(self, record: CheckpointRecord) -> None:
        worker = _worker_of((record.metadata or {}).get(OWNER))
        if worker is not None:
            self.marks.append(_mark_of("takeover", record, worker))
        kind = _MARKS.get(record.trigger)
        if kind is not None:
            self.marks.append(_mark_of(kind, record, worker))

    def _lane(self, path: str) -> _Lane:
        lane = self._by_path.get(path)
        if lane is None:
            name = plain_of(path)
            lane = self._by_path[path] = self._lanes.setdefault(name, _Lane(name))
        return lane

    def _step(self, record: CheckpointRecord, step: StepRecord) -> None:
        base = map_of(step.path)
        if base is not None and not is_undo(step):
            self._item(record, step, base)
            return
        lane, place = self._lane(step.path), (step.path, step.visit)
        lane.visits = max(lane.visits, step.visit)
        if step.items is not None:
            lane.base, lane.count, lane.items = base_of(step), step.items, {}
        before = self._open.pop(place, None)
        began = step.started_at or (record.created_at if before is None else before.began)
        ended = step.ended_at or record.created_at
        match step.status:
            case Status.RUNNING:
                if before is not None and before.kind != "retry_pause":
                    self._open[place] = before
                    return
                self._close(before, began)
                self._opened(lane, place, _Piece("under_way", step, began, None, record.sequence))
            case Status.HALTED:
                if before is not None and before.kind == "wait":
                    self._open[place] = before
                    return
                self._close(before, began)
                self._opened(lane, place, _Piece("wait", step, began, None, record.sequence))
            case Status.RETRYING:
                self._attempt(lane, before, step, began, ended, record.sequence)
                pause = _Piece("retry_pause", step, ended, None, record.sequence)
                self._opened(lane, place, pause)
            case _:
                self._attempt(lane, before, step, began, ended, record.sequence)

    def _attempt(
        self,
        lane: _Lane,
        before: _Piece | None,
        step: StepRecord,
        began: datetime,
        ended: datetime,
        sequence: int,
    ) -> None:
        """Note an attempt that has ended: what was known of it before is the same one."""
        if before is not None and before.kind in ("under_way", "wait"):
            if before.kind == "under_way" and step.started_at is not None:  # what it spends is noted later on
                before.began = min(before.began, step.started_at)
            before.ended, before.sequence, before.step = ended, sequence, step
            before.status, before.attempt = step.status, step.attempts
            before.kind = "attempt" if before.kind == "under_way" else "wait"
            return
        self._close(before, began)
        lane.pieces.append(_Piece("attempt", step, began, ended, sequence))

    def _opened(self, lane: _Lane, place: tuple[str, int], piece: _Piece) -> None:
        self._open[place] = piece
        lane.pieces.append(piece)

    @staticmethod
    def _close(piece: _Piece | None, at: datetime) -> None:
        if piece is not None:
            piece.ended = max(piece.began, at)

    def _end_all(self, at: datetime) -> None:
        for piece in self._open.values():
            self._close(piece, at)
        self._open.clear()

    def _item(self, record: CheckpointRecord, step: StepRecord, base: str) -> None:
        lane = self._lane(base)
        if lane.base != base:  # its beginning lies before the stretch
            lane.base, lane.count, lane.items = base, None, {}
        head, _, rest = step.path[len(base) + 1 :].partition("/")
        path = f"{base}#{head}"
        item = lane.items.get(path)
        if item is None:
            item = lane.items[path] = _Item(path)
        item.sequence = record.sequence
        if step.started_at is not None and (item.began is None or step.started_at < item.began):
            item.began = step.started_at
        if rest:
            item.status = Status.RUNNING if step.status is not Status.HALTED else Status.HALTED
            item.ended = None
            return
        item.status = step.status
        is_over = step.status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
        item.ended = (step.ended_at or record.created_at) if is_over else None
        item.began = item.began or step.ended_at or record.created_at

    def stand(
        self,
        nodes: Mapping[str, NodeState],
        opened: Mapping[str, OpenedState],
        coming: Iterable[str] = (),
    ) -> None:
        """Know how the run stood behind the last record: what was under way there may have begun before.

        `coming` are the nodes that a process is at work on now, or will be at once.
        """
        for path, visit in opened.items():
            if visit.items is not None and map_of(path) is None:
                lane, base = self._lane(path), path + (f"@{visit.visit}" if visit.visit > 1 else "")
                lane.visits = max(lane.visits, visit.visit)
                if lane.base in ("", base):
                    lane.base, lane.count = base, visit.items
            self._under_way(path, visit.visit, Status.RUNNING, visit.started_at)
        for path, node in nodes.items():
            status = Status.HALTED if node.wait is not None else node.status
            if status in (Status.RUNNING, Status.HALTED, Status.RETRYING):
                self._under_way(path, node.visits or 1, status, node.since, node.attempts)
        for path in coming:
            node_state = nodes.get(path)
            begun = 0 if node_state is None else node_state.visits
            self._under_way(path, begun + 1, Status.RUNNING, self._last)

    def _under_way(
        self, path: str, visit: int, status: Status, since: datetime | None, attempts: int = 0
    ) -> None:
        began = since or self._last
        if map_of(path) is not None or began is None or (path, visit) in self._open:
            return
        if any(place[0] == path for place in self._open):
            return
        kind: SegmentKind = "wait" if status is Status.HALTED else "under_way"
        step = StepRecord(path=path, visit=visit, status=status, attempts=attempts + 1)
        lane = self._lane(path)
        lane.visits = max(lane.visits, visit)
        last = self.commits[-1].sequence if self.commits else 0
        self._opened(lane, (path, visit), _Piece(kind, step, began, None, last))

    def timeline(
        self, row: RunRow, plan: Plan, read: tuple[int, int], most: int, now: datetime | None
    ) -> Timeline:
        """Return what was taken, from the first to the last checkpoint read; `now` if the run goes on."""
        first, last = read
        lanes, lanes_left = self.lanes(_order(plan), most)
        commits = thinned(self.commits, most)
        oldest = max(1, row.trimmed_before)
        left = TimeLeftOut(
            checkpoints_before=first - 1,
            checkpoints_after=row.checkpoints - last,
            removed=oldest - 1,
            lanes=lanes_left,
            commits=len(self.commits) - len(commits),
        )
        end = row.ended_at if last == row.checkpoints else None
        marks = [*self.marks, *_paused(row)] if now is not None else self.marks
        return Timeline(
            run_id=row.run_id,
            began_at=row.created_at,
            until=now or end or self._last or row.created_at,
            is_live=now is not None,
            first=first,
            last=last,
            lanes=lanes,
            commits=commits,
            marks=marks[-most:],
            left_out=left if any(getattr(left, name) for name in left.__struct_fields__) else None,
        )

    def lanes(self, order: Sequence[tuple[str, str]], most: int) -> tuple[list[TimeLane], int]:
        """Return the lanes in this order of paths, each with its kind, and how many are left out."""
        rank = {path: k for k, (path, _) in enumerate(order)}
        kinds = dict(order)
        names = sorted(self._lanes, key=lambda name: _rank(name, rank))
        kept = [self._lanes[name] for name in names[:most]]
        merged = _merged([lane.pieces for lane in kept], most)
        found = [
            TimeLane(
                node=lane.node,
                kind=kinds.get(lane.node) or _kind_of(lane),
                visits=lane.visits,
                items=_items_of(lane),
                segments=segments,
                buckets=_buckets(list(lane.items.values())),
            )
            for lane, segments in zip(kept, merged, strict=True)
        ]
        return found, len(names) - len(kept)


def _order(plan: Plan) -> list[tuple[str, str]]:
    """Return the paths of all nodes in the order in which they are shown, each with its kind."""
    return [(place.name, kind_of(plan, place.name)) for place in outline(plan)]


def kind_of(plan: Plan, path: str) -> str:
    """Return what kind of node stands at a path."""
    node = node_at(plan, path)
    match node:
        case None:
            return "node"
        case _ if node.over is not None:
            return "map"
        case JoinNode():
            return "join"
        case Subflow():
            return "subflow"
        case _ if node.is_gate:
            return "gate"
    return "wait" if node.halts else "node"


def _rank(name: str, rank: Mapping[str, int]) -> tuple[int, str]:
    """Return where a lane stands: that of durable calls below their node, unknown ones last."""
    if name in rank:
        return rank[name], ""
    above = name.rpartition("/")[0]
    return (rank[above], name) if above in rank else (len(rank), name)


def _kind_of(lane: _Lane) -> str:
    if unit_of(lane.node) is not None:
        return "unit"
    return "map" if lane.count is not None or lane.items else "node"


def _paused(row: RunRow) -> list[TimeMark]:
    """Return the mark of a run that is paused now: its records say nothing of that."""
    pause = pause_of(row.needs_repair) if row.is_paused else None
    if pause is None:
        return []
    by, how = ("", None) if pause.act is None else (pause.act.by, pause.act.how)
    text = "" if pause.act is None else pause.act.comment
    return [
        TimeMark(
            kind="pause", at=pause.since, sequence=row.checkpoints, worker=None, by=by, how=how, text=text
        )
    ]


def _worker_of(owner: object) -> str | None:
    """Name the process that a record tells of; metadata of a user's may have any form."""
    match owner:
        case {"host": str(machine), "pid": int(pid)}:
            return f"{pid} on {machine}"
    return None


def _mark_of(kind: MarkKind, record: CheckpointRecord, worker: str | None) -> TimeMark:
    act = record.act
    return TimeMark(
        kind=kind,
        at=record.created_at,
        sequence=record.sequence,
        worker=worker,
        by="" if act is None else act.by,
        how=None if act is None else act.how,
        text="" if act is None else act.comment,
    )


def thinned(commits: Sequence[TimeCommit], most: int) -> list[TimeCommit]:
    """Return at most so many of them, the first and the last among these, spread over all."""
    if len(commits) <= most:
        return list(commits)
    last = len(commits) - 1
    return [commits[round(k * last / (most - 1))] for k in range(most)] if most > 1 else [commits[-1]]


class _Gap(NamedTuple):
    seconds: float
    lane: int
    behind: int
    """The piece that it follows."""


def _merged(lanes: Sequence[list[_Piece]], most: int) -> list[list[TimeSegment]]:
    """Return the pieces of each lane as segments, at most so many in all: the nearest ones become one."""
    for pieces in lanes:
        pieces.sort(key=lambda piece: piece.began)
    over = sum(map(len, lanes)) - most
    joined: set[tuple[int, int]] = set()
    if over > 0:
        gaps = sorted(
            _Gap(_seconds_between(pieces[k], pieces[k + 1]), n, k)
            for n, pieces in enumerate(lanes)
            for k in range(len(pieces) - 1)
        )
        joined = {(gap.lane, gap.behind) for gap in gaps[:over]}
    found = []
    for n, pieces in enumerate(lanes):
        groups: list[list[_Piece]] = []
        for k, piece in enumerate(pieces):
            if k and (n, k - 1) in joined:
                groups[-1].append(piece)
            else:
                groups.append([piece])
        found.append([_segment(group) for group in groups])
    return found


def _seconds_between(one: _Piece, other: _Piece) -> float:
    ended = one.ended or other.began
    return max(0.0, (other.began - ended).total_seconds())


def _segment(pieces: Sequence[_Piece]) -> TimeSegment:
    gravest = min(pieces, key=lambda piece: _RANK.get(piece.status, len(_RANK)))
    ends = [piece.ended for piece in pieces]
    kinds = {piece.kind for piece in pieces}
    return TimeSegment(
        began=pieces[0].began,
        ended=None if None in ends else max(end for end in ends if end is not None),
        kind=gravest.kind if len(kinds) == 1 else "attempt",
        status=gravest.status,
        address=name_of(gravest.step),
        attempt=gravest.attempt,
        sequence=gravest.sequence,
        count=len(pieces),
    )


def _items_of(lane: _Lane) -> ItemsInfo | None:
    if lane.count is None and not lane.items:
        return None
    ended = [item.status for item in lane.items.values()]
    return ItemsInfo(
        count=lane.count if lane.count is not None else len(ended),
        completed=ended.count(Status.COMPLETED),
        failed=ended.count(Status.FAILED),
    )


def _took(item: _Item) -> float:
    if item.began is None or item.ended is None:
        return 0.0
    return (item.ended - item.began).total_seconds()


def _buckets(items: Sequence[_Item]) -> list[TimeBucket]:
    """Put items into buckets: failed ones first, then those that go on, each kind from the slowest on."""
    kinds: dict[Status, list[_Item]] = {}
    for item in items:
        kinds.setdefault(item.status, []).append(item)
    found: list[TimeBucket] = []
    ordered = sorted(kinds, key=lambda status: _RANK.get(status, len(_RANK)))
    room, left = MOST_BUCKETS, len(items)
    for status in ordered:
        group = sorted(kinds[status], key=_took, reverse=True)
        buckets = min(len(group), max(1, room * len(group) // max(1, left)))
        for k in range(buckets):
            part = group[k * len(group) // buckets : (k + 1) * len(group) // buckets]
            found.append(_bucket(status, part))
        room, left = room - buckets, left - len(group)
    return found


def _bucket(status: Status, items: Sequence[_Item]) -> TimeBucket:
    began = [item.began for item in items if item.began is not None]
    ended = [item.ended for item in items]
    return TimeBucket(
        status=status,
        began=min(began),
        ended=None if None in ended else max(end for end in ended if end is not None),
        count=len(items),
        slowest=_took(items[0]),
        first_item=items[0].path,
        sequence=items[0].sequence,
    )
