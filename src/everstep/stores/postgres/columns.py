"""What the columns of the tables mean: commits, runs and waits as PostgreSQL keeps them."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Any

import msgspec

from everstep.errors import StateCorrupted
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process
from everstep.model.waits import SettledBy, WaitRow, WaitStatus
from everstep.ports.store import Admission, Commit, RunRow, Signal, StoredRecord
from everstep.stores.columns import EPOCH, process_text, span_to_int, to_int, to_time

_ESCAPE = "\x1a"
_UNSTORABLE = re.compile(f"[\0{_ESCAPE}\ud800-\udfff]")
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{4}})")
_encoder = msgspec.json.Encoder()


def text(value: str) -> str:
    """Return text that PostgreSQL can keep: it has no NUL and no half of a surrogate pair."""
    if value.isascii() and "\0" not in value and _ESCAPE not in value:
        return value
    return _UNSTORABLE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", value)


def some_text(value: str | None) -> str | None:
    return None if value is None else text(value)


def read_text(value: str) -> str:
    """Return what `text` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), value) if _ESCAPE in value else value


def _some_read(value: str | None) -> str | None:
    return None if value is None else read_text(value)


def group(commits: Sequence[Commit], known_flows: Container[str]) -> tuple[bytes, bytes]:
    """Return many commits as `put_2` takes them: what they say, and their bodies in one string."""
    said = [_commit(commit, known_flows) for commit in commits]
    return _encoder.encode(said), b"".join(commit.body for commit in commits)


def _commit(commit: Commit, known_flows: Container[str]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "run_id": text(commit.run_id),
        "sequence": commit.sequence,
        "checkpoint_id": commit.checkpoint_id,
        "base": commit.base,
        "epoch": commit.epoch,
        "keyframe": commit.keyframe,
        "ignores": commit.ignores_signal,
        "size": len(commit.body),
    }
    if commit.admission is not None:
        said["admission"] = _admission(commit.admission, known_flows)
    if commit.status is not None and not (commit.admission and commit.status is Status.RUNNING):
        said["status"] = commit.status.value
        said["ended_at"] = to_int(commit.ended_at)
    if commit.waits:
        said["waits"] = [_wait(wait) for wait in commit.waits]
    if commit.closed:
        said["closed"] = [text(wait_id) for wait_id in commit.closed]
    if commit.adopts is not None:
        said["adopts"] = {
            "flow_version": text(commit.adopts.flow_version),
            "flow_hash": text(commit.adopts.flow_hash),
            "blueprint": _hex(commit.adopts.blueprint),
        }
    return said


def _admission(admission: Admission, known_flows: Container[str]) -> dict[str, Any]:
    return {
        "flow_id": text(admission.flow_id),
        "flow_version": text(admission.flow_version),
        "flow_hash": text(admission.flow_hash),
        "blueprint": None if admission.flow_hash in known_flows else _hex(admission.blueprint),
        "parent_run_id": some_text(admission.parent_run_id),
        "forked_at": admission.forked_at,
        "created_at": to_int(admission.created_at),
        "owner": some_text(admission.owner),
        "ttl": span_to_int(admission.ttl),
        "process": process_text(admission.process),
        "priority": admission.priority,
        "run_group": text(admission.group or ""),
    }


def _wait(wait: WaitRow) -> dict[str, Any]:
    return {
        "wait_id": text(wait.wait_id),
        "flow_id": text(wait.flow_id),
        "path": text(wait.path),
        "visit": wait.visit,
        "kind": text(wait.kind),
        "opened_at": to_int(wait.opened_at),
        "details": _hex(wait.details),
        "due_at": to_int(wait.due_at),
        "scheduler": text(wait.scheduler),
        "schedule_id": some_text(wait.schedule_id),
        "notifies": wait.notifies,
        "notified_at": to_int(wait.notified_at),
        "token_hash": _hex(wait.token_hash),
        "token_expires_at": to_int(wait.token_expires_at),
        "generation": wait.generation,
        "single_use": wait.single_use,
        "status": wait.status.value,
        "settled_at": to_int(wait.settled_at),
        "settled_by": wait.settled_by.value if wait.settled_by is not None else None,
        "answer": _hex(wait.answer),
    }


def waits_text(waits: Sequence[WaitRow]) -> str:
    """Return waits as `follow_1` takes them."""
    return _encoder.encode([_wait(wait) for wait in waits]).decode()


def restored_values(row: RunRow) -> tuple[Any, ...]:
    """Return the row of a run that comes whole from another store, without its lease."""
    return (
        text(row.run_id),
        text(row.flow_id),
        text(row.flow_version),
        text(row.flow_hash),
        some_text(row.parent_run_id),
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
        text(row.group or ""),
        some_text(row.needs_repair),
        some_text(row.pinned),
    )


def _hex(value: bytes | None) -> str | None:
    return None if value is None else "\\x" + value.hex()


def stored(sequence: int, checkpoint_id: str, keyframe: bool, body: bytes, is_stub: bool) -> StoredRecord:
    if is_stub:
        return StoredRecord(sequence, checkpoint_id, False, b"", body)
    return StoredRecord(sequence, checkpoint_id, keyframe, body)


def run_row(row: tuple[Any, ...]) -> RunRow:
    """Read a row of runs with its newest sequence; what follows is left alone."""
    try:
        return _read_run(row)
    except (ValueError, TypeError, OverflowError, msgspec.DecodeError) as error:
        raise StateCorrupted(f"the row of run {row[1]!r} was altered: {error}.") from error


def _read_run(row: tuple[Any, ...]) -> RunRow:
    _, run_id, flow_id, flow_version, flow_hash, parent, status, created, ended = row[:9]
    epoch, owner, expires, process, takeovers, _, signal, acked = row[9:17]
    forked_at, trimmed_before, adopted_at, priority, group, needs_repair, pinned, head = row[17:25]
    lease = None
    if owner is not None:
        held_by = msgspec.json.decode(process, type=Process) if process is not None else None
        lease = Lease(
            read_text(run_id), read_text(owner), epoch, to_time(expires) or EPOCH, held_by, takeovers
        )
    return RunRow(
        run_id=read_text(run_id),
        flow_id=read_text(flow_id),
        flow_version=read_text(flow_version),
        flow_hash=read_text(flow_hash),
        parent_run_id=_some_read(parent),
        status=Status(status),
        created_at=to_time(created) or EPOCH,
        ended_at=to_time(ended),
        checkpoints=head or 0,
        lease=lease,
        signal=Signal(signal) if signal is not None else None,
        acked_at=to_time(acked),
        forked_at=forked_at,
        trimmed_before=trimmed_before,
        adopted_at=adopted_at,
        priority=priority,
        group=read_text(group) or None,
        needs_repair=_some_read(needs_repair),
        pinned=_some_read(pinned),
    )


def wait_row(row: tuple[Any, ...]) -> WaitRow:
    """Read a row of waits that the id of its run precedes."""
    try:
        return _read_wait(row)
    except (ValueError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"the row of wait {row[1]!r} was altered: {error}.") from error


def _read_wait(row: tuple[Any, ...]) -> WaitRow:
    run_id, wait_id, flow_id, path, visit, kind, opened, details, due, scheduler, schedule_id = row[:11]
    notifies, notified, token_hash, token_expires, generation, single_use, status = row[11:18]
    settled, settled_by, answer = row[18:]
    return WaitRow(
        wait_id=read_text(wait_id),
        run_id=read_text(run_id),
        flow_id=read_text(flow_id),
        path=read_text(path),
        visit=visit,
        kind=read_text(kind),
        opened_at=to_time(opened) or EPOCH,
        details=details,
        due_at=to_time(due),
        scheduler=read_text(scheduler),
        schedule_id=_some_read(schedule_id),
        notifies=notifies,
        notified_at=to_time(notified),
        token_hash=token_hash,
        token_expires_at=to_time(token_expires),
        generation=generation,
        single_use=single_use,
        status=WaitStatus(status),
        settled_at=to_time(settled),
        settled_by=SettledBy(settled_by) if settled_by is not None else None,
        answer=answer,
    )
