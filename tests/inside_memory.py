"""What lies inside a store in memory, for tests that look or change it from beneath.

What a client has seen of a run it believes until something follows it: after a change of a run's row, ask
another client.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everstep.model.waits import WaitRow
from everstep.ports.store import RunRow, StoredRecord
from everstep.stores.memory import MemoryData, MemoryLogs, MemoryStore
from everstep.stores.objects import names
from everstep.stores.objects.entries import Entry, Record, Standing
from everstep.stores.objects.logs import RunLine
from everstep.testing import ManualClock

_replace = msgspec.structs.replace
_TIME = 8
"""The bytes before an artifact that say when it was put."""


def entries(data: MemoryData, run_id: str) -> list[Entry]:
    logs, line = MemoryLogs(data), RunLine(run_id)
    found = [logs.at(line, place) for place in range(1, len(data.logs[run_id].places) + 1)]
    return [entry for entry in found if entry is not None]


def keep(data: MemoryData, run_id: str, place: int, entry: Entry) -> None:
    """Put an entry over the one at a place."""
    log = data.logs[run_id]
    log.places[place - 1] = entry
    if place == len(log.places):
        log.standing = entry.standing


def has_run(data: MemoryData, run_id: str) -> bool:
    return run_id in data.logs


def standing(data: MemoryData, run_id: str) -> Standing:
    found = data.logs[run_id].standing
    assert found is not None
    return found


def row(data: MemoryData, run_id: str) -> RunRow:
    return standing(data, run_id).row


def records(data: MemoryData, run_id: str) -> list[StoredRecord]:
    return [record.stored() for entry in entries(data, run_id) for record in entry.records]


def set_record(data: MemoryData, run_id: str, sequence: int, **fields: Any) -> None:
    for place, entry in enumerate(entries(data, run_id), 1):
        if any(record.sequence == sequence for record in entry.records):
            changed = tuple(_replace(r, **fields) if r.sequence == sequence else r for r in entry.records)
            keep(data, run_id, place, _replace(entry, records=changed))


def run_with(clock: ManualClock, like: MemoryData, row: RunRow, kept: list[StoredRecord]) -> MemoryStore:
    """Return a store with a run of these records, and the artifacts and flows of another."""
    store = MemoryStore(clock)
    store.data.kept = {n: k for n, k in like.kept.items() if n.startswith(("blobs/", "flows/"))}
    store.data.names = sorted(store.data.kept)
    stands = _replace(
        standing(like, row.run_id),
        row=row,
        head=kept[-1].checkpoint_id,
        begins=1,
        keyframe=len(kept) if any(record.keyframe for record in kept) else 0,
        live=names.live_name(row.run_id, 1),
        waiting="",
        waits=(),
    )
    logs, line = MemoryLogs(store.data), RunLine(row.run_id)
    for place, record in enumerate(kept, 1):
        again = Record(record.sequence, record.checkpoint_id, record.keyframe, record.body, record.digest)
        logs.add_steps(line, place, stands, (again,))
    store.bucket.mark([names.index_name(stands.order, row.flow_id, row.run_id), stands.live])
    return store


def waits(data: MemoryData) -> list[WaitRow]:
    """Return the waits of all runs as they stand."""
    return [
        row
        for run_id in data.logs
        for mark in standing(data, run_id).waits
        for row in entries(data, run_id)[mark.place - 1].waits
        if row.wait_id == mark.wait_id
    ]


def blobs(data: MemoryData) -> dict[str, bytes]:
    """Return artifacts by their digests."""
    return {n.rpartition("/")[2]: k[0][_TIME:] for n, k in data.kept.items() if n.startswith("blobs/")}


def set_blob(data: MemoryData, digest: str, blob: bytes) -> None:
    name = names.blob_name(digest)
    kept = data.kept.get(name)
    if kept is None:
        data.names = sorted([*data.names, name])
    at, number, when = (bytes(_TIME), 0, None) if kept is None else (kept[0][:_TIME], *kept[1:])
    data.kept[name] = (at + blob, number, when or ManualClock().now())
