"""What every store with rows keeps alike: times, processes, workers, the log of what went; and how large."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from everstep.errors import StateCorrupted, ValueNotStorable
from everstep.model.acts import AuditRow
from everstep.model.commits import OnParentCancel, StartedBy
from everstep.model.leases import Process, WorkerRow
from everstep.model.removal import Removal
from everstep.model.shapes import understood
from everstep.ports.restoring import WholeRun

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BLOBS = "Keep large values elsewhere, with Host(blobs=...), or return where it is instead."
_ELSEWHERE = "Bring the run to a store that keeps it as files: file:// or s3://"


def to_int(at: datetime | None) -> int | None:
    return None if at is None else (at - EPOCH) // _MICROSECOND


def to_time(at: int | None) -> datetime | None:
    return None if at is None else EPOCH + timedelta(microseconds=at)


def span_to_int(span: timedelta) -> int:
    return span // _MICROSECOND


def process_text(process: Process | None) -> str | None:
    return None if process is None else msgspec.json.encode(process).decode()


def started_text(started_by: StartedBy) -> str:
    """Return the node that started a run in one column. What is before the first space is its run."""
    return f"{started_by.run} {started_by.visit} {started_by.on_parent_cancel} {started_by.path}"


def read_started(text: str) -> StartedBy:
    """Return what `started_text` was given."""
    run, visit, mode, path = text.split(" ", 3)
    return StartedBy(run, path, int(visit), OnParentCancel(mode))


def read_worker(said: bytes, seen_at: int) -> WorkerRow:
    """Read what a worker said of itself, and when."""
    try:
        worker = msgspec.json.decode(said, type=understood(WorkerRow))
        return msgspec.structs.replace(worker, seen_at=to_time(seen_at))
    except (msgspec.DecodeError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"the row of a worker was altered: {error}.") from error


def read_removal(said: bytes) -> Removal:
    """Read a line of the log of what went."""
    try:
        return msgspec.json.decode(said, type=understood(Removal))
    except (msgspec.DecodeError, TypeError) as error:
        raise StateCorrupted(f"the log of what went was altered: {error}.") from error


def read_audit(
    number: int, audit_id: str, at: int, act: str, by: str | None, run_id: str | None, details: bytes
) -> AuditRow:
    """Read a row of the audit log."""
    columns = {"number": number, "audit_id": audit_id, "act": act, "by": by, "run_id": run_id}
    try:
        told = {**columns, "at": to_time(at), **msgspec.json.decode(details)}
        return msgspec.convert(told, understood(AuditRow))
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"row {number} of the audit log was altered: {error}.") from error


def check_run(run: WholeRun, most: int, place: str, at_once: int | None = None) -> None:
    """Refuse a run from another store of which something is larger than this one keeps under one key.

    Where the records come in one call, all of them may be `at_once` at most.
    """
    if at_once is not None:
        check_size(sum(len(r.body) for r in run.records), at_once, place, "a run", _ELSEWHERE)
    for record in run.records:
        check_size(len(record.body), most, place, "a record", _ELSEWHERE)
    for wait in run.waits:
        check_size(len(wait.details or b"") + len(wait.answer or b""), most, place)


def check_size(size: int, most: int, place: str, what: str = "a value", fix: str = _BLOBS) -> None:
    """Refuse a value before it is sent: a server hangs up on one that is too large, as if it were gone."""
    if size > most:
        raise ValueNotStorable(
            f"{what} of {size / 2**20:,.0f} MiB is too large for {place}: at most {most / 2**20:,.0f} MiB.",
            fix=fix,
        )
