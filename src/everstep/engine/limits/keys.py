"""What the limits of flows leave room for in a claim. Every store asks here before it gives a lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime

from everstep.engine.limits.rates import micros_at, moment_at, no_room, open_at, trimmed
from everstep.errors import NoRoom
from everstep.model.leases import KeyLimit, KeyState, Quota, keys_in

MOST_REMEMBERED = 20_000
"""Keys of which a client remembers until when they are full."""
_FOR_GOOD = 1 << 62
"""Until when a run has a key that one has at a time: until it has ended, which its row says."""
_LOOKED_AT = 4
"""So many keys that one run has at a time are looked at whenever the states of a flow are kept as one."""


def key_name(flow_id: str, key: str) -> str:
    """Return under which name the state of a key of runs is kept."""
    return f"run {flow_id} {key}"


class KeyRoom:
    """What the limits of flows leave room for in one claim.

    `live` counts the leases that hold, by flow and group; `read` returns the state of a key by its name.
    `full` is what a client remembers of keys: until when they are, as nothing makes that sooner.
    `is_under_way` says of a run that has a key alone whether it has begun and not ended.
    """

    def __init__(
        self,
        quotas: Mapping[str, Quota],
        live: Mapping[tuple[str, str], int],
        read: Callable[[str], KeyState],
        now: int,
        full: dict[str, int],
        is_under_way: Callable[[str], bool],
    ) -> None:
        self._is_under_way = is_under_way
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
        self.holders: dict[tuple[str, str], list[str]] = {}
        """Runs that keep others of a flow and group from starting: they may be due themselves."""
        self.changed: dict[str, KeyState] = {}
        """States that are to be kept."""

    def _keys(self, flow_id: str, group: str) -> list[tuple[KeyLimit, str]]:
        limits = self._limits.get(flow_id)
        if limits is None:
            return []
        keys = keys_in(group)
        return [(one, key_name(flow_id, keys[one.name])) for one in limits if one.name in keys]

    def rated(self, flow_id: str, group: str) -> list[str]:
        """Return the names of the states by which a start of this group is judged."""
        return [key for limit, key in self._keys(flow_id, group) if limit.starts is not None or limit.alone]

    def has(self, flow_id: str, group: str, *, starts: bool, run_id: str | None = None) -> bool:
        """True if one more run with these keys may be driven; `starts` if it was never claimed.

        With `run_id` that one, which may have a key already; also one that is to go on after its end.
        """
        for limit, key in self._keys(flow_id, group):
            if limit.running is not None and self._live[key] >= limit.running:
                return False
            if starts and limit.starts is not None and self._until(limit, key) > self._now:
                return False
            if limit.alone and (starts or run_id is not None) and (others := self._others(key, run_id)):
                self.holders[flow_id, group] = [one for one in others if one]
                return False
        return True

    def _others(self, key: str, run_id: str | None) -> list[str]:
        """Return the runs that have a key alone, but for one; one without a name is what was chosen."""
        others = [one for one in self._state(key).holders if one != run_id and self._is_under_way(one)]
        return others or [""] * self._chosen[key]

    def refusal(self, run_id: str, flow_id: str, group: str, *, starts: bool) -> NoRoom:
        """Say which limit has no room for a run."""
        for limit, key in self._keys(flow_id, group):
            name = keys_in(group)[limit.name]
            if limit.alone and (others := self._others(key, run_id)):
                return no_room(f"run {run_id!r}", name, f"run {others[0]!r} has not ended", None)
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
            if starts and (limit.starts is not None or limit.alone):
                self._chosen[key] += 1

    def started(self, flow_id: str, group: str, run_id: str, *, starts: bool) -> None:
        """Note that a run got a lease, its first if it `starts`: `changed` has what is to be kept of that."""
        for limit, key in self._keys(flow_id, group):
            if not (limit.alone or (starts and limit.starts is not None)):
                continue
            state = self.changed.get(key) or self._state(key)
            if limit.alone and run_id in state.holders:
                continue
            kept = trimmed(state, limit, self._now)
            if limit.alone:
                kept.holders = {one: held for one, held in kept.holders.items() if self._is_under_way(one)}
                kept.holders[run_id] = (_FOR_GOOD, 1)
            else:
                kept.log.append((self._now, 1))
            self.changed[key] = kept

    def merged(self, flow_id: str, states: Mapping[str, KeyState]) -> dict[str, KeyState]:
        """Return the states of a flow's keys with what has changed, and without those that are over."""
        rules = {f"run {flow_id} {limit.name}=": limit for limit in self._limits.get(flow_id, ())}
        both = {
            **states,
            **{key: state for key, state in self.changed.items() if key.startswith(f"run {flow_id} ")},
        }
        kept: dict[str, KeyState] = {}
        looked_at: list[str] = []
        for key, state in both.items():
            rule = next((limit for start, limit in rules.items() if key.startswith(start)), None)
            left = state if rule is None else trimmed(state, rule, self._now)
            if rule is not None and rule.alone and key not in self.changed and len(looked_at) < _LOOKED_AT:
                looked_at.append(key)
                left.holders = {one: held for one, held in left.holders.items() if self._is_under_way(one)}
            if left.log or left.holders or left.closed_until:
                kept[key] = left
        # Those that were looked at come last, so that the next look is at others.
        return kept | {key: kept.pop(key) for key in looked_at if key in kept}


def next_open(full: Mapping[str, int], after: datetime) -> datetime | None:
    """Return when the first of the keys that a client knows to be full has room again."""
    later = [until for until in list(full.values()) if until > micros_at(after)]  # others may add to it
    return moment_at(min(later)) if later else None
