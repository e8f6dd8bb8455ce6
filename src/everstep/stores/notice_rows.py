"""The columns of notices, and what stores with rows make of who is told. Apart from the other tables, as few
runs have notices.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everstep.errors import StateCorrupted
from everstep.model.commits import NoticeRow, Told
from everstep.model.shapes import understood
from everstep.stores.tables import Converts, Rows, RowTable

NOTICES = RowTable(NoticeRow, without=("run_id",))
"""Besides these a notice has the key of its run."""
SET = tuple(name for name in NOTICES.names if name not in ("number", "notifier", "occasion", "wait_id"))
"""The columns that `change_notice` may write."""


def told_text(told: Told) -> str:
    """Return who is told of a run in one column, with the names of occasions in order."""
    return msgspec.json.encode(told, order="sorted").decode()


def read_told(text: str | bytes | None) -> Told:
    """Return what `told_text` was given."""
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=understood(Told))
    except (msgspec.DecodeError, TypeError) as error:
        raise StateCorrupted(f"who is told of a run was altered: {error}.") from error


class NoticeRows:
    """Notices as one store with rows keeps them."""

    def __init__(self, *, keep: Converts, read: Converts) -> None:
        self._rows: Rows[NoticeRow] = Rows(NOTICES, keep=keep, read=read)

    def kept(self, row: NoticeRow) -> dict[str, Any]:
        """Return what is kept of a notice besides its number, by the names of the columns."""
        kept = self._rows.kept(row)
        del kept["number"]
        return kept

    def row(self, run_id: Any, *values: Any) -> NoticeRow:
        """Return the notice of a run that was kept."""
        try:
            return self._rows.row(values, run_id=run_id)
        except (ValueError, TypeError, OverflowError, msgspec.DecodeError) as error:
            raise StateCorrupted(f"a notice of run {run_id!r} was altered: {error}.") from error
