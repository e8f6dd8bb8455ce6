"""The flows of a store: of which there are runs, in which versions, and how many workers drive them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, cast

import msgspec

from everstep.model.commits import ASK_FLOW
from everstep.model.shapes import Count
from everstep.ports.labels import SearchingStore
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.operations.labels import labels_of_runs
from everstep.runtime.services import Services

COUNTED: Final = 5_000
"""Of so many runs, the newest, it is counted of which version and in which status they are."""


class FlowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A flow, and its runs among the newest of the store."""

    flow: str
    runs: dict[str, int]
    """By status."""
    versions: dict[str, int]
    """By version of the flow, that of the newest run first."""
    total: Count | None
    """How many there are in all; none where only some runs are looked at, or the store has no index."""
    workers: Count
    """How many workers that are alive drive it."""


async def flows_of(
    services: Services,
    workers: Mapping[str, int],
    flows: Collection[str] | None,
    tags: Iterable[str] | None,
) -> list[FlowInfo]:
    """List flows by name: those of the newest runs, and those that workers drive."""
    rows = await services.store.list(RunFilter(limit=COUNTED))
    totals: Mapping[str, int] = {}
    if tags is not None:
        rows = await _tagged(services, rows, set(tags))
    elif len(rows) < COUNTED:
        totals = Counter(row.flow_id for row in rows)
    elif services.store.capabilities.searches:
        totals = await cast("SearchingStore", services.store).tally("flow")
    statuses: dict[str, Counter[str]] = {}
    versions: dict[str, Counter[str]] = {}
    for row in rows:
        statuses.setdefault(row.flow_id, Counter())[row.status.value] += 1
        versions.setdefault(row.flow_id, Counter())[row.flow_version] += 1
    return [
        FlowInfo(
            flow=name,
            runs=dict(statuses.get(name, {})),
            versions=dict(versions.get(name, {})),
            total=totals.get(name, 0) if totals or not rows else None,
            workers=workers.get(name, 0),
        )
        for name in sorted({*totals, *statuses, *workers})
        if (flows is None or name in flows) and not name.startswith(ASK_FLOW)
    ]


async def _tagged(services: Services, rows: list[RunRow], tags: set[str]) -> list[RunRow]:
    """Return the runs that have one of these tags, as `vip` or `team=blue`."""
    labels = await labels_of_runs(services, rows)
    found = []
    for row in rows:
        said = labels[row.run_id].tags if row.run_id in labels else ()
        if any(tag.name in tags or f"{tag.name}={tag.value}" in tags for tag in said):
            found.append(row)
    return found
