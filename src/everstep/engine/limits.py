"""Whether a limit has room for one more. Every store asks here, before it gives a lease or lets a call begin.

A rate is a sliding log: no span of its length, ends included, has more than it allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from everstep.errors import NoRoom
from everstep.model.leases import KeyLimit, KeyState, Quota, keys_in

_MICRO = timedelta(microseconds=1)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
MOST_REMEMBERED = 20_000
"""Keys of which a client remembers until when they are full."""


def trimmed(state: KeyState, limit: KeyLimit, now: int) -> KeyState:
    """Return a state without what is over. As many starts are kept as count, and no more."""
    oldest = now - micros_of(limit.span)
    log = [entry for entry in state.log if entry[0] >= oldest] if limit.starts is not None else []
    holders = {who: held for who, held in state.holders.items() if held[0] > now}
    return KeyState(log, holders, state.closed_until if state.closed_until > now else 0)


def micros_of(span: timedelta) -> int:
    return span // _MICRO


def micros_at(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICRO


def moment_at(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


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


def key_name(flow_id: str, key: str) -> str:
    """Return under which name the state of a key of runs is kept."""
    return f"run {flow_id} {key}"


def no_room(who: str, key: str, why: str, until: int | None) -> NoRoom:
    """Return why something cannot start now."""
    return NoRoom(
        f"{who} has to wait: limit {key!r} has no room ({why}).",
        fix="It starts once there is room. Look with: everstep limits",
        key=key,
        until=None if until is None else moment_at(until),
    )


class KeyRoom:
    """What the limits of flows leave room for in one claim.

    `live` counts the leases that hold, by flow and group; `read` returns the state of a key by its name.
    `full` is what a client remembers of keys: until when they are. Nobody can make that sooner.
    """

    def __init__(
        self,
        quotas: Mapping[str, Quota],
        live: Mapping[tuple[str, str], int],
        read: Callable[[str], KeyState],
        now: int,
        full: dict[str, int],
    ) -> None:
        self._limits = {flow_id: quota.limits for flow_id, quota in quotas.items() if quota.limits}
        self._read = read
        self._now = now
        self._full = full
        self._states: dict[str, KeyState] = {}
        self._chosen: Counter[str] = Counter()
        self._live: Counter[str] = Counter()
        for (flow_id, group), count in live.items():
            for key in keys_in(group).values() if flow_id in self._limits else ():
                self._live[key_name(flow_id, key)] += count
        self.changed: dict[str, KeyState] = {}
        """States that are to be kept."""

    def _keys(self, flow_id: str, group: str) -> list[tuple[KeyLimit, str]]:
        limits = self._limits.get(flow_id)
        if limits is None:
            return []
        keys = keys_in(group)
        return [(one, key_name(flow_id, keys[one.name])) for one in limits if one.name in keys]

    def rated(self, flow_id: str, group: str) -> list[str]:
        """Return the names of the states by which a rate of this group is judged."""
        return [key for limit, key in self._keys(flow_id, group) if limit.starts is not None]

    def has(self, flow_id: str, group: str, *, starts: bool) -> bool:
        """True if one more run with these keys may be driven; `starts` if it was never claimed."""
        for limit, key in self._keys(flow_id, group):
            if limit.running is not None and self._live[key] >= limit.running:
                return False
            if starts and limit.starts is not None and self._until(limit, key) > self._now:
                return False
        return True

    def refusal(self, run_id: str, flow_id: str, group: str, *, starts: bool) -> NoRoom:
        """Say which limit has no room for a run."""
        for limit, key in self._keys(flow_id, group):
            name = keys_in(group)[limit.name]
            if limit.running is not None and self._live[key] >= limit.running:
                return no_room(f"run {run_id!r}", name, f"{self._live[key]} of {limit.running} run", None)
            until = self._until(limit, key) if starts and limit.starts is not None else 0
            if until > self._now:
                return no_room(f"run {run_id!r}", name, f"{limit.starts} started in {limit.span}", until)
        return no_room(f"run {run_id!r}", group, "it was full just now", None)

    def _until(self, limit: KeyLimit, key: str) -> int:
        until = self._full.get(key, 0)
        if until <= self._now:
            until = open_at(self._state(key), limit, self._now, taken=self._chosen[key])
            # What was only chosen may be passed over, and is not remembered.
            if until and not self._chosen[key]:
                if len(self._full) >= MOST_REMEMBERED:
                    self._full.clear()
                self._full[key] = until
        return until

    def _state(self, key: str) -> KeyState:
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = self._read(key)
        return state

    def take(self, flow_id: str, group: str, *, starts: bool) -> None:
        """Count a run that was chosen."""
        for limit, key in self._keys(flow_id, group):
            self._live[key] += 1
            if starts and limit.starts is not None:
                self._chosen[key] += 1

    def started(self, flow_id: str, group: str) -> None:
        """Note that a run got its first lease: `changed` has what is to be kept of that."""
        for limit, key in self._keys(flow_id, group):
            if limit.starts is not None:
                state = self.changed.get(key) or self._state(key)
                kept = trimmed(state, limit, self._now)
                kept.log.append((self._now, 1))
                self.changed[key] = kept


    def merged(self, flow_id: str, states: Mapping[str, KeyState]) -> dict[str, KeyState]:
        """Return the states of a flow's keys with what has changed, and without those that are over."""
        rules = {f"run {flow_id} {limit.name}=": limit for limit in self._limits.get(flow_id, ())}
        both = {**states, **{key: state for key, state in self.changed.items() if key.startswith(f"run {flow_id} ")}}
        kept = {}
        for key, state in both.items():
            rule = next((limit for start, limit in rules.items() if key.startswith(start)), None)
            left = state if rule is None else trimmed(state, rule, self._now)
            if left.log or left.closed_until:
                kept[key] = left
        return kept


def next_open(full: Mapping[str, int], after: datetime) -> datetime | None:
    """Return when the first of the keys that a client knows to be full has room again."""
    later = [until for until in list(full.values()) if until > micros_at(after)]  # others may add to it
    return moment_at(min(later)) if later else None
