"""What the columns of the tables mean: records, times, runs and waits as SQLite keeps them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from everstep.errors import StateCorrupted
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process
from everstep.model.waits import SettledBy, WaitRow, WaitStatus
from everstep.ports.store import Admission, Commit, RunRow, Signal, StoredRecord
from everstep.stores.columns import EPOCH, process_text, to_int, to_time

SPAN = 1 << 32
"""How many positions each run has in the table of checkpoints."""
MOST_RUNS = 1 << 31
"""A run's number and a position of its own must fit into one integer of SQLite's."""
_WAIT_COLUMNS = 23


def stored(sequence: int, checkpoint_id: str, keyframe: int, body: bytes, is_stub: int) -> StoredRecord:
    whole = memoryview(body).tobytes()
    if is_stub:
        return StoredRecord(sequence, str(checkpoint_id), False, b"", whole)
    return StoredRecord(sequence, str(checkpoint_id), bool(keyframe), whole)


def admission_values(commit: Commit, admission: Admission, expires_at: datetime | None) -> tuple[Any, ...]:
    """Return the row of a run that begins."""
    return (
        commit.run_id,
        admission.flow_id,
        admission.flow_version,
        admission.flow_hash,
        admission.parent_run_id,
        Status.RUNNING.value,
        to_int(admission.created_at),
        commit.epoch,
        admission.owner,
        to_int(expires_at),
        process_text(admission.process),
        commit.sequence,
        admission.forked_at,
        admission.priority,
        admission.group or "",
    )


def restored_values(row: RunRow) -> tuple[Any, ...]:
    """Return the row of a run that comes whole from another store, without its lease."""
    return (
        row.run_id,
        row.flow_id,
        row.flow_version,
        row.flow_hash,
        row.parent_run_id,
        row.status.value,
        to_int(row.created_at),
        to_int(row.ended_at),
        row.checkpoints,
        row.signal.value if row.signal is not None else None,
        to_int(row.acked_at),
        row.forked_at,
        row.trimmed_before,
        row.adopted_at,
        row.priority,
        row.group or "",
        row.needs_repair,
        row.pinned,
    )


def run_row(row: tuple[Any, ...]) -> RunRow:
    try:
        return _read_run(row)
    except (ValueError, TypeError, OverflowError, msgspec.DecodeError) as error:
        raise StateCorrupted(f"the row of run {row[1]!r} was altered: {error}.") from error


def _read_run(row: tuple[Any, ...]) -> RunRow:
    key, run_id, flow_id, flow_version, flow_hash, parent, status, created, ended = row[:9]
    epoch, owner, expires, process, takeovers, claimed, signal, acked = row[9:17]
    forked_at, trimmed_before, adopted_at, priority, group, needs_repair, pinned, head = row[17:]
    _check(int, key, epoch, takeovers, claimed, forked_at, trimmed_before, adopted_at, priority, head)
    _check(str, run_id, flow_id, flow_version, flow_hash, parent, status, owner, process, signal, group)
    _check(str, needs_repair, pinned)
    lease = None
    if owner is not None:
        held_by = msgspec.json.decode(process, type=Process) if process is not None else None
        lease = Lease(run_id, owner, epoch, to_time(expires) or EPOCH, held_by, takeovers)
    return RunRow(
        run_id=run_id,
        flow_id=flow_id,
        flow_version=flow_version,
        flow_hash=flow_hash,
        parent_run_id=parent,
        status=Status(status),
        created_at=to_time(created) or EPOCH,
        ended_at=to_time(ended),
        checkpoints=(head or key * SPAN) - key * SPAN,
        lease=lease,
        signal=Signal(signal) if signal is not None else None,
        acked_at=to_time(acked),
        forked_at=forked_at,
        trimmed_before=trimmed_before,
        adopted_at=adopted_at,
        priority=priority,
        group=group or None,
        needs_repair=needs_repair,
        pinned=pinned,
    )


def wait_values(wait: WaitRow) -> tuple[Any, ...]:
    """Return what is kept of a wait besides its run."""
    return (
        wait.wait_id,
        wait.flow_id,
        wait.path,
        wait.visit,
        wait.kind,
        to_int(wait.opened_at),
        wait.details,
        to_int(wait.due_at),
        wait.scheduler,
        wait.schedule_id,
        wait.notifies,
        to_int(wait.notified_at),
        wait.token_hash,
        to_int(wait.token_expires_at),
        wait.generation,
        wait.single_use,
        wait.status.value,
        to_int(wait.settled_at),
        wait.settled_by.value if wait.settled_by is not None else None,
        wait.answer,
    )


def wait_row(row: tuple[Any, ...]) -> WaitRow:
    """Read a row of waits that the id of its run precedes."""
    try:
        return _read_wait(row)
    except (ValueError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"the row of wait {row[2]!r} was altered: {error}.") from error


def _read_wait(row: tuple[Any, ...]) -> WaitRow:
    run_id, _, wait_id, _, flow_id, path, visit, kind, opened, details, due, scheduler, schedule_id = row[:13]
    notifies, notified, token_hash, token_expires, generation, single_use, status = row[13:20]
    settled, settled_by, answer = row[20:_WAIT_COLUMNS]
    _check(int, visit, notifies, generation, single_use)
    _check(str, run_id, wait_id, flow_id, path, kind, scheduler, schedule_id, status, settled_by)
    return WaitRow(
        wait_id=wait_id,
        run_id=run_id,
        flow_id=flow_id,
        path=path,
        visit=visit,
        kind=kind,
        opened_at=to_time(opened) or EPOCH,
        details=_bytes(details) or b"",
        due_at=to_time(due),
        scheduler=scheduler,
        schedule_id=schedule_id,
        notifies=bool(notifies),
        notified_at=to_time(notified),
        token_hash=_bytes(token_hash),
        token_expires_at=to_time(token_expires),
        generation=generation,
        single_use=bool(single_use),
        status=WaitStatus(status),
        settled_at=to_time(settled),
        settled_by=SettledBy(settled_by) if settled_by is not None else None,
        answer=_bytes(answer),
    )


def _check(kind: type, *values: Any) -> None:
    """Raise unless every value that is there is of the kind that its column holds; SQLite takes any."""
    for value in values:
        if value is not None and type(value) is not kind:
            raise ValueError(f"{value!r:.40} where {'text' if kind is str else 'a number'} belongs")


def due_time(at: Any) -> datetime | None:
    try:
        return to_time(at)
    except (TypeError, OverflowError) as error:
        raise StateCorrupted(f"the row of a wait was altered: {error}.") from error


def _bytes(value: Any) -> bytes | None:
    return None if value is None else memoryview(value).tobytes()
