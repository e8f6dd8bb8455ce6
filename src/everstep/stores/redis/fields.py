"""Rows as Redis keeps them: hashes of text, where a field that is not there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from everstep.engine.commits import answers_signal, closes_waits, gives_back
from everstep.errors import StateCorrupted
from everstep.model.enums import Status
from everstep.model.fleet import Quota
from everstep.model.leases import Lease, Process
from everstep.model.waits import SettledBy, WaitChange, WaitRow, WaitStatus
from everstep.ports.store import Admission, Commit, RunRow, Signal, StoredRecord

Hash = dict[bytes, bytes]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
WHOLE, KEYFRAME, STUB = b"dks"
"""The first byte of a record says what it is; then come the length of its id, id and body."""
_encode = msgspec.msgpack.Encoder().encode


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def span(length: timedelta) -> int:
    return length // _MICROSECOND


def moment(text: bytes | int) -> datetime:
    return _EPOCH + timedelta(microseconds=int(text))


def packed(kind: int, checkpoint_id: str, body: bytes) -> bytes:
    """Return a record as an item of its run's list."""
    name = checkpoint_id.encode()
    return bytes((kind, len(name) >> 8, len(name) & 255)) + name + body


def unpacked(sequence: int, item: bytes) -> StoredRecord:
    try:
        ends = 3 + (item[1] << 8) + item[2]
        name, body = item[3:ends].decode(), item[ends:]
        if item[0] == STUB:
            return StoredRecord(sequence, name, False, b"", body)
        return StoredRecord(sequence, name, item[0] == KEYFRAME, body)
    except (IndexError, UnicodeDecodeError) as error:
        raise StateCorrupted(f"record {sequence} was altered: {error}.") from error


def hash_of(flat: Sequence[bytes]) -> Hash:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def process_text(process: Process | None) -> bytes:
    return b"" if process is None else msgspec.json.encode(process)


def commit_arguments(commit: Commit) -> tuple[str | bytes | int, ...]:
    """Return what the script is told of one commit."""
    return (
        commit.run_id,
        commit.sequence,
        commit.checkpoint_id,
        commit.base or "",
        commit.epoch,
        ("k" if commit.keyframe else "") + ("i" if commit.ignores_signal else ""),
        packed(KEYFRAME if commit.keyframe else WHOLE, commit.checkpoint_id, commit.body),
        _brings(commit),
    )


def plain_arguments(commit: Commit) -> tuple[str | bytes | int, ...] | None:
    """Return what the script for a mere step is told; none if the commit is more than that."""
    has_more = commit.status is not None or commit.admission is not None or commit.adopts is not None
    if has_more or commit.keyframe or commit.waits or commit.closed or commit.base is None:
        return None
    return (
        commit.run_id,
        commit.sequence,
        commit.checkpoint_id,
        commit.base,
        commit.epoch,
        packed(WHOLE, commit.checkpoint_id, commit.body),
    )


def _brings(commit: Commit) -> bytes:
    """Return what a commit changes besides adding a record; nothing for most."""
    more: dict[str, Any] = {}
    if commit.admission is not None:
        more["admission"] = _admission(commit.admission)
    if commit.status is not None:
        more["status"] = commit.status.value
        more["gives_back"] = gives_back(commit.status)
        more["answers_signal"] = answers_signal(commit.status)
        more["closes_waits"] = closes_waits(commit.status)
        if commit.ended_at is not None:
            more["ended"] = str(micros(commit.ended_at))
    if commit.waits:
        more["waits"] = [flat(wait_fields(wait)) for wait in commit.waits]
    if commit.closed:
        more["closed"] = commit.closed
    if commit.adopts is not None:
        to = commit.adopts
        more["adopts"] = {
            "version": to.flow_version,
            "hash": to.flow_hash,
            "structure": as_text(to.blueprint),
        }
    return _encode(more) if more else b""


def as_text(data: bytes) -> msgspec.Raw:
    """Return bytes as MessagePack's text, which may be any bytes to Lua; its own bytes Redis cannot read."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4) + data)


def _admission(a: Admission) -> dict[str, Any]:
    told = {
        "flow": a.flow_id,
        "version": a.flow_version,
        "hash": a.flow_hash,
        "structure": as_text(a.blueprint),
        "created": str(micros(a.created_at)),
        "parent": a.parent_run_id,
        "forked": a.forked_at,
        "owner": a.owner,
        "ttl": span(a.ttl),
        "process": as_text(process_text(a.process)) if a.process is not None else None,
        "priority": a.priority,
        "group": a.group,
    }
    return {name: value for name, value in told.items() if value is not None}


def run_row(run_id: str, row: Hash) -> RunRow:
    try:
        return _read_run(run_id, row)
    except (ValueError, KeyError, OverflowError, msgspec.DecodeError) as error:
        raise StateCorrupted(f"the row of run {run_id!r} was altered: {error!r}.") from error


def _read_run(run_id: str, row: Hash) -> RunRow:
    lease = None
    if b"owner" in row:
        process = row.get(b"process")
        lease = Lease(
            run_id,
            row[b"owner"].decode(),
            int(row[b"epoch"]),
            moment(row[b"expires"]),
            msgspec.json.decode(process, type=Process) if process is not None else None,
            int(row.get(b"takeovers", 0)),
        )
    return RunRow(
        run_id=run_id,
        flow_id=row[b"flow"].decode(),
        flow_version=row[b"version"].decode(),
        flow_hash=row[b"hash"].decode(),
        parent_run_id=row[b"parent"].decode() if b"parent" in row else None,
        status=Status(row[b"status"].decode()),
        created_at=moment(row[b"created"]),
        ended_at=_time(row, b"ended"),
        checkpoints=int(row[b"head"]),
        lease=lease,
        signal=Signal(row[b"signal"].decode()) if b"signal" in row else None,
        acked_at=_time(row, b"acked"),
        forked_at=int(row[b"forked"]) if b"forked" in row else None,
        trimmed_before=int(row.get(b"trimmed", 0)),
        adopted_at=int(row[b"adopted"]) if b"adopted" in row else None,
        priority=int(row.get(b"priority", 0)),
        group=row[b"group"].decode() if b"group" in row else None,
        needs_repair=row[b"repair"].decode() if b"repair" in row else None,
        pinned=row[b"pinned"].decode() if b"pinned" in row else None,
    )


def quota_text(quotas: Mapping[str, Quota]) -> bytes:
    """Return quotas as the script that gives leases reads them; nothing for none."""
    told = {
        flow_id: {
            name: most for name in ("running", "per_group") if (most := getattr(quota, name)) is not None
        }
        for flow_id, quota in quotas.items()
    }
    return _encode(told) if told else b""


def _time(row: Hash, name: bytes) -> datetime | None:
    found = row.get(name)
    return moment(found) if found is not None else None


_CHANGEABLE = {
    "token_hash": "token",
    "token_expires_at": "token_expires",
    "generation": "generation",
    "single_use": "single_use",
    "schedule_id": "schedule",
    "notified_at": "notified",
    "details": "details",
    "due_at": "due",
}
"""What a change may give, and the field that keeps it."""


def wait_fields(wait: WaitRow) -> dict[str, Any]:
    """Return what is kept of a wait besides its run, its id first."""
    return {
        "wait": wait.wait_id,
        "flow": wait.flow_id,
        "path": wait.path,
        "visit": wait.visit,
        "kind": wait.kind,
        "opened": wait.opened_at,
        "details": wait.details,
        "due": wait.due_at,
        "scheduler": wait.scheduler,
        "schedule": wait.schedule_id,
        "notifies": wait.notifies,
        "notified": wait.notified_at,
        "token": wait.token_hash,
        "token_expires": wait.token_expires_at,
        "generation": wait.generation,
        "single_use": wait.single_use,
        "status": wait.status.value,
        "settled": wait.settled_at,
        "by": wait.settled_by.value if wait.settled_by is not None else None,
        "answer": wait.answer,
    }


def flat(fields: dict[str, Any]) -> list[Any]:
    """Return names and values in turn as a script takes them; what is none is left out."""
    return [part for name, value in fields.items() if value is not None for part in (name, _packable(value))]


def _packable(value: Any) -> str | msgspec.Raw:
    text = _text(value)
    return as_text(text) if isinstance(text, bytes) else text


def _text(value: Any) -> str | bytes:
    if isinstance(value, datetime):
        return str(micros(value))
    return value if isinstance(value, (str, bytes)) else str(int(value))


def wait_changes(change: WaitChange) -> list[str | bytes]:
    """Return the names and values of what a change gives; no value for what it takes away."""
    told: list[str | bytes] = []
    for given, name in _CHANGEABLE.items():
        value = getattr(change, given)
        if value is not msgspec.UNSET:
            told += (name, b"" if value is None else marked(_text(value)))
    return told


def marked(value: str | bytes | None) -> bytes:
    """Return a value as a script takes it where there may be none."""
    if value is None:
        return b""
    return b"=" + (value if isinstance(value, bytes) else value.encode())


def wait_row(row: Hash) -> WaitRow | None:
    if not row:
        return None
    try:
        return _read_wait(row)
    except (ValueError, KeyError, OverflowError) as error:
        name = row.get(b"wait", b"?").decode(errors="replace")
        raise StateCorrupted(f"the row of wait {name!r} was altered: {error!r}.") from error


def _read_wait(row: Hash) -> WaitRow:
    return WaitRow(
        wait_id=row[b"wait"].decode(),
        run_id=row[b"run"].decode(),
        flow_id=row[b"flow"].decode(),
        path=row[b"path"].decode(),
        visit=int(row[b"visit"]),
        kind=row[b"kind"].decode(),
        opened_at=moment(row[b"opened"]),
        details=row[b"details"],
        due_at=_time(row, b"due"),
        scheduler=row[b"scheduler"].decode(),
        schedule_id=row[b"schedule"].decode() if b"schedule" in row else None,
        notifies=row[b"notifies"] == b"1",
        notified_at=_time(row, b"notified"),
        token_hash=row.get(b"token"),
        token_expires_at=_time(row, b"token_expires"),
        generation=int(row[b"generation"]),
        single_use=row[b"single_use"] == b"1",
        status=WaitStatus(row[b"status"].decode()),
        settled_at=_time(row, b"settled"),
        settled_by=SettledBy(row[b"by"].decode()) if b"by" in row else None,
        answer=row.get(b"answer"),
    )
