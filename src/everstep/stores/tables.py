"""The tables of runs, waits and tombstones: their columns follow from the structs that rows are read as.

A field that one of these structs gains is a column of every store with tables, and a field of every hash in
Redis: what remains to be written is the column in the schema. It may be NULL there, as a row that an older
client wrote has nothing in it, and is then read as the default of the field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import msgspec

from everstep.model.commits import StartedBy
from everstep.model.leases import Lease, Process
from everstep.model.removal import Tombstone
from everstep.model.shapes import understood
from everstep.model.waits import SignalRow, WaitRow
from everstep.ports.store import RunRow
from everstep.stores.columns import EPOCH, process_text, read_started, started_text, to_int, to_time

S = TypeVar("S", bound=msgspec.Struct)
Convert = Callable[[Any], Any]
Converts = Mapping[type, Convert]


class Column(msgspec.Struct, frozen=True):
    """One column: what it is called, which field of the struct it keeps, and what that is."""

    name: str
    field: str
    kind: type
    """`str`, `int`, `bool`, `bytes`, `datetime`, an enumeration of texts, or `StartedBy`, kept as text."""
    without_value: Any
    """What the field has where the column has nothing; `NODEFAULT` if it may not be empty."""
    is_blank: bool
    """True if nothing is kept as an empty text, not as NULL."""


class RowTable(Generic[S]):
    """The columns that keep the fields of a struct."""

    def __init__(
        self,
        struct: type[S],
        *,
        without: Collection[str] = (),
        named: Mapping[str, str] | None = None,
        blank: Collection[str] = (),
    ) -> None:
        self.struct = struct
        self._kept = {
            name: (named or {}).get(name, name) for name in struct.__struct_fields__ if name not in without
        }
        self._blank = blank
        self.names = tuple(self._kept.values())

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """What each column keeps. Worked out when a row is met: it takes reading the types of all fields."""
        return tuple(
            Column(self._kept[f.name], f.name, *_kind_of(f), f.name in self._blank)
            for f in msgspec.structs.fields(self.struct)
            if f.name in self._kept
        )


def _kind_of(field: msgspec.structs.FieldInfo) -> tuple[type, Any]:
    kinds = get_args(field.type) if isinstance(field.type, UnionType) else (field.type,)
    [kind] = [kind for kind in kinds if kind is not type(None)]
    is_optional = len(kinds) > 1
    return kind, None if is_optional and field.default is msgspec.NODEFAULT else field.default


class Rows(Generic[S]):
    """How one store keeps the rows of a table: what it makes of each kind of value, and of what it kept."""

    def __init__(self, table: RowTable[S], *, keep: Converts, read: Converts) -> None:
        self._table = table
        self._by_kind = keep, read

    @cached_property
    def _fields(self) -> list[str]:
        return [column.field for column in self._table.columns]

    @cached_property
    def _take(self) -> attrgetter[Any]:
        return attrgetter(*self._fields)

    @cached_property
    def _keep(self) -> list[tuple[Convert | None, str | None]]:
        keep = self._by_kind[0]
        return [(_keeping(c, keep), "" if c.is_blank else None) for c in self._table.columns]

    @cached_property
    def _read(self) -> list[tuple[Convert, Column]]:
        return [(_reading(c, self._by_kind[1]), c) for c in self._table.columns]

    def values(self, row: S) -> list[Any]:
        """Return what is kept of a row, in the order of its columns."""
        pairs = zip(self._take(row), self._keep, strict=True)
        return [
            nothing if value is None else value if keep is None else keep(value)
            for value, (keep, nothing) in pairs
        ]

    def kept(self, row: S) -> dict[str, Any]:
        """Return what is kept of a row, by the names of its columns."""
        return dict(zip(self._table.names, self.values(row), strict=True))

    def row(self, values: Iterable[Any], **more: Any) -> S:
        """Return the row that was kept, with fields that have no column of their own."""
        found = [
            column.without_value if value is None or (column.is_blank and value == "") else read(value)
            for value, (read, column) in zip(values, self._read, strict=True)
        ]
        if msgspec.NODEFAULT in found:
            missing = self._table.names[found.index(msgspec.NODEFAULT)]
            raise ValueError(f"nothing where {missing} belongs")
        return self._table.struct(**dict(zip(self._fields, found, strict=True)), **more)


def _same(value: Any) -> Any:
    return value


def _keeping(column: Column, keep: Converts) -> Convert | None:
    """Return what makes of a value what is kept; none if it is kept as it is."""
    if issubclass(column.kind, StrEnum):
        return str
    if column.kind is StartedBy:
        text = keep.get(str, _same)
        return lambda value: text(started_text(value))
    return keep.get(column.kind, to_int if column.kind is datetime else None)


def _reading(column: Column, read: Converts) -> Convert:
    kind, text = column.kind, read.get(str, _same)
    if issubclass(kind, StrEnum):
        return lambda value: kind(text(value))
    if kind is StartedBy:
        return lambda value: read_started(text(value))
    return read.get(kind, to_time if kind is datetime else _same)


RUNS = RowTable(
    RunRow,
    without=("checkpoints", "lease"),
    named={"group": "run_group", "stop_request": "signal"},
    blank=("group",),
)
"""Besides these a run has the columns of its lease. Its newest sequence is that of its newest record."""
WAITS = RowTable(WaitRow, without=("run_id",))
"""Besides these a wait has the key of its run."""
TOMBSTONES = RowTable(Tombstone)
SIGNALS = RowTable(SignalRow)
"""Besides these a signal has the key of its run."""


class Held(NamedTuple):
    """The columns of a run that are about its lease. The epoch stays when the lease was given back."""

    epoch: int
    owner: str | None
    expires_at: int | None
    process: str | None
    takeovers: int
    claimed_sequence: int
    """The newest sequence when the lease was claimed."""

    @classmethod
    def of(cls, row: RunRow, epoch: int) -> Held:
        """Return what is kept of the lease of a run that is new in this store."""
        lease = row.lease
        if lease is None:
            return cls(epoch, None, None, None, 0, row.checkpoints)
        expires_at, process = to_int(lease.expires_at), process_text(lease.process)
        return cls(epoch, lease.owner, expires_at, process, lease.takeovers, row.checkpoints)

    def lease(self, run_id: str, text: Convert | None = None) -> Lease | None:
        """Return the lease as last claimed; none once it was given back."""
        if self.owner is None:
            return None
        owner = self.owner if text is None else text(self.owner)
        process = (
            None if self.process is None else msgspec.json.decode(self.process, type=understood(Process))
        )
        return Lease(run_id, owner, self.epoch, to_time(self.expires_at) or EPOCH, process, self.takeovers)


RUN_COLUMNS = (*RUNS.names, *Held._fields)
"""What an INSERT of a run names besides its key."""


class FoundRun(msgspec.Struct, frozen=True):
    """A row of runs as `SELECT run_key, RUN_COLUMNS, ...` finds it."""

    key: int
    values: tuple[Any, ...]
    held: Held
    newest: int | None
    """Where its newest record is."""

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> FoundRun:
        """Take a row apart; what follows the place of the newest record is left alone."""
        after = 1 + len(RUNS.names)
        end = after + len(Held._fields)
        return cls(row[0], row[1:after], Held._make(row[after:end]), row[end])
