"""Which attempt at which step of which run some code is at work for, and for which request: what lines of
logs say. Apart from drives, which note it only once `everstep.logs` is loaded: others pay nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class AtWork(NamedTuple):
    """The run that is driven here, and the attempt at a step if the code of one is running."""

    run: str
    step: str = ""
    """As `RUN/PATH` names it: `charge`, `embed#7/fetch`, `agent@2/$search` for a durable call."""
    attempt: int = 0


AT_WORK: ContextVar[AtWork | None] = ContextVar("everstep_at_work", default=None)
"""What this code is at work for; none outside of a drive."""
REQUEST: ContextVar[str] = ContextVar("everstep_request", default="")
"""The id of the request to the service that is answered here."""
