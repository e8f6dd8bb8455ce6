"""Whether a run is undone, and what may still be done with one that was. Apart from the drive, which is not
needed for it.
"""

from __future__ import annotations

from everstep.engine.state import RunState
from everstep.engine.undo.stack import unsettled
from everstep.errors import RunUndone
from everstep.graph.author.flow import Flow
from everstep.model.commits import StopRequest
from everstep.ports.store import RunRow


def may_undo(flow: Flow, state: RunState, stop: StopRequest) -> bool:
    """True if a run that was asked to stop is undone before it ends."""
    undo = state.undo
    if undo is None or undo.has_begun:
        return undo is not None
    is_wanted = stop is StopRequest.UNDO or flow.undo in ("both", "cancel", "ask")
    return is_wanted and bool(undo.stack or unsettled(state.scopes()))


def check_goes_on(row: RunRow, state: RunState, start: str | None) -> None:
    """Raise if a run that undoes what it did, or has, is to go forward."""
    undo = state.undo
    if undo is None or not undo.has_begun or (start is None and not row.status.is_final):
        return
    if start is None and not undo.is_over:
        return  # it was given up on, and goes on undoing
    what = "has undone" if undo.is_over else "is undoing"
    raise RunUndone(
        f"run {row.run_id!r} {what} what it did ({undo.came_to}), and goes forward no more.",
        fix=f"Go on as another run, from a checkpoint before that: everstep fork {row.run_id} --at N",
    )
