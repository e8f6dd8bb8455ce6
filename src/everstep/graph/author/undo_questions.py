"""What a person is asked while a run undoes what it did. Apart, as few runs come to that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from everstep.graph.author.wait_options import Wait
from everstep.model.records import ErrorInfo
from everstep.model.waits import SETTLE

UNDOES: Final = "undoes"
"""What the context of such a question calls the step that is undone."""
_SHOWN = 20
"""How many steps a question names."""


def how_to_go_on(address: str, by: str, error: ErrorInfo, failures: int) -> Wait:
    """Return the wait after an undo has failed for good: again, done by hand, or skipped with a reason."""
    return Wait(
        kind=SETTLE,
        prompt=f"{address} cannot be undone: {error.type}: {error.message} "
        "Try again, say that it was done by hand, or skip it and say why.",
        context={UNDOES: address, "undo": by, "error": f"{error.type}: {error.message}", "attempts": failures},
    )


def for_undo(addresses: Sequence[str], error: ErrorInfo | None) -> Wait:
    """Return the wait in which a person says whether a run is undone at all."""
    why = "it was cancelled" if error is None else f"{error.type}: {error.message}"
    named = list(reversed(addresses))[:_SHOWN]
    return Wait(
        kind="approval",
        prompt=f"Undo what the run has done? {len(addresses)} steps can be undone. Why: {why}",
        context={UNDOES: named, "steps": len(addresses)},
    )
