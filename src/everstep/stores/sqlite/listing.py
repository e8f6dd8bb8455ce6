"""Lists of runs, each read by the index that fits what is asked for."""

from __future__ import annotations

import apsw

from everstep.model.enums import Status
from everstep.ports.store import RunFilter, RunRow
from everstep.stores.sqlite.columns import run_row
from everstep.stores.sqlite.database import rows


def list_runs(db: apsw.Connection, sql: dict[str, str], wanted: RunFilter) -> list[RunRow]:
    """Return the runs that match, newest first."""
    status = wanted.status.value if wanted.status is not None else None
    bindings = (wanted.flow_id, wanted.run_id, status, wanted.before, wanted.limit)
    more = (wanted.parent_run_id, wanted.needs_repair, wanted.pinned)
    return [run_row(row) for row in rows(db, sql[_query(wanted)], (*bindings, *more))]


def _query(wanted: RunFilter) -> str:
    if wanted.run_id is not None:
        return "run_if"
    if wanted.parent_run_id is not None:
        return "forks"
    if wanted.needs_repair:
        return "damaged_runs"
    if wanted.pinned:
        return "pinned_runs"
    if wanted.status is Status.RUNNING:
        return "running_runs"
    if wanted.status not in (None, Status.COMPLETED):
        return "runs_of_status"
    return "runs" if wanted.flow_id is None else "runs_of_flow"
