"""What the limits of a store hold back, by key: how much runs, how many wait, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Final, cast

import msgspec

from everstep.engine.limits.keys import key_name
from everstep.engine.limits.rates import micros_at, micros_of, moment_at, open_at
from everstep.engine.limits.slots import key_alone
from everstep.model.durations import spell
from everstep.model.enums import Status
from everstep.model.leases import ALONE, KeyLimit, KeyState, WorkerRow, keys_in
from everstep.model.shapes import Count, Instant
from everstep.ports.limits import LimitingStore
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.services import Services

LOOKED_AT: Final = 5_000
"""So many of the newest running runs of a flow are looked at."""
HOLDERS: Final = 200
"""Of so many keys that one run has at a time it is looked up which."""
_PAGE: Final = 1_000


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a limit: what counts for it now, and what waits for it."""

    limit: str
    """The name of the limit."""
    flow: str | None
    """The flow whose runs it limits; none of a supplier's, which limits calls."""
    key: str
    """The value that its runs have in common; empty of a supplier."""
    running: Count
    """How many runs are driven, or calls made; of a singleton, whether a run has the key."""
    most: Count | None
    """How many may be at once, as live workers have it; none if that is not limited or not known."""
    started: Count
    """What has begun within the span of the rate."""
    rate: str | None
    """How much may begin in which span, as live workers have it."""
    waiting: Count
    """Runs that are due and have no owner."""
    since: Instant | None
    """Since when the first of them is there."""
    until: Instant | None
    """When a rate has room again, or a supplier lets calls begin; none if it does now."""
    why: str
    """What the runs wait for, in words; empty if none waits."""


async def limits_of(services: Services, workers: Sequence[WorkerRow]) -> list[LimitInfo]:
    """Return what counts for each key that is in use, those for which most waits first."""
    store = cast("LimitingStore", services.store)
    if not services.store.capabilities.limits:
        return []
    now = services.time.now()
    rules: dict[str, dict[str, KeyLimit]] = {}
    for worker in workers:
        for one in worker.takes:
            rules.setdefault(one.flow_id, {}).update({limit.name: limit for limit in one.limits})
    found: list[LimitInfo] = []
    for flow_id, limits in sorted(rules.items()):
        if limits:
            rows = await _running(services, flow_id)
            states = await store.limit_states(key_name(flow_id, ""), limit=LOOKED_AT)
            holders = await _holders(services, flow_id, limits, rows, states)
            found += _of_flow(flow_id, limits, rows, states, now, holders)
    suppliers = await store.limit_states("node ", limit=LOOKED_AT)
    calls = [_of_supplier(name, KeyState.of(body), now) for name, body in suppliers.items()]
    found += [one for one in calls if one.running or one.started or one.until is not None]
    return sorted(found, key=lambda one: (-one.waiting, one.flow or "", one.limit, one.key))


async def _running(services: Services, flow_id: str) -> list[RunRow]:
    rows: list[RunRow] = []
    before: str | None = None
    while len(rows) < LOOKED_AT:
        wanted = RunFilter(flow_id=flow_id, status=Status.RUNNING, limit=_PAGE, before=before)
        page = await services.store.list(wanted)
        rows += page
        if len(page) < _PAGE:
            break
        before = page[-1].run_id
    return rows


async def _holders(
    services: Services,
    flow_id: str,
    limits: Mapping[str, KeyLimit],
    rows: Iterable[RunRow],
    states: Mapping[str, bytes],
) -> dict[str, str]:
    """Return the runs that have keys of these rows alone and have not ended, by the names of their states."""
    found: dict[str, str] = {}
    if not any(limit.alone for limit in limits.values()):
        return found
    names = dict.fromkeys(key_name(flow_id, key) for row in rows if (key := key_alone(row.group)) is not None)
    for name in islice((name for name in names if name in states), HOLDERS):
        for run_id in KeyState.of(states[name]).holders:
            row = await services.store.run(run_id)
            if row is not None and not row.status.is_final:
                found[name] = run_id
    return found


def _of_flow(
    flow_id: str,
    limits: Mapping[str, KeyLimit],
    rows: Iterable[RunRow],
    states: Mapping[str, bytes],
    now: datetime,
    holders: Mapping[str, str],
) -> Iterable[LimitInfo]:
    running: Counter[str] = Counter()
    waiting: dict[str, list[datetime]] = {}
    keys: dict[str, str] = {}
    for row in rows:
        for name, key in keys_in(row.group or "").items():
            if name not in limits or row.needs_repair is not None:
                continue
            keys[key] = name
            if row.lease is not None and row.lease.expires_at > now:
                running[key] += 1
            else:
                waiting.setdefault(key, []).append(row.created_at)
    kept = {name.removeprefix(key_name(flow_id, "")): KeyState.of(body) for name, body in states.items()}
    keys |= {key: key.partition("=")[0] for key in kept if key.partition("=")[0] in limits}
    for key, name in keys.items():
        limit, state = limits[name], kept.get(key, KeyState())
        started, until = _rate(state, limit, now)
        waits, holder = waiting.get(key, []), holders.get(key_name(flow_id, key))
        if limit.alone:
            running[key] = int(holder is not None)
        if not (running[key] or waits or started):
            continue
        yield LimitInfo(
            limit=name.removeprefix(ALONE),
            flow=flow_id,
            key=key.partition("=")[2],
            running=running[key],
            most=1 if limit.alone else limit.running,
            started=started,
            rate=_spelled(limit),
            waiting=len(waits),
            since=min(waits, default=None),
            until=until,
            why=_why(limit, running[key], started, until, holder) if waits else "",
        )


def _why(limit: KeyLimit, running: int, started: int, until: datetime | None, holder: str | None) -> str:
    if limit.alone and holder is not None:
        return f"run {holder} has not ended"
    if limit.running is not None and running >= limit.running:
        return f"{running} of {limit.running} run"
    if until is not None:
        return f"{started} of {limit.starts} have started in {spell(limit.span)}"
    return "it has room: another of its limits has none, it is not its turn, or no worker is free"


def _rate(state: KeyState, limit: KeyLimit, now: datetime) -> tuple[int, datetime | None]:
    at = micros_at(now)
    until = open_at(state, limit, at)
    since = at - micros_of(limit.span)
    return sum(weight for when, weight in state.log if when >= since), moment_at(until) if until else None


def _spelled(limit: KeyLimit) -> str | None:
    return None if limit.starts is None else f"{limit.starts}/{spell(limit.span)}"


def _of_supplier(name: str, state: KeyState, now: datetime) -> LimitInfo:
    at = micros_at(now)
    closed = state.closed_until > at
    return LimitInfo(
        limit=name.removeprefix("node "),
        flow=None,
        key="",
        running=sum(until > at for until, _ in state.holders.values()),
        most=None,
        started=sum(weight for when, weight in state.log if when >= at - state.span),
        rate=None,
        waiting=0,
        since=None,
        until=moment_at(state.closed_until) if closed else None,
        why="the supplier asked to wait" if closed else "",
    )


def waiting_by_limit(found: Iterable[LimitInfo]) -> dict[str, int]:
    """Count the runs that wait, by flow and limit."""
    counted: Counter[str] = Counter()
    for one in found:
        counted[f"{one.flow}/{one.limit}" if one.flow else one.limit] += one.waiting
    return dict(counted)
