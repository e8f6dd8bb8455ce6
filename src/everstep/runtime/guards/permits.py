"""Limits of suppliers while a run is driven. Apart from the loop, as few flows have any.

A step without room does not start, and holds nothing meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, cast

from everstep.engine.limits.permits import Answered, Asked, ask, give_back, prolong, supplier_key
from everstep.engine.limits.rates import micros_at, moment_at
from everstep.engine.readiness import Place, within_limits
from everstep.engine.scope import Scope
from everstep.errors import EverstepError, StoreError, StoreUnavailable
from everstep.graph.limits import MOST_WEIGHT, Limit, rule_of
from everstep.model.leases import KeyLimit, KeyState
from everstep.ports.limits import LimitingStore
from everstep.ports.pausing import PausingStore
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.finish import asked_pause
from everstep.runtime.drive.invoke import Call
from everstep.runtime.drive.values import ValueOutOfReach

log = logging.getLogger("everstep")
SHORTEST = 0.1
"""Seconds between two looks of a step that waits for others to end; longer where a look costs more."""
Visit = tuple[Scope, int, int]
"""A place, and the number of the attempt at it."""


class Permits:
    """The calls of one drive that have limits."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._services = run.services
        self._state = run.state
        self._store = cast("LimitingStore", run.services.store)
        self._ttl = run.flow.durability.lease_ttl
        looks_every = cast("PausingStore", run.services.store).looks_every
        self._look = timedelta(seconds=max(SHORTEST, looks_every / 4))
        self._given: dict[Visit, str] = {}
        """Calls that may begin, or have, and by which name each holds its place."""
        self._wanted: list[Visit] = []
        self._rules: dict[str, KeyLimit] = {}
        self._ended: dict[str, set[str]] = {}
        """What is to be given back, by the name of its limit."""
        self._closed: dict[str, timedelta] = {}
        """How long suppliers asked to wait, by the names of their limits."""
        self._renewing: asyncio.Task[None] | None = None
        self._is_cut_off = False
        """True since the store could not be asked, which is said once."""
        self.until: datetime | None = None
        """When to ask again for what found no room; none if all may begin."""

    def allowed(self, ready: list[Place], most: int | None, under_way: int) -> list[Place]:
        """Leave out what has to ask first. What could not begin anyhow asks later, and takes no place."""
        found: list[Place] = []
        self._wanted = []
        for scope, i in ready:
            # A map has it per item: by itself it makes no call.
            is_free = scope.plan.nodes[i].limit is None or i in scope.plan.children
            if is_free or self._visit(scope, i) in self._given:
                found.append((scope, i))
            else:
                self._wanted.append(self._visit(scope, i))
        if self._wanted:
            places = [*found, *(visit[:2] for visit in self._wanted)]
            fitting, broken = within_limits(places, most, under_way)
            if broken is None:
                fits = set(fitting)
                self._wanted = [visit for visit in self._wanted if visit[:2] in fits]
        if not self._wanted:
            self.until = None
        return found

    def _visit(self, scope: Scope, i: int) -> Visit:
        return scope, i, scope.attempts[i] + 1

    def _holder(self, visit: Visit) -> str:
        scope, i, attempt = visit
        return f"{self._run.run_id} {scope.path_of(i)}@{scope.visits[i] + 1}#{attempt}"

    async def look(self) -> bool:
        """Give back what is over and ask for what is left out; true if something of it may begin now."""
        if self._ended or self._closed:
            await self._give_back()
        now = self._services.time.now()
        if not self._wanted or (self.until is not None and now < self.until):
            return False
        by_limit: dict[str, list[Visit]] = {}
        limits: dict[str, Limit] = {}
        for visit in self._wanted:
            limit = cast("Limit", visit[0].plan.nodes[visit[1]].limit)
            by_limit.setdefault(limit.name, []).append(visit)
            limits[limit.name] = limit
        self.until, any_given = None, False
        for name, visits in by_limit.items():
            answered = await self._ask(limits[name], visits)
            given = {visit for visit in visits if self._holder(visit) in answered.given}
            self._given |= {visit: self._holder(visit) for visit in given}
            any_given = any_given or bool(given)
            if len(given) < len(visits):
                again = moment_at(answered.until) if answered.until is not None else now + self._pause()
                self.until = again if self.until is None else min(self.until, again)
        if any_given and self._renewing is None:
            self._renewing = asyncio.ensure_future(self._renew())
        return any_given

    def _pause(self) -> timedelta:
        """Return how long to wait for others to end: drives that wait have equal chances."""
        return self._look * (0.5 + self._services.ids.chance())

    async def _ask(self, limit: Limit, visits: list[Visit]) -> Answered:
        rule = self._rules[limit.name] = rule_of(limit)
        asked = [Asked(self._holder(visit), self._weight(limit, visit)) for visit in visits]

        def change(body: bytes | None, now: datetime) -> tuple[bytes | None, Answered]:
            state, answered = ask(KeyState.of(body), rule, asked, micros_at(now), self._ttl)
            return (state.body() if answered.given else body), answered

        try:
            found: Answered = await self._store.change_limit(supplier_key(limit.name), change)
        except StoreUnavailable as error:
            # What counts is not known, so nothing begins; the drive hears of the store at its next put.
            if not self._is_cut_off:
                log.warning("limit %r cannot be asked (%s); retrying", limit.name, error.message)
            self._is_cut_off = True
            return Answered((), None)
        self._is_cut_off = False
        return found

    def _weight(self, limit: Limit, visit: Visit) -> int:
        if isinstance(limit.weight, int):
            return limit.weight
        scope, i, _ = visit
        source = next((p.source for p in scope.plan.nodes[i].params if p.name == limit.weight), limit.weight)
        try:
            value: Any = self._run.space.peek(source, scope.prefix)
        except (KeyError, ValueOutOfReach):
            return 1
        is_number = isinstance(value, (int, float)) and value > 0  # which what is no number is not
        return max(1, int(min(value, MOST_WEIGHT))) if is_number else 1

    def ended(self, call: Call) -> None:
        """Note that a call is over, and what its supplier asked for."""
        holder = self._given.pop((call.scope, call.index, call.attempt), None)
        limit = call.node.limit
        if holder is None or limit is None:
            return
        self._ended.setdefault(limit.name, set()).add(holder)
        if call.error is not None and (pause := asked_pause(call.error)) > timedelta():
            self._closed[limit.name] = max(pause, self._closed.get(limit.name, pause))

    async def _give_back(self) -> None:
        ended, closed = self._ended, self._closed
        self._ended, self._closed = {}, {}
        for name, holders in ended.items():
            rule, pause = self._rules[name], closed.get(name)
            if rule.running is None and pause is None:
                continue

            def change(
                body: bytes | None,
                now: datetime,
                rule: KeyLimit = rule,
                holders: Iterable[str] = holders,
                pause: timedelta | None = pause,
            ) -> tuple[bytes | None, None]:
                until = 0 if pause is None else micros_at(now + pause)
                return give_back(KeyState.of(body), rule, set(holders), micros_at(now), until).body(), None

            with suppress(StoreError):  # it runs out by itself
                await self._store.change_limit(supplier_key(name), change)

    async def _renew(self) -> None:
        """Keep the places of calls under way; a process that dies keeps them no longer than a lease."""
        while True:
            await self._services.system.pause(self._ttl.total_seconds() / 3)  # as leases are renewed
            held: dict[str, set[str]] = {}
            for (scope, i, _), holder in self._given.items():
                limit = scope.plan.nodes[i].limit
                if limit is not None and limit.running is not None:
                    held.setdefault(limit.name, set()).add(holder)
            for name, holders in held.items():
                with suppress(StoreError):
                    await self._prolong(name, holders)

    async def _prolong(self, name: str, holders: set[str]) -> None:
        rule, ttl = self._rules[name], self._ttl

        def change(body: bytes | None, now: datetime) -> tuple[bytes | None, None]:
            return prolong(KeyState.of(body), rule, holders, micros_at(now), ttl).body(), None

        await self._store.change_limit(supplier_key(name), change)

    def sooner(self, until: datetime | None) -> datetime | None:
        """Return when to look again: at a pause's end, or when there may be room."""
        return min((at for at in (until, self.until) if at is not None), default=None)

    async def close(self) -> None:
        """Give everything back: the run has ended, halted, or is let go of."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        for (scope, i, _), holder in self._given.items():
            limit = scope.plan.nodes[i].limit
            if limit is not None:
                self._ended.setdefault(limit.name, set()).add(holder)
        self._given.clear()
        with suppress(EverstepError):
            await self._give_back()
