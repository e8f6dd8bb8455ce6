"""Notices as scripts take and give them. Apart from the store, as most runs have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from everstep.errors import StateCorrupted
from everstep.model.commits import NoticeRow
from everstep.stores.notice_rows import NOTICES, SET, NoticeRows
from everstep.stores.redis.fields import KEEP, READ, flat, hash_of, micros

_NAMES = [name.encode() for name in NOTICES.names]
_ROWS = NoticeRows(keep=KEEP, read=READ)


def notice_arguments(row: NoticeRow, to: NoticeRow | None) -> tuple[str | bytes | int, ...]:
    """Return what the script that changes a notice is told: what was read of it, and how it stands now."""
    was = (row.run_id, row.number, row.tries, row.round, "" if row.sent_at is None else micros(row.sent_at))
    if to is None:
        return (*was, b"")
    kept = _ROWS.kept(to)
    return (*was, msgspec.msgpack.encode(flat({name: kept[name] for name in SET})))


def notice_fields(row: NoticeRow) -> list[str | bytes]:
    """Return what is kept of a notice that comes from another store, apart from its number."""
    return flat({name: value for name, value in _ROWS.kept(row).items() if value is not None})


def notice_row(found: Sequence[bytes]) -> NoticeRow:
    """Read a notice."""
    row: Mapping[bytes, bytes] = hash_of(found)
    run_id = row.get(b"run")
    if run_id is None:
        raise StateCorrupted("a notice was altered: it is of no run.")
    return _ROWS.row(run_id.decode(), *(row.get(name) for name in _NAMES))
