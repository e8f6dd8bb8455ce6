"""What people read of a notice: a line, and some lines more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from everstep.graph.tells import Occasion
from everstep.model.commits import SCHEDULE_FLOW
from everstep.model.waits import CHILD_KIND
from everstep.ports.durability import Notice

_LONGEST: Final = 1000
_DID: Final[Mapping[str, str]] = {
    Occasion.COMPLETED: "has completed",
    Occasion.FAILED: "has failed",
    Occasion.CANCELLED: "was cancelled",
    Occasion.ABANDONED: "was abandoned",
    Occasion.HALTED: "has halted",
    Occasion.OVERDUE: "is overdue",
    Occasion.BUDGET: "has spent its budget",
    Occasion.UNDONE: "was undone",
    Occasion.NEEDS_REPAIR: "needs repair",
}
_AGAIN: Final[Mapping[str, str]] = {
    Occasion.REMINDER: "Reminder: ",
    Occasion.ESCALATION: "Still no answer: ",
}


def subject(notice: Notice) -> str:
    """Return a notice in one line."""
    if notice.occasion == Occasion.MISSED_SCHEDULE:
        return plain(f"Schedule {notice.run_id} of {notice.flow.removeprefix(SCHEDULE_FLOW)} missed a time")
    if notice.occasion in _DID:
        return plain(f"Run {notice.run_id} of {notice.flow} {_DID[notice.occasion]}")
    asked = notice.prompt or f"{notice.kind} {notice.node!r}"
    return plain(f"{_AGAIN.get(notice.occasion, '')}{asked} ({notice.flow})")


def lines(notice: Notice) -> list[tuple[str, str]]:
    """Return what is to be known besides, each with its name; nothing that may answer but the link."""
    told: list[tuple[str, Any]] = [
        ("Flow", notice.flow),
        ("Run", notice.run_id),
        ("Step", notice.node),
        ("Status", notice.status),
        ("When", notice.at and f"{notice.at:%Y-%m-%d %H:%M:%S} UTC"),
        ("Error", notice.error),
        ("Question", notice.prompt),
        ("Context", shown(notice.context)),
        ("Until", notice.due_at and f"{notice.due_at:%Y-%m-%d %H:%M:%S} UTC"),
    ]
    return [(name, text) for name, text in told if text]


def can_be_answered(notice: Notice) -> bool:
    """True if a person can answer what it tells of: the end of another run is not answered."""
    return bool(notice.wait_id) and notice.kind != CHILD_KIND


def shown(context: Any) -> str:
    """Return what a wait shows as text, cut where it is long."""
    if context is None:
        return ""
    text = context if isinstance(context, str) else json.dumps(context, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def plain(text: str) -> str:
    """Return a text on one line, without what a terminal or a header would obey."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
