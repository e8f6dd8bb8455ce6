"""Notices as scripts take and give them. Apart from the store, as most runs have none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from everstep.errors import StateCorrupted
from everstep.model.commits import NoticeRow
from everstep.stores.notice_rows import NOTICES, SET, NoticeRows
from everstep.stores.redis.fields import KEEP, READ, flat, hash_of, micros

_NAMES = [name.encode() for name in NOTICES.names]
_ROWS = NoticeRows(keep=KEEP, read=READ)
_MORE = ("tries", "wait_id", "every", "round", "error")


def tell_fields(tells: Iterable[NoticeRow]) -> list[dict[str, Any]]:
    """Return the notices of a commit as the script takes them."""
    return [_told(row) for row in tells]


def _told(row: NoticeRow) -> dict[str, Any]:
    kept = _ROWS.kept(row)
    told = {"occasion": row.occasion, "notifier": row.notifier or None}
    told |= {"at": kept["at"], "due": kept["due_at"], "more": flat({name: kept[name] for name in _MORE})}
    return {name: value for name, value in told.items() if value is not None}


def notice_arguments(row: NoticeRow, to: NoticeRow | None) -> tuple[str | bytes | int, ...]:
    """Return what the script that changes a notice is told: what was read of it, and how it stands now."""
    was = (row.run_id, row.number, row.tries, row.round, "" if row.sent_at is None else micros(row.sent_at))
    if to is None:
        return (*was, b"")
    kept = _ROWS.kept(to)
    return (*was, msgspec.msgpack.encode(flat({name: kept[name] for name in SET})))


def notice_row(found: Sequence[bytes]) -> NoticeRow:
    """Read a notice."""
    row: Mapping[bytes, bytes] = hash_of(found)
    run_id = row.get(b"run")
    if run_id is None:
        raise StateCorrupted("a notice was altered: it is of no run.")
    return _ROWS.row(run_id.decode(), *(row.get(name) for name in _NAMES))
