"""`@node`, `@ifelse` and `@route`: functions become places in a flow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    Protocol,
    Self,
    TypedDict,
    Unpack,
    cast,
    overload,
)
from weakref import WeakValueDictionary

import msgspec

from everstep.errors import BadRequest, GateError, OutputError, close_matches
from everstep.graph.author.node_options import (
    NODE_OPTIONS,
    DeterminismName,
    EffectsName,
    KeyRule,
    NodeOptions,
    OnUnknown,
    PersistName,
)
from everstep.graph.author.signatures import Param as Param
from everstep.graph.author.signatures import (
    accepted,
    count_of,
    is_async,
    read_signature,
    streams,
    word_of,
)
from everstep.graph.author.streams import collected
from everstep.graph.author.wiring import Wired
from everstep.graph.check.hints import UNKNOWN, gone_over, hints_of, of_item
from everstep.model.durations import Span
from everstep.model.enums import Determinism, Effects, OnError, Persist, Trigger
from everstep.model.records import UNDOING
from everstep.model.retry import Retry, RetryPreset
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep.graph.ir.names import home_of
    from everstep.graph.limits import Limit
else:
    home_of = on_demand("everstep.graph.ir.names:home_of")

END: Final = "@end"
"""A gate's target that ends its path."""

if TYPE_CHECKING:  # what is written `Node` alone is any node; Python knows defaults of these from 3.13 on
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any, covariant=True)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)
Q = ParamSpec("Q")
S = TypeVar("S")


class MapSpec(msgspec.Struct, frozen=True):
    """How a node goes over lists: one call, or one run of an inner flow, for each item."""

    params: tuple[str, ...]
    mode: str
    on_error: OnError
    max_concurrency: int


class NodeKeywords(TypedDict, total=False):
    """The options of `@node`, which `Node`, `@ifelse` and `@route` take too, for checkers and editors."""

    output: str | Iterable[str] | None
    name: str | None
    inputs: Iterable[str] | None
    effects: Effects | EffectsName
    determinism: Determinism | DeterminismName
    idempotency_key: KeyRule
    retry: int | RetryPreset | Retry | None
    timeout: Span | None
    limit: Limit | None
    max_visits: int | None
    persist: Persist | PersistName
    skip_on_resume: bool | None
    halts: bool
    requires: Iterable[str]
    answer_type: Any
    on_unknown: OnUnknown
    probe: Callable[..., Any] | None
    undo: Callable[..., Any] | None
    identifier: str
    checkpointable: bool | None
    replayable: bool | None
    reason: str
    keep_every: int | None
    expensive: bool
    destructive: bool


class Node(Wired, Generic[P, R]):
    """A function and its place in a flow: what it reads, what it writes, how it may be treated.

    Calling it calls the function, so that nodes can be tested like functions. `Node[P, R]` has the
    function's parameters and what it returns, for editors and type checkers.
    """

    is_gate = False
    inner: Any = None
    """The plan of the flow inside, if there is one."""
    over: MapSpec | None = None
    is_atomic = False
    exports: Mapping[str, str] = {}
    """Outer names by the inner names they are lifted from."""
    selected: frozenset[str] = frozenset()
    must_lift = False
    inner_outputs: tuple[str, ...] = ()
    """What one item of a map writes."""
    identifier = ""
    """What a registry calls its function; empty for the function's own module and name."""
    is_built_in = False
    """True if its identifier alone says what it does."""
    schedulers: tuple[str, ...] = ()
    notifiers: tuple[str, ...] = ()
    """Aliases that a host must have for it."""
    answered_as: Trigger | None = None
    """Why the checkpoint is taken that keeps the answer to its wait, if not as that of any step."""
    extension: Mapping[str, Any] = MappingProxyType({})
    """What a front end keeps with it, as JSON, by namespace; part of the structure and of the IR."""
    result_name: str | None = None
    """The name under which what it returns is kept, if it declares no output."""
    undo: Node | None = None
    """What undoes a step of it, as a node that nothing leads to; none if nothing does."""
    undo_outputs: tuple[str, ...] = ()
    """What its undo calls its outputs, which may be named otherwise by now."""
    _bound: WeakValueDictionary[int, Node] | None = None
    """The nodes of a method by the `id` of the object each belongs to."""

    def __init__(self, fn: Callable[P, R], **options: Unpack[NodeKeywords]) -> None:
        """Make a node of a function; its options are those of `@node`."""
        if not callable(fn) or isinstance(fn, type):
            raise BadRequest(
                f"@node needs a function, not {fn!r}.", fix="Write @node(output=...) for its output."
            )
        said = NodeOptions.of(str(getattr(fn, "__name__", type(fn).__name__)), options)
        self.fn: Callable[..., Any] = fn
        self.name = said.name
        self.outputs = said.output
        self._take(said)
        self._look_at(fn)
        self.announces = _check_unknown(self)
        """True if a call is recorded before it is made, so that one that never reported is known of."""
        self._weigh()
        self._read(fn, said.inputs)
        self.key_reads = accepted(said.idempotency_key) if callable(said.idempotency_key) else None
        """The inputs a key function asks for; none if it takes them all."""
        self.__doc__ = fn.__doc__
        self.__name__ = self.name

    def _take(self, said: NodeOptions) -> None:
        """Keep what was said, under the names of the options."""
        self.effects, self.determinism, self.persist = said.effects, said.determinism, said.persist
        self.skip_on_resume = said.skip_on_resume
        """Whether a resume skips it; none if it does not say, and `persist` decides."""
        self.idempotency_key = said.idempotency_key
        self.checkpointable, self.reason = said.checkpointable, said.reason
        """False if a run cannot be resumed behind it, and why; none if it does not say."""
        self.replayable = said.replayable
        """Whether what it streams can be streamed again; none if it does not say."""
        self.expensive = said.expensive
        """True if a checkpoint follows it at once, since running it again would cost too much."""
        self.destructive = said.destructive
        """True if a checkpoint comes before it, to which a fork goes back."""
        self.keep_every, self.max_visits = said.keep_every, said.max_visits
        self.retry, self.timeout = said.retry, said.timeout
        self.limit = said.limit
        """How many of its calls, and of those of all nodes with a limit of this name, may be made."""
        self.halts, self.answer_type = said.halts, said.answer_type
        self.requires = said.requires
        self.on_unknown, self.probe = said.on_unknown, said.probe
        if said.undo is not None:
            self.undo, self.undo_outputs = undo_node(said.undo, said.name), said.output
        self.identifier = said.identifier

    def _look_at(self, fn: Callable[..., Any]) -> None:
        """See of what kind the function is."""
        self.streams, self.is_async = streams(fn), is_async(fn)
        """True for a generator: what it yields is collected. True if what it returns is awaited."""

    def _read(self, fn: Callable[..., Any], inputs: tuple[str, ...]) -> None:
        """Read the function's signature and hints."""
        hints, signature = hints_of(fn), inspect.signature(fn).parameters
        returns = hints.get("return", UNKNOWN)
        self.returns = collected(returns) if self.streams else returns
        self.context_param, self.params, self.oddities = read_signature(fn, signature, hints, inputs)
        self.defaults = {p.name: p.default for p in signature.values() if p.default is not p.empty}

    @property
    def id(self) -> str:
        """What registries and the Flow IR know it by: its identifier, or `module:name` of its function."""
        return self.identifier or ":".join(home_of(self.fn))

    def saying(self, **said: Any) -> Self:
        """Return the node with other attributes, as a registry or a flow declares them."""
        twin = self._copy(**said)
        twin.key_reads = None if "idempotency_key" in said else self.key_reads
        twin.announces = _check_unknown(twin)
        twin._weigh()
        return twin

    def _weigh(self) -> None:
        """Decide what its declarations mean for when a run is written."""
        self.is_effectful = (
            self.effects is Effects.EFFECTFUL or self.idempotency_key is not None or self.announces
        )
        """True if a second call could do something to the world twice. All that the run has done is durable
        before it is called, and so is what it returned, right after."""
        self.acts_in_call = self.is_effectful and not (self.is_built_in and self.halts)
        """True if it does so when it is called; a built-in wait does nothing before its put."""
        self.is_kept_at_once = self.skip_on_resume is True or self.replayable is False
        """True if what it returned is written as soon as it is done: it is not to be made a second time."""
        self.is_simple = not (self.is_effectful or self.goes_on)
        """True if there is nothing to do before it is called but to gather what it reads."""

    @property
    def goes_on(self) -> bool:
        """True for a stream of which chunks are kept as they come, so that it goes on where it stopped."""
        return self.streams and self.replayable is True and self.persist is not Persist.NO

    @property
    def is_unbound(self) -> bool:
        """True for the node of a method that belongs to no object yet."""
        return bool(self.params) and self.params[0].name == self.params[0].source == "self"

    @overload
    def __get__(self, owner: None, kind: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: Node[Concatenate[Any, Q], R], owner: object, kind: type | None = None
    ) -> Node[Q, R]: ...
    def __get__(self, owner: object, kind: type | None = None) -> Any:
        """Return the node of a method for one object, as `agent.think`; asked again, the same node.

        It is kept only as long as a flow holds it: it has the object, so neither outlives the other.
        """
        if owner is None or not self.is_unbound:
            return self
        if self._bound is None:
            self._bound = WeakValueDictionary()
        bound = self._bound.get(id(owner))
        if bound is None:
            fn = self.fn.__get__(owner, kind)
            bound = self._bound[id(owner)] = self._copy(fn=fn, params=self.params[1:])
        return bound

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.fn(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.name}({', '.join(p.source for p in self.params)})>"

    @property
    def rides(self) -> bool:
        """True if a *before effects* flush may leave this step for later."""
        return self.effects is Effects.PURE and self.determinism is not Determinism.NONDETERMINISTIC

    @property
    def is_deterministic(self) -> bool:
        """True if it is declared to give the same again for the same inputs."""
        return self.determinism in (Determinism.STRICT, Determinism.STABLE) or self.rides

    @property
    def may_be_transient(self) -> bool:
        """True if what it writes may not be kept, so that a resume makes it again."""
        return self.persist is Persist.NO or self.checkpointable is False

    def with_name(self, name: str) -> Self:
        """Return the same node under another name."""
        return self._copy(name=name)

    def with_inputs(self, **sources: str) -> Self:
        """Return the node reading other values: `with_inputs(x="price")` fills `x` from `price`."""
        known = {p.name for p in self.params}
        for name in sources.keys() - known:
            raise BadRequest(f"node {self.name!r} has no parameter {name!r}.", fix=f"It has {sorted(known)}.")
        params = tuple(p._replace(source=sources.get(p.name, p.source)) for p in self.params)
        return self._copy(params=params)

    def with_outputs(self, *names: str, **renames: str) -> Self:
        """Return the node writing other names: all of them in order, or `old="new"` for some."""
        for old in renames.keys() - set(self.outputs):
            raise BadRequest(
                f"node {self.name!r} has no output {old!r}.", fix=f"It has {list(self.outputs)}."
            )
        if names and renames:
            raise BadRequest(f"node {self.name!r}: give names in order or renames, not both.")
        if not renames and len(names) != len(self.outputs):
            raise BadRequest(
                f"node {self.name!r} has {len(self.outputs)} outputs, {len(names)} names were given."
            )
        return self._renamed(names or tuple(renames.get(o, o) for o in self.outputs))

    def _renamed(self, outputs: tuple[str, ...]) -> Self:
        return self._copy(outputs=outputs)

    def map_over(
        self,
        *params: str,
        mode: str = "zip",
        on_error: OnError | Literal["stop", "finish", "collect", "skip"] = OnError.STOP,
        max_concurrency: int = 32,
    ) -> Self:
        """Return the node going over lists: these inputs become lists, and so does each output.

        Every item is a step of its own. Several parameters go side by side ("zip") or each with each
        ("product"). When an item fails for good, the run stops, or finishes the other items first and fails
        then, or an `ItemError` is collected in the item's place, or it is skipped.
        """
        known = {p.name: p for p in self.params}
        params = tuple(name for given in params for name in self._called(given))
        if self.is_gate or self.over is not None or not self.outputs:
            why = (
                "is a gate" if self.is_gate else "has no output" if self.over is None else "is a map already"
            )
            raise BadRequest(
                f"node {self.name!r} {why} and cannot go over a list.", fix="Map a node with output=."
            )
        for name in params:
            if name not in known:
                raise BadRequest(
                    f"node {self.name!r} has no parameter {name!r}.", fix=f"It has {sorted(known)}."
                )
        if not params or len(set(params)) < len(params) or mode not in ("zip", "product"):
            raise BadRequest(
                f"node {self.name!r}: map_over{params!r} with mode={mode!r}.",
                fix='Name each parameter once; mode is "zip" or "product".',
            )
        over = MapSpec(
            params,
            mode,
            word_of(OnError, on_error, "on_error", self.name),
            count_of(max_concurrency, "max_concurrency", self.name) or 32,
        )
        mapped = tuple(
            p._replace(hint=gone_over(p.hint), required=True) if p.name in params else p for p in self.params
        )
        return self._copy(
            over=over, params=mapped, returns=UNKNOWN, inner_outputs=self.inner_outputs or self.outputs
        )

    def _called(self, name: str) -> tuple[str, ...]:
        """Return the parameters that a name means."""
        return (name,)

    def alone(self) -> Node:
        """Return what a map calls for each item: the node itself, reading its parameters by their names."""
        gone = self.over.params if self.over is not None else ()
        params = tuple(
            p._replace(source=p.name, hint=of_item(p.hint) if p.name in gone else p.hint) for p in self.params
        )
        return self._copy(over=None, params=params, outputs=self.inner_outputs)

    def _copy(self, **changes: Any) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, **changes)
        twin.__dict__["__name__"] = twin.name
        twin.__dict__.pop("_bound", None)
        return twin

    def spread(self, returned: Any) -> tuple[Any, ...]:
        """Match what the function returned with the declared outputs."""
        count = len(self.outputs)
        if count == 1:
            return (returned,)
        if count == 0:
            return ()
        if not isinstance(returned, (tuple, list)) or len(returned) != count:
            got = (
                f"{len(returned)} values" if isinstance(returned, (tuple, list)) else type(returned).__name__
            )
            raise OutputError(
                f"node {self.name!r} declares {count} outputs {list(self.outputs)} but returned {got}.",
                fix=f"Return a tuple of {count} values, or change output=.",
            )
        return tuple(returned)

    def decide(self, returned: Any) -> tuple[str, ...] | None:
        """Read a gate's answer; an ordinary node decides nothing."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return the structure that is hashed: names and wiring, never bodies."""
        shape: dict[str, Any] = {
            "name": self.name,
            "kind": "node" if self.halts else type(self).__name__.lower(),
            "inputs": [[p.source, p.required] for p in self.params],
            "outputs": list(self.outputs),
        }
        if self.over is not None:
            shape["over"] = [list(self.over.params), self.over.mode, self.over.on_error.value]
            shape["inner_outputs"] = list(self.inner_outputs)
        shape.update(self.extension)
        if self.halts:
            shape["halts"] = self.identifier if self.is_built_in else ""
        if self.over is not None or self.inner is not None:
            shape["params"] = [p.name for p in self.params]
        return shape


class Gate(Node[P, R]):
    """A node that chooses which of its targets run next."""

    is_gate = True

    def __init__(
        self,
        fn: Callable[P, R],
        targets: Iterable[str],
        *,
        multi: bool = False,
        **options: Unpack[NodeKeywords],
    ) -> None:
        super().__init__(fn, **options)
        self.targets = tuple(targets)
        self.multi = multi
        self._means: Callable[[Any], Any] | None = getattr(fn, "target_of", None)
        """Says which target an answer means, for a gate that waits for an answer."""
        self.answered_as = getattr(fn, "answered_as", None)

    def describe(self) -> dict[str, Any]:
        kind = type(self).__name__.lower()
        return {**super().describe(), "kind": kind, "targets": list(self.targets), "multi": self.multi}

    def decide(self, returned: Any) -> tuple[str, ...]:
        if self._means is not None:
            returned = self._means(returned)
        several = self.multi and isinstance(returned, (list, tuple, set, frozenset))
        names = tuple(dict.fromkeys(_target_name(c) for c in (returned if several else (returned,))))
        if isinstance(returned, (set, frozenset)):  # a set has no order of its own
            names = tuple(sorted(names))
        for name in names:
            if name not in self.targets:
                raise GateError(
                    f"gate {self.name!r} chose {name!r}, not one of its targets {_spell(self.targets)}.",
                    fix="Return one of them, or declare the target.",
                )
        return tuple(n for n in names if n != END)


class IfElse(Gate[P, R]):
    """A gate with two ways: a boolean chooses."""

    def __init__(
        self, fn: Callable[P, R], when_true: str, when_false: str, **options: Unpack[NodeKeywords]
    ) -> None:
        super().__init__(fn, (when_true, when_false), **options)

    def decide(self, returned: Any) -> tuple[str, ...]:
        if returned is not True and returned is not False:
            raise GateError(
                f"gate {self.name!r} returned {returned!r}.", fix="An @ifelse function returns True or False."
            )
        target = self.targets[0] if returned else self.targets[1]
        return () if target == END else (target,)


class _MakesNode(Protocol):
    def __call__(self, fn: Callable[Q, S], /) -> Node[Q, S]: ...


class MakesGate(Protocol):
    def __call__(self, fn: Callable[Q, S], /) -> Gate[Q, S]: ...


@overload
def node(fn: Callable[Q, S], /) -> Node[Q, S]: ...
@overload
def node(
    *,
    output: str | Iterable[str] | None = None,
    name: str | None = None,
    inputs: Iterable[str] | None = None,
    effects: Effects | EffectsName = Effects.UNDECLARED,
    determinism: Determinism | DeterminismName = Determinism.BEST_EFFORT,
    idempotency_key: KeyRule = None,
    retry: int | RetryPreset | Retry | None = None,
    timeout: Span | None = None,
    limit: Limit | None = None,
    max_visits: int | None = None,
    persist: Persist | PersistName = Persist.AUTO,
    skip_on_resume: bool | None = None,
    halts: bool = False,
    requires: Iterable[str] = (),
    answer_type: Any = None,
    on_unknown: OnUnknown = "rerun",
    probe: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    identifier: str = "",
    checkpointable: bool | None = None,
    replayable: bool | None = None,
    reason: str = "",
    keep_every: int | None = None,
    expensive: bool = False,
    destructive: bool = False,
) -> _MakesNode: ...
def node(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Turn a function into a node: its parameters are its inputs, `output=` names what it writes.

    effects          "pure", "read_only" or "effectful"; a pure node may be rerun and may share a commit
    idempotency_key  "auto", a template over the inputs such as "order-{order_id}", or a function of them;
                     a node with a key counts as effectful
    retry            attempts after the first: a number, a preset ("standard", ...), or a `Retry`
    timeout          seconds one attempt may take
    limit            a `Limit` of its supplier, shared by its name over flows and workers
    persist          "inline" in the record, "ref" as an artifact, "no" to make it again when it is missed;
                     by default inline or artifact by size
    inputs           names for a function that takes **kwargs
    halts            it may return a `Wait`, for a person or a clock; it cannot be inside an atomic flow
    requires         services that a host must have to run it
    on_unknown       what becomes of an effect that was begun and never reported: "rerun" it with the same
                     key, or "stop" for an operator
    probe            a function of the inputs and `idempotency_key` that is asked first in that case, and
                     returns `Done(value)` if the effect has happened
    undo             a function, or a node, that undoes a step of it if the run fails or is cancelled; it gets
                     the node's inputs and outputs by name, and its own `idempotency_key`
    answer_type      what the answer to its wait must be; by default what the function's annotation says
    identifier       what the Flow IR calls the function; by default `module:name`
    checkpointable   False, with a reason, if a run cannot be resumed behind it: it holds a connection, say
    replayable       True for a generator that yields the same again, or goes on at `ctx.cursor`; False for
                     what cannot be made again, and is written as soon as it is done
    skip_on_resume   True for what is written as soon as it is done, so that no resume makes it again
    keep_every       how many chunks of a replayable generator may go into one checkpoint; by default as many
                     as come in a second, but at most 1,000 or about a MiB
    expensive        a checkpoint is written as soon as it has succeeded, in every mode but "off"
    destructive      a checkpoint is written before each attempt, in every mode but "off"
    """
    _check_options("@node", options)
    return Node(fn, **options) if fn is not None else lambda f: Node(f, **options)


def ifelse(*, when_true: str | Node, when_false: str | Node, **options: Unpack[NodeKeywords]) -> MakesGate:
    """Turn a function that returns a bool into a gate with two targets."""
    _check_options("@ifelse", options)

    def make(fn: Callable[Q, S]) -> Gate[Q, S]:
        return IfElse(fn, _target_name(when_true), _target_name(when_false), **options)

    return make


def route(
    *targets: str | Node | Iterable[str | Node], multi: bool = False, **options: Unpack[NodeKeywords]
) -> MakesGate:
    """Turn a function that returns a target's name into a gate; with `multi` it may return several."""
    _check_options("@route", options)
    given: list[object] = []
    for target in targets:
        given.extend([target] if isinstance(target, (str, Node)) else target)

    def make(fn: Callable[Q, S]) -> Gate[Q, S]:
        return Gate(fn, [_target_name(t) for t in given], multi=multi, **options)

    return make


def _check_options(decorator: str, options: Mapping[str, Any]) -> None:
    for name in options.keys() - NODE_OPTIONS.keys():
        close = close_matches(name, NODE_OPTIONS, n=1)
        fix = f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(sorted(NODE_OPTIONS))}."
        raise BadRequest(f"{decorator} has no option {name!r}.", fix=fix)


def _check_unknown(node: Node) -> bool:
    is_asked = node.probe is not None or node.on_unknown != "rerun"
    if node.on_unknown not in ("rerun", "stop"):
        raise BadRequest(f"node {node.name!r}: on_unknown is {node.on_unknown!r}.", fix="Use rerun or stop.")
    if node.probe is not None and not callable(node.probe):
        raise BadRequest(f"node {node.name!r}: probe is {node.probe!r}.", fix="Give a function.")
    if is_asked and node.effects is not Effects.EFFECTFUL and node.undo is None:
        raise BadRequest(
            f"node {node.name!r} says what to do about an unknown effect, but declares none.",
            fix='Add effects="effectful".',
        )
    if node.destructive and node.effects in (Effects.PURE, Effects.READ_ONLY):
        raise BadRequest(
            f"node {node.name!r} is destructive, and its effects are {node.effects.value!r}.",
            fix='Say effects="effectful", or nothing.',
        )
    if node.undo is not None and node.effects in (Effects.PURE, Effects.READ_ONLY):
        raise BadRequest(
            f"node {node.name!r} has an undo, and its effects are {node.effects.value!r}.",
            fix='Drop undo=, or say effects="effectful".',
        )
    return is_asked or node.destructive or node.undo is not None


def undo_node(given: Any, name: str) -> Node:
    """Return the node that undoes a step of the node called `name`: nothing in the flow leads to it."""
    if isinstance(given, Node):
        is_plain = type(given) is Node and given.over is None and not given.is_unbound
        if not is_plain or given.undo is not None:
            raise BadRequest(
                f"node {name!r}: undo is {given!r}.",
                fix="Give a function, or a plain node: no gate, no flow, no map, and none with an undo.",
            )
        made = given._copy(name=UNDOING, outputs=(), effects=Effects.EFFECTFUL, persist=given.persist)
    elif callable(given) and not isinstance(given, type):
        made = Node(given, name=UNDOING, effects=Effects.EFFECTFUL)
    else:
        raise BadRequest(f"node {name!r}: undo is {given!r:.60}.", fix="Give a function: undo=refund.")
    made.__dict__["__name__"], made.__dict__["given"] = UNDOING, given
    if made.streams:
        raise BadRequest(f"node {name!r}: undo is a generator.", fix="Give a function that returns.")
    made.result_name = None
    made._weigh()
    return made


def _spell(targets: Iterable[str]) -> str:
    return ", ".join("END" if t == END else repr(t) for t in targets)


def _target_name(target: object) -> str:
    if isinstance(target, Node):
        return target.name
    return END if target is None else str(target)
