"""Limits as people write them: how many runs of a key, or calls of a supplier, at once and in a while.

Apart from the records: most flows have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from everstep.errors import BadRequest
from everstep.model.durations import Span, is_span, span_of, spell
from everstep.model.leases import ALONE, KeyLimit, group_of

MOST_LIMITS: Final = 4
"""Limits that a flow may have."""
MOST_STARTS: Final = 10_000
"""Of so many starts a key the times are kept, each."""
MOST_WEIGHT: Final = 1_000_000_000
"""So much the calls of a supplier may weigh in a span."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}")
_RATE: Final = re.compile(r"\s*([0-9]{1,9})\s*/\s*(.+?)\s*")
_LONGEST_VALUE: Final = 60
KEEPS: Final = ("refuse", "join", "replace", "queue")
"""What becomes of a start whose key another run has."""
_EXAMPLE: Final = 'Write Limit("customer", running=1) or Limit("tenant", rate="100/1m").'


@dataclass(frozen=True, slots=True)
class Limit:
    """How many runs of a key may run at once, or start in a while: `Limit("customer", running=1)`.

    Of a flow the key is the value of the input with the limit's name, or of that which `by` names: each
    customer has room of its own. Of a node it is the limit's name: `Limit("openai", rate="500/1m")` bounds
    the calls of all nodes that have a limit of this name, over flows and workers.
    """

    name: str
    running: int | None = None
    """At once."""
    rate: str | None = None
    """In a while: `"100/1m"`. No span of that length has more."""
    by: str | None = None
    """An input, or something inside it: `"order.customer"`. None for the one with the limit's name."""
    weight: int | str = 1
    """Of a node: what a call counts in `rate`, or the input that says so."""
    plain: bool = False
    """True if the key may be readable in the store though what runs keep is encrypted."""

    def __post_init__(self) -> None:
        what = f"limit {self.name!r:.60}"
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise BadRequest(
                f"a limit is called {self.name!r:.60}.", fix="Use letters, digits, _, -, . and :."
            )
        if self.running is None and self.rate is None:
            raise BadRequest(f"{what} limits nothing.", fix=_EXAMPLE)
        _check_count(self.running, f"{what}: running")
        if self.by is not None and (not isinstance(self.by, str) or not self.by):
            raise BadRequest(f"{what}: by is {self.by!r:.60}.", fix="Name an input.")
        is_named = isinstance(self.weight, str) and self.weight != ""
        if not is_named:
            _check_count(self.weight, f"{what}: weight")
        if not isinstance(self.plain, bool):
            raise BadRequest(f"{what}: plain is {self.plain!r:.60}.", fix="Use True or False.")
        self.per()

    def per(self) -> tuple[int, timedelta] | None:
        """Return how many in which span; none without a rate."""
        if self.rate is None:
            return None
        what, found = f"limit {self.name!r}: rate", None
        if isinstance(self.rate, str):
            found = _RATE.fullmatch(self.rate)
        if found is None:
            raise BadRequest(f"{what} is {self.rate!r:.60}.", fix='Write so many in a span: "100/1m".')
        text = found[2] if is_span(found[2]) else f"1{found[2]}"
        count, span = int(found[1]), span_of(text, what)
        if not 0 < count <= MOST_WEIGHT or span <= timedelta(0):
            raise BadRequest(
                f"{what} is {self.rate!r:.60}.", fix=f'Write 1 to {MOST_WEIGHT:,} in a span: "100/1m".'
            )
        return count, span

    def to_wire(self) -> dict[str, Any]:
        """Return it as the Flow IR says it."""
        per = self.per()
        rate = None if per is None else f"{per[0]}/{spell(per[1])}"
        told = {"running": self.running, "rate": rate, "by": self.by}
        more = {"weight": self.weight} if self.weight != 1 else {}
        return {"name": self.name, **{k: v for k, v in told.items() if v is not None}, **more} | (
            {"plain": True} if self.plain else {}
        )

    @classmethod
    def of_wire(cls, ir: Mapping[str, Any]) -> Limit:
        """Read what `to_wire` wrote."""
        return cls(**{name: ir[name] for name in cls.__dataclass_fields__ if name in ir})


@dataclass(frozen=True, slots=True)
class Singleton:
    """One unfinished run of a key: `Singleton("customer", on_conflict="join")`. One of the limits of a flow.

    The key is the value of the input with this name, or of that which `by` names. `on_conflict` says what
    becomes of a start while another run has the key: it is refused, it joins that run, it replaces it, or it
    is accepted and queues.
    """

    name: str
    on_conflict: str = "refuse"
    """`refuse`: an error that names the run. `join`: that run is what the start gives. `replace`: that run is
    cancelled, and the new one begins once it has ended. `queue`: the new one begins once it has ended."""
    by: str | None = None
    """An input, or something inside it: `"order.customer"`. None for the one with this name."""
    plain: bool = False
    """True if the key may be readable in the store though what runs keep is encrypted."""

    def __post_init__(self) -> None:
        Limit(self.name, running=1, by=self.by, plain=self.plain)  # what holds for those holds here
        if self.on_conflict not in KEEPS:
            known = ", ".join(map(repr, KEEPS))
            raise BadRequest(
                f"singleton {self.name!r}: on_conflict is {self.on_conflict!r:.60}.",
                fix=f"Use one of {known}.",
            )

    @property
    def key(self) -> str:
        """What the name of its key is in the group of a run."""
        return ALONE + self.name

    def to_wire(self) -> dict[str, Any]:
        """Return it as the Flow IR says it."""
        told: dict[str, Any] = {"name": self.name, "on_conflict": self.on_conflict}
        return (
            told | ({"by": self.by} if self.by is not None else {}) | ({"plain": True} if self.plain else {})
        )


@dataclass(frozen=True, slots=True)
class Debounce:
    """Starts of a key in quick succession are one run: `Debounce("customer", "5s")`, a limit of a flow.

    A run begins once so long passed without another start of its key, and has the inputs of the last one. The
    key is the value of the input with this name, or of that which `by` names.
    """

    name: str
    span: Span
    """So long a start waits for another one."""
    most: Span | None = None
    """So long after the first of them the run begins all the same. None for ten times the span."""
    by: str | None = None
    """An input, or something inside it: `"order.customer"`. None for the one with this name."""
    plain: bool = False
    """True if the key may be readable in the store though what runs keep is encrypted."""

    def __post_init__(self) -> None:
        Limit(self.name, running=1, by=self.by, plain=self.plain)  # what holds for those holds here
        span, most = self.spans()
        if not timedelta(0) < span <= most:
            raise BadRequest(
                f"debounce {self.name!r}: the span is {self.span!r:.60}, and most is {self.most!r:.60}.",
                fix='Give a span like "5s", and no shorter one as the most.',
            )

    def spans(self) -> tuple[timedelta, timedelta]:
        """Return how long a start waits for another one, and all of them for the last."""
        span = span_of(self.span, f"debounce {self.name!r}: span")
        return span, span * 10 if self.most is None else span_of(self.most, f"debounce {self.name!r}: most")

    def to_wire(self) -> dict[str, Any]:
        """Return it as the Flow IR says it."""
        span, most = self.spans()
        told: dict[str, Any] = {"name": self.name, "debounce": spell(span), "most": spell(most)}
        told |= {"by": self.by} if self.by is not None else {}
        return told | ({"plain": True} if self.plain else {})


AnyLimit = Limit | Singleton | Debounce
"""What a flow may have among its limits."""


def debounce_of(limits: Iterable[AnyLimit]) -> Debounce | None:
    """Return what makes one run of starts in quick succession, if anything does."""
    return next((limit for limit in limits if isinstance(limit, Debounce)), None)


def rules_of(limits: Iterable[AnyLimit]) -> list[KeyLimit]:
    """Return what stores are told of the limits of a flow; of a debounce they need know nothing."""
    return [rule_of(limit) for limit in limits if not isinstance(limit, Debounce)]


def limit_of_wire(ir: Mapping[str, Any]) -> AnyLimit:
    """Read what `to_wire` of a limit of a flow wrote."""
    if "debounce" in ir:
        said = {name: ir[name] for name in ("name", "most", "by", "plain") if name in ir}
        return Debounce(span=ir["debounce"], **said)
    if "on_conflict" not in ir:
        return Limit.of_wire(ir)
    return Singleton(**{name: ir[name] for name in Singleton.__dataclass_fields__ if name in ir})


def singleton_of(limits: Iterable[AnyLimit]) -> Singleton | None:
    """Return what says that one run of a key is unfinished at a time, if anything does."""
    return next((limit for limit in limits if isinstance(limit, Singleton)), None)


def rule_of(limit: Limit | Singleton) -> KeyLimit:
    """Return what stores are told of a limit."""
    if isinstance(limit, Singleton):
        return KeyLimit(name=limit.key, alone=True)
    starts, span = limit.per() or (None, timedelta())
    return KeyLimit(name=limit.name, running=limit.running, starts=starts, span=span)


def limits_of(flow: str, given: Any) -> tuple[AnyLimit, ...]:
    """Read the limits of a flow."""
    if isinstance(given, (str, Limit, Singleton, Debounce)) or not isinstance(given, Iterable):
        raise BadRequest(f"flow {flow!r}: limits is {given!r:.60}.", fix="Give a list of limits.")
    found = tuple(given)
    for limit in found:
        if isinstance(limit, (Singleton, Debounce)):
            continue
        if not isinstance(limit, Limit):
            raise BadRequest(f"flow {flow!r} has {limit!r:.60} among its limits.", fix=_EXAMPLE)
        if limit.weight != 1:
            raise BadRequest(
                f"flow {flow!r}: limit {limit.name!r} has a weight.", fix="Only calls of nodes have one."
            )
        per = limit.per()
        if per is not None and per[0] > MOST_STARTS:
            raise BadRequest(
                f"flow {flow!r}: limit {limit.name!r} lets {per[0]:,} start in a span.",
                fix=f"Give at most {MOST_STARTS:,}, in a shorter span.",
            )
    if sum(isinstance(limit, Singleton) for limit in found) > 1:
        raise BadRequest(
            f"flow {flow!r} has two singletons.",
            fix="Of each run one key is had alone: make one key of both.",
        )
    if sum(isinstance(limit, Debounce) for limit in found) > 1:
        raise BadRequest(f"flow {flow!r} has two debounces.", fix="Make one key of both.")
    single = singleton_of(found)
    if single is not None and single.on_conflict != "queue" and debounce_of(found) is not None:
        raise BadRequest(
            f"flow {flow!r} has a debounce and a singleton that does not queue.",
            fix='A start that waits for the next one is unfinished: use on_conflict="queue".',
        )
    names = [limit.name for limit in found if isinstance(limit, Limit)]
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f"flow {flow!r} has two limits {name!r}.", fix="Say both in one, or rename one.")
    if len(found) > MOST_LIMITS:
        raise BadRequest(f"flow {flow!r} has {len(found)} limits.", fix=f"At most {MOST_LIMITS} are judged.")
    return found


def limit_of_node(node: str, given: Any) -> Limit:
    """Read the limit of a node."""
    if not isinstance(given, Limit):
        raise BadRequest(
            f"node {node!r}: limit is {given!r:.60}.", fix='Write limit=Limit("openai", rate="500/1m").'
        )
    if given.by is not None or given.plain:
        raise BadRequest(
            f"node {node!r}: limit {given.name!r} goes by an input.",
            fix="Calls of a supplier share one limit, by its name: leave by= and plain= out.",
        )
    if given.weight != 1 and given.rate is None:
        raise BadRequest(
            f"node {node!r}: limit {given.name!r} has a weight and no rate.", fix="Give it a rate."
        )
    return given


def limited_group(
    limits: Iterable[AnyLimit], inputs: Mapping[str, Any], *, encrypts: bool = False
) -> str | None:
    """Return the group of a run with these inputs: its keys. None if it has none and nothing limits it."""
    keys = []
    for limit in limits:
        value = None if isinstance(limit, Debounce) else key_value(limit, inputs, encrypts=encrypts)
        if value is not None:
            keys.append((limit.key if isinstance(limit, Singleton) else limit.name, value))
    return group_of(keys) or None


def key_value(limit: AnyLimit, inputs: Mapping[str, Any], *, encrypts: bool = False) -> str | None:
    """Return the key of a limit that a run with these inputs has, if it has one."""
    value = key_of(limit.by or limit.name, inputs, f"limit {limit.name!r}")
    if value is not None and encrypts and not limit.plain:
        raise BadRequest(
            f"the key of limit {limit.name!r} is an input, and what runs keep is encrypted here.",
            fix="Say that it may be readable in the store: Limit(..., plain=True).",
        )
    return value


def key_of(path: str, inputs: Mapping[str, Any], what: str) -> str | None:
    """Return a key as text, none if there is no value. Long ones are shortened, and still differ."""
    value: Any = inputs
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if value is None:
            return None
    if isinstance(value, Enum):
        value = value.value
    if not isinstance(value, (str, int, float, UUID, date)):
        raise BadRequest(
            f"{what} goes by {path!r}, which is {value!r:.60}.",
            fix="A key is text, a number, a date or a UUID.",
        )
    text = str(value)
    is_plain = len(text) <= _LONGEST_VALUE and text.isprintable()
    return text if is_plain else f"{_shown(text)}~{sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _shown(text: str) -> str:
    return "".join(sign for sign in text[: _LONGEST_VALUE // 2] if sign.isprintable())


def _check_count(value: object, what: str) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise BadRequest(f"{what} is {value!r:.60}.", fix="Give a whole number from 1 on.")
