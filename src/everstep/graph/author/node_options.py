"""The options of `@node`, each once: what it may be, and how the Flow IR spells it.

The decorators, the checks of a node, the reader and the writer of the IR and a test of its schema all go by
`NodeOptions`. What an option means in each place is in `options.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Struct

from everstep.errors import BadRequest
from everstep.graph.author.signatures import count_of, flag_of, is_text, names_of, word_of
from everstep.model.durations import seconds_of
from everstep.model.enums import Determinism, Effects, Persist
from everstep.model.retry import Retry
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep.graph.limits import Limit, limit_of_node
else:
    limit_of_node = on_demand("everstep.graph.limits:limit_of_node")

EffectsName = Literal["pure", "read_only", "effectful", "undeclared"]
DeterminismName = Literal["strict", "stable", "best_effort", "nondeterministic"]
PersistName = Literal["auto", "inline", "ref", "no"]
OnUnknown = Literal["rerun", "stop"]
KeyRule = str | Callable[..., str] | None

BUILT_IN: Final = "std."
"""How the identifiers of nodes begin that come with everstep."""


class Spelling(StrEnum):
    """How the IR spells a value."""

    PLAIN = "plain"
    """As JSON has it."""
    WORD = "word"
    """One of the words of an enum."""
    SECONDS = "seconds"
    NAMES = "names"
    FUNCTION = "function"
    """What the registry calls it."""
    UNDO = "undo"
    """Likewise, of what undoes a step: a function, or a node with options of its own."""
    KEY = "key"
    RETRY = "retry"
    ANSWER = "answer"
    DURABILITY = "durability"
    RETENTION = "retention"
    BUDGETS = "budgets"
    BREAKERS = "breakers"
    LIMITS = "limits"
    LIMIT = "limit"
    TELLS = "tells"
    """Who is told of runs, and of what."""
    REDUCERS = "reducers"
    """How values take signals in, by name."""
    NODES = "nodes"
    """The names of nodes of the flow."""
    TYPES = "types"
    """Types by name."""
    FUNCTIONS = "functions"


Check = Callable[[Any, str, str], Any]
"""Returns a value as a node keeps it, given the option's and the node's name, or raises `BadRequest`."""


class Spec(msgspec.Struct, frozen=True):
    """What is to be known of an option."""

    check: Check
    ir: str = ""
    """The field of the IR, `durability.halts` inside another; empty if the IR has no field for it alone."""
    schema: Mapping[str, Any] | None = None
    """What the published schema says of the field, without its description; none if only that says it."""
    form: Spelling = Spelling.PLAIN
    of_functions: bool = False
    """True if only the node of a function of one's own has it: neither a wait nor a flow."""


FLAG: Final = {"type": "boolean"}
FLAG_OR_NULL: Final = {"type": ["boolean", "null"]}
COUNT_OR_NULL: Final = {"$ref": "#/$defs/count_or_null"}
NUMBER_OR_NULL: Final = {"anyOf": [{"$ref": "#/$defs/number"}, {"type": "null"}]}
TEXT: Final = {"type": "string"}
NAMES: Final = {"$ref": "#/$defs/names"}
NAME_OR_NULL: Final = {"type": ["string", "null"], "minLength": 1}
UNKNOWNS: Final = {"enum": list(get_args(OnUnknown))}
NO_RETRY: Final = Retry(0)


def _word(kind: type[StrEnum], ir: str, *, of_functions: bool = False) -> Spec:
    def check(value: Any, option: str, name: str) -> Any:
        return word_of(kind, value, option, name)

    schema = {"enum": [word.value for word in kind]}
    return Spec(check, ir, schema, Spelling.WORD, of_functions=of_functions)


def _as_it_is(value: Any, option: str, name: str) -> Any:
    return value


def _name(value: Any, option: str, name: str) -> str:
    if not isinstance(value, (str, type(None))):
        raise BadRequest(f"a node's name is text, not {value!r:.60}.", fix='Write @node(name="...").')
    return value or name


def _outputs(value: Any, option: str, name: str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else names_of(value, name)


def _inputs(value: Any, option: str, name: str) -> tuple[str, ...]:
    return tuple(value or ())


def _key(value: Any, option: str, name: str) -> KeyRule:
    if not (value is None or callable(value) or is_text(value)):
        fix = 'Use "auto", a template, or a function of the inputs.'
        raise BadRequest(f"node {name!r}: idempotency_key is {value!r}.", fix=fix)
    return value  # type: ignore[no-any-return]  # as was just checked


def _flag_or_none(value: Any, option: str, name: str) -> bool | None:
    return None if value is None else flag_of(value, option, name)


def _truth(value: Any, option: str, name: str) -> bool:
    return bool(value)


def _retry(value: Any, option: str, name: str) -> Retry:
    return Retry.of(value)


def _text(value: Any, option: str, name: str) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"node {name!r}: {option} is {value!r}.", fix="Give text.")
    return value


def _seconds(value: Any, option: str, name: str) -> float | None:
    return None if value is None else seconds_of(value, f"node {name!r}: {option}")


def _identifier(value: Any, option: str, name: str) -> str:
    if not isinstance(value, str) or value.startswith(BUILT_IN):
        raise BadRequest(
            f"node {name!r}: identifier is {value!r}.",
            fix=f"Give text that does not begin with {BUILT_IN!r}.",
        )
    return value


def _limit(value: Any, option: str, name: str) -> "Limit | None":
    return None if value is None else limit_of_node(name, value)


def _names(value: Iterable[str], option: str, name: str) -> tuple[str, ...]:
    return names_of(value if isinstance(value, str) else list(value), name)


class NodeOptions(Struct, frozen=True, kw_only=True):
    """What `@node` takes, as a node keeps it. `node()` says what each means."""

    name: Annotated[str, Spec(_name)] = ""
    output: Annotated[tuple[str, ...], Spec(_outputs)] = ()
    inputs: Annotated[tuple[str, ...], Spec(_inputs)] = ()
    effects: Annotated[Effects, _word(Effects, "effects")] = Effects.UNDECLARED
    determinism: Annotated[Determinism, _word(Determinism, "determinism")] = Determinism.BEST_EFFORT
    checkpointable: Annotated[bool | None, Spec(_flag_or_none, "durability.checkpointable", FLAG_OR_NULL)] = (
        None
    )
    replayable: Annotated[bool | None, Spec(_flag_or_none, "durability.replayable", FLAG_OR_NULL)] = None
    halts: Annotated[bool, Spec(_truth, "durability.halts", FLAG)] = False
    reason: Annotated[str, Spec(_text, "durability.reason", TEXT)] = ""
    idempotency_key: Annotated[KeyRule, Spec(_key, "idempotency", form=Spelling.KEY)] = None
    retry: Annotated[Retry, Spec(_retry, "retry", form=Spelling.RETRY, of_functions=True)] = NO_RETRY
    timeout: Annotated[
        float | None, Spec(_seconds, "timeout_s", NUMBER_OR_NULL, Spelling.SECONDS, of_functions=True)
    ] = None
    max_visits: Annotated[int | None, Spec(count_of, "max_visits", COUNT_OR_NULL, of_functions=True)] = None
    persist: Annotated[Persist, _word(Persist, "persist", of_functions=True)] = Persist.AUTO
    skip_on_resume: Annotated[bool | None, Spec(_as_it_is, "skip_on_resume", FLAG, of_functions=True)] = None
    keep_every: Annotated[int | None, Spec(count_of, "keep_every", COUNT_OR_NULL, of_functions=True)] = None
    requires: Annotated[
        tuple[str, ...], Spec(_names, "requires", NAMES, Spelling.NAMES, of_functions=True)
    ] = ()
    expensive: Annotated[bool, Spec(flag_of, "expensive", FLAG, of_functions=True)] = False
    destructive: Annotated[bool, Spec(flag_of, "destructive", FLAG, of_functions=True)] = False
    on_unknown: Annotated[OnUnknown, Spec(_as_it_is, "on_unknown", UNKNOWNS, of_functions=True)] = "rerun"
    probe: Annotated[
        Callable[..., Any] | None,
        Spec(_as_it_is, "probe", NAME_OR_NULL, Spelling.FUNCTION, of_functions=True),
    ] = None
    limit: Annotated["Limit | None", Spec(_limit, "limit", form=Spelling.LIMIT, of_functions=True)] = None
    undo: Annotated[
        Callable[..., Any] | None, Spec(_as_it_is, "undo", NAME_OR_NULL, Spelling.UNDO, of_functions=True)
    ] = None
    answer_type: Annotated[Any, Spec(_as_it_is, "answer", form=Spelling.ANSWER)] = None
    identifier: Annotated[str, Spec(_identifier)] = ""

    @classmethod
    def of(cls, default_name: str, given: Mapping[str, Any]) -> "NodeOptions":
        """Return options as they were given, each checked; what is wrong is said of the node by its name."""
        name = _name(given.get("name"), "name", default_name)
        checked = {o: s.check(given[o], o, name) for o, s in NODE_OPTIONS.items() if o in given}
        return cls(**{**given, **checked, "name": name})


NODE_OPTIONS: Final[Mapping[str, Spec]] = {
    option: hint.__metadata__[0] for option, hint in NodeOptions.__annotations__.items()
}
"""What is to be known of each option, in the order in which the IR has them."""
