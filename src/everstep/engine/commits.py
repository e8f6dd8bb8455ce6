"""The verdict on a put, and what an accepted commit makes of its run's row. Every store decides by this.

Stores in Python call it. Where a server judges inside one statement or script, that repeats it, and the suite
for stores compares both on random histories (`everstep.testing.conformance.histories`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from everstep.model.commits import NO_LABELS, Admission, Commit, Labels, RunRow, StopRequest, Verdict
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.model.records import CheckpointRecord
from everstep.model.waits import HadEvent


def judge(
    commit: Commit,
    *,
    epoch: int,
    stop_request: StopRequest | str | None,
    before: str | None,
    here: str | None,
    is_told: bool = False,
) -> Verdict | None:
    """Return the verdict on a commit to a run that is there; none if it is to be written.

    `before` and `here` are the ids of the run's own records just before, and at, the commit's sequence. One
    that is there already was accepted, and its reply was lost. `is_told` says that the commit is for an act
    that is to be done once, and the audit log has its row.
    """
    if here is not None and here == commit.checkpoint_id:
        return Verdict.ACCEPTED
    if is_told or epoch != commit.epoch:
        return Verdict.FENCED
    if here is not None or before is None or before != commit.base:
        return Verdict.MOVED
    if stop_request is not None and not commit.answers_stop:
        return Verdict.STOP_REQUESTED
    return None


def judge_admission(commit: Commit, *, first: str | None, is_erased: bool) -> Verdict | None:
    """Return the verdict on an admission whose id is taken; none if the id is free.

    `first` is the id of the first record of the run that has it, if there is one.
    """
    if first is not None:
        return Verdict.ACCEPTED if first == commit.checkpoint_id else Verdict.EXISTS
    return Verdict.EXISTS if is_erased else None


def judge_base(commit: Commit, *, has_parent: bool, base: str | None) -> Verdict | None:
    """Return why a fork cannot be admitted; none if it can.

    `base` is the id of the parent's own record that it goes on from, if that is there and no stub.
    """
    assert commit.admission is not None and commit.admission.forked_at is not None
    if not has_parent:
        return Verdict.UNKNOWN_RUN
    is_next = commit.sequence == commit.admission.forked_at + 1
    return None if is_next and base is not None and base == commit.base else Verdict.MOVED


def admitted(commit: Commit, now: datetime) -> RunRow:
    """Return the row of a run that an accepted commit admits."""
    return followed(first_row(commit, now), commit)


def first_row(commit: Commit, now: datetime) -> RunRow:
    """Return the row of a run as its admission makes it, before what else the commit says of it."""
    admission = commit.admission
    assert admission is not None
    lease = None
    if admission.owner is not None:
        expires_at = now + admission.ttl
        lease = Lease(commit.run_id, admission.owner, commit.epoch, expires_at, admission.process)
    return RunRow(
        run_id=commit.run_id,
        flow_id=admission.flow_id,
        flow_version=admission.flow_version,
        flow_hash=admission.flow_hash,
        parent_run_id=admission.parent_run_id,
        status=Status.RUNNING,
        created_at=admission.created_at,
        ended_at=None,
        checkpoints=commit.sequence,
        lease=lease,
        forked_at=admission.forked_at,
        started_by=admission.started_by,
        **admission.traits(),
    )


def opening_of_fork(
    record: CheckpointRecord,
    parent: RunRow,
    forked_at: int,
    body: bytes,
    blueprint: bytes,
    labels: Labels = NO_LABELS,
    had: tuple[HadEvent, ...] = (),
) -> Commit:
    """Return the commit that admits a fork with its first record, its labels and the events that it had,
    without a lease."""
    admission = Admission(
        flow_id=record.flow_id,
        flow_version=record.flow_version,
        flow_hash=record.flow_hash,
        blueprint=blueprint,
        parent_run_id=parent.run_id,
        forked_at=forked_at,
        created_at=record.created_at,
        owner=None,
        ttl=timedelta(0),
        process=None,
        tags=labels.tags,
        had=had,
        **parent.traits(),
    )
    return Commit(
        run_id=record.run_id,
        sequence=record.sequence,
        checkpoint_id=record.checkpoint_id,
        base=record.base,
        epoch=0,
        body=body,
        status=Status.RUNNING,
        admission=admission,
        attributes=labels.attributes,
    )


def followed(row: RunRow, commit: Commit) -> RunRow:
    """Return the row of a run once a commit to it was accepted."""
    status, adopts = commit.status, commit.adopts
    if status is None and adopts is None:
        if commit.undoing is not None:
            return row.changed(checkpoints=commit.sequence, stop_request=None)
        return row.changed(checkpoints=commit.sequence)
    changes: dict[str, Any] = {"checkpoints": commit.sequence}
    if adopts is not None:
        changes["flow_version"] = adopts.flow_version
        changes["flow_hash"] = adopts.flow_hash
        changes["adopted_at"] = commit.sequence
    if status is not None:
        changes["status"] = status
        changes["ended_at"] = commit.ended_at
        if gives_back(status):
            changes["lease"] = None
        if ends_stop_request(commit):
            changes["stop_request"] = None
    return row.changed(**changes)


def gives_back(status: Status) -> bool:
    """True if a run that gets this status has no owner any more."""
    return status is not Status.RUNNING


def ends_stop_request(commit: Commit) -> bool:
    """True if with this commit a run has stopped, was told to in vain, or begins to undo what it did."""
    return commit.undoing is not None or (commit.status is not None and commit.status.is_final)


def closes_waits(status: Status) -> bool:
    """True if a run that gets this status wants no answer any more: all its waits are closed.

    One that failed may be opened again, and goes on with what was answered meanwhile.
    """
    return status in (Status.COMPLETED, Status.CANCELLED)
