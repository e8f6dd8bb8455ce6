"""What an open wait is settled with, and which signals come in. Every store decides like this in one act."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from datetime import datetime

from everstep.model.enums import Status
from everstep.model.waits import Sending, SettledBy, SignalRow, WaitRow, WaitStatus, signal_in


def settled(
    wait: WaitRow | None,
    by: SettledBy,
    answer: bytes | None,
    token_hash: bytes | None,
    now: datetime,
    details: bytes | None = None,
) -> WaitRow | None:
    """Return the wait as it is settled at `now`; none if it is not open, or no longer has this token.

    `details` take the place of its own, with who answered it.
    From its due time on only the clock settles it, whatever scheduler keeps it: an answer that comes then is
    dropped. So what a run goes on with does not depend on whether a worker came by in between.
    """
    if wait is None or wait.status is not WaitStatus.OPEN or token_hash not in (None, wait.token_hash):
        return None
    if wait.due_at is not None and wait.due_at <= now:
        by, answer, details = SettledBy.CLOCK, None, None
    return wait.settled(by, answer, now, details)


def judge_sending(status: Status | None, *, is_there: bool, is_full: bool) -> Sending:
    """Say what becomes of a signal for a run with this status; none if there is no such run."""
    if status is None:
        return Sending.UNKNOWN_RUN
    if is_there:
        return Sending.SAME
    if status.is_final:
        return Sending.ENDED
    return Sending.FULL if is_full else Sending.SENT


def is_free(signal: SignalRow, wait: WaitStatus | None) -> bool:
    """True if a signal may settle a wait; `wait` is how the one stands that it has settled, if any."""
    if signal.taken_at is not None:
        return False
    return signal.wait_id is None or wait in (None, WaitStatus.CLOSED)


def pair(
    signals: Iterable[SignalRow], waits: Iterable[WaitRow], now: datetime
) -> list[tuple[SignalRow, WaitRow]]:
    """Return which free signal settles which open wait of its run: of each name the oldest the oldest.

    Both come in order. A wait whose time is over is left to the clock.
    """
    open_ones: defaultdict[str, deque[WaitRow]] = defaultdict(deque)
    for wait in waits:
        name = signal_in(wait.topic)
        is_over = wait.due_at is not None and wait.due_at <= now
        if name is not None and wait.status is WaitStatus.OPEN and not is_over:
            open_ones[name].append(wait)
    return [(signal, open_ones[signal.name].popleft()) for signal in signals if open_ones.get(signal.name)]
