"""What a host shows of a run: its result, its state at some moment, its row in a list, its waits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from everstep.codec.records import OpenRecord
from everstep.errors import DeadlineExceeded, NodeFailed, RunCancelled, RunHalted, RunPaused
from everstep.graph.author.extension import EXTENSIONS
from everstep.graph.author.wait_options import ARGUMENTS, IN_ROW
from everstep.graph.compile.plan import Plan
from everstep.model.acts import Act, split_act
from everstep.model.bundles import SET_ASIDE
from everstep.model.commits import Labels, NoticeRow, NoticeState
from everstep.model.enums import Status, Trigger
from everstep.model.leases import LanePause, WorkerRow, is_pause, pause_of
from everstep.model.records import (
    CHANNEL,
    KEPT,
    STREAM,
    UNIT,
    WAIT,
    Counters,
    ErrorInfo,
    FlowFrontier,
    IdempotencyState,
    NodeState,
    OpenedState,
    QueuedTask,
    UnitAt,
    visit_path,
)
from everstep.model.shapes import VALUE, Count, Instant, shown
from everstep.model.waits import SettledBy, VotingInfo, WaitRow, WaitStatus
from everstep.on_demand import on_demand
from everstep.ports.store import RunRow
from everstep.runtime.drive.values import ValueSpace, split_name
from everstep.runtime.outcome import Outcome
from everstep.runtime.resume import Resumed

if TYPE_CHECKING:
    from everstep.client import guards
    from everstep.client.guards import RunGuards
    from everstep.codec import notes
    from everstep.engine.keyframe import snapshot
    from everstep.engine.scope import Scope
    from everstep.graph.labels import shown_labels
    from everstep.model.address import Part, plain_of
    from everstep.runtime.integrity.findings import Fallback
    from everstep.runtime.lineage import Link
    from everstep.runtime.rehydrate import Rehydrated
    from everstep.runtime.waits.answers import message_name, who_settled
    from everstep.runtime.waits.voting import shown_votes
else:
    shown_votes = on_demand("everstep.runtime.waits.voting:shown_votes")
    notes = on_demand("everstep.codec.notes")
    guards = on_demand("everstep.client.guards")
    shown_labels = on_demand("everstep.graph.labels:shown_labels")
    message_name = on_demand("everstep.runtime.waits.answers:message_name")
    who_settled = on_demand("everstep.runtime.waits.answers:who_settled")
    snapshot = on_demand("everstep.engine.keyframe:snapshot")
    plain_of = on_demand("everstep.model.address:plain_of")


T = TypeVar("T")


class Values(Mapping[str, Any]):
    """The newest values of a flow, and under the names of the flows inside it, theirs."""

    def __init__(self, space: ValueSpace, plan: Plan, prefix: str) -> None:
        self._space = space
        self._prefix = prefix
        self._plan = plan
        self._homes = _homes(space) if plan.children else {}
        self._read: dict[str, Any] = {}

    @cached_property
    def _names(self) -> list[str]:
        space, prefix, writers = self._space, self._prefix, self._plan.writers
        area = space.areas.get(prefix, {})
        return [name for name in area if name in writers and not space.is_missed(name, prefix)]

    @cached_property
    def _children(self) -> list[str]:
        plan = self._plan
        return [
            plan.paths[i]
            for i, child in plan.children.items()
            if not child.is_leaf and self._home(plan.paths[i])
        ]

    def _home(self, child: str) -> str | None:
        """Return where the values of the last visit to an inner flow are."""
        return self._homes.get(self._prefix + child)

    def nested(self, child: str) -> Values:
        """Return what an inner flow came to, also if a value has the flow's name."""
        home = self._home(child) if child in self._children else None
        if home is None:
            raise KeyError(f"no flow {child!r} inside has ended; there is {sorted(self._children)}.")
        inner = self._plan.children[self._plan.index[child]].plan
        return Values(self._space, inner, home)

    def __getitem__(self, name: str) -> Any:
        if name in self._names:
            if name not in self._read:
                self._read[name] = self._space.final(name, self._prefix)
            return self._read[name]
        if name in self._children:
            return self.nested(name)
        raise KeyError(self._lacks(name))

    def _lacks(self, name: str) -> str:
        return f"there is no value {name!r}; there is {sorted(self)}."

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._children

    def __iter__(self) -> Iterator[str]:
        yield from self._names
        yield from (child for child in self._children if child not in self._names)

    def __len__(self) -> int:
        return len({*self._names, *self._children})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # its values need not be hashable

    def __repr__(self) -> str:
        return f"<values {', '.join(self)}>"


def _homes(space: ValueSpace) -> dict[str, str]:
    """Return where the values of inner flows are: the newest visit's, by the path without its number."""
    found: dict[str, str] = {}
    for prefix in space.areas:
        head, slash, last = prefix[:-1].rpartition("/")
        found[head + slash + last.partition("@")[0]] = prefix
    return found


class RunResult(Values):
    """What a run came to: its status, and the newest value of everything its nodes wrote.

    Of a pipeline these are the keys of its context.
    """

    is_paused = False
    """True if it was let go of as it, its flow or its group is paused; `host.fleet.unpause` lets it go on."""

    def __init__(self, outcome: Outcome, waits: list[WaitInfo], now: datetime | None = None) -> None:
        super().__init__(outcome.space, outcome.state.plan, "")
        area = outcome.space.areas.get(CHANNEL, {})
        self._keys = [key for key, slot in area.items() if now is None or not slot.written.has_expired(now)]
        context = EXTENSIONS.results(outcome.state.plan, self._keys) if self._keys else None
        self.is_pipeline = context is not None
        """True for a run of a pipeline, whose values are the keys of its context."""
        self._context: Collection[str] = context or ()
        self.spooled = outcome.spooled
        """How many of its checkpoints wait on this machine, as the store could not take them."""
        self.waits = waits
        """What it waits for, if it halted."""
        if outcome.paused is not None:
            self.is_paused = True
        self.fallback: Fallback | None = outcome.fallback
        """If the run goes on in the place of a damaged one: which, from where, and what may be done twice."""
        self.run_id = outcome.run_id
        self.status = outcome.status
        self.error: ErrorInfo | None = outcome.error
        self._exception = outcome.exception
        self.steps = outcome.state.total
        self._books = outcome.state.books

    @cached_property
    def guards(self) -> RunGuards:
        """What it has spent, what it may spend, and how its breakers stand."""
        return guards.RunGuards.of(self._books)

    @property
    def channel(self) -> dict[str, Any]:
        """What is in the run's channel, as far as it is kept with the run."""
        return {key: self._space.peek(key, CHANNEL) for key in self._keys}

    def __getitem__(self, name: str) -> Any:
        return self._space.peek(name, CHANNEL) if name in self._context else super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        return name in self._context or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._keys if key in self._context)
        yield from (name for name in super().__iter__() if name not in self._context)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _lacks(self, name: str) -> str:
        why = f" The run {self.status.value}: {self.error.message}" if self.error is not None else ""
        return f"run {self.run_id!r} has no value {name!r}; it has {sorted(self)}.{why}"

    def __repr__(self) -> str:
        return f"<run {self.run_id} {self.status.value}: {', '.join(self)}>"

    def raise_for_status(self) -> RunResult:
        """Return self if the run completed, else raise what stopped it."""
        if self.status is Status.COMPLETED:
            return self
        if self.status is Status.CANCELLED:
            why = f": {self.error.message}" if self.error is not None else "."
            raise RunCancelled(f"run {self.run_id!r} was cancelled{why}")
        if self.is_paused:
            raise RunPaused(
                f"run {self.run_id!r} is paused.",
                fix=f"Let it go on with host.fleet.unpause({self.run_id!r}), then resume it.",
            )
        if self.status is Status.HALTED:
            raise RunHalted(
                f"run {self.run_id!r} waits for {', '.join(repr(w.node) for w in self.waits[:5])}.",
                fix=f"Answer its waits, then resume it with host.resume({self.run_id!r}, flow).",
            )
        if self.error is not None and self.error.code == DeadlineExceeded.code:
            raise DeadlineExceeded(self.error.message) from self._exception
        message = f"run {self.run_id!r} {self.status.value}"
        message += f": {self.error.type}: {self.error.message}" if self.error is not None else "."
        raise NodeFailed(
            message, fix=f"Resume it with host.resume({self.run_id!r}, flow)."
        ) from self._exception


class SentSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was sent to a run."""

    run_id: str
    name: str
    id: str
    is_new: bool
    """False if the run had a signal of this id already, so that this one counts for nothing."""


class PublishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was published."""

    name: str
    id: str
    settled: Count
    """How many waits it settled at once; others may take it while it is kept."""


class SignalInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A signal in a run's inbox that the run has not taken."""

    number: Count
    """Counts the signals of the run in the order in which they came."""
    id: str
    name: str
    value: Any
    """None if it cannot be read here; then `problem` says why."""
    sent_at: Instant
    act: Act | None
    """Who sent it, and why, if that was said."""
    wait_id: str | None
    """The wait that it has settled, and that takes it next."""
    problem: str

    @classmethod
    def of(cls, signal: msgspec.Struct) -> SignalInfo:
        """Describe one."""
        return cls(**_same(cls, signal))


class NoticeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One notice: what it tells of, whom, and what became of it."""

    id: str
    """The same wherever and however often it is sent."""
    number: Count
    """Rises from notice to notice: `before` goes on from it."""
    run_id: str
    notifier: str
    occasion: str
    """What it tells of, such as "failed" or "reminder"."""
    state: NoticeState
    at: Instant | None
    """When that was, as far as the store knows."""
    due_at: Instant | None
    """When it is tried next; none once it was sent, or is tried no more."""
    tries: Count
    sent_at: Instant | None
    wait_id: str | None
    """The wait that it tells of again."""
    error: str
    """Why the last try failed."""

    @classmethod
    def of(cls, row: NoticeRow) -> NoticeInfo:
        """Describe a row."""
        shared = {name: getattr(row, name) for name in cls.__struct_fields__ if name not in ("id", "due_at")}
        # A store that wrote it by itself may say that it is due since ever.
        due_at = row.due_at if row.due_at is None or row.at is None else max(row.due_at, row.at)
        return cls(id=row.notice_id, due_at=due_at, **shared)


class WaitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run waits for."""

    id: str
    run_id: str
    flow: str
    node: str
    """The path of the node that waits."""
    visit: Count
    kind: str
    prompt: str
    context: Any
    options: list[Any] | None
    spellings: dict[str, Any]
    """Other ways to say an option, in lower case."""
    schema: dict[str, Any] | None
    """The JSON Schema of an answer; none if anything will do."""
    listens_for: str
    """The name of the signal, or of the event, that settles it; empty if an answer does."""
    scheduler: str
    """The alias of the scheduler that keeps its time; empty for the store's own."""
    status: WaitStatus
    opened_at: Instant
    due_at: Instant | None
    notified_at: Instant | None
    settled_at: Instant | None
    settled_by: SettledBy | None
    answer: Any
    act: Act | None
    """Who answered it, and why, if that was said: `by`, `comment` and `how` that is known."""
    token: str | None
    """The secret to answer with, if this host made it just now or has the key that it was made with."""
    token_metadata: dict[str, Any] | None
    """What was noted of its token when that was made."""
    link: str | None
    """The page to answer at, if the host knows its own address and the token."""
    voting: VotingInfo | None = None
    """Of an approval that keeps count of who says what: who may, and who has."""

    @classmethod
    def of(cls, row: WaitRow, token: str | None, link: str | None) -> WaitInfo:
        """Describe a row, with the secret if it is known."""
        details = msgspec.json.decode(row.details)
        shown = [name for name in IN_ROW if name in cls.__struct_fields__]
        asked = {name: details.get(name, ARGUMENTS[name].unsaid) for name in shown}
        return cls(
            **_same(cls, row)
            | asked
            | {
                "id": row.wait_id,
                "flow": row.flow_id,
                "node": row.path,
                "spellings": details.get("spellings") or {},
                "schema": details.get("schema"),
                "listens_for": message_name(row),
                "answer": None if row.answer is None else msgspec.json.decode(row.answer),
                "act": who_settled(row),
                **({} if (message := notes.message_of(row)) is None else _said(message)),
                "token": token,
                "token_metadata": details.get(notes.TOKEN),
                "link": link,
            }
            | (shown_votes(details) if "voting" in details else {})
        )

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.node!r} of run {self.run_id}: {self.status.value}>"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What a delivered message did to its run."""

    run_id: str
    result: RunResult | None
    """What the run came to here; none if another process has it, or its flow is not known here."""
    waits: list[WaitInfo]
    """What the run waits for now."""
    resumed: Resumed | None
    """How it was taken up here: ids, frontier, attempt, time."""


OWN = (WAIT, STREAM, UNIT, KEPT, "@task/")
"""What the names of values begin with that are a run's own affair."""


class RunState(Mapping[str, Any]):
    """The values of a run at one checkpoint, inputs included, and where it stood.

    What a run keeps for itself, such as what a wait asks for, is there by name and in no listing.
    """

    def __init__(self, run_id: str, folded: Rehydrated, part: Part | None = None) -> None:
        self.run_id = run_id
        self.part = part
        """The part of the run whose values, nodes and tasks these are; none for all of it."""
        self.sequence = folded.head.sequence
        self.status = folded.status
        self.error = folded.error
        self.frontier: FlowFrontier = _frontier_of(folded.state.frontier(), part)
        self.idempotency: IdempotencyState = folded.state.idempotency()
        self.counters: Counters = folded.state.counters()
        self.guards = guards.RunGuards.of(folded.state.books)
        """What it had spent, what it might spend, and how its breakers stood."""
        delay, deadline = folded.state.delay, folded.state.deadline
        self.begins_at = None if delay is None else delay.due_at
        """When it begins, if it was to begin later and had not."""
        self.ends_at = None if deadline is None else deadline.due_at
        """Its deadline: when it is ended, if it has not ended by itself."""
        if self.status.is_final:
            self.begins_at = self.ends_at = None
        self.plan = folded.state.plan
        """The wiring that the run began with, without its functions."""
        self._folded = folded
        self._space = folded.space
        self._where: dict[str, tuple[str, str]] = {
            prefix + name: (name, prefix)
            for prefix, area in folded.space.areas.items()
            for name in area
            if (self._is_shown(prefix + name) or prefix.startswith(OWN))
            and not folded.space.is_missed(name, prefix)
        }
        self.versions: dict[str, int] = {
            prefix + name: slot.written.version
            for prefix, area in folded.space.areas.items()
            for name, slot in area.items()
            if self._is_shown(prefix + name)
        }

    def _is_shown(self, name: str) -> bool:
        """True for the name of a value that lies in the part; of a node that is no flow, what it writes."""
        part = self.part
        if part is None or part.has_inside(name):
            return True
        head, _, local = name.rpartition("/")
        above, _, node = part.path.rpartition("/")
        return head == above and name[0] != "@" and local in _outputs_of(self.plan, plain_of(above), node)

    def __getitem__(self, name: str) -> Any:
        if name not in self._where:
            what = "was not kept" if name in self.versions else "does not exist"
            raise KeyError(f"value {name!r} {what} at checkpoint {self.sequence}; there is {sorted(self)}.")
        return self._space.peek(*self._where[name])

    def seen(self, name: str, see: Callable[[ValueSpace, str, str], T]) -> T:
        """Return what `see` gives of a value: it is told where that is, but nothing is read."""
        prefix, local = split_name(name)
        return see(self._space, local, prefix)

    def __contains__(self, name: object) -> bool:
        return name in self._where

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._where if not name.startswith(OWN))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def has_channel_beside(self) -> bool:
        """True if the run keeps its channel elsewhere than in its records."""
        return self._space.has_channel_elsewhere

    def size_of(self, name: str) -> int:
        """Return how many bytes a value has as it is kept; it is not read for that."""
        local, prefix = self._where[name]
        slot = self._space.areas[prefix][local]
        return max(slot.written.size, slot.cost)  # the one of what has grown, the other of an artifact

    @property
    def digests(self) -> dict[str, bytes]:
        """For each kept value something that is equal only for equal values; none is read for it."""
        return {name: digest for name, digest in self._folded.digests().items() if self._is_shown(name)}

    @property
    def nodes(self) -> dict[str, NodeState]:
        """Where the run stood with each node that had run or was to run."""
        nodes = snapshot(self._folded.state, ()).nodes
        return {path: node for path, node in nodes.items() if self.part is None or self.part.holds(path)}

    @cached_property
    def calls(self) -> dict[str, UnitAt]:
        """The recorded durable calls of visits under way, by the names of what they gave."""
        return {
            f"{UNIT}{visit_path(path, visit)}/{label}": unit
            for scope in self._folded.state.scopes()
            for i, units in scope.units.items()
            for path, visit in ((scope.path_of(i), _visit_under_way(scope, i)),)
            if self.part is None or self.part.holds(path)
            for label, unit in units.at.items()
            if unit.status is not Status.RETRYING
        }

    def times(self) -> dict[str, datetime]:
        """Return when it begins and when it is ended, by these names, as far as that is said."""
        said = {"begins_at": self.begins_at, "ends_at": self.ends_at}
        return {name: at for name, at in said.items() if at is not None}

    @property
    def opened(self) -> dict[str, OpenedState]:
        """The visits to inner flows under way, by the path of the node; of a map, which items are done."""
        opened = snapshot(self._folded.state, ()).opened
        return {path: visit for path, visit in opened.items() if self.part is None or self.part.holds(path)}

    @property
    def queued(self) -> tuple[QueuedTask, ...]:
        """The tasks still to come, each node's most urgent first; `node` is its whole path."""
        tasks = snapshot(self._folded.state, ()).tasks
        return tuple(task for task in tasks if self.part is None or self.part.holds(task.node))

    def __repr__(self) -> str:
        return f"<state of {self.run_id} at {self.sequence}: {', '.join(self.versions)}>"


def _visit_under_way(scope: Scope, i: int) -> int:
    # One that has failed is counted already, and is the same one if the run is reopened.
    return scope.visits[i] + (scope.statuses[i] is not Status.FAILED)


def _frontier_of(frontier: FlowFrontier, part: Part | None) -> FlowFrontier:
    if part is None:
        return frontier
    return msgspec.structs.replace(
        frontier,
        completed=tuple(entry for entry in frontier.completed if part.holds(entry.node_alias)),
        pending=tuple(path for path in frontier.pending if part.holds(path)),
    )


def _outputs_of(plan: Plan, around: str, name: str) -> tuple[str, ...]:
    """Return what a node writes into the flow around it; nothing of one that is a flow or a map itself."""
    for outer in around.split("/") if around else ():
        plan = plan.children[plan.index[outer]].plan
    i = plan.index.get(name)
    return plan.nodes[i].outputs if i is not None and i not in plan.children else ()


def _said(message: notes.Message) -> dict[str, Any]:
    """Return what a wait for a signal or an event was settled with, and by whom."""
    return {"answer": message.value, "act": message.act}


def _same(shape: type[msgspec.Struct], row: msgspec.Struct) -> dict[str, Any]:
    """Return what a row has under the names that a result has, too."""
    return {name: getattr(row, name) for name in _shared(shape, type(row))}


@cache
def _shared(shape: type[msgspec.Struct], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name in shape.__struct_fields__ if hasattr(kind, name))


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list of runs."""

    run_id: str
    flow: str
    flow_version: str
    status: Status
    created_at: Instant
    ended_at: Instant | None
    checkpoints: Count
    """The sequence of its newest checkpoint, those it shares with its parent included."""
    parent_run_id: str | None
    """The run it was forked from."""
    forked_at: Count | None
    """The parent's checkpoint that it goes on from."""
    starter_run_id: str | None = None
    """The run whose node started it."""
    starter_node: str | None = None
    """That node, with its visit, such as `ship@2`."""
    adopted_at: Count | None
    """The checkpoint with which it went over to the version of its flow that it goes by."""
    trimmed_before: Count
    """Checkpoints of its own before this one were removed; 0 if none were."""
    is_driven: bool
    """True if a live process holds its lease."""
    is_cancelling: bool
    priority: int
    """The higher, the sooner workers take it."""
    group: str | None
    """With whom it takes turns."""
    needs_repair: str | None
    """Why workers leave it alone: it was found damaged, or brought here unfinished."""
    paused_at: Instant | None = None
    """Since when it is paused, by itself; none if it is not."""
    paused_by: Act | None = None
    """Who wants it paused, if that was said."""
    acked_at: Instant | None
    """When its result was acknowledged."""
    pinned: str | None
    """Why it is kept, whatever retention says."""
    pinned_by: Act | None
    """Who wants it kept, if that was said."""
    tags: dict[str, str] | None = None
    """What people call it by, with a value or an empty text; none if that was not asked for."""
    attributes: dict[str, Any] | None = None
    """What it says of itself, so that it is found; none if that was not asked for."""
    undoing: str | None = None
    """That it undoes what it did, or what came of that: `undoing`, `complete`, `2 skipped`, `declined`; none
    if it does not, or that was not asked for."""
    changed_at: Instant | None = None
    """When it ended, or its newest checkpoint was made; none if the listing does not ask for `changed`."""

    @classmethod
    def of(
        cls,
        row: RunRow,
        *,
        is_driven: bool,
        labels: Labels | None = None,
        changed_at: datetime | None = None,
    ) -> RunInfo:
        """Describe a row, with what else was read."""
        pinned, pinned_by = split_act(row.pinned) if row.pinned is not None else (None, None)
        marked: dict[str, Any] = {}
        if row.needs_repair is not None and is_pause(row.needs_repair):
            pause = pause_of(row.needs_repair) if row.is_paused else None
            marked["needs_repair"] = None
            if pause is not None:
                marked |= {"paused_at": pause.since, "paused_by": pause.act}
        if (by := row.started_by) is not None:
            marked |= {"starter_run_id": by.run, "starter_node": f"{by.path}@{by.visit}"}
        return cls(
            **_same(cls, row)
            | marked
            | {
                "flow": row.flow_id,
                "is_driven": is_driven,
                "is_cancelling": row.stop_request is not None,
                "pinned": pinned,
                "pinned_by": pinned_by,
                "changed_at": changed_at,
                **({} if labels is None else shown_labels(labels)),
            }
        )

    @property
    def is_damaged(self) -> bool:
        """True if what workers leave it alone for is damage."""
        return self.needs_repair is not None and not self.needs_repair.startswith(SET_ASIDE)

    @property
    def duration(self) -> timedelta | None:
        """How long it took; none if it has not ended."""
        return None if self.ended_at is None else self.ended_at - self.created_at

    @shown
    def seconds(self) -> float | None:
        """The same in seconds."""
        return None if self.duration is None else self.duration.total_seconds()

    def __repr__(self) -> str:
        return f"<run {self.run_id} of {self.flow}: {self.status.value}>"


class StartedRun(RunInfo, frozen=True, kw_only=True):
    """What a start gives of a run whose flow has a singleton."""

    joined: bool
    """True if another run had its key, and this is that one: nothing was started."""
    replaced: tuple[str, ...]
    """The runs that had its key, and were cancelled for it. It begins once they have ended."""


class RunPage(list[RunInfo]):
    """Runs of a listing, newest first, and where it goes on."""

    def __init__(self, runs: Iterable[RunInfo] = (), following: str | None = None) -> None:
        super().__init__(runs)
        self.next = following
        """The `before` of the next page; none if there is none."""


class PauseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run, a flow or a group that is paused."""

    run_id: str | None = None
    """The run; none of a flow or a group."""
    flow: str | None = None
    """The flow, or that of the run; none of a group of every flow."""
    group: str | None = None
    """The group, or that of the run."""
    since: Instant
    by: Act | None = None
    """Who wants it paused, if that was said."""

    @classmethod
    def of_run(cls, row: RunRow) -> PauseInfo:
        """Describe the pause of a run."""
        pause = pause_of(row.needs_repair)
        since, act = (row.created_at, None) if pause is None else (pause.since, pause.act)
        return cls(run_id=row.run_id, flow=row.flow_id, group=row.group, since=since, by=act)

    @classmethod
    def of_lane(cls, lane: LanePause) -> PauseInfo:
        """Describe the pause of a flow or a group."""
        pause = lane.pause
        return cls(flow=lane.flow_id or None, group=lane.group or None, since=pause.since, by=pause.act)


class DrivenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One run that a worker drives."""

    run_id: str
    flow_id: str = msgspec.field(name="flow")
    since: Instant


class TakenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a flow whose runs a worker takes."""

    flow_id: str = msgspec.field(name="flow")
    flow_version: str = msgspec.field(name="version")
    """Empty for an older version, whose runs go over to the one that the worker has."""
    flow_hash: str = msgspec.field(name="hash")


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One worker that is alive."""

    id: str
    host: str
    """The name of its machine."""
    pid: Count
    flows: list[str]
    concurrency: Count
    """How many runs it drives at once at most."""
    driving: Count
    """How many it drives."""
    longest: list[DrivenInfo]
    """Those that it has driven for the longest, at most a hundred: `run_id`, `flow_id`, `since`."""
    started_at: Instant
    seen_at: Instant
    """When it last reported itself, by the store's clock."""
    is_stopping: bool
    """It claims nothing more."""
    is_slowed: bool
    """It claims less than it could, as the store is slow."""
    skew_seconds: float
    """How far the store's clock is ahead of its machine's; 0 if the store has none."""
    release: str | None
    """The version of everstep; none of 0.1.0, which does not say it."""
    takes: list[TakenInfo]
    """The versions of its flows whose runs it takes: `flow`, `version`, `hash`. 0.1.0 does not say them."""

    @classmethod
    def of(cls, row: WorkerRow) -> WorkerInfo:
        """Describe a row."""
        longest = [DrivenInfo(**_same(DrivenInfo, run)) for run in row.longest]
        own = {
            "id": row.worker_id,
            "flows": list(row.flows),
            "longest": longest,
            "seen_at": row.seen_at or row.started_at,
            "release": row.release or None,
            "takes": [TakenInfo(**_same(TakenInfo, one)) for one in row.takes],
        }
        return cls(**_same(cls, row) | own)

    def __repr__(self) -> str:
        return f"<worker {self.pid} on {self.host}: {self.driving} of {self.concurrency}>"


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list of checkpoints. Of a trimmed one only sequence, id and run are known."""

    sequence: int
    checkpoint_id: str
    run_id: str
    """The run it lies in: of a fork's shared part, the run it was forked from."""
    trigger: Trigger | None = None
    created_at: datetime | None = None
    steps: int = 0
    """How many steps it holds."""
    nodes: tuple[str, ...] = ()
    """The paths of these steps."""
    status: Status | None = None
    keyframe: bool = False
    metadata: Annotated[dict[str, Any] | None, VALUE] = None
    size: int = 0
    """In bytes, without artifacts."""
    is_trimmed: bool = False

    @classmethod
    def of(cls, link: Link, opened: OpenRecord | None, part: Part | None = None) -> CheckpointInfo:
        """Describe a record that was read, or the stub that is left of it; its steps only in a part."""
        stored, run_id = link.stored, link.row.run_id
        if opened is None:
            return cls(
                sequence=stored.sequence, checkpoint_id=stored.checkpoint_id, run_id=run_id, is_trimmed=True
            )
        record = opened.record
        steps = [step for step in record.steps if part is None or part.holds(step.path, step.visit)]
        return cls(
            sequence=stored.sequence,
            checkpoint_id=stored.checkpoint_id,
            run_id=run_id,
            trigger=record.trigger,
            created_at=record.created_at,
            steps=len(steps),
            nodes=tuple(step.path for step in steps),
            status=record.status,
            keyframe=record.keyframe,
            metadata=record.metadata,
            size=len(stored.body),
        )
