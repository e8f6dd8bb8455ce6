"""What people and systems are told of runs: on which occasions, and who."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from everstep.errors import BadRequest
from everstep.model.durations import Span, span_of, spell


class Occasion(StrEnum):
    """What a notice tells of. What lets another thing happen to a run adds it here, and tells of it."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    HALTED = "halted"
    """The words up to here are statuses: the put that gives a run one of them writes the notice."""
    OVERDUE = "overdue"
    """It has not ended by the time that was said when it began."""
    BUDGET = "budget"
    """All of a budget is spent, and a person is asked for more."""
    UNDONE = "undone"
    MISSED_SCHEDULE = "missed_schedule"
    NEEDS_REPAIR = "needs_repair"
    """It was found damaged, and no worker drives it."""
    REMINDER = "reminder"
    """A wait is still open: who was told of it is told again."""
    ESCALATION = "escalation"
    """A wait is still open: others are told of it."""


OF_WAITS: Final = frozenset({Occasion.REMINDER, Occasion.ESCALATION})
"""Occasions that a wait brings about; they are told of no run as a whole."""
TROUBLE: Final = (
    Occasion.FAILED,
    Occasion.ABANDONED,
    Occasion.NEEDS_REPAIR,
    Occasion.BUDGET,
    Occasion.OVERDUE,
    Occasion.MISSED_SCHEDULE,
)
"""What one is told of who does not say of what."""
LONGEST_ALIAS: Final = 100
LONGEST_ERROR: Final = 300


@dataclass(frozen=True, kw_only=True)
class Tell:
    """Who is told of runs, and of what: `Tell("pager", on="failed", tag="tier=1")`.

    `flow` and `tag` say of which runs, where a host says it; a tag is a name, or `name=value`. With
    `overdue` it is told of each that has not ended so long after it began.
    """

    notifier: str
    on: tuple[Occasion, ...] = TROUBLE
    flow: str | None = None
    tag: str | None = None
    overdue: timedelta | None = None

    def __init__(
        self,
        notifier: str,
        *,
        on: str | Iterable[str] | None = None,
        flow: str | None = None,
        tag: str | None = None,
        overdue: Span | None = None,
    ) -> None:
        _set(self, "notifier", _alias(notifier))
        _set(self, "on", TROUBLE if on is None else occasions_of(on))
        for name, given in (("flow", flow), ("tag", tag)):
            if given is not None and (not isinstance(given, str) or not given):
                raise BadRequest(f"{name} of those who are told is {given!r:.60}.", fix="Give its name.")
            _set(self, name, given)
        span = None if overdue is None else span_of(overdue, "overdue")
        if span is not None and span <= timedelta(0):
            raise BadRequest(f"overdue is {overdue!r}.", fix='Give how long a run may take, such as "2h".')
        _set(self, "overdue", span)

    @property
    def occasions(self) -> tuple[Occasion, ...]:
        """What it is told of; of what is overdue only if it was said when that is."""
        wanted = tuple(one for one in self.on if one is not Occasion.OVERDUE)
        return wanted if self.overdue is None else (*wanted, Occasion.OVERDUE)

    def concerns(self, flow: str, tags: Mapping[str, str]) -> bool:
        """True if it is about runs of this flow with these tags."""
        if self.flow not in (None, flow):
            return False
        if self.tag is None:
            return True
        name, equals, value = self.tag.partition("=")
        return name in tags and (not equals or tags[name] == value)

    def to_wire(self) -> dict[str, Any]:
        """Return it as the Flow IR says it."""
        told: dict[str, Any] = {"notifier": self.notifier, "on": [str(one) for one in self.on]}
        return told if self.overdue is None else {**told, "overdue": spell(self.overdue)}

    @classmethod
    def of_wire(cls, ir: Mapping[str, Any]) -> Tell:
        """Read what `to_wire` wrote."""
        return cls(ir["notifier"], on=ir.get("on"), overdue=ir.get("overdue"))


_set = object.__setattr__
_ID: Final = re.compile(r"(.+)-([0-9]{1,18})(?:\.[0-9]{1,9})?", re.ASCII)
Telling = str | Tell | Iterable[str | Tell]
"""Who is told, as people write it."""


def _alias(given: object) -> str:
    # What no store could keep as text would be there twice, or not be found.
    if not isinstance(given, str) or not 0 < len(given) <= LONGEST_ALIAS or not given.isprintable():
        raise BadRequest(
            f"a notifier is called {given!r:.60}.", fix="Give the alias of one of the host's notifiers."
        )
    return given


def occasions_of(given: object) -> tuple[Occasion, ...]:
    """Return occasions from their names, each once, in the order of the list."""
    known = [one for one in Occasion if one not in OF_WAITS]
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Iterable):
        names = [names]
    wanted = list(names)
    if not wanted or any(name not in known for name in wanted):
        raise BadRequest(
            f"there is nothing to be told of: on is {given!r:.60}.", fix=f"Use some of: {', '.join(known)}."
        )
    return tuple(one for one in known if one in wanted)


def tells_of(given: Telling | None, where: str, *, of_all: bool) -> tuple[Tell, ...]:
    """Return who is told, from what people wrote. Only a host says of which runs, which is `of_all`."""
    if given is None:
        return ()
    each = [given] if isinstance(given, str | Tell) else given
    if not isinstance(each, Iterable):
        raise BadRequest(
            f"{where}: notify is {given!r:.60}.", fix='Give the alias of a notifier, or Tell("ops", on=...).'
        )
    found = tuple(one if isinstance(one, Tell) else Tell(one) for one in each)
    if not of_all and any(one.flow is not None or one.tag is not None for one in found):
        raise BadRequest(
            f"{where}: notify names runs by flow or tag.", fix="Say that on the host: Host(notify=[...])."
        )
    return found


def read_notice_id(text: str) -> tuple[str, int] | None:
    """Return the run and the number that the id of a notice names; none if it is no such id."""
    found = _ID.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))
