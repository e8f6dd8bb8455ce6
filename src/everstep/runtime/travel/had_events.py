"""The events that nodes of a run had by one of its checkpoints: a fork from there gets none of them again.
Apart from forking, as only runs that wait for events have any.
"""

from __future__ import annotations

from typing import cast

from everstep.codec.notes import message_of, open_wait
from everstep.codec.records import glance
from everstep.errors import EverstepError, StateCorrupted
from everstep.graph.compile.plan import Plan
from everstep.model.waits import EVENT_KIND, HadEvent, WaitRow
from everstep.ports.events import EventStore
from everstep.ports.store import RunRow, WaitFilter
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

PAGE = 1000
_RECORDS = 256


async def had_by(
    services: Services, runs: RunReader, plan: Plan, home: RunRow, sequence: int
) -> tuple[HadEvent, ...]:
    """Return which events the nodes of a run had taken in by a checkpoint that lies in it.

    A fork asks again what was open there, and what was asked later: with what settled that, too.
    """
    if not services.store.capabilities.has_events or not _may_wait(plan):
        return ()
    had = await cast("EventStore", services.store).had_events(home.run_id)
    if not had:
        return ()
    home = await runs.row(home.run_id)  # it may have gone on, to waits that these events settled
    folded = await runs.look_back(home.run_id, sequence)
    try:
        untaken = folded.state.waits.keys() | await _opened_after(runs, home, sequence)
    except StateCorrupted:
        return ()  # behind what cannot be read, rather twice than never
    left = {_event_of(services, row) for row in await _waits(services, home.run_id) if row.wait_id in untaken}
    return tuple(one for one in had if (one.path, one.event_id) not in left and (one.path, None) not in left)


def _may_wait(plan: Plan) -> bool:
    return any(node.halts for node in plan.nodes) or any(
        _may_wait(child.plan) for child in plan.children.values()
    )


def _event_of(services: Services, row: WaitRow) -> tuple[str, str | None]:
    """Return the node that a wait is of, and the event that settled it; none of one that cannot be read."""
    try:
        message = message_of(open_wait(services.codecs, row))
    except EverstepError:
        return row.path, None
    return row.path, message.id if message is not None else ""


async def _opened_after(runs: RunReader, home: RunRow, sequence: int) -> set[str]:
    """Return the waits that a run has opened since a checkpoint."""
    found: set[str] = set()
    for first in range(sequence + 1, home.checkpoints + 1, _RECORDS):
        for link in await runs.lineage.get(home, first, min(first + _RECORDS - 1, home.checkpoints)):
            steps = glance(link.stored.body, link.where).record.steps
            found |= {step.wait.wait_id for step in steps if step.wait is not None}
    return found


async def _waits(services: Services, run_id: str) -> list[WaitRow]:
    """Return all waits for events that a run ever opened."""
    found: list[WaitRow] = []
    while True:
        after = found[-1].wait_id if found else None
        asked = WaitFilter(run_id=run_id, kind=EVENT_KIND, limit=PAGE, after=after)
        page = await services.store.waits(asked)
        found += page
        if len(page) < PAGE:
            return found
