"""Brings the commits of a run to the store, or keeps them on this machine until the store can take them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from everstep.codec.records import seal, unseal
from everstep.errors import LeaseLost, StoreError
from everstep.model.durability import Durability
from everstep.model.enums import Status, Trigger
from everstep.model.records import FORK, CheckpointRecord, StepRecord
from everstep.ports.store import Admission, Commit, RunRow, Verdict
from everstep.runtime.lineage import Lineage
from everstep.runtime.patience import patiently
from everstep.runtime.services import Services

log = logging.getLogger("everstep")


class Outbox:
    """The commits of one run whose flow bears a store that fails."""

    def __init__(self, services: Services, run_id: str) -> None:
        self._services = services
        self._run_id = run_id
        self.kept = len(services.spool.of(run_id))
        """How many commits wait on this machine."""

    async def deliver(self, commit: Commit, attempt: Callable[[], Awaitable[Verdict]]) -> Verdict:
        """Bring a commit to the store, after those that wait; if that fails, let it wait too."""
        if self.kept and not await self.drain():
            return self._keep(commit)
        try:
            return await patiently(self._services.clock, attempt)
        except StoreError as error:
            if commit.admission is not None:
                raise
            log.warning("run %r goes on, its checkpoints are kept here for now: %s", self._run_id, error)
            return self._keep(commit)

    def _keep(self, commit: Commit) -> Verdict:
        self._services.spool.add(commit)
        self.kept += 1
        return Verdict.ACCEPTED

    async def drain(self) -> bool:
        """Bring what waits to the store; false while it cannot take it."""
        try:
            drained = await drain(self._services, self._run_id)
        except StoreError:
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


class Drained(NamedTuple):
    """What became of the commits of a run that waited on this machine."""

    run_id: str
    checkpoints: int
    fork: str | None = None
    """The run that they became, if the run itself had gone on without them."""


async def drain(services: Services, run_id: str) -> Drained:
    """Bring the commits of a run that wait on this machine to the store. Raises `StoreError` if it cannot."""
    commits = services.spool.of(run_id)
    fork: str | None = None
    if not commits:
        return Drained(run_id, 0)
    # Whoever asks the run to stop is answered by the next put; this is work that was done before.
    verdicts = await services.store.put(
        [msgspec.structs.replace(commit, ignores_signal=True) for commit in commits]
    )
    if any(verdict is not Verdict.ACCEPTED for verdict in verdicts):
        fork = await _fork(services, run_id, commits[verdicts.count(Verdict.ACCEPTED) :])
    services.spool.drop(run_id)
    return Drained(run_id, len(commits), fork)


async def _fork(services: Services, run_id: str, commits: Sequence[Commit]) -> str:
    """Keep commits whose place was taken as another run, which goes on from where they began."""
    lineage, first = Lineage(services.store), commits[0]
    row = await services.store.run(run_id)
    if row is None:
        raise StoreError(f"run {run_id!r} is gone from the store.", fix="Its last steps stay in the spool.")
    fork = f"{run_id[:100]}-{first.checkpoint_id[:8]}"
    link, digest = await lineage.digest(row, first.sequence - 1)
    origin = await lineage.flow_at(row, first.sequence - 1)  # whoever took it over may have migrated it
    blueprint = await services.store.blueprint(origin.flow_hash) or b""
    opening = CheckpointRecord(
        checkpoint_id=services.ids.new_id(),
        sequence=first.sequence,
        base=link.stored.checkpoint_id,
        trigger=Trigger.FORK,
        created_at=services.clock.now(),
        steps=(StepRecord(path=FORK),),  # its effects have happened, with the keys of the run
        run_id=fork,
        parent_run_id=link.row.run_id,
        flow_id=row.flow_id,
        flow_version=origin.flow_version,
        flow_hash=origin.flow_hash,
    )
    body, newest = seal(opening, digest, ())
    made = [_admission(opening, link.row, first.sequence - 1, body, blueprint)]
    before = digest
    for commit in commits:
        opened = unseal(commit.body, f"a spooled checkpoint of run {run_id!r}", before)
        before = opened.digest
        record = msgspec.structs.replace(
            opened.record,
            sequence=commit.sequence + 1,
            run_id=fork if opened.record.run_id else "",
            parent_run_id=link.row.run_id if opened.record.keyframe else None,
        )
        body, newest = seal(record, newest, opened.payloads)
        made.append(
            msgspec.structs.replace(
                commit,
                run_id=fork,
                sequence=record.sequence,
                base=made[-1].checkpoint_id,
                epoch=0,
                body=body,
                ignores_signal=False,
                waits=tuple(msgspec.structs.replace(wait, run_id=fork) for wait in commit.waits),
            )
        )
    verdicts = await services.store.put(made)
    if any(verdict is not Verdict.ACCEPTED for verdict in verdicts):
        raise StoreError(f"the last steps of run {run_id!r} stay in the spool: {verdicts[-1].value}.")
    log.warning("run %r had gone on without its last steps from here; they are kept as run %r", run_id, fork)
    return fork


def _admission(
    opening: CheckpointRecord, parent: RunRow, forked_at: int, body: bytes, blueprint: bytes
) -> Commit:
    admission = Admission(
        flow_id=opening.flow_id,
        flow_version=opening.flow_version,
        flow_hash=opening.flow_hash,
        blueprint=blueprint,
        parent_run_id=parent.run_id,
        forked_at=forked_at,
        created_at=opening.created_at,
        owner=None,
        ttl=Durability().lease_ttl,
        process=None,
        priority=parent.priority,
        group=parent.group,
    )
    return Commit(
        run_id=opening.run_id,
        sequence=opening.sequence,
        checkpoint_id=opening.checkpoint_id,
        base=opening.base,
        epoch=0,
        body=body,
        status=Status.RUNNING,
        admission=admission,
    )
