"""What an open wait is settled with. Every store decides like this inside its compare-and-set."""

from __future__ import annotations

from datetime import datetime

from everstep.model.waits import SettledBy, WaitRow, WaitStatus


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
