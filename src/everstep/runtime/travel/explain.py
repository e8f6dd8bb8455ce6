"""What a resume would do, before it does anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from copy import copy
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from everstep.codec.notes import look_at_wait
from everstep.engine.forks import run_again
from everstep.engine.keys import automatic_key
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.engine.undo.stack import Undoing, is_undone
from everstep.errors import EverstepError
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.graph.compile.loops import reachable
from everstep.model.address import Part
from everstep.model.compat import Compat, Compatibility
from everstep.model.durability import Durability
from everstep.model.enums import Effects, Flush, Mode, Status
from everstep.model.records import RESULT, START, StepRecord
from everstep.model.shapes import shown
from everstep.model.waits import DEADLINE_KIND, SETTLE, SettledBy, VotingInfo, WaitRow, WaitStatus
from everstep.ports.store import RunRow, StopRequest
from everstep.runtime.drive.apply import apply
from everstep.runtime.drive.chain_writer import Identity, Journal
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.loop import Drive
from everstep.runtime.drive.values import ValueSpace
from everstep.runtime.operations.pausing import check_going_on
from everstep.runtime.operations.untaken import Untaken, untaken
from everstep.runtime.outage.spooled_view import ahead, waiting_for
from everstep.runtime.preflight import preflight
from everstep.runtime.reader import RunReader
from everstep.runtime.resume import begins_again_at, choice_rule
from everstep.runtime.services import Services
from everstep.runtime.travel.migrate import rehearse
from everstep.runtime.waits.answers import open_waits
from everstep.runtime.waits.voting import info_of


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A node whose visits are recorded; not one that runs again, as it is due or follows from what is, or
    that is made again.

    Of a map under way: its items that have ended.
    """

    path: str
    visits: int
    status: Status
    outputs: tuple[str, ...] = ()
    """What it wrote."""
    items: int | None = None
    """Of a map under way: how many of its items are recorded, and not called again."""
    of_items: int | None = None
    """Of a map under way: how many items it goes over."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A visit that is still to come, or to be tried again."""

    path: str
    visit: int
    attempt: int = 1
    effects: Effects = Effects.UNDECLARED
    key: str | None = None
    """Its idempotency key, as far as it is known before the call."""
    may_have_started: bool = False
    """True if an owner before may have begun it: it failed, or that owner did not give the run back."""
    not_before: datetime | None = None
    """When the pause before its next attempt ends."""
    chunks: int = 0
    """How many chunks of its stream are kept; it goes on behind them."""
    cursor: str | None = None
    """The newest cursor of its stream."""
    calls: tuple[str, ...] = ()
    """Its durable calls that are recorded, such as `$search@1`: they are not made again."""
    asks: Literal["probe", "operator"] | None = None
    """Who is asked first what became of the call that was begun and never reported."""
    only_chooses: bool = False
    """True if its work is done and recorded: it is not called again, and only its edge is chosen."""

    @shown
    def may_repeat(self) -> bool:
        """True if what it does to the world may be done twice."""
        is_harmless = self.effects in (Effects.PURE, Effects.READ_ONLY) or self.asks is not None
        return self.may_have_started and not is_harmless and not self.only_chooses


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for. Once it is settled, the resume takes its answer in."""

    wait_id: str = msgspec.field(name="id")
    path: str
    kind: str
    status: WaitStatus
    due_at: datetime | None = None
    outcome: Literal["done", "rerun", "skip", "approved", "rejected"] | None = None
    """What was decided; of an effect that never reported: it happened, or its node is called again."""
    settled_by: SettledBy | None = None
    then: tuple[str, ...] = ()
    """The nodes that follow it."""
    voting: VotingInfo | None = None
    """Of an approval that keeps count of who says what: who may, and who has."""
    calls: tuple[str, ...] = ()
    """Of a node that waits in its middle: its durable calls that are recorded, and not made again."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a resume would do with a run."""

    run_id: str
    flow: str
    status: Status
    is_driven: bool
    """True while another process has the run: then a resume waits for it."""
    compat: Compat
    is_cancelling: bool = False
    """True if the run was cancelled and has not ended yet: a resume only ends it."""
    recorded: tuple[Recorded, ...] = ()
    """What is skipped: its outputs are durable."""
    starts: tuple[Planned, ...] = ()
    """What starts at once, in this order."""
    pending: tuple[Planned, ...] = ()
    """What is due, but comes after something else or after a pause."""
    remade: tuple[str, ...] = ()
    """Finished nodes that are called again, once something that is still to come reads their outputs, which
    were not kept."""
    begins_at: datetime | None = None
    """When it begins, if it was to begin later and has not."""
    ends_at: datetime | None = None
    """Its deadline: when it is ended, if it has not ended by itself."""
    waits: tuple[Awaited, ...] = ()
    missing: tuple[str, ...] = ()
    """Why it would not start at all."""
    can_lose: str = ""
    """What a crash of the owner before may have cost."""
    spooled: int = 0
    """Checkpoints that wait on this machine. A resume here writes them first, so they count as recorded."""
    becomes_fork: bool = False
    """True if the run has gone on without those: then they become a fork of it."""
    undoes: tuple[str, ...] = ()
    """What would be undone if it failed or was cancelled now, the first one first; of a run that undoes what
    it did, what is left of that."""
    is_undoing: bool = False
    """True if it undoes what it did: a resume goes on with that, and with nothing else."""
    paused: str = ""
    """What of it is paused, since when and by whom; then a resume is refused."""
    untaken: Untaken | None = None
    """Why no live worker takes it, or would once what it waits for is there; none if one does."""

    @property
    def may_repeat(self) -> tuple[Planned, ...]:
        """The planned steps whose effects may happen a second time."""
        return tuple(step for step in (*self.starts, *self.pending) if step.may_repeat)

    def within(self, part: Part) -> Explanation:
        """Return it with the steps and waits of a part alone; what is said of the run stays."""
        return msgspec.structs.replace(
            self,
            recorded=tuple(step for step in self.recorded if part.holds(step.path)),
            undoes=tuple(address for address in self.undoes if part.holds(address)),
            starts=tuple(step for step in self.starts if part.holds(step.path, step.visit)),
            pending=tuple(step for step in self.pending if part.holds(step.path, step.visit)),
            remade=tuple(path for path in self.remade if part.holds(path)),
            waits=tuple(wait for wait in self.waits if part.holds(wait.path)),
        )


_OFF = Durability(Mode.OFF)


class _Due(NamedTuple):
    scope: Scope
    i: int


class _Preview(Drive):
    """A drive that goes as far as what it would start first."""

    def first(self) -> list[_Due]:
        """Return what would start. The state goes on as if flows had been opened; nothing is called."""
        self._state.look_around()
        if self._state.opened:
            self._inner.take_up()
        found = [_Due(scope, i) for scope, i in self._pick()]
        self._late.close()
        return found


async def explain(services: Services, runs: RunReader, run_id: str, flow: Flow) -> Explanation:
    """Say what a resume would skip, start, repeat and miss. Nothing is called or written."""
    missing: list[str] = []
    try:
        flow = preflight(flow, services)
    except EverstepError as error:
        missing.append(str(error))
    row = await runs.row(run_id)
    waiting = await waiting_for(services, row)
    if waiting.commits:
        services, runs = await ahead(services, runs, run_id)
        row = await runs.row(run_id)
    compat, state, space = await rehearse(services, runs, row, flow)
    over = row.status in (Status.COMPLETED, Status.CANCELLED) or row.stop_request is not None
    over = over or (row.status.is_final and state.undo is not None and state.undo.is_over)
    waits = tuple(
        _awaited(look_at_wait(services.codecs, wait), state)
        for wait in await open_waits(services.store, run_id)
        if wait.kind != DEADLINE_KIND
    )
    is_driven = _is_driven(services, row)
    is_left = not is_driven and row.status in (Status.RUNNING, Status.HALTED)
    left_alone = await untaken(services, runs, [row]) if is_left else []
    held = await check_going_on(services, row)
    explained = Explanation(
        run_id=run_id,
        flow=row.flow_id,
        status=row.status,
        is_driven=is_driven,
        untaken=left_alone[0] if left_alone else None,
        paused="" if held is None else str(held),
        compat=compat,
        is_cancelling=row.stop_request is not None,
        begins_at=None if over or state.delay is None else state.delay.due_at,
        ends_at=None if over or state.deadline is None else state.deadline.due_at,
        waits=() if over else waits,
        missing=tuple(missing),
        can_lose="" if over else _can_lose(flow.durability),
        spooled=len(waiting.commits),
        becomes_fork=not waiting.goes_on,
    )
    if state.undo is not None:
        explained = _with_undo(explained, state.undo, flow, row.stop_request, state)
    if over or explained.is_undoing or compat.verdict is not Compatibility.CONTINUES:
        return msgspec.structs.replace(explained, recorded=tuple(_recorded(state, is_over=True)))
    again = {wait.wait_id for wait in waits if wait.outcome == "rerun" or _goes_on_inside(wait)}
    remade = tuple(dict.fromkeys(_remade(state, space)))
    begins_at = _begin(row, flow, state, space)
    recorded = tuple(_recorded(state, remade, is_over=False))
    starts, pending = await _planned(services, runs, row, flow, state, space, again, begins_at)
    return msgspec.structs.replace(
        explained, recorded=recorded, starts=starts, pending=pending, remade=remade
    )


def _with_undo(
    explained: Explanation, undo: Undoing, flow: Flow, stop: StopRequest | None, state: RunState
) -> Explanation:
    """Return it with what would be undone, or is yet to be."""
    is_left = not undo.is_over and (stop is None or is_undone(undo, flow.undo, stop, state.scopes()))
    undoes = tuple(entry.address for entry in reversed(undo.stack)) if is_left else ()
    return msgspec.structs.replace(explained, undoes=undoes, is_undoing=undo.has_begun)


def _awaited(row: WaitRow, state: RunState) -> Awaited:
    scope, i = state.waits.get(row.wait_id, (state, -1))
    follow = sorted(scope.plan.graph[i]) if i >= 0 else ()
    if RESULT in row.path and i >= 0:
        follow = [i]  # the node itself, which is entered again
    return Awaited(
        wait_id=row.wait_id,
        path=row.path,
        kind=row.kind,
        status=row.status,
        due_at=row.due_at,
        outcome=_outcome(row),
        settled_by=row.settled_by,
        then=tuple(scope.path_of(k) for k in follow),
        voting=info_of(msgspec.json.decode(row.details)) if row.kind == "approval" else None,
        calls=_calls(scope, i),
    )


_NOT_ENDED = (Status.RETRYING, Status.RUNNING)


def _calls(scope: Scope, i: int) -> tuple[str, ...]:
    """Return the durable calls of an open visit that are recorded."""
    units = scope.units.get(i)
    if units is None:
        return ()
    return tuple(name for name, unit in units.at.items() if unit.status not in _NOT_ENDED)


def _goes_on_inside(wait: Awaited) -> bool:
    """True of a settled wait in the middle of a node, which is entered again."""
    return RESULT in wait.path and wait.status is WaitStatus.SETTLED


def _outcome(row: WaitRow) -> Literal["done", "rerun", "skip", "approved", "rejected"] | None:
    if row.answer is None or row.kind not in (SETTLE, "approval"):
        return None
    said = msgspec.json.decode(row.answer)
    if row.kind == SETTLE:
        return "skip" if "skip" in said else "done" if "done" in said else "rerun"
    return "approved" if said.get("approved") else "rejected"


def _is_driven(services: Services, row: RunRow) -> bool:
    lease = row.lease
    if lease is None or lease.expires_at <= services.clock.now():
        return False
    return lease.process is None or not services.processes.is_gone(lease.process)


def _recorded(state: RunState, remade: Collection[str] = (), *, is_over: bool) -> Iterator[Recorded]:
    """Yield what is recorded; of a run that goes on, without the nodes that run once more."""
    for scope in state.scopes():
        coming = run_again(scope) if not is_over else ()
        for i, visits in enumerate(scope.visits) if not scope.is_hidden else ():
            path = scope.path_of(i)
            done = visits - (scope.statuses[i] is Status.FAILED and i in scope.due) - (path in remade)
            visit = scope.opened.get(i)
            if visit is not None and visit.is_map:
                ended = len(visit.done) + len(visit.failed)
                yield Recorded(
                    path=visit.base, visits=0, status=Status.RUNNING, items=ended, of_items=visit.count
                )
            if done and i not in coming:
                status = scope.statuses[i] if done == visits else None
                outputs = scope.plan.nodes[i].outputs
                yield Recorded(
                    path=path,
                    visits=done,
                    status=status if status in _ENDED else Status.COMPLETED,
                    outputs=tuple(name for name in outputs if name in scope.versions),
                )


_ENDED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


def _begin(row: RunRow, flow: Flow, state: RunState, space: ValueSpace) -> tuple[str, ...]:
    """Let a run that has failed go on as a resume does; returns the nodes at which it begins again."""
    starts = begins_again_at(row, flow, state, space)
    if starts:
        apply(state, space, StepRecord(path=START, decision=starts), ())
    elif row.status.is_final:
        state.reopen()
    return starts


async def _planned(
    services: Services,
    runs: RunReader,
    row: RunRow,
    flow: Flow,
    state: RunState,
    space: ValueSpace,
    again: Collection[str],
    starts: tuple[str, ...],
) -> tuple[tuple[Planned, ...], tuple[Planned, ...]]:
    is_taken_over = row.status is Status.RUNNING and row.lease is not None
    key_run = await runs.key_run(row, state)
    tried = {
        (scope.prefix, i)
        for scope in state.scopes()
        for i in scope.due
        if scope.attempts[i] or (i in scope.keys and i not in scope.plan.children)
    }
    # The same code as a resume finds out what starts first, on a copy and without listeners.
    quiet = services
    if services.listener is not None:
        quiet = copy(services)
        quiet.listener = None
    identity = Identity(row.run_id, row.flow_id, row.flow_version, row.flow_hash, b"")
    journal = Journal(quiet, identity, _OFF, state, space)
    journal.key_run = key_run
    first = _Preview(RunContext(quiet, flow, journal, state, space)).first()
    known = {(due.scope.prefix, due.i) for due in first}
    later = [
        _Due(scope, i)
        for scope in state.scopes()
        for i in scope.due
        if (scope.prefix, i) not in known and i not in scope.opened and _is_called(scope, i, again)
    ]
    later += _effects_inside(first, known)
    only_chooses = choice_rule(flow, space, starts)

    def plan(due: _Due) -> Planned:
        # A node that announces its calls was not called if none is recorded.
        is_announced = due.scope.plan.nodes[due.i].announces and not due.scope.is_hidden
        started = (due.scope.prefix, due.i) in tried
        if not is_announced:
            started = started or is_taken_over or row.status.is_final
        planned = _plan(due, state, key_run, may_have_started=started)
        if only_chooses(*due, planned.visit):
            return msgspec.structs.replace(planned, only_chooses=True)
        return planned

    return tuple(map(plan, first)), tuple(map(plan, later))


def _effects_inside(first: Iterable[_Due], known: Collection[tuple[str, int]]) -> list[_Due]:
    """Return the effects that an atomic flow comes to after what it begins with: they may have been made."""
    found: dict[tuple[str, int], _Due] = {}
    for scope in {due.scope: None for due in first if due.scope.is_hidden}:
        for i, n in enumerate(scope.plan.nodes):
            place = (scope.prefix, i)
            if n.is_effectful and place not in known and not scope.visits[i]:
                found[place] = _Due(scope, i)
    return list(found.values())


def _is_called(scope: Scope, i: int, again: Collection[str]) -> bool:
    """True unless a node waits for an answer; one whose effect is to be made again has its answer."""
    step = scope.waiting.get(i)
    return step is None or (step.wait is not None and step.wait.wait_id in again)


def _plan(due: _Due, state: RunState, key_run: str, *, may_have_started: bool) -> Planned:
    scope, i = due
    node, path, visit = scope.plan.nodes[i], scope.path_of(i), scope.visits[i] + 1
    key = scope.keys.get(i) if i not in scope.plan.children else None
    if key is None and node.idempotency_key == "auto":
        key = automatic_key(key_run, path if scope is state else state.path_of_keys(path), visit)
    stream = scope.streams.get(i)
    return Planned(
        calls=_calls(scope, i),
        chunks=stream.chunks if stream is not None else 0,
        cursor=stream.cursor if stream is not None else None,
        path=path,
        visit=visit,
        attempt=scope.attempts[i] + 1,
        effects=Effects.EFFECTFUL if node.is_effectful else node.effects,
        key=key or None,
        may_have_started=may_have_started,
        not_before=scope.retry_at.get(i),
        asks=_asked(node) if i in scope.begun and i not in scope.waiting and not scope.is_hidden else None,
    )


def _asked(node: Node) -> Literal["probe", "operator"] | None:
    if node.probe is not None:
        return "probe"
    return "operator" if node.on_unknown == "stop" else None


def _remade(state: RunState, space: ValueSpace) -> Iterator[str]:
    """Yield the finished nodes that make again what was not kept, for nodes that are still to come."""
    for scope in state.scopes() if not state.is_hidden else ():
        area = space.areas.get(scope.prefix, {})
        missed = [name for name in area if space.is_missed(name, scope.prefix)]
        if not missed:
            continue
        coming: set[int] = set(scope.plan.tasks) if scope.due else set()
        for i in scope.due:
            coming |= {i} | reachable(scope.plan.graph, i)
        for name in missed:
            if coming.intersection(scope.plan.readers.get(name, ())):
                yield from _makers(scope, name, missed)


def _makers(scope: Scope, name: str, missed: Collection[str]) -> Iterator[str]:
    writers = [w for w in reversed(scope.plan.writers.get(name, ())) if scope.visits[w]]
    for w in writers[:1]:
        for source in scope.plan.sources[w]:
            if source in missed:
                yield from _makers(scope, source, missed)
        yield scope.path_of(w)


def _can_lose(durability: Durability) -> str:
    if durability.mode is Mode.OFF:
        return "everything: nothing is kept"
    if durability.mode is Mode.PARTIAL:
        return "steps since the last checkpoint, other than effectful ones; they run again"
    if durability.flush is Flush.BEFORE_EFFECTS:
        return "pure steps since the last checkpoint; they run again"
    steps, span = durability.interval_parts()
    if steps is None and span is None:
        return "no finished step"
    every = " or ".join([*([f"{steps} steps"] if steps else []), *([str(span)] if span else [])])
    return f"steps since the last checkpoint, which is written every {every}; they run again"
