"""Taking what is sent to a run into values of its flow. Apart from the drive: few flows have an inbox.

The store is asked only if its change counter says that something was written since it was last asked.
"""

from __future__ import annotations

from typing import Any

from everstep.model.records import INBOX, StepRecord
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.values import Slot, write_aside
from everstep.runtime.waits.inbox import check_has_inbox, untaken


class DriveInbox:
    """The inbox of a run under way, as far as its flow says what becomes of signals."""

    def __init__(self, run: RunContext) -> None:
        check_has_inbox(run.services)
        self._run = run
        self._services = run.services
        self._reducers = run.flow.inbox
        self._seen: int | None = None

    def nudge(self) -> None:
        """A signal may have come."""
        self._seen = None

    def has_news(self) -> bool:
        """True if a signal may have come since it last looked."""
        return self._seen is None or self._services.store.changes() != self._seen

    async def take(self) -> None:
        """Buffer a step that has what came; the put that writes it takes the signals."""
        journal = self._run.journal
        self._seen = self._services.store.changes()  # before it looks: what comes meanwhile counts
        values: dict[str, list[Any]] = {}
        taken = []
        came = await untaken(self._services, self._run.run_id)
        held = self._held()
        for row, message in came:
            if row.name in held:
                self._seen = None
            elif row.name in self._reducers and journal.claim(row.signal_id):
                values.setdefault(row.name, []).append(message.value)
                taken.append(row.signal_id)
        if not taken:
            return
        try:
            drafts = await self._drafted(values)
        except BaseException:
            journal.disclaim(taken)
            self._seen = None
            raise
        now = self._run.clock.now()
        writes = tuple(draft.written for draft in drafts)
        journal.add(StepRecord(path=INBOX, writes=writes, started_at=now, ended_at=now), tuple(drafts))
        journal.taken += taken

    def _held(self) -> set[str]:
        """Return the values that effects were given which may be made again: then they get the same."""
        state = self._run.state
        nodes = state.plan.nodes
        begun = [i for i in state.due if i in state.begun or i in state.running or state.attempts[i]]
        read = {p.source for i in begun if nodes[i].is_effectful for p in nodes[i].params}
        return read & self._reducers.keys()

    async def _drafted(self, values: dict[str, list[Any]]) -> list[Slot]:
        """Return what the values of the flow become with what came for each."""
        journal, state, space = self._run.journal, self._run.state, self._run.space
        drafts: list[Slot] = []
        for name, came in values.items():
            current = space.peek(name) if name in state.versions else None
            draft = space.draft(state, name, self._reducers[name].reduce(name, current, came))
            if draft.spill is not None:
                await write_aside(self._services, space, draft, is_alone=False, persist=journal.persist)
            drafts.append(draft)
        return drafts
