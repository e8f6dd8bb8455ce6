"""What the columns of the tables mean: commits, runs and waits as PostgreSQL keeps them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from everstep.engine.commits import first_row
from everstep.errors import StateCorrupted
from everstep.model.commits import Attribute, Tag
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.model.removal import Tombstone
from everstep.model.waits import SignalRow, WaitRow
from everstep.on_demand import on_demand
from everstep.ports.events import Wanted
from everstep.ports.store import Admission, Commit, RunRow, StoredRecord
from everstep.stores.columns import span_to_int, to_int
from everstep.stores.tables import RUNS, SIGNALS, TOMBSTONES, WAITS, Converts, FoundRun, Held, Rows

if TYPE_CHECKING:
    from everstep.stores.notice_rows import told_text
else:
    told_text = on_demand("everstep.stores.notice_rows:told_text")

_ESCAPE = "\x1a"
_UNSTORABLE = re.compile(f"[\0{_ESCAPE}\ud800-\udfff]")
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{4}})")
_ALTERED = (ValueError, TypeError, OverflowError, msgspec.DecodeError)
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


def array(values: Sequence[str | int | None]) -> str:
    """Return values as PostgreSQL writes an array. The driver looks at each of them several times."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: str | int | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def group(commits: Sequence[Commit], known_flows: Container[str]) -> tuple[bytes, bytes]:
    """Return many commits as `put_6` takes them: what they say, and their bodies in one string."""
    said: list[dict[str, Any]] = []
    first = 1
    for place, commit in enumerate(commits):
        said.append({"place": place, "first": first, **_commit(commit, known_flows)})
        first += len(commit.body)
    return _encoder.encode(said), b"".join(commit.body for commit in commits)


def rounds(commits: Sequence[Commit]) -> list[list[int]]:
    """Return where commits are that may be put together: of each run one at a time, in order."""
    found: list[list[int]] = []
    seen: Counter[str] = Counter()
    for place, commit in enumerate(commits):
        if seen[commit.run_id] == len(found):
            found.append([])
        found[seen[commit.run_id]].append(place)
        seen[commit.run_id] += 1
    return found


def _commit(commit: Commit, known_flows: Container[str]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "run_id": text(commit.run_id),
        "sequence": commit.sequence,
        "checkpoint_id": commit.checkpoint_id,
        "epoch": commit.epoch,
        "keyframe": commit.keyframe,
        "size": len(commit.body),
    }
    # What is not there is NULL to the server, which reads the text several times.
    if commit.base is not None:
        said["base"] = commit.base
    if commit.answers_stop:
        said["ignores"] = True
    if commit.admission is not None:
        said["admission"] = _admission(commit, commit.admission, known_flows)
    if commit.status is not None and not (commit.admission and commit.status is Status.RUNNING):
        said["status"] = commit.status.value
        said["ended_at"] = to_int(commit.ended_at)
    if commit.waits:
        said["waits"] = [_WAITS.kept(wait) for wait in commit.waits]
    if commit.closed:
        said["closed"] = [text(wait_id) for wait_id in commit.closed]
    if commit.taken:
        said["taken"] = [text(signal_id) for signal_id in commit.taken]
    if commit.pairs:
        said["pairs"] = True
        if listening := [
            _listening(wait.wait_id, wanted) for wait in commit.waits if (wanted := Wanted.of(wait.topic))
        ]:
            said["listening"] = listening
    if commit.audit is not None:
        row = commit.audit
        said["audit"] = {
            "id": row.audit_id,
            "act": row.act,
            "by": text(row.by),
            "run": some_text(row.run_id),
            "details": row.details().hex(),
        }
    if commit.admission is not None and commit.admission.tags:
        said["tags"] = tag_values(commit.admission.tags)
    if commit.attributes:
        said["attributes"] = attribute_values(commit.attributes)
    if commit.adopts is not None:
        said["adopts"] = {
            "flow_version": text(commit.adopts.flow_version),
            "flow_hash": text(commit.adopts.flow_hash),
            "blueprint": _hex(commit.adopts.blueprint),
        }
    return said


def tag_values(tags: Iterable[Tag]) -> list[tuple[str, str]]:
    """Return tags as `label_9` takes them."""
    return [(tag.name, text(tag.value)) for tag in tags]


def attribute_values(attributes: Iterable[Attribute]) -> list[tuple[str, str, str | None, float | None]]:
    """Return attributes as `label_9` takes them."""
    return [(one.name, one.kind.value, some_text(one.text), one.number) for one in attributes]


def _listening(wait_id: str, wanted: Wanted) -> dict[str, Any]:
    """Return which events a wait is for."""
    hashes = {text(field): found for field, found in wanted.hashes.items()}
    return {"wait_id": text(wait_id), "name": text(wanted.name), "hashes": hashes, "many": len(hashes)}


def _admission(commit: Commit, admission: Admission, known_flows: Container[str]) -> dict[str, Any]:
    """Return the row that an admission makes; the server says when its lease expires."""
    row = run_values(first_row(commit, admission.created_at), commit.epoch)
    if admission.told:
        row["notifiers"] = told_text(admission.told)
    said = {
        "row": {name: value for name, value in row.items() if value is not None},
        "ttl": span_to_int(admission.ttl),
    }
    if admission.flow_hash not in known_flows:
        said["blueprint"] = _hex(admission.blueprint)
    return said


def run_values(row: RunRow, epoch: int) -> dict[str, Any]:
    """Return the columns of a run that is new here, besides its key."""
    held = Held.of(row, epoch)
    return _RUNS.kept(row) | held._replace(owner=some_text(held.owner))._asdict()


def waits_text(waits: Sequence[WaitRow]) -> str:
    """Return waits as `open_5` takes them."""
    return _encoder.encode([_WAITS.kept(wait) for wait in waits]).decode()


def run_text(row: RunRow, epoch: int) -> str:
    """Return the columns of a run that is new here as JSON."""
    return _encoder.encode(run_values(row, epoch)).decode()


def _hex(value: bytes) -> str:
    return "\\x" + value.hex()


def stored(sequence: int, checkpoint_id: str, keyframe: bool, body: bytes, is_stub: bool) -> StoredRecord:
    if is_stub:
        return StoredRecord(sequence, checkpoint_id, False, b"", body)
    return StoredRecord(sequence, checkpoint_id, keyframe, body)


def run_row(row: tuple[Any, ...]) -> RunRow:
    """Read a row of runs with its newest sequence; what follows is left alone."""
    found = FoundRun.of(row)
    try:
        lease = found.held.lease(read_text(found.values[0]), read_text)
        return _RUNS.row(found.values, checkpoints=found.newest or 0, lease=lease)
    except _ALTERED as error:
        raise _altered_run(row[1], error) from error


def held_lease(run_id: str, held: Held) -> Lease | None:
    """Read the lease of a run."""
    try:
        return held.lease(run_id, read_text)
    except _ALTERED as error:
        raise _altered_run(run_id, error) from error


def _altered_run(run_id: str, error: Exception) -> StateCorrupted:
    return StateCorrupted(f"the row of run {run_id!r} was altered: {error}.")


def wait_row(row: tuple[Any, ...]) -> WaitRow:
    """Read a row of waits that the id of its run precedes."""
    try:
        return _WAITS.row(row[1:], run_id=read_text(row[0]))
    except _ALTERED as error:
        raise StateCorrupted(f"the row of wait {row[1]!r} was altered: {error}.") from error


def signal_row(row: tuple[Any, ...]) -> SignalRow:
    """Read a row of the inbox."""
    try:
        return _SIGNALS.row(row)
    except _ALTERED as error:
        raise StateCorrupted(f"the row of signal {row[0]!r} was altered: {error}.") from error


def signal_values(signal: SignalRow) -> list[Any]:
    """Return the columns of a signal."""
    return _SIGNALS.values(signal)


def tombstone(row: tuple[Any, ...]) -> Tombstone:
    """Read a row of tombstones."""
    try:
        return _TOMBSTONES.row(row)
    except _ALTERED as error:
        raise StateCorrupted(f"what is left of run {row[0]!r} was altered: {error}.") from error


_KEEP: Converts = {str: text, bytes: _hex}
"""As JSON has it."""
_RUNS = Rows(RUNS, keep=_KEEP, read={str: read_text})
_WAITS = Rows(WAITS, keep=_KEEP, read={str: read_text})
_SIGNALS = Rows(SIGNALS, keep={str: text}, read={str: read_text})
_TOMBSTONES = Rows(TOMBSTONES, keep=_KEEP, read={str: read_text})
