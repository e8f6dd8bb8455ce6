"""What an open wait is settled with, and which signals come in. Every store decides like this in one act."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from everstep.errors import StateCorrupted
from everstep.model.acts import likeness
from everstep.model.enums import Status
from everstep.model.waits import (
    Sending,
    SettledBy,
    SignalRow,
    Vote,
    VoteRefusal,
    Voting,
    WaitChange,
    WaitRow,
    WaitStatus,
    signal_in,
)


def settled(
    wait: WaitRow | None,
    by: SettledBy,
    answer: bytes | None,
    token_hash: bytes | None,
    now: datetime,
    details: bytes | None = None,
    was: bytes | None = None,
) -> WaitRow | None:
    """Return the wait as it is settled at `now`; none if it is not open, or no longer has this token.

    `details` take the place of its own, with who answered it. With `was`, none if its own are others by now.
    From its due time on only the clock settles it, whatever scheduler keeps it: an answer that comes then is
    dropped. So what a run goes on with does not depend on whether a worker came by in between.
    """
    if wait is None or wait.status is not WaitStatus.OPEN or token_hash not in (None, wait.token_hash):
        return None
    if was is not None and wait.details != was:
        return None
    if wait.due_at is not None and wait.due_at <= now:
        by, answer, details = SettledBy.CLOCK, None, None
    return wait.settled(by, answer, now, details)


def changed(wait: WaitRow, change: WaitChange, was: bytes | None = None) -> WaitRow | None:
    """Return a wait with what a change gives; none if it is not open, or its details are not `was`."""
    if wait.status is not WaitStatus.OPEN or (was is not None and wait.details != was):
        return None
    return wait.changed(change)


def judge_sending(status: Status | None, *, is_there: bool, is_full: bool) -> Sending:
    """Say what becomes of a signal for a run with this status; none if there is no such run."""
    if status is None:
        return Sending.UNKNOWN_RUN
    if is_there:
        return Sending.SAME
    if status.is_final:
        return Sending.ENDED
    return Sending.FULL if is_full else Sending.SENT


def is_free(wait_id: str | None, wait: WaitStatus | None) -> bool:
    """True if an untaken signal may settle a wait; `wait` is how the one stands that it had, if any."""
    return wait_id is None or wait in (None, WaitStatus.CLOSED)


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


def refusal_of(voting: Voting, name: str, *, by_link: bool = False) -> VoteRefusal | None:
    """Say why this name may not vote now; none if it may.

    An approver is named to the letter. Who may not vote, or has, is that person in any spelling: what people
    log in with often is not told apart by case.
    """
    if voting.by_name and by_link:
        return VoteRefusal.BY_LINK
    if voting.approvers is not None and name not in voting.approvers:
        return VoteRefusal.NOT_NAMED
    like = likeness(name)
    if any(likeness(one) == like for one in voting.not_by):
        return VoteRefusal.STARTER
    return VoteRefusal.TWICE if any(likeness(vote.by) == like for vote in voting.votes) else None


def decided(quorum: int, votes: Iterable[Vote]) -> bool | None:
    """Say what votes come to: approved by enough, rejected by one, or none as long as it is open."""
    approving = 0
    for vote in votes:
        if not vote.approved:
            return False
        approving += 1
    return True if approving >= quorum else None


def can_be_decided(quorum: int, approvers: Collection[str] | None, not_by: Collection[str]) -> bool:
    """True if enough approvers are left without those who started the run."""
    return approvers is None or len({*map(likeness, approvers)} - {*map(likeness, not_by)}) >= quorum


def check_carried(asked: Mapping[str, Any], approved: object, votes: Sequence[Vote], where: str) -> None:
    """Raise unless an answer is what these votes come to, by names that may decide, each once.

    `asked` is what the chain says of the wait: rows can be altered by those who write to the store.
    """
    names, approvers = [vote.by for vote in votes], asked.get("approvers")
    is_allowed = approvers is None or set(names) <= set(approvers)
    is_carried = isinstance(approved, bool) and decided(asked.get("quorum", 1), votes) is approved
    if not is_allowed or not is_carried or len({*map(likeness, names)}) < len(names):
        raise StateCorrupted(f"{where} was settled with votes that do not carry its answer.")
