"""Claims by limits. Apart from other claims, as few stores have anything of it.

They are judged here on what was read, and given by a script if no other such claim came between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from everstep.engine.claims import ClaimTurns, Lane, Room, choose
from everstep.engine.limits.keys import KeyRoom
from everstep.errors import StoreUnavailable
from everstep.model.enums import Status
from everstep.model.leases import KeyLimit, KeyState, Lease, Quota
from everstep.ports.limits import LimitChange
from everstep.ports.store import RunRow, no_such_run
from everstep.stores.redis.fields import Hash, hash_of, moment, quota_text, run_row
from everstep.stores.redis.wire import Argument

Ask = Callable[..., Awaitable[Any]]
"""Runs a script by its name."""
Judge = Callable[[RunRow, Hash, int], tuple[Lease, tuple[Argument, ...]]]
"""Returns the lease that a claimant gets at a time, and what the script is told of it."""
LaneKey = tuple[int, str, str, bool]
_NUMBER = 16
"""Digits of its number that precede a run's id in a lane."""
_TRIES = 50


class Wish(NamedTuple):
    """What a worker would like to drive."""

    flows: Collection[tuple[str, str]]
    limit: int
    apart_from: Collection[str]
    quotas: Mapping[str, Quota]


class RedisLimits:
    """What limits leave room for, and which of their keys this client knows to be full."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.full: dict[str, int] = {}

    async def claim_due(
        self, wish: Wish, turns: ClaimTurns, judge: Judge, is_fit: Callable[[Hash, int], bool]
    ) -> list[tuple[RunRow, Lease, Lane]]:
        """Claim runs that are due."""
        for _ in range(_TRIES):
            look = _Look(self, wish, await self._version())
            chosen = await look.choose(turns)
            rows = await self._ask("rows", *(run_id for run_id, _ in chosen)) if chosen else []
            judged: list[tuple[RunRow, Lease, Lane]] = []
            told: list[Argument] = []
            for (run_id, lane), fields in zip(chosen, map(hash_of, rows), strict=True):
                if is_fit(fields, look.now):
                    row = run_row(run_id, fields)
                    lease, arguments = judge(row, fields, look.now)
                    judged.append((row.changed(lease=lease, needs_repair=row.kept_mark), lease, lane))
                    told += arguments
                    await look.read_of(lane.flow_id, lane.group)
                    look.keys.started(lane.flow_id, lane.group, run_id, starts=lease.epoch == 1)
            if not judged:
                return []
            given = await self._claim("1", wish.quotas, told, look.version, look.keys)
            if given is not None:
                return [one for one, is_given in zip(judged, given, strict=True) if is_given]
        raise StoreUnavailable("runs with limits are claimed by many at once.")

    async def lease_within(self, run_id: str, limits: Sequence[KeyLimit], judge: Judge) -> Lease:
        """Claim a run that is named, if its limits leave room for it."""
        for _ in range(_TRIES):
            version = await self._version()
            at, flat = await self._ask("run", run_id)
            now = int(at)
            if not flat:
                raise no_such_run(run_id)
            fields = hash_of(flat)
            row = run_row(run_id, fields)
            quotas = {row.flow_id: Quota(limits=tuple(limits))}
            _, _, leased = await self._ask("due", 0, 0, quota_text(quotas))
            live = _counted(leased)
            group, starts = row.group or "", int(fields[b"epoch"]) == 0
            if row.lease is not None and row.lease.expires_at > moment(now):
                live[row.flow_id, group] -= 1  # its own, which is to be taken over or refused
            states = dict[str, KeyState]()
            under_way = set[str]()
            keys = KeyRoom(quotas, live, states.__getitem__, now, self.full, under_way.__contains__)
            states |= await self.read(keys.rated(row.flow_id, group))
            under_way |= await self.under_way(states.values())
            if not keys.has(row.flow_id, group, starts=starts, run_id=run_id):
                raise keys.refusal(run_id, row.flow_id, group, starts=starts)
            lease, told = judge(row, fields, now)
            keys.started(row.flow_id, group, run_id, starts=starts)
            given = await self._claim("0", {}, told, version, keys)
            if given is not None and given[0]:
                return lease
        raise StoreUnavailable("runs with limits are claimed by many at once.")

    async def _claim(
        self,
        looks: str,
        quotas: Mapping[str, Quota],
        told: Sequence[Argument],
        version: str,
        keys: KeyRoom,
    ) -> list[int] | None:
        kept = [part for key, state in keys.changed.items() for part in (key, state.body() or b"")]
        within = [version, *kept]
        given: list[int] | None = await self._ask(
            "claim_within", looks, quota_text(quotas), *told, *within, len(within)
        )
        return given

    async def _version(self) -> str:
        _, version, _ = await self._ask("limit_look")
        return str(version.decode())

    async def read(self, keys: Collection[str]) -> dict[str, KeyState]:
        """Return the states of keys."""
        if not keys:
            return {}
        _, _, found = await self._ask("limit_look", *keys)
        return {key: KeyState.of(body or None) for key, body in zip(keys, found, strict=True)}

    async def under_way(self, states: Iterable[KeyState]) -> set[str]:
        """Return which of the runs that have a key alone have begun and not ended."""
        asked = sorted({run_id for state in states for run_id in state.holders})
        found = await self._ask("rows", *asked) if asked else []
        return {
            run_id
            for run_id, fields in zip(asked, map(hash_of, found), strict=True)
            if fields.get(b"epoch", b"0") != b"0" and not run_row(run_id, fields).status.is_final
        }

    async def change(self, key: str, change: LimitChange) -> Any:
        """Change what is kept under a key."""
        for _ in range(_TRIES * 4):
            now, _, [was] = await self._ask("limit_look", key)
            body, said = change(was or None, moment(now))
            if (body or b"") == was or await self._ask("swap_limit", key, was, body or b""):
                return said
        raise StoreUnavailable(f"limit {key!r} is written to by many at once.")

    async def states(self, prefix: str, limit: int, after: str) -> dict[str, bytes]:
        """Return what is kept under keys that begin with a text, and come behind another."""
        flat = await self._ask("limit_states")
        found = {key.decode(): body for key, body in zip(flat[::2], flat[1::2], strict=True)}
        wanted = sorted(key for key in found if key.startswith(prefix) and key > after)
        return {key: found[key] for key in wanted[:limit]}


class _Look:
    """One look at what is due: of lanes whose keys are full no run is chosen."""

    def __init__(self, limits: RedisLimits, wish: Wish, version: str) -> None:
        self._limits = limits
        self._wish = wish
        self._limited = {flow_id for flow_id, quota in wish.quotas.items() if quota.limits}
        self._states: dict[str, KeyState] = {}
        self._under_way: set[str] = set()
        """Runs that have a key alone and have not ended, of the states that were read."""
        self._lanes: dict[LaneKey, list[tuple[float, bytes]]] = {}
        self._full: dict[str, set[str]] = {}
        self.version = version
        self.now = 0
        self.keys: KeyRoom

    async def choose(self, turns: ClaimTurns) -> list[tuple[str, Lane]]:
        """Return the runs to claim, in order, with their lanes.

        The first look passes over no key that is full, as runs that began already need no room to start.
        """
        room: Room | None = None
        while True:
            found, live = await self._due()
            if room is None:
                counted = _counted(live)
                self.keys = KeyRoom(
                    self._wish.quotas,
                    counted,
                    self._states.__getitem__,
                    self.now,
                    self._limits.full,
                    self._under_way.__contains__,
                )
                room = Room(self._wish.quotas, counted, self.keys)
            met = await self._met(found)
            if not self._pass_over(room, met) or self._has_enough(room):
                break
            for flow_id in self._limited:
                self._full.setdefault(flow_id, set()).update(self._known_full(flow_id))
        await self._add_holders()
        lanes = [
            Lane(*key[:3], [name[_NUMBER:].decode() for _, name in sorted(due)], starts=key[3])
            for key, due in self._lanes.items()
        ]
        return list(choose(lanes, limit=self._wish.limit, room=room, turns=turns))

    async def _due(self) -> tuple[Sequence[Any], Sequence[Sequence[bytes]]]:
        wish = self._wish
        quotas = {
            flow_id: msgspec.structs.replace(quota, paused=(*quota.paused, *self._full.get(flow_id, ())))
            for flow_id, quota in wish.quotas.items()
        }
        named = [part for flow in wish.flows for part in flow]
        asked = (wish.limit, len(wish.flows), *named, quota_text(quotas), *wish.apart_from)
        now, found, live = await self._limits._ask("due", *asked)
        self.now = self.now or int(now)
        return found, live

    async def _met(self, found: Iterable[Sequence[Any]]) -> set[LaneKey]:
        """Put runs that were never claimed into lanes of their own, and read what judges them."""
        limited = [lane for lane in found if lane[1].decode() in self._limited]
        names = [name[_NUMBER:].decode() for *_, runs in limited for name in runs[::2]]
        rows = await self._limits._ask("rows", *names) if names else []
        new = {name for name, row in zip(names, map(hash_of, rows), strict=True) if row.get(b"epoch") == b"0"}
        met: set[LaneKey] = set()
        for priority, flow, group, runs in found:
            for at, name in zip(map(float, runs[1::2]), runs[::2], strict=True):
                starts = name[_NUMBER:].decode() in new
                key = (int(priority), flow.decode(), group.decode(), starts)
                if key not in self._lanes or key in met:
                    met.add(key)
                    self._lanes.setdefault(key, []).append((at, name))
        rated = {one for _, flow, group, starts in met if starts for one in self.keys.rated(flow, group)}
        await self._read(rated)
        return met

    async def read_of(self, flow_id: str, group: str) -> None:
        """Read the states of a group."""
        await self._read(self.keys.rated(flow_id, group))

    async def _read(self, keys: Iterable[str]) -> None:
        if unread := sorted(set(keys) - self._states.keys()):
            read = await self._limits.read(unread)
            self._states |= read
            self._under_way |= await self._limits.under_way(read.values())

    async def _add_holders(self) -> None:
        """Add what has a key alone and is due itself: it may lie behind those that wait for it."""
        held = [run_id for found in self.keys.holders.values() for run_id in found]
        asked = [run_id for run_id in held if run_id not in self._wish.apart_from]
        found = await self._limits._ask("rows", *asked) if asked else []
        for run_id, fields in zip(asked, map(hash_of, found), strict=True):
            row = run_row(run_id, fields)
            is_due = row.status is Status.RUNNING and row.lease is None and row.needs_repair is None
            if is_due and (row.flow_id, row.flow_hash) in self._wish.flows:
                lane = (row.priority, row.flow_id, row.group or "", False)
                self._lanes.setdefault(lane, []).append((0.0, b"0" * _NUMBER + run_id.encode()))

    def _pass_over(self, room: Room, met: Iterable[LaneKey]) -> bool:
        """Leave out the groups that have no room; true if there are any."""
        before = sum(map(len, self._full.values()))
        for _, flow_id, group, starts in met:
            if flow_id in self._limited and not room.has(flow_id, group, starts=starts):
                self._full.setdefault(flow_id, set()).add(group)
        return sum(map(len, self._full.values())) > before

    def _has_enough(self, room: Room) -> bool:
        some = [
            len(due)
            for (_, flow_id, group, starts), due in self._lanes.items()
            if room.has(flow_id, group, starts=starts)
        ]
        return sum(some) >= self._wish.limit

    def _known_full(self, flow_id: str) -> list[str]:
        start, now = f"run {flow_id} ", self.now
        return [
            key.removeprefix(start)
            for key, until in self._limits.full.items()
            if until > now and key.startswith(start)
        ]


def _counted(live: Sequence[Sequence[bytes]]) -> Counter[tuple[str, str]]:
    return Counter((flow.decode(), group.decode()) for flow, group in live)
