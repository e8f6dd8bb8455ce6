"""When a breaker opens and closes. Pure: what happened and the time of it arrive together."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from everstep.model.breakers import Breaker
from everstep.model.budgets import SECONDS, add_to, plain
from everstep.model.ledger import BreakerAt, BreakerState

_MOST_DECISIONS = 64
"""How many decisions of gates a breaker remembers."""


class Happened(NamedTuple):
    """What a guarded call did, as far as a breaker asks."""

    now: datetime
    ok: bool | None = None
    """Whether it succeeded; none if it is still under way."""
    costs: Mapping[str, Decimal] = {}
    decided: tuple[str, tuple[str, ...]] | None = None
    """A digest of what a gate read, and what it chose."""
    others: int = 0
    """How many other breakers have opened, counted when one of them just did."""


def after(rule: Breaker, at: BreakerAt, happened: Happened) -> BreakerAt:
    """Return how a breaker stands after something happened."""
    if at.state is BreakerState.OPEN:
        return at  # what was under way when it opened ends, and changes nothing
    if at.state is BreakerState.HALF_OPEN:
        if happened.ok is None:
            return at
        if happened.ok:
            return closed(at, happened.now)
        return opened(at, "it failed again", happened.now)
    at, reason = _counted(rule, at, happened)
    reason = reason or _reason(rule, at, happened.others)
    return at if reason is None else opened(at, reason, happened.now)


def opened(at: BreakerAt, reason: str, now: datetime) -> BreakerAt:
    """Return the breaker as it stands open."""
    return BreakerAt(BreakerState.OPEN, now, reason, at.trips + 1, at.failures)


def half_open(at: BreakerAt, now: datetime) -> BreakerAt:
    """Return the breaker as it stands while one call may try."""
    return BreakerAt(BreakerState.HALF_OPEN, now, at.reason, at.trips, at.failures)


def closed(at: BreakerAt, now: datetime) -> BreakerAt:
    """Return the breaker as it stands closed, with everything counted anew."""
    return BreakerAt(BreakerState.CLOSED, now, at.reason, at.trips)


def is_rested(rule: Breaker, at: BreakerAt, now: datetime) -> bool:
    """True if it may try by itself."""
    return at.state is BreakerState.OPEN and rule.rest is not None and now - (at.since or now) >= rule.rest


def _counted(rule: Breaker, at: BreakerAt, happened: Happened) -> tuple[BreakerAt, str | None]:
    changes: dict[str, object] = {}
    reason: str | None = None
    if happened.ok is not None:
        failures = 0 if happened.ok else at.failures + 1
        if failures != at.failures:
            changes["failures"] = failures
        if rule.error_rate is not None:
            changes["recent"] = (*at.recent, happened.ok)[-rule.window :]
    costs = {name: amount for name, amount in happened.costs.items() if name in rule.limits and amount}
    if costs:
        spent = dict(at.spent)
        add_to(spent, costs)
        changes["spent"] = spent
    if rule.changed_decision and happened.decided is not None:
        digest, chosen = happened.decided
        before = at.decided.get(digest)
        if before is not None and before != chosen:
            reason = f"a gate chose {_names(chosen)} where it had chosen {_names(before)} on the same input"
        elif before is None:
            kept = list(at.decided.items())[-_MOST_DECISIONS + 1 :]
            changes["decided"] = dict([*kept, (digest, chosen)])
    return (at.changed(**changes) if changes else at), reason


def _reason(rule: Breaker, at: BreakerAt, others: int) -> str | None:
    if rule.failures is not None and at.failures >= rule.failures:
        return f"{at.failures} call{'s' if at.failures > 1 else ''} in a row failed"
    if rule.error_rate is not None and len(at.recent) >= rule.window:
        failed = at.recent.count(False)
        if failed >= Decimal(repr(rule.error_rate)) * len(at.recent):
            return f"{failed} of the last {len(at.recent)} calls failed"
    over = _over(rule.limits, at.spent)
    if over is not None:
        return over
    if rule.trips is not None and others > rule.trips:
        return f"{others} other breakers have opened"
    return None


def _over(limits: Mapping[str, Decimal], spent: Mapping[str, Decimal]) -> str | None:
    for name, limit in limits.items():
        if spent.get(name, 0) > limit:
            if name == SECONDS:
                return f"the calls took {plain(spent[name])} s together, more than {plain(limit)}"
            return f"the calls cost {plain(spent[name])} {name}, more than {plain(limit)}"
    return None


def _names(chosen: tuple[str, ...]) -> str:
    return ", ".join(chosen) or "to end"
