"""Whole runs, read from a store as they are and checked on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple, cast

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.records import OpenRecord, digest_of, unseal
from everstep.codec.sealing import open_record
from everstep.errors import (
    BadRequest,
    IncompatibleVersion,
    KeyUnavailable,
    LeaseConflict,
    StateCorrupted,
)
from everstep.graph.compile.plan import hash_of
from everstep.model.commits import NO_LABELS
from everstep.model.waits import HadEvent, SignalRow, WaitRow, WaitStatus
from everstep.ports.events import EventStore
from everstep.ports.labels import LabelStore
from everstep.ports.restoring import WholeRun
from everstep.ports.store import CheckpointStore, RunRow, StoredRecord, WaitFilter
from everstep.runtime.lineage import Lineage
from everstep.runtime.outage.spool import Spool
from everstep.runtime.waits.inbox import all_signals

PAGE = 256
_TRIES = 50


class Checked(NamedTuple):
    """A record whose digest was checked, and whose values were too unless they are locked."""

    stored: StoredRecord
    opened: OpenRecord | None
    """None of a stub."""
    is_locked: bool = False
    """True if its key, or a codec of the user's, is not at hand."""

    @property
    def digest(self) -> bytes:
        return digest_of(self.stored.body) if self.stored.digest is None else self.stored.digest


class ChainReader:
    """Checks the records of one run in order, each against the digest before it."""

    def __init__(self, row: RunRow, before: bytes, codecs: Codecs) -> None:
        self._row = row
        self._codecs = codecs
        self._next = row.first
        self.digest: bytes | None = before
        """Of the newest record that was checked."""

    def check(self, records: Iterable[StoredRecord]) -> list[Checked]:
        """Return records that are what they say they are, or raise `StateCorrupted`."""
        return [self._check(stored) for stored in records]

    def _check(self, stored: StoredRecord) -> Checked:
        where = f"checkpoint {stored.sequence} of run {self._row.run_id!r}"
        if stored.sequence != self._next:
            raise StateCorrupted(f"checkpoint {self._next} of run {self._row.run_id!r} is missing.")
        self._next += 1
        if stored.is_stub:
            self.digest = stored.digest
            return Checked(stored, None)
        opened = unseal(stored.body, where, self.digest, stored.checkpoint_id)
        record = opened.record
        if (record.sequence, record.checkpoint_id) != (stored.sequence, stored.checkpoint_id):
            raise StateCorrupted(f"{where} is another one.")
        if record.run_id not in ("", self._row.run_id) or record.keyframe is not stored.keyframe:
            raise StateCorrupted(f"{where} is not what it is kept as.")
        self.digest = opened.digest
        try:
            open_record(opened, self._row.run_id, where, self._codecs)
        except KeyUnavailable:
            return Checked(stored, opened, is_locked=True)
        except IncompatibleVersion as error:
            if "codec" not in error.details:
                raise
            return Checked(stored, opened, is_locked=True)
        return Checked(stored, opened)


async def family(lineage: Lineage, row: RunRow) -> list[RunRow]:
    """Return a run and those it comes from, the first one first."""
    rows = [ancestor async for ancestor in lineage.back(row)]
    return rows[::-1]


def check_nothing_waits(spool: Spool, run_id: str) -> None:
    """Refuse to carry a run whose newest checkpoints wait on this machine."""
    if spool.of(run_id):
        raise BadRequest(
            f"checkpoints of run {run_id!r} wait on this machine for their store.",
            fix="Bring them there first: everstep drain",
        )


class Reading:
    """One run as a store keeps it now; it may be driven meanwhile."""

    def __init__(self, store: CheckpointStore, codecs: Codecs, row: RunRow) -> None:
        self._store = store
        self._codecs = codecs
        self.row = row
        """As it was when `waits` were read."""
        self.base: str | None = None
        self.waits: tuple[WaitRow, ...] = ()
        self.inbox: tuple[SignalRow, ...] = ()
        self.had: tuple[HadEvent, ...] = ()
        self.labels = NO_LABELS
        self.digest = b""
        """Of its newest record."""
        self._hashes: dict[str, None] = {}

    async def pages(self) -> AsyncIterator[list[Checked]]:
        """Yield its own records in order. When they end, row and waits are there, and fit them."""
        chain = ChainReader(self.row, await self._digest_before(), self._codecs)
        first = self.row.first
        for _ in range(_TRIES):
            while first <= self.row.checkpoints:
                last = min(first + PAGE - 1, self.row.checkpoints)
                page = chain.check(await self._store.get(self.row.run_id, first=first, last=last))
                if len(page) != last - first + 1:
                    raise StateCorrupted(f"records of run {self.row.run_id!r} are missing.")
                self._note(page)
                yield page
                first = last + 1
            self.waits = tuple(await _all_waits(self._store, self.row.run_id))
            self.inbox = tuple(await all_signals(self._store, self.row.run_id))
            if self._store.capabilities.has_events:
                self.had = tuple(await cast("EventStore", self._store).had_events(self.row.run_id))
            if self._store.capabilities.has_labels:
                found = await cast("LabelStore", self._store).labels([self.row.run_id])
                self.labels = found.get(self.row.run_id, NO_LABELS)
            row = await self._again()
            moved, self.row = row.checkpoints != self.row.checkpoints, row
            if not moved:
                self.digest = chain.digest or b""
                return
        raise LeaseConflict(
            f"run {self.row.run_id!r} goes on too fast to be read whole.",
            fix="Try again when it rests, or stop its owner.",
        )

    async def blueprints(self) -> tuple[tuple[str, bytes], ...]:
        """Return the structures that it went by, the oldest first."""
        hashes = [*(known for known in self._hashes if known != self.row.flow_hash), self.row.flow_hash]
        found = []
        for flow_hash in hashes:
            blueprint = await self._store.blueprint(flow_hash)
            if blueprint is not None and hash_of(blueprint) == flow_hash:
                found.append((flow_hash, blueprint))
            elif flow_hash == self.row.flow_hash:
                raise StateCorrupted(f"the structure of flow {self.row.flow_id!r} is missing or was altered.")
        return tuple(found)

    async def _again(self) -> RunRow:
        row = await self._store.run(self.row.run_id)
        if row is None or (row.trimmed_before, row.first) != (self.row.trimmed_before, self.row.first):
            raise LeaseConflict(
                f"run {self.row.run_id!r} was cleaned up while it was read.", fix="Try again."
            )
        return row

    async def _digest_before(self) -> bytes:
        if self.row.forked_at is None:
            return b""
        at = self.row.forked_at
        found = await self._store.get(self.row.parent_run_id or "", first=at, last=at)
        if not found:
            raise StateCorrupted(f"the checkpoint that run {self.row.run_id!r} goes on from is missing.")
        self.base = found[0].checkpoint_id
        return Checked(found[0], None).digest

    def _note(self, page: Sequence[Checked]) -> None:
        for checked in page:
            if checked.opened is not None and checked.opened.record.flow_hash:
                self._hashes.setdefault(checked.opened.record.flow_hash)


async def read_whole(reading: Reading) -> tuple[WholeRun, list[Checked]]:
    """Return a run whole, with its records as they were checked."""
    checked = [one async for page in reading.pages() for one in page]
    whole = WholeRun(
        row=msgspec.structs.replace(reading.row, lease=None),
        base=reading.base,
        records=tuple(one.stored for one in checked),
        waits=tuple(map(unscheduled, reading.waits)),
        blueprints=await reading.blueprints(),
        inbox=reading.inbox,
        had=reading.had,
        labels=reading.labels,
    )
    return whole, checked


def unscheduled(wait: WaitRow) -> WaitRow:
    """Return a wait that another scheduler than the store's is told of anew where the run goes."""
    if wait.schedule_id is None or wait.status is not WaitStatus.OPEN:
        return wait
    return msgspec.structs.replace(wait, schedule_id=None)


async def _all_waits(store: CheckpointStore, run_id: str) -> list[WaitRow]:
    found: list[WaitRow] = []
    after: str | None = None
    while True:
        page = await store.waits(WaitFilter(run_id=run_id, limit=PAGE, after=after))
        found += page
        if len(page) < PAGE:
            return found
        after = page[-1].wait_id
