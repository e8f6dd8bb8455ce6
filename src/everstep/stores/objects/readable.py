"""Checkpoints as JSON files for people, beside the objects that count.

    checkpoints/{run}/cp_{sequence}_{trigger}.json   one checkpoint, with its steps and values
    checkpoints/{run}/batch_{first}_{last}.json      several that were written together to save calls
    checkpoints/{run}/latest.json                    a copy of the newest
    checkpoints/{run}/index.json                     all of them, in order
    checkpoints/preserved_runs.json                  runs that are kept whatever a policy says
    checkpoints/retention_log.json                   what was removed, and why

All but the last two follow from the logs of the runs and can be made again; nothing goes on from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from everstep.codec.plain_json import jsonable
from everstep.codec.records import look_into
from everstep.codec.shown import shown
from everstep.errors import EverstepError, StateCorrupted
from everstep.model.acts import Act
from everstep.model.records import CheckpointRecord, ErrorInfo, StepRecord, Written
from everstep.ports.store import RunRow
from everstep.stores.objects import names
from everstep.stores.objects.bucket import Bucket
from everstep.stores.objects.entries import Entry, Record, decode

FOLDER = "checkpoints/"
PRESERVED = f"{FOLDER}preserved_runs.json"
RETENTION_LOG = f"{FOLDER}retention_log.json"
_RESERVED = {PRESERVED.removeprefix(FOLDER), RETENTION_LOG.removeprefix(FOLDER)}
CHECKPOINT = "cp_"
BATCH = "batch_"
LATEST = "latest.json"
INDEX = "index.json"
_UNREADABLE = "unreadable"
_REQUIRED = {
    "checkpoint_id": str,
    "run_id": str,
    "timestamp": str,
    "trigger": str,
    "phase": str,
    "sequence_number": int,
}


class IndexRow(msgspec.Struct, frozen=True):
    """One checkpoint in an index."""

    sequence: int
    checkpoint_id: str
    trigger: str
    timestamp: str
    file_path: str


class Index(msgspec.Struct, frozen=True):
    """All checkpoints of a run that are kept."""

    run_id: str
    checkpoint_count: int
    checkpoints: list[IndexRow]
    last_updated: str


_indexes = msgspec.json.Decoder(Index)


def folder_of(run_id: str) -> str:
    """Return where the files of a run are."""
    part = names.quoted(run_id)
    if part in _RESERVED:
        part = f"={ord(part[0]):02X}{part[1:]}"
    return f"{FOLDER}{part}/"


def file_of(run_id: str, sequence: int, trigger: str) -> str:
    """Return where a checkpoint is."""
    return f"{folder_of(run_id)}{CHECKPOINT}{sequence:03d}_{names.quoted(trigger)}.json"


def is_checkpoint(name: str) -> bool:
    """True for a file with one checkpoint or several."""
    return name.rpartition("/")[2].startswith((CHECKPOINT, BATCH))


def batch(run_id: str, found: list[tuple[IndexRow, bytes]]) -> tuple[list[IndexRow], bytes]:
    """Return several checkpoints as one file, and their rows in the index."""
    first, last = found[0][0].sequence, found[-1][0].sequence
    path = f"{folder_of(run_id)}{BATCH}{first:03d}_{last:03d}.json"
    told = {
        "checkpoints": [msgspec.Raw(one) for _, one in found],
        "batch_metadata": {"first_sequence": first, "last_sequence": last, "checkpoint_count": len(found)},
    }
    return [msgspec.structs.replace(row, file_path=path) for row, _ in found], as_json(told)


def checkpoint(entry: Entry, record: Record) -> tuple[IndexRow, bytes]:
    """Return a checkpoint as JSON, and its row in the index."""
    row = entry.standing.row
    try:
        opened = look_into(record.body, f"checkpoint {record.sequence} of run {row.run_id!r}")
    except EverstepError as error:
        return _unreadable(row, record, error)
    held = opened.record
    inline = iter(opened.payloads)
    steps = [_step(step, inline) for step in held.steps]
    timestamp = held.created_at.isoformat()
    told: dict[str, Any] = {
        "checkpoint_id": record.checkpoint_id,
        "run_id": row.run_id,
        "timestamp": timestamp,
        "trigger": held.trigger.value,
        "phase": _phase(held) or row.flow_id,
        "sequence_number": record.sequence,
        "status": held.status.value,
        "flow": {"name": row.flow_id, "version": row.flow_version, "hash": row.flow_hash},
        "digest": opened.digest.hex(),
        "keyframe": record.keyframe,
        "steps": steps,
    }
    if row.parent_run_id is not None:
        told["parent_run_id"] = row.parent_run_id
    if held.error is not None:
        told["error"] = _error(held.error)
    if held.act is not None:
        told["act"] = _act(held.act)
    if held.metadata is not None:
        told["metadata"] = jsonable(held.metadata)
    if held.state is not None:
        told["state_snapshot"] = {"values": [_write(written, inline) for written in held.state.values]}
    path = file_of(row.run_id, record.sequence, held.trigger.value)
    index_row = IndexRow(record.sequence, record.checkpoint_id, held.trigger.value, timestamp, path)
    return index_row, as_json(told)


def _unreadable(row: RunRow, record: Record, error: EverstepError) -> tuple[IndexRow, bytes]:
    timestamp = row.created_at.isoformat()
    told = {
        "checkpoint_id": record.checkpoint_id,
        "run_id": row.run_id,
        "timestamp": timestamp,
        "trigger": _UNREADABLE,
        "phase": row.flow_id,
        "sequence_number": record.sequence,
        "error": {"code": error.code, "message": error.message},
    }
    path = file_of(row.run_id, record.sequence, _UNREADABLE)
    return IndexRow(record.sequence, record.checkpoint_id, _UNREADABLE, timestamp, path), as_json(told)


def _phase(record: CheckpointRecord) -> str:
    paths = [step.path for step in record.steps if not step.path.startswith("@")]
    return paths[-1] if paths else ""


def _step(step: StepRecord, inline: Iterator[bytes]) -> dict[str, Any]:
    told: dict[str, Any] = {"path": step.path, "visit": step.visit, "status": step.status.value}
    if step.attempts != 1:
        told["attempts"] = step.attempts
    for name in ("started_at", "ended_at", "retry_at", "key", "items"):
        value = getattr(step, name)
        if value is not None:
            told[name] = value.isoformat() if isinstance(value, datetime) else value
    if step.decision is not None:
        told["decision"] = list(step.decision)
    if step.error is not None:
        told["error"] = _error(step.error)
    if step.wait is not None:
        told["wait"] = {"wait_id": step.wait.wait_id, "kind": step.wait.kind}
    if step.act is not None:
        told["act"] = _act(step.act)
    told["writes"] = [_write(written, inline) for written in step.writes]
    return told


def _act(act: Act) -> dict[str, Any]:
    return {"encrypted": True, "how": act.how.value} if act.sealed else act.to_wire()


def _write(written: Written, inline: Iterator[bytes]) -> dict[str, Any]:
    told: dict[str, Any] = {"name": written.name, "version": written.version, "form": written.form.value}
    if written.artifact is not None:
        told["artifact"] = msgspec.to_builtins(written.artifact)
    elif written.is_inline:
        payload = next(inline, None)
        told["value"] = (
            {"$type": "unreadable", "text": "its bytes are missing"}
            if payload is None
            else shown(payload, written.name, written.size)
        )
    return told


def _error(error: ErrorInfo) -> dict[str, Any]:
    if error.sealed:
        return {"type": error.type, "code": error.code, "message": {"$type": "encrypted"}}
    return {"type": error.type, "code": error.code, "message": error.message, "traceback": error.traceback}


def as_json(value: object) -> bytes:
    """Return a value as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def last_entry(bucket: Bucket, run_id: str) -> Entry | None:
    """Return how a run stands; none if there is no such run."""
    there = bucket.names(names.log_prefix(run_id))
    found = bucket.get(there[-1]) if there else None
    return None if found is None else decode(found.data, there[-1])


def entries(bucket: Bucket, run_id: str, last: Entry) -> Iterator[Entry]:
    """Yield what happened to a run; what a run of the same id that was removed left is passed over."""
    for name in bucket.names(names.log_prefix(run_id)):
        found = bucket.get(name) if names.place_of(name) >= last.standing.begins else None
        if found is not None:
            yield decode(found.data, f"{name} in {bucket.place}")


def kept_records(entry: Entry, trimmed_before: int) -> list[Record]:
    """Return the records of an entry whose bytes are there."""
    return [r for r in entry.records if r.digest is None and r.sequence >= trimmed_before]


# -- reading the files, where they are all there is ---------------------------------------------------


def newest(bucket: Bucket, run_id: str) -> dict[str, Any]:
    """Return the newest checkpoint that the files of a run tell of.

    That is `latest.json`, else the newest in `index.json`, else the newest that a scan finds, each only if it
    is whole; `StateCorrupted` if there is none.
    """
    for name in _candidates(bucket, run_id):
        found = bucket.get(name)
        told = None if found is None else valid(found.data, run_id)
        if told is not None:
            return told
    raise StateCorrupted(
        f"no checkpoint of run {run_id!r} in {bucket.place} can be read.",
        fix="Restore it from a copy.",
        run_id=run_id,
    )


def _candidates(bucket: Bucket, run_id: str) -> Iterator[str]:
    """Yield where to look, each only once what came before was of no use."""
    folder = folder_of(run_id)
    yield f"{folder}{LATEST}"
    index = read_index(bucket, run_id)
    tried = set()
    for row in sorted(index.checkpoints if index is not None else (), key=lambda row: -row.sequence):
        tried.add(row.file_path)
        is_batch = row.file_path.startswith(f"{folder}{BATCH}")
        if is_batch or row.file_path == file_of(run_id, row.sequence, row.trigger):
            yield row.file_path
    scanned = [
        name for head in (CHECKPOINT, BATCH) for name in bucket.names(f"{folder}{head}") if name not in tried
    ]
    yield from sorted(scanned, key=_sequence_in, reverse=True)


def _sequence_in(name: str) -> int:
    file = name.rpartition("/")[2].removesuffix(".json")
    is_batch = file.startswith(BATCH)
    digits = file.rpartition("_")[2] if is_batch else file.removeprefix(CHECKPOINT).partition("_")[0]
    return int(digits) if digits.isdecimal() else -1


def read_index(bucket: Bucket, run_id: str) -> Index | None:
    """Return the index of a run; none if it is missing, or not one."""
    try:
        found = bucket.get(f"{folder_of(run_id)}{INDEX}")
        index = None if found is None else _indexes.decode(found.data)
    except (EverstepError, msgspec.DecodeError, ValueError):
        return None
    is_whole = (
        index is not None and index.run_id == run_id and index.checkpoint_count == len(index.checkpoints)
    )
    return index if is_whole else None


def valid(data: bytes, run_id: str) -> dict[str, Any] | None:
    """Return a checkpoint if it can be read and has all it must have."""
    try:
        told = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError):
        return None
    if not isinstance(told, dict):
        return None
    if isinstance(told.get("checkpoints"), list) and "batch_metadata" in told:
        told = told["checkpoints"][-1] if told["checkpoints"] else {}
        if not isinstance(told, dict):
            return None
    is_whole = all(type(told.get(name)) is kind for name, kind in _REQUIRED.items())
    return told if is_whole and told["run_id"] == run_id else None
