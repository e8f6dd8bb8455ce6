"""Runs that come whole from another store. Apart, as few stores are ever restored into."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from everstep.model.commits import NO_LABELS
from everstep.ports.restoring import (
    EPOCHS_OF_A_LIFE,
    Restored,
    WholeRun,
    judge_there,
    token_is_taken,
    wait_is_taken,
)
from everstep.ports.store import StoredRecord
from everstep.stores.columns import check_run
from everstep.stores.postgres.artifacts import MOST
from everstep.stores.postgres.columns import (
    attribute_values,
    read_text,
    run_row,
    run_text,
    signal_values,
    tag_values,
    text,
    waits_text,
)
from everstep.stores.postgres.connections import Connection, rows

_BATCH_BYTES = 8 << 20


def restore(
    db: Connection,
    sql: dict[str, str],
    run: WholeRun,
    channel: str,
    more: Callable[[Connection, WholeRun], None],
) -> Restored:
    """Keep a run with its records and waits in one transaction, and `more` of it."""
    check_run(run, MOST, "PostgreSQL")
    with db.transaction():
        if run.row.forked_at is not None and not _has_base(db, sql, run):
            return _judged(db, sql, run) or Restored.NO_BASE
        rows(db, sql["forget"], ([text(run.row.run_id)],))
        inserted = rows(db, sql["restore_run"], (run_text(run.row.changed(lease=None), 0),))
        if not inserted:
            return _judged(db, sql, run) or Restored.TAKEN
        _check_waits(db, sql, run)
        for blueprint in run.blueprints:
            db.execute(sql["keep_blueprint"], (text(blueprint[0]), blueprint[1]))
        db.execute(sql["restart_epochs"], (inserted[0][0], EPOCHS_OF_A_LIFE))
        _keep_records(db, sql, run, inserted[0][0])
        if run.waits:
            db.execute(sql["restore_waits"], (text(run.row.run_id), waits_text(run.waits)))
        for signal in run.inbox:
            db.execute(sql["restore_signal"], (inserted[0][0], *signal_values(signal)))
        if run.inbox:
            untaken = sum(signal.taken_at is None for signal in run.inbox)
            db.execute(sql["restore_inbox_size"], (inserted[0][0], untaken))
        for had in run.had:
            db.execute(sql["restore_had"], (inserted[0][0], *map(text, had)))
        if run.labels != NO_LABELS:
            given = (tag_values(run.labels.tags), attribute_values(run.labels.attributes))
            told = [msgspec.json.encode(one).decode() for one in given]
            db.execute(sql["restore_labels"], (inserted[0][0], *told))
            if run.labels.undoing:
                db.execute(sql["restore_undoing"], (inserted[0][0], text(run.labels.undoing)))
        more(db, run)
        db.execute(sql["note_change"], (channel,))
        return Restored.RESTORED


def _has_base(db: Connection, sql: dict[str, str], run: WholeRun) -> bool:
    """True if a fork's base is there, whole. Trimming waits for this, and this for trimming."""
    at = run.row.forked_at or 0
    parent = rows(db, sql["lock_run"], (text(run.row.parent_run_id or ""),))
    if not parent:
        return False
    key, trimmed_before, _ = parent[0]
    base = rows(db, sql["id_at"], (key, at))
    return bool(base) and base[0][0] == run.base and trimmed_before <= at


def _judged(db: Connection, sql: dict[str, str], run: WholeRun) -> Restored | None:
    found = rows(db, sql["run"], (text(run.row.run_id),))
    if not found:
        return None

    def id_at(sequence: int) -> str | None:
        there = rows(db, sql["id_at"], (found[0][0], sequence))
        return there[0][0] if there else None

    return judge_there(run, run_row(found[0]).checkpoints, id_at)


def _check_waits(db: Connection, sql: dict[str, str], run: WholeRun) -> None:
    ids = {text(wait.wait_id) for wait in run.waits}
    tokens = {wait.token_hash: wait.wait_id for wait in run.waits if wait.token_hash is not None}
    for wait_id, token_hash in rows(db, sql["taken_waits"], (list(ids), list(tokens))):
        raise wait_is_taken(read_text(wait_id)) if wait_id in ids else token_is_taken(tokens[token_hash])


def _keep_records(db: Connection, sql: dict[str, str], run: WholeRun, key: int) -> None:
    left = list(reversed(run.records))
    while left:
        batch: list[StoredRecord] = []
        size = 0
        while left and (not batch or size < _BATCH_BYTES):
            batch.append(left.pop())
            size += len(batch[-1].body)
        columns = (
            [r.sequence for r in batch],
            [r.checkpoint_id for r in batch],
            [r.keyframe for r in batch],
            [r.body if r.digest is None else r.digest for r in batch],
        )
        db.execute(sql["restore_records"], (key, *columns))
