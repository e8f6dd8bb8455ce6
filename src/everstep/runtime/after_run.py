"""Retention after each run that has ended: beside the driven runs, a bounded piece at a time.

The core calls it; what removes runs is loaded when a rule asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from everstep.errors import BadRequest, EverstepError
from everstep.graph.author.flow import Flow
from everstep.model.acts import Act
from everstep.model.removal import Removal
from everstep.model.retention import Retention
from everstep.on_demand import on_demand
from everstep.ports.retention import RetainingStore
from everstep.ports.store import RunFilter, RunRow
from everstep.ports.system import System, Thread
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.runtime.at_rest import RestingRuns
    from everstep.runtime.outage.outbox import is_short
else:
    is_short = on_demand("everstep.runtime.outage.outbox:is_short")


log = logging.getLogger("everstep")
SPARE = 16
"""How many runs behind those that are kept are looked at each time: the one that is too many now is there."""
PIECE = 64
"""How many of the others are looked at each time; one piece after the other, then from the beginning."""
PATIENCE = 30.0
"""Seconds that closing a host waits for what is under way."""
AT_LAST = 30.0
"""Seconds more for the one run that is looked at then."""


def retaining_store(services: Services) -> RetainingStore:
    """Return the store as one whose runs can be removed, or say that they cannot."""
    if not services.store.capabilities.retains:
        raise BadRequest("this store cannot pin or remove runs.", fix="Keep runs in another one.")
    return cast(RetainingStore, services.store)


async def note_act(
    services: Services, what: str, run_id: str, flow_id: str, act: Act | None, reason: str = ""
) -> None:
    """Note what was done to a run that leaves no record, and who did it; where there is no log, nothing."""
    if services.store.capabilities.retains:
        now = services.clock.now()
        line = Removal(at=now, what=what, run_id=run_id, flow_id=flow_id, reason=reason, act=act)
        await retaining_store(services).note(line)


def flow_policy(host: Retention, flow: Flow) -> Retention:
    """Return the rules that runs of a flow are kept by: its own, or the host's."""
    return (flow.retention or host).with_durability(flow.durability)


class Collecting(Protocol):
    """Applies the rules to one run after the other."""

    found: Any
    """What it has done; `problems` are what went wrong."""

    async def one(self, row: RunRow, rank: int) -> None: ...


class _Place(msgspec.Struct, frozen=True):
    before: str | None
    rank: int


class Afterwards:
    """Applies the rules of flows on a thread of its own, once however many runs of a flow have ended."""

    def __init__(
        self,
        policy: Retention,
        make: Callable[[], tuple[Services, RestingRuns]],
        system: System,
        collector: Callable[..., Collecting],
    ) -> None:
        self._policy = policy
        self._keeps_all = policy.keeps_all
        self._make = make
        self._system = system
        self._collector = collector
        """Makes what removes runs; called when there is something to remove by."""
        self._lock = system.lock()
        self._waiting: dict[str, Flow] = {}
        self._places: dict[str, _Place] = {}
        self._thread: Thread | None = None
        self._is_closed = False
        self._is_stopped = False
        """True once a host that closes waits no longer: the store is about to go."""

    def note(self, flow: Flow) -> None:
        """Say that a run of a flow has ended. Returns at once."""
        if self._keeps_all and flow.retention is None and flow.durability.retain_completed_for is None:
            return
        policy = flow_policy(self._policy, flow)
        if not (policy.counts or policy.keep_for is not None or policy.completed_for is not None):
            return
        with self._lock:
            if self._is_closed:
                return
            self._waiting[flow.name] = flow
            if self._thread is None:
                self._thread = self._system.spawn(self._work, "everstep-retention")

    def _work(self) -> None:
        services, runs = self._make()
        with self._system.runner() as runner:
            while True:
                with self._lock:
                    if not self._waiting or self._is_stopped:
                        self._thread = None
                        return
                    flow = self._waiting.pop(next(iter(self._waiting)))
                try:
                    runner.run(self._apply(services, runs, flow))
                except Exception:
                    log.exception("retention of flow %r failed; its runs are not affected", flow.name)

    async def _apply(self, services: Services, runs: RestingRuns, flow: Flow) -> None:
        collector = self._collector(services, runs, self._policy, {flow.name: flow})
        policy = flow_policy(self._policy, flow)
        try:
            place = _Place(None, 0)
            if policy.counts:
                first = (policy.keep_last or policy.whole or 0) + SPARE
                place = await self._piece(services, collector, flow, place, first)
            if place.before is not None or not policy.counts:  # else those were all
                place = self._places.get(flow.name, place)
                self._places[flow.name] = await self._piece(services, collector, flow, place, PIECE)
        except EverstepError as error:
            log.warning("retention of flow %r stopped: %s", flow.name, error)
        for problem in collector.found.problems:
            log.warning("retention: %s", problem)

    async def _piece(
        self, services: Services, collector: Collecting, flow: Flow, place: _Place, limit: int
    ) -> _Place:
        """Apply the rules to the next runs of a flow; returns where to go on, or the beginning."""
        wanted = RunFilter(flow_id=flow.name, limit=limit, before=place.before)
        rows = await services.store.list(wanted)
        # A run that began since is not counted: the ranks are then too small, and more is kept.
        for rank, row in enumerate(rows, place.rank + 1):
            if self._is_stopped or is_short(services.store):
                return place
            await collector.one(row, rank)
        if len(rows) < limit:
            return _Place(None, 0)
        return _Place(rows[-1].run_id, place.rank + len(rows))

    async def close(self) -> None:
        """Let what is under way come to its end."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            await self._system.to_thread(thread.join, PATIENCE)
            self._is_stopped = True  # what is left is done after another run
            await self._system.to_thread(thread.join, AT_LAST)
