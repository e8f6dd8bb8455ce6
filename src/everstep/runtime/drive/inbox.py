"""Taking what is sent to a run into values of its flow. Apart from the drive: few flows have an inbox.

The store is asked only if its change counter says that something was written since it was last asked.
"""

from __future__ import annotations

import logging
from typing import Any

from everstep.graph.author.context import Context
from everstep.graph.author.node import Node
from everstep.model.records import INBOX, StepRecord
from everstep.runtime.drive.context import RunContext
from everstep.runtime.drive.values import Slot, write_aside
from everstep.runtime.waits.fitting import check_fits, taken_in
from everstep.runtime.waits.inbox import check_has_inbox, untaken

log = logging.getLogger("everstep")


class DriveInbox:
    """The inbox of a run under way, as far as its flow says what becomes of signals."""

    def __init__(self, run: RunContext) -> None:
        check_has_inbox(run.services)
        self._run = run
        self._services = run.services
        self._reducers = run.flow.inbox
        self._seen: int | None = None
        self._passed: dict[str, int] = {}
        """By names, the number of the newest signal that was taken or fits not: each is looked at once."""
        self._told: set[str] = set()
        """Signals that do not fit their values, of which a log says so."""

    def nudge(self) -> None:
        """A signal may have come."""
        self._seen = None

    def check(self, name: str, value: Any) -> None:
        """Refuse a signal that no value of the flow could take in."""
        check_fits(self._run.flow, name, value)

    def has_news(self) -> bool:
        """True if a signal may have come since it last looked."""
        return self._seen is None or self._services.store.changes() != self._seen

    async def take(self) -> None:
        """Buffer a step that has what came; the put that writes it takes the signals.

        One that does not fit its value stays in the inbox, and the others are taken: what anybody may send is
        to stop no run.
        """
        journal = self._run.journal
        self._seen = self._services.store.changes()  # before it looks: what comes meanwhile counts
        values: dict[str, dict[str, Any]] = {}
        passed: dict[str, int] = {}
        held = self._held()
        for name in self._reducers:
            came = await untaken(self._services, self._run.run_id, name, self._passed.get(name, 0))
            if came and name in held:
                self._seen = None
                continue
            for row, message in came:
                passed[name] = row.number
                if journal.claim(row.signal_id):
                    values.setdefault(name, {})[row.signal_id] = message.value
        if not values:
            return
        claimed = [signal_id for came_for in values.values() for signal_id in came_for]
        try:
            drafts, taken = await self._drafted(values)
        except BaseException:
            journal.disclaim(claimed)
            self._seen = None
            raise
        journal.disclaim([signal_id for signal_id in claimed if signal_id not in taken])
        self._passed |= passed
        if not taken:
            return
        now = self._run.clock.now()
        writes = tuple(draft.written for draft in drafts)
        journal.add(StepRecord(path=INBOX, writes=writes, started_at=now, ended_at=now), tuple(drafts))
        journal.taken += taken

    def _held(self) -> set[str]:
        """Return the values that effects were given which may be made again: then they get the same."""
        state = self._run.state
        nodes = state.plan.nodes
        held = {i for i in state.due if i in state.begun or i in state.running or state.attempts[i]}
        held = {i for i in held if nodes[i].is_effectful}
        # What makes durable calls gets the same until its visit is over, and what runs may make some.
        held |= state.units.keys() | state.begun
        held |= {i for i in state.running if i not in state.waiting and _may_make_calls(nodes[i])}
        read = {p.source for i in held for p in nodes[i].params}
        return read & self._reducers.keys()

    async def _drafted(self, values: dict[str, dict[str, Any]]) -> tuple[list[Slot], dict[str, None]]:
        """Return what the values of the flow become with what came for each, and which signals fit."""
        journal, state, space = self._run.journal, self._run.state, self._run.space
        drafts: list[Slot] = []
        taken: dict[str, None] = {}
        for name, came in values.items():
            current = space.peek(name) if name in state.versions else None
            ids = [*came]
            value, refused = taken_in(self._run.flow, name, current, [*came.values()])
            self._tell(name, [ids[k] for k in refused])
            if len(refused) == len(ids):
                continue
            taken |= dict.fromkeys(one for k, one in enumerate(ids) if k not in refused)
            draft = space.draft(state, name, value)
            if draft.spill is not None:
                await write_aside(self._services, space, draft, is_alone=False, persist=journal.persist)
            drafts.append(draft)
        return drafts, taken

    def _tell(self, name: str, refused: list[str]) -> None:
        for signal_id in refused:
            if signal_id not in self._told:
                self._told.add(signal_id)
                said = "signal %r of run %r stays in the inbox: it does not fit %r."
                log.warning(said, signal_id, self._run.run_id, name)


def _may_make_calls(node: Node) -> bool:
    """True of a node that can ask for durable calls: by its context, or by helpers that find it."""
    return node.context_param is not None or Context.marks is not None
