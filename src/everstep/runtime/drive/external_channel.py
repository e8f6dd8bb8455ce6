"""The channel of a run that is kept beside its chain.

What a checkpoint changes is staged before its put and comes into force after it. A new owner
looks in the chain whether a staged checkpoint was written: a step and its changes happen both or not at all.
"""

from __future__ import annotations

import logging
from copy import copy
from functools import partial
from typing import Any

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.records import read_channel_entry
from everstep.codec.sealing import close_values, open_values
from everstep.errors import BadRequest, ServiceMissing, StoreError
from everstep.model.durability import Durability
from everstep.model.records import CHANNEL, KEPT, ArtifactRef, CheckpointRecord, StepRecord, Written
from everstep.ports.beside import ChannelStore
from everstep.runtime.drive.values import Slot, ValueSpace
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.services import Services

log = logging.getLogger("everstep")
Changes = dict[str, bytes | None]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[tuple[Written, ...], list[bytes]]).decode


class Elsewhere:
    """What the owner of a run changes in its channel, on the way there."""

    def __init__(self, store: ChannelStore, run_id: str, space: ValueSpace, codecs: Codecs) -> None:
        self._store = store
        self._codecs = codecs
        self._run_id = run_id
        self._space = space
        self._changed: set[str] = set()
        self._staged: dict[str, Changes] = {}
        space.hidden.add(CHANNEL)  # no keyframe holds it

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def keep_out(self, step: StepRecord, drafts: tuple[Slot, ...]) -> tuple[StepRecord, tuple[Slot, ...]]:
        """Return what of a step the chain keeps; the rest is for the channel."""
        names = {w.name.removeprefix(CHANNEL) for w in step.writes if w.name.startswith(CHANNEL)}
        if not names:
            return step, drafts
        self._changed |= names
        writes = tuple(w for w in step.writes if not w.name.startswith(CHANNEL))
        kept = tuple(d for d in drafts if not d.written.name.startswith(CHANNEL))
        return msgspec.structs.replace(step, writes=writes), kept

    def take(self) -> Changes:
        """Return what has changed since the last time, as it is now."""
        area = self._space.areas.get(CHANNEL, {})
        changes: Changes = {}
        for key in self._changed:
            slot = area.get(key)
            changes[key] = None if slot is None else self._entry(key, slot)
        self._changed = set()
        return changes

    def _entry(self, key: str, slot: Slot) -> bytes:
        alone = copy(self._space)
        alone.areas, alone.hidden = {CHANNEL: {key: slot}}, set()
        written, payloads = alone.snapshot()
        self._space.size = alone.size
        return _encode((written, close_values(self._codecs, self._run_id, CHANNEL, written, payloads)))

    def stage(self, record: CheckpointRecord, changes: Changes) -> None:
        """Keep what a checkpoint changes until it is written."""
        self._staged[record.checkpoint_id] = changes
        try:
            for checkpoint_id in [c for c, of in self._staged.items() if not of]:
                self._store.settle(self._run_id, checkpoint_id, is_written=True)
                del self._staged[checkpoint_id]
            self._store.stage(self._run_id, record.checkpoint_id, record.sequence, changes)
        except StoreError:
            self._changed |= self._staged.pop(record.checkpoint_id, {}).keys()
            raise

    def settle(self, checkpoint_id: str, *, is_written: bool) -> None:
        """Put what was staged for a checkpoint into force, or have it changed again."""
        changes = self._staged.pop(checkpoint_id, None)
        if changes is None:
            return
        if not is_written:
            self._changed |= changes.keys()
        try:
            self._store.settle(self._run_id, checkpoint_id, is_written=is_written)
        except StoreError as error:
            # It is staged, and its checkpoint written: the next look puts it into force.
            log.warning("channel of run %r is behind its records for now: %s", self._run_id, error)
            if is_written:
                self._staged[checkpoint_id] = {}


def begin(services: Services, run_id: str, durability: Durability, space: ValueSpace) -> Elsewhere | None:
    """Return where a new run keeps its channel; none for its chain."""
    if services.channels is None:
        return None
    if durability.on_store_failure == "best_effort":
        raise BadRequest(
            'a flow with on_store_failure="best_effort" keeps its channel in its records.',
            fix="Open the host without channel=, or leave on_store_failure away.",
        )
    return Elsewhere(services.channels, run_id, space, services.codecs)


def mark(space: ValueSpace) -> Slot:
    """Return the value that says in the chain where the channel is not."""
    return space.encoded(f"{KEPT}channel", "elsewhere")


async def attach(services: Services, run_id: str, space: ValueSpace) -> Elsewhere:
    """Take the channel of a run that keeps it elsewhere among its values, as its new owner."""
    store = channels_of(services, run_id)
    await fill(services, run_id, space, is_owner=True)
    return Elsewhere(store, run_id, space, services.codecs)


async def fill(services: Services, run_id: str, space: ValueSpace, *, is_owner: bool) -> None:
    """Read the channel of a run into its values; what was staged for a written checkpoint is in force."""
    store = channels_of(services, run_id)

    async def ask(work: partial[Any]) -> Any:
        return await patiently(services.clock, partial(services.system.to_thread, work))

    kept = await ask(partial(store.load, run_id))
    for checkpoint_id, sequence in sorted(kept.staged.items(), key=lambda item: item[1]):
        found = await services.store.get(run_id, first=sequence, last=sequence)
        is_written = bool(found) and found[0].checkpoint_id == checkpoint_id
        if is_written or is_owner:
            await ask(partial(store.settle, run_id, checkpoint_id, is_written=is_written))
    if kept.staged:
        kept = await ask(partial(store.load, run_id))
    for entry in kept.entries.values():
        written, payloads = _read(entry)
        space.restore(written, iter(open_values(services.codecs, run_id, CHANNEL, written, payloads)))


def artifacts_of(entry: bytes) -> list[ArtifactRef]:
    """Return the artifacts that an entry of a channel names."""
    return [w.artifact for w in _read(entry)[0] if w.artifact is not None]


def _read(entry: bytes) -> tuple[tuple[Written, ...], list[bytes]]:
    try:
        return _decode(entry)
    except msgspec.ValidationError:
        return read_channel_entry(entry)


async def forget_channel(services: Services, run_id: str) -> None:
    """Remove the channel that a run kept beside its records, which are gone."""
    store = services.channels
    if store is None:
        return
    kept = await services.system.to_thread(store.load, run_id)
    for checkpoint_id in kept.staged:
        await services.system.to_thread(partial(store.settle, run_id, checkpoint_id, is_written=False))
    if kept.entries:
        nothing: Changes = dict.fromkeys(kept.entries)
        await services.system.to_thread(store.stage, run_id, "erased", 0, nothing)
        await services.system.to_thread(partial(store.settle, run_id, "erased", is_written=True))


def channels_of(services: Services, run_id: str) -> ChannelStore:
    """Return where channels are kept, or say that this host does not know."""
    if services.channels is None:
        raise ServiceMissing(
            f"run {run_id!r} keeps its channel beside its records, and this host does not know where.",
            fix='Open the host with channel="redis://…", as it was when the run began.',
        )
    return services.channels
