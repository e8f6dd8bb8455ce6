"""Encrypting what is kept of runs with the key that is active now. No digest changes; no lease is needed.

Each batch is one write, and what has the key already is passed by: after a crash, or beside runs that are
driven, it is simply done again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import msgspec

from everstep.codec.notes import signal_anew, wait_anew
from everstep.codec.records import unseal, with_payloads
from everstep.codec.sealing import closed_anew
from everstep.errors import BadRequest, StateCorrupted
from everstep.model.records import ArtifactRef
from everstep.ports.inbox import InboxStore
from everstep.ports.store import (
    Recoded,
    RecodedSignal,
    RecodedWait,
    RecodingStore,
    RunFilter,
    RunRow,
    WaitFilter,
)
from everstep.runtime.coded_blobs import CodedBlobs
from everstep.runtime.lineage import Link, claimed_digest
from everstep.runtime.reader import RunReader
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.services import Services

_BATCH = 64
_PAGE = 256


class Rekeyed(msgspec.Struct, frozen=True, kw_only=True):
    """What was encrypted anew of one run."""

    run_id: str
    checkpoints: int = 0
    artifacts: int = 0
    waits: int = 0
    signals: int = 0
    """Signals that no step has taken yet."""
    emitted: int = 0
    """Batches of what its nodes emitted, kept for a while for those who follow it."""
    logs: int = 0
    spooled: int = 0
    """Checkpoints that wait on this machine; they keep their keys until they are drained."""

    @property
    def has_changed(self) -> bool:
        """True if anything was encrypted anew."""
        beside = self.signals or self.emitted or self.logs
        return bool(self.checkpoints or self.artifacts or self.waits or beside)


async def rekey(
    services: Services,
    runs: RunReader,
    run_id: str | None,
    *,
    dry_run: bool,
    on_run: Callable[[Rekeyed], object] | None,
) -> list[Rekeyed]:
    """Encrypt one run, or all of them, newest first, with the active key; says what was done to each.

    Of a fork only its own records: those it shares are the other run's.
    """
    if services.codecs.keys is None:
        raise BadRequest(
            "there is no key to encrypt with.",
            fix="Give keys with Host(encrypt=...), or in EVERSTEP_ENCRYPT_KEYS or _KEYS_FILE, the new first.",
        )
    if not services.store.capabilities.recodes:
        raise BadRequest("this store cannot encrypt anew what it keeps.", fix="Keep the old keys, too.")
    done: dict[str, None] = {}
    found: list[Rekeyed] = []

    async def one(row: RunRow) -> None:
        found.append(await _Rekeying(services, row, done, dry_run=dry_run).run())
        if on_run is not None:
            on_run(found[-1])

    if run_id is not None:
        await one(await runs.row(check_run_id(run_id)))
        return found
    before: str | None = None
    while True:
        rows = await services.store.list(RunFilter(limit=_PAGE, before=before))
        for row in rows:
            await one(row)
        if len(rows) < _PAGE:
            return found
        before = rows[-1].run_id


class _Rekeying:
    """One run under way."""

    def __init__(self, services: Services, row: RunRow, done: dict[str, None], *, dry_run: bool) -> None:
        self._services = services
        self._recoding = cast(RecodingStore, services.store)
        self._row = row
        self._done = done
        """The artifacts that were looked at, by checksum: runs share them."""
        self._dry_run = dry_run
        self._artifacts = 0

    async def run(self) -> Rekeyed:
        checkpoints = 0
        first, digest = max(self._row.first, self._row.trimmed_before), await self._digest_before()
        while first <= self._row.checkpoints:
            last = min(first + _BATCH - 1, self._row.checkpoints)
            count, digest = await self._batch(first, last, digest)
            checkpoints += count
            first = last + 1
        # A signal that settles a wait gives it what it says, so those come first.
        signals = await self._signals()
        waits = await self._waits()
        emitted, logs = await self._services.live.rekey(self._row.run_id, dry_run=self._dry_run)
        spooled = len(self._services.spool.of(self._row.run_id))
        return Rekeyed(
            run_id=self._row.run_id,
            checkpoints=checkpoints,
            artifacts=self._artifacts,
            waits=waits,
            signals=signals,
            emitted=emitted,
            logs=logs,
            spooled=spooled,
        )

    async def _digest_before(self) -> bytes | None:
        """Return the digest that the first record was hashed onto, unless the record says it itself."""
        if self._row.trimmed_before > self._row.first or self._row.first == 1:
            return None if self._row.trimmed_before > self._row.first else b""
        before = await self._services.store.get(
            self._row.parent_run_id or "", first=self._row.first - 1, last=self._row.first - 1
        )
        if not before:
            raise StateCorrupted(f"the records that run {self._row.run_id!r} goes on from are missing.")
        return claimed_digest(Link(self._row, before[0], self._services.codecs))

    async def _batch(self, first: int, last: int, digest: bytes | None) -> tuple[int, bytes | None]:
        services, run_id = self._services, self._row.run_id
        changed: list[Recoded] = []
        for stored in await services.store.get(run_id, first=first, last=last):
            if stored.is_stub:
                digest = stored.digest
                continue
            where = f"checkpoint {stored.sequence} of run {run_id!r}"
            opened = unseal(stored.body, where, digest, stored.checkpoint_id)
            digest = opened.digest
            for write in opened.record.writes():
                if write.artifact is not None:
                    await self._artifact(write.artifact)
            anew = closed_anew(opened, run_id, where, services.codecs)
            if anew is not None:
                body = with_payloads(stored.body, *anew)
                changed.append(Recoded(stored.sequence, stored.checkpoint_id, body))
        if changed and not self._dry_run:
            return await self._recoding.recode(run_id, changed), digest
        return len(changed), digest

    async def _artifact(self, ref: ArtifactRef) -> None:
        blobs = self._services.blobs
        if ref.checksum in self._done or not isinstance(blobs, CodedBlobs):
            return
        self._done[ref.checksum] = None
        self._artifacts += await self._services.system.to_thread(
            partial(blobs.rekey, ref, dry_run=self._dry_run)
        )

    async def _signals(self) -> int:
        """Encrypt what was sent and not taken."""
        services, run_id, total, after = self._services, self._row.run_id, 0, 0
        if not services.store.capabilities.has_inbox:
            return 0
        inbox = cast("InboxStore", services.store)
        while page := await inbox.inbox(run_id, after=after, limit=_PAGE):
            after = page[-1].number
            changed = []
            for row in page:
                anew = None if row.value is None else signal_anew(services.codecs, run_id, row.value)
                if row.value is not None and anew is not None:
                    changed.append(RecodedSignal(row.number, row.value, anew))
            if changed and not self._dry_run:
                total += await inbox.recode_signals(run_id, changed)
            else:
                total += len(changed)
        return total

    async def _waits(self) -> int:
        """Encrypt what is asked and answered, of closed waits too."""
        store, total, after = self._services.store, 0, None
        while True:
            page = await store.waits(WaitFilter(run_id=self._row.run_id, limit=_PAGE, after=after))
            changed = []
            for row in page:
                notes = wait_anew(self._services.codecs, row)
                if notes is not None:
                    changed.append(RecodedWait(row.wait_id, (row.details, row.answer), *notes))
            if changed and not self._dry_run:
                total += await self._recoding.recode(self._row.run_id, (), changed)
            else:
                total += len(changed)
            if len(page) < _PAGE:
                return total
            after = page[-1].wait_id
