"""The options of `Flow`, each once: what it may be, and where the Flow IR has it.

A flow, the reader and the writer of the IR and a test of its schema all go by `FlowOptions`.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Struct, field

from everstep.errors import BadRequest
from everstep.graph.author.node import Node
from everstep.graph.author.node_options import COUNT_OR_NULL, FLAG, NAMES, TEXT, Check, Spec, Spelling
from everstep.graph.author.profiles import Entry, Registry
from everstep.model.budgets import Budget, budgets_of
from everstep.model.durability import Durability
from everstep.model.durations import seconds_of
from everstep.model.retention import Retention, checked_retention
from everstep.model.waits import Reducer
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep.graph.author.migrations import Migration, checked_rules
    from everstep.graph.check.started_flows import checked_flows
    from everstep.graph.limits import AnyLimit, limits_of
    from everstep.graph.schedules import schedules_of
    from everstep.graph.tells import Tell, tells_of
    from everstep.model.breakers import Breaker
else:
    tells_of = on_demand("everstep.graph.tells:tells_of")
    checked_rules = on_demand("everstep.graph.author.migrations:checked_rules")
    checked_flows = on_demand("everstep.graph.check.started_flows:checked_flows")
    limits_of = on_demand("everstep.graph.limits:limits_of")
    schedules_of = on_demand("everstep.graph.schedules:schedules_of")

COUNT: Final = {"type": "integer", "minimum": 1}
SECONDS_OR_NULL: Final = {"type": ["number", "null"], "exclusiveMinimum": 0}
PARTIAL: Final = Durability()


def _refusal(flow: str, option: str, value: Any, fix: str) -> BadRequest:
    return BadRequest(f"flow {flow!r}: {option} is {value!r:.60}.", fix=fix)


def _version(value: Any, option: str, flow: str) -> str:
    if not isinstance(value, str):
        raise _refusal(flow, option, value, "Give text.")
    return value


def _count(value: Any, option: str, flow: str) -> Any:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise _refusal(flow, option, value, "Give a whole number from 1 on.")
    return value


def _several(words: str) -> Check:
    def check(value: Any, option: str, flow: str) -> tuple[Any, ...]:
        if value is not None and not isinstance(value, Iterable):
            raise _refusal(flow, option, value, f"Give {words}.")
        return tuple(value or ())

    return check


def _channel(value: Any, option: str, flow: str) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise _refusal(flow, option, value, "Give a dict of keys and types.")
    return None if value is None else dict(value)


def _registry(value: Any, option: str, flow: str) -> Registry | None:
    if value is not None and not isinstance(value, Registry):
        raise _refusal(flow, option, value, "Give a Registry.")
    return value


def _profiles(value: Any, option: str, flow: str) -> dict[str, Entry]:
    if value is not None and not isinstance(value, Mapping):
        raise _refusal(flow, option, value, "Give a dict of names and profiles.")
    for path in value or ():
        if not isinstance(path, str):
            raise BadRequest(f"flow {flow!r} has a profile of {path!r:.60}.", fix="Name a node, or a path.")
    return {name: Entry.own(said, name) for name, said in (value or {}).items()}


def _entry(value: Any, option: str, flow: str) -> tuple[str, ...]:
    listed = (value,) if isinstance(value, (str, Node)) or not isinstance(value, Iterable) else tuple(value)
    names = tuple(one.name if isinstance(one, Node) else one for one in listed)
    for name in names:
        if not isinstance(name, str):
            raise _refusal(flow, option, name, "Name a node.")
    return names


def _durability(value: Any, option: str, flow: str) -> Durability:
    return Durability.of(value)


def _retention(value: Any, option: str, flow: str) -> Retention | None:
    return checked_retention(value)


def _flag(value: Any, option: str, flow: str) -> bool:
    if not isinstance(value, bool):
        raise _refusal(flow, option, value, "Use True or False.")
    return value


def _migrations(value: Any, option: str, flow: str) -> "tuple[Migration, ...]":
    return () if value == () else checked_rules(flow, value)


def _budgets(value: Any, option: str, flow: str) -> tuple[Budget, ...]:
    return budgets_of(flow, value)


def _limits(value: Any, option: str, flow: str) -> "tuple[AnyLimit, ...]":
    return () if value == () else limits_of(flow, value)


def _inbox(value: Any, option: str, flow: str) -> dict[str, Reducer]:
    if not value:
        return {}
    known = ", ".join(Reducer)
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise _refusal(flow, option, value, "Give a dict of names of values and how they take signals in.")
    for how in value.values():
        if not isinstance(how, str) or how not in list(Reducer):
            raise _refusal(flow, option, how, f"Use one of everstep.inbox: {known}.")
    return {name: Reducer(how) for name, how in value.items()}


def _notify(value: Any, option: str, flow: str) -> "tuple[Tell, ...]":
    return () if value is None or value == () else tells_of(value, f"flow {flow!r}", of_all=False)


UNDO_WHEN: Final = ("both", "failure", "cancel", "ask", "never")
UndoWhen = Literal["both", "failure", "cancel", "ask", "never"]


def _undo(value: Any, option: str, flow: str) -> str:
    if value not in UNDO_WHEN:
        raise _refusal(flow, option, value, f"Use one of {', '.join(UNDO_WHEN)}.")
    return str(value)


def _deadline(value: Any, option: str, flow: str) -> timedelta | None:
    return None if value is None else timedelta(seconds=seconds_of(value, f"deadline of flow {flow!r}"))


def _starts(value: Any, option: str, flow: str) -> tuple[Any, ...]:
    return () if value == () else checked_flows(flow, value)


def _schedules(value: Any, option: str, flow: str) -> tuple[Any, ...]:
    return () if value == () else schedules_of(flow, value)


def _breakers(value: Any, option: str, flow: str) -> "Iterable[Breaker]":
    return value  # type: ignore[no-any-return]  # the flow checks them, when it knows its nodes


class FlowOptions(Struct, frozen=True, kw_only=True):
    """What `Flow` takes besides its name and its nodes, as a flow keeps it."""

    version: Annotated[str, Spec(_version, "version", TEXT)] = "1"
    entry: Annotated[tuple[str, ...], Spec(_entry, "entry", NAMES, Spelling.NAMES)] = ()
    tasks: Annotated[tuple[Node, ...], Spec(_several("a list of nodes"), "tasks", NAMES, Spelling.NODES)] = ()
    channel: Annotated[dict[str, Any] | None, Spec(_channel, "channel", form=Spelling.TYPES)] = None
    durability: Annotated[Durability, Spec(_durability, "policies.durability", form=Spelling.DURABILITY)] = (
        PARTIAL
    )
    max_steps: Annotated[int, Spec(_count, "policies.limits.max_steps", COUNT)] = 10_000
    max_visits: Annotated[int | None, Spec(_count, "policies.limits.max_visits", COUNT_OR_NULL)] = None
    max_concurrency: Annotated[int | None, Spec(_count, "policies.limits.max_concurrency", COUNT_OR_NULL)] = (
        None
    )
    max_running: Annotated[int | None, Spec(_count, "policies.limits.max_running", COUNT_OR_NULL)] = None
    """How many of its runs all workers together may drive at once."""
    max_per_group: Annotated[int | None, Spec(_count, "policies.limits.max_per_group", COUNT_OR_NULL)] = None
    """The same for the runs of each group."""
    limits: Annotated[tuple["AnyLimit", ...], Spec(_limits, "policies.key_limits", form=Spelling.LIMITS)] = ()
    """How many of its runs with the same key may run at once, or start in a while."""
    auto_checkpoint: Annotated[int | None, Spec(_count, "policies.auto_checkpoint", COUNT_OR_NULL)] = None
    retention: Annotated[
        Retention | None, Spec(_retention, "policies.retention", form=Spelling.RETENTION)
    ] = None
    streams: Annotated[bool, Spec(_flag, "policies.streams", FLAG)] = False
    """True if what its nodes emit and yield can be followed from other processes."""
    logs: Annotated[bool, Spec(_flag, "policies.logs", FLAG)] = False
    """True if what its nodes log and print is kept with their steps."""
    pin_version: Annotated[bool, Spec(_flag, "policies.pin_version", FLAG)] = False
    """True if its runs stay with the version they began with."""
    budgets: Annotated[tuple[Budget, ...], Spec(_budgets, "policies.budgets", form=Spelling.BUDGETS)] = ()
    breakers: Annotated[
        Iterable["Breaker"], Spec(_breakers, "policies.breakers", form=Spelling.BREAKERS)
    ] = ()
    notify: Annotated[tuple["Tell", ...], Spec(_notify, "policies.notify", form=Spelling.TELLS)] = ()
    """Who is told of its runs, and of what."""
    inbox: Annotated[Mapping[str, Reducer], Spec(_inbox, "policies.inbox", form=Spelling.REDUCERS)] = field(
        default_factory=dict
    )
    """Values that signals of the same name are taken into, and how."""
    undo: Annotated[str, Spec(_undo, "policies.undo", {"enum": list(UNDO_WHEN)})] = "both"
    """When what its runs have done is undone, as far as their nodes say how."""
    deadline: Annotated[
        timedelta | None, Spec(_deadline, "policies.deadline", SECONDS_OR_NULL, Spelling.SECONDS)
    ] = None
    """How long after they begin its runs are ended, if they have not ended by themselves."""
    plain_attributes: Annotated[
        tuple[str, ...],
        Spec(_several("a list of names"), "policies.plain_attributes", NAMES, Spelling.NAMES),
    ] = ()
    """Attributes that may be readable in the store though what its runs keep is encrypted."""
    rules: Annotated[
        tuple[Callable[..., Any], ...],
        Spec(_several("a list of functions"), "policies.rules", NAMES, Spelling.FUNCTIONS),
    ] = ()
    registry: Annotated[Registry | None, Spec(_registry)] = None
    profiles: Annotated[Mapping[str, Entry], Spec(_profiles)] = field(default_factory=dict)
    migrations: Annotated[tuple["Migration", ...], Spec(_migrations)] = ()
    starts: Annotated[tuple[Any, ...], Spec(_starts)] = ()
    """Flows whose runs its nodes may start."""
    schedules: Annotated[tuple[Any, ...], Spec(_schedules)] = ()
    """When its runs are started by the clock."""

    @classmethod
    def of(cls, flow: str, **given: Any) -> "FlowOptions":
        """Return options as they were given, each checked; what is wrong is said of the flow by its name."""
        return cls(**{option: FLOW_OPTIONS[option].check(given[option], option, flow) for option in given})


FLOW_OPTIONS: Final[Mapping[str, Spec]] = {
    option: hint.__metadata__[0] for option, hint in FlowOptions.__annotations__.items()
}
"""What is to be known of each option, in the order in which the IR has them."""
