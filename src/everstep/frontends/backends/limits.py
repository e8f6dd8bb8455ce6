"""How long a stage may take and how much it may say, as backend and node say it together."""

from __future__ import annotations

from typing import Final

from everstep.errors import BadRequest
from everstep.frontends.pipelines.stage import Stage
from everstep.model.durations import Span, seconds_of

OUTPUT: Final = 1024 * 1024
"""Bytes of output that are kept unless told otherwise."""
LARGEST_PROMPT: Final = 64 * 1024 * 1024
"""Bytes of a prompt above which a stage is refused."""


def check_seconds(value: Span | None, what: str) -> float | None:
    """Return a span above zero as seconds, or none for no limit."""
    return None if value is None else seconds_of(value, what)


def check_size(value: int, what: str) -> int:
    """Return a number of bytes above zero."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise BadRequest(f"{what} is {value!r:.60}.", fix="Give a number of bytes above zero.")


def shorter(own: float | None, stage: Stage) -> float | None:
    """Return the shorter of two times, a backend's and a stage's; none if neither has a limit."""
    return min((t for t in (own, stage.timeout) if t is not None), default=None)
