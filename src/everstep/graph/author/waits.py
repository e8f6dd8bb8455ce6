"""Nodes that halt: timers, approvals, callbacks, questions, and what a halt node of your own returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from everstep.errors import BadRequest, TimerAmbiguous, TimerUnset
from everstep.graph.author.node import Node, Param
from everstep.graph.author.wait_options import ARGUMENTS, NO_DEFAULT, Escalation, Wait, is_unsaid
from everstep.graph.check.hints import UNKNOWN
from everstep.model.acts import LONGEST_NAME as LONGEST_BY
from everstep.model.acts import act_of, likeness
from everstep.model.durations import Span, is_span
from everstep.model.enums import Determinism, Effects
from everstep.model.outputs import ApprovalOutput, CallbackOutput, TimerOutput
from everstep.model.waits import EVENT_KIND, SIGNAL_KIND

MATCH: Final = "match."
"""What the arguments of a wait for an event begin with that say what its fields must be."""
QuestionKind = Literal["yes_no", "choice", "text", "confirm"]


class Ref(NamedTuple):
    """A value computed earlier, by its name."""

    name: str


@dataclass(frozen=True)
class Text:
    """Something meant as it is written."""

    value: Any = field()


def value(name: str) -> Any:
    """Name a value computed earlier, for any argument of a halt node."""
    return Ref(name)


def literal(value: Any) -> Any:
    """Mean a text as it is written, where an identifier would name a value."""
    return Text(value)


class WaitNode(Node):
    """A node whose every visit waits."""

    is_built_in = True

    def __init__(
        self,
        name: str,
        identifier: str,
        kind: str,
        arguments: Mapping[str, Any],
        *,
        output: str | None,
        answer_type: Any,
        returns: Any,
        effects: Effects = Effects.READ_ONLY,
        idempotency_key: str | None = None,
        requires: Iterable[str] = (),
    ) -> None:
        refs = {a: v.name for a, v in arguments.items() if isinstance(v, Ref)}
        super().__init__(
            self._ask,
            name=_name(name),
            output=output or name,
            inputs=list(refs) or None,
            effects=effects,
            determinism=Determinism.NONDETERMINISTIC,
            idempotency_key=idempotency_key,
            halts=True,
            requires=requires,
            answer_type=answer_type,
        )
        self.identifier = identifier
        self.kind = kind
        self.arguments = {a: v for a, v in arguments.items() if not isinstance(v, Ref)}
        self.params = tuple([Param(a, source, True, UNKNOWN) for a, source in refs.items()])
        self.returns = returns
        self.schedulers = _aliases(self.arguments.get("scheduler"))
        escalated = self.arguments.get("escalate") or ()
        self.notifiers = (
            *_aliases(self.arguments.get("notify")),
            *(alias for _, aliases in escalated for alias in aliases),
        )
        if "scheduler" in refs or "notify" in refs:
            raise BadRequest(
                f"{name!r}: a scheduler and a notifier are named when the flow is built.",
                fix="Give their alias.",
            )

    # It is known what its function is. To look would take most of the time that it takes to make a wait, and
    # one in the middle of a node is made again each time its node is entered.

    def _look_at(self, fn: object) -> None:
        self.streams = self.is_async = False

    def _read(self, fn: object, inputs: tuple[str, ...]) -> None:
        self.context_param, self.params, self.oddities, self.defaults = None, (), (), {}

    def _called(self, name: str) -> tuple[str, ...]:
        # The author of context="order" knows of no parameter, only of the value.
        found = tuple(p.name for p in self.params if p.source == name)
        return found if found and all(p.name != name for p in self.params) else (name,)

    def asked(self) -> Wait:
        """Return what is asked for inside another node, where a name stands for nothing but itself."""
        if not self.params:
            return self._ask()
        return self._ask(**{p.name: p.source for p in self.params})

    def _ask(self, **given: Any) -> Wait:
        arguments = {**self.arguments, **given}
        if self.kind == "timer":
            arguments["timeout"] = arguments.pop("duration", None)
            _check_times(self.name, arguments["timeout"], arguments.get("until"))
        if self.kind == "choice":
            check_options(self.name, arguments.get("options"))
            _check_default(self.name, arguments.get("default", NO_DEFAULT), arguments["options"])
        if self.kind == EVENT_KIND:
            match = {a: arguments.pop(a) for a in list(arguments) if a.startswith(MATCH)}
            arguments["match"] = {a.removeprefix(MATCH): v for a, v in match.items()} or None
        return Wait(kind=self.kind, **{a: v for a, v in arguments.items() if a != "duration"})


def timer(
    name: str,
    *,
    duration: Span | None = None,
    until: datetime | str | None = None,
    payload: Any = None,
    scheduler: str | None = None,
    output: str | None = None,
) -> WaitNode:
    """Return a node that waits for a span of time, or until a moment, and hands `payload` on.

    It writes a `TimerOutput`. A moment in the past fires at once.
    """
    _check_times(name, duration, until)
    arguments = _arguments(name, locals())
    return WaitNode(
        name,
        "std.timer.wait",
        "timer",
        arguments,
        output=output,
        answer_type=None,
        returns=TimerOutput,
        requires=("resume_scheduler",),
    )


def approval(
    name: str,
    *,
    context: Any = None,
    prompt: str = "",
    notify: str | Sequence[str] | None = None,
    remind: Span | None = None,
    escalate: Escalation | None = None,
    timeout: Span | None = None,
    scheduler: str | None = None,
    token_ttl: Span | None = None,
    single_use: bool = True,
    approvers: Sequence[str] | str | None = None,
    quorum: int = 1,
    not_by_starter: bool = False,
    output: str | None = None,
) -> WaitNode:
    """Return a node that waits for an approval or a rejection; a time-out rejects.

    It writes an `ApprovalOutput`. With `approvers`, only those of these names decide; with a `quorum`, so
    many must approve, each once, and one who rejects does so for all; with `not_by_starter`, it is not
    for who started the run or forked it.
    """
    arguments = _arguments(name, locals())
    _check_reminders(name, arguments)
    check_voters(name, arguments.get("approvers"), quorum, not_by_starter)
    return WaitNode(
        name,
        "std.hitl.approval",
        "approval",
        arguments,
        output=output,
        answer_type=None,
        returns=ApprovalOutput,
        effects=Effects.EFFECTFUL,
        idempotency_key="auto",
        requires=_needs(timeout),
    )


def callback(
    name: str,
    *,
    timeout: Span | None = None,
    context: Any = None,
    default: Any = NO_DEFAULT,
    answer_type: Any = None,
    notify: str | Sequence[str] | None = None,
    remind: Span | None = None,
    escalate: Escalation | None = None,
    scheduler: str | None = None,
    token_ttl: Span | None = None,
    single_use: bool = True,
    output: str | None = None,
) -> WaitNode:
    """Return a node that waits for another system to call back with a payload.

    It writes a `CallbackOutput`. A time-out fails the node with `WaitTimeout`, or gives the default payload.
    """
    arguments = _arguments(name, locals())
    _check_reminders(name, arguments)
    return WaitNode(
        name,
        "std.callback.wait",
        "callback",
        arguments,
        output=output,
        answer_type=answer_type,
        returns=CallbackOutput,
        requires=_needs(timeout),
    )


def signal(
    name: str,
    *,
    signal: str | None = None,
    answer_type: Any = None,
    default: Any = NO_DEFAULT,
    timeout: Span | None = None,
    scheduler: str | None = None,
    output: str | None = None,
) -> WaitNode:
    """Return a node that waits for a signal of this name, sent to its run with `host.send`.

    It writes the value that was sent. One that was sent before counts: the oldest that was not taken. A
    time-out fails the node with `WaitTimeout`, or gives the default.
    """
    signal = signal or name
    arguments = _arguments(name, locals())
    return WaitNode(
        name,
        "std.signal.wait",
        SIGNAL_KIND,
        arguments,
        output=output,
        answer_type=answer_type,
        returns=answer_type if answer_type is not None else UNKNOWN,
        requires=_needs(timeout)[1:],
    )


def event(
    name: str,
    *,
    event: str | None = None,
    match: Mapping[str, Any] | None = None,
    answer_type: Any = None,
    default: Any = NO_DEFAULT,
    timeout: Span | None = None,
    scheduler: str | None = None,
    output: str | None = None,
) -> WaitNode:
    """Return a node that waits for an event of this name, published with `host.publish`.

    `match` says which: a field of the event, and the value of the flow that it must equal. It writes the
    event's value. One that was published before counts as long as it is kept. A time-out fails the node with
    `WaitTimeout`, or gives the default.
    """
    event = event or name
    arguments = _arguments(name, {k: v for k, v in locals().items() if k != "match"})
    if not isinstance(match, Mapping | None):
        raise BadRequest(
            f"{name!r} matches {match!r:.60}.",
            fix='Give fields of the event and the values they must equal: match={"order": "order_id"}.',
        )
    for field_name, v in (match or {}).items():
        if not isinstance(field_name, str) or not field_name:
            raise BadRequest(f"{name!r} matches the field {field_name!r}.", fix="Name a field of the event.")
        plain = v.value if isinstance(v, Text) else v
        is_number = isinstance(plain, int) or (isinstance(plain, float) and isfinite(plain))
        if not is_number and not isinstance(plain, str | Ref):
            raise BadRequest(
                f"{name!r} matches {field_name!r} with {v!r:.60}.",
                fix="Give the name of a value of the flow, or text, a number or a bool.",
            )
        is_name = isinstance(v, str) and v.isidentifier()
        arguments[MATCH + field_name] = Ref(v) if is_name else v if isinstance(v, Ref) else _bare(v)
    return WaitNode(
        name,
        "std.event.wait",
        EVENT_KIND,
        arguments,
        output=output,
        answer_type=answer_type,
        returns=answer_type if answer_type is not None else UNKNOWN,
        requires=_needs(timeout)[1:],
    )


def question(
    name: str,
    *,
    kind: QuestionKind | None = None,
    prompt: str = "",
    options: Sequence[Any] | str | None = None,
    answer_type: Any = None,
    default: Any = NO_DEFAULT,
    timeout: Span | None = None,
    context: Any = None,
    notify: str | Sequence[str] | None = None,
    remind: Span | None = None,
    escalate: Escalation | None = None,
    scheduler: str | None = None,
    token_ttl: Span | None = None,
    single_use: bool = True,
    output: str | None = None,
) -> WaitNode:
    """Return a node that asks a person: yes or no, one of some options, a text, or a confirmation.

    Without a `kind`, options make it a choice, so does a `Literal` as `answer_type`, another type makes it a
    text, and otherwise it is a yes or no. It writes the answer itself. A time-out fails the node with
    `WaitTimeout`, or gives the default answer.
    """
    if get_origin(answer_type) is Literal and options is None and kind in (None, "choice"):
        options = list(get_args(answer_type))
    if kind is None:
        has_type = answer_type is not None and answer_type is not bool
        kind = "choice" if options is not None else "text" if has_type else "yes_no"
    if kind not in ("yes_no", "choice", "text", "confirm"):
        raise BadRequest(f"{name!r}: kind is {kind!r}.", fix="Use yes_no, choice, text or confirm.")
    if (options is not None) != (kind == "choice") or (isinstance(options, Sequence) and not options):
        raise BadRequest(f"{name!r}: options are {options!r}.", fix="Give them to a choice, and only there.")
    arguments = _arguments(name, locals())
    _check_reminders(name, arguments)
    if "options" in arguments and not isinstance(arguments["options"], Ref):
        check_options(name, arguments["options"])
        _check_default(name, default, arguments["options"])
    plain: dict[str, Any] = {"yes_no": bool, "confirm": bool, "text": str}
    returns = answer_type if answer_type is not None else plain.get(kind, UNKNOWN)
    return WaitNode(
        name,
        "std.question",
        kind,
        arguments,
        output=output,
        answer_type=answer_type if answer_type is not None else plain.get(kind),
        returns=returns,
        requires=_needs(timeout),
    )


def check_voters(name: str, approvers: Any, quorum: object, not_by_starter: object = False) -> None:
    """Raise unless an approval can be decided: by at least one name, each said once, enough of them."""
    if type(not_by_starter) is not bool:
        raise BadRequest(f"{name!r}: not_by_starter is {not_by_starter!r:.60}.", fix="Give True or False.")
    if type(quorum) is not int or quorum < 1:
        raise BadRequest(f"{name!r}: quorum is {quorum!r:.60}.", fix="Say how many must approve: 1 or more.")
    if approvers is None or isinstance(approvers, Ref):
        return
    if isinstance(approvers, str | bytes) or not isinstance(approvers, Sequence) or not approvers:
        raise BadRequest(
            f"{name!r}: approvers are {repr(approvers)[:100]}.", fix='Give names: ["ann", "bob"].'
        )
    for k, one in enumerate(approvers):
        if not isinstance(one, str) or not one or one != one.strip() or len(one) > LONGEST_BY:
            fix = f"Give a name of 1 to {LONGEST_BY} characters, without spaces around it."
            raise BadRequest(f"{name!r}: an approver is {one!r:.60}.", fix=fix)
        if likeness(one) in map(likeness, approvers[:k]):
            raise BadRequest(f"{name!r}: the approver {one!r:.60} is there twice.", fix="Name each once.")
        act_of(one, None)  # what is no name cannot vote
    if quorum > len(approvers):
        raise BadRequest(
            f"{name!r}: {quorum} must approve, and there are {len(approvers)} who may.",
            fix="Name more approvers, or lower the quorum.",
        )


def check_options(name: str, options: Any) -> None:
    """Raise unless these are answers to choose from: at least one, and each of them once."""
    if isinstance(options, str | bytes) or not isinstance(options, Sequence) or not options:
        raise BadRequest(
            f"{name!r}: options are {repr(options)[:100]}.", fix="Give a list with at least one answer."
        )
    seen: set[tuple[type, str]] = set()
    for option in options:
        mark = (type(option), repr(option))
        if mark in seen:
            raise BadRequest(f"{name!r}: the option {mark[1][:100]} is there twice.", fix="Give each once.")
        seen.add(mark)


def _check_default(name: str, default: Any, options: Sequence[Any]) -> None:
    if default is None or isinstance(default, Ref) or is_unsaid("default", default):
        return
    if _bare(default) not in options:
        raise BadRequest(f"{name!r}: the default {default!r} is no option.", fix=f"Use one of {options!r}.")


def _check_times(name: str, duration: Any, until: Any) -> None:
    if duration is not None and until is not None:
        raise TimerAmbiguous(f"timer {name!r} has both `duration` and `until`.", fix="Give one of them.")
    if duration is None and until is None:
        raise TimerUnset(f"timer {name!r} has neither `duration` nor `until`.", fix="Give one of them.")


def _arguments(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with names of values as `Ref`, and times checked as far as they are known."""
    found: dict[str, Any] = {}
    for argument, v in given.items():
        about = ARGUMENTS.get(argument)
        if about is None:
            continue
        v = about.unsaid if v is None and argument != "default" else v
        if v is None and argument != "default":
            continue
        is_name = about.names_value and isinstance(v, str) and v.isidentifier() and not is_span(v)
        v = Ref(v) if is_name else _bare(v)
        if about.read is not None and not isinstance(v, Ref):
            v = about.read(v, f"{argument} of {name!r}")
        found[argument] = v
    return found


def _check_reminders(name: str, arguments: Mapping[str, Any]) -> None:
    if arguments.get("remind") is not None and not arguments.get("notify"):
        raise BadRequest(f"{name!r} has no one to remind.", fix='Say who is told of it: notify="boss".')
    spans = [arguments.get("remind"), *(span for span, _ in arguments.get("escalate") or ())]
    if any(span is not None and span <= timedelta(0) for span in spans):
        raise BadRequest(f"{name!r} reminds or escalates at once.", fix='Give a span such as "1d".')


def _bare(v: Any) -> Any:
    return v.value if isinstance(v, Text) else v


def _needs(timeout: object) -> tuple[str, ...]:
    return ("resume_signal_source", *(("resume_scheduler",) if timeout is not None else ()))


def _aliases(given: Any) -> tuple[str, ...]:
    if not given:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BadRequest(f"a halt node is called {name!r}.", fix="Give it a name.")
    return name
