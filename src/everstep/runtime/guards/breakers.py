"""The breakers of one drive: which nodes each guards, how each stands, what happened to it. Apart from
budgets, which flows have without them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from everstep.engine import breaking
from everstep.engine.breaking import Happened
from everstep.engine.scope import Scope
from everstep.graph.author.guards import BREAKER
from everstep.model.address import plain_of
from everstep.model.budgets import SECONDS, seconds_of
from everstep.model.enums import Status
from everstep.model.ledger import BreakerAt, BreakerState
from everstep.model.records import StepRecord
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.invoke import Call
from everstep.runtime.guards.shared_breakers import TRIAL, SharedBreakers, is_stale

_CLOSED = BreakerAt()


class Breakers:
    """The breakers of a flow, in the order in which they matter."""

    def __init__(self, run: RunContext, shared: SharedBreakers | None) -> None:
        self.rules = {rule.name: rule for rule in run.flow.breakers}
        self._state = run.state
        self._space = run.space
        self._clock = run.clock
        self._shared = shared
        self.calls: Mapping[Any, Call] = {}
        """What is under way."""
        self._told: list[tuple[str, Happened]] = []
        """What happened to shared ones, and is still to be told."""
        self._approved: list[str] = []
        self._trials: set[str] = set()
        """Shared ones that this drive may try."""

    def at(self, name: str) -> BreakerAt:
        """Return how a breaker stands, as far as is known here."""
        if self.rules[name].shared and self._shared is not None:
            return self._shared.seen(name)
        return self._state.books.breakers.get(name, _CLOSED)

    def guards(self, name: str, scope: Scope, i: int) -> bool:
        """True if a breaker guards a node: it is one of those named, or none is named."""
        node, nodes = scope.plan.nodes[i], self.rules[name].nodes
        if node.is_built_in or i in scope.plan.meetings:
            return False
        return nodes is None or node.name in nodes or plain_of(scope.path_of(i)) in nodes

    def stops(self, scope: Scope, i: int, under_way: Call | None = None) -> str | None:
        """Return the breaker that keeps a node from starting, the first of them.

        One that is `under_way` may be the try itself, and is not held up by it.
        """
        for name in self.rules:
            if self.guards(name, scope, i) and self._is_shut(name, under_way):
                return BREAKER + name
        return None

    def is_tried(self, name: str, apart_from: Call | None = None) -> bool:
        """True while a call tries whether what a breaker guards works again: others wait for it."""
        if self.at(name).state is not BreakerState.HALF_OPEN:
            return False
        calls = tuple(self.calls.values())  # at once: the thread of a node may ask
        return any(self.guards(name, call.scope, call.index) for call in calls if call is not apart_from)

    def is_tried_by(self, calls: Sequence[Call], scope: Scope, i: int) -> bool:
        """True if one of these calls, which are about to be made, is the try that a node would be, too."""
        tries = [call for call in calls if call.error is None and call.asks is None]
        return bool(tries) and any(
            self.at(name).state is BreakerState.HALF_OPEN
            and self.guards(name, scope, i)
            and any(self.guards(name, call.scope, call.index) for call in tries)
            for name in self.rules
        )

    def _is_shut(self, name: str, under_way: Call | None) -> bool:
        state = self.at(name).state
        if state is BreakerState.HALF_OPEN:
            is_ours = not self.rules[name].shared or self._shared is None or name in self._trials
            return not is_ours or self.is_tried(name, under_way)
        return state is BreakerState.OPEN

    def rested(self) -> dict[str, BreakerAt]:
        """Return the run's own breakers whose cooldown is over, as they stand then."""
        now = self._clock.now()
        return {
            name: breaking.half_open(self.at(name), now)
            for name, rule in self.rules.items()
            if not rule.shared and breaking.is_rested(rule, self.at(name), now)
        }

    # -- what happens -------------------------------------------------------------------------------------

    def after_step(self, call: Call, step: StepRecord) -> dict[str, BreakerAt]:
        """Return how the run's own breakers stand after a call, those that changed."""
        if not call.is_made or step.status not in (Status.COMPLETED, Status.RETRYING, Status.FAILED):
            return {}
        if call.is_again or call.answers is not None:
            return {}  # no function was called
        took = seconds_of(max(call.ended_at - call.started_at, timedelta(0)))
        happened = Happened(
            now=call.ended_at,
            ok=step.status is Status.COMPLETED,
            costs={SECONDS: took},
            decided=self._decided(call, step),
        )
        return self._after(call, happened)

    def after_spending(self, call: Call, amounts: Mapping[str, Decimal]) -> dict[str, BreakerAt]:
        """Return how they stand after a call under way has spent something."""
        return self._after(call, Happened(now=self._clock.now(), costs=dict(amounts)))

    def _after(self, call: Call, happened: Happened) -> dict[str, BreakerAt]:
        changed: dict[str, BreakerAt] = {}
        for name in self.rules:
            if self.guards(name, call.scope, call.index):
                self._let(name, happened, changed)
        self._follow_trips(changed, happened.now)
        return changed

    def _let(self, name: str, happened: Happened, changed: dict[str, BreakerAt]) -> None:
        """Let something happen to a breaker: note how it stands then, or that the others are to be told."""
        rule, before = self.rules[name], self.at(name)
        now = breaking.after(rule, before, happened)
        if now == before and not any(name == untold for untold, _ in self._told):
            return
        if rule.shared and self._shared is not None:
            self._told.append((name, happened))
        else:
            changed[name] = now

    def _follow_trips(self, changed: dict[str, BreakerAt], now: datetime) -> None:
        """Open the breakers that count how many others have opened, in whatever order they are declared.

        Only a breaker that has just opened is a reason to count, so one that was closed by hand stays closed.
        """
        has_opened = any(at.state is BreakerState.OPEN for at in changed.values())
        while has_opened:
            has_opened = False
            for name, rule in self.rules.items():
                before = changed.get(name) or self.at(name)
                if rule.trips is None or before.state is not BreakerState.CLOSED:
                    continue
                happened = Happened(now=now, others=self._others(name, changed))
                if breaking.after(rule, before, happened).state is not BreakerState.OPEN:
                    continue
                if rule.shared and self._shared is not None:
                    if (name, happened) not in self._told:
                        self._told.append((name, happened))
                else:
                    changed[name] = breaking.after(rule, before, happened)
                    has_opened = True

    def _others(self, name: str, changed: Mapping[str, BreakerAt]) -> int:
        """Return how many other breakers have ever opened."""
        return sum((changed.get(n) or self.at(n)).trips > 0 for n in self.rules if n != name)

    def _decided(self, call: Call, step: StepRecord) -> tuple[str, tuple[str, ...]] | None:
        """Return what a gate read, as a digest, and what it chose."""
        if step.decision is None or not call.node.is_gate:
            return None
        told = hashlib.sha256(plain_of(call.path).encode())
        area = self._space.areas.get(call.scope.prefix, {})
        for source, version in sorted(call.reads.items()):
            slot = area.get(source)
            if slot is None or slot.written.version != version:
                return None
            told.update(source.encode() + b"\0" + slot.digest())
        return told.hexdigest()[:32], step.decision

    # -- shared ones --------------------------------------------------------------------------------------

    @property
    def has_shared(self) -> bool:
        """True if some of them stand alike in other runs."""
        return self._shared is not None and any(rule.shared for rule in self.rules.values())

    async def look(self, is_asked: Callable[[str], bool]) -> dict[str, BreakerAt]:
        """Find out how shared breakers stand, unless that is known; try those that have rested.

        Where a person is asked, their answer says who tries: a probe that is never made would keep others
        waiting. Returns those that stand otherwise than the run has on record.
        """
        assert self._shared is not None
        known, found = self._state.books.breakers, dict[str, BreakerAt]()
        for name, rule in self.rules.items():
            if rule.shared:
                at, now = await self._shared.look(name), self._clock.now()
                is_free = breaking.is_rested(rule, at, now) or (
                    name not in self._trials and is_stale(at, now)
                )
                if is_free and not is_asked(BREAKER + name):
                    await self._try(name)
                if self.at(name).state is not known.get(name, _CLOSED).state:
                    found[name] = self.at(name)
        if found:
            self._follow_trips(found, self._clock.now())
        return found

    def approve(self, name: str) -> None:
        """Note that a person lets this drive try what a breaker guards."""
        rule = self.rules.get(name)
        if rule is not None and rule.shared and self._shared is not None:
            self._approved.append(name)

    async def _try(self, name: str) -> None:
        """Let this drive try, if no other was quicker."""
        assert self._shared is not None
        if await self._shared.half_open(name, self._clock.now()):
            self._trials.add(name)

    @property
    def has_news(self) -> bool:
        """True if there is something to tell the others."""
        return bool(self._told or self._approved)

    def until(self, name: str) -> datetime | None:
        """Return when what a breaker guards may be tried without a person."""
        at, rest = self.at(name), self.rules[name].rest
        if at.since is None:
            return None
        if at.state is BreakerState.HALF_OPEN:
            return at.since + TRIAL
        return None if rest is None else at.since + rest

    async def tell(self) -> dict[str, BreakerAt]:
        """Tell the others what happened here; returns those that opened, or closed, because of it.

        What could not be told is told the next time.
        """
        assert self._shared is not None
        while self._approved:
            await self._try(self._approved[0])
            del self._approved[0]
        found: dict[str, BreakerAt] = {}
        while self._told:
            name, happened = self._told[0]
            before, now = await self._shared.change(name, self.rules[name], happened)
            del self._told[0]
            if now.state is not before.state:
                self._trials.discard(name)
                found[name] = now
                self._follow_trips(found, happened.now)
        return found
