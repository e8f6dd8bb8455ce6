"""Bringing a file up to date at a time of one's own choosing. Apart, as only `migrate-store` asks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw

from everstep.errors import StoreMissing
from everstep.ports.upgrades import StoreUpgrade, UpgradeStep
from everstep.stores.sqlite.database import (
    has_all_columns,
    migrations,
    open_database,
    plainly,
    rows,
    schema_version,
    transact,
)
from everstep.stores.sqlite.side_tables import SideTables

_WRITERS = "to write: half a second with a million runs"


def upgrade(path: Path, *, dry_run: bool, say: Callable[[str], object]) -> StoreUpgrade:
    """Say what is to be done to the file, and do it unless it is a dry run."""
    if not path.exists():
        raise StoreMissing(
            f"there is no database at {path}.", fix="Check the path, or start a run to make one."
        )
    with plainly(path), closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as db:
        db.set_busy_timeout(10_000)
        found = _look(db, path, dry_run=dry_run)
    if not dry_run and found.steps:
        say(", ".join(step.name for step in found.steps))
        with plainly(path), closing(open_database(path, synchronous="FULL", create=False)) as db:
            transact(db, SideTables(db, path).need)
    return found


def _look(db: apsw.Connection, path: Path, *, dry_run: bool) -> StoreUpgrade:
    version, newest = schema_version(db, path), migrations()[-1][0]
    steps = []
    if version < newest:
        what = f"from version {version} to {newest}"
        steps.append(UpgradeStep(name="tables", what=what, locks=_WRITERS))
    elif not has_all_columns(db):
        what = "columns that an earlier release did not have"
        steps.append(UpgradeStep(name="columns", what=what, locks="for a moment: columns are added"))
    if not SideTables(db, path).are_there():
        what = "tables for signals, events, tags and the like; else made once a client needs one"
        steps.append(UpgradeStep(name="side tables", what=what, locks=_WRITERS))
    runs = rows(db, "SELECT max(run_key) FROM runs")[0][0] if version else 0
    return StoreUpgrade(
        url=f"sqlite:///{path}",
        kind="SQLite",
        version=version,
        newest=newest,
        runs=runs or 0,
        steps=tuple(steps),
        dry_run=dry_run,
    )
