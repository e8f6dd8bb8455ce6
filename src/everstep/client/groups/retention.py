"""Calls about how long runs are kept: clean-up, pins, erasing."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from everstep.client.parts import Parts, check_limit
from everstep.client.views import RunInfo
from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.model.acts import Act, act_of, with_act
from everstep.model.durations import Span, span_of
from everstep.model.removal import Removal
from everstep.model.retention import Retention, checked_retention
from everstep.ports.retention import TombstoneFilter
from everstep.ports.store import RunRow
from everstep.runtime.after_run import note_act, retaining_store
from everstep.runtime.operations.acting import concerning, riding, told, written
from everstep.runtime.retention.collect import Collected, Collector
from everstep.runtime.retention.erase import Erased, erase, erased_line
from everstep.runtime.retention.summaries import RemovedRun
from everstep.runtime.retention.trim import clean_up
from everstep.runtime.run_ids import check_run_id, missing_run


class RetentionCalls:
    """How long runs are kept, and what became of those that went."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services, self._runs = parts.services, parts.runs.reader
        self._resting = parts.runs.resting

    async def gc(
        self,
        *run_ids: str,
        retention: Retention | None = None,
        flows: Iterable[Flow] = (),
        dry_run: bool = False,
        shared: bool = False,
        audit_older_than: Span | None = None,
        on_progress: Callable[[str], object] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> Collected:
        """Remove what the rules say: of every run, or of those that are named; says what went and what not.

        A run is kept by the rules of its flow if that is among `flows`, else by those that it was begun with,
        else by `retention`, or the host's. Without names, artifacts that no record names go too, and
        tombstones whose time is over; `shared` says that no other store keeps artifacts in that place. With
        `dry_run` nothing is removed. Rows of the audit log go only with `audit_older_than`, such as `"365d"`:
        those of older acts, whichever runs they tell of. `on_progress` is told in words how far it has come.
        With `by` the audit log has one row of it, which counts what went.
        """
        act = act_of(by, comment)

        async def collect() -> Collected:
            found = await self._collect(
                run_ids, retention, flows, dry_run, shared, audit_older_than, on_progress
            )
            if act is not None and not dry_run:
                concerning(act, run_ids[0] if len(run_ids) == 1 else None, found.counts())
            return found

        return await self._parts.audited("gc", None if dry_run else act, collect())

    async def _collect(
        self,
        run_ids: tuple[str, ...],
        retention: Retention | None,
        flows: Iterable[Flow],
        dry_run: bool,
        shared: bool,
        audit_older_than: Span | None,
        on_progress: Callable[[str], object] | None,
    ) -> Collected:
        for run_id in run_ids:
            await self._runs.row(run_id)
        policy = self._parts.retention if retention is None else checked_retention(retention)
        known = {flow.name: flow for flow in flows}
        collector = Collector(
            self._services,
            self._resting,
            policy or Retention(),
            known,
            dry_run=dry_run,
            say=on_progress,
        )
        found = await collector.everything(run_ids, shared=shared)
        return found if audit_older_than is None else await collector.audit(span_of(audit_older_than))

    async def pin(
        self,
        run_id: str,
        reason: str = "pinned on request",
        *,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Keep a run whole until it is unpinned, whatever retention says."""
        if not isinstance(reason, str) or not reason.strip():
            raise BadRequest(f"the reason is {reason!r}.", fix="Say in a few words why the run is kept.")
        act = act_of(by, comment)
        return await self._parts.audited("pin", act, self._pin(run_id, with_act(reason, act), act), run_id)

    async def unpin(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> RunInfo:
        """Let retention apply to a run again; who wants that stands in the log of what went."""
        act = act_of(by, comment)
        info = await self._parts.audited("unpin", act, self._pin(run_id, None, act), run_id)
        if act is not None:
            await note_act(self._services, "unpin", info.run_id, info.flow, act)
        return info

    async def _pin(self, run_id: str, reason: str | None, act: Act | None) -> RunInfo:
        store = retaining_store(self._services)
        audit = riding(act, run_id) if act is not None or self._services.notes_unnamed else None
        if not await store.pin(check_run_id(run_id), reason, **told(audit)):
            raise await missing_run(self._services.store, run_id)
        written(audit)
        return self._parts.info(await self._runs.row(run_id))

    async def ack(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> RunInfo:
        """Note that the result of a run that has ended was taken: rules about time count from then on.

        Only the first time counts. Who took it stands in the log of what went.
        """
        act = act_of(by, comment)
        row = await self._parts.audited("ack", act, self._ack(run_id, act), run_id)
        if act is not None and row.acked_at is None:
            await note_act(self._services, "ack", row.run_id, row.flow_id, act)
        return self._parts.info(await self._runs.row(row.run_id))

    async def _ack(self, run_id: str, act: Act | None) -> RunRow:
        """Take the result of a run; returns how the run stood before."""
        row = await self._runs.row(check_run_id(run_id))
        if not row.status.is_final:
            raise BadRequest(
                f"run {run_id!r} is {row.status.value}: it has no result yet.",
                fix="Acknowledge it when it has ended.",
            )
        audit = riding(act, run_id) if act is not None or self._services.notes_unnamed else None
        await self._services.store.ack(row.run_id, **told(audit))
        written(audit)
        return row

    async def erase(
        self,
        run_id: str,
        *,
        dry_run: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> Erased:
        """Remove a run that has ended, with the artifacts that only it names. Its id stays taken.

        Nothing is told of it afterwards but that it was there. A run that is not over, that is pinned or that
        a fork goes on from is refused.
        """
        act = act_of(by, comment)
        doing = erase(self._services, self._runs, run_id, act, dry_run=dry_run)
        return await self._parts.audited("erase", None if dry_run else act, doing, run_id)

    async def removed(
        self, *, flow: str | None = None, limit: int = 100, before: str | None = None
    ) -> list[RemovedRun]:
        """List what is left of runs that were removed, those removed last first, with their summaries."""
        check_limit(limit)
        store = retaining_store(self._services)
        found = await store.tombstones(TombstoneFilter(flow_id=flow, limit=limit, before=before))
        return [RemovedRun.of(tombstone) for tombstone in found]

    async def removals(self, *, limit: int = 100) -> list[Removal]:
        """Return the log of what went, the newest lines first: runs, checkpoints, artifacts."""
        check_limit(limit)
        store = retaining_store(self._services)
        noted = [line for _, line in await store.removals(limit=limit)]
        gone = await store.tombstones(TombstoneFilter(limit=limit))
        runs = [erased_line(tombstone) for tombstone in gone]
        merged = heapq.merge(noted, runs, key=lambda line: line.at, reverse=True)
        return list(merged)[:limit]

    async def clean_up(self, run_id: str, *, keep: int = 5) -> int:
        """Remove old checkpoints and return how many: what a resume from the last `keep` does not need.

        Whatever lies before a keyframe can go, so as much stays as lies between two of them. Nothing that a
        fork goes on from is removed.
        """
        return await clean_up(self._services.store, self._runs, run_id, keep)
