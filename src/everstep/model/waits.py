"""What a run halts for and what settles it: answers, the clock, and the signals that it is sent."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import msgspec

from everstep.errors import BadRequest
from everstep.model.acts import Known, likeness
from everstep.model.shapes import Count, Instant, OrNull

UNSAID: Final = object()
"""Stands for a value that was not given."""
SETTLE: Final = "settle"
"""The kind of the wait with which an operator says what became of an effect."""
SIGNAL_KIND: Final = "signal"
EVENT_KIND: Final = "event"
CHILD_KIND: Final = "child"
"""The kind of the wait for the end of a run that a node started. That settles it, and no answer does."""
DEADLINE_KIND: Final = "deadline"
"""The kind of the wait for the time at which a run is ended. No answer is given to it."""
LISTENING: Final = (SIGNAL_KIND, EVENT_KIND)
"""Kinds of waits that are settled by what is sent to a run, or published, not by an answer."""
TIME_TO_TELL = timedelta(seconds=30)
"""Grace period before a sweep sends the notification."""


class WaitStatus(StrEnum):
    """Where a wait stands."""

    OPEN = "open"
    SETTLED = "settled"
    """It has its answer, and its run has not gone on yet."""
    CLOSED = "closed"
    """Its run has gone on with the answer, or no longer wants one."""


class SettledBy(StrEnum):
    """What gave a wait its answer."""

    ANSWER = "answer"
    CLOCK = "clock"
    """Its time was over: a timer is due, or no answer came."""


class Vote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one person said to an approval that names who may decide, or that takes several."""

    by: str
    approved: bool | None
    """None for those who may not see values."""
    at: Instant
    comment: OrNull = ""
    how: Known = Known.CLAIMED
    """Whether the name is what the caller said, or a token's."""


class Voting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of an approval that keeps count of who says what."""

    quorum: int = 1
    approvers: tuple[str, ...] | None = None
    """Who may decide; anyone if there are none."""
    not_by: tuple[str, ...] = ()
    """Who may not, as they started the run, or forked it."""
    votes: tuple[Vote, ...] = ()
    sent: tuple[str, ...] = ()
    """The ids under which votes were sent, of those that had one."""

    @property
    def by_name(self) -> bool:
        """True if it matters who decides: a link, which proves no name, does not."""
        return self.approvers is not None or bool(self.not_by)

    @property
    def left(self) -> tuple[str, ...] | None:
        """Return who may still vote; none if that is anyone."""
        if self.approvers is None:
            return None
        gone = {likeness(name) for name in (*self.not_by, *(vote.by for vote in self.votes))}
        return tuple(name for name in self.approvers if likeness(name) not in gone)

    def with_vote(self, vote: Vote, sent_id: str | None) -> Self:
        """Return it with one vote more."""
        sent = self.sent if sent_id is None else (*self.sent, sent_id)
        return msgspec.structs.replace(self, votes=(*self.votes, vote), sent=sent)


class VoteRefusal(StrEnum):
    """Why a vote does not count."""

    BY_LINK = "by_link"
    """It matters who decides, and a link proves no name."""
    NOT_NAMED = "not_named"
    """The name is none of the approvers."""
    STARTER = "starter"
    """Who started the run, or forked it, does not decide."""
    TWICE = "twice"
    """That name has voted."""


class VotingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who may decide an approval, how many must, and who has."""

    quorum: Count
    """How many must approve."""
    approvers: list[str] | None
    """Who may decide; none if anyone may who has a name."""
    not_by: list[str]
    """Who may not, as they started the run or forked it."""
    votes: list[Vote]
    left: list[str] | None
    """Who may still vote; none if anyone may."""


class WaitOpened(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the step that halts says of its wait."""

    wait_id: str
    kind: str
    due_at: datetime | None = None
    scheduler: str = ""
    """The alias of the scheduler that keeps its time; empty for the store's own."""
    guard: str = ""
    """What holds the node back, such as `budget:usd`; empty if the node itself waits."""
    unit: str = ""
    """The place in the node that waits, such as `$ok@1`: it is answered there, not in place of the node."""


class WaitChange(msgspec.Struct, frozen=True, kw_only=True):
    """What anybody may change of an open wait; a field that is left out stays."""

    token_hash: bytes | msgspec.UnsetType | None = msgspec.UNSET
    token_expires_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    generation: int | msgspec.UnsetType = msgspec.UNSET
    single_use: bool | msgspec.UnsetType = msgspec.UNSET
    schedule_id: str | msgspec.UnsetType | None = msgspec.UNSET
    notified_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    details: bytes | msgspec.UnsetType = msgspec.UNSET
    due_at: datetime | msgspec.UnsetType | None = msgspec.UNSET


class WaitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A wait as a store keeps it, beside the chain of its run."""

    wait_id: str
    run_id: str
    flow_id: str
    path: str
    """The node that waits, by its path in the run."""
    visit: int
    kind: str
    opened_at: datetime
    details: bytes
    """JSON: what is shown to who answers, what an answer must look like, and who was told so far."""
    due_at: datetime | None = None
    scheduler: str = ""
    schedule_id: str | None = None
    """What another scheduler than the store's called it."""
    notifies: bool = False
    """True if a notification is to be sent."""
    notified_at: datetime | None = None
    token_hash: bytes | None = None
    """SHA-256 of the token; none if it has no token, or it was revoked."""
    token_expires_at: datetime | None = None
    generation: int = 1
    """Rises when a token is issued anew."""
    single_use: bool = True
    status: WaitStatus = WaitStatus.OPEN
    settled_at: datetime | None = None
    settled_by: SettledBy | None = None
    answer: bytes | None = None
    """JSON; none if the clock settled it."""
    topic: str | None = None
    """What settles it without being told of this wait: a signal of its run by name, or an event by fields."""

    def is_ripe(self, now: datetime) -> bool:
        """True if its run can go on: it has its answer, or its time by the store's clock is over."""
        if self.status is WaitStatus.OPEN:
            return self.due_at is not None and self.due_at <= now and not self.scheduler
        return self.status is WaitStatus.SETTLED

    @property
    def is_untold(self) -> bool:
        """True if a notifier, or its scheduler, has not been told yet."""
        if self.status is not WaitStatus.OPEN:
            return False
        is_scheduled = self.scheduler == "" or self.due_at is None or self.schedule_id is not None
        return not is_scheduled or (self.notifies and self.notified_at is None)

    def is_forgotten(self, now: datetime) -> bool:
        """True if the grace period is over and its notification was not sent."""
        return self.is_untold and now - self.opened_at >= TIME_TO_TELL

    def settled(
        self, by: SettledBy, answer: bytes | None, at: datetime, details: bytes | None = None
    ) -> Self:
        """Return the wait with its answer, and with details that say who gave it if there are any."""
        return msgspec.structs.replace(
            self,
            status=WaitStatus.SETTLED,
            settled_at=at,
            settled_by=by,
            answer=answer,
            details=self.details if details is None else details,
        )

    def changed(self, change: WaitChange) -> Self:
        """Return the wait with what a change gives."""
        given = {name: getattr(change, name) for name in change.__struct_fields__}
        return msgspec.structs.replace(
            self, **{name: value for name, value in given.items() if value is not msgspec.UNSET}
        )


class TokenConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How long a token lives, whether it answers only once, and what is noted of it."""

    ttl: timedelta | None = None
    single_use: bool = True
    metadata: dict[str, Any] | None = None
    """JSON, such as for whom it was made; kept and shown with the wait until it has another token."""


MOST_UNTAKEN: Final = 10_000
"""So many signals may wait in one run's inbox."""
LONGEST_NAME: Final = 200
"""Characters of the name and of the id of a signal, or of an event."""
_SIGNAL = "signal:"
_CHILD = "child:"


class Reducer(StrEnum):
    """How a value of a flow takes in the signals of its name."""

    APPEND = "append"
    """Each becomes the last item of a list."""
    REPLACE = "replace"
    """The newest is the value."""
    ADD = "add"
    """Each is added to a number."""

    def reduce(self, name: str, current: Any, signals: Sequence[Any]) -> Any:
        """Return what signals make of a value, which is none if there is none yet; changes neither."""
        if self is Reducer.REPLACE:
            return signals[-1]
        if self is Reducer.APPEND:
            if current is not None and not isinstance(current, list):
                raise BadRequest(f"{name!r} is no list: signals are appended to it.", fix="Make it one.")
            return [*(current or ()), *signals]
        for one in (current or 0, *signals):
            if isinstance(one, bool) or not isinstance(one, int | float):
                raise BadRequest(f"{one!r:.60} is no number to be added to {name!r}.", fix="Send a number.")
        return sum(signals, current or 0)


class SignalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A signal as a store keeps it, beside the chain of its run."""

    signal_id: str
    """Given by the sender: the same one is the same signal for as long as the run is there."""
    name: str
    value: bytes | None
    """JSON, with who sent it; none once it was taken, as the chain has it then."""
    sent_at: datetime
    number: int = 0
    """Counts the signals of its run in the order in which the store took them."""
    wait_id: str | None = None
    """The wait that it has settled. Once that is closed and the signal was not taken, it is free again."""
    taken_at: int | None = None
    """The sequence of the put that took it."""


class HadEvent(NamedTuple):
    """An event that a node of a run had: it has none twice."""

    path: str
    name: str
    event_id: str


class Sending(StrEnum):
    """What a store did with a signal."""

    SENT = "sent"
    SAME = "same"
    """It was there already, taken or not; nothing was changed."""
    FULL = "full"
    """Refused: too many wait to be taken."""
    ENDED = "ended"
    """Refused: its run has ended."""
    UNKNOWN_RUN = "unknown_run"


def topic_of_child(run_id: str) -> str:
    """Return what a wait for the end of this run listens for."""
    return _CHILD + run_id


def child_in(topic: str | None) -> str | None:
    """Return the run whose end a wait listens for; none if it is for something else."""
    return topic.removeprefix(_CHILD) if topic is not None and topic.startswith(_CHILD) else None


def topic_of_signal(name: str) -> str:
    """Return what a wait for this signal of its run listens for."""
    return _SIGNAL + name


def signal_in(topic: str | None) -> str | None:
    """Return the name of the signal that a wait listens for; none if it is for something else."""
    return topic.removeprefix(_SIGNAL) if topic is not None and topic.startswith(_SIGNAL) else None
