"""How many runs there are of each kind. Apart from finding them, which few who count do."""

from __future__ import annotations

from collections import Counter
from typing import Final, cast

import msgspec

from everstep.engine.query.judge import held_of
from everstep.engine.query.labels import named
from everstep.engine.query.text import field_of
from everstep.engine.query.tree import OF_ATTRIBUTE, OF_TAG, Every, Query
from everstep.errors import BadRequest
from everstep.ports.labels import SearchingStore
from everstep.ports.store import RunFilter
from everstep.runtime.operations.find import EXAMINED, facts_of, find
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

_TOO_MANY: Final = frozenset({"id", "started", "ended", "changed", "error"})
"""Of these nearly every run has its own."""


class RunCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs there are of each kind, the most first."""

    by: str
    """What tells them apart."""
    runs: dict[str, int]
    """By what they have; those without are under an empty text."""
    next: str | None = None
    """If not all runs were looked at: the `before` with which to count on."""

    @property
    def total(self) -> int:
        """How many were counted; a run with two tags, or waits, counts for each."""
        return sum(self.runs.values())


async def count_runs(
    services: Services, runs: RunReader, by: str, query: Query | None, before: str | None
) -> RunCount:
    """Count the runs that a query asks for, or all, by a field of queries."""
    field = field_of(by)
    if field in _TOO_MANY:
        raise BadRequest(f"runs are not counted by {by!r}.", fix="Count by status, flow, group or tag.")
    if query is None and before is None:
        if field == "status":
            return _counted(by, Counter((await services.store.counts()).runs), None)
        if services.store.capabilities.searches and (field in ("flow", "tag") or _is_label(field)):
            tallied = await cast("SearchingStore", services.store).tally(field)
            return _counted(by, Counter(tallied), None)
    wanted = RunFilter(limit=EXAMINED, before=before)
    found = await find(services, runs, wanted, Every(()) if query is None else query)
    many: Counter[str] = Counter()
    for facts in await facts_of(services, runs, found.rows, {field}):
        many.update({named(value) for value in held_of(field, facts)} or {""})
    return _counted(by, many, found.following)


def _is_label(field: str) -> bool:
    return field.startswith((OF_TAG, OF_ATTRIBUTE))


def _counted(by: str, many: Counter[str], following: str | None) -> RunCount:
    ranked = sorted(many.items(), key=lambda item: (-item[1], item[0]))
    return RunCount(by=by, runs=dict(ranked), next=following)
