"""Whether the time has come at which a run begins, or is ended. Apart: few runs have either."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from itertools import islice

from everstep.codec.notes import open_settled
from everstep.engine.state import RunState
from everstep.errors import DeadlineExceeded
from everstep.model.enums import Status, Trigger
from everstep.model.records import DEADLINE, START, ErrorInfo, StepRecord
from everstep.model.waits import WaitOpened, WaitRow
from everstep.runtime.drive.context import RunContext
from everstep.runtime.outage.store_retry import outage, patiently
from everstep.runtime.waits.answers import who_settled

_SHOWN = 5
"""How many steps an error names."""


class KeptTimes:
    """The times of one run that is driven."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._services, self._journal, self._state = run.services, run.journal, run.state
        self._is_claimed = run.journal.is_halted and run.journal.writes
        """True if the store may have found one of them due, by its clock."""
        self._is_over = False

    async def look(self) -> bool:
        """Return whether the run may go on now; raises `DeadlineExceeded` once its time is over."""
        state = self._state
        rows: dict[str, WaitRow] = {}
        if self._is_claimed or state.delay is not None:
            rows, self._is_claimed = await self._settled(), False
        if state.deadline is not None and state.deadline.wait_id in rows:
            self._is_over = True
        if state.delay is not None and not await self._begins(state.delay, rows):
            return False
        if self.is_over():
            raise self._exceeded()
        return True

    def is_over(self) -> bool:
        """True if the deadline has come."""
        at = self.ends_at
        return at is not None and (self._is_over or at <= self._services.time.now())

    @property
    def ends_at(self) -> datetime | None:
        """When the run is ended; none without a deadline."""
        return None if self._state.deadline is None else self._state.deadline.due_at

    def sooner(self, until: datetime | None, is_busy: bool) -> tuple[datetime | None, bool]:
        """Return when to wake, and whether that is only looked out for while calls are under way."""
        ends = self.ends_at
        if ends is None or (until is not None and until <= ends):
            return until, False
        return ends, is_busy

    def exceed(self, error: ErrorInfo) -> None:
        """Buffer the step that says that the deadline has ended the run."""
        deadline = self._state.deadline
        if deadline is not None:
            now = self._services.clock.now()
            step = StepRecord(path=DEADLINE, status=Status.FAILED, wait=deadline, error=error, ended_at=now)
            self._journal.add(step, ())

    async def _settled(self) -> dict[str, WaitRow]:
        """Return the waits of the run that are settled, with those that are due by the store's clock."""
        services = self._services
        fire = partial(services.store.fire, self._run.run_id)
        rows = await patiently(services.clock, fire, outage(services.store))
        return {row.wait_id: row for row in rows}

    async def _begins(self, delay: WaitOpened, rows: dict[str, WaitRow]) -> bool:
        """Let the run begin if its time has come, or a person said so before."""
        services, row = self._services, rows.get(delay.wait_id)
        await services.time.hear()
        now = services.time.now()
        if row is None and delay.due_at is not None and delay.due_at > now:
            return False
        act = None if row is None else who_settled(open_settled(services.codecs, row, now))
        began = services.clock.now()
        self._journal.add(StepRecord(path=START, wait=delay, act=act, ended_at=began), ())
        await self._journal.flush(Trigger.STEP)
        return True

    def _exceeded(self) -> DeadlineExceeded:
        at = self.ends_at
        assert at is not None
        busy = list(dict.fromkeys(_under_way(self._state)))
        named = ", ".join(islice(busy, _SHOWN)) + (", ..." if len(busy) > _SHOWN else "")
        return DeadlineExceeded(
            f"run {self._run.run_id!r} had not ended by its deadline, {at:%Y-%m-%d %H:%M:%S} UTC; "
            f"under way: {named or 'nothing'}.",
            fix="Give it another one to go on: resume it with deadline=.",
        )


def _under_way(state: RunState) -> list[str]:
    """Return the paths of what a run had begun and not ended, or was to begin next."""
    shown = [scope for scope in state.scopes() if not scope.is_hidden]
    begun = [scope.path_of(i) for scope in shown for i in (*scope.running, *scope.waiting)]
    return begun or [scope.path_of(i) for scope in shown for i in scope.due]
