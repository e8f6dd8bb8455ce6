"""Carrying runs from one store to another. Stopped anywhere, it is simply done again.

A run that may go on is claimed first, so that no worker drives it meanwhile. One that is moved is marked
before it appears elsewhere, so that it is never driven in two places, and erased only once the digests were
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import cast

import msgspec

from everstep.codec.records import digest_of
from everstep.errors import EverstepError, LeaseConflict, LeaseLost, StateCorrupted, ValueNotStorable
from everstep.model.acts import Act, with_act
from everstep.model.bundles import COPIED, IMPORTED, MOVED, SET_ASIDE
from everstep.model.commits import NoticeRow, NoticeState
from everstep.model.durability import Durability
from everstep.model.leases import Lease, is_pause
from everstep.model.records import KEPT, ArtifactRef
from everstep.model.removal import Erasure, Removal
from everstep.model.waits import WaitRow, WaitStatus
from everstep.ports.inbox import InboxStore
from everstep.ports.labels import LabelStore
from everstep.ports.notices import NoticeFilter, NoticeStore
from everstep.ports.restoring import Restored, RestoringBlobs, WholeRun
from everstep.ports.retention import RetainingStore
from everstep.ports.store import CheckpointBlobStore, CheckpointStore, RunFilter, RunRow, StoredRecord
from everstep.runtime.at_rest import RestingRuns
from everstep.runtime.bundles.conflicts import make_room, meet, taken
from everstep.runtime.bundles.export import Progress
from everstep.runtime.bundles.import_run import restoring_store
from everstep.runtime.bundles.read_run import (
    PAGE,
    Checked,
    Reading,
    check_nothing_waits,
    family,
    read_whole,
)
from everstep.runtime.operations.acting import audit_row, note_one, one_more, riding, told, written
from everstep.runtime.operations.labels import labels_of_runs
from everstep.runtime.retention.erase import IMPORT, imported_runs
from everstep.runtime.retention.references import SLOW, gone_from
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import open_waits
from everstep.runtime.waits.inbox import all_signals
from everstep.runtime.waits.voting import bring_votes
from everstep.runtime.workers.claim import claim

TTL = timedelta(minutes=2)
"""How long a run stays claimed after the copying process was killed, if that cannot be found out sooner."""


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run."""

    run_id: str
    outcome: str
    """`copied`, `moved`, `there` if it was there already, or `failed`."""
    checkpoints: int = 0
    artifacts: int = 0
    digest: str = ""
    """Of the newest checkpoint, the same in both stores."""
    problem: str = ""
    """Why it failed; or why one that was to be moved is still where it was."""
    elsewhere: tuple[str, ...] = ()
    """What belongs to it and is kept in neither store, such as `channel`."""


class Target(msgspec.Struct, frozen=True):
    """Where runs go."""

    store: CheckpointStore
    blobs: CheckpointBlobStore | None
    shown: str


async def chosen(store: CheckpointStore, run_ids: Sequence[str] | None, wanted: RunFilter) -> list[str]:
    """Return the runs that are meant, the oldest first."""
    if run_ids is not None:
        return list(dict.fromkeys(check_run_id(run_id) for run_id in run_ids))
    found: list[str] = []
    before: str | None = None
    while True:
        page = await store.list(msgspec.structs.replace(wanted, limit=PAGE, before=before))
        found += [row.run_id for row in page]
        if len(page) < PAGE:
            return found[::-1]
        before = page[-1].run_id


async def copy_runs(
    services: Services,
    runs: RestingRuns,
    target: Target,
    run_ids: Sequence[str],
    *,
    move: bool,
    act: Act | None = None,
    on_run: Callable[[Copied], object] | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> list[Copied]:
    """Copy runs, and what they were forked from; returns what became of each, whatever became of others."""
    restoring_store(target.store)
    copying = _Copying(services, runs, target, move=move, act=act)
    copying.on_progress = on_progress
    copying.imported = await imported_runs(services)
    done: dict[str, Copied] = {}
    for run_id in run_ids:
        done[run_id] = await copying.run(run_id, run_ids)
        if not move or done[run_id].outcome == "failed":
            await copying.tell(done[run_id])
        if on_run is not None and (not move or done[run_id].outcome == "failed"):
            on_run(done[run_id])
    for run_id in reversed(run_ids if move else ()):  # forks go before what they were forked from
        if done[run_id].outcome != "failed":
            done[run_id] = await copying.erase(done[run_id])
            await copying.tell(done[run_id])
            if on_run is not None:
                on_run(done[run_id])
    return list(done.values())


class _Copying:
    """One call under way."""

    def __init__(
        self, services: Services, runs: RestingRuns, target: Target, *, move: bool, act: Act | None
    ) -> None:
        self._services = services
        self._runs = runs
        self._target = target
        self._move = move
        self._mark = f"{MOVED}{target.shown}"
        self._act = act
        self._done: set[str] = set()
        self._codes: dict[str, str] = {}
        """Of the errors with which runs stayed."""
        self._told: set[str] = set()
        """Runs whose rows in the audit log are written."""
        self._untold: set[str] = set()
        """Runs that the other store keeps without who is told of them."""
        self._heads: dict[str, int] = {}
        """The newest record of each run that was compared."""
        self._blobs: set[str] = set()
        self._begun = services.clock.monotonic()
        self._lease: Lease | None = None
        self._renewed = 0.0
        self._size = 0
        self.on_progress: Callable[[Progress], object] | None = None
        self.imported: set[str] = set()
        """The runs that came with a bundle: they stay strangers where they go."""

    async def run(self, run_id: str, all_ids: Sequence[str]) -> Copied:
        """Copy one run, and before it those it comes from that are not among the others."""
        try:
            row = await self._runs.reader.row(run_id)
            check_nothing_waits(self._services.spool, run_id)
            for ancestor in (await family(self._runs.reader.lineage, row))[:-1]:
                if ancestor.run_id not in self._done and ancestor.run_id not in all_ids:
                    await self._carry(ancestor, is_wanted=False)
            return await self._carry(row, is_wanted=True)
        except EverstepError as error:
            self._codes[run_id] = error.code
            return Copied(run_id=run_id, outcome="failed", problem=str(error))

    async def tell(self, copied: Copied) -> None:
        """Note for the audit log what became of a run, unless its row went with that it was erased."""
        run_id, stays = copied.run_id, copied.outcome == "failed" or bool(copied.problem)
        if run_id not in self._told:
            refused = self._codes.get(run_id, "") if stays else None
            await note_one(self._services, self._act, run_id, self._target.shown, refused=refused)

    async def _carry(self, row: RunRow, *, is_wanted: bool) -> Copied:
        moves = self._move and is_wanted
        if moves and row.needs_repair == self._mark and (there := await self._there(row)) is not None:
            # It was marked and has arrived; to claim it would let others drive it here again.
            return there
        if is_wanted and (moves or not row.status.is_final):
            await self._claim(row)
        try:
            copied = await self._copy(row, moves=moves)
        finally:
            await self._let_go(row)
        self._done.add(row.run_id)
        return copied

    async def _claim(self, row: RunRow) -> None:
        self._lease = await claim(
            self._services,
            self._runs.keeper,
            row.run_id,
            Durability(lease_ttl=TTL),
            waits=False,
            on_wait=lambda until: None,
        )
        self._renewed = self._services.clock.monotonic()

    async def _let_go(self, row: RunRow) -> None:
        """Give the run back as it was: a claim takes the mark of one that was set aside."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        store = self._services.store
        try:
            if row.needs_repair is not None and not row.status.is_final and not is_pause(row.needs_repair):
                await store.set_aside(row.run_id, epoch=lease.epoch, reason=row.needs_repair)
            else:
                await store.release_lease(lease)
        except EverstepError:
            self._runs.keeper.leave_behind(row.run_id, lease.owner)
            raise

    async def _renew(self) -> None:
        now = self._services.clock.monotonic()
        if self._lease is None or now - self._renewed < TTL.total_seconds() / 4:
            return
        [renewed] = await self._services.store.renew([self._lease], TTL)
        if not isinstance(renewed, Lease):
            raise LeaseLost(f"run {self._lease.run_id!r} was claimed by another, or told to stop.")
        self._lease, self._renewed = renewed, now

    async def _copy(self, row: RunRow, *, moves: bool) -> Copied:
        reading = Reading(self._services.store, self._services.codecs, row)
        whole, checked = await read_whole(reading)
        artifacts = 0
        for ref in _refs(checked):
            await self._renew()
            artifacts += await self._blob(ref)
            self._tell(whole, artifacts)
        whole = await self._with_told(whole, moves=moves)
        run = self._for_there(whole, row, moves=moves)
        met = await meet(self._target.store, run)
        judged = met.judged
        if moves and not row.status.is_final:
            await self._set_aside(row)
        if judged in (None, Restored.BEHIND):
            await self._renew()
            await self._note_origin(row, moves=moves)
            await make_room(self._target.store, met)
            judged = await self._restore(row, run)
        if judged in (Restored.TAKEN, Restored.BEHIND):
            raise taken(row.run_id, judged)
        if judged is Restored.NO_BASE:
            raise StateCorrupted(f"what run {row.run_id!r} was forked from is another run there.")
        await self._compare(whole)
        await self._bring_again(_refs(checked))
        if judged is Restored.SAME:
            await self._catch_up(whole.row, whole.waits)
        if moves:
            await self._wake(row.run_id)
        return Copied(
            run_id=row.run_id,
            outcome="copied" if judged is Restored.RESTORED else "there",
            checkpoints=len(whole.records),
            artifacts=artifacts,
            digest=reading.digest.hex(),
            elsewhere=(*_elsewhere(checked), *(["notifiers"] if self._leaves_told(whole) else [])),
        )

    async def _with_told(self, whole: WholeRun, *, moves: bool) -> WholeRun:
        """Return a run with who is told of it, and if it goes for good with what they were not told yet."""
        if not self._services.store.capabilities.has_notices:
            return whole
        run_id = whole.row.run_id
        told = await cast("NoticeStore", self._services.store).told_of(run_id)
        unsent = await self._unsent(run_id) if moves else ()
        if (told or unsent) and not self._target.store.capabilities.has_notices:
            self._untold.add(run_id)
            return whole
        return msgspec.structs.replace(whole, told=told, notices=unsent)

    async def _unsent(self, run_id: str) -> tuple[NoticeRow, ...]:
        """Return the notices of a run that were not sent, the oldest first."""
        if not self._services.store.capabilities.has_notices:
            return ()
        found: list[NoticeRow] = []
        before: int | None = None
        while True:
            wanted = NoticeFilter(run_id=run_id, limit=PAGE, before=before)
            page = await cast("NoticeStore", self._services.store).notices(wanted)
            found += [row for row in page if row.state is not NoticeState.SENT]
            if len(page) < PAGE:
                return tuple(reversed(found))
            before = page[-1].number

    def _leaves_told(self, whole: WholeRun) -> bool:
        """True if the other store does not keep who is told of a run."""
        return whole.row.run_id in self._untold

    async def _waits_to_tell(self, run_id: str) -> bool:
        """True if notices of a run were not sent, and are not there either: it was copied before."""
        there, unsent = self._target.store, await self._unsent(run_id)
        if not unsent or not there.capabilities.has_notices:
            return False
        return not await cast("NoticeStore", there).notices(NoticeFilter(run_id=run_id, limit=1))

    async def _bring_again(self, refs: Sequence[ArtifactRef]) -> None:
        """Bring artifacts once more that were removed there because no run named them yet."""
        if refs and self._services.clock.monotonic() - self._begun > SLOW:
            for ref in await gone_from(self._services.system, self._target.blobs, refs):
                self._blobs.discard(ref.checksum)
                await self._blob(ref)

    async def _restore(self, row: RunRow, run: WholeRun) -> Restored:
        try:
            act, there = self._act, self._target.store
            if act is not None:
                word = "move" if self._move else "copy"
                audit = audit_row(self._services, word, act, run.row.run_id, store=there)
                run = msgspec.structs.replace(run, audit=audit)
            return await restoring_store(there).restore(run)
        except ValueNotStorable:
            if self._lease is None and not row.status.is_final:
                await self._claim(row)  # it never goes there, so it is not set aside any more
            raise

    async def _note_origin(self, row: RunRow, *, moves: bool) -> None:
        """Note before it arrives that a run came with a bundle, and who brings it."""
        target = self._target.store
        lines: list[tuple[str, Act | None]] = [(IMPORT, None)] if row.run_id in self.imported else []
        lines += [("move" if moves else "copy", self._act)] if self._act is not None else []
        for what, act in lines if target.capabilities.retains else ():
            now = self._services.clock.now()
            line = Removal(at=now, what=what, run_id=row.run_id, flow_id=row.flow_id, act=act)
            await cast(RetainingStore, target).note(line)

    def _for_there(self, whole: WholeRun, row: RunRow, *, moves: bool) -> WholeRun:
        """Return the run as it is to be there; workers leave a copy of an unfinished one alone."""
        mark = None if row.needs_repair == self._mark else row.needs_repair
        if not moves and not whole.row.status.is_final and (mark is None or is_pause(mark)):
            mark = COPIED
        return msgspec.structs.replace(whole, row=msgspec.structs.replace(whole.row, needs_repair=mark))

    async def _set_aside(self, row: RunRow) -> None:
        assert self._lease is not None
        lease = self._lease
        if not await self._services.store.set_aside(row.run_id, epoch=lease.epoch, reason=self._mark):
            raise LeaseLost(f"run {row.run_id!r} was claimed by another.")
        self._lease = None

    async def _blob(self, ref: ArtifactRef) -> int:
        if ref.checksum in self._blobs:
            return 0
        source, target = self._services.blobs, self._target.blobs
        if source is None:
            raise StateCorrupted(f"artifact {ref.checksum} is kept where this host does not look.")
        if not isinstance(target, RestoringBlobs):
            raise StateCorrupted(f"{self._target.shown} takes no artifacts of other stores.")
        stored = await self._services.system.to_thread(source.stored, ref)
        source.check(ref, stored)
        stored = await self._services.system.to_thread(source.chosen, ref, stored, target)
        await self._services.system.to_thread(target.restore_checkpoint_blob, ref, stored)
        if await self._services.system.to_thread(target.get_checkpoint_blob, ref) != stored:
            raise StateCorrupted(f"artifact {ref.checksum} came out otherwise at {self._target.shown}.")
        self._blobs.add(ref.checksum)
        self._size += len(stored)
        return 1

    async def _compare(self, whole: WholeRun) -> None:
        """Raise unless the target has every record of a run, with its digest."""
        run_id, first = whole.row.run_id, whole.row.first
        for start in range(0, len(whole.records), PAGE):
            ours = whole.records[start : start + PAGE]
            there = await self._target.store.get(run_id, first=first + start, last=ours[-1].sequence)
            if [_named(r) for r in there] != [_named(r) for r in ours]:
                raise StateCorrupted(
                    f"the records of run {run_id!r} came out otherwise at {self._target.shown}."
                )
        self._heads[run_id] = whole.head.sequence

    async def _catch_up(self, row: RunRow, waits: Sequence[WaitRow]) -> None:
        """Bring answers, signals and a stop request to a run that was there before. Each counts once."""
        store = self._target.store
        for wait in waits:
            if wait.kind == "approval":
                await bring_votes(self._services.codecs, store, wait)
            if wait.status is WaitStatus.SETTLED and wait.settled_by is not None:
                await store.settle(
                    wait.wait_id,
                    by=wait.settled_by,
                    answer=wait.answer,
                    at=wait.settled_at,
                    details=wait.details,
                )
        if store.capabilities.has_inbox:
            for signal in await all_signals(self._services.store, row.run_id):
                if signal.taken_at is None:
                    await cast("InboxStore", store).send(row.run_id, signal)
        if (labels := await labels_of_runs(self._services, [row])) and store.capabilities.has_labels:
            await cast("LabelStore", store).tag(row.run_id, add=labels[row.run_id].tags)
        if row.stop_request is not None:
            note = await self._services.store.stop_note(row.run_id)
            await store.request_stop(row.run_id, row.stop_request, note)

    async def _wake(self, run_id: str) -> None:
        """Let workers go on with a run that was copied before and is moved now: it is marked no more."""
        store = self._target.store
        row = await store.run(run_id)
        if row is None or row.needs_repair not in (COPIED, IMPORTED):
            return
        me = self._services.processes.me()
        with suppress(LeaseConflict):  # it was resumed there
            owner = self._services.ids.new_id()
            await store.release_lease(await store.lease(run_id, owner=owner, ttl=TTL, process=me))

    async def _there(self, row: RunRow) -> Copied | None:
        """Return what became of a run that an earlier call brought there; none if it did not."""
        whole, _ = await read_whole(Reading(self._services.store, self._services.codecs, row))
        if (await meet(self._target.store, whole)).judged not in (Restored.SAME, Restored.AHEAD):
            return None
        await self._compare(whole)
        await self._catch_up(whole.row, whole.waits)
        await self._wake(row.run_id)
        digest = Checked(whole.head, None).digest.hex()
        return Copied(run_id=row.run_id, outcome="there", checkpoints=len(whole.records), digest=digest)

    async def erase(self, copied: Copied) -> Copied:
        """Erase a run that has arrived, or say why it stays."""
        store, replace = self._services.store, msgspec.structs.replace
        if not store.capabilities.retains:
            return replace(copied, problem="its store erases nothing, so it stays there too.")
        try:
            # Only what was compared: if it has gone on since, it stays.
            head, reason = self._heads[copied.run_id], with_act(self._mark.removeprefix(SET_ASIDE), self._act)
            row = await store.run(copied.run_id)
            if row is not None and row.checkpoints == head:
                # Others may take longer to copy than an answer takes to come.
                await self._catch_up(row, await open_waits(store, copied.run_id))
            if await self._waits_to_tell(copied.run_id):
                return replace(
                    copied, problem="it stays where it was, as it has notices that are still to be sent."
                )
            one_more(self._act)
            audit = riding(self._act, copied.run_id, self._target.shown)
            erase = cast(RetainingStore, store).erase
            judged = await erase(copied.run_id, head=head, reason=reason, **told(audit))
            written(audit, is_done=judged is Erasure.ERASED)
            if judged is Erasure.ERASED:
                self._told.add(copied.run_id)
        except EverstepError as error:
            self._codes[copied.run_id] = error.code
            return replace(copied, outcome="failed", problem=str(error))
        if judged in (Erasure.ERASED, Erasure.GONE):
            return replace(copied, outcome="moved")
        return replace(copied, problem=_STAYS[judged])

    def _tell(self, whole: WholeRun, artifacts: int) -> None:
        if self.on_progress is not None:
            records = len(whole.records)
            self.on_progress(
                Progress(run_id=whole.row.run_id, checkpoints=records, artifacts=artifacts, size=self._size)
            )


_STAYS = {
    Erasure.FORKED: "it stays where it was, as another run goes on from it.",
    Erasure.PINNED: "it stays where it was, as it is pinned.",
    Erasure.LEASED: "it stays where it was, as it has an owner.",
    Erasure.MOVED: "it stays where it was, as it has gone on.",
}


def _refs(checked: Sequence[Checked]) -> list[ArtifactRef]:
    found: dict[str, ArtifactRef] = {}
    for one in checked:
        for write in one.opened.record.writes() if one.opened is not None else ():
            if write.artifact is not None:
                found.setdefault(write.artifact.checksum, write.artifact)
    return list(found.values())


def _elsewhere(checked: Sequence[Checked]) -> tuple[str, ...]:
    names = {w.name for one in checked if one.opened is not None for w in one.opened.record.writes()}
    return tuple(sorted(name.removeprefix(KEPT) for name in names if name.startswith(KEPT)))


def _named(record: StoredRecord) -> tuple[int, str, bool, bytes]:
    digest = digest_of(record.body) if record.digest is None else record.digest
    return record.sequence, record.checkpoint_id, record.is_stub, digest
