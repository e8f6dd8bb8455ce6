"""The arguments of waits, each once: what it may be, how the Flow IR spells it, and what is kept of it.

`Wait` is the table. The factories of `wait`, the reader and the writer of the IR, what a store and a chain
keep of a wait, and the page of what works where all go by it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from everstep.errors import BadRequest
from everstep.graph.check.hints import UNKNOWN
from everstep.model.durations import Span, moment_of, span_of

NO_DEFAULT: Final = "@no default"
"""Stands for a default answer that was not declared."""
TEXT: Final = {"type": "string"}
NAMES: Final = {"type": ["string", "array"], "items": TEXT}
FLAG: Final = {"type": "boolean"}
NUMBER: Final = {"type": "integer", "minimum": 1}


Escalation = Mapping[Span, str | Sequence[str]] | Sequence[tuple[Span, str | Sequence[str]]]
"""Who else is told of a wait without an answer, each after how long."""


def escalations_of(given: Any, what: str) -> tuple[tuple[timedelta, tuple[str, ...]], ...]:
    """Read who else is told, the soonest first."""
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    fix = 'Give spans of time and aliases of notifiers: escalate={"1d": "lead", "3d": ["head", "ops"]}.'
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Sequence) or not pairs:
        raise BadRequest(f"{what} is {given!r:.60}.", fix=fix)
    found: list[tuple[timedelta, tuple[str, ...]]] = []
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise BadRequest(f"{what} says {pair!r:.60}.", fix=fix)
        span, told = pair
        aliases = (told,) if isinstance(told, str) else tuple(told) if isinstance(told, Sequence) else ()
        if not aliases or not all(isinstance(alias, str) and alias for alias in aliases):
            raise BadRequest(f"{what} names {told!r:.60}.", fix=fix)
        found.append((span_of(span, what), aliases))
    return tuple(sorted(found))


class Argument(msgspec.Struct, frozen=True):
    """What is to be known of an argument of a wait."""

    schema: Mapping[str, Any] | None = None
    """What it must be in the IR if it never names a value."""
    names_value: bool = False
    """True if an identifier in its place names a value computed earlier."""
    read: Callable[[Any, str], Any] | None = None
    """Makes a span or a moment of it, given how it is called in an error."""
    is_list: bool = False
    in_row: bool = False
    """True if the store keeps it beside the wait, for those who list and answer it."""
    in_chain: Literal["", "if said", "always"] = ""
    """When the chain keeps it, so that the chain alone says what was asked."""
    unsaid: Any = None
    """What counts as not said: the default, which the IR leaves out."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What a node that halts returns: what it waits for, and for how long.

    Answered, the node's output is the answer. If the time is over first, it is the default, or the node
    fails with `WaitTimeout`.
    """

    tells: ClassVar[str] = ""
    """An occasion of which the checkpoint that opens it tells."""
    kind: str = "custom"
    context: Annotated[Any, Argument(names_value=True, in_row=True, in_chain="if said")] = None
    """Shown to the person or system that answers."""
    prompt: Annotated[str, Argument(schema=TEXT, in_row=True, in_chain="if said")] = ""
    options: Annotated[
        Sequence[Any] | None, Argument(names_value=True, is_list=True, in_row=True, in_chain="if said")
    ] = None
    """The answers to choose from."""
    spellings: Annotated[Mapping[str, Any] | None, Argument(in_row=True)] = None
    """Other ways to say an option, in lower case: `{"y": "Yes"}`."""
    payload: Annotated[Any, Argument(names_value=True, in_chain="if said")] = None
    """Handed on by a timer."""
    notify: Annotated[
        str | Sequence[str] | None, Argument(schema=NAMES, is_list=True, in_row=True, in_chain="if said")
    ] = None
    """Aliases of the host's notifiers."""
    remind: Annotated[Span | None, Argument(read=span_of)] = None
    """How long after it was opened, and then again, they are told once more."""
    escalate: Annotated[Escalation | None, Argument(read=escalations_of)] = None
    single_use: Annotated[bool, Argument(schema=FLAG, in_chain="always")] = True
    default: Annotated[Any, Argument(in_row=True, in_chain="if said")] = NO_DEFAULT
    timeout: Annotated[Span | None, Argument(names_value=True, read=span_of)] = None
    until: Annotated[datetime | str | None, Argument(names_value=True, read=moment_of)] = None
    """When the time is over, in place of `timeout`."""
    scheduler: Annotated[str, Argument(schema=TEXT)] = ""
    """An alias of the host's schedulers; empty for the store's own."""
    token_ttl: Annotated[Span | None, Argument(read=span_of)] = None
    signal: Annotated[str, Argument(schema=TEXT, in_row=True, in_chain="if said")] = ""
    """The name of the signal that is waited for."""
    event: Annotated[str, Argument(schema=TEXT, in_row=True, in_chain="if said")] = ""
    """The name of the event that is waited for."""
    match: Annotated[Mapping[str, Any] | None, Argument(in_row=True, in_chain="if said")] = None
    """What fields of the event must be."""
    approvers: Annotated[
        Sequence[str] | None, Argument(names_value=True, is_list=True, in_chain="if said")
    ] = None
    """The names of those who may decide an approval; anyone if there are none."""
    quorum: Annotated[int, Argument(schema=NUMBER, in_chain="if said")] = 1
    """How many must approve; who rejects, does so alone."""
    not_by_starter: Annotated[bool, Argument(schema=FLAG, in_chain="if said")] = False
    """True if it is not for who started the run."""

    @property
    def notified(self) -> tuple[str, ...]:
        """The aliases of those who are told."""
        if self.notify is None:
            return ()
        return (self.notify,) if isinstance(self.notify, str) else tuple(self.notify)

    @property
    def is_voted(self) -> bool:
        """True of an approval that keeps count of who says what."""
        return self.approvers is not None or self.quorum != 1 or self.not_by_starter

    @property
    def has_default(self) -> bool:
        return not is_unsaid("default", self.default)

    def said(self, names: Iterable[str]) -> dict[str, Any]:
        """Return these arguments as they are kept, without those that were not said."""
        given = {name: getattr(self, name) for name in names} | {"notify": self.notified or None}
        return {
            name: list(given[name]) if ARGUMENTS[name].is_list else given[name]
            for name in names
            if ARGUMENTS[name].in_chain == "always"
            or not (is_unsaid(name, given[name]) or (given[name] is None and name != "default"))
        }


def _arguments() -> Iterator[tuple[str, Argument]]:
    for field in fields(Wait):
        for about in getattr(field.type, "__metadata__", ()):
            yield field.name, msgspec.structs.replace(about, unsaid=field.default)
    yield "duration", Argument(names_value=True, read=span_of)


ARGUMENTS: Final[Mapping[str, Argument]] = dict(_arguments())
"""By name; a timer calls its `timeout` a duration."""
IN_ROW: Final = tuple(name for name, about in ARGUMENTS.items() if about.in_row)
IN_CHAIN: Final = tuple(name for name, about in ARGUMENTS.items() if about.in_chain)
OPTIONS: Final = ("name", "output", "kind", "answer_type", *(a for a in ARGUMENTS if a != "spellings"))
"""What the factories of `wait` take; other spellings are for the waits that front ends make."""


VOTED: Final = ("approvers", "quorum", "not_by_starter")
"""Those that make an approval one that keeps count of who says what."""


def is_unsaid(name: str, given: Any) -> bool:
    """True if an argument is no more than its default."""
    unsaid = ARGUMENTS[name].unsaid
    return type(given) is type(unsaid) and bool(given == unsaid)


def answer_hint(returns: Any, answer_type: Any) -> Any:
    """Return the hint of what a node writes that returns this: of one that only waits, that of the answer."""
    if returns is not Wait:
        return returns
    return UNKNOWN if answer_type is None else answer_type
