"""What is traced, and how the context of a span is written into records, waits and headers."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from everstep.errors import BadRequest

CALLER: Final = "caller"
"""In a note: the span in which the run was started."""
DRIVE: Final = "drive"
"""In a note: the span of the drive that wrote it."""
ANSWER: Final = "answer"
"""In a note of a wait: the span in which it was answered."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_WORDS = {"": None, "0": False, "false": False, "1": True, "true": True}


class Tracing(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says in its spans, and to whom."""

    values: bool = False
    """True puts arguments and results into attributes, shortened: they may be personal, or secret."""
    tracer_provider: Any = None
    """A `TracerProvider` of OpenTelemetry; none for the one that the program has set."""


def tracing_of(said: object) -> Tracing | None:
    """Return what a host is to trace: as it is told, none if nothing."""
    if said is None or said is False:
        return None
    if said is True:
        return Tracing()
    if not isinstance(said, Tracing):
        raise BadRequest(f"tracing is {said!r:.60}.", fix="Give True, False, or Tracing(values=True).")
    return said


def tracing_around(environ: Mapping[str, str]) -> Tracing | None:
    """Return what the environment says of it, in EVERSTEP_TRACING."""
    word = environ.get("EVERSTEP_TRACING", "").strip().lower()
    if word == "values":
        return Tracing(values=True)
    if word not in _WORDS:
        raise BadRequest(f"EVERSTEP_TRACING is {word!r:.60}.", fix="Set it to 1 or values, or not at all.")
    return tracing_of(_WORDS[word])


def written(trace_id: int, span_id: int, flags: int) -> str:
    """Return the context of a span as a `traceparent` of W3C Trace Context."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags & 1:02x}"


def read(traceparent: object) -> tuple[int, int, int] | None:
    """Return the trace, the span and the flags that a `traceparent` names; none if it names none."""
    found = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None or traceparent[:2] == "ff":  # type: ignore[index]
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    return (trace_id, span_id, flags) if trace_id and span_id else None
