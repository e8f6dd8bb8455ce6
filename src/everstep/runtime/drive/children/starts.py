"""The runs that one drive has started: each is admitted once the record that says so is in the store.

A start that is recorded is owed until its run is there. It is paid before the node's visit ends, and before
the run ends or halts; who takes a run over pays what its owner before did not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from everstep.errors import StoreUnavailable
from everstep.graph.author.flow import Flow
from everstep.model.enums import Trigger
from everstep.runtime.drive.children.admitting import admit, flow_of
from everstep.runtime.drive.children.orders import ChildOrder, recorded_starts
from everstep.runtime.drive.context import RunContext


def starts_of(run: RunContext) -> Starts:
    """Return what the drive of a run owes, made now unless it is."""
    found = run.journal.starts
    if not isinstance(found, Starts):  # of two threads that make it, one is kept
        found = vars(run.journal).setdefault("starts", Starts(run))
    return found


class Starts:
    """What one drive owes of the runs that its nodes have started."""

    def __init__(self, run: RunContext) -> None:
        self._services, self._flow, self._loop = run.services, run.flow, run.loop
        self._journal, self._state, self._space = run.journal, run.state, run.space
        self._owed: dict[str, ChildOrder] = {}
        self._admitted: set[str] = set()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self.told: Callable[[str, Flow], None] | None = run.journal.on_started
        """Told of each run that is there now, on the drive's loop."""

    @property
    def owes(self) -> bool:
        """True if a recorded start has no run yet, as far as this drive knows."""
        return bool(self._owed)

    def recall(self) -> None:
        """Owe what the records say that visits under way have started: an owner may have died before."""
        for order in recorded_starts(self._state, self._space):
            self.owe(order)

    def owe(self, order: ChildOrder) -> None:
        """Note a start that is recorded, and perhaps not written yet."""
        if order.run_id not in self._admitted:
            self._owed[order.run_id] = order

    def is_there(self, run_id: str) -> bool:
        """True if this drive knows that the run is there."""
        return run_id in self._admitted

    async def admit(self, order: ChildOrder) -> None:
        """Admit the run of a start that is in the store, unless it is there; on the drive's loop.

        Who waits for it may be cancelled: it is admitted all the same.
        """
        if order.run_id in self._admitted:
            return
        task = self._under_way.get(order.run_id)
        if task is None:
            task = self._under_way[order.run_id] = self._loop.create_task(self._admit(order))
            task.add_done_callback(partial(self._done, order.run_id))
        await asyncio.shield(task)

    def _done(self, run_id: str, task: asyncio.Task[None]) -> None:
        self._under_way.pop(run_id, None)
        if not task.cancelled():
            task.exception()  # who waits for it hears of it, and who pays tries again

    async def _admit(self, order: ChildOrder) -> None:
        if self._journal.outbox is not None:
            await self._journal.persist(self._in_store)
        flow = flow_of(self._services, self._flow, order)
        await self._journal.persist(partial(admit, self._services, flow, order))
        self._note(order, flow)

    async def _in_store(self) -> None:
        if await self._journal.empty_outbox():
            raise StoreUnavailable(
                f"the store is out of reach, and what run {self._journal.run_id!r} starts waits for it.",
                fix="Resume it when the store is back.",
            )

    def _note(self, order: ChildOrder, flow: Flow) -> None:
        self._admitted.add(order.run_id)
        self._owed.pop(order.run_id, None)
        if self.told is not None:
            self.told(order.run_id, flow)

    def admit_blocking(self, order: ChildOrder, *, holds_loop: bool) -> None:
        """Do that from a thread of a sync node, or from the loop's own while the node holds it up."""
        if order.run_id in self._admitted:
            return
        system = self._services.system
        if holds_loop:  # so another has to write it
            asked: Future[Any] = self._services.pool.submit_apart(partial(self._admit_elsewhere, order))
        else:
            asked = asyncio.run_coroutine_threadsafe(self.admit(order), self._loop)
        system.wait_for([asked])
        asked.result()
        if holds_loop:
            self._note(order, flow_of(self._services, self._flow, order))

    def _admit_elsewhere(self, order: ChildOrder) -> None:
        services = self._services.twin()
        with services.system.runner() as runner:
            flow = flow_of(services, self._flow, order)
            if self._journal.outbox is not None:
                runner.run(self._journal.persist(self._in_store))
            runner.run(self._journal.persist(partial(admit, services, flow, order)))

    async def pay(self) -> None:
        """Admit all that is owed, once what says so is written."""
        if self._owed and self._journal.steps:
            await self._journal.flush(Trigger.UNIT)
        for order in list(self._owed.values()):
            await self.admit(order)

    async def at_rest(self) -> None:
        """Let what is under way come to its end: a run that is cancelled starts nothing more after that."""
        if self._under_way:
            await asyncio.wait([*self._under_way.values()])
