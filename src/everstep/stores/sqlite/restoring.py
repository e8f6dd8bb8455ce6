"""Runs that come whole from another store. Apart, as few stores are ever restored into."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from everstep.model.commits import NO_LABELS
from everstep.ports.restoring import (
    EPOCHS_OF_A_LIFE,
    Restored,
    WholeRun,
    judge_there,
    token_is_taken,
    wait_is_taken,
)
from everstep.stores.columns import check_run
from everstep.stores.sqlite.columns import SPAN, packed_structure, run_row, run_values, wait_values
from everstep.stores.sqlite.database import rows

MOST = 10**9 - 2**16
"""Bytes of a record: a row holds no more than 1,000,000,000."""


def restore(
    db: apsw.Connection, sql: dict[str, str], run: WholeRun, keep_more: Callable[[int, WholeRun], None]
) -> Restored:
    """Keep a run with its records and waits; the caller has begun a transaction."""
    check_run(run, MOST, "SQLite")
    found = rows(db, sql["run"], (run.row.run_id,))
    if found:
        start = found[0][0] * SPAN

        def id_at(sequence: int) -> str | None:
            there = rows(db, sql["checkpoint_id"], (start + sequence,))
            return str(there[0][0]) if there else None

        return judge_there(run, run_row(found[0]).checkpoints, id_at)
    if run.row.forked_at is not None:
        base = rows(db, sql["base"], (run.row.parent_run_id, run.row.forked_at))
        if not base or base[0][0] != run.base or not base[0][1]:
            return Restored.NO_BASE
    _check_waits(db, sql, run)
    db.execute(sql["unbury"], (run.row.run_id,))
    db.execute(sql["insert_run"], run_values(run.row.changed(lease=None), 0))
    key = db.last_insert_rowid()
    db.execute(sql["restart_epochs"], (key, EPOCHS_OF_A_LIFE))
    for record in run.records:
        body = record.body if record.digest is None else record.digest
        kept = (key * SPAN + record.sequence, record.checkpoint_id, record.keyframe, body)
        db.execute(sql["first_put"], kept)
    for wait in run.waits:
        db.execute(sql["open_wait"], wait_values(wait, key))
    if run.inbox or run.had or run.labels != NO_LABELS or run.told or run.notices:
        keep_more(key, run)
    for flow_hash, blueprint in run.blueprints:
        db.execute(sql["keep_blueprint"], (flow_hash, packed_structure(blueprint)))
    return Restored.RESTORED


def _check_waits(db: apsw.Connection, sql: dict[str, str], run: WholeRun) -> None:
    for wait in run.waits:
        if rows(db, sql["wait"], (wait.wait_id,)):
            raise wait_is_taken(wait.wait_id)
        if wait.token_hash is not None and rows(db, sql["wait_of_token"], (wait.token_hash,)):
            raise token_is_taken(wait.wait_id)
