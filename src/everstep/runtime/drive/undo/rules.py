"""Whether a run is undone, and what may still be done with one that was. Apart from the drive, which is not
needed for it.
"""

from __future__ import annotations

from everstep.engine.state import RunState
from everstep.engine.undo.stack import is_undone
from everstep.errors import BadRequest, RunUndone
from everstep.graph.author.flow import Flow
from everstep.model.commits import StopRequest
from everstep.model.enums import Status
from everstep.ports.store import RunRow


def may_undo(flow: Flow, state: RunState, stop: StopRequest) -> bool:
    """True if a run that was asked to stop is undone before it ends."""
    return is_undone(state.undo, flow.undo, stop, state.scopes())


def check_may_undo(row: RunRow, state: RunState) -> None:
    """Raise unless a run that has ended has something to undo."""
    undo = state.undo
    if row.status is Status.COMPLETED:
        raise BadRequest(
            f"run {row.run_id!r} is completed: what it did is meant to last.",
            fix="Undo it with a run of a flow of its own.",
        )
    if undo is not None and undo.is_over and not undo.stack:
        raise RunUndone(f"run {row.run_id!r} has undone what it did ({undo.came_to}).", fix=_forward(row))
    if undo is None or not undo.stack:
        raise BadRequest(
            f"run {row.run_id!r} has completed nothing that says how it is undone.",
            fix="Say it with @node(undo=...), for the next run.",
        )


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
        fix=_forward(row),
    )


def _forward(row: RunRow) -> str:
    return (
        f"Begin anew as another run: everstep fork {row.run_id} --at 1. From a later checkpoint, that takes "
        "for done what was done before it."
    )
