"""Calls that look after all workers and runs of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from everstep.client.audit import AuditInfo, read_audit
from everstep.client.guards import BreakerInfo
from everstep.client.parts import Parts, check_limit
from everstep.client.views import RunInfo, WorkerInfo
from everstep.graph.author.flow import Flow
from everstep.graph.labels import label_name, tags_of
from everstep.model.acts import act_of
from everstep.model.commits import AttributeValue
from everstep.on_demand import on_demand
from everstep.ports.store import Counts, RunRow
from everstep.runtime.addresses import in_run
from everstep.runtime.operations.labels import change_tags
from everstep.runtime.operations.untaken import Untaken, due, untaken

if TYPE_CHECKING:
    from everstep.engine.query.text import query_of
    from everstep.runtime.metrics.families import text_of
    from everstep.runtime.operations.count import RunCount, count_runs
else:
    query_of = on_demand("everstep.engine.query.text:query_of")
    text_of = on_demand("everstep.runtime.metrics.families:text_of")
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

    async def untaken(self, *run_ids: str, limit: int = 100) -> list[Untaken]:
        """Return runs that are due and that no live worker will take, each with why and what to do about it.

        Of those that are named, or of the first `limit` that are due. Of a run that is named and waits for an
        answer it says whether a worker would take it then.
        """
        reader = self._runs.reader
        if run_ids:
            rows = [await reader.row((await in_run(reader, run_id))[0]) for run_id in run_ids]
        else:
            check_limit(limit)
            rows = await due(self._services, limit)
        left = [row for row in rows if not (row.status.is_final or self._parts.info(row).is_driven)]
        return await untaken(self._services, reader, left)

    async def counts(self) -> Counts:
        """Count runs by status and open waits by kind, and what runs driven here have spent."""
        spent, warnings, trips = self._services.tally.counts()
        found = await self._services.store.counts()
        return msgspec.structs.replace(found, spent=spent, warnings=warnings, trips=trips)

    async def metrics(self) -> str:
        """Return what is counted and measured, as Prometheus reads it, at once also while the store is away.

        What runs and workers do here is counted by a host that was opened with `metrics=True`, from then on.
        """
        return await self._services.system.to_thread(text_of, self._services)

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
        act = act_of(by, comment)

        async def change() -> RunRow:
            name, _ = await in_run(self._runs.reader, run_id)
            gone = [label_name(one, "tag") for one in remove]
            await change_tags(self._services, name, tags_of(add), gone, act)
            return await self._runs.reader.row(name)

        return (await self._parts.infos([await self._parts.audited("tag", act, change(), run_id)]))[0]

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
        act = act_of(by, comment)

        async def let_go_on() -> RunRow:
            name, _ = await in_run(self._runs.reader, run_id)
            return await self._runs.reopen(name, flow, start, act=act)

        return self._parts.info(await self._parts.audited("reopen", act, let_go_on(), run_id))

    async def audit(
        self,
        run_id: str | None = None,
        *,
        by: str | None = None,
        act: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[AuditInfo]:
        """Say who did what, the newest acts last: of one run, by one name, of one kind, in some time.

        An act with a name is there, done or refused. `since` and `until` are times, or
        text such as `-7d`. With `after` the first acts behind that number, so that all can be read page by
        page: `after=0`, then the number of the last. Acts on runs that were removed are there, too.
        """
        check_limit(limit)
        if run_id is not None:
            run_id = run_id.partition("/")[0]
        narrowed: dict[str, Any] = {"run_id": run_id, "by": by, "act": act, "since": since, "until": until}
        return await read_audit(self._services, limit=limit, after=after, **narrowed)

    async def breakers(self) -> dict[str, BreakerInfo]:
        """Return the shared breakers of the store that ever changed, by name."""
        return {name: BreakerInfo.of(name, at) for name, at in (await self._runs.shared.all()).items()}

    async def reset_breaker(
        self, name: str, *, by: str | None = None, comment: str | None = None
    ) -> BreakerInfo:
        """Close a shared breaker; what it has counted is forgotten. Runs that wait for review still do."""
        act = act_of(by, comment)
        doing = self._runs.shared.reset(name, act)
        return BreakerInfo.of(name, await self._parts.audited("reset_breaker", act, doing, about=name))
