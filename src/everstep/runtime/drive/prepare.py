"""What a node is called with: its values, its key, its context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from everstep.engine import decide, meetings
from everstep.engine.keys import automatic_key, declared_key, must_announce
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.errors import EverstepError, InputMissing, ValueUnreadable
from everstep.graph.author.channel import RESULT_SUFFIX, Channel
from everstep.graph.author.context import Context
from everstep.graph.author.node import Node
from everstep.graph.author.options import Place, not_here, refused_at_call
from everstep.model.enums import Trigger
from everstep.model.records import QueuedTask
from everstep.on_demand import on_demand
from everstep.ports.system import Lock
from everstep.runtime.drive.apply import TASK
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.finish import with_undo
from everstep.runtime.drive.invoke import Call, call_anywhere, give_context
from everstep.runtime.drive.midway import Midway
from everstep.runtime.drive.values import ValueOutOfReach, ValueSpace

if TYPE_CHECKING:
    from everstep.graph.author.unknown_effects import for_an_operator, probing
    from everstep.runtime.drive.channel import ChannelDesk
    from everstep.runtime.guards.budgets import Guards
else:
    for_an_operator = on_demand("everstep.graph.author.unknown_effects:for_an_operator")
    probing = on_demand("everstep.graph.author.unknown_effects:probing")


class Arguments:
    """Finds what a node is called with, in the values and the channel of a run."""

    def __init__(self, space: ValueSpace, desk: Callable[[], ChannelDesk]) -> None:
        self._space = space
        self._desk = desk

    def call_of(self, scope: Scope, i: int, node: Node) -> Call:
        """Return the next attempt at a node with the values it reads."""
        versions, attempt = scope.versions, scope.attempts[i] + 1
        reads: dict[str, int] = {}
        kwargs: dict[str, Any] = {}
        for name, source, _, _ in node.params:
            if source in versions:
                reads[source] = versions[source]
                kwargs[name] = self._space.take(scope, source, attempt == 1)
        call = Call(scope, i, node, scope.visits[i] + 1, attempt, kwargs, reads)
        if scope.queue or scope.plan.is_special[i]:
            self._add_more(call)
        return call

    def _add_more(self, call: Call) -> None:
        scope, i = call.scope, call.index
        for p in call.node.params if i in scope.plan.fed else ():
            if meetings.is_left_out(scope, i, p.source):
                call.kwargs.pop(p.name, None)
                call.reads.pop(p.source, None)
        task = scope.task_of(i)
        if task is not None:
            self._answer(call, task)
        if len(call.kwargs) < len(call.node.params) and scope.plan.channelled[i]:
            self._fill_from_channel(call)
        if i in scope.plan.meetings:
            call.kwargs["outcomes"] = meetings.outcomes(scope, i)

    def _answer(self, call: Call, task: QueuedTask) -> None:
        call.task = task.number
        prefix = f"{TASK}{task.number}/"
        for name in task.arguments:
            call.kwargs[name] = self._space.peek(name, prefix)

    def _fill_from_channel(self, call: Call) -> None:
        """Fill what no node writes: from the result of the node of that name, else from the channel's key."""
        lacking: list[str] = []
        for p in call.node.params:
            if p.name in call.kwargs or p.source not in call.scope.plan.channelled[call.index]:
                continue
            named = call.scope.plan.keys.get(p.source, p.source)
            for key in (named + RESULT_SUFFIX, named):
                try:
                    call.kwargs[p.name] = self._desk().read(call.scope, key)
                    break
                except KeyError:
                    continue
            else:
                if p.required:
                    lacking.append(p.source)
        if lacking:
            names = ", ".join(map(repr, lacking))
            call.error = InputMissing(
                f"{call.path!r} needs {names}, and no node, input or channel key gives it.",
                fix="Pass it as an input, set it in the channel before, or give the parameter a default.",
            )


def key_types(scope: Scope) -> Mapping[str, Any] | None:
    """Return the keys of the channel that nodes here may change, with their types; none if any may be."""
    found = scope.plan.key_types
    while scope.parent is not None:
        scope = scope.parent
        if scope.plan.key_types is not None:
            found = {**scope.plan.key_types, **(found or {})}
    return found


def _missed(space: ValueSpace) -> frozenset[str]:
    """Return the whole names of the transient values that this process has not made."""
    return frozenset(
        prefix + name
        for prefix, area in space.areas.items()
        for name in area
        if space.is_missed(name, prefix)
    )


def _due_visits(state: RunState) -> frozenset[tuple[str, int]]:
    """Return the visits that are due, each by the path and the number of it."""
    return frozenset((scope.path_of(i), scope.visits[i] + 1) for scope in state.scopes() for i in scope.due)


class Preparer:
    """Makes calls ready."""

    def __init__(
        self,
        run: RunContext,
        midway: Midway,
        guards: Guards | None,
    ) -> None:
        self._run = run
        self._journal = run.journal
        self._state = state = run.state
        self._space = space = run.space
        self._midway = midway
        self._guards = guards
        self._arguments = Arguments(space, run.open_desk)
        self._missed = _missed(space) if state.total else frozenset[str]()
        """Transient values lost with an earlier process."""
        self._taken_up = _due_visits(state) if state.steps else frozenset[tuple[str, int]]()
        """The visits at which a run that was under way is taken up."""
        self.has_announced = False
        """True if calls were announced and that may not be durable yet."""
        self._opening: Lock | None = None
        """For contexts that nodes may ask for; most programs never do, and need none."""
        self._is_fresh = state.steps == 0
        """False until this drive has called a node, of a run that was under way."""

    def at_once(self, scope: Scope, i: int) -> Call | None:
        """Gather a node's arguments if that is all there is to do, or say that a guard stands before it."""
        if self._guards is not None and (held := self.held(scope, i)) is not None:
            return held
        node = scope.plan.nodes[i]
        if self._missed or not node.is_simple:
            return None
        try:
            call = self._arguments.call_of(scope, i, node)
        except ValueOutOfReach as error:
            return self.failed_call(scope, i, error)
        if node.context_param is not None or (not self._is_fresh and Context.marks is not None):
            self.with_context(call, call.visit)
        elif Context.marks is not None:
            if self._opening is None:
                self._opening = self._run.services.system.lock()
            call.opens = self
        return call

    async def prepare(self, scope: Scope, i: int, begin_stream: Callable[[Call], str | None]) -> Call:
        """Gather a node's arguments and key. What led to an effect is durable by now."""
        node = scope.plan.nodes[i]
        try:
            lost = await self.make_up(scope, i) if self._missed else None
            call = (
                self._arguments.call_of(scope, i, node) if lost is None else self.failed_call(scope, i, lost)
            )
        except ValueOutOfReach as error:
            call = self.failed_call(scope, i, error)
        is_unknown = i in scope.begun
        if node.idempotency_key is not None and call.error is None:
            await self._find_key(call)
        cursor = None
        if call.node.goes_on and call.error is None and self._run.policy.writes and not scope.is_hidden:
            try:
                cursor = begin_stream(call)
            except ValueOutOfReach as error:
                call.error = error
        is_announced = node.announces or (self._run.flow.inbox and self._may_change_meanwhile(scope, node))
        if is_announced and call.error is None and not scope.is_hidden:
            await self.announce(call, is_unknown=is_unknown)
            if call.stream is not None and (call.error is not None or not call.node.goes_on):
                cursor = call.stream = None
        call.is_made = call.error is None
        is_early = not self._is_fresh or call.stream is not None
        if node.context_param is not None or (is_early and Context.marks is not None):
            self.with_context(call, call.visit, cursor)
        elif Context.marks is not None:
            if self._opening is None:
                self._opening = self._run.services.system.lock()
            call.opens = self
        return call

    def _may_change_meanwhile(self, scope: Scope, node: Node) -> bool:
        """True of an effect that reads what signals are taken into: the next owner waits for it with them."""
        inbox = self._run.flow.inbox
        if scope.parent is not None or not node.is_effectful:
            return False
        return any(p.source in inbox for p in node.params)

    async def announce(self, call: Call, *, is_unknown: bool) -> None:
        """Buffer that a call is about to be made. If one was, and never reported, see what became of it."""
        scope, journal, i, node = call.scope, self._journal, call.index, call.node
        key = call.key or scope.keys.get(i) or automatic_key(journal.key_run, call.path, call.visit)
        call.key = key
        if is_unknown:
            if node.on_unknown == "stop" and node.probe is None:
                call.asks = for_an_operator(call.path, key, call.attempt)
                return
            if node.probe is not None:
                call.node = probing(node, key)
        elif i not in scope.begun:
            step = decide.announced(scope, i, key)
            journal.add(step if node.undo is None else with_undo(step, node), ())
            self.has_announced = True
            if node.destructive:
                about = {"node": call.path, "visit": call.visit, "attempt": call.attempt}
                await journal.flush(Trigger.DESTRUCTIVE_OP, metadata=about)

    def failed_call(self, scope: Scope, i: int, error: Exception) -> Call:
        """Return a call that failed before it was made."""
        call = Call(scope, i, scope.plan.nodes[i], scope.visits[i] + 1, scope.attempts[i] + 1, {}, {})
        call.error = error
        return call

    def held(self, scope: Scope, i: int) -> Call | None:
        """Return a node's call as one that is not made, if a guard stands before it."""
        asks = self._guards.ask(scope, i) if self._guards is not None else None
        if asks is None:
            return None
        versions, task = scope.versions, scope.task_of(i)
        reads = {p.source: versions[p.source] for p in scope.plan.nodes[i].params if p.source in versions}
        call = Call(scope, i, scope.plan.nodes[i], scope.visits[i] + 1, scope.attempts[i] + 1, {}, reads)
        call.task = None if task is None else task.number
        call.is_made = False
        if isinstance(asks, EverstepError):
            call.error = asks
        else:
            call.asks = asks
        return call

    async def make_up(self, scope: Scope, i: int) -> Exception | None:
        """Make the transient values that a node reads again, if they were lost with an earlier process."""
        space = self._space
        for p in scope.plan.nodes[i].params:
            source = p.source
            if scope.prefix + source not in self._missed or not space.is_missed(source, scope.prefix):
                continue
            w = next(w for w in reversed(scope.plan.writers[source]) if scope.visits[w])
            if not _can_be_called_again(scope, w):
                said = scope.plan.nodes[w].reason
                return ValueUnreadable(
                    f"{source!r} was not kept, and {scope.path_of(w)!r} is not called again"
                    f"{f' ({said})' if said else ''}.",
                    fix="Fork the run before it, or let it return what can be stored.",
                )
            newer = sorted(n for n, version in scope.reads[w].items() if scope.versions[n] != version)
            if newer:
                return ValueUnreadable(
                    f"{source!r} was not kept and cannot be made again: {', '.join(newer)} changed since.",
                    fix=f"Drop persist='no' from {scope.path_of(w)!r}.",
                )
            lost = await self.make_up(scope, w)
            if lost is not None:
                return lost
            call = self._arguments.call_of(scope, w, scope.plan.nodes[w])
            if call.node.context_param is not None:
                self.with_context(call, scope.visits[w], waits=False)
            await call_anywhere(call, self._run.services.pool)
            if call.error is not None:
                return call.error
            try:
                values = call.node.spread(call.returned)
            except EverstepError as error:
                return error
            for name, value in zip(call.node.outputs, values, strict=True):
                space.make_up(name, value, scope.prefix)
        return None

    def open_context(self, call: Call) -> Context:
        """Return the context of a call, made now unless it is: its node asks by `@step` or `current`."""
        assert self._opening is not None
        with self._opening:
            if call.context is None:
                self.with_context(call, call.visit)
            assert call.context is not None
            return call.context

    def with_context(self, call: Call, visit: int, cursor: str | None = None, *, waits: bool = True) -> None:
        """Give a call its context."""
        is_resumed = not self._is_fresh or (call.path, visit) in self._taken_up
        self._is_fresh = True
        view, types = self._run.desk.seen_from(call.scope), key_types(call.scope)
        journal = self._journal
        emit = self._run.teller.emitting(call) if self._run.teller.is_streamed else None
        refused = refused_at_call(Place.ATOMIC) if call.scope.is_hidden else None
        change = None if refused is None else partial(not_here, call.path, refused["channel"])
        give_context(
            call,
            journal.run_id,
            journal.key_run,
            call.path,
            visit,
            lambda: Channel(view, call, types, change),
            emit,
            cursor,
            self._midway.of(call, waits=waits),
            is_resumed=is_resumed,
            breakers=self._state.books.breakers,
            refused=refused,
        )

    async def _find_key(self, call: Call) -> None:
        """Work the key out, or use the announced one again. What a user's function made is announced."""
        scope, journal, i = call.scope, self._journal, call.index
        call.key = scope.keys.get(i)
        if call.key is not None:
            return
        path = call.path
        if scope.parent is not None and self._state.keys:
            path = self._state.path_of_keys(path)
        try:
            call.key = declared_key(
                call.node,
                journal.key_run,
                path,
                call.visit,
                call.kwargs,
                fork=self._state.key_run,
            )
        except Exception as error:  # the user's function or template; it fails the node like its body would
            call.error = error
            return
        if must_announce(call.node) and not scope.is_hidden:
            journal.add(decide.announced(scope, i, call.key or ""), ())
            self.has_announced = True


def _can_be_called_again(scope: Scope, w: int) -> bool:
    """True if a finished node makes its values again from the ones it read, and does nothing else."""
    plan = scope.plan
    is_whole = w in plan.children or w in plan.tasks or bool(plan.channelled[w])
    return not (is_whole or plan.nodes[w].is_effectful)
