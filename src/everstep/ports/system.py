"""Time, identity and chance: everything that is not the same on every run of the program."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from everstep.model.leases import Process


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the time as aware UTC."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back and runs through suspend."""

    async def sleep_until(self, at: datetime) -> None:
        """Return once `now()` has reached `at`, or as much time has passed as there was to go.

        A clock that is set back meanwhile does not make a sleep longer.
        """


def time_for_store(clock: Clock) -> datetime | None:
    """Return the time that a store with a clock of its own has to go by; none lets its own count.

    The clocks of two machines differ, so only a clock that tests move (`is_manual`) counts for more.
    """
    return clock.now() if getattr(clock, "is_manual", False) else None


async def reached(clock: Clock, at: datetime) -> None:
    """Return once `now()` has reached `at`, without making it come.

    A clock that tests move may move by itself for a sleeper; not for one who polls while others work.
    """
    await getattr(clock, "reached", clock.sleep_until)(at)


def uptime(clock: Clock) -> float | None:
    """Return seconds that all processes of one boot count alike, and that setting the time does not change.

    None of a clock that tests move, as each has its own.
    """
    return None if getattr(clock, "is_manual", False) else clock.monotonic()


class Ids(Protocol):
    def new_id(self) -> str:
        """Return a UUID4 as text."""

    def chance(self) -> float:
        """Return a number in [0, 1)."""


class Processes(Protocol):
    def here(self) -> tuple[str, int]:
        """Return the name of this machine and the pid of this process, as a person would look for them."""

    def me(self) -> Process | None:
        """Identify this process, or none where the system cannot tell."""

    def is_here(self, process: Process) -> bool:
        """True if that process lives, or lived, on this machine since it was started, where we can see it."""

    def is_gone(self, process: Process) -> bool:
        """True only if that process certainly no longer runs; false when in doubt."""
