"""Rows as Redis keeps them: hashes of text, where a field that is not there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from everstep.engine.commits import closes_waits, ends_stop_request, first_row, gives_back
from everstep.errors import StateCorrupted
from everstep.model.acts import AuditRow
from everstep.model.commits import Attribute, LabelKind, Labels, NoticeRow, Tag
from everstep.model.leases import Lease, Process, Quota
from everstep.model.removal import Tombstone
from everstep.model.shapes import understood
from everstep.model.waits import SignalRow, WaitChange, WaitRow
from everstep.on_demand import on_demand
from everstep.ports.events import Wanted
from everstep.ports.store import Admission, Commit, RunRow, StoredRecord
from everstep.stores.columns import read_audit
from everstep.stores.tables import Converts, Rows, RowTable

if TYPE_CHECKING:
    from everstep.stores.notice_rows import told_text
else:
    told_text = on_demand("everstep.stores.notice_rows:told_text")

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
        ("k" if commit.keyframe else "") + ("i" if commit.answers_stop else ""),
        packed(KEYFRAME if commit.keyframe else WHOLE, commit.checkpoint_id, commit.body),
        _brings(commit),
    )


def plain_arguments(commit: Commit) -> tuple[str | bytes | int, ...] | None:
    """Return what the script for a mere step is told; none if the commit is more than that."""
    has_more = commit.status is not None or commit.admission is not None or commit.adopts is not None
    has_more = has_more or commit.keyframe or bool(commit.waits or commit.closed or commit.taken)
    has_more = has_more or commit.audit is not None or bool(commit.attributes or commit.tells)
    has_more = has_more or commit.undoing is not None
    if has_more or commit.base is None:
        return None
    return (
        commit.run_id,
        commit.sequence,
        commit.checkpoint_id,
        commit.base,
        commit.epoch,
        packed(WHOLE, commit.checkpoint_id, commit.body),
    )


def audit_fields(row: AuditRow) -> tuple[str, ...]:
    """Return a row of the audit log as a script takes it."""
    told = (row.audit_id, row.act, row.by, row.run_id, row.details().decode())
    kept = (row.audit_id, row.run_id or "", msgspec.json.encode(told).decode())
    return (*kept, "once") if row.once else kept


def audit_told(row: AuditRow | None) -> tuple[bytes, ...]:
    """Return the last argument of a script that does a named act; none for any other."""
    return () if row is None else (_encode(audit_fields(row)),)


def audit_row(number: bytes, said: bytes) -> AuditRow:
    """Read a row of the audit log."""
    at, _, told = said.partition(b" ")
    audit_id, act, by, run_id, details = msgspec.json.decode(told)
    return read_audit(int(number), audit_id, int(at), act, by, run_id, details.encode())


def _brings(commit: Commit) -> bytes:
    """Return what a commit changes besides adding a record; nothing for most."""
    more: dict[str, Any] = {}
    if commit.undoing is not None:
        more["undoing"] = commit.undoing
    if ends_stop_request(commit):
        more["ends_stop_request"] = True
    if commit.admission is not None:
        more["admission"] = _admission(commit, commit.admission)
    if commit.status is not None:
        more["status"] = commit.status.value
        more["gives_back"] = gives_back(commit.status)
        more["closes_waits"] = closes_waits(commit.status)
        if commit.ended_at is not None:
            more["ended"] = str(micros(commit.ended_at))
    if commit.waits:
        more["waits"] = [wait_fields(wait) for wait in commit.waits]
    if commit.closed:
        more["closed"] = commit.closed
    if commit.taken:
        more["taken"] = commit.taken
    if commit.pairs:
        more["pairs"] = True
        if listening := [told for wait in commit.waits if (told := _listening(wait)) is not None]:
            more["listening"] = listening
    if commit.audit is not None:
        more["audit"] = audit_fields(commit.audit)
    if commit.admission is not None and commit.admission.tags:
        more["tags"] = tag_fields(commit.admission.tags)
    if commit.admission is not None and commit.admission.had:
        more["had"] = commit.admission.had
    if commit.attributes:
        more["attributes"] = attribute_fields(commit.attributes)
    if commit.tells:
        more["tells"] = [_tell_fields(row) for row in commit.tells]
    if commit.adopts is not None:
        to = commit.adopts
        more["adopts"] = {
            "version": to.flow_version,
            "hash": to.flow_hash,
            "structure": as_text(to.blueprint),
        }
    return _encode(more) if more else b""


def _tell_fields(row: NoticeRow) -> dict[str, Any]:
    """Return a notice that a commit brings as the script takes it; one without a notifier is for all."""
    times = {name: at for name, at in (("at", row.at), ("due", row.due_at)) if at is not None}
    told: dict[str, Any] = {name: str(micros(at)) for name, at in times.items()} | {"occasion": row.occasion}
    if row.notifier:
        told["notifier"] = row.notifier
    if row.wait_id is not None:
        told["more"] = ["wait_id", row.wait_id, "every", str(row.every)]
    return told


def tag_fields(tags: Iterable[Tag]) -> list[str]:
    """Return names and values, one after the other."""
    return [part for tag in tags for part in (tag.name, tag.value)]


def attribute_fields(attributes: Iterable[Attribute]) -> list[str]:
    """Return names and values, one after the other; a value begins with its kind."""
    found = []
    for one in attributes:
        value = one.text if one.number is None else repr(one.number)
        found += [one.name, f"{one.kind.value}{value or ''}"]
    return found


def labels(
    run_id: str, tags: Sequence[bytes], attributes: Sequence[bytes], undoing: bytes | None = None
) -> Labels:
    """Read the labels of a run."""
    try:
        pairs = {name.decode(): value.decode() for name, value in _pairs(tags)}
        kept = {name.decode(): value.decode() for name, value in _pairs(attributes)}
        found = [_attribute(name, kept[name]) for name in sorted(kept)]
        said = "" if undoing is None else undoing.decode()
    except ValueError as error:
        raise StateCorrupted(f"a label of run {run_id!r} was altered: {error}.") from error
    return Labels(tuple(Tag(name, pairs[name]) for name in sorted(pairs)), tuple(found), said)


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _attribute(name: str, kept: str) -> Attribute:
    kind = LabelKind(kept[:1])
    if kind is LabelKind.TEXT:
        return Attribute(name, kind, kept[1:])
    return Attribute(name, kind, number=float(kept[1:]))


def _listening(wait: WaitRow) -> dict[str, Any] | None:
    """Return which events a wait is for; none if it is for something else."""
    wanted = Wanted.of(wait.topic)
    if wanted is None:
        return None
    about = {"name": wanted.name, "hashes": wanted.hashes, "prefix": wanted.prefix}
    return {"wait": wait.wait_id, "topic": wait.topic, **about}


def as_text(data: bytes) -> msgspec.Raw:
    """Return bytes as MessagePack's text, which may be any bytes to Lua; its own bytes Redis cannot read."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4) + data)


def _admission(commit: Commit, a: Admission) -> dict[str, Any]:
    told = {
        "fields": run_fields(first_row(commit, a.created_at)),
        "flow": a.flow_id,
        "hash": a.flow_hash,
        "structure": as_text(a.blueprint),
        "parent": a.parent_run_id,
        "starter": a.started_by and a.started_by.run,
        "forked": a.forked_at,
        "owner": a.owner,
        "ttl": span(a.ttl),
        "process": as_text(process_text(a.process)) if a.process is not None else None,
        "told": told_text(a.told) if a.told else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def run_fields(row: RunRow) -> list[Any]:
    """Return what is kept of a run that is new here, apart from its lease."""
    return flat(_RUNS.kept(row))


def run_row(run_id: str, row: Hash) -> RunRow:
    try:
        return _RUNS.row(
            [row.get(name) for name in _RUN_NAMES],
            run_id=run_id,
            checkpoints=int(row[b"head"]),
            lease=_lease(run_id, row),
        )
    except (ValueError, KeyError, OverflowError, msgspec.DecodeError) as error:
        raise StateCorrupted(f"the row of run {run_id!r} was altered: {error!r}.") from error


def _lease(run_id: str, row: Hash) -> Lease | None:
    if b"owner" not in row:
        return None
    process = row.get(b"process")
    return Lease(
        run_id,
        row[b"owner"].decode(),
        int(row[b"epoch"]),
        moment(row[b"expires"]),
        msgspec.json.decode(process, type=understood(Process)) if process is not None else None,
        int(row.get(b"takeovers", 0)),
    )


def quota_text(quotas: Mapping[str, Quota]) -> bytes:
    """Return quotas as the script that gives leases reads them; nothing for none."""
    told = {
        flow_id: {
            **{name: most for name in ("running", "per_group") if (most := getattr(quota, name)) is not None},
            **({"paused": dict.fromkeys(quota.paused, 1)} if quota.paused else {}),
        }
        for flow_id, quota in quotas.items()
    }
    return _encode(told) if told else b""


def wait_fields(wait: WaitRow) -> list[Any]:
    """Return what is kept of a wait besides its run, its id first."""
    return flat(_WAITS.kept(wait))


def flat(fields: Mapping[str, Any]) -> list[Any]:
    """Return names and values in turn as a script takes them; what is none is left out."""
    return [part for name, value in fields.items() if value is not None for part in (name, value)]


def wait_changes(change: WaitChange) -> list[str | bytes]:
    """Return the names and values of what a change gives; no value for what it takes away."""
    told: list[str | bytes] = []
    for column in _WAIT_TABLE.columns:
        value = getattr(change, column.field, msgspec.UNSET)
        if value is not msgspec.UNSET:
            kept = value if isinstance(value, bytes | None) else KEEP.get(column.kind, str)(value)
            told += (column.name, marked(kept))
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
        return _WAITS.row([row.get(name) for name in _WAIT_NAMES], run_id=row[b"run"].decode())
    except (ValueError, KeyError, OverflowError) as error:
        name = row.get(b"wait", b"?").decode(errors="replace")
        raise StateCorrupted(f"the row of wait {name!r} was altered: {error!r}.") from error


def signal_row(row: Hash) -> SignalRow:
    """Read a signal."""
    try:
        return _SIGNALS.row([row.get(name) for name in _SIGNAL_NAMES])
    except (ValueError, OverflowError) as error:
        name = row.get(b"id", b"?").decode(errors="replace")
        raise StateCorrupted(f"the row of signal {name!r} was altered: {error!r}.") from error


def signal_fields(signal: SignalRow) -> list[Any]:
    """Return what is kept of a signal."""
    return flat(_SIGNALS.kept(signal))


def tombstone(run_id: str, row: Hash) -> Tombstone:
    """Read what is left of a run."""
    try:
        return _TOMBSTONES.row([row.get(name) for name in _TOMBSTONE_NAMES], run_id=run_id)
    except (ValueError, OverflowError) as error:
        raise StateCorrupted(f"what is left of run {run_id!r} was altered: {error!r}.") from error


def _moment_text(at: datetime) -> str:
    return str(micros(at))


def _number_text(number: int) -> str:
    return str(int(number))


def _number_above_zero(number: int) -> str | None:
    return str(number) if number else None


def _is_one(value: bytes) -> bool:
    return value == b"1"


_RUN_TABLE = RowTable(
    RunRow,
    without=("run_id", "checkpoints", "lease"),
    named={
        "flow_id": "flow",
        "flow_version": "version",
        "flow_hash": "hash",
        "parent_run_id": "parent",
        "stop_request": "signal",
        "created_at": "created",
        "ended_at": "ended",
        "acked_at": "acked",
        "forked_at": "forked",
        "trimmed_before": "trimmed",
        "adopted_at": "adopted",
        "needs_repair": "repair",
    },
)
_WAIT_TABLE = RowTable(
    WaitRow,
    without=("run_id",),
    named={
        "wait_id": "wait",
        "flow_id": "flow",
        "opened_at": "opened",
        "due_at": "due",
        "schedule_id": "schedule",
        "notified_at": "notified",
        "token_hash": "token",
        "token_expires_at": "token_expires",
        "settled_at": "settled",
        "settled_by": "by",
    },
)
_TOMBSTONE_TABLE = RowTable(
    Tombstone,
    without=("run_id",),
    named={"flow_id": "flow", "created_at": "created", "erased_at": "erased"},
)
_SIGNAL_TABLE = RowTable(
    SignalRow,
    named={"signal_id": "id", "sent_at": "sent", "wait_id": "wait", "taken_at": "taken"},
)
_RUN_NAMES, _WAIT_NAMES, _TOMBSTONE_NAMES, _SIGNAL_NAMES = (
    [name.encode() for name in table.names]
    for table in (_RUN_TABLE, _WAIT_TABLE, _TOMBSTONE_TABLE, _SIGNAL_TABLE)
)
KEEP: Converts = {int: _number_text, bool: _number_text, bytes: as_text, datetime: _moment_text}
READ: Converts = {str: bytes.decode, int: int, bool: _is_one, datetime: moment}
_RUNS = Rows(_RUN_TABLE, keep={**KEEP, int: _number_above_zero}, read=READ)
_WAITS = Rows(_WAIT_TABLE, keep=KEEP, read=READ)
_SIGNALS = Rows(_SIGNAL_TABLE, keep=KEEP, read=READ)
_TOMBSTONES = Rows(_TOMBSTONE_TABLE, keep=KEEP, read=READ)
