"""What the calls of a host share, whichever group they are in."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from msgspec import Struct

from everstep.client.views import RunInfo, RunResult, WaitInfo
from everstep.engine.leases import seconds_left
from everstep.errors import BadRequest, RunErased, RunNotFound
from everstep.model.commits import NO_LABELS, Labels
from everstep.model.retention import Retention
from everstep.model.waits import DEADLINE_KIND, WaitRow
from everstep.on_demand import on_demand
from everstep.ports.store import RunRow
from everstep.ports.system import uptime
from everstep.runtime.outcome import Outcome
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.codec.notes import look_at_wait
    from everstep.graph.labels import check_kept
    from everstep.model.acts import Act
    from everstep.runtime.operations.acting import audited
    from everstep.runtime.operations.labels import labels_of_runs
    from everstep.runtime.reader import RunReader
else:
    check_kept = on_demand("everstep.graph.labels:check_kept")
    audited = on_demand("everstep.runtime.operations.acting:audited")
    labels_of_runs = on_demand("everstep.runtime.operations.labels:labels_of_runs")
    look_at_wait = on_demand("everstep.codec.notes:look_at_wait")


G = TypeVar("G")
T = TypeVar("T")


class Parts(Struct, frozen=True):
    """The services of a host and what works with them, on one event loop."""

    url: str
    schemes: Mapping[str, str]
    """Where queued tasks and channels of new runs are kept: `sqlite`, `redis`."""
    services: Services
    runs: Runs
    retention: Retention
    """What the host was given, for runs whose flows say nothing."""

    def info(self, row: RunRow, labels: Labels | None = None, changed_at: datetime | None = None) -> RunInfo:
        """Return what callers see of a run's row, and of what else was read."""
        return RunInfo.of(row, is_driven=self.is_driven(row), labels=labels, changed_at=changed_at)

    def is_driven(self, row: RunRow) -> bool:
        """Say whether the lease of a run holds, and its owner lives as far as this machine can tell."""
        lease, services = row.lease, self.services
        if lease is None:
            return False
        now, here = services.clock.now(), services.processes.me()
        if seconds_left(lease, now=now, here=here, uptime=uptime(services.clock)) <= 0:
            return False
        return lease.process is None or not services.processes.is_gone(lease.process)

    async def infos(
        self, rows: Sequence[RunRow], changed: Mapping[str, datetime] | None = None
    ) -> list[RunInfo]:
        """Return what callers see of runs, with their labels, and when they changed, if that was read."""
        labels = await labels_of_runs(self.services, rows)
        at = changed or {}
        return [self.info(row, labels.get(row.run_id, NO_LABELS), at.get(row.run_id)) for row in rows]

    async def audited(
        self, act: str, by: Act | None, doing: Awaitable[T], run_id: str | None = None, about: str = ""
    ) -> T:
        """Do something, with a row in the audit log if it is known who does; also of what is refused."""
        if by is None and not self.services.notes_unnamed:
            return await doing
        return await audited(self.services, act, by, doing, run_id, about)

    def wait(self, row: WaitRow, token: str | None = None) -> WaitInfo:
        """Return what callers see of a wait, with its token if this host may show it."""
        token = token or self.services.tokens.shown(row)
        return WaitInfo.of(look_at_wait(self.services.codecs, row), token, self.services.link(token))

    def result(self, outcome: Outcome) -> RunResult:
        """Return what callers see of a run that was driven."""
        waits = [
            self.wait(row, outcome.tokens.get(row.wait_id))
            for row in outcome.waits
            if row.kind != DEADLINE_KIND
        ]
        return RunResult(outcome, waits, self.services.clock.now())


class CallGroup(Generic[G]):
    """A group of calls as an attribute of a host; of the class, the group's class.

    Its module is loaded when it is first used.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    @overload
    def __get__(self, host: None, owner: type) -> type[G]: ...
    @overload
    def __get__(self, host: Any, owner: type) -> G: ...
    def __get__(self, host: Any, owner: type) -> G | type[G]:
        group: type[Any] = getattr(import_module(self._module), self._name)
        return cast("type[G]", group) if host is None else cast("G", group(host._parts))


def check_number(after: int) -> None:
    """Raise unless a listing may go on after this number."""
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < 1 << 63:
        raise BadRequest(f"after is {after!r:.60}.", fix="Give the number of the last one, or 0.")


async def check_goes_on(reader: RunReader, before: str | None) -> None:
    """Raise if a listing that found nothing was to go on behind a run that is not there and never was.

    Behind one that was erased it goes on, as long as the store remembers it.
    """
    if before is None:
        return
    try:
        await reader.row(before)
    except RunErased:
        return
    except RunNotFound:
        raise RunNotFound(
            f"the list cannot go on behind run {before!r}: the store does not know where it was.",
            fix="Begin again, without `before`.",
        ) from None


def check_asked(**texts: object) -> None:
    """Raise if a listing is asked for what no store keeps, and none can look for."""
    for name, text in texts.items():
        check_kept(text, name)


def check_limit(limit: int) -> None:
    """Raise unless a listing may be that long."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise BadRequest(f"limit is {limit}.", fix="Give at least 1.")
