"""Bringing the schema up to date at a time of one's own choosing. Apart, as only `migrate-store` asks.

Who opens the database does the first part of it anyway; the later part is done here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import psycopg

from everstep.errors import StoreMissing
from everstep.ports.upgrades import StoreUpgrade, UpgradeStep
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.connections import Connection, connect, explain, rows
from everstep.stores.postgres.schema import (
    SMALL,
    finish,
    grant_all,
    lacking_rights,
    migrate,
    migrations,
    unfinished,
    users_of,
    version_of,
)

_FINISHED_AT = 6
"""The first version that notes what is left for later."""
_AT_ONCE = "for a moment: a table is waited for half a second at a time, so others wait no longer behind it"
_BESIDE = "not at all: indexes are built beside writers, which may take minutes"


def upgrade(at: PostgresAddress, *, dry_run: bool, say: Callable[[str], object]) -> StoreUpgrade:
    """Say what is to be done to the schema, and do it unless it is a dry run. It may be repeated."""
    try:
        with connect(at) as db:
            found = _look(db, at, dry_run=dry_run)
            if not dry_run:
                _do(db, at, found, say)
    except psycopg.Error as error:
        raise explain(error, at) from error
    return found


def _look(db: Connection, at: PostgresAddress, *, dry_run: bool) -> StoreUpgrade:
    version = version_of(db, at)
    if version is None:
        raise StoreMissing(
            f"there are no runs at {at.shown}.", fix="Check the URL, or start a run to make the tables."
        )
    query = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = to_regclass($1)"
    runs = int(rows(db, query, (f"{at.quoted_schema}.runs",))[0][0])
    return StoreUpgrade(
        url=at.shown,
        kind="PostgreSQL",
        version=version,
        newest=migrations()[-1].number,
        runs=runs,
        steps=tuple(_steps(db, at, version)),
        roles=tuple(user for user, _ in users_of(db, at)),
        dry_run=dry_run,
    )


def _steps(db: Connection, at: PostgresAddress, version: int) -> Iterator[UpgradeStep]:
    steps = migrations()
    for step in steps:
        if step.number > version:
            yield UpgradeStep(name=str(step.number), what=_about(step.script), locks=_AT_ONCE)
    later = [step for step in steps if step.post and step.number > version]
    if version >= _FINISHED_AT:
        left = set(unfinished(db, at))
        later += [step for step in steps if step.number <= version and step.number in left]
    for step in sorted(later, key=lambda one: one.number):
        what = f"{_about(step.post)} Up to {SMALL:,} runs this is done with the first part."
        yield UpgradeStep(name=f"{step.number}, later part", what=what, locks=_BESIDE)
    lacking = lacking_rights(db, at)
    if lacking:
        yield UpgradeStep(
            name="rights", what=f"what {', '.join(lacking)} may not use yet", locks="not at all"
        )


def _do(db: Connection, at: PostgresAddress, found: StoreUpgrade, say: Callable[[str], object]) -> None:
    steps = migrations()
    if found.version is not None and found.version < steps[-1].number:
        say(f"from version {found.version} to {steps[-1].number}")
        migrate(db, at, steps)
    finish(db, at, steps, say)
    if any(step.name == "rights" for step in found.steps):
        say("rights")
        grant_all(db, at)


def _about(script: str) -> str:
    """Return the first sentence of the comment that a script opens with."""
    lines = [line.removeprefix("--").strip() for line in script.splitlines() if line.startswith("--")]
    told = " ".join(line for line in lines if not line.startswith("clients from"))
    return re.split(r"(?<=[.:]) ", told, maxsplit=1)[0] if told else "what this everstep adds."
