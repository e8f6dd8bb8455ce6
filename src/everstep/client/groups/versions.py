"""Calls for runs of a flow that has changed since they began."""

from __future__ import annotations

from everstep.client.parts import Parts
from everstep.graph.author.flow import Flow
from everstep.model.acts import act_of
from everstep.model.compat import Compat
from everstep.runtime.addresses import in_run
from everstep.runtime.at_rest import RestingRuns
from everstep.runtime.outage.spooled_view import ahead
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.travel.migrate import migrate, rehearse


class VersionCalls:
    """Runs of a flow that has changed since they began."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services, self._runs = parts.services, parts.runs.reader
        self._resting = parts.runs.resting

    async def compat(self, run_id: str, flow: Flow) -> Compat:
        """Say whether a run can go on with this flow, and what stands in its way. Nothing is written."""
        run_id, _ = await in_run(self._runs, run_id)
        services, runs = await ahead(self._services, self._runs, check_run_id(run_id))
        return (await rehearse(services, runs, await runs.row(run_id), flow)).compat

    async def migrate(
        self,
        run_id: str,
        flow: Flow,
        *,
        dry_run: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> Compat:
        """Take a run over to this version of its flow without driving it, and say what changed.

        With `dry_run` all of it is tried on a copy, up-casts too, and nothing is written.
        """
        services, runs, act = self._services, self._resting, act_of(by, comment)
        if dry_run:
            services, reader = await ahead(services, runs.reader, check_run_id(run_id))
            runs = RestingRuns(services, runs.keeper, reader)
        doing = migrate(services, runs, run_id, flow, dry_run=dry_run, act=act)
        return await self._parts.audited("migrate", None if dry_run else act, doing, run_id)
