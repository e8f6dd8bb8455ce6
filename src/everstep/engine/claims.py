"""Which of the runs that are due a worker gets. Every store asks here, or must come to the same.

The highest priority comes first. Of equal priority, flows take turns, and within a flow its groups; within a
group the longest due comes first. So ten thousand waiting runs of one flow or group keep no other waiting;
only a higher priority does.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from everstep.model.leases import Quota

if TYPE_CHECKING:
    from everstep.engine.limits.keys import KeyRoom


class Lane:
    """The due runs of one priority, flow and group, the longest due first."""

    def __init__(
        self, priority: int, flow_id: str, group: str, runs: Iterable[str], *, starts: bool = False
    ) -> None:
        self.priority = priority
        self.flow_id = flow_id
        self.group = group
        """Empty for runs without one."""
        self.starts = starts
        """True if none of them was ever claimed, and their flow has limits."""
        self._runs = iter(runs)

    def next(self, taken: Collection[str]) -> str | None:
        """Return the next run that was not taken yet."""
        for run_id in self._runs:
            if run_id not in taken:
                return run_id
        return None


class Room:
    """How many more runs quotas leave room for; `live` counts the leases that hold, by flow and group."""

    def __init__(
        self, quotas: Mapping[str, Quota], live: Mapping[tuple[str, str], int], keys: KeyRoom | None = None
    ) -> None:
        self._quotas = quotas
        self._keys = keys
        self._by_group = Counter(live)
        self._by_flow: Counter[str] = Counter()
        for (flow_id, _), count in live.items():
            self._by_flow[flow_id] += count

    def has(self, flow_id: str, group: str = "", *, starts: bool = False) -> bool:
        """True if one more run of this flow and group may be driven; `starts` if it was never claimed."""
        quota = self._quotas.get(flow_id)
        if quota is None:
            return True
        if quota.running is not None and self._by_flow[flow_id] >= quota.running:
            return False
        if group and group in quota.paused:
            return False
        if quota.limits and self._keys is not None and not self._keys.has(flow_id, group, starts=starts):
            return False
        is_counted = bool(group) and quota.per_group is not None
        return not is_counted or self._by_group[flow_id, group] < (quota.per_group or 0)

    def full_groups(self, flow_id: str) -> list[str]:
        """Return the groups of a flow of which no more may be driven."""
        quota = self._quotas.get(flow_id)
        if quota is None:
            return []
        most = quota.per_group
        full = [
            group
            for (name, group), count in self._by_group.items()
            if name == flow_id and group and most is not None and count >= most
        ]
        return [*full, *quota.paused]

    def take(self, lane: Lane) -> None:
        """Count a run that was chosen."""
        self._by_flow[lane.flow_id] += 1
        self._by_group[lane.flow_id, lane.group] += 1
        if self._keys is not None:
            self._keys.take(lane.flow_id, lane.group, starts=lane.starts)


class ClaimTurns:
    """Whose turn it is, as one client of a store remembers it."""

    def __init__(self) -> None:
        self._flow: str | None = None
        self._groups: dict[str, str] = {}

    def last(self, flow_id: str) -> str | None:
        """Return the group of this flow that was served last."""
        return self._groups.get(flow_id)

    def flows(self, flow_ids: Iterable[str]) -> list[str]:
        """Return flows in the order of their turns."""
        return sorted(set(flow_ids), key=lambda flow_id: _turn(flow_id, self._flow))

    def lanes(self, of_flow: Iterable[Lane]) -> list[Lane]:
        """Return the lanes of one flow in the order of their turns."""
        return sorted(of_flow, key=lambda lane: _turn(lane.group, self.last(lane.flow_id)))

    def note(self, lane: Lane) -> None:
        """Remember who was served."""
        self._flow = lane.flow_id
        self._groups[lane.flow_id] = lane.group


def _turn(name: str, last: str | None) -> tuple[bool, str]:
    return last is not None and name <= last, name


def choose(lanes: Iterable[Lane], *, limit: int, room: Room, turns: ClaimTurns) -> Iterator[tuple[str, Lane]]:
    """Yield up to `limit` runs with their lanes, in the order in which they are to be claimed."""
    ranks: dict[int, dict[str, list[Lane]]] = {}
    for lane in lanes:
        ranks.setdefault(lane.priority, {}).setdefault(lane.flow_id, []).append(lane)
    taken: set[str] = set()
    for priority in sorted(ranks, reverse=True):
        flows = {flow_id: deque(turns.lanes(of_flow)) for flow_id, of_flow in ranks[priority].items()}
        waiting = deque(turns.flows(flows))
        while waiting and len(taken) < limit:
            flow_id = waiting.popleft()
            lane = flows[flow_id].popleft()
            run_id = lane.next(taken) if room.has(flow_id, lane.group, starts=lane.starts) else None
            if run_id is not None:
                taken.add(run_id)
                room.take(lane)
                flows[flow_id].append(lane)
                yield run_id, lane
            if flows[flow_id]:
                waiting.append(flow_id)
