"""Every option and every place: what becomes of an option there.

The checks of a flow and the context of a node ask this table; the page of the docs and the matrix of the
tests are made from it. An option works in a place as it does in a plain flow, or it is refused there: when
the flow is built, or, if only the call can know, at the call. Nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from everstep.errors import NotInAtomic
from everstep.graph.author.wait_options import OPTIONS as WAIT_OPTIONS
from everstep.model.enums import Persist


class Place(StrEnum):
    """Where something stands that has options."""

    PLAIN = "plain"
    """In a flow that is run by itself."""
    NESTED = "nested"
    """In a flow that is a node of another, its steps recorded one by one."""
    ATOMIC = "atomic"
    """In a flow that is one step of another."""
    ITEM = "item"
    """In an item of a map."""
    JOIN = "join"
    """In a member of a group, or behind the join of one."""
    LOOP = "loop"
    BRANCH = "branch"
    """In one of several branches of a fork, which a front end draws."""


class OptionVerdict(StrEnum):
    """What becomes of an option."""

    WORKS = "works"
    AT_BUILD = "refused when the flow is built"
    AT_CALL = "refused at the call"


class Of(StrEnum):
    """Whose option it is."""

    NODE = "node"
    GATE = "gate"
    FLOW = "flow"
    AS_NODE = "as_node"
    MAP = "map_over"
    GROUP = "parallel"
    WAIT = "wait"
    BREAKER = "Breaker"
    CONTEXT = "Context"


class Refusal(msgspec.Struct, frozen=True):
    """Why an option is refused in a place, and what to do instead."""

    verdict: OptionVerdict
    code: str
    does: str
    """What declaring it says, as in "'pay' is expensive"."""
    because: str
    fix: str


class Option(msgspec.Struct, frozen=True):
    """One option, or one way to use it, and the places where it is refused."""

    of: Of
    name: str
    """As the signature has it."""
    form: str = ""
    """Which use of it is meant, if they differ."""
    refused: Mapping[Place, Refusal] = {}
    said: Callable[[Any], bool] = lambda _: False
    """Says whether a node declares it, or a flow `Inside` another; needed where a flow is refused for it."""
    note: str = ""
    """What there is to know where it works."""

    def at(self, place: Place) -> OptionVerdict:
        """Return what becomes of it in a place."""
        refusal = self.refused.get(place)
        return OptionVerdict.WORKS if refusal is None else refusal.verdict


class Inside(msgspec.Struct, frozen=True):
    """A flow that is a node of another."""

    flow: Any
    outer: Any


NOT_IN_ATOMIC: Final = "flow.not_in_atomic"
INNER: Final = tuple(place for place in Place if place is not Place.PLAIN)
"""Where a flow is inside another."""
_OUT = "Use durability='nested', or move the node out of the atomic flow."
_UNRECORDED = "no call inside it is recorded before it is made"


def _atomic(does: str, because: str, fix: str = _OUT, code: str = NOT_IN_ATOMIC) -> dict[Place, Refusal]:
    return {Place.ATOMIC: Refusal(OptionVerdict.AT_BUILD, code, does, because, fix)}


def _at_call(does: str, because: str, fix: str) -> dict[Place, Refusal]:
    return {Place.ATOMIC: Refusal(OptionVerdict.AT_CALL, NOT_IN_ATOMIC, does, because, fix)}


def _inner(code: str, does: str, because: str, fix: str) -> dict[Place, Refusal]:
    return dict.fromkeys(INNER, Refusal(OptionVerdict.AT_BUILD, code, does, because, fix))


def _nowhere(does: str, because: str, fix: str, code: str = "flow.idle_option") -> dict[Place, Refusal]:
    return dict.fromkeys(Place, Refusal(OptionVerdict.AT_BUILD, code, does, because, fix))


def _named(of: Of, *names: str) -> Iterator[Option]:
    """Yield options of which there is nothing to say: they work everywhere."""
    return (Option(of, name) for name in names)


_HALTS = _atomic("may halt", "one step has no place to wait", code="flow.wait_in_atomic")
_OWN_KEY = _atomic(
    "has an idempotency key of its own making",
    _UNRECORDED,
    """Use idempotency_key="auto" or durability='nested', or move the node out of the atomic flow.""",
)

_NODE: Final = (
    *_named(Of.NODE, "name", "output", "inputs", "effects", "determinism"),
    Option(Of.NODE, "idempotency_key", '"auto"'),
    Option(
        Of.NODE,
        "idempotency_key",
        "a template",
        _OWN_KEY,
        lambda n: isinstance(n.idempotency_key, str) and n.idempotency_key != "auto",
    ),
    Option(Of.NODE, "idempotency_key", "a function", _OWN_KEY, lambda n: callable(n.idempotency_key)),
    *_named(Of.NODE, "retry", "timeout", "max_visits"),
    Option(
        Of.NODE,
        "limit",
        "",
        _atomic("has a limit", "it is called in one go with the rest"),
        lambda n: n.limit is not None,
    ),
    Option(Of.NODE, "persist", '"inline", "ref"', note="an atomic flow keeps only what it lifts, and so"),
    Option(
        Of.NODE,
        "persist",
        '"inline", "ref" without outputs',
        _nowhere("says how its outputs are kept", "it has none", "Drop persist=, or name an output."),
        lambda n: n.persist in (Persist.INLINE, Persist.REF) and not n.outputs,
    ),
    Option(
        Of.NODE,
        "persist",
        '"no"',
        note="not for what enters or leaves a nested flow or a map, nor for what the channel may fill",
    ),
    Option(
        Of.NODE,
        "skip_on_resume",
        "",
        _atomic("is to be skipped on resume", "nothing is kept right after it"),
        lambda n: n.skip_on_resume is True,
    ),
    *_named(Of.NODE, "requires", "identifier"),
    Option(Of.NODE, "halts", "", _HALTS, lambda n: n.halts),
    Option(Of.NODE, "answer_type", "", _HALTS, lambda n: n.answer_type is not None),
    Option(
        Of.NODE,
        "answer_type",
        "without halts",
        _nowhere(
            "has an answer_type", "it does not halt, so there is no answer", "Say halts=True, or drop it."
        ),
        lambda n: n.answer_type is not None and not n.halts,
    ),
    Option(
        Of.NODE,
        "on_unknown",
        "",
        _atomic('has on_unknown="stop"', _UNRECORDED),
        lambda n: n.on_unknown != "rerun",
    ),
    Option(Of.NODE, "probe", "", _atomic("has a probe", _UNRECORDED), lambda n: n.probe is not None),
    Option(
        Of.NODE,
        "undo",
        "",
        _atomic(
            "has an undo",
            "it is one step, which is undone as a whole",
            "Give the undo to the flow: as_node(durability='atomic', undo=...).",
        ),
        lambda n: n.undo is not None,
    ),
    Option(Of.NODE, "checkpointable", note="false and `strong` only in atomic flows that do not lift it"),
    Option(Of.NODE, "replayable", note="an atomic flow begins anew, and its streams with it"),
    Option(Of.NODE, "reason"),
    Option(
        Of.NODE,
        "keep_every",
        "",
        _atomic("has keep_every", "nothing inside it is kept on the way"),
        lambda n: n.keep_every is not None,
    ),
    Option(
        Of.NODE,
        "keep_every",
        "of no stream that is kept on the way",
        _nowhere(
            "has keep_every",
            "it is no stream that is kept on the way",
            "Only a generator with replayable=True, and without persist='no', is. Drop keep_every=.",
        ),
        lambda n: n.keep_every is not None and not n.goes_on,
    ),
    Option(
        Of.NODE,
        "expensive",
        "",
        _atomic("is expensive", "nothing is kept right after it"),
        lambda n: n.expensive,
    ),
    Option(
        Of.NODE,
        "destructive",
        "",
        _atomic("is destructive", "nothing is kept before it", code="flow.destructive_in_atomic"),
        lambda n: n.destructive,
    ),
)

_GATE: Final = (
    *_named(Of.GATE, "targets", "when_true", "when_false", "multi"),
    *(replace(o, of=Of.GATE) for o in _NODE if o.name not in ("output", "persist", "keep_every")),
    Option(
        Of.GATE,
        "output",
        "",
        _nowhere("has outputs", "gates only choose", "Drop output=.", "flow.gate_output"),
        lambda n: bool(n.outputs),
    ),
    Option(
        Of.GATE,
        "persist",
        "",
        _nowhere("says how its outputs are kept", "gates only choose", "Drop persist=."),
        lambda n: n.persist is not Persist.AUTO,
    ),
    Option(
        Of.GATE,
        "keep_every",
        "",
        _nowhere("has keep_every", "gates only choose", "Drop keep_every=."),
        lambda n: n.keep_every is not None,
    ),
)

_RUN = "that is for whole runs"
_OUTER = "Declare it on the flow that is run."


def _per_run(name: str) -> Option:
    """Return an option of a flow that holds for a run as a whole."""
    refused = _inner("flow.inner_option", f"has {name}", _RUN, _OUTER)
    return Option(Of.FLOW, name, "", refused, lambda it: getattr(it.flow, name) is not None)


def _whole_run(name: str) -> Option:
    refused = _inner("flow.inner_option", f"has {name}", _RUN, _OUTER)
    return Option(Of.FLOW, name, "", refused, lambda it: bool(getattr(it.flow, name)))


def _guard(name: str) -> Option:
    fix = "Declare them on the flow that is run: they hold for everything inside it."
    refused = _inner("flow.inner_guards", f"has {name}", _RUN, fix)
    return Option(Of.FLOW, name, "", refused, lambda it: bool(getattr(it.flow, name)))


_MORE = _inner(
    "flow.inner_durability",
    "asks for another durability than the flow around it has",
    "a run is kept in one way",
    "Give the flow around it that durability, or make this one atomic: as_node(durability='atomic').",
)
del _MORE[Place.ATOMIC]

_FLOW: Final = (
    *_named(Of.FLOW, "name", "nodes", "entry", "tasks"),
    Option(Of.FLOW, "channel", note="inside, the keys of all flows around hold, too"),
    Option(Of.FLOW, "durability", "no more than the flow around it has"),
    Option(
        Of.FLOW,
        "durability",
        "more than that",
        _MORE,
        lambda it: not it.outer.durability.meets(it.flow.durability),
        note="`atomic` takes its place",
    ),
    Option(
        Of.FLOW,
        "durability",
        "its leases, times and limits",
        _inner("flow.inner_option", "has a durability with leases, times or limits of its own", _RUN, _OUTER),
        lambda it: not it.outer.durability.shares_limits(it.flow.durability),
    ),
    Option(Of.FLOW, "version", note="a run records that of the flow that is run"),
    *_named(Of.FLOW, "max_steps", "max_visits", "max_concurrency"),
    *map(_per_run, ("max_running", "max_per_group", "auto_checkpoint", "retention")),
    *map(_whole_run, ("limits", "streams", "logs", "pin_version", "plain_attributes", "notify")),
    Option(
        Of.FLOW,
        "inbox",
        "",
        _inner("flow.inner_option", "has an inbox", "signals are sent to a run", "Declare it on that flow."),
        lambda it: bool(it.flow.inbox),
    ),
    Option(
        Of.FLOW,
        "undo",
        "",
        _inner("flow.inner_option", "says when it is undone", _RUN, _OUTER),
        lambda it: it.flow.undo != "both",
    ),
    Option(
        Of.FLOW,
        "deadline",
        "",
        _inner(
            "flow.inner_option", "has a deadline", _RUN, "Declare it on that flow, or give a node a timeout."
        ),
        lambda it: it.flow.deadline is not None,
    ),
    *_named(Of.FLOW, "registry", "profiles", "rules", "starts", "schedules"),
    Option(
        Of.FLOW,
        "migrations",
        "",
        _inner(
            "flow.inner_option", "has migrations", _RUN, "Declare them on the flow that is run, with paths."
        ),
        lambda it: bool(it.flow.migrations),
    ),
    *map(_guard, ("budgets", "breakers")),
)

_AS_NODE: Final = (
    *_named(Of.AS_NODE, "name", "durability", "undo"),
    Option(Of.AS_NODE, "select", "what is lifted"),
    Option(
        Of.AS_NODE,
        "select",
        "what is not lifted",
        _atomic(
            "selects what it does not lift",
            "nothing else of it is kept",
            "Lift it too, or leave it out of select=.",
        ),
        lambda n: bool(n.selects_unlifted),
    ),
)
_MAP: Final = (
    *_named(Of.MAP, "params", "mode"),
    Option(Of.MAP, "on_error", note='an atomic flow begins anew, also after "finish"'),
    Option(Of.MAP, "max_concurrency"),
)
_GROUP: Final = tuple(_named(Of.GROUP, "members", "policy", "join", "name"))

_WAIT: Final = tuple(Option(Of.WAIT, name, "", _HALTS, lambda n: n.halts) for name in WAIT_OPTIONS)

_BREAKER: Final = (
    *_named(Of.BREAKER, "name", "failures", "error_rate", "window", "cost", "duration", "changed_decision"),
    *_named(Of.BREAKER, "trips", "cooldown", "manual", "shared", "notify"),
    Option(
        Of.BREAKER,
        "nodes",
        "",
        _atomic(
            "guards",
            "it is inside an atomic flow, which is stopped before it starts, not inside",
            "Guard the flow, or make it nested.",
        ),
    ),
)

_ONE_STEP = "it is one step, and nothing inside it is recorded"
_BEHIND = "Make the flow nested, or do it in a node behind it."
_CONTEXT: Final = (
    *_named(Of.CONTEXT, "run_id", "node", "path", "visit", "attempt", "idempotency_key", "is_resumed"),
    *_named(Of.CONTEXT, "breakers", "emit", "heartbeat", "cancel", "terminate", "next_task"),
    Option(Of.CONTEXT, "next_iteration"),
    Option(Of.CONTEXT, "cursor", note="none in an atomic flow, which begins anew"),
    Option(Of.CONTEXT, "channel", "to read"),
    Option(Of.CONTEXT, "keeps_changes", note="in an atomic flow there are none"),
    Option(
        Of.CONTEXT,
        "channel",
        "to change",
        _at_call(
            "changed the channel",
            "what it did to the channel halfway could not be undone",
            "Make the flow nested, or return the value and change the channel after it.",
        ),
    ),
    Option(Of.CONTEXT, "checkpoint", "", _at_call("asked for a checkpoint", _ONE_STEP, _BEHIND)),
    Option(Of.CONTEXT, "spend", "", _at_call("counted what it spent", _ONE_STEP, _BEHIND)),
    Option(Of.CONTEXT, "set_attribute", "", _at_call("set an attribute", _ONE_STEP, _BEHIND)),
    Option(Of.CONTEXT, "step", "", _at_call("made a durable call", _ONE_STEP, _BEHIND)),
    Option(Of.CONTEXT, "wait", "", _HALTS, lambda n: n.halts),
    Option(Of.CONTEXT, "sleep", "", _HALTS, lambda n: n.halts),
    Option(Of.CONTEXT, "result", "", _HALTS, lambda n: n.halts),
    Option(Of.CONTEXT, "start", "", _at_call("started a run", _ONE_STEP, _BEHIND)),
    Option(Of.CONTEXT, "inbox", "", _at_call("took signals", _ONE_STEP, _BEHIND)),
    Option(Of.CONTEXT, "now", "", _at_call("asked for the time", _ONE_STEP, _BEHIND)),
    Option(Of.CONTEXT, "uuid", "", _at_call("asked for a UUID", _ONE_STEP, _BEHIND)),
    Option(Of.CONTEXT, "random", "", _at_call("asked for a random number", _ONE_STEP, _BEHIND)),
    Option(Of.CONTEXT, "outcome", "", _at_call("said how it ended", _ONE_STEP, _BEHIND)),
)

TABLE: Final[tuple[Option, ...]] = (
    *_NODE,
    *_GATE,
    *_FLOW,
    *_AS_NODE,
    *_MAP,
    *_GROUP,
    *_WAIT,
    *_BREAKER,
    *_CONTEXT,
)


def not_here(path: str, refusal: Refusal) -> NotInAtomic:
    """Return what a node is told that asks for something where it cannot be had."""
    return NotInAtomic(
        f"node {path!r} {refusal.does} inside an atomic flow: {refusal.because}.", fix=refusal.fix
    )


@cache
def refused_at_build(of: Of, place: Place) -> tuple[tuple[Option, Refusal], ...]:
    """Return the options that a flow may not have in a place, with why."""
    return tuple(
        (option, option.refused[place])
        for option in TABLE
        if option.of is of and option.at(place) is OptionVerdict.AT_BUILD
    )


@cache
def refused_at_call(place: Place) -> Mapping[str, Refusal]:
    """Return what a context refuses in a place, by name."""
    return {
        option.name: option.refused[place]
        for option in TABLE
        if option.of is Of.CONTEXT and option.at(place) is OptionVerdict.AT_CALL
    }


def refusals(of: Of, place: Place, declared: Any) -> Collection[Refusal]:
    """Return why a node, or a flow inside another, cannot stand in a place; each reason once."""
    found = (refusal for option, refusal in refused_at_build(of, place) if option.said(declared))
    return dict.fromkeys(found)
