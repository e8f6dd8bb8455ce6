"""Runs that a query asks for, in pages. Apart from the reader: most hosts never ask."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from everstep.engine.query.judge import Facts, matches, narrowed
from everstep.engine.query.tree import OF_ERRORS, OF_WAITS, Query, comparisons_of
from everstep.errors import StateCorrupted
from everstep.model.address import plain_of
from everstep.model.enums import Status
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.reader import RunReader
from everstep.runtime.run_ids import RUN_ID
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import open_waits

EXAMINED = 5000
"""How many runs a call looks at before it gives what it has found."""
_PAGE = 500
_FAILED = (Status.FAILED, Status.ABANDONED)


class Found(NamedTuple):
    """A page of runs, newest first."""

    rows: list[RunRow]
    following: str | None
    """The run behind which the next page begins; none if there is no more."""


async def find(services: Services, runs: RunReader, wanted: RunFilter, query: Query) -> Found:
    """Return runs that a query asks for: as many as are wanted, or fewer if too many were looked at."""
    narrow = _narrow(wanted, query)
    if narrow is None:
        return Found([], None)
    fields = {one.field for one in comparisons_of(query)}
    found: list[RunRow] = []
    examined, before = 0, wanted.before
    while examined < EXAMINED:
        size = min(_PAGE, EXAMINED - examined)
        page = await services.store.list(msgspec.structs.replace(narrow, limit=size, before=before))
        for row in page:
            before, examined = row.run_id, examined + 1
            if matches(query, await _facts(services, runs, row, fields)):
                found.append(row)
                if len(found) == wanted.limit:
                    return Found(found, before)
        if len(page) < size:
            return Found(found, None)
    return Found(found, before)


def _narrow(wanted: RunFilter, query: Query) -> RunFilter | None:
    """Let the store leave out what it can; none if nothing can match."""
    held = narrowed(query)
    more: dict[str, Any] = {
        "flow_id": held.get("flow"),
        "run_id": held.get("id"),
        "parent_run_id": held.get("parent"),
        "status": Status(held["status"]) if "status" in held else None,
    }
    for name, value in more.items():
        given = getattr(wanted, name)
        if value is not None and given is not None and given != value:
            return None
    changes = {name: value for name, value in more.items() if value is not None}
    names = [changes[name] for name in ("run_id", "parent_run_id") if name in changes]
    if not all(RUN_ID.fullmatch(name) for name in names):
        return None  # no run is called that
    pinned = wanted.pinned or held.get("pinned") is True
    repair = wanted.needs_repair or held.get("needs_repair") is True
    return msgspec.structs.replace(wanted, pinned=pinned, needs_repair=repair, **changes)


async def _facts(services: Services, runs: RunReader, row: RunRow, fields: set[str]) -> Facts:
    facts = Facts(row)
    if fields & OF_WAITS and row.status is Status.HALTED:
        waits = await open_waits(services.store, row.run_id)
        paths = [(wait.kind, wait.path) for wait in waits]
        facts = facts._replace(waits=[*paths, *((kind, plain_of(path)) for kind, path in paths)])
    if fields & OF_ERRORS and row.status in _FAILED:
        try:
            _, record = await runs.lineage.read(row, row.checkpoints, needs_values=False)
        except StateCorrupted:
            return facts  # nothing is known of how it failed
        facts = facts._replace(error=record.record.error)
    return facts
