"""What a flow says of its circuit breakers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from everstep.errors import BadRequest
from everstep.model.budgets import SECONDS, aliases_of, amount_of, check_name, plain, seconds_of, spelled
from everstep.model.durations import span_of, spell

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}"
_RULES: Final = ("failures", "error_rate", "cost", "duration", "changed_decision", "trips")


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """Keeps nodes from starting once they fail, cost or change their minds too much.

    It opens after so many `failures` in a row, at an `error_rate` over the last `window` calls, once the
    calls have cost more than `cost` or taken longer than `duration` together, when a gate decides otherwise
    on the same input (`changed_decision`), or when more than `trips` of the flow's other breakers have
    opened. What it guards then halts for a person. Approved, or after its `cooldown` unless it is `manual`,
    one call may try: if that succeeds it closes, else it opens again. A `shared` one stands alike in all
    runs of a store. `notify` names who is told when a person is asked, by alias.
    """

    name: str = field(kw_only=False)
    nodes: Any = None
    failures: int | None = None
    error_rate: float | None = None
    window: int = 10
    cost: Any = None
    duration: Any = None
    changed_decision: bool = False
    trips: int | None = None
    cooldown: Any = None
    manual: bool = False
    shared: bool = False
    notify: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(_NAME, self.name):
            raise BadRequest(
                f"a breaker is called {self.name!r:.60}.", fix="Use letters, digits, '.', '_' and '-'."
            )
        for option in ("failures", "window", "trips"):
            self._check_count(option)
        for option in ("changed_decision", "manual", "shared"):
            if not isinstance(getattr(self, option), bool):
                self._refuse(option, "Say True or False.")
        if self.error_rate is not None:
            rate = amount_of(self.error_rate, f"error_rate of breaker {self.name!r}")
            if not 0 < rate <= 1:
                self._refuse("error_rate", "Give a part of 1, such as 0.5.")
            self._set("error_rate", float(rate))
        self._set("nodes", self._nodes())
        self._set("notify", aliases_of(self.notify, f"breaker {self.name!r}"))
        self._set("cost", self._cost())
        for option in ("duration", "cooldown"):
            given = getattr(self, option)
            self._set(option, None if given is None else span_of(given, f"{option} of {self.name!r}"))
        if not any(getattr(self, rule) not in (None, False, {}) for rule in _RULES):
            raise BadRequest(
                f"breaker {self.name!r} would never open.", fix=f"Give one of {', '.join(_RULES)}."
            )

    @property
    def limits(self) -> Mapping[str, Decimal]:
        """What its calls may cost together, with their time as `seconds`."""
        costs: dict[str, Decimal] = dict(self.cost)
        if self.duration is not None:
            costs[SECONDS] = seconds_of(self.duration)
        return costs

    @property
    def rest(self) -> timedelta | None:
        """How long it stays open before it tries by itself; none if a person has to say so."""
        cooldown: timedelta | None = None if self.manual else self.cooldown
        return cooldown

    @property
    def said(self) -> str:
        """The rule in a line: `payments: 3 failures in a row, shared`."""
        rules = [
            f"{self.failures} failures in a row" if self.failures is not None else "",
            f"{self.error_rate:.0%} of {self.window} calls failed" if self.error_rate is not None else "",
            *(f"more than {plain(limit)} {name}" for name, limit in self.limits.items()),
            "a gate that changes its mind" if self.changed_decision else "",
            f"more than {self.trips} others open" if self.trips is not None else "",
            f"tries again after {spell(self.rest)}" if self.rest is not None else "",
            "shared" if self.shared else "",
        ]
        guards = "" if self.nodes is None else f" ({', '.join(self.nodes)})"
        return f"{self.name}{guards}: {', '.join(filter(None, rules))}"

    def to_wire(self) -> dict[str, Any]:
        """Return it as the Flow IR says it."""
        return {
            "name": self.name,
            "nodes": None if self.nodes is None else list(self.nodes),
            "failures": self.failures,
            "error_rate": self.error_rate,
            "window": self.window,
            "cost": spelled(self.cost),
            "duration": None if self.duration is None else spell(self.duration),
            "changed_decision": self.changed_decision,
            "trips": self.trips,
            "cooldown": None if self.cooldown is None else spell(self.cooldown),
            "manual": self.manual,
            "shared": self.shared,
            **({"notify": list(self.notify)} if self.notify else {}),
        }

    @classmethod
    def of_wire(cls, ir: Mapping[str, Any]) -> Breaker:
        """Read what `to_wire` wrote."""
        given = {option: value for option, value in ir.items() if option in cls.__dataclass_fields__}
        return cls(given.pop("name"), **given)

    def _nodes(self) -> tuple[str, ...] | None:
        given = self.nodes
        if given is None:
            return None
        listed = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
        names = tuple(n if isinstance(n, str) else getattr(n, "name", None) for n in listed)
        if not names or not all(isinstance(name, str) and name for name in names):
            self._refuse("nodes", "Name nodes, or leave it out to guard them all.")
        return tuple(str(name) for name in names)

    def _cost(self) -> dict[str, Decimal]:
        if self.cost is None:
            return {}
        if not isinstance(self.cost, Mapping):
            self._refuse("cost", 'Give limits by name: cost={"usd": "100"}.')
        return {
            check_name(name, f"a cost of breaker {self.name!r}"): amount_of(
                limit, f"cost of breaker {self.name!r}"
            )
            for name, limit in self.cost.items()
        }

    def _check_count(self, option: str) -> None:
        given = getattr(self, option)
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
            self._refuse(option, "Give a whole number from 1 on.")

    def _refuse(self, option: str, fix: str) -> None:
        raise BadRequest(f"breaker {self.name!r}: {option} is {getattr(self, option)!r:.60}.", fix=fix)

    def _set(self, option: str, value: Any) -> None:
        object.__setattr__(self, option, value)


def breakers_of(flow: str, given: Any, known: Iterable[str]) -> tuple[Breaker, ...]:
    """Read the breakers of a flow, the most important first; `known` are the names and paths of its nodes."""
    if isinstance(given, (str, Breaker)) or not isinstance(given, Iterable):
        raise BadRequest(
            f"flow {flow!r}: breakers is {given!r:.60}.", fix='Write breakers=[Breaker("api", failures=3)].'
        )
    found = tuple(given)
    names: set[str] = set()
    nodes = set(known)
    for breaker in found:
        if not isinstance(breaker, Breaker):
            raise BadRequest(
                f"flow {flow!r} has {breaker!r:.60} among its breakers.",
                fix='Write Breaker("api", failures=3).',
            )
        if breaker.name in names:
            raise BadRequest(f"flow {flow!r} has two breakers {breaker.name!r}.", fix="Rename one of them.")
        names.add(breaker.name)
        unknown = sorted(set(breaker.nodes or ()) - nodes)
        if unknown:
            raise BadRequest(
                f"breaker {breaker.name!r} of flow {flow!r} guards {unknown[0]!r}, which is no node of it.",
                fix=f"It has {', '.join(sorted(nodes)[:20])}.",
            )
    return found
