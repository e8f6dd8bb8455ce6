"""Lists of runs, each read by the index that fits what is asked for. Apart from the store, as the choice of
an index is its own matter.
"""

from __future__ import annotations

from functools import cache

import apsw

from everstep.model.enums import Status
from everstep.ports.store import RunFilter, RunRow
from everstep.stores.sqlite.columns import run_row
from everstep.stores.sqlite.database import rows

_STARTER = "substr(started_by, 1, instr(started_by, ' ') - 1)"
"""The run that started one, as the index has it."""


def list_runs(db: apsw.Connection, sql: dict[str, str], wanted: RunFilter) -> list[RunRow]:
    """Return the runs that match, newest first."""
    status = wanted.status.value if wanted.status is not None else None
    bindings = (wanted.flow_id, wanted.run_id, status, wanted.before, wanted.limit)
    more = (wanted.parent_run_id, wanted.marked, wanted.pinned, wanted.started_by)
    return [run_row(row) for row in rows(db, listing_of(sql, wanted), (*bindings, *more))]


def listing_of(sql: dict[str, str], wanted: RunFilter) -> str:
    """Return the query that lists such runs."""
    return _filled(sql["runs"], *way_of(wanted))


def way_of(wanted: RunFilter) -> tuple[str, str]:
    """Return the index that leads to the fewest other runs, if it must be named, and what it asks for."""
    if wanted.run_id is not None:
        return "", "run_id = ?2"
    if wanted.parent_run_id is not None:
        return "", "parent_run_id = ?6"
    if wanted.started_by is not None:
        return "runs_by_starter", f"started_by IS NOT NULL AND {_STARTER} = ?9"
    if wanted.marked:
        return "runs_damaged", "needs_repair IS NOT NULL"
    if wanted.pinned:
        return "runs_pinned", "pinned IS NOT NULL"
    if wanted.status is Status.RUNNING:
        return "runs_by_lease", "status = 'running'"
    if wanted.status not in (None, Status.COMPLETED):
        return "runs_by_status", "status <> 'running' AND status <> 'completed' AND status = ?3"
    return ("", "TRUE") if wanted.flow_id is None else ("runs_by_flow", "flow_id = ?1")


@cache
def _filled(query: str, index: str, condition: str) -> str:
    named = f"INDEXED BY {index}" if index else ""
    return query.replace("{index}", named).replace("{condition}", condition)
