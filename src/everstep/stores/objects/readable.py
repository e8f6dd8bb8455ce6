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

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from everstep.codec.plain_json import jsonable
from everstep.codec.records import OpenRecord, look_into
from everstep.codec.shown import shown
from everstep.codec.wire import wire
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
_SHOWN = (64 * 1024, 1024, 0)
"""Bytes of the largest value that is shown where a file would be too large: the first of these that helps."""
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
Tell = Callable[[Written], Any]


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


def checkpoint(entry: Entry, record: Record, largest: int | None = None) -> tuple[IndexRow, bytes]:
    """Return a checkpoint as JSON, and its row in the index.

    Where that is larger than a file may be, values are left out of it, the largest ones first, and say so.
    """
    row = entry.standing.row
    try:
        opened = look_into(record.body, f"checkpoint {record.sequence} of run {row.run_id!r}")
    except EverstepError as error:
        return _unreadable(row, record, error)
    held = opened.record
    path = file_of(row.run_id, record.sequence, held.trigger.value)
    index_row = IndexRow(
        record.sequence, record.checkpoint_id, held.trigger.value, held.created_at.isoformat(), path
    )
    for most in (None, *_SHOWN):
        told = as_json(_checkpoint(row, record, opened, most))
        if largest is None or len(told) <= largest:
            return index_row, told
    return index_row, as_json(_checkpoint(row, record, opened, 0, with_steps=False))


def _checkpoint(
    row: RunRow, record: Record, opened: OpenRecord, most: int | None, *, with_steps: bool = True
) -> dict[str, Any]:
    """Return a checkpoint, with values up to so many bytes; without its steps only how many there are."""
    held = opened.record
    tell = _Values(opened.payloads, f"{row.run_id}@{record.sequence}", most).tell
    told: dict[str, Any] = {
        "checkpoint_id": record.checkpoint_id,
        "run_id": row.run_id,
        "timestamp": held.created_at.isoformat(),
        "trigger": held.trigger.value,
        "phase": _phase(held) or row.flow_id,
        "sequence_number": record.sequence,
        "status": held.status.value,
        "flow": {"name": row.flow_id, "version": row.flow_version, "hash": row.flow_hash},
        "digest": opened.digest.hex(),
        "keyframe": record.keyframe,
        "steps": [_step(step, tell) for step in held.steps],
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
        told["state_snapshot"] = {"values": [_write(written, tell) for written in held.state.values]}
    if not with_steps:
        told |= {"steps": [], "steps_left_out": len(held.steps)}
        told.pop("state_snapshot", None)
        told.pop("metadata", None)
    return told


class _Values:
    """The values of a checkpoint, in the order in which it names them."""

    def __init__(self, payloads: Sequence[bytes], where: str, most: int | None) -> None:
        self._payloads = iter(payloads)
        self._where = where
        self._most = most

    def tell(self, written: Written) -> Any:
        payload = next(self._payloads, None)
        if payload is None:
            return {"$type": "unreadable", "text": "its bytes are missing"}
        value = shown(payload, written.name, written.size)
        if self._most is None or len(msgspec.json.encode(value)) <= self._most:
            return value
        text = f"the file would be too large; everstep state {self._where}"
        return {"$type": "left_out", "size": written.size, "text": text}


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


def _step(step: StepRecord, tell: Tell) -> dict[str, Any]:
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
    told["writes"] = [_write(written, tell) for written in step.writes]
    return told


def _act(act: Act) -> dict[str, Any]:
    return {"encrypted": True, "how": act.how.value} if act.sealed else wire(act)


def _write(written: Written, tell: Tell) -> dict[str, Any]:
    told: dict[str, Any] = {"name": written.name, "version": written.version, "form": written.form.value}
    if written.artifact is not None:
        told["artifact"] = msgspec.to_builtins(written.artifact)
    elif written.is_inline:
        told["value"] = tell(written)
    return told


def _error(error: ErrorInfo) -> dict[str, Any]:
    if error.sealed:
        return {"type": error.type, "code": error.code, "message": {"$type": "encrypted"}}
    return {"type": error.type, "code": error.code, "message": error.message, "traceback": error.traceback}


def as_json(value: object) -> bytes:
    """Return a value as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def last_entry(bucket: Bucket, there: Sequence[str]) -> Entry | None:
    """Return how a run stands, by the names in its log; none if there are none."""
    found = bucket.get(there[-1]) if there else None
    return None if found is None else decode(found.data, there[-1])


def entries(bucket: Bucket, there: Sequence[str], last: Entry) -> Iterator[Entry]:
    """Yield what happened to a run, by the names in its log, as far as records of it are left.

    What a run of the same id that was removed left is passed over.
    """
    standing = last.standing
    is_last_only = standing.row.trimmed_before == standing.row.checkpoints
    first = standing.keyframe if is_last_only and standing.keyframe else standing.begins
    for name in there[:-1]:
        found = bucket.get(name) if names.place_of(name) >= first else None
        if found is not None:
            yield decode(found.data, f"{name} in {bucket.place}")
    yield last


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
    yield from sorted(scanned, key=sequence_in, reverse=True)


def sequence_in(name: str) -> int:
    """Return the newest checkpoint that a file tells of; -1 if its name does not say."""
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
