"""What is sent to a run, as stores keep it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from everstep.model.acts import AuditRow
from everstep.model.waits import MOST_UNTAKEN, Sending, SignalRow
from everstep.ports.store import RecodedSignal


@runtime_checkable
class InboxStore(Protocol):
    """A store that keeps signals of runs. Every method is one atomic act.

    A signal is taken by an accepted put that names it (`Commit.taken`). One that finds an open wait for it
    settles that, in the act that brings the two together: this one, or the put that opens the wait.
    """

    async def send(
        self, run_id: str, signal: SignalRow, *, most: int = MOST_UNTAKEN, audit: AuditRow | None = None
    ) -> Sending:
        """Number a signal and put it into a run's inbox, as `engine.settling` says; it needs no lease.

        No more than `most` wait there. The number, and when it was sent, are the store's to say.
        """

    async def inbox(
        self,
        run_id: str,
        *,
        name: str | None = None,
        after: int = 0,
        limit: int = 100,
        is_taken: bool = False,
    ) -> list[SignalRow]:
        """Return a run's signals by their numbers: those that were not taken, or with `is_taken` the others.

        Of one that was taken the value is gone. `after` is a number from which a listing goes on.
        """

    async def recode_signals(self, run_id: str, signals: Sequence[RecodedSignal]) -> int:
        """Replace the bytes of signals that were not taken in one go, and return how many were.

        Each only while it says what was read. A wait that it has settled keeps what that was given.
        """
