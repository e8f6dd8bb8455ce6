"""Durable calls inside a node: what `ctx.step` does. Apart, as only nodes that make some load it.

A call that is recorded is not made again, by whichever attempt or process comes to it: it returns what it
returned, or raises what it raised. It is found by its name, and by a key or by how often the node has asked
for that name before.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from hashlib import blake2b
from inspect import CO_COROUTINE
from types import CoroutineType, FunctionType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from everstep.codec.notes import Message
from everstep.codec.tags import WHAT_TO_DO
from everstep.codec.values import ordered_bytes
from everstep.engine import decide
from everstep.engine.keys import automatic_key, child_id
from everstep.engine.scope import Scope
from everstep.errors import (
    BadRequest,
    EverstepError,
    LeaseLost,
    LimitExceeded,
    NodeTimeout,
    RunCancelled,
    StepChanged,
    StepFailed,
    StoreUnavailable,
    ValueNotStorable,
)
from everstep.graph.author.context import Context, Leave, UnitOptions
from everstep.graph.author.node import Node
from everstep.graph.author.wait_options import Wait
from everstep.graph.author.waits import WaitNode
from everstep.model.durations import Span
from everstep.model.enums import Status, Trigger, ValueForm
from everstep.model.records import RESULT, STARTED, UNDONE_BY, WAITED, Undo, UnitAt, UnitFacts, visit_path
from everstep.model.waits import CHILD_KIND, SignalRow
from everstep.on_demand import on_demand
from everstep.ports.system import Event
from everstep.runtime.drive.apply import units_prefix
from everstep.runtime.drive.finish import asked_pause
from everstep.runtime.drive.invoke import Call, describe_error
from everstep.runtime.drive.midway import Midway, News
from everstep.runtime.drive.rest import UNHEARD
from everstep.runtime.drive.units.kept_errors import ErrorClasses, apart, revived
from everstep.runtime.drive.units.order import EndOrder
from everstep.runtime.drive.values import Slot, ValueOutOfReach, write_aside
from everstep.runtime.outage.store_retry import outage
from everstep.runtime.waits.inbox import untaken
from everstep.runtime.waits.settled import answer_type_of, output_of

if TYPE_CHECKING:
    from everstep.graph.author.flow import Flow
    from everstep.runtime.drive.children.admitting import check_starts, ordered, wanted_flow
    from everstep.runtime.drive.children.orders import ChildOrder, order_of
    from everstep.runtime.drive.children.results import result_of, wait_for
    from everstep.runtime.drive.children.starts import Starts, starts_of
    from everstep.runtime.drive.units.undone import undo_of_call
    from everstep.runtime.preflight import check_undoes
else:
    check_starts = on_demand("everstep.runtime.drive.children.admitting:check_starts")
    ordered = on_demand("everstep.runtime.drive.children.admitting:ordered")
    wanted_flow = on_demand("everstep.runtime.drive.children.admitting:wanted_flow")
    order_of = on_demand("everstep.runtime.drive.children.orders:order_of")
    result_of = on_demand("everstep.runtime.drive.children.results:result_of")
    wait_for = on_demand("everstep.runtime.drive.children.results:wait_for")
    starts_of = on_demand("everstep.runtime.drive.children.starts:starts_of")
    undo_of_call = on_demand("everstep.runtime.drive.units.undone:undo_of_call")
    check_undoes = on_demand("everstep.runtime.preflight:check_undoes")

log = logging.getLogger("everstep")
_NOT_IN_NAMES = frozenset("/@#=$")
MOST = 10_000
"""Durable calls that one visit may record."""
_DIGEST = 8
"""Bytes of the digest of arguments, and of a key."""
_DIGESTS = (0, _DIGEST)
"""Bytes of what is kept of the arguments of a function: nothing if it has none."""
IN_UNIT: ContextVar[str] = ContextVar("everstep_step", default="")
"""The durable call that this code runs in."""
_RETURN_DATA = "Return plain data from it, or register a serializer with host.values.register(...)."
_HELD: Any = ()
"""Stands for what a node is left for that is to begin nothing more."""
_PASSED_ON = (RunCancelled, ValueOutOfReach)
"""What is no failure of the call that raises it."""


class Asked(msgspec.Struct, eq=False):
    """A durable call that a node asks for."""

    name: str
    """Its name as a segment of a path: `$search`, with a key `$search=9f2b…`."""
    occurrence: int
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: UnitOptions
    arguments: bytes
    """A digest of its arguments; of what is no call of a function, what it is."""
    label: str
    """Name and occurrence: `$search@2`."""
    behind: str | None = None
    """Which call had ended last when an async node asked for it; none if it was not noted."""
    asked: float = 0.0
    """Seconds from the first call that the node asked for in this attempt until this one."""
    undo: tuple[str, Slot] | None = None
    """What undoes it, by name, and what that is given besides its result."""


class _Taking:
    """Signals that a node takes. They are left to others if it does not come to be recorded."""

    def __init__(
        self, units: Units, unit: Asked, ids: tuple[str, ...], values: list[Any], draft: Slot
    ) -> None:
        self._units = units
        self._unit = unit
        self._ids = ids
        self.values = values
        self.draft = draft
        self._at = units._clock.now()
        self._is_recorded = False

    def __enter__(self) -> _Taking:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_recorded:
            self._units._journal.disclaim(self._ids)

    def record(self) -> News | None:
        """Buffer the values; the put that has them takes the signals."""
        units = self._units
        units._record(self._unit, Status.COMPLETED, 1, (self.draft,), None, None, self._at, self._at)
        units._journal.taken += self._ids
        self._is_recorded = True
        return _WRITTEN if self._ids else None


class Units:
    """The durable calls of one attempt at a node."""

    _parked: list[asyncio.Future[None]] | None = None
    """Calls that do not begin, and wait for those that are being made to end."""

    def __init__(self, midway: Midway, call: Call) -> None:
        if call.node.may_be_transient and midway.run.journal.writes:
            raise BadRequest(
                f"node {call.path!r} makes durable calls, and its own result is not kept: when it is "
                "missed, the node is called again, and so would be all that it calls.",
                fix="Drop persist='no', or make these calls in a node before it.",
            )
        run = midway.run
        self._midway = midway
        self._call = call
        self._services, self._space, self._journal = run.services, run.space, run.journal
        self._state, self._clock = run.state, run.clock
        self._marks, self._around = Context.marks, call.around
        self._prefix = units_prefix(call.scope, call.index)
        open_ones = call.scope.units.get(call.index)
        self._known = 0 if open_ones is None else len(open_ones.at)
        """Calls that are recorded, or under way and will be."""
        at = {} if open_ones is None or not call.node.is_async else open_ones.at
        ended = {label: unit for label, unit in at.items() if unit.status not in _NOT_ENDED}
        self._order = EndOrder(ended) if ended else None
        inbox = run.flow.inbox if call.scope.parent is None else {}
        self._reads_signals = bool(inbox) and any(p.source in inbox for p in call.node.params)
        """True if what the node is given may change before it is called again."""
        self._own_task = call.running or midway.own_task
        """In which an async node runs."""
        self._is_shared = False
        """True once an async node had two calls under way, or asked for one in a task of its own."""
        self._looking = 0
        """Inboxes of an async node that are being looked into."""
        self._asked_first: float | None = None
        """When an async node asked for the first one."""
        self._counts: dict[str, int] = {}
        """How often each name was asked for without a key."""
        self._names: set[str] = set()
        """Names that were checked."""
        self._in_flight: dict[str, object] = {}
        """What is being made, by name, each with a mark of who asked."""
        self.seen: set[str] = set()
        """What was asked for in this attempt."""
        self._changed: list[str] = []
        """Recorded calls whose arguments differ, and of which no record says so yet."""
        self._warned: set[str] = set()
        self._has_waited = False
        self.leaving: tuple[Wait, Node] | None = None
        """What the node is left for."""
        self.is_left = False
        """True once its function has ended because of that."""
        self._begun = 0
        """Calls of an async node that are being made, and do not pause before a retry."""
        self._quiet: asyncio.Future[None] | None = None
        """Done when there is none of these any more, if the node waits for that."""
        self._still: Event | None = None
        """Set when a sync node has no call under way any more, if it waits for that."""
        self.plays: Callable[[Asked], Callable[..., Any]] | None = None
        """Says what to call in place of a function, in a simulated world."""

    # -- what a node asks for -----------------------------------------------------------------------------

    def ask(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: UnitOptions,
        is_async: bool | None = None,
    ) -> Any:
        """Make a durable call: its result in a sync node, what to await in an async one.

        `is_async` says what a helper returns to who calls it by itself, which has to fit the node.
        """
        node = self._call.node
        if is_async is not None and is_async is not node.is_async:
            said = "is not async, and its node is" if node.is_async else "is async, and its node is not"
            raise BadRequest(
                f"step {name!r} of node {self._call.path!r} {said}.",
                fix="Make both alike" + (", or await ctx.step(name, fn)." if node.is_async else "."),
            )
        unit = self._begin(name, fn, args, kwargs, options)
        if not node.is_async:
            return self._make_blocking(unit)
        made = self._in_flight[unit.name] = self._make(unit)
        return made

    def wait(self, what: object) -> Any:
        """Return the answer to what the node waits for, or leave it: what to await in an async node."""
        if isinstance(what, WaitNode):
            return self._wait(what.name, what.asked(), what)
        if isinstance(what, Wait):
            return self._wait("wait", what, self._call.node)
        raise BadRequest(
            f"node {self._call.path!r} waits for {what!r:.80}.",
            fix="Give what everstep.wait makes, such as wait.approval('ok'), or a Wait.",
        )

    def sleep(self, span: Span) -> Any:
        """Return once some time has passed, or leave the node: what to await in an async node."""
        slept = self._wait("sleep", Wait(kind="timer", timeout=span), self._call.node)
        return _nothing(slept) if self._call.node.is_async else None

    def result(self, child: object, timeout: Span | None) -> Any:
        """Return what a run came to that a node has started, or leave the node until it has ended."""
        asked = wait_for(self._call.path, child, timeout)
        return self._wait("result", asked, self._call.node, _PURE.with_key(asked.child))

    def _wait(self, name: str, asked: Wait, node: Node, options: UnitOptions | None = None) -> Any:
        if not self._call.node.halts:
            raise BadRequest(
                f"node {self._call.path!r} waits, and is not declared to.",
                fix="Declare it with @node(halts=True).",
            )
        unit = self._begin(name, _nothing, (), {}, options or _PURE, WAITED)
        self._end(unit)
        self._has_waited = True
        if self._call.node.is_async:
            return self._wait_soon(unit, asked, node)
        return self._answer(unit, asked, node)

    async def _wait_soon(self, unit: Asked, asked: Wait, node: Node) -> Any:
        if self._order is not None and (its_turn := self._order.turn(unit.label)) is not None:
            await its_turn
        return self._answer(unit, asked, node)

    def _answer(self, unit: Asked, asked: Wait, node: Node) -> Any:
        if self._recorded(unit) is not None:
            if self._order is not None:
                self._order.came(unit.label)
            settled = self._space.peek(unit.label, self._prefix)
            if settled["kind"] != asked.kind:
                raise self._is_another(unit, f"a wait of kind {settled['kind']!r}")
            if asked.kind == CHILD_KIND and unit.options.key is not None and not settled["by_clock"]:
                return result_of(settled, self._call.path)
            return output_of(settled, asked, self._call.path, answer_type_of(node, is_inside=True))
        if self.leaving is None:
            self.leaving = (asked, node)
            self._call.waits_at = unit.label
        raise Leave(f"node {self._call.path!r} waits")

    def _check_guards(self) -> None:
        """Leave the node if a guard stands before its next effect: a person is asked, and it goes on here."""
        held = self._midway.held(self._call)
        if held is not None:
            self.leaving = (held, self._call.node)
            raise Leave(f"node {self._call.path!r} is held")

    @property
    def is_busy(self) -> bool:
        """True if one is being made."""
        return bool(self._in_flight)

    def conclude(self) -> None:
        """See whether the node was left for a wait, once its function has ended."""
        call = self._call
        if self.leaving is None:
            if self._has_waited and isinstance(call.returned, Wait):
                call.returned, call.error = (
                    None,
                    BadRequest(
                        f"node {call.path!r} has waited inside, and returns a Wait.",
                        fix="Use one of both: answer = ctx.wait(...), and return what comes of it.",
                    ),
                )
            return
        if self.leaving is _HELD:
            call.is_held, call.returned, call.error = True, None, None
            return
        if self.is_left:
            call.asks = self.leaving[0]
            return
        call.waits_at = ""
        call.error = _gone_on(call.path, call.error)

    def _is_held(self, unit: Asked) -> bool:
        """True if a call is not to begin, as the run is paused, or undoes what it did.

        An effect that was announced goes on: one that was left would be of unknown fate.
        """
        call = self._call
        is_announced = call.node.is_effectful and call.index in call.scope.begun
        return self._midway.is_paused and not (is_announced or self._is_announced(unit))

    def _is_announced(self, unit: Asked) -> bool:
        """True if a record says that a call was about to be made, and none what became of it."""
        units = self._call.scope.units.get(self._call.index)
        found = None if units is None else units.at.get(unit.label)
        return found is not None and found.status is Status.RUNNING

    async def _park(self) -> None:
        """Leave the node as one that never reported, once what it has begun is recorded."""
        self._rest()
        try:
            while self._begun:
                if self._order is not None:
                    self._order.let_go()
                parked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._parked = [*(self._parked or ()), parked]
                await parked
        finally:
            self._begun += 1
        self._hold()

    def _hold(self) -> None:
        """Leave the node, unless it is left already."""
        if self.leaving is None:
            self.leaving = _HELD
        raise Leave(f"the run of node {self._call.path!r} is paused")

    async def at_rest(self) -> None:
        """Return once no call is being made: a node that is left or tried again has recorded what it began.

        One that was asked for and has not begun, as its task has not, is not made before the wait is over;
        neither is one that pauses before a retry.
        """
        while self._begun and self._is_to_go_on():
            if self._order is not None:
                self._order.let_go()
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet

    def at_rest_blocking(self) -> None:
        """Return once no thread of a sync node makes a call, for the same reason."""
        while self._in_flight and self._is_to_go_on():
            self._still = self._services.system.event()
            if self._in_flight:
                self._still.wait()

    def _is_to_go_on(self) -> bool:
        """True if the function has ended and is called again: it waits, or an attempt at it has failed."""
        return self.leaving is not None or self._call.error is not None

    def inbox(self, name: str) -> Any:
        """Return the signals of a name that were not taken: what to await in an async node."""
        if name in self._midway.run.flow.inbox:
            raise BadRequest(
                f"node {self._call.path!r} takes signals {name!r}, which the flow takes into a value.",
                fix="Read that value, or take the name out of Flow(inbox=...): a name has one consumer.",
            )
        part = name if _NOT_IN_NAMES.isdisjoint(name) else self._digest_of(name).hex()
        unit = self._begin(f"inbox-{part}", _nothing, (), {}, _PURE, TAKES)
        self._end(unit)
        found = self._recorded(unit)
        if self._call.node.is_async:
            return self._take_soon(unit, found, name)
        if found is not None:
            return self._replayed(unit, found)
        with self._taking(unit, self._look_blocking(name)) as taking:
            self._put_aside_blocking(taking.draft)
            self._midway.write(self._call, taking.record)
        return taking.values

    async def _take_soon(self, unit: Asked, found: UnitAt | None, name: str) -> Any:
        if found is not None:
            if self._order is not None and (its_turn := self._order.turn(unit.label)) is not None:
                await its_turn
            return self._replayed(unit, found)
        self._looking += 1
        try:
            with self._taking(unit, await self._look(name)) as taking:
                await self._put_aside(taking.draft)
                await self._write_in_order(unit, taking.record)
        finally:
            self._looking -= 1
        return taking.values

    async def _look(self, name: str) -> list[tuple[SignalRow, Message]]:
        """Return what is in the inbox. An outage is waited out, and is no failure of the node."""
        try:
            return await self._journal.persist(
                partial(untaken, self._services, self._journal.run_id, name), at_stake=False
            )
        except StoreUnavailable as error:
            self._midway.gave_up = error
            raise

    def _look_blocking(self, name: str) -> list[tuple[SignalRow, Message]]:
        def elsewhere() -> list[tuple[SignalRow, Message]]:
            with self._services.system.runner() as runner:
                return runner.run(self._look(name))

        if self._midway.holds_loop(self._call):  # so another has to ask
            asked: Future[Any] = self._services.pool.submit_apart(elsewhere)
        else:
            asked = asyncio.run_coroutine_threadsafe(self._look(name), self._midway.run.loop)
        self._services.system.wait_for([asked])
        found: list[tuple[SignalRow, Message]] = asked.result()
        return found

    def _taking(self, unit: Asked, came: list[tuple[SignalRow, Message]]) -> _Taking:
        """Return what is taken of what came: what no other call of this run takes already."""
        journal = self._journal
        new = {row.signal_id: message.value for row, message in came if journal.claim(row.signal_id)}
        values = [*new.values()]
        return _Taking(self, unit, tuple(new), values, self._draft(unit, values))

    def start(
        self, wanted: object, inputs: Mapping[str, Any] | None, key: Any, said: Mapping[str, Any]
    ) -> Any:
        """Start a run once: what it is in a sync node, what to await in an async one."""
        path, run = self._call.path, self._midway.run
        check_starts(self._services, path, is_kept=self._journal.writes)
        given = {} if inputs is None else dict(inputs)
        flow, unit = self._begin_start(wanted, given, key)
        try:
            found = self._recorded(unit)
            order = None
            if found is None:
                at = (self._path_of_keys(), self._call.visit, unit.label[1:])
                run_id = child_id(self._journal.key_run, *at)
                encrypts = self._services.codecs.encrypts
                order = ordered(
                    flow, given, said, run_id, run.run_id, path, self._call.visit, encrypts=encrypts
                )
        except BaseException:
            self._end(unit)
            raise
        starts = starts_of(run)
        if self._call.node.is_async:
            made = self._in_flight[unit.name] = self._start_soon(unit, order, starts)
            return made
        return self._start_blocking(unit, order, starts)

    def _begin_start(self, wanted: object, inputs: dict[str, Any], key: Any) -> tuple[Flow, Asked]:
        flow = wanted_flow(self._services, self._midway.run.flow, self._call.path, wanted)
        part = flow.name if _NOT_IN_NAMES.isdisjoint(flow.name) else self._digest_of(flow.name).hex()
        options = _PURE if key is None else _PURE.with_key(key)
        digest = STARTED + self._digest_of_arguments((), inputs)
        return flow, self._begin(f"start-{part}", _nothing, (), {}, options, digest)

    async def _start_soon(self, unit: Asked, order: ChildOrder | None, starts: Starts) -> Any:
        self._begun += 1
        try:
            if self.leaving is not None:
                raise Leave(f"node {self._call.path!r} waits")
            if order is not None:
                if self._midway.is_paused and self._is_held(unit):
                    await self._park()
                draft = self._draft(unit, order.kept())
                await self._put_aside(draft)
                await self._write_in_order(unit, partial(self._note_start, unit, draft, starts))
            elif self._order is not None and (its_turn := self._order.turn(unit.label)) is not None:
                await its_turn
            if self._order is not None:
                self._order.came(unit.label)
            started = self._started(unit)
            try:
                await starts.admit(started)
            except StoreUnavailable as away:  # no outage is a failure of the node: its next owner admits it
                self._midway.gave_up = away
                raise
            return started.child
        finally:
            self._end(unit)
            self._rest()

    def _start_blocking(self, unit: Asked, order: ChildOrder | None, starts: Starts) -> Any:
        try:
            if order is not None:
                if self._midway.is_paused and self._is_held(unit):
                    self._hold()
                draft = self._draft(unit, order.kept())
                self._put_aside_blocking(draft)
                self._midway.write(self._call, partial(self._note_start, unit, draft, starts))
            started = self._started(unit)
            try:
                starts.admit_blocking(started, holds_loop=self._midway.holds_loop(self._call))
            except StoreUnavailable as away:
                self._midway.gave_up = away
                raise
            return started.child
        finally:
            self._end(unit)

    def _note_start(self, unit: Asked, draft: Slot, starts: Starts) -> News:
        """Buffer a start; its run is owed from now on."""
        now = self._clock.now()
        self._record(unit, Status.COMPLETED, 1, (draft,), None, None, now, now)
        starts.owe(self._started(unit))
        self._call.beat()
        return _WRITTEN

    def _started(self, unit: Asked) -> ChildOrder:
        """Return what the record of a start says."""
        return order_of(self._space.peek(unit.label, self._prefix), self._call.path, self._call.visit)

    def now(self) -> datetime:
        found: datetime = self._note("now", self._services.time.now)
        return found

    def uuid(self) -> str:
        found: str = self._note("uuid", self._services.ids.new_id)
        return found

    def random(self) -> float:
        found: float = self._note("random", self._services.ids.chance)
        return found

    def _note(self, name: str, make: Callable[[], Any]) -> Any:
        """Return something that no one else sees being made, such as the time, and the same one for good."""
        unit = self._begin(name, make, (), {}, _PURE, name.encode())
        self._end(unit)
        found = self._recorded(unit)
        if found is not None:
            return self._replayed(unit, found)
        value = make()
        now = self._clock.now()
        drafts = (self._draft(unit, value),)

        def record() -> News | None:
            self._record(unit, Status.COMPLETED, 1, drafts, None, None, now, now)
            return None

        if self._midway.is_on_loop:
            self._midway.buffer(record)
        else:
            self._midway.write(self._call, record)
        return value

    def _begin(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: UnitOptions,
        kind: bytes = b"",
    ) -> Asked:
        self._check_current()
        if self.leaving is not None:
            raise Leave(f"node {self._call.path!r} waits")
        inside = IN_UNIT.get()
        if inside:
            raise BadRequest(
                f"step {name!r} of node {self._call.path!r} is asked for inside step {inside!r}.",
                fix="Steps do not nest: call the function itself there, or ask for both from the node.",
            )
        if name not in self._names:
            self._check_name(name)
        segment, occurrence = RESULT + name, 1
        if options.key is not None:
            segment += f"={self._digest_of(options.key).hex()}"
        arguments = kind or self._digest_of_arguments(args, kwargs)
        mark = object()
        held = self._in_flight.setdefault(segment, mark)  # one act, as threads may ask at once
        if held is not mark and _never_began(held):
            held = self._in_flight[segment] = mark
        if held is not mark:
            raise BadRequest(
                f"step {name!r} of node {self._call.path!r} is asked for again while it is under way, or was "
                "never awaited.",
                fix="Give each a key= of its own, so that a later attempt can tell them apart.",
            )
        if options.key is None:
            occurrence = self._counts[segment] = self._counts.get(segment, 0) + 1
        label = f"{segment}@{occurrence}"
        unit = Asked(segment, occurrence, fn, args, kwargs, options, arguments, label)
        if options.undo is not None:
            unit.undo = self._undo_of(unit)
        self.seen.add(unit.label)
        if self._call.node.is_async:
            self._note_asked(unit)
        return unit

    def _undo_of(self, unit: Asked) -> tuple[str, Slot]:
        """Return what undoes a call; raises before the call is made if another process could not."""
        try:
            path = f"{self._call.path}/{unit.name}"
            if self._journal.writes:
                check_undoes(self._midway.run.services, f"step {path!r} says how it is undone")
            by, given = undo_of_call(
                self._midway.run.flow, path, unit.fn, unit.args, unit.kwargs, unit.options.undo
            )
            return by, self._space.change(UNDONE_BY, 1, given, ValueForm.WHOLE)
        except BaseException:
            self._end(unit)
            raise

    def _check_name(self, name: str) -> None:
        """Raise if a name cannot be a part of a path, or be stored."""
        try:
            name.encode()
            is_name = _NOT_IN_NAMES.isdisjoint(name)
        except UnicodeEncodeError:  # half a surrogate pair
            is_name = False
        if not is_name:
            raise BadRequest(
                f"node {self._call.path!r} asks for a step or a wait called {name!r:.60}.",
                fix="Give it a short name without / @ # = $. What is sent to a wait may have another one: "
                "wait.signal(name, signal=...), wait.event(name, event=...).",
            )
        self._names.add(name)

    def _note_asked(self, unit: Asked) -> None:
        """Note when a call was asked for: calls at once come back in the same order from the records."""
        if not self._is_shared:
            try:
                self._is_shared = asyncio.current_task() is not self._own_task
            except RuntimeError:  # on a thread of the node's own
                self._is_shared = True
            self._is_shared = self._is_shared or len(self._in_flight) + self._looking > 1
        unit.behind = None if self._order is None else self._order.behind
        if unit.behind is None:
            units = self._call.scope.units.get(self._call.index)
            unit.behind = "" if units is None else next(reversed(units.at), "")
        now = self._clock.monotonic()
        if self._asked_first is None:
            self._asked_first = now
        unit.asked = now - self._asked_first

    def count(self, what: str) -> int:
        """Return how often something was asked for in this attempt, with this time."""
        self._counts[what] = self._counts.get(what, 0) + 1
        return self._counts[what]

    def _end(self, unit: Asked) -> None:
        self._in_flight.pop(unit.name, None)
        if self._still is not None and not self._in_flight:
            self._still.set()

    def _check_current(self) -> None:
        """Raise if this attempt is no longer the one that counts."""
        call, scope = self._call, self._call.scope
        is_current = (
            not call.is_dropped
            and call.visit == scope.visits[call.index] + 1
            and call.attempt == scope.attempts[call.index] + 1
            and scope.awaits(call.index)
        )
        if not is_current:
            raise LeaseLost(
                f"attempt {call.attempt} at {call.path!r} is over, so nothing it does is recorded.",
                fix="Another attempt goes on with the node. End what was left running when it was given up.",
            )

    # -- what is recorded ---------------------------------------------------------------------------------

    def _recorded(self, unit: Asked) -> UnitAt | None:
        """Return how a call stands in the records, if it does, and if what they say is to be believed."""
        units = self._call.scope.units.get(self._call.index)
        found = units.at.get(unit.label) if units is not None else None
        if found is None or found.status is Status.RUNNING:
            if self._known >= MOST:
                raise LimitExceeded(
                    f"{self._call.path!r} has {MOST:,} recorded steps in one visit.",
                    fix="End the visit and ask for another one: ctx.next_iteration(...).",
                )
            self._known += 1
            return None
        if found.arguments != unit.arguments:
            return self._with_other_arguments(unit, found)
        return found

    def _with_other_arguments(self, unit: Asked, found: UnitAt) -> UnitAt | None:
        what = f"step {unit.label[1:]!r} of node {self._call.path!r}"
        if unit.options.on_change == "fail":
            raise StepChanged(
                f"{what} is recorded with other arguments.",
                fix="Fork the run before the node, or say on_change='again' to make the call once more.",
            )
        if unit.options.on_change == "again":
            return None
        if kind_of(found.arguments) != kind_of(unit.arguments):
            raise self._is_another(unit, "something else")
        if unit.label not in self._warned:
            self._warned.add(unit.label)
            self._changed.append(unit.label)
            then = (
                "it is tried again with these" if found.status is _RETRYING else "its recorded result is used"
            )
            log.warning("%s is recorded with other arguments; %s.", what, then)
        return found

    def _is_another(self, unit: Asked, what: str) -> StepChanged:
        return StepChanged(
            f"step {unit.label[1:]!r} of node {self._call.path!r} is recorded as {what}.",
            fix="Give what is new in the code a new name, or fork the run before the node.",
        )

    def _replayed(self, unit: Asked, found: UnitAt) -> Any:
        """Return what a recorded call returned, or raise what it raised."""
        if self._order is not None:
            self._order.came(unit.label)
        value = self._space.peek(unit.label, self._prefix)
        if found.status is Status.COMPLETED:
            return value
        assert found.error is not None
        error = revived(value, self._error_classes(unit))
        raise error or StepFailed(found.error.message, step=unit.label[1:], type=found.error.type)

    def _error_classes(self, unit: Asked) -> ErrorClasses:
        functions = [unit.fn, self._call.node.fn]
        around: Scope | None = self._call.scope
        while around is not None:
            functions += [node.fn for node in around.plan.nodes]
            around = around.parent
        return ErrorClasses(functions)

    def take_changed(self) -> tuple[str, ...]:
        """Return the recorded calls whose arguments differ, if no record says so yet; the next one will."""
        changed, self._changed = tuple(self._changed), []
        return changed

    # -- making a call ------------------------------------------------------------------------------------

    async def _make(self, unit: Asked) -> Any:
        self._begun += 1
        failed: Exception | None = None
        try:
            if self.leaving is not None:
                raise Leave(f"node {self._call.path!r} waits")
            found = self._recorded(unit)
            if found is not None and found.status is not _RETRYING:
                if self._order is not None and (its_turn := self._order.turn(unit.label)) is not None:
                    await its_turn
                return self._replayed(unit, found)
            failures = 0 if found is None else found.attempts
            if unit.undo is not None and self._journal.writes:
                await self._put_aside(unit.undo[1])
            if found is not None and found.retry_at is not None:
                await self._pause(found.retry_at)
            while True:
                if self._midway.is_paused and self._is_held(unit):
                    await self._park()
                if unit.options.is_effect:
                    if self._midway.is_guarded:
                        self._check_guards()
                    if unit.undo is not None and not self._is_announced(unit):
                        await self._midway.write(self._call, partial(self._announce, unit, failures))
                    elif (self._journal.steps or self._reads_signals) and self._has_more_to_write():
                        await self._midway.write(self._call, self._flush_first)
                started_at = self._clock.now()
                try:
                    if self._around is not None:
                        value = await self._surrounded(unit, failures + 1)
                    elif unit.options.timeout is not None or self.plays is not None or not is_async(unit.fn):
                        value = await self._called(unit)
                    else:  # most calls: as `_inside`, without a coroutine of ours between the two
                        made, marks = unit.fn(*unit.args, **self._kwargs_of(unit)), self._marks
                        token = IN_UNIT.set(unit.label[1:])
                        marked = None if marks is None else marks.set(None)
                        try:
                            value = await made
                        finally:
                            IN_UNIT.reset(token)
                            if marks is not None and marked is not None:
                                marks.reset(marked)
                    draft = self._draft(unit, value)
                except _PASSED_ON:
                    raise
                except Exception as error:
                    failed = error
                if failed is not None:  # outside of `except`: what is raised came of nothing else
                    failures += 1
                    retry_at = await self._note_failure(unit, failed, failures, started_at)
                    failed = None
                    await self._pause(retry_at)
                    continue
                if self._journal.writes:
                    if draft.spill is not None:
                        await self._put_aside(draft)
                    self._call.beat()
                    if (recorded := self._note_result(unit, draft, failures + 1, started_at)) is not None:
                        await recorded
                return value
        finally:
            failed = None  # its traceback leads here
            self._end(unit)
            self._begun -= 1
            if self._quiet is not None or self._parked:
                self._tell_of_rest()

    def _rest(self) -> None:
        """Note that a call of an async node is not being made any more."""
        self._begun -= 1
        self._tell_of_rest()

    def _tell_of_rest(self) -> None:
        if self._quiet is not None and not self._begun and not self._quiet.done():
            self._quiet.set_result(None)
        while self._parked and not self._begun:
            if not (parked := self._parked.pop()).done():
                parked.set_result(None)

    def _note_result(
        self, unit: Asked, draft: Slot, attempts: int, started_at: datetime
    ) -> Awaitable[None] | None:
        """Have a result recorded; returns what to await until it is, if it is not at once."""
        record = self._recording(unit, Status.COMPLETED, attempts, (draft,), started_at=started_at)
        if self._is_shared:
            return self._write_in_order(unit, record)
        spent = self._midway.write(self._call, record)
        return None if spent.is_done else spent

    async def _write_in_order(
        self, unit: Asked, record: Callable[[], News | None], *, comes_back: bool = True
    ) -> None:
        """Have what became of a call recorded, and go on when it is its turn among those made at once."""
        is_shared = len(self._in_flight) > 1
        if not self._is_shared or not comes_back:
            await self._midway.write(self._call, record, is_shared=is_shared)
            return
        if self._order is None:
            self._order = EndOrder({})
        self._order.ended(unit.label, unit.behind)
        try:
            await self._midway.write(self._call, record, is_shared=is_shared)
            if (its_turn := self._order.turn(unit.label)) is not None:
                await its_turn
        except BaseException:
            self._order.gone(unit.label)
            raise
        self._order.came(unit.label)

    async def _put_aside(self, draft: Slot) -> None:
        """Keep a large result as an artifact."""
        if draft.spill is not None:
            await write_aside(
                self._services, self._space, draft, is_alone=False, persist=self._journal.persist
            )

    async def _note_failure(
        self, unit: Asked, error: Exception, failures: int, started_at: datetime
    ) -> datetime:
        """Record a failed attempt; returns when to try again, and raises if that is not wanted."""
        await self._services.time.hear()
        if self._services.time.is_missing:
            try:
                await self._journal.ask_time()
            except StoreUnavailable as away:
                self._midway.gave_up = away
                raise
        retry_at, drafts, shown = self._failed(unit, error, failures)
        if self._journal.writes:
            for draft in drafts:
                await self._put_aside(draft)
            status = Status.FAILED if retry_at is None else Status.RETRYING
            record = self._recording(
                unit, status, failures, drafts, error=error, retry_at=retry_at, started_at=started_at
            )
            await self._write_in_order(unit, record, comes_back=retry_at is None)
        if retry_at is None:
            raise shown.with_traceback(error.__traceback__)
        return retry_at

    async def _pause(self, until: datetime) -> None:
        """Let time pass before a retry. A node that is left meanwhile does not wait for that."""
        self._rest()
        try:
            time = self._services.time
            await time.hear()
            while time.is_missing and time.now() < until:
                await self._midway.nap(min(until, time.now() + UNHEARD))
                await time.hear()
            await self._midway.nap(time.here(until))
        finally:
            self._begun += 1
        self._check_current()
        if self.leaving is not None:
            raise Leave(f"node {self._call.path!r} waits")
        self._call.beat()

    async def _surrounded(self, unit: Asked, attempt: int) -> Any:
        with self._within_around(unit, attempt) as tell:
            value = await self._called(unit)
            tell(value)
            return value

    def _within_around(self, unit: Asked, attempt: int) -> AbstractContextManager[Callable[[Any], None]]:
        assert self._around is not None
        return self._around.unit(unit.name, unit.occurrence, attempt, [*unit.args, unit.kwargs])

    async def _called(self, unit: Asked) -> Any:
        kwargs, timeout = self._kwargs_of(unit), unit.options.timeout
        if timeout is None:
            return await self._awaited(unit, kwargs)
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._awaited(unit, kwargs)
        except TimeoutError:
            if limit.expired():
                raise self._too_slow(unit) from None
            raise

    def _awaited(self, unit: Asked, kwargs: dict[str, Any]) -> Awaitable[Any]:
        fn = unit.fn if self.plays is None else self.plays(unit)
        if is_async(unit.fn):
            return self._inside(unit, fn(*unit.args, **kwargs))
        return self._on_thread(unit, fn, kwargs)

    async def _on_thread(self, unit: Asked, fn: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
        context = self._context(unit)
        loop = asyncio.get_running_loop()
        make = partial(context.run, fn, *unit.args, **kwargs)
        returned = await loop.run_in_executor(self._services.pool, _made_on_thread, make)
        return await self._inside(unit, returned) if inspect.isawaitable(returned) else returned

    async def _inside(self, unit: Asked, made: Awaitable[Any]) -> Any:
        """Await what belongs to a call: no other is asked for meanwhile."""
        marks = self._marks
        token, marked = IN_UNIT.set(unit.label[1:]), None if marks is None else marks.set(None)
        try:
            return await made
        finally:
            IN_UNIT.reset(token)
            if marks is not None and marked is not None:
                marks.reset(marked)

    def _context(self, unit: Asked) -> contextvars.Context:
        """Return what a call is made in on a thread."""
        context = contextvars.copy_context()
        context.run(IN_UNIT.set, unit.label[1:])
        if self._marks is not None:
            context.run(self._marks.set, None)
        return context

    # -- making a call of a sync node ---------------------------------------------------------------------

    def _make_blocking(self, unit: Asked) -> Any:
        failed: Exception | None = None
        try:
            found = self._recorded(unit)
            if found is not None and found.status is not _RETRYING:
                return self._replayed(unit, found)
            failures = 0 if found is None else found.attempts
            if unit.undo is not None and self._journal.writes:
                self._put_aside_blocking(unit.undo[1])
            if found is not None and found.retry_at is not None:
                self._pause_blocking(found.retry_at)
            while True:
                if self._midway.is_paused and self._is_held(unit):
                    self._hold()
                if unit.options.is_effect:
                    if self._midway.is_guarded:
                        self._check_guards()
                    if unit.undo is not None and not self._is_announced(unit):
                        self._midway.write(self._call, partial(self._announce, unit, failures))
                    elif (self._journal.steps or self._reads_signals) and self._has_more_to_write():
                        self._midway.write(self._call, self._flush_first)
                started_at = self._clock.now()
                try:
                    if self._around is None:
                        value = self._called_blocking(unit)
                    else:
                        with self._within_around(unit, failures + 1) as tell:
                            value = self._called_blocking(unit)
                            tell(value)
                    draft = self._draft(unit, value)
                except _PASSED_ON:
                    raise
                except Exception as error:
                    failed = error
                if failed is not None:
                    failures += 1
                    retry_at = self._note_failure_blocking(unit, failed, failures, started_at)
                    failed = None
                    self._pause_blocking(retry_at)
                    continue
                if self._journal.writes:
                    self._put_aside_blocking(draft)
                    self._call.beat()
                    self._midway.write(
                        self._call,
                        self._recording(
                            unit, Status.COMPLETED, failures + 1, (draft,), started_at=started_at
                        ),
                    )
                return value
        finally:
            failed = None
            self._end(unit)

    def _called_blocking(self, unit: Asked) -> Any:
        kwargs = self._kwargs_of(unit)
        fn = unit.fn if self.plays is None else self.plays(unit)
        context = self._context(unit)
        if unit.options.timeout is None:
            returned = context.run(fn, *unit.args, **kwargs)
        else:
            returned = self._within(unit, partial(context.run, fn, *unit.args, **kwargs))
        if returned.__class__ not in _NOT_AWAITED and inspect.isawaitable(returned):
            if isinstance(returned, Coroutine):
                returned.close()
            raise BadRequest(
                f"step {unit.label[1:]!r} of node {self._call.path!r} is async, and its node is not.",
                fix="Make the node async, or give ctx.step a function that returns its result.",
            )
        return returned

    def _within(self, unit: Asked, make: Callable[[], Any]) -> Any:
        """Call on a thread of its own, which is left to itself if it takes too long.

        Those of nodes may all be taken by nodes that wait here: what they call would never begin.
        """
        services = self._services
        is_done = services.system.event()
        future = services.pool.submit_apart(make)
        future.add_done_callback(lambda _: is_done.set())
        if not is_done.wait(unit.options.timeout):
            raise self._too_slow(unit)
        return future.result()

    def _note_failure_blocking(
        self, unit: Asked, error: Exception, failures: int, started_at: datetime
    ) -> datetime:
        retry_at, drafts, shown = self._failed(unit, error, failures)
        if self._journal.writes:
            for draft in drafts:
                self._put_aside_blocking(draft)
            status = Status.FAILED if retry_at is None else Status.RETRYING
            record = self._recording(
                unit, status, failures, drafts, error=error, retry_at=retry_at, started_at=started_at
            )
            self._midway.write(self._call, record)
        if retry_at is None:
            raise shown.with_traceback(error.__traceback__)
        return retry_at

    def _pause_blocking(self, until: datetime) -> None:
        self._midway.nap_blocking(self._services.time.here(until))
        self._call.beat()

    def _put_aside_blocking(self, draft: Slot) -> None:
        """Keep a large result as an artifact, for as long as an outage is waited out."""
        if draft.spill is None:
            return
        try:
            self._space.write_aside(draft)
            return
        except StoreUnavailable as error:
            failed = error
        for pause in outage(self._services.store):
            self._services.system.event().wait(pause.total_seconds())
            try:
                self._space.write_aside(draft)
                return
            except StoreUnavailable as error:
                failed = error
        self._midway.gave_up = failed
        raise failed

    # -- records ------------------------------------------------------------------------------------------

    def _is_first(self) -> bool:
        """True of the first call of a visit, if nothing says yet that it has begun."""
        i, scope = self._call.index, self._call.scope
        return self._journal.writes and i not in scope.units and i not in scope.begun

    def _has_more_to_write(self) -> bool:
        """True if something is to be written before an effect is made."""
        return self._journal.has_ended_steps or (self._reads_signals and self._is_first())

    def _flush_first(self) -> News:
        """Have what led to an effect written. If signals could change that, say that the node has begun.

        They wait then until its visit is over: an effect is repeated with the same inputs and the same key.
        """
        if self._reads_signals and self._is_first():
            self._check_current()
            call = self._call
            key = automatic_key(self._journal.key_run, call.path, call.visit)
            self._journal.add(decide.announced(call.scope, call.index, key), ())
        return Trigger.BEFORE_EFFECT, None

    def _announce(self, unit: Asked, failures: int) -> News:
        """Have written that a call is about to be made that can be undone, and what led to it."""
        now = self._clock.now()
        self._record(unit, Status.RUNNING, failures + 1, (), None, None, now, now)
        return Trigger.BEFORE_EFFECT, None

    def _recording(
        self,
        unit: Asked,
        status: Status,
        attempts: int,
        drafts: tuple[Slot, ...],
        *,
        error: Exception | None = None,
        retry_at: datetime | None = None,
        started_at: datetime,
    ) -> Callable[[], News | None]:
        ended_at = self._clock.now()

        def record() -> News | None:
            self._record(unit, status, attempts, drafts, error, retry_at, started_at, ended_at)
            return _WRITTEN if unit.options.is_effect or status is not Status.COMPLETED else None

        return record

    def _record(
        self,
        unit: Asked,
        status: Status,
        attempts: int,
        drafts: tuple[Slot, ...],
        error: Exception | None,
        retry_at: datetime | None,
        started_at: datetime,
        ended_at: datetime,
    ) -> None:
        """Buffer the step of a call, on the drive's loop or the thread that holds it up."""
        self._check_current()
        facts = UnitFacts(
            unit.arguments, unit.options.is_brief, changed=self.take_changed() if self._changed else ()
        )
        if unit.undo is not None and status is Status.COMPLETED:
            drafts = (*drafts, unit.undo[1])
        if self._is_shared:
            facts = replace(facts, behind=unit.behind, asked=round(unit.asked, 3))
        step = decide.unit(
            self._call.scope,
            self._call.index,
            unit.name,
            unit.occurrence,
            status=status,
            attempts=attempts,
            facts=facts,
            writes=(drafts[0].written,) if len(drafts) == 1 else tuple([draft.written for draft in drafts]),
            error=None if error is None else describe_error(error),
            retry_at=retry_at,
            started_at=started_at,
            ended_at=ended_at,
        )
        if unit.undo is not None and status in (Status.COMPLETED, Status.RUNNING):
            step = replace(step, undo=Undo(by=unit.undo[0]))
        self._journal.add(step, drafts)
        self._midway.tell(step)

    def _draft(self, unit: Asked, value: Any) -> Slot:
        try:
            return self._space.change(RESULT, 1, value, ValueForm.WHOLE)
        except ValueNotStorable as error:
            where, whose = str(error.details["where"]), f"step {unit.label[1:]!r} of node {self._call.path!r}"
            told = f"`{where.replace(RESULT, 'result', 1)}` of {whose}"
            message = error.message.replace(f"`{where}`", told, 1)
            fix = _RETURN_DATA if error.fix == WHAT_TO_DO else error.fix
            raise ValueNotStorable(message, fix=fix, **error.details) from error.__cause__

    def _failed(
        self, unit: Asked, error: Exception, failures: int
    ) -> tuple[datetime | None, tuple[Slot, ...], Exception]:
        """Return when to try again, else what is kept of the error and what the node is to see of it."""
        policy = unit.options.retry
        is_ours = isinstance(error, EverstepError) and not isinstance(error, NodeTimeout)
        if not is_ours and isinstance(error, policy.on) and failures <= policy.times:
            services = self._services
            pause = max(policy.pause(failures, services.ids.chance()), asked_pause(error))
            return self._clock.now() + services.time.ahead + pause, (), error
        kept, shown = apart(error, self._space.encoded, self._error_classes(unit))
        if shown is None:
            shown = StepFailed(describe_error(error).message, step=unit.label[1:], type=type(error).__name__)
        return None, (self._draft(unit, kept),), shown

    def _kwargs_of(self, unit: Asked) -> dict[str, Any]:
        if "idempotency_key" in unit.kwargs or not takes_key(unit.fn):
            return unit.kwargs
        return {**unit.kwargs, "idempotency_key": self.key_of(unit.label)}

    def key_of(self, label: str) -> str:
        """Return the idempotency key of a call: the same on every attempt at it, after every crash."""
        path = visit_path(self._path_of_keys(), self._call.visit)
        return automatic_key(self._journal.key_run, f"{path}/{label}", 1)

    def _path_of_keys(self) -> str:
        """Return the path that keys are made of: the same after the node was renamed."""
        call, state = self._call, self._state
        units = call.scope.units.get(call.index)
        path = units.began_as if units is not None and units.began_as else call.path
        return state.path_of_keys(path) if call.scope.parent is not None and state.keys else path

    def _too_slow(self, unit: Asked) -> NodeTimeout:
        return NodeTimeout(
            f"step {unit.label[1:]!r} of node {self._call.path!r} took longer than "
            f"{unit.options.timeout:g} s.",
            fix="Raise timeout= or make it faster.",
        )

    def _digest_of(self, value: object) -> bytes:
        data = ordered_bytes(value)
        if data is None:
            try:
                data = self._services.values.canonical(value)
            except EverstepError:
                raise BadRequest(
                    f"a step of node {self._call.path!r} has a key that cannot be stored: {value!r:.80}.",
                    fix="Give a text or a number.",
                ) from None
        return blake2b(data, digest_size=_DIGEST).digest()

    def _digest_of_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return a digest of the arguments that can be stored; empty if there are none."""
        if not args and not kwargs:
            return b""
        data = ordered_bytes([*args, kwargs])
        if data is None:
            data = self._storable_bytes(args, kwargs)
        return blake2b(data, digest_size=_DIGEST).digest()

    def _storable_bytes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        canonical = self._services.values.canonical
        parts: list[bytes] = []
        for name, value in (*enumerate(args), *sorted(kwargs.items())):
            try:
                parts.append(f"{name}=".encode() + canonical(value))
            except EverstepError:  # a client, a session: it is not what the call is about
                parts.append(f"{name}".encode())
        return b"\0".join(parts)


def kind_of(arguments: bytes) -> bytes:
    """Return what kind of call has kept this of its arguments."""
    if len(arguments) in _DIGESTS:
        return b""
    return STARTED if arguments[:1] == STARTED and len(arguments) - 1 in _DIGESTS else arguments


_PURE = UnitOptions.of(effects="pure")
_NOT_AWAITED = frozenset({type(None), bool, int, float, str, bytes, list, dict, tuple})
"""Of what most calls return, which need not be asked whether it is to be awaited."""
TAKES = b"inbox"
_RETRYING = Status.RETRYING
_NOT_ENDED = frozenset({_RETRYING, Status.RUNNING})
_WRITTEN: News = (Trigger.UNIT, None)


def _gone_on(path: str, raised: Exception | None) -> BadRequest:
    """Return what a node fails of that was to be left for a wait, and ended otherwise."""
    if raised is None:
        return BadRequest(
            f"node {path!r} went on though it waits: it caught what ctx.wait raises.",
            fix="Catch Exception, not BaseException, around ctx.wait and ctx.sleep.",
        )
    info = describe_error(raised)
    error = BadRequest(
        f"node {path!r} raised {info.type} while it was left to wait: {info.message.rstrip('.')}.",
        fix="Catch Exception, not BaseException, around ctx.wait and ctx.sleep, and let no `finally` raise.",
    )
    error.__cause__ = raised
    error.shows_cause = True  # type: ignore[misc]  # of most requests that are refused, none is the user's
    return error


async def _nothing(slept: Awaitable[Any]) -> None:
    await slept


def _never_began(held: object) -> bool:
    """True of a call whose task was cancelled before it came to it."""
    return isinstance(held, CoroutineType) and held.cr_frame is None


def _made_on_thread(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except StopIteration as error:  # no future takes it, and out of a coroutine it is the same
        raise RuntimeError("coroutine raised StopIteration") from error


def is_async(fn: Callable[..., Any]) -> bool:
    """True if a call of this returns something to await."""
    if type(fn) is FunctionType and fn.__code__.co_flags & CO_COROUTINE:
        return True  # as most are, without asking `inspect`
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def takes_key(fn: Callable[..., Any]) -> bool:
    """True if a function has a parameter `idempotency_key`."""
    code = getattr(fn, "__code__", None)
    if code is not None and not hasattr(fn, "__wrapped__"):
        return "idempotency_key" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        return "idempotency_key" in inspect.signature(fn).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False
