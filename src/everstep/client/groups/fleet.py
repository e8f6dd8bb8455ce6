"""Calls that look after all workers and runs of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from everstep.client.guards import BreakerInfo
from everstep.client.parts import Parts
from everstep.client.views import RunInfo, WorkerInfo
from everstep.graph.author.flow import Flow
from everstep.graph.labels import label_name, tags_of
from everstep.model.acts import act_of
from everstep.model.commits import AttributeValue
from everstep.on_demand import on_demand
from everstep.ports.store import Counts
from everstep.runtime.addresses import in_run
from everstep.runtime.operations.labels import change_tags

if TYPE_CHECKING:
    from everstep.engine.query.text import query_of
    from everstep.runtime.operations.count import RunCount, count_runs
else:
    query_of = on_demand("everstep.engine.query.text:query_of")
    count_runs = on_demand("everstep.runtime.operations.count:count_runs")


class FleetCalls:
    """The workers of a store, what they share, and runs for them to drive."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services, self._runs = parts.services, parts.runs

    async def workers(self) -> list[WorkerInfo]:
        """List the workers that are alive, the longest serving first, with what they drive."""
        rows, is_gone = await self._services.store.workers(), self._services.processes.is_gone
        return [WorkerInfo.of(row) for row in rows if row.process is None or not is_gone(row.process)]

    async def counts(self) -> Counts:
        """Count runs by status and open waits by kind, and what runs driven here have spent."""
        spent, warnings, trips = self._services.tally.counts()
        found = await self._services.store.counts()
        return msgspec.structs.replace(found, spent=spent, warnings=warnings, trips=trips)

    async def count(
        self,
        by: str = "status",
        *,
        where: str | None = None,
        tag: str | Iterable[str] = (),
        attribute: str | Iterable[str] | Mapping[str, AttributeValue] = (),
        before: str | None = None,
    ) -> RunCount:
        """Count runs by a field of queries: `status`, `flow`, `group`, `tag`, `tag.team`, `attribute.region`.

        All runs by status, flow or label are counted by an index, where the store has one. Any other call
        looks at 5,000 runs at most, and `next` says where to go on, if anywhere.
        """
        query = None
        if where is not None or tag or attribute:
            query = query_of(where, tag, attribute, self._services.time.now())
        return await count_runs(self._services, self._runs.reader, by, query, before)

    async def tag(
        self,
        run_id: str,
        add: Iterable[str] | Mapping[str, str] = (),
        *,
        remove: Iterable[str] = (),
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Tag a run, also one that has ended: names, or names with values; and take tags away.

        A tag of the same name gets the new value. `host.runs(where="tag = vip")` finds what is tagged.
        """
        run_id, _ = await in_run(self._runs.reader, run_id)
        act_of(by, comment)
        await change_tags(self._services, run_id, tags_of(add), [label_name(name, "tag") for name in remove])
        return (await self._parts.infos([await self._runs.reader.row(run_id)]))[0]

    async def reopen(
        self,
        run_id: str,
        flow: Flow,
        *,
        start: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Let a run that failed or was abandoned go on, as `resume` does, but leave it to workers to drive.

        With `start` it begins at that node, whatever was due, also if it has ended otherwise.
        """
        run_id, _ = await in_run(self._runs.reader, run_id)
        return self._parts.info(await self._runs.reopen(run_id, flow, start, act=act_of(by, comment)))

    async def breakers(self) -> dict[str, BreakerInfo]:
        """Return the shared breakers of the store that ever changed, by name."""
        return {name: BreakerInfo.of(name, at) for name, at in (await self._runs.shared.all()).items()}

    async def reset_breaker(
        self, name: str, *, by: str | None = None, comment: str | None = None
    ) -> BreakerInfo:
        """Close a shared breaker; what it has counted is forgotten. Runs that wait for review still do."""
        return BreakerInfo.of(name, await self._runs.shared.reset(name, act_of(by, comment)))
