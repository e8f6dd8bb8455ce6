"""What driving a run came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from everstep.engine.state import RunState
from everstep.model.enums import Status
from everstep.model.records import ErrorInfo
from everstep.model.waits import WaitRow
from everstep.runtime.drive.values import ValueSpace
from everstep.runtime.resume import Resumed

if TYPE_CHECKING:
    from everstep.runtime.integrity.findings import Fallback


class Outcome(NamedTuple):
    """A run after its drive, or as its records tell it."""

    run_id: str
    status: Status
    state: RunState
    space: ValueSpace
    error: ErrorInfo | None = None
    exception: BaseException | None = None
    waits: tuple[WaitRow, ...] = ()
    """What it waits for, if it halted."""
    spooled: int = 0
    """How many of its checkpoints wait on this machine."""
    tokens: Mapping[str, str] = {}
    """Tokens that were made for its waits just now."""
    resumed: Resumed | None = None
    """How it was taken up, if it was there before."""
    paused: str | None = None
    """The mark of its pause, if that is why it was let go of."""
    fallback: Fallback | None = None
    """If it goes on in the place of a damaged run: which one, and from where."""
