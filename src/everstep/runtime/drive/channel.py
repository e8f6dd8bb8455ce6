"""The channel of one run in this process: what was recorded of it, its locks, and changes on their way in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.errors import BadRequest, NodeTimeout, ValueNotStorable
from everstep.graph.author.channel import MISSING, RESULT_SUFFIX, Channel, ChannelOp, snapshot
from everstep.graph.author.channel import apply as apply_op
from everstep.model.enums import ValueForm
from everstep.model.records import CHANNEL
from everstep.ports.system import Condition, System
from everstep.runtime.drive.invoke import Call
from everstep.runtime.drive.values import Slot, ValueSpace


class ChannelDesk:
    """Reads the channel for nodes, holds its locks, and drafts what they changed."""

    def __init__(
        self,
        state: RunState,
        space: ValueSpace,
        system: System,
        plain_attributes: Callable[[], Collection[str] | None] = lambda: None,
    ) -> None:
        self._state = state
        self._space = space
        self.plain_attributes = plain_attributes
        """Says which attributes may be readable in the store; none says that all may."""
        self._clock = system.clock
        self._locks = Locks(system.condition())

    def seen_from(self, scope: Scope) -> View:
        """Return the channel as the nodes of one flow see it."""
        return View(self, scope)

    def release(self, call: Call) -> None:
        """Let go of what a node held, now that its step is recorded or it has failed."""
        if self._locks.holders:
            self._locks.release(call)

    def find(self, key: str, now: datetime) -> Slot | None:
        """Return the slot of a key that is there and has not expired."""
        slot = self._space.areas.get(CHANNEL, {}).get(key)
        return None if slot is None or slot.written.has_expired(now) else slot

    def read(self, scope: Scope, key: str) -> Any:
        """Return a copy of a key's value, or of the result of a node; KeyError if there is none."""
        if key.endswith(RESULT_SUFFIX):
            return self._result(scope, key.removesuffix(RESULT_SUFFIX))
        if self.find(key, self._clock.now()) is None:
            raise KeyError(key)
        value = self._space.peek(key, CHANNEL)
        return value if self._space.keeps else snapshot(key, value)

    def _result(self, scope: Scope | None, name: str) -> Any:
        while scope is not None:
            i = scope.plan.index.get(name)
            if i is not None:
                area = self._space.areas.get(scope.prefix, {})
                outputs = scope.plan.nodes[i].outputs
                if not outputs or any(o not in area for o in outputs):
                    break
                values = tuple(self._space.peek(o, scope.prefix) for o in outputs)
                return values[0] if len(values) == 1 else values
            scope = scope.parent
        raise KeyError(name + RESULT_SUFFIX)

    def keys(self) -> list[str]:
        now = self._clock.now()
        return [key for key in tuple(self._space.areas.get(CHANNEL, {})) if self.find(key, now) is not None]

    def check(self, key: str, value: Any) -> None:
        """Raise ValueNotStorable if the value cannot be kept, and is to be."""
        if self._space.keeps:
            self._space.encoded(key, value)

    @property
    def locks(self) -> Locks:
        return self._locks

    def drafts(self, ops: Iterable[ChannelOp], now: datetime) -> list[Slot]:
        """Encode a node's changes, to be applied to what the channel holds by now."""
        grouped: dict[str, list[ChannelOp]] = {}
        for op in ops:
            grouped.setdefault(op.key, []).append(op)
        return [slot for key, ops in grouped.items() for slot in self._checked(key, ops, now)]

    def _checked(self, key: str, ops: list[ChannelOp], now: datetime) -> list[Slot]:
        try:
            return self._draft(key, ops, now)
        except ValueNotStorable as error:
            raise ValueNotStorable(
                f"channel key {key!r}: {error.message}", fix="Put data in the channel, or register its type."
            ) from error

    def _draft(self, key: str, ops: list[ChannelOp], now: datetime) -> list[Slot]:
        found, space, name = self.find(key, now), self._space, CHANNEL + key
        version = 1 + (found.written.version if found is not None else 0)
        op = ops[0]
        if op.kind == "delete":
            return [space.change(name, version, None, ValueForm.DELETED)]
        if op.kind == "set" or (found is None and op.kind != "add"):
            value: Any = MISSING
            for each in ops:
                value = apply_op(each, value)
            slot = space.change(name, version, value, ValueForm.WHOLE)
            return [_until(slot, now + op.ttl) if op.ttl is not None else slot]
        before: Any = space.peek(key, CHANNEL) if found is not None else MISSING
        old = before
        for each in ops:
            old = apply_op(each, old)  # refuses what no longer fits, before anything is recorded
        expires_at = found.written.expires_at if found is not None else None
        if not space.keeps:
            return [_until(space.change(name, version, old, ValueForm.WHOLE), expires_at)]
        front = [each.value for each in reversed(ops) if each.kind == "prepend"]
        back = [each.value for each in ops if each.kind == "append"]
        slots = []
        if op.kind == "add":
            # An expired number is still in its place: the sum starts anew.
            is_fresh = found is None
            form = ValueForm.WHOLE if is_fresh else ValueForm.ADD
            slots.append(space.change(name, version, op.value, form))
            if not is_fresh:
                space.foresee(slots[-1], old)
        if front:
            slots.append(space.change(name, version, front, ValueForm.PREPEND))
            space.foresee(slots[-1], [*front, *before])
        if back:
            slots.append(space.change(name, version + bool(front), back, ValueForm.APPEND))
        return [_until(slot, expires_at) for slot in slots]


def _until(slot: Slot, expires_at: datetime | None) -> Slot:
    if expires_at is not None:
        slot.written = msgspec.structs.replace(slot.written, expires_at=expires_at)
        if slot.whole is not None:
            slot.whole = slot.written
    return slot


class View:
    """The channel as seen from one flow."""

    def __init__(self, desk: ChannelDesk, scope: Scope) -> None:
        self._desk = desk
        self._scope = scope

    def read(self, key: str) -> Any:
        return self._desk.read(self._scope, key)

    def keys(self) -> list[str]:
        return self._desk.keys()

    def check(self, key: str, value: Any) -> None:
        self._desk.check(key, value)

    def lock(self, key: str, owner: object, timeout: float) -> None:
        self._desk.locks.take(key, owner, timeout)

    async def lock_async(self, key: str, owner: object, timeout: float) -> None:
        await self._desk.locks.take_async(key, owner, timeout)


class Locks:
    """Who holds which key, among the nodes that run in this process."""

    def __init__(self, free: Condition) -> None:
        self._free = free
        self.holders: dict[str, object] = {}
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def take(self, key: str, owner: object, timeout: float) -> None:
        """Hold a key, waiting for its holder."""
        with self._free:
            if not self._free.wait_for(lambda: self._try(key, owner), timeout):
                raise _too_long(key, timeout)

    async def take_async(self, key: str, owner: object, timeout: float) -> None:
        """Do the same without blocking the loop."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                while True:
                    with self._free:
                        if self._try(key, owner):
                            return
                        freed: asyncio.Future[None] = loop.create_future()
                        self._waiting.append((loop, freed))
                    await freed
        except TimeoutError:
            raise _too_long(key, timeout) from None

    def _try(self, key: str, owner: object) -> bool:
        if getattr(owner, "is_dropped", False):  # it would never be released
            raise BadRequest(f"the node that asks for the lock of channel key {key!r} was called off.")
        return self.holders.setdefault(key, owner) is owner

    def release(self, owner: object) -> None:
        """Let go of every key that is held."""
        with self._free:
            self.holders = {key: held for key, held in self.holders.items() if held is not owner}
            self._free.notify_all()
            waiting, self._waiting = self._waiting, []
        for loop, freed in waiting:
            loop.call_soon_threadsafe(_set, freed)


def _set(freed: asyncio.Future[None]) -> None:
    if not freed.done():
        freed.set_result(None)


def _too_long(key: str, timeout: float) -> NodeTimeout:
    return NodeTimeout(
        f"the lock of channel key {key!r} was not free for {timeout:g} s.",
        fix="Two nodes may wait for each other: take locks in the same order, or give a longer timeout.",
    )


def first_values(
    state: RunState,
    space: ValueSpace,
    system: System,
    values: Mapping[str, Any],
    types: Mapping[str, Any] | None,
) -> list[Slot]:
    """Encode what a run's channel begins with."""
    desk = ChannelDesk(state, space, system)
    channel = Channel(desk.seen_from(state), desk, types)
    for key, value in values.items():
        channel.set(key, value)
    return desk.drafts(channel.ops, system.clock.now())
