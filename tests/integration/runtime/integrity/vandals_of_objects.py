"""Hands that reach beneath a store of objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from everstep.model.enums import Status
from everstep.model.waits import WaitRow, WaitStatus
from everstep.ports.system import Clock
from everstep.stores.memory import MemoryBucket, MemoryData
from everstep.stores.objects import names
from everstep.stores.objects.bucket import Bucket
from everstep.stores.objects.entries import Entry, Record, decode, encode
from tests import inside_memory

_replace = msgspec.structs.replace
_TIME = 8
"""The bytes before an artifact that say when it was put."""


class InObjects:
    """Writes entries anew, so that each is whole and says something else."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def _log(self, run: str) -> dict[str, Entry]:
        found = {name: self._bucket.get(name) for name in self._bucket.names(names.log_prefix(run))}
        return {name: decode(object.data, name) for name, object in found.items() if object is not None}

    def _spot(self, run: str, place: int) -> tuple[str, Entry, int]:
        return next(
            (name, entry, k)
            for name, entry in self._log(run).items()
            for k, record in enumerate(entry.records)
            if record.sequence == place
        )

    def _record(self, run: str, place: int) -> Record:
        _, entry, k = self._spot(run, place)
        return entry.records[k]

    def _keep(self, name: str, entry: Entry, **changes: Any) -> None:
        self._bucket.put(name, encode(_replace(entry, **changes)))

    def _set(self, run: str, place: int, *records: Record) -> None:
        name, entry, k = self._spot(run, place)
        self._keep(name, entry, records=(*entry.records[:k], *records, *entry.records[k + 1 :]))

    def body(self, run: str, place: int) -> bytes:
        record = self._record(run, place)
        return record.digest or record.body

    def write(self, run: str, place: int, body: bytes) -> None:
        record = self._record(run, place)
        self._set(
            run,
            place,
            _replace(record, **({"digest": body} if record.digest is not None else {"body": body})),
        )

    def delete(self, run: str, place: int) -> None:
        self._set(run, place)

    def swap(self, run: str, one: int, other: int) -> None:
        a, b = self._record(run, one), self._record(run, other)
        self._set(run, one, _replace(b, sequence=one))
        self._set(run, other, _replace(a, sequence=other))

    def repeat(self, run: str, place: int) -> None:
        last = max(record.sequence for entry in self._log(run).values() for record in entry.records)
        for sequence in range(last, place, -1):
            self._set(run, sequence, _replace(self._record(run, sequence), sequence=sequence + 1))
        record = self._record(run, place)
        self._set(run, place, record, _replace(record, sequence=place + 1))
        for name, entry in self._log(run).items():
            newest, row = max((r.sequence for r in entry.records), default=0), entry.standing.row
            if row.checkpoints > place or newest > place:
                self._keep(name, entry, standing=_moved(entry, checkpoints=row.checkpoints + 1))

    def set_row(self, run: str, **fields: Any) -> None:
        if "status" in fields:
            fields["status"] = Status(fields["status"])
        name, entry = self._head(run)
        self._keep(name, entry, standing=_moved(entry, **fields))

    def _head(self, run: str) -> tuple[str, Entry]:
        return list(self._log(run).items())[-1]

    def _run_of(self, wait_id: str) -> str:
        [name] = self._bucket.names(names.wait_prefix(wait_id))
        return names.run_behind(name)

    def set_wait(self, wait_id: str, **fields: Any) -> None:
        if "status" in fields:
            fields["status"] = WaitStatus(fields["status"])
        run = self._run_of(wait_id)
        if "run_id" in fields:
            self._give_wait(wait_id, run, fields["run_id"])
            return
        name, entry = self._head(run)
        marked = {"status": fields["status"]} if "status" in fields else {}
        marks = tuple(_replace(m, **marked) if m.wait_id == wait_id else m for m in entry.standing.waits)
        place = next(mark.place for mark in marks if mark.wait_id == wait_id)
        self._keep(name, entry, standing=_replace(entry.standing, waits=marks))
        kept = names.place_name(run, place)
        entry = self._log(run)[kept]
        rows = tuple(_replace(row, **fields) if row.wait_id == wait_id else row for row in entry.waits)
        self._keep(kept, entry, waits=rows)

    def _give_wait(self, wait_id: str, run: str, other: str) -> None:
        row, mark = self._take_wait(wait_id, run)
        name, entry = self._head(other)
        mark = _replace(mark, place=names.place_of(name))
        self._keep(
            name,
            entry,
            waits=(*entry.waits, _replace(row, run_id=other)),
            standing=_replace(entry.standing, waits=(*entry.standing.waits, mark)),
        )
        prefix = names.wait_prefix(wait_id)
        self._bucket.delete([prefix + names.quoted(run)])
        self._bucket.put(prefix + names.quoted(other), b"")

    def _take_wait(self, wait_id: str, run: str) -> tuple[WaitRow, Any]:
        name, entry = self._head(run)
        [mark] = [mark for mark in entry.standing.waits if mark.wait_id == wait_id]
        left = tuple(other for other in entry.standing.waits if other is not mark)
        self._keep(name, entry, standing=_replace(entry.standing, waits=left))
        rows = self._log(run)[names.place_name(run, mark.place)].waits
        return next(row for row in rows if row.wait_id == wait_id), mark

    def delete_wait(self, wait_id: str) -> None:
        self._take_wait(wait_id, self._run_of(wait_id))

    def delete_blueprint(self, flow_hash: str) -> None:
        self._bucket.delete([names.flow_name(flow_hash)])

    def change_blob(self, change: Callable[[bytes], bytes | None]) -> None:
        [name] = self._bucket.names("blobs/")
        found = self._bucket.get(name)
        assert found is not None
        new = change(found.data[_TIME:])
        if new is None:
            self._bucket.delete([name])
        else:
            self._bucket.put(name, found.data[:_TIME] + new)


class InMemory(InObjects):
    """The same on a store in memory, whose entries are not encoded."""

    def __init__(self, data: MemoryData, clock: Clock) -> None:
        super().__init__(MemoryBucket(data, clock))
        self._data = data

    def _log(self, run: str) -> dict[str, Entry]:
        found = enumerate(inside_memory.entries(self._data, run), 1)
        return {names.place_name(run, place): entry for place, entry in found}

    def _keep(self, name: str, entry: Entry, **changes: Any) -> None:
        run, place = names.unquoted(name.split("/")[1]), names.place_of(name)
        inside_memory.keep(self._data, run, place, _replace(entry, **changes))


def _moved(entry: Entry, **row: Any) -> Any:
    return _replace(entry.standing, row=_replace(entry.standing.row, **row))
