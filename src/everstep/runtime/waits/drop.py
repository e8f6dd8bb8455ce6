"""Taking a signal out of an inbox unread: one that fits nothing, say, and would stay there for good.
Apart from the inbox, as it writes to the run: the checkpoint that takes the signal says who wanted that.
"""

from __future__ import annotations

from everstep.errors import BadRequest, RunEnded
from everstep.model.acts import Act
from everstep.model.durability import Durability
from everstep.model.enums import Trigger
from everstep.model.records import INBOX, StepRecord
from everstep.model.waits import SignalRow
from everstep.ports.inbox import InboxStore
from everstep.ports.store import RunRow
from everstep.runtime.at_rest import RestingRuns
from everstep.runtime.services import Services
from everstep.runtime.waits.inbox import PAGE, LookedAt, check_has_inbox, checked_name, looked_at


async def drop(
    services: Services, runs: RestingRuns, run_id: str, signal_id: str, act: Act | None
) -> LookedAt:
    """Take a signal out of the inbox of a run that no process drives, and return what it was."""
    store = check_has_inbox(services)
    checked_name(signal_id, "id")
    _check_goes_on(await runs.reader.row(run_id))
    await _find(store, run_id, signal_id)
    lease = await runs.claim(run_id, Durability(), waits=False)
    try:
        row = await runs.reader.row(run_id)
        _check_goes_on(row)
        signal = await _find(store, run_id, signal_id)
        journal, _ = await runs.journal_at_rest(row, lease)
        now = services.clock.now()
        journal.act = act
        journal.add(StepRecord(path=INBOX, started_at=now, ended_at=now), ())
        journal.taken.append(signal_id)
        told = {"id": signal_id, "name": signal.name, "number": signal.number}
        await journal.flush(Trigger.STEP, status=row.status, metadata={"dropped": told})
    finally:
        await runs.release(lease)
    return looked_at(services, run_id, signal)


def _check_goes_on(row: RunRow) -> None:
    if row.status.is_final:
        raise RunEnded(
            f"run {row.run_id!r} has ended ({row.status.value}), and leaves unread what it has not taken.",
            fix="Nothing is to be done; if it is to go on, resume it first.",
        )
    if row.is_paused:
        raise BadRequest(
            f"run {row.run_id!r} is paused, and nothing is written to it.",
            fix=f"Let it go on first: everstep unpause {row.run_id}",
        )


async def _find(store: InboxStore, run_id: str, signal_id: str) -> SignalRow:
    after = 0
    while page := await store.inbox(run_id, after=after, limit=PAGE):
        found = next((one for one in page if one.signal_id == signal_id), None)
        if found is not None and found.wait_id is not None:
            raise BadRequest(
                f"signal {signal_id!r} of run {run_id!r} has settled a wait, which goes on with it.",
                fix="Drop it if it is still there when the run has gone on.",
            )
        if found is not None:
            return found
        after = page[-1].number
    raise BadRequest(
        f"there is no signal {signal_id!r} in the inbox of run {run_id!r}.",
        fix=f"See what is there: everstep inbox {run_id}",
    )
