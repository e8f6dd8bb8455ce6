"""Whether a rate has room for one more: a sliding log.

No span of its length, ends included, has more than it allows.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from everstep.errors import NoRoom
from everstep.model.leases import KeyLimit, KeyState

_MICRO = timedelta(microseconds=1)
EXACT = 10_000
"""A rate of no more than this keeps each time."""
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def trimmed(state: KeyState, limit: KeyLimit, now: int) -> KeyState:
    """Return a state without what is over. As many starts are kept as count, and no more."""
    oldest = now - micros_of(limit.span)
    log = [entry for entry in state.log if entry[0] >= oldest] if limit.starts is not None else []
    holders = {who: held for who, held in state.holders.items() if held[0] > now}
    closed_until = state.closed_until if state.closed_until > now else 0
    return KeyState(log, holders, closed_until, micros_of(limit.span))


def who_may_count(state: KeyState, now: int) -> list[str] | None:
    """Return who else says whether a state still counts: its holders; none if it does by itself."""
    if state.closed_until > now or any(at >= now - state.span for at, _ in state.log):
        return None
    return [who for who, (until, _) in state.holders.items() if until > now]


def micros_of(span: timedelta) -> int:
    return span // _MICRO


def micros_at(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICRO


def moment_at(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def noted(log: list[tuple[int, int]], limit: KeyLimit, at: int, weight: int) -> None:
    """Add to a log what begins. Of very many, those of a thousandth of the span are one, at its end."""
    if limit.starts is not None and limit.starts > EXACT:
        grain = max(micros_of(limit.span) // 1000, 1)
        at = (at // grain + 1) * grain
        if log and log[-1][0] == at:
            log[-1] = (at, log[-1][1] + weight)
            return
    log.append((at, weight))


def open_at(state: KeyState, limit: KeyLimit, now: int, weight: int = 1, taken: int = 0) -> int:
    """Return from when on the rate of a limit lets so much begin beside what is taken; 0 if it does now."""
    if state.closed_until > now:
        return state.closed_until
    if limit.starts is None:
        return 0
    span = micros_of(limit.span)
    counted = [(at, weighs) for at, weighs in state.log if at >= now - span]
    # What weighs more than all there is goes once all of it is free.
    over = sum(weighs for _, weighs in counted) + taken + min(weight, limit.starts) - limit.starts
    for at, weighs in counted if over > 0 else ():
        over -= weighs
        if over <= 0:
            return at + span + 1
    return now + span + 1 if over > 0 else 0


def no_room(who: str, key: str, why: str, until: int | None) -> NoRoom:
    """Return why something cannot start now."""
    return NoRoom(
        f"{who} has to wait: limit {key!r} has no room ({why}).",
        fix="It starts once there is room. Look with: everstep limits",
        key=key,
        until=None if until is None else moment_at(until),
    )
