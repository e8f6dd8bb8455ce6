"""What may go wrong, where, and who decides it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from everstep.errors import BadRequest


class Fault(StrEnum):
    """What goes wrong at a point."""

    CRASH = "crash"
    POWER_CUT = "power cut"
    STALL = "stall"
    LOST_REQUEST = "lost request"
    LOST_REPLY = "lost reply"
    DOUBLED = "doubled"
    REPEATED_LATE = "repeated late"
    TORN = "torn"
    OUTAGE = "outage"
    LONG_OUTAGE = "long outage"
    FULL = "full"
    SLOW = "slow"
    CLOCK_AHEAD = "clock ahead"
    CLOCK_BACK = "clock back"
    NOTIFIER_DOWN = "notifier down"


TOLD: Mapping[Fault, str] = {
    Fault.CRASH: "the process dies",
    Fault.POWER_CUT: "the machine goes down, and all its processes with it",
    Fault.STALL: "the process is stopped for 90 s, as a suspended machine is, and then goes on",
    Fault.LOST_REQUEST: "the request does not reach the store",
    Fault.LOST_REPLY: "the store does it, and its reply is lost",
    Fault.DOUBLED: "the request reaches the store twice",
    Fault.REPEATED_LATE: "the request reaches the store once more, 40 s later",
    Fault.TORN: "the process dies while the store takes the first part of a group",
    Fault.OUTAGE: "the store is away for 3 s",
    Fault.LONG_OUTAGE: "the store is away for 100 s",
    Fault.FULL: "the store is full for 20 s",
    Fault.SLOW: "the node takes 50 s",
    Fault.CLOCK_AHEAD: "the machine's clock is set 120 s ahead",
    Fault.CLOCK_BACK: "the machine's clock is set back by an hour",
    Fault.NOTIFIER_DOWN: "the notification cannot be sent",
}
"""Each in users' words, for stories."""


class Taken(NamedTuple):
    """A decision that was not the usual one: what went wrong at a point, or who went first."""

    label: str
    choice: str

    def __str__(self) -> str:
        return f"{self.label}: {self.choice}"


class Decider(Protocol):
    """Decides what happens at each point of a schedule."""

    def fault(self, label: str, possible: tuple[Fault, ...]) -> Fault | None:
        """Return what goes wrong at a point, if anything."""

    def turn(self, label: str, count: int) -> int:
        """Return which of several threads goes on; 0 is the one that has waited longest."""


class Nothing:
    """Lets nothing go wrong, and everybody have their turn."""

    def fault(self, label: str, possible: tuple[Fault, ...]) -> Fault | None:
        return None

    def turn(self, label: str, count: int) -> int:
        return 0


class Chosen:
    """Exactly these decisions: `app.1 after put 3: crash`."""

    def __init__(self, taken: Iterable[Taken]) -> None:
        self._choices = {it.label: it.choice for it in taken}

    def fault(self, label: str, possible: tuple[Fault, ...]) -> Fault | None:
        choice = self._choices.get(label)
        return Fault(choice) if choice is not None and choice in possible else None

    def turn(self, label: str, count: int) -> int:
        choice = self._choices.get(label)
        return min(int(choice), count - 1) if choice is not None else 0


LIVES = 3
"""From the next life on, a process is in half the danger of the life before. A run whose owners die again and
again without writing anything is set aside, and that is as it should be."""
RENEWALS = 3
"""Further ones of a life are in less and less danger: a run that pauses for an hour has hundreds of them."""


class Drawn:
    """Decisions that follow from a seed and the name of each point, and from nothing else.

    So leaving one of them out changes no other, as long as the same points are reached.
    """

    def __init__(self, seed: int, *, hazard: float, disorder: float, kinds: Iterable[Fault] = Fault) -> None:
        self._seed = zlib.crc32(str(seed).encode())
        self._hazard = round(hazard * 2**32)
        self._disorder = round(disorder * 2**32)
        self._kinds = frozenset(kinds)

    def fault(self, label: str, possible: tuple[Fault, ...]) -> Fault | None:
        drawn = zlib.crc32(label.encode(), self._seed)
        if drawn >= self._hazard or drawn >= _least(label, self._hazard):
            return None
        found = [kind for kind in possible if kind in self._kinds]
        return found[zlib.crc32(b"which", drawn) % len(found)] if found else None

    def turn(self, label: str, count: int) -> int:
        drawn = zlib.crc32(label.encode(), self._seed)
        return zlib.crc32(b"whose", drawn) % count if drawn < self._disorder else 0


def _least(label: str, hazard: int) -> int:
    """Return the hazard of a point: less in late lives, and of a renewal that comes after many others."""
    tag, _, point = label.partition(" ")
    hazard >>= max(0, int(tag.rpartition(".")[2]) - LIVES)
    what, _, number = point.rpartition(" ")
    return hazard // max(1, int(number) - RENEWALS) if what.endswith(" renew") else hazard


def parse(said: str | Taken) -> Taken:
    """Read a decision as it is printed."""
    if isinstance(said, Taken):
        return said
    label, colon, choice = said.rpartition(": ")
    if not colon or not (choice.isdecimal() or choice in set(Fault)):
        raise BadRequest(
            f"{said!r} is no decision of a schedule.",
            fix='Give it as a failure prints it: "app.1 after put 3: crash".',
        )
    return Taken(label, choice)
