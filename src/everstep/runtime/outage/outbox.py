"""Brings the commits of a run to the store, or keeps them on this machine until the store can take them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from uuid import NAMESPACE_OID, uuid5

import msgspec

from everstep.codec.records import unseal
from everstep.codec.sealing import open_record, seal_closed
from everstep.engine.commits import opening_of_fork
from everstep.errors import EverstepError, LeaseLost, SpoolLost, StoreError, StoreUnavailable
from everstep.model.commits import NO_LABELS
from everstep.model.enums import Status, Trigger
from everstep.model.records import FORK, CheckpointRecord, StepRecord
from everstep.model.waits import WaitRow
from everstep.ports.store import CheckpointStore, Commit, RationedStore, Verdict
from everstep.runtime.drive.attributes import inherited
from everstep.runtime.drive.committer import PUT_BYTES, fitting
from everstep.runtime.lineage import Lineage
from everstep.runtime.operations.labels import labels_of_runs
from everstep.runtime.outage.store_retry import HURRY, patiently
from everstep.runtime.services import Services

log = logging.getLogger("everstep")
BATCH = 64
"""How many commits are read and put at once."""


SHARED = 10
"""How many commits of a run wait for each other while the store has few calls left."""
REST = 9
"""How many times as long as the store took to say that it cannot it is left alone."""


class Outbox:
    """Commits of a run with `on_store_failure="best_effort"`."""

    def __init__(self, services: Services, run_id: str, *, tolerates: type[StoreError] = StoreError) -> None:
        self._services = services
        self._run_id = run_id
        self._tolerates = tolerates
        """Of what else the store says the run stops."""
        kept = services.spool.of(run_id)
        self.kept = len(kept)
        """How many commits wait on this machine."""
        self._newest = kept[-1].sequence if kept else 0
        self._rests_until = 0.0
        """The store is not asked before: it took long to say that it cannot."""

    async def deliver(self, commit: Commit, attempt: Callable[[], Awaitable[Verdict]]) -> Verdict:
        """Bring a commit to the store, after those that wait; if that fails, let it wait too."""
        if self.kept and commit.admission is not None:
            await drain(self._services, self._run_id)  # a run that begins has nothing here
            self.kept = 0
        elif is_short(self._services.store) and _can_share(commit):
            return await self._share(commit)
        elif self.kept and not await self._drained(commit):
            return await self._keep(commit)
        asked = self._services.clock.monotonic()
        try:
            return await patiently(self._services.clock, attempt, within=HURRY)
        except StoreError as error:
            if commit.admission is not None or not isinstance(error, self._tolerates):
                raise
            log.warning("run %r goes on, its checkpoints are kept here for now: %s", self._run_id, error)
            self._rest(asked)
            return await self._keep(commit)

    async def _share(self, commit: Commit) -> Verdict:
        """Let a commit wait for others, so that they are put together; the store is asked once for all."""
        verdict = await self._keep(commit)
        if self.kept >= SHARED:
            await self._drain_if_rested()
        return verdict

    async def _keep(self, commit: Commit) -> Verdict:
        spool = self._services.spool
        if self.kept and not spool.has(self._run_id):
            self.kept = 0
            await self._check_written()  # another process emptied it, or took it away
        spool.add(commit)
        self.kept, self._newest = self.kept + 1, commit.sequence
        return Verdict.ACCEPTED

    async def _drained(self, commit: Commit) -> bool:
        """Bring what waits to the store before a commit; one that opens waits is announced."""
        return await (self.drain() if commit.waits else self._drain_if_rested())

    async def _drain_if_rested(self) -> bool:
        asked = self._services.clock.monotonic()
        if asked < self._rests_until:
            return False
        is_drained = await self.drain()
        if not is_drained:
            self._rest(asked)
        return is_drained

    def _rest(self, asked: float) -> None:
        """Leave a store that is slow to say no alone for a while: the run is not to be slowed down by it."""
        now = self._services.clock.monotonic()
        self._rests_until = now + REST * (now - asked)

    async def drain(self) -> bool:
        """Bring what waits to the store; false while it cannot take it."""
        try:
            drained = await drain(self._services, self._run_id, is_patient=False)
            if drained.checkpoints < self.kept:
                await self._check_written()
        except SpoolLost:
            raise
        except self._tolerates:
            return False
        self.kept = 0
        if drained.fork is not None:
            raise LeaseLost(
                f"run {self._run_id!r} was taken over while the store was out of reach.",
                fix=f"What was done here meanwhile is kept as run {drained.fork}.",
                run_id=self._run_id,
                fork=drained.fork,
            )
        return True

    async def _check_written(self) -> None:
        """Raise if what this process kept is neither here nor in the store."""
        row = await self._services.store.run(self._run_id)
        if row is None or row.checkpoints < self._newest:
            there = 0 if row is None else row.checkpoints
            raise SpoolLost(
                f"checkpoints {there + 1} to {self._newest} of run {self._run_id!r} are gone from "
                f"{self._services.spool.path(self._run_id)}, and were never written to the store.",
                fix=f"Resume the run: it goes on from checkpoint {there}, and what came after runs again.",
            )


def _can_share(commit: Commit) -> bool:
    """True for a commit that may wait: it ends nothing, and no caller waits for it."""
    return commit.status is None and not (commit.admission or commit.waits or commit.closed or commit.adopts)


def waits_here(services: Services, run_id: str | None = None) -> list[WaitRow]:
    """Return the waits, of one run or of all, whose opening still waits on this machine, the oldest first."""
    found: dict[str, WaitRow] = {}
    for name in services.spool.runs() if run_id is None else [run_id]:
        for commit in services.spool.of(name):
            found |= {wait.wait_id: wait for wait in commit.waits}
            for wait_id in commit.closed:
                found.pop(wait_id, None)
    return list(found.values())


class Drained(msgspec.Struct, frozen=True):
    """What became of the commits of a run that waited on this machine."""

    run_id: str
    checkpoints: int
    fork: str | None = None
    """The run that they became, if the run itself had gone on without them."""


async def drain(services: Services, run_id: str, *, is_patient: bool = True) -> Drained:
    """Bring the commits of a run that wait on this machine to the store. Raises `StoreError` if it cannot.

    An impatient caller asks a store that is out of reach once.
    """
    waiting = services.spool.each(run_id)
    done: list[str] = []
    fork: str | None = None
    while fork is None and (batch := _next_batch(waiting)):
        # A request to stop is handled by the next put; this is work that was done before.
        commits = [
            msgspec.structs.replace(commit, answers_stop=True, hurries=not is_patient) for commit in batch
        ]
        put = partial(services.store.put, commits)
        verdicts = await (patiently(services.clock, put) if is_patient else put())
        if any(verdict is not Verdict.ACCEPTED for verdict in verdicts):
            batch += waiting
            fork = await _fork(services, run_id, batch[verdicts.count(Verdict.ACCEPTED) :])
        done += [commit.checkpoint_id for commit in batch]
    services.spool.drop(run_id, done)
    return Drained(run_id, len(done), fork)


def _next_batch(waiting: Iterator[Commit]) -> list[Commit]:
    """Return the commits that are put next, as many as a store takes in one go."""
    batch: list[Commit] = []
    size = 0
    for commit in islice(waiting, BATCH):
        batch.append(commit)
        size += len(commit.body)
        if size >= PUT_BYTES:
            break
    return batch


async def drain_all(
    services: Services, apart_from: Collection[str] = ()
) -> tuple[list[Drained], list[EverstepError]]:
    """Bring what waits on this machine to the store; one run whose commits cannot be taken stops no other."""
    drained: list[Drained] = []
    errors: list[EverstepError] = []
    for run_id in services.spool.runs():
        if run_id in apart_from:
            continue
        try:
            drained.append(await drain(services, run_id))
        except EverstepError as error:
            errors.append(error)
            if isinstance(error, StoreUnavailable):
                break
    return [one for one in drained if one.checkpoints], errors


async def _fork(services: Services, run_id: str, commits: Sequence[Commit]) -> str:
    """Keep commits whose place was taken as another run, which goes on from where they began.

    Made of the same commits it is the same fork, so it may be put again after a crash.
    """
    lineage, first = Lineage(services.store, services.codecs), commits[0]
    row = await services.store.run(run_id)
    if row is None or row.checkpoints < first.sequence - 1:
        raise foreign(services, run_id)
    link, digest = await lineage.digest(row, first.sequence - 1)
    if link.stored.checkpoint_id != first.base:
        raise foreign(services, run_id)
    fork = f"{run_id[:100]}-{first.checkpoint_id[:8]}"
    origin = await lineage.flow_at(row, first.sequence - 1)  # its new owner may have migrated it
    blueprint = await services.store.blueprint(origin.flow_hash) or b""
    labels = (await labels_of_runs(services, [row])).get(run_id, NO_LABELS)
    drafts = inherited(services.values, labels.attributes) if labels.attributes else []
    opening = CheckpointRecord(
        checkpoint_id=str(uuid5(NAMESPACE_OID, first.checkpoint_id)),
        sequence=first.sequence,
        base=link.stored.checkpoint_id,
        trigger=Trigger.FORK,
        created_at=unseal(first.body, where(run_id), digest, first.checkpoint_id).record.created_at,
        steps=(
            StepRecord(path=FORK, writes=tuple(d.written for d in drafts)),
        ),  # its effects have happened, with the keys of the run
        run_id=fork,
        parent_run_id=link.row.run_id,
        flow_id=row.flow_id,
        flow_version=origin.flow_version,
        flow_hash=origin.flow_hash,
    )
    payloads = [draft.payload for draft in drafts if draft.payload is not None]
    body, newest = seal_closed(services.codecs, fork, opening, digest, payloads)
    made = [opening_of_fork(opening, link.row, first.sequence - 1, body, blueprint, labels)]
    before = digest
    for commit in commits:
        closed = unseal(commit.body, where(run_id), before, commit.checkpoint_id)
        opened = open_record(closed, run_id, where(run_id), services.codecs)
        before = opened.digest
        record = msgspec.structs.replace(
            opened.record,
            sequence=commit.sequence + 1,
            run_id=fork if opened.record.run_id else "",
            parent_run_id=link.row.run_id if opened.record.keyframe else None,
        )
        body, newest = seal_closed(services.codecs, fork, record, newest, opened.payloads)
        made.append(_moved(commit, fork, record.sequence, made[-1].checkpoint_id, body))
    while made:
        fits = fitting(made)
        verdicts = await patiently(services.clock, partial(services.store.put, made[:fits]))
        if any(verdict is not Verdict.ACCEPTED for verdict in verdicts):
            raise StoreError(f"the last steps of run {run_id!r} stay in the spool: {verdicts[-1].value}.")
        made = made[fits:]
    log.warning("run %r had gone on without its last steps from here; they are kept as run %r", run_id, fork)
    return fork


def where(run_id: str) -> str:
    """Name a commit that waits on this machine."""
    return f"a spooled checkpoint of run {run_id!r}"


def foreign(services: Services, run_id: str) -> StoreError:
    """Say that what waits for a run has no place in this store."""
    return StoreError(
        f"what waits on this machine for run {run_id!r} does not go on from anything in this store.",
        fix=f"It may belong to another one, or the run was removed. It is in {services.spool.path(run_id)}.",
    )


def _moved(commit: Commit, fork: str, sequence: int, base: str, body: bytes) -> Commit:
    """Return a commit as one of the fork."""
    # What waited where it was forked is asked again, so its next owner must find it.
    status = Status.RUNNING if commit.status is Status.HALTED else commit.status
    return msgspec.structs.replace(
        commit,
        run_id=fork,
        sequence=sequence,
        base=base,
        epoch=0,
        body=body,
        status=status,
        answers_stop=False,
        waits=tuple(msgspec.structs.replace(wait, run_id=fork) for wait in commit.waits),
    )


def is_short(store: CheckpointStore) -> bool:
    """True while a store has so few calls left that they should be saved."""
    return store.capabilities.rationed and isinstance(store, RationedStore) and store.is_short()
