"""Which calls of a supplier may begin: each holds a place while it is made, and counts in the rate."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from everstep.engine.limits.rates import EXACT, micros_of, noted, open_at, trimmed
from everstep.model.leases import KeyLimit, KeyState


class Asked(NamedTuple):
    """A call that is to begin."""

    holder: str
    """Which one: the run, the step and the attempt."""
    weight: int = 1


class Answered(NamedTuple):
    """Which calls may begin, and when to ask again for the others."""

    given: tuple[str, ...]
    until: int | None
    """None if that depends on when others end."""
    why: str = ""


def ask(
    state: KeyState, limit: KeyLimit, asked: Sequence[Asked], now: int, ttl: timedelta
) -> tuple[KeyState, Answered]:
    """Give places to the first of these calls that fit; who holds one already keeps it."""
    kept, ends = _kept(state, limit, now), now + micros_of(ttl)
    given: list[str] = []
    until: int | None = None
    why = ""
    for one in asked:
        others = len(kept.holders) - (one.holder in kept.holders)
        if limit.running is not None and others >= limit.running:
            until, why = None, f"{others} of {limit.running} at once"
            break
        if at := open_at(kept, limit, now, one.weight):
            until, why = at, f"{limit.starts} in {limit.span}" if kept.closed_until <= now else "told to wait"
            break
        weight = min(one.weight, limit.starts) if limit.starts is not None else one.weight
        if limit.running is not None:
            kept.holders[one.holder] = (ends, weight)
        if limit.starts is not None:
            noted(kept.log, limit, now, weight)
        given.append(one.holder)
    return kept, Answered(tuple(given), until, why)


def give_back(
    state: KeyState, limit: KeyLimit, holders: Collection[str], now: int, closed_until: int = 0
) -> KeyState:
    """Free the places of calls that are over; `closed_until` is what the supplier has asked for."""
    kept = _kept(state, limit, now)
    for holder in holders:
        kept.holders.pop(holder, None)
    return KeyState(kept.log, kept.holders, max(kept.closed_until, closed_until), kept.span)


def prolong(state: KeyState, limit: KeyLimit, holders: Collection[str], now: int, ttl: timedelta) -> KeyState:
    """Let calls that are still made keep their places, also one that was taken for dead."""
    kept, ends = _kept(state, limit, now), now + micros_of(ttl)
    longer: Mapping[str, tuple[int, int]] = {
        holder: (ends, kept.holders.get(holder, (0, 1))[1]) for holder in holders
    }
    return KeyState(kept.log, {**kept.holders, **longer}, kept.closed_until, kept.span)


def _kept(state: KeyState, limit: KeyLimit, now: int) -> KeyState:
    """Return a state without what is over for all who share the limit: their spans may differ."""
    span = max(state.span, micros_of(limit.span))
    log = [entry for entry in state.log if entry[0] >= now - span][-2 * EXACT :]
    kept = trimmed(state, limit, now)
    return KeyState(log, kept.holders, kept.closed_until, span if log else kept.span)


def supplier_key(name: str) -> str:
    """Return under which name the state of a supplier's limit is kept."""
    return f"node {name}"
