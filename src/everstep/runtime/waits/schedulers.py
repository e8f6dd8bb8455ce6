"""Who keeps the due times of waits: the store itself, or schedulers that the host knows by alias. Apart from
the services as a port with several answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from everstep.codec.chain import Codecs
from everstep.errors import BadRequest, ScheduleNotFound, UnknownScheduler, WaitNotFound
from everstep.graph.check.validate import known_aliases
from everstep.model.durations import moment_of, span_of
from everstep.model.waits import SettledBy, WaitChange, WaitRow, WaitStatus
from everstep.on_demand import on_demand
from everstep.ports.durability import Handle, ResumeScheduler, ScheduleState, ScheduleStatus
from everstep.ports.store import CheckpointStore
from everstep.ports.system import Clock

if TYPE_CHECKING:
    from everstep.codec.notes import due_anew
    from everstep.runtime.waits.tokens import refuse_change
    from everstep.runtime.waits.voting import change_details
else:
    change_details = on_demand("everstep.runtime.waits.voting:change_details")
    due_anew = on_demand("everstep.codec.notes:due_anew")
    refuse_change = on_demand("everstep.runtime.waits.tokens:refuse_change")


STORE: Final = ""
"""The alias of the store's own scheduler."""


class StoreScheduler:
    """Keeps due times in the rows of waits, so a schedule's id is the id of its wait.

    Nothing fires by itself: the next owner of the run, such as a worker, finds the wait due.
    """

    def __init__(self, store: CheckpointStore, clock: Clock, codecs: Codecs) -> None:
        self._store = store
        self._clock = clock
        self._codecs = codecs

    async def schedule_at(self, handle: Handle, at: datetime) -> str:
        """Keep a due time for a wait, in place of the one it had; one in the past is due at once."""
        moment = moment_of(at, "at")
        row = await self._store.wait(handle.wait_id)
        if row is None:
            raise WaitNotFound(f"there is no wait {handle.wait_id!r}.", fix="Look with: everstep waits")
        if row.scheduler != STORE:
            raise BadRequest(f"the time of wait {row.wait_id} is kept by scheduler {row.scheduler!r}.")
        changed = await self._set(row, moment)
        if changed is None or changed.status is not WaitStatus.OPEN:
            refuse_change(changed or row)
        return row.wait_id

    async def schedule_after(self, handle: Handle, delay: timedelta) -> str:
        """Keep a due time from now on; `InvalidDelay` if it lies in the past."""
        return await self.schedule_at(handle, self._clock.now() + span_of(delay, "delay"))

    async def cancel(self, schedule_id: str) -> None:
        """Forget a due time; `ScheduleNotFound` if there is none, or no longer."""
        row = await self._row(schedule_id)
        if row.status is not WaitStatus.OPEN or row.due_at is None:
            raise ScheduleNotFound(f"wait {schedule_id!r} has no due time to come.")
        changed = await self._set(row, None)
        if changed is None or changed.status is not WaitStatus.OPEN:
            raise ScheduleNotFound(f"wait {schedule_id!r} was settled before its time could be cancelled.")

    async def status(self, schedule_id: str) -> ScheduleStatus:
        """Say where a schedule stands; it is `expired` if its wait was over before its time."""
        row = await self._row(schedule_id)
        if row.settled_by is SettledBy.CLOCK:
            return ScheduleStatus(ScheduleState.FIRED, row.settled_at)
        if row.due_at is None:
            return ScheduleStatus(ScheduleState.CANCELLED)
        if row.status is WaitStatus.OPEN:
            return ScheduleStatus(ScheduleState.PENDING, row.due_at)
        return ScheduleStatus(ScheduleState.EXPIRED, row.due_at)

    async def _set(self, row: WaitRow, due_at: datetime | None) -> WaitRow | None:
        if due_anew(self._codecs, row, due_at) is None:
            return await self._store.change_wait(row.wait_id, WaitChange(due_at=due_at))
        return await change_details(self._store, self._codecs, row, lambda now: self._change(now, due_at))

    def _change(self, row: WaitRow, due_at: datetime | None) -> WaitChange:
        details = due_anew(self._codecs, row, due_at)
        return WaitChange(due_at=due_at) if details is None else WaitChange(due_at=due_at, details=details)

    async def _row(self, schedule_id: str) -> WaitRow:
        row = await self._store.wait(schedule_id)
        if row is None or row.scheduler != STORE:
            raise ScheduleNotFound(
                f"the store keeps no schedule {schedule_id!r}.", fix="Its id is that of a wait."
            )
        return row


class Schedulers:
    """The schedulers of a host by alias; the empty alias is the store's."""

    def __init__(
        self,
        store: CheckpointStore,
        clock: Clock,
        others: Mapping[str, ResumeScheduler],
        codecs: Codecs,
        default: str = STORE,
    ) -> None:
        for alias, scheduler in others.items():
            if not isinstance(alias, str) or not alias:
                raise BadRequest(
                    f"a scheduler is called {alias!r}.", fix="Give it a name; the empty one is the store's."
                )
            if not isinstance(scheduler, ResumeScheduler):
                raise BadRequest(
                    f"scheduler {alias!r} is {scheduler!r}.",
                    fix="It needs schedule_at, schedule_after, cancel and status.",
                )
        self._all: dict[str, ResumeScheduler] = {**others, STORE: StoreScheduler(store, clock, codecs)}
        self.of(default)
        self.default = default
        """Who keeps the times of waits that name no scheduler."""

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset(self._all)

    @property
    def has_others(self) -> bool:
        """True if a scheduler besides the store keeps due times."""
        return len(self._all) > 1

    def of(self, alias: str = STORE) -> ResumeScheduler:
        """Return the scheduler with this alias, or raise `UnknownScheduler`."""
        found = self._all.get(alias) if isinstance(alias, str) else None
        if found is None:
            raise UnknownScheduler(
                f"this host has no scheduler {alias!r}.", fix=known_aliases(alias, self._all, "schedulers")
            )
        return found
