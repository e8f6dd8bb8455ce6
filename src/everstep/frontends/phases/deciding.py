"""What a scored gate decides. Pure: the same score and circumstances always give the same decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, NamedTuple

from everstep.errors import BadRequest, GateError


class Decision(StrEnum):
    """What becomes of a phase that has finished."""

    PROCEED = "proceed"
    ITERATE = "iterate"
    """It is done again."""
    ESCALATE = "escalate"
    """A person decides."""
    ABORT = "abort"
    """A person ended the run."""


class Rule(StrEnum):
    """Why a gate decided as it did; the first that applies, in this order, counts."""

    CRITICAL = "critical"
    BREAKER = "breaker_open"
    HEALTH = "health_critical"
    OSCILLATION = "oscillation"
    LOW = "low_score"
    LIMIT = "iteration_limit"
    MIDDLE = "middle_score"
    HIGH = "high_score"
    HUMAN = "human"
    """A person was asked."""


class PhaseVerdict(NamedTuple):
    """A decision, the rule behind it, and the reason in words."""

    decision: Decision
    rule: Rule
    reason: str


@dataclass(frozen=True)
class Thresholds:
    """From which scores on a phase goes on or is done again, and how often."""

    proceed: float = 80
    iterate: float = 60
    max_iterations: int = 3
    critical: bool = False
    """True if a person always decides."""
    oscillation: int = 4
    """How many scores are looked at: if they go up and down in turn, and no swing is smaller than the one
    before it, the phase is not getting better."""

    def check(self, gate: str) -> None:
        """Raise unless this can decide anything."""
        for name in ("proceed", "iterate"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise BadRequest(f"gate {gate!r}: {name} is {value!r:.60}.", fix="Give a number.")
        if self.iterate > self.proceed:
            raise BadRequest(
                f"gate {gate!r}: iterate is {self.iterate:g}, above proceed, which is {self.proceed:g}.",
                fix="A phase is done again from `iterate` on and goes on from `proceed` on.",
            )
        for name, least in (("max_iterations", 0), ("oscillation", 3)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BadRequest(
                    f"gate {gate!r}: {name} is {value!r:.60}.", fix=f"Give a whole number from {least} on."
                )
        if not isinstance(self.critical, bool):
            raise BadRequest(f"gate {gate!r}: critical is {self.critical!r:.60}.", fix="Say True or False.")


def decide(
    score: float,
    by: Thresholds,
    *,
    iteration: int = 0,
    earlier: Sequence[float] = (),
    breakers: Sequence[str] = (),
    is_unhealthy: bool = False,
) -> PhaseVerdict:
    """Say what becomes of a phase with this score.

    `iteration` is how often it was done again before, `earlier` are the scores of those attempts, `breakers`
    the names of those that are open.
    """
    escalate = Decision.ESCALATE
    if by.critical:
        return PhaseVerdict(escalate, Rule.CRITICAL, f"it scored {score:g}, and a person always decides here")
    if breakers:
        return PhaseVerdict(escalate, Rule.BREAKER, f"it scored {score:g}, but {_listed(breakers)} is open")
    if is_unhealthy:
        return PhaseVerdict(escalate, Rule.HEALTH, f"it scored {score:g}, but its health is critical")
    scores = [*earlier, score][-by.oscillation :]
    if len(scores) == by.oscillation and oscillates(scores):
        told = ", ".join(f"{one:g}" for one in scores)
        return PhaseVerdict(escalate, Rule.OSCILLATION, f"its scores go up and down: {told}")
    if score < by.iterate:
        return PhaseVerdict(escalate, Rule.LOW, f"it scored {score:g}, below {by.iterate:g}")
    if score < by.proceed:
        if iteration >= by.max_iterations:
            why = f"it scored {score:g} and was done again {_times(iteration)}, {by.max_iterations} at most"
            return PhaseVerdict(escalate, Rule.LIMIT, why)
        return PhaseVerdict(Decision.ITERATE, Rule.MIDDLE, f"it scored {score:g}, below {by.proceed:g}")
    return PhaseVerdict(Decision.PROCEED, Rule.HIGH, f"it scored {score:g}, at least {by.proceed:g}")


def oscillates(scores: Sequence[float]) -> bool:
    """True if scores go up and down in turn, and no swing is smaller than the one before it."""
    swings = [after - before for before, after in pairwise(scores)]
    pairs = list(pairwise(swings))
    return bool(pairs) and all(one * other < 0 and abs(other) >= abs(one) for one, other in pairs)


def read_score(returned: Any, gate: str) -> tuple[float, dict[str, Any]]:
    """Read what a gate's function returned: a number, or a dict with a `score` and more to tell."""
    score, more = returned, {}
    if isinstance(returned, Mapping):
        if "score" not in returned:
            raise GateError(
                f"gate {gate!r} got {dict(returned)!r:.80}, which has no 'score'.",
                fix='Return a number, or a dict such as {"score": 72, "notes": "..."}.',
            )
        score, more = returned["score"], {str(k): v for k, v in returned.items() if k != "score"}
    if isinstance(score, bool) or not isinstance(score, Real | Decimal) or not math.isfinite(score):
        raise GateError(
            f"gate {gate!r} got the score {score!r:.60} ({type(score).__name__}).", fix="Return a number."
        )
    return (int(score) if isinstance(score, Integral) else float(score)), more


def open_breakers(state: Any) -> list[str]:
    """Return the names of the breakers that are open, given the state of each by name."""
    if not isinstance(state, Mapping):
        return []
    return sorted(str(name) for name, one in state.items() if _word(one, "state") == "open")


def is_critical(health: Any) -> bool:
    """True if the newest summary of a run's health says that it is critical."""
    newest = health[-1] if isinstance(health, list) and health else health
    return _word(newest, "status") == "critical" or _word(newest, "overall") == "critical"


def _word(told: Any, field: str) -> str:
    said = told.get(field) if isinstance(told, Mapping) else told
    return said.lower() if isinstance(said, str) else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _listed(names: Sequence[str]) -> str:
    return f"the breaker {names[0]!r}" if len(names) == 1 else f"one of the breakers {', '.join(names)}"
