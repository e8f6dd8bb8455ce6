"""What a node may ask about the step it is in, and what it may ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Protocol, TypeVar, overload

import msgspec

from everstep.errors import BadRequest, RunCancelled, UnknownTask, close_matches
from everstep.graph.author.channel import Channel
from everstep.graph.author.options import Refusal, not_here
from everstep.model.budgets import SECONDS, amount_of, check_name
from everstep.model.durations import Span, seconds_of
from everstep.model.enums import PRIORITIES, Effects, Trigger
from everstep.model.ledger import BreakerAt
from everstep.model.retry import Retry, RetryPreset
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from contextvars import ContextVar

    from everstep.graph.labels import attribute
else:
    attribute = on_demand("everstep.graph.labels:attribute")

T = TypeVar("T")
_NOTHING = object()
_UNIT_NAME = frozenset("/@#=$")
_ASKABLE = frozenset({Trigger.MANUAL, *PRIORITIES})
_PRIORITIES_END = 1 << 63
"""The first priority that a record cannot hold."""


class Spent:
    """What `ctx.spend` returns: an async node may await it, and then what it spent is durable."""

    __slots__ = ("_written",)

    def __init__(self, written: Awaitable[None] | None = None) -> None:
        self._written = written

    @property
    def is_done(self) -> bool:
        """True if it is durable already, and there is nothing to wait for."""
        return self._written is None

    def __await__(self) -> Generator[Any, Any, None]:
        if self._written is not None:
            yield from self._written.__await__()


class Asked(msgspec.Struct, frozen=True):
    """A visit that a node asked for."""

    node: str
    arguments: dict[str, Any]
    goto: bool
    priority: int


class Neighbours(Protocol):
    """The flow that a node is in, as far as it may ask for other nodes."""

    @property
    def index(self) -> Mapping[str, int]: ...

    @property
    def tasks(self) -> Collection[int]: ...

    def params_of(self, name: str) -> tuple[str, ...] | None: ...


OnChange = Literal["warn", "fail", "again"]
Keep = Literal["visit", "attempt"]


class UnitOptions(msgspec.Struct, frozen=True):
    """How a durable call is made, and what is kept of it."""

    key: Any = None
    retry: Retry = Retry(0)
    timeout: float | None = None
    is_effect: bool = True
    on_change: OnChange = "warn"
    is_brief: bool = False
    undo: Any = None
    """What undoes the call, if its run fails or is cancelled."""

    def with_key(self, key: Any) -> UnitOptions:
        """Return the options of one call among others that are made alike."""
        return msgspec.structs.replace(self, key=key)

    @classmethod
    def of(
        cls,
        *,
        key: Any = None,
        retry: int | RetryPreset | Retry | None = None,
        timeout: Span | None = None,
        effects: str = "effectful",
        on_change: str = "warn",
        keep: str = "visit",
        undo: Any = None,
    ) -> UnitOptions:
        """Read the options of a call; raises for what none of them can be."""
        is_plain = effects == "effectful" and on_change == "warn" and keep == "visit" and undo is None
        if is_plain and key is None and retry is None and timeout is None:
            return PLAIN
        if undo is not None and not (callable(undo) and effects == "effectful" and keep == "visit"):
            raise BadRequest(
                f"undo of a step is {undo!r:.60}.",
                fix="Give a function, for a call that is effectful and kept for its visit.",
            )
        if effects not in _EFFECTS:
            raise BadRequest(f"effects of a step is {effects!r}.", fix=f"Use one of {', '.join(_EFFECTS)}.")
        if on_change not in ("warn", "fail", "again"):
            raise BadRequest(f"on_change of a step is {on_change!r}.", fix="Use warn, fail or again.")
        if keep not in ("visit", "attempt"):
            raise BadRequest(f"keep of a step is {keep!r}.", fix="Use visit or attempt.")
        return cls(
            key,
            Retry.of(retry),
            None if timeout is None else seconds_of(timeout, "the timeout of a step"),
            effects == Effects.EFFECTFUL,
            on_change,  # type: ignore[arg-type]  # checked above
            keep == "attempt",
            undo,
        )


_EFFECTS = (Effects.EFFECTFUL.value, Effects.READ_ONLY.value, Effects.PURE.value)
PLAIN = UnitOptions()


class Leave(BaseException):
    """Leaves a node for a wait inside it. No `except Exception` stops it, and `finally` is run."""


class Says(Protocol):
    """What a node speaks through while it is under way."""

    def spend(self, amounts: dict[str, Decimal]) -> Spent: ...

    @property
    def units(self) -> Any: ...


class Startable(Protocol):
    """A flow whose runs a node may start."""

    @property
    def name(self) -> str: ...


class Context:
    """Handed to a node that has a parameter annotated `Context`."""

    marks: ClassVar[ContextVar[Any] | None] = None
    """What says which node is running; `everstep.steps` brings it, if a program uses that."""

    __slots__ = (
        "_asked",
        "_beat",
        "_breakers",
        "_channel",
        "_emit",
        "_ends",
        "_make_channel",
        "_neighbours",
        "_outcome",
        "_refused",
        "_request",
        "_says",
        "_trigger",
        "attempt",
        "cursor",
        "idempotency_key",
        "is_resumed",
        "keeps_changes",
        "new_attributes",
        "node",
        "path",
        "run_id",
        "visit",
    )

    def __init__(
        self,
        run_id: str,
        node: str,
        visit: int,
        attempt: int,
        idempotency_key: str,
        *,
        path: str = "",
        neighbours: Neighbours | None = None,
        channel: Callable[[], Channel] | None = None,
        emit: Callable[[dict[str, Any]], None] | None = None,
        beat: Callable[[], None] | None = None,
        cursor: str | None = None,
        is_resumed: bool = False,
        says: Says | None = None,
        breakers: Mapping[str, BreakerAt] | None = None,
        refused: Mapping[str, Refusal] | None = None,
    ) -> None:
        self.run_id = run_id
        self.node = node
        self.path = path or node
        """The node's address in the run: `outer@2#7/inner` for one inside another flow."""
        self.visit = visit
        self.attempt = attempt
        self.idempotency_key = idempotency_key
        """The same on every attempt of this visit, also after a crash. Hand it to whatever you call."""
        self.cursor = cursor
        """Where a stream that is resumed goes on: the newest cursor it yielded that was kept."""
        self.keeps_changes = False
        """Set it before raising, and what the node did to the channel is recorded with its failed step."""
        self.new_attributes: dict[str, Any] | None = None
        """What this attempt has set with `set_attribute`; none if nothing."""
        self._outcome = ""
        self._refused = refused
        """What cannot be asked for here, by name; none if everything can."""
        self.is_resumed = is_resumed
        """True if a run that was under way is taken up at this visit: after a crash, or after a wait."""
        self._neighbours = neighbours
        self._make_channel = channel
        self._emit = emit
        self._beat = beat
        self._says = says
        self._breakers = {} if breakers is None else breakers
        self._channel: Channel | None = None
        self._request: dict[str, Any] | None = None
        self._trigger: Trigger | None = None
        self._asked: list[Asked] = []
        self._ends = False

    @property
    def channel(self) -> Channel:
        """The run's shared values. What this node changes is recorded with its step."""
        if self._channel is None:
            if self._make_channel is None:
                raise BadRequest(f"node {self.node!r} has no channel here.", fix="Run it in a flow.")
            self._channel = self._make_channel()
        return self._channel

    @property
    def outcome(self) -> str:
        """How the step ends in the words of its flow, such as `partial_success`; set it, and it is kept."""
        return self._outcome

    @outcome.setter
    def outcome(self, said: str) -> None:
        self._check("outcome")
        self._outcome = said

    def _check(self, name: str) -> None:
        """Raise if this cannot be asked for where the node is."""
        if self._refused is not None and name in self._refused:
            raise not_here(self.path, self._refused[name])

    @property
    def breakers(self) -> dict[str, str]:
        """How the run's breakers stand, by name: `closed`, `open` or `half_open`."""
        return {name: at.state.value for name, at in self._breakers.items()}

    def checkpoint(
        self, metadata: Mapping[str, Any] | None = None, *, trigger: Trigger | str = Trigger.MANUAL
    ) -> None:
        """Ask for a checkpoint once this node has succeeded and its successors are queued.

        `trigger` says why it is taken, as one of the words for that which are not the run's own.
        """
        self._check("checkpoint")
        given = dict(metadata or {})
        try:
            is_storable = all(type(key) is str for key in given) and bool(msgspec.msgpack.encode(given))
        except (TypeError, ValueError, OverflowError):
            is_storable = False
        if not is_storable:
            raise BadRequest(
                f"node {self.node!r} asked for a checkpoint with {metadata!r:.80}.",
                fix="Give names and plain values: text, numbers, lists, dicts.",
            )
        if trigger not in _ASKABLE:
            known = ", ".join(sorted(_ASKABLE))
            raise BadRequest(
                f"node {self.node!r} asked for a checkpoint as {trigger!r:.40}.", fix=f"Use one of {known}."
            )
        self._request = {**(self._request or {}), **given}
        self._trigger = Trigger(trigger)

    def next_task(
        self, node: object, *, goto: bool | None = None, priority: int = 0, **arguments: Any
    ) -> None:
        """Ask for a visit to a node once this one has succeeded, with these arguments.

        With `goto` only what was asked for comes next, not what follows this node in the flow. That is so by
        default for a node that stands in the flow; what follows waits for one that is listed under `tasks=`.
        """
        name = node if isinstance(node, str) else str(getattr(node, "name", node))
        flow = self._neighbours
        params = flow.params_of(name) if flow is not None else None
        if flow is not None and params is None and name in flow.index:
            raise UnknownTask(
                f"node {self.node!r} asked for {name!r}, which is where a group meets.",
                fix="Ask for a node; the group comes to its join by itself.",
            )
        if flow is None or params is None:
            known = list(flow.index) if flow is not None else []
            close = close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}? Otherwise list" if close else "List"
            fix = f"{hint} it in the flow: Flow(..., tasks=[{name}])."
            if "#" in self.path.rpartition("/")[2]:  # each item of a map stands alone
                fix = f"Put {self.node!r} and {name!r} into a flow and map that."
            raise UnknownTask(
                f"node {self.node!r} asked for {name!r}, which is no node of its flow.", fix=fix
            )
        for key in arguments.keys() - set(params):
            raise BadRequest(
                f"node {self.node!r} asked for {name!r} with {key!r}.", fix=f"It takes {list(params)}."
            )
        if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) >= _PRIORITIES_END:
            fix = "Give a whole number that fits 64 bits."
            raise BadRequest(f"node {self.node!r}: priority is {priority!r:.60}.", fix=fix)
        is_wired = flow.index[name] not in flow.tasks
        self._asked.append(Asked(name, dict(arguments), is_wired if goto is None else bool(goto), priority))

    def next_iteration(self, data: Any = _NOTHING, **arguments: Any) -> None:
        """Ask for another visit to this node. `data` goes to its first parameter, the rest go by name.

        What follows the node waits until it no longer asks.
        """
        if data is not _NOTHING:
            params = self._neighbours.params_of(self.node) if self._neighbours is not None else None
            if not params:
                raise BadRequest(
                    f"node {self.node!r} has no parameter to take the data.",
                    fix="Give it one besides Context.",
                )
            arguments = {params[0]: data, **arguments}
        self.next_task(self.node, goto=True, **arguments)

    def terminate(self) -> None:
        """End this flow once the node has succeeded: nothing more starts, and the flow is completed."""
        self._ends = True

    def set_attribute(self, name: str, value: str | float | bool | datetime) -> None:
        """Let the run be found by this: `ctx.set_attribute("customer", "7")`; kept with the node's step.

        Text, a number, true or false, or a time with its zone; at most 256 bytes, and 20 in a run. Setting it
        again replaces it. It is readable in the store: with encryption, only what the flow declares in
        `plain_attributes` is taken.
        """
        self._check("set_attribute")
        attribute(name, value)
        if self.new_attributes is None:
            self.new_attributes = {}
        self.new_attributes[name] = value

    def emit(self, name: str, /, **data: Any) -> None:
        """Emit an event to those who watch the run in this process, with any data; nothing is recorded."""
        if not isinstance(name, str) or not name:
            raise BadRequest(f"node {self.node!r} emits {name!r}.", fix="Give what happened a name.")
        if self._emit is not None:
            self._emit({**data, "name": name, "data": data})

    def heartbeat(self, **data: Any) -> None:
        """Say that the node is alive: its `timeout` begins anew. An event with the data is emitted."""
        if self._beat is not None:
            self._beat()
        if self._emit is not None:
            self._emit({**data, "name": "heartbeat", "data": data})

    def spend(self, **amounts: int | float | str | Decimal) -> Spent:
        """Count what the node has cost, by name: `ctx.spend(usd="0.12", tokens=1500)`.

        It counts even if the attempt fails later. For a sync node it is durable when this returns; an async
        node may await what it returns.
        """
        self._check("spend")
        found: dict[str, Decimal] = {}
        for name, given in amounts.items():
            what = f"what node {self.node!r} spends as {name!r}"
            if check_name(name, f"what node {self.node!r} spends") == SECONDS:
                raise BadRequest(
                    f"node {self.node!r} spends {SECONDS!r}.", fix="Time is measured; leave it out."
                )
            amount = amount_of(given, what)
            if amount:
                found[name] = amount
        if not amounts:
            raise BadRequest(f"node {self.node!r} spends nothing.", fix='Say what: ctx.spend(usd="0.12").')
        if self._says is None or not found:
            return Spent()
        return self._says.spend(found)

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        key: Any = None,
        retry: int | RetryPreset | Retry | None = None,
        timeout: Span | None = None,
        effects: str = "effectful",
        on_change: OnChange = "warn",
        keep: Keep = "visit",
        undo: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        key: Any = None,
        retry: int | RetryPreset | Retry | None = None,
        timeout: Span | None = None,
        effects: str = "effectful",
        on_change: OnChange = "warn",
        keep: Keep = "visit",
        undo: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> T: ...

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: Any = None,
        retry: int | RetryPreset | Retry | None = None,
        timeout: Span | None = None,
        effects: str = "effectful",
        on_change: str = "warn",
        keep: str = "visit",
        undo: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Make a durable call: once it is recorded, no attempt and no process makes it again.

        `await` it in an async node. It is known by its name, and by `key` or by how often that name was asked
        for; two of one name at the same time need keys. If `fn` has a parameter `idempotency_key` it is given
        one that stays the same. An option of this call that `fn` has too goes by `functools.partial`.
        `undo` undoes it if the run fails or is cancelled: a function of a module, given the arguments of `fn`
        by name, and what it returned as `result`.
        """
        options = UnitOptions.of(
            key=key, retry=retry, timeout=timeout, effects=effects, on_change=on_change, keep=keep, undo=undo
        )
        return self.make_step(name, fn, args, kwargs, options)

    def make_step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: UnitOptions,
        *,
        is_async: bool | None = None,
    ) -> Any:
        """Make a durable call with options that are read already."""
        self._check("step")
        if not isinstance(name, str) or not name or not _UNIT_NAME.isdisjoint(name):
            raise BadRequest(
                f"node {self.path!r} asks for a step called {name!r:.60}.",
                fix="Give it a short name without / @ # = $.",
            )
        if fn.__class__ is not FunctionType and not callable(fn):  # most are, and cost no call
            raise BadRequest(
                f"step {name!r} of node {self.path!r} is to call {fn!r:.60}.",
                fix=f"Give a function, and behind it its arguments: ctx.step({name!r}, fn, x), not fn(x).",
            )
        return self._open_units(name).ask(name, fn, args, kwargs, options, is_async)

    def _open_units(self, name: str) -> Any:
        if self._says is None:
            raise BadRequest(
                f"node {self.path!r} is over, or not in a flow, and asks for step {name!r}.",
                fix="Await all that a node begins before it returns.",
            )
        return self._says.units

    def occurrence(self, what: str) -> int:
        """Return how often this attempt has asked for something, which is no step, with this time."""
        found: int = self._open_units(what).count(what)
        return found

    def close(self) -> None:
        """Take nothing more from the node, and let go of its call: the attempt is over."""
        self._says = self._beat = self._make_channel = self._channel = None

    def wait(self, what: Any) -> Any:
        """Wait for a person, a clock or another system in the middle of the node, and return the answer.

        `await` it in an async node. The node is left, and the run halts without a process; once there is an
        answer the node is entered again, and what it did before with `step` and `wait` is taken from the
        records. Takes what `everstep.wait` makes, or a `Wait`; declare the node with `halts=True`.
        """
        self._check("wait")
        return self._open_units("wait").wait(what)

    def sleep(self, span: Span) -> Any:
        """Let time pass in the middle of the node, such as `"3d"`; `await` it in an async node.

        The run halts without a process meanwhile. Declare the node with `halts=True`.
        """
        self._check("sleep")
        return self._open_units("sleep").sleep(span)

    def start(
        self,
        flow: Startable | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        key: Any = None,
        on_parent_cancel: str = "cancel",
        at: datetime | str | None = None,
        after: Span | None = None,
        deadline: Span | datetime | None = None,
        priority: int = 0,
        group: str | None = None,
        tags: Iterable[str] | Mapping[str, str] = (),
    ) -> Any:
        """Start a run of a flow once, whatever crashes, and return it: a `ChildRun` with its `run_id`.

        `await` it in an async node. The flow is declared: `Flow(..., starts=[flow])`; then its name will do.
        The run is known by its flow, and by `key` or by how often that flow was asked for. If this run is
        cancelled, so is that one, unless `on_parent_cancel="leave"`. `at`, `after` and `deadline` say when it
        begins and when it is ended, as `host.start` takes them.
        """
        self._check("start")
        said = {"on_parent_cancel": on_parent_cancel, "priority": priority, "group": group, "tags": tags}
        if at is not None or after is not None or deadline is not None:
            said["times"] = (at, after, deadline)
        return self._open_units("start").start(flow, inputs, key, said)

    def result(self, child: Any, *, timeout: Span | None = None) -> Any:
        """Wait until a run that a node has started has ended, and return what it wrote, by name.

        `await` it in an async node. One that did not complete raises `ChildFailed`. The run halts without a
        process meanwhile. Declare the node with `halts=True`.
        """
        self._check("result")
        return self._open_units("result").result(child, timeout)

    def inbox(self, name: str) -> Any:
        """Take the signals of a name that were sent to the run and not taken yet: a list of their values.

        `await` it in an async node. It does not wait; `wait(wait.signal(name))` does.
        """
        self._check("inbox")
        return self._open_units("inbox").inbox(name)

    def now(self) -> datetime:
        """Return the time, as aware UTC: the same on every attempt, also after a crash."""
        self._check("now")
        found: datetime = self._open_units("now").now()
        return found

    def uuid(self) -> str:
        """Return a random UUID as text: the same on every attempt, also after a crash."""
        self._check("uuid")
        found: str = self._open_units("uuid").uuid()
        return found

    def random(self) -> float:
        """Return a random number in [0, 1): the same on every attempt, also after a crash."""
        self._check("random")
        found: float = self._open_units("random").random()
        return found

    def cancel(self, reason: str = "") -> NoReturn:
        """Cancel the run from within; the node does not count as done."""
        why = f": {reason}" if reason else "."
        raise RunCancelled(f"node {self.path!r} cancelled the run{why}", by_node=self.path)

    @property
    def checkpoint_request(self) -> dict[str, Any] | None:
        """The metadata of the checkpoint that was asked for, or none."""
        return self._request

    @property
    def checkpoint_trigger(self) -> Trigger | None:
        """Why it was asked for, if it was."""
        return self._trigger

    @property
    def asked(self) -> list[Asked]:
        """The visits that were asked for."""
        return self._asked

    @property
    def ends(self) -> bool:
        """True if the node ended its flow."""
        return self._ends

    @property
    def used_channel(self) -> Channel | None:
        """The channel, if the node looked at it."""
        return self._channel


if TYPE_CHECKING:

    class AsyncContext(Context):
        """`Context` as an async node sees it: `step` is awaited, whether or not its function is async."""

        @overload  # type: ignore[override]
        def step(
            self,
            name: str,
            fn: Callable[..., Awaitable[T]],
            /,
            *args: Any,
            key: Any = None,
            retry: int | RetryPreset | Retry | None = None,
            timeout: Span | None = None,
            effects: str = "effectful",
            on_change: OnChange = "warn",
            keep: Keep = "visit",
            undo: Callable[..., Any] | None = None,
            **kwargs: Any,
        ) -> Coroutine[Any, Any, T]: ...

        @overload
        def step(
            self,
            name: str,
            fn: Callable[..., T],
            /,
            *args: Any,
            key: Any = None,
            retry: int | RetryPreset | Retry | None = None,
            timeout: Span | None = None,
            effects: str = "effectful",
            on_change: OnChange = "warn",
            keep: Keep = "visit",
            undo: Callable[..., Any] | None = None,
            **kwargs: Any,
        ) -> Coroutine[Any, Any, T]: ...

        def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...
else:
    AsyncContext = Context
