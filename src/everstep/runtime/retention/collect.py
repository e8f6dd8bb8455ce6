"""Applying retention to every run, and removing what is left of what went."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from everstep.codec.records import header_of
from everstep.codec.wire import to_wire as _to_wire
from everstep.engine.retention import KEPT, Action, Facts, Fate, decide, is_abandoned
from everstep.errors import (
    CheckpointPinned,
    EverstepError,
    LeaseConflict,
    RunNotFound,
    StateCorrupted,
    StoreError,
)
from everstep.graph.author.flow import Flow
from everstep.model.commits import ASK_FLOW
from everstep.model.durability import Durability
from everstep.model.durations import span_of
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord
from everstep.model.removal import Erasure, Removal
from everstep.model.retention import Retention
from everstep.ports.audit import AuditFilter
from everstep.ports.retention import HeedingStore, TombstoneFilter
from everstep.ports.store import BelievingStore, RunFilter, RunRow, WaitFilter
from everstep.runtime.after_run import flow_policy, retaining_store
from everstep.runtime.at_rest import RestingRuns
from everstep.runtime.operations.acting import audit_store
from everstep.runtime.retention.erase import erase_run, is_needed
from everstep.runtime.retention.idle_keys import drop_idle_keys
from everstep.runtime.retention.references import every_run, lives_here
from everstep.runtime.retention.summaries import ERRORS, count_errors, encode, summary_of
from everstep.runtime.retention.sweep import Swept, sweep
from everstep.runtime.services import Services

Say = Callable[[str], object]
_PAGE = 200
_AT_ONCE = 64
"""So many runs are looked at side by side where each question takes a round trip, which they share."""


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """One run of which something went, or would go."""

    run_id: str
    flow: str
    action: str
    """`erase`, or `trim`: only its last checkpoint is left."""
    reason: str
    checkpoints: int
    """How many went."""


class Spared(msgspec.Struct, frozen=True, kw_only=True):
    """One run that a rule would remove, and why it stays."""

    run_id: str
    reason: str


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What clean-up removed, or would remove, and what it left alone."""

    dry_run: bool = False
    runs: list[Removed] = []
    spared: list[Spared] = []
    abandoned: list[str] = []
    """Unfinished runs without an owner. They are removed only if a rule says so."""
    artifacts: Swept = Swept()
    tombstones: int = 0
    """Removed runs whose ids are free again."""
    audit: int = 0
    """Rows of the audit log."""
    leftovers: int = 0
    """What writes left behind that were cut off."""
    problems: list[str] = []
    """What could not be looked at, and so was left alone."""

    @property
    def has_removed(self) -> bool:
        """True if anything went."""
        return bool(self.runs or self.artifacts.removed or self.tombstones or self.audit or self.leftovers)

    def counts(self) -> str:
        """Return in words how much went."""
        erased = sum(one.action == "erase" for one in self.runs)
        went = {
            "run": erased,
            "trimmed run": len(self.runs) - erased,
            "artifact": self.artifacts.removed,
            "tombstone": self.tombstones,
            "audit row": self.audit,
            "leftover": self.leftovers,
        }
        told = [f"{many} {what}{'s' if many > 1 else ''}" for what, many in went.items() if many]
        return ", ".join(told) or "nothing"

    to_wire = _to_wire


def recorded_policy(host: Retention, begun: Begun) -> Retention | None:
    """Return the rules that a run was begun with, or the host's; none if they are not known any more."""
    if not begun.is_known:
        return host if host.keeps_all else None
    own = Retention.of_wire(begun.about["retention"]) if "retention" in begun.about else host
    span = begun.about.get("retain_completed_for")
    if span is not None and own.completed_for is None:
        own = own.changed(completed_for=span_of(span))
    return own


class Collector:
    """One pass of clean-up. Each removal is an act of its own, so a pass may be cut off and begun again."""

    def __init__(
        self,
        services: Services,
        runs: RestingRuns,
        policy: Retention,
        flows: Mapping[str, Flow],
        *,
        dry_run: bool = False,
        say: Say | None = None,
    ) -> None:
        self._services = services
        self._runs = runs
        self._store = retaining_store(services)
        self._policy = policy
        self._flows = flows
        self._say = say
        self._believing = self._store if isinstance(self._store, BelievingStore) else None
        is_far = services.store.capabilities.remote and self._believing is None
        self._at_once = _AT_ONCE if is_far else 1
        self.found = Collected(dry_run=dry_run, runs=[], spared=[], abandoned=[], problems=[])

    def _add(self, **found: Any) -> None:
        self.found = msgspec.structs.replace(self.found, **found)

    async def everything(self, only: Collection[str], *, shared: bool) -> Collected:
        """Apply the rules to every run, or to some; then remove what no run needs any more."""
        ranks: Counter[str] = Counter()
        if isinstance(self._store, HeedingStore):
            try:
                await self._store.heed()
            except StoreError as error:
                self.found.problems.append(str(error))
                return self.found
        batch: list[tuple[RunRow, int]] = []
        async for row in every_run(self._services):
            ranks[row.flow_id] += 1
            if not only or row.run_id in only:
                if any(row.run_id == other.parent_run_id for other, _ in batch):
                    await self._some(batch)  # its forks go first, or it would be kept for them
                    batch = []
                batch.append((row, ranks[row.flow_id]))
            if len(batch) == self._at_once:
                await self._some(batch)
                batch = []
            seen = ranks.total()
            if self._say is not None and seen % 1000 == 0:
                self._say(f"{seen:,} runs looked at")
        await self._some(batch)
        if not only:
            await self._tombstones()
            await self._artifacts(shared=shared)
            if not self.found.dry_run:
                self._add(leftovers=await self._store.tidy() + await drop_idle_keys(self._services))
        return self.found

    async def _some(self, batch: Sequence[tuple[RunRow, int]]) -> None:
        """Apply the rules to runs side by side; what is found is told in their order."""
        before = (len(self.found.runs), len(self.found.spared), len(self.found.abandoned))
        await asyncio.gather(*(self.one(row, rank) for row, rank in batch))
        place = {row.run_id: k for k, (row, _) in enumerate(batch)}
        removed, spared, abandoned = self.found.runs, self.found.spared, self.found.abandoned
        removed[before[0] :] = sorted(removed[before[0] :], key=lambda it: place[it.run_id])
        spared[before[1] :] = sorted(spared[before[1] :], key=lambda it: place[it.run_id])
        abandoned[before[2] :] = sorted(abandoned[before[2] :], key=place.__getitem__)

    async def one(self, row: RunRow, rank: int) -> None:
        """Apply the rules to one run. What cannot be read is left alone, and said."""
        believing = self._believing
        try:
            with believing.believing(row.run_id) if believing is not None else nullcontext():
                await self._one(row, rank)
        except RunNotFound:
            self._spare(row, "another process is at it")
        except EverstepError as error:
            if isinstance(error, StoreError) or await self._is_there(row.run_id):
                self.found.problems.append(f"run {row.run_id}: {error}")  # else another process removed it

    async def _is_there(self, run_id: str) -> bool:
        try:
            return await self._services.store.run(run_id) is not None
        except StateCorrupted:
            return True

    async def _one(self, row: RunRow, rank: int) -> None:
        now = self._services.clock.now()
        if row.pinned is not None or row.status is Status.HALTED:
            return
        if lives_here(self._services, row):
            return
        facts = _facts(row, rank)
        if is_abandoned(facts, now):
            self.found.abandoned.append(row.run_id)
        fate = await self._fate(row, facts, now)
        if fate.action is Action.KEEP:
            return
        if await self._has_open_waits(row):
            self._spare(row, "it has a wait that is not closed")
        elif (self.found.dry_run or fate.action is Action.TRIM) and await has_forks(self._services, row):
            # A store that erases looks for itself.
            self._spare(row, "a fork goes on from it")
        elif fate.action is Action.ERASE and await is_needed(self._services, row):
            self._spare(row, "the run that started it has not ended")
        elif self._services.spool.has(row.run_id):
            self._spare(row, "checkpoints of it wait on this machine")
        else:
            await self._act(row, fate, now)

    async def _fate(self, row: RunRow, facts: Facts, now: datetime) -> Fate:
        flow = self._flows.get(row.flow_id)
        if flow is not None:
            policy = flow_policy(self._policy, flow)
            return decide(policy, facts._replace(ttl=flow.durability.checkpoint_ttl), now)
        begun = await begun_with(self._services, row)
        recorded = recorded_policy(self._policy, begun)
        if recorded is None:
            self._spare(row, "what it was to be kept by went with its first checkpoints; give its flow")
            return KEPT
        return decide(recorded, facts._replace(ttl=begun.ttl), now)

    async def _has_open_waits(self, row: RunRow) -> bool:
        if row.status in (Status.COMPLETED, Status.CANCELLED):
            return False  # they were closed with its end
        return bool(
            await self._services.store.waits(WaitFilter(run_id=row.run_id, is_unclosed=True, limit=1))
        )

    async def _act(self, row: RunRow, fate: Fate, now: datetime) -> None:
        own = row.checkpoints - max(row.first, row.trimmed_before) + 1
        if self.found.dry_run:
            keeps_head = fate.action is Action.TRIM and await ends_with_keyframe(self._services, row)
            self._note(row, fate, own - keeps_head)
        elif fate.action is Action.TRIM:
            trimmed = await keep_last_only(self._services, self._runs, row)
            if trimmed:
                self._note(row, fate, trimmed)
                line = Removal(
                    at=now,
                    what="checkpoints",
                    run_id=row.run_id,
                    flow_id=row.flow_id,
                    count=trimmed,
                    reason=fate.reason,
                )
                await self._store.note(line)
        else:
            summary = encode(await summary_of(self._services, self._runs.reader, row))
            verdict = await erase_run(self._services, self._store, row, fate.reason, summary)
            if verdict is Erasure.ERASED:
                self._note(row, fate, own)
                if row.flow_id.startswith(ASK_FLOW):
                    await self._store.forget([row.run_id])
            elif verdict is not Erasure.GONE:
                self._spare(row, _WHY[verdict])

    def _note(self, row: RunRow, fate: Fate, checkpoints: int) -> None:
        removed = Removed(
            run_id=row.run_id,
            flow=row.flow_id,
            action=fate.action.value,
            reason=fate.reason,
            checkpoints=checkpoints,
        )
        self.found.runs.append(removed)
        if row.run_id in self.found.abandoned:
            self.found.abandoned.remove(row.run_id)
        if self._say is not None:
            self._say(f"run {row.run_id}: {fate.reason}")

    def _spare(self, row: RunRow, reason: str) -> None:
        self.found.spared.append(Spared(run_id=row.run_id, reason=reason))

    async def _tombstones(self) -> None:
        span, before = self._policy.tombstones_for, None
        if span is None:
            return
        oldest, old = self._services.clock.now() - span, list[str]()
        while True:
            page = await self._store.tombstones(TombstoneFilter(limit=_PAGE, before=before))
            old += [one.run_id for one in page if one.erased_at <= oldest]
            if len(page) < _PAGE:
                break
            before = page[-1].run_id
        # The oldest first: an interruption leaves no gap.
        for start in range(0, len(old), _PAGE):
            part = old[::-1][start : start + _PAGE]
            if not self.found.dry_run:
                await self._store.forget(part)
            self._add(tombstones=self.found.tombstones + len(part))
        if self.found.tombstones and not self.found.dry_run:
            line = Removal(at=self._services.clock.now(), what="tombstones", count=self.found.tombstones)
            await self._store.note(line)

    async def audit(self, span: timedelta) -> Collected:
        """Remove rows of the audit log that are older; returns all that was found so far."""
        services = self._services
        if not services.store.capabilities.audits:
            return self.found
        store, before = audit_store(services.store), services.time.now() - span
        if self.found.dry_run:
            after = 0
            while page := await store.audit(AuditFilter(until=before, after=after, limit=_PAGE)):
                after = page[-1].number
                self._add(audit=self.found.audit + len(page))
        else:
            while gone := await store.forget_audit(before=before, limit=_PAGE):
                self._add(audit=self.found.audit + gone)
        return self.found

    async def _artifacts(self, *, shared: bool) -> None:
        dry_run = self.found.dry_run
        try:
            swept = await sweep(self._services, dry_run=dry_run, shared=shared, on_progress=self._say)
        except EverstepError as error:
            swept = Swept(problem=str(error))
        self._add(artifacts=swept)
        if swept.removed and not dry_run:
            line = Removal(
                at=self._services.clock.now(),
                what="artifacts",
                count=swept.removed,
                size=swept.size,
                reason="no record names them",
            )
            await self._store.note(line)


_WHY = {
    Erasure.MOVED: "it went on meanwhile",
    Erasure.LEASED: "its owner is writing to it",
    Erasure.FORKED: "a fork goes on from it",
    Erasure.PINNED: "it was pinned meanwhile",
}


def _facts(row: RunRow, rank: int) -> Facts:
    return Facts(
        status=row.status,
        rank=rank,
        ended_at=row.ended_at,
        acked_at=row.acked_at,
        lease=row.lease,
        ttl=None,
        is_pinned=row.pinned is not None,
        is_trimmed=row.trimmed_before == row.checkpoints or row.checkpoints == row.first,
    )


_CARRIED = ("source", "retention", "retain_completed_for")
"""What the first record says of the flow, and the one that takes its place goes on saying."""


class Begun(NamedTuple):
    """What the oldest record that is left says of a run."""

    ttl: timedelta | None
    about: dict[str, Any]
    is_known: bool
    """False if it is not the first and takes no such record's place, so that it says nothing of the flow."""


async def begun_with(services: Services, row: RunRow) -> Begun:
    """Return what a run was begun with, as far as its records still tell."""
    first = max(row.first, row.trimmed_before)
    record = await _header(services, row, first)
    said = (record.metadata or {}) if record is not None else {}
    about = {name: said[name] for name in _CARRIED if name in said}
    is_known = first == row.first or (record is not None and record.trigger is Trigger.TRIM)
    return Begun(record.ttl if record is not None else None, about, is_known)


async def _header(services: Services, row: RunRow, sequence: int) -> CheckpointRecord | None:
    found = await services.store.get(row.run_id, first=sequence, last=sequence)
    if not found or found[0].is_stub:
        return None
    return header_of(found[0].body, f"checkpoint {sequence} of run {row.run_id!r}")


async def has_forks(services: Services, row: RunRow) -> bool:
    return bool(await services.store.list(RunFilter(parent_run_id=row.run_id, limit=1)))


async def ends_with_keyframe(services: Services, row: RunRow) -> bool:
    """True if the newest record can be read without those before it."""
    newest = await services.store.get(row.run_id, first=row.checkpoints, last=row.checkpoints)
    return bool(newest) and newest[0].keyframe


async def keep_last_only(services: Services, runs: RestingRuns, row: RunRow) -> int:
    """Turn all but the last checkpoint of an ended run into stubs; returns how many.

    Where the last one is no keyframe, one is written behind it that says the same. 0 if more of it is needed
    by a fork, by its owner, by a pin, to undo what it did; or if another process is at it.
    """
    if services.spool.has(row.run_id):
        return 0
    try:
        row = await _with_keyframe(services, runs, row)
        # What is to be read from now on must be readable, or the older ones are all there is.
        plan = await runs.reader.plan(row)
        folded = await runs.reader.rehydrate(row, plan, at=row.checkpoints, needs_values=False)
        if folded.state.undo is not None and folded.state.undo.needs_past(row.status):
            return 0
        return await services.store.trim(row.run_id, before=row.checkpoints)
    except (LeaseConflict, CheckpointPinned, RunNotFound):
        return 0


async def _with_keyframe(services: Services, runs: RestingRuns, row: RunRow) -> RunRow:
    """Return the run with a keyframe as its newest record."""
    if await ends_with_keyframe(services, row):
        return row
    begun = await begun_with(services, row)
    lease = await runs.claim(row.run_id, Durability(), waits=False)
    try:
        row = await runs.reader.row(row.run_id)
        if not row.status.is_final or row.pinned is not None:
            raise LeaseConflict(f"run {row.run_id!r} goes on.")
        if await ends_with_keyframe(services, row):  # another process was faster
            await runs.release(lease)
            return row
        journal, folded = await runs.journal_at_rest(row, lease)
        about = {**begun.about, ERRORS: await count_errors(services, row)}
        await journal.compact(row, folded.error, ttl=begun.ttl, metadata=about)
    except BaseException:
        await runs.release(lease)
        raise
    return await runs.reader.row(row.run_id)
