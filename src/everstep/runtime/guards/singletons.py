"""What becomes of a start whose key another run has. Apart: most flows have no singleton.

Before its run is admitted a start writes it down under the key, in one act that shows the others there. A run
that is written down and not there is about to be; who finds it too late takes its id, so it never will be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

from everstep.engine.limits.rates import micros_at, micros_of, moment_at
from everstep.engine.limits.slots import (
    Entered,
    Standing,
    debounced_name,
    enter,
    leave,
    slot_name,
    stand_for,
    standing,
)
from everstep.errors import EverstepError, KeyTaken, RunNotFound
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.graph.limits import Debounce, Singleton
from everstep.model.enums import Status
from everstep.model.leases import ALONE, Slot, slots_of
from everstep.ports.limits import LimitingStore
from everstep.ports.retention import RetainingStore
from everstep.ports.store import RunRow, StopRequest, Verdict
from everstep.runtime.guards.slots import write_down
from everstep.runtime.inputs import Given, draft_run
from everstep.runtime.services import Services

LOOK = 0.05
"""Seconds between two looks at a start that is under way."""
FLOW_ID = "everstep.given-up"
"""The flow of runs that take the ids of starts that were given up. No worker has it."""
_WHY = "its start was given up, as it had not admitted it in time"


def _never() -> None:
    """Stand for what such a run would do; it is never called."""


class BegunRow(RunRow, frozen=True, kw_only=True, omit_defaults=True):
    """The row of a run whose flow has a singleton, and what its start came to."""

    joined: bool = False
    """True if the run was there, and has the key."""
    replaced: tuple[str, ...] = ()
    """The runs that were cancelled for it."""


def begun(row: RunRow, *, joined: bool = False, replaced: Sequence[str] = ()) -> BegunRow:
    """Return a row with what a start came to."""
    known = {name: getattr(row, name) for name in RunRow.__struct_fields__}
    return BegunRow(**known, joined=joined, replaced=tuple(replaced))


class Key:
    """A key that one run has at a time, for one start."""

    def __init__(self, services: Services, flow_id: str, key: str, run_id: str) -> None:
        self._services = services
        self._store = cast(LimitingStore, services.store)
        self._flow_id = flow_id
        self._key = key
        self._name = slot_name(flow_id, key)
        self._run_id = run_id

    async def take(self, rule: Singleton, cancel: Callable[[str], Awaitable[Any]]) -> RunRow | list[str]:
        """Write the run down; returns those that were cancelled for it, or the one to join.

        Raises `KeyTaken` if there is another and the start is to be refused.
        """
        replaces, joins = rule.on_conflict == "replace", rule.on_conflict == "join"
        while True:
            others = await self._enter(needs_free=not replaces, waits=replaces or joins)
            if replaces:
                await self._replace(others, cancel)
            elif others and not joins:
                raise self._taken(others[0])
            elif others:
                row = await self._services.store.run(others[0])
                if row is None:
                    continue
                return row
            return others

    async def _replace(self, others: Sequence[str], cancel: Callable[[str], Awaitable[Any]]) -> None:
        try:
            for other in others:
                with suppress(RunNotFound):  # it was erased meanwhile
                    await cancel(other)
        except EverstepError:  # one was moved to another store, or cannot be reached
            await self.leave()
            raise

    async def push(self) -> None:
        """Write a run down that is there, and was not asked whether it may be."""
        await write_down(self._store, self._name, self._run_id)

    async def stop_others(self) -> None:
        """Ask the runs to stop that have the key."""
        for other in await self._store.change_limit(self._name, lambda body, now: (body, slots_of(body))):
            if other.run_id != self._run_id:
                await self._services.store.request_stop(other.run_id, StopRequest.CANCEL)
                await self._services.ring(other.run_id, self._flow_id)

    async def leave(self) -> None:
        """Strike the run out again, as it was not admitted."""
        with suppress(EverstepError):  # who finds it looks whether it is there
            await self._store.change_limit(self._name, lambda body, now: (leave(body, self._run_id), None))

    def _taken(self, other: str) -> KeyTaken:
        key = self._key.removeprefix(ALONE)
        return KeyTaken(
            f"run {other!r} of flow {self._flow_id!r} has the key {key!r}, and has not ended.",
            fix=f"Wait until it has: everstep show {other}. With Singleton(..., on_conflict=...) a start may "
            "join it, replace it, or queue.",
            key=key,
            run_id=other,
        )

    async def _enter(self, *, needs_free: bool, waits: bool) -> list[str]:
        """Write the run down, once the key is free if it has to be; returns unfinished runs that have it.

        Who has to know a run waits for its start.
        """
        over: set[Slot] = set()
        while True:
            entered = await self._ask(over, needs_free=needs_free)
            unfinished, is_starting = list[str](), False
            for slot in entered.others:
                found = await self._standing(slot, entered.now)
                if found is Standing.GIVEN_UP and await self._give_up(slot.run_id):
                    found = Standing.OVER
                if found is Standing.OVER:
                    over.add(slot)
                elif found is Standing.UNFINISHED or not waits:
                    unfinished.append(slot.run_id)
                else:
                    is_starting = True
            if is_starting:
                await self._services.system.pause(LOOK)
            elif unfinished or entered.is_in:
                return unfinished

    async def _ask(self, over: set[Slot], *, needs_free: bool) -> Entered:
        def change(body: bytes | None, now: datetime) -> tuple[bytes, Entered]:
            return enter(body, self._run_id, micros_at(now), over, needs_free=needs_free)

        entered: Entered = await self._store.change_limit(self._name, change)
        return entered

    async def _standing(self, slot: Slot, now: int) -> Standing:
        store, row = self._services.store, await self._services.store.run(slot.run_id)
        is_over = row is not None and row.status.is_final and not _is_held(row, now)
        if row is None and store.capabilities.retains:
            is_over = await cast(RetainingStore, store).tombstone(slot.run_id) is not None
        return standing(slot, now, is_there=row is not None, is_over=is_over)

    async def _give_up(self, run_id: str) -> bool:
        """Take the id of a run that was never admitted; false if it was, meanwhile."""
        services, flow = self._services, Flow(FLOW_ID, [Node(_never, name="never")], durability="strong")
        journal, _, _, drafts = await draft_run(services, flow, Given({}), run_id)
        if await journal.admit(drafts, services.ids.new_id()) is not Verdict.ACCEPTED:
            return False
        await journal.call_off()
        if services.store.capabilities.retains:
            store = cast(RetainingStore, services.store)
            await store.erase(run_id, head=journal.head.sequence, reason=_WHY)
        return True


class Soon(Key):
    """A key of which starts in quick succession are one run, for one start. What has begun does not count."""

    def __init__(self, services: Services, flow_id: str, key: str, run_id: str) -> None:
        super().__init__(services, flow_id, key, run_id)
        self._name = debounced_name(flow_id, key)

    async def wait_for_more(self, rule: Debounce) -> tuple[list[RunRow], datetime]:
        """Write the run down; returns the runs that have yet to begin, and when it begins itself."""
        span, most = map(micros_of, rule.spans())
        pending: dict[str, RunRow] = {}
        for other in await self._enter(needs_free=False, waits=True):
            if (row := await self._services.store.run(other)) is not None:
                pending[other] = row

        def stand(body: bytes | None, now: datetime) -> tuple[bytes | None, int]:
            first = [one.since or one.at for one in slots_of(body) if one.run_id in pending]
            at = micros_at(now)
            if not first:
                return body, at + span
            return stand_for(body, self._run_id, min(first)), min(at + span, min(first) + most)

        begins: int = await self._store.change_limit(self._name, stand)
        return list(pending.values()), moment_at(begins)

    async def _standing(self, slot: Slot, now: int) -> Standing:
        row = await self._services.store.run(slot.run_id)
        if row is not None and not is_yet_to_begin(row):
            return Standing.OVER
        return await super()._standing(slot, now)


def is_yet_to_begin(row: RunRow) -> bool:
    """True of a run that was accepted to begin later, and has not."""
    return row.status is Status.HALTED and row.checkpoints == 1


def _is_held(row: RunRow, now: int) -> bool:
    """True if a process has a run that has ended: it may be about to go on."""
    return row.lease is not None and micros_at(row.lease.expires_at) > now
