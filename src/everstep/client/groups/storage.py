"""Calls about the store itself: is it healthy, is what it keeps sound, what waits for it on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from everstep.client.looking.store_info import FlowRules, StoreInfo
from everstep.client.parts import Parts
from everstep.graph.author.flow import Flow
from everstep.model.records import CheckpointRecord
from everstep.runtime.addresses import in_run
from everstep.runtime.integrity.doctor import Diagnosis, examine
from everstep.runtime.integrity.findings import Verified
from everstep.runtime.integrity.verify import CheckListener, verify
from everstep.runtime.operations.after_restore import AfterRestore, after_restore
from everstep.runtime.outage.outbox import Drained, drain_all
from everstep.runtime.outage.spooled_view import read_waiting
from everstep.runtime.rekey import Rekeyed, rekey


class StorageCalls:
    """The store itself, and what it keeps as bytes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services, self._runs = parts.services, parts.runs.reader

    async def doctor(self) -> Diagnosis:
        """Look at the store: can it be written to, how fast, and what can it lose as it is set up now."""
        return await examine(self._services, self._parts.url)

    async def info(self, *, flows: Iterable[Flow] = ()) -> StoreInfo:
        """Say how the store is and what it keeps: what `doctor` finds, room, runs by status, retention.

        The rules of `flows` are told besides those of the host.
        """
        found, counts = await self.doctor(), await self._services.store.counts()
        rules = [(flow.name, flow.retention) for flow in flows if flow.retention is not None]
        return StoreInfo(
            looked_at=self._services.clock.now(),
            url=found.url,
            server=found.server,
            is_well=found.is_well,
            durable=found.durable,
            single_writer=found.single_writer,
            write_ms=found.write_ms,
            skew_seconds=found.skew_seconds,
            findings=list(found.findings),
            size_bytes=found.size_bytes,
            runs=counts.runs,
            waits=counts.waits,
            rules=self._parts.retention.to_wire(),
            flows=[FlowRules(flow=name, rules=own.to_wire()) for name, own in rules],
        )

    async def verify(
        self,
        run_ids: str | Iterable[str] | None = None,
        *,
        blobs: bool = True,
        on_run: Callable[[Verified], object] | None = None,
        on_progress: Callable[[str, int, int], object] | None = None,
    ) -> list[Verified]:
        """Check that what is kept of some runs, or of every run, is as it was written; nothing is changed.

        Of a part such as A17/rag, all of its run. Without `blobs`, artifacts are not read. `on_run` is told
        of each run when it is done, `on_progress` of a run, how many of its checkpoints were checked, and how
        many there are.
        """
        named = (run_ids,) if isinstance(run_ids, str) else run_ids
        wanted = None
        if named is not None:  # a part shares its run's chain, which is sound or not as a whole
            wanted = dict.fromkeys([(await in_run(self._runs, name))[0] for name in named])
        watching = CheckListener(on_run, on_progress)
        return await verify(self._services, self._runs, wanted, watching, blobs=blobs)

    @property
    def spool(self) -> Path:
        """The folder where checkpoints wait while its store is out of reach."""
        return self._services.spool.folder

    async def spooled(self, run_id: str) -> list[CheckpointRecord]:
        """Return the checkpoints of a run that wait on this machine for its store, oldest first."""
        found = await read_waiting(self._services, await self._runs.row(run_id))
        return [msgspec.structs.replace(one.record, digest=one.digest.hex()) for one in found]

    async def drain(self) -> list[Drained]:
        """Bring checkpoints that wait on this machine to the store; says what became of each run's.

        Those of a run that has gone on without them become a fork of it.
        """
        drained, errors = await drain_all(self._services)
        if errors:
            raise errors[0]
        return drained

    async def rekey(
        self,
        run_id: str | None = None,
        *,
        dry_run: bool = False,
        on_run: Callable[[Rekeyed], object] | None = None,
    ) -> list[Rekeyed]:
        """Encrypt what is kept of a run, or of every run, with the active key; says what was done to each.

        Digests stay, runs may be driven meanwhile, and what has the key already is passed by. `on_run` is
        told of each run when it is done. With `dry_run` nothing is written.
        """
        return await rekey(self._services, self._runs, run_id, dry_run=dry_run, on_run=on_run)

    async def after_restore(
        self,
        *,
        dry_run: bool = False,
        again: bool = False,
        on_progress: Callable[[str], object] | None = None,
    ) -> AfterRestore:
        """Make a store safe that was itself put back from a backup; call it before anything drives its runs.

        Every lease is void and every owner from before, also those that the backup does not know, is fenced.
        Tokens of open waits die, also those that were issued since; notifiers are told of another one. It
        says which runs may repeat what they did since. It may be cut off and called again. Once it was done
        and the store has been used since, it takes `again`: tokens that were told since would die. With
        `dry_run` nothing is written. `on_progress` is told in words how far it has come.
        """
        return await after_restore(self._services, dry_run=dry_run, again=again, say=on_progress)

    @property
    def schemes(self) -> dict[str, str]:
        """Where queued tasks and channels of new runs are kept: `sqlite`, `redis`."""
        return dict(self._parts.schemes)
