"""What is put into a store, and what it knows of a run: commits and their verdict, its row, its records."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from everstep.model.acts import AuditRow
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process, is_pause
from everstep.model.waits import HadEvent, WaitRow
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from hashlib import sha256
else:
    sha256 = on_demand("hashlib:sha256")

OWN_FLOWS = "everstep."
"""What the names of flows begin with that come with everstep."""
BULK_FLOW = "everstep.bulk"
"""The flow whose runs act on many runs."""
ASK_FLOW = "everstep.ask."
"""What the names of flows begin with whose runs ask workers that have one flow."""

SCHEDULE_FLOW = "everstep.schedule."
"""What the names of flows begin with whose runs are schedules of one flow."""

_LONGEST_FLOW = 128
"""Characters that the name of a flow may have."""


def asking_about(flow: str) -> str:
    """Return the name of the flow whose runs ask workers that have this one."""
    return _named_for(ASK_FLOW, flow)


def scheduling(flow: str) -> str:
    """Return the name of the flow whose runs are schedules of this one."""
    return _named_for(SCHEDULE_FLOW, flow)


def _named_for(beginning: str, flow: str) -> str:
    if len(beginning + flow) > _LONGEST_FLOW:
        flow = sha256(flow.encode()).hexdigest()[:32]
    return beginning + flow


class Traits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a run is given at its start besides its inputs, and keeps; a fork has those of its parent."""

    priority: int = 0
    """The higher, the sooner workers take it."""
    group: str | None = None
    """Runs of the flow with the same one take turns with the others, and may have a quota of their own."""

    def traits(self) -> dict[str, Any]:
        """Return these by name, for what is made of it."""
        return {name: getattr(self, name) for name in Traits.__struct_fields__}


AttributeValue = str | int | float | bool | datetime


class LabelKind(StrEnum):
    """What an attribute of a run is, as stores keep it."""

    TEXT = "s"
    WHOLE = "i"
    NUMBER = "n"
    FLAG = "b"
    TIME = "t"


class Tag(msgspec.Struct, frozen=True, array_like=True):
    """What people call a run by. It is in the run's row only: who may, changes it."""

    name: str
    value: str = ""


class Attribute(msgspec.Struct, frozen=True, array_like=True):
    """What a run says of itself, as its chain does: one of the two values is there."""

    name: str
    kind: LabelKind
    text: str | None = None
    number: float | None = None
    """A flag is 0 or 1, a time microseconds since 1970."""


class Labels(msgspec.Struct, frozen=True):
    """The tags and attributes of a run, each by their names, and what its row says of undoing."""

    tags: tuple[Tag, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    undoing: str = ""
    """`undoing`, and in the end `complete`, `2 skipped` or `declined`; empty of a run that undoes nothing."""


NO_LABELS = Labels()
MOST_LABELS = 20
"""Tags that a run may have, and attributes."""


class Tagging(StrEnum):
    """What became of tags that were to be changed."""

    TAGGED = "tagged"
    FULL = "full"
    """Refused: the run would have too many."""
    MOVED = "moved"
    """The run's newest record has another sequence than the one that was expected."""
    UNKNOWN_RUN = "unknown_run"


Told = dict[str, tuple[str, ...]]
"""The aliases of those who are told of a run by the occasion, as its row keeps them."""


class NoticeState(StrEnum):
    """Where a notice stands."""

    PENDING = "pending"
    """It is to be sent, now or later."""
    SENT = "sent"
    DEAD = "dead"
    """It could not be sent, and is tried no more unless that is asked for."""


class NoticeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notice as a store keeps it, beside the chain of its run."""

    number: int = 0
    """Given by the store: no other notice of the run ever has it."""
    run_id: str = ""
    notifier: str = ""
    """The alias of who is told; empty in a commit: all who want to be told of this occasion."""
    occasion: str
    """What it tells of. One that a newer release wrote is left to that."""
    at: datetime | None = None
    """When that was, as far as the store knows; the record says it exactly."""
    sequence: int = 0
    """The newest record of the run then."""
    due_at: datetime | None = None
    """When it is tried next; none once it was sent, or is tried no more."""
    tries: int = 0
    sent_at: datetime | None = None
    wait_id: str | None = None
    """The wait that it tells of again."""
    every: int = 0
    """Microseconds after which it is sent again while that wait is open."""
    round: int = 0
    """How often it was sent, if that may be more than once."""
    error: str = ""
    """Why the last try failed, without anything secret."""

    def changed(self, **changes: Any) -> NoticeRow:
        """Return the notice with other values in some fields."""
        return msgspec.structs.replace(self, **changes)

    @property
    def notice_id(self) -> str:
        """What it is called wherever it goes, however often it is sent."""
        again = f".{self.round + 1}" if self.every else ""
        return f"{self.run_id}-{self.number}{again}"

    @property
    def state(self) -> NoticeState:
        if self.due_at is not None:
            return NoticeState.PENDING
        return NoticeState.DEAD if self.sent_at is None else NoticeState.SENT


class OnParentCancel(StrEnum):
    """What becomes of a run that a node of another run started when that one is cancelled."""

    CANCEL = "cancel"
    """It is asked to stop as well."""
    LEAVE = "leave"
    """It goes on."""


class StartedBy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The visit of a node that started a run as its child. The parent of a fork is something else."""

    run: str
    path: str
    visit: int
    on_parent_cancel: OnParentCancel = OnParentCancel.CANCEL


class ChildRun(msgspec.Struct, frozen=True):
    """A run that a node has started. It can be returned, and handed to other nodes."""

    run_id: str
    flow: str


class Admission(Traits, frozen=True, kw_only=True):
    """What the first put of a run brings besides its record: the run's row and its first lease."""

    flow_id: str
    flow_version: str
    flow_hash: str
    blueprint: bytes
    """The structure of the flow, kept once per hash."""
    parent_run_id: str | None = None
    forked_at: int | None = None
    """The run is a fork of its parent at this sequence.

    Its first record is the next one, and the commit's base is the parent's checkpoint there."""
    created_at: datetime
    owner: str | None
    """Who has the first lease; none admits the run without one, at epoch 0."""
    ttl: timedelta
    process: Process | None
    tags: tuple[Tag, ...] = ()
    """What it is called by; a fork has what its parent was called by at that time."""
    had: tuple[HadEvent, ...] = ()
    """Events that nodes of its parent had by then: those of a fork get none of them again."""
    started_by: StartedBy | None = None
    """Which node of another run started it, if one did. A fork has none, also that of a child."""
    told: Told | None = None
    """Who is told of it; a fork has what its parent has."""


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """The version of its flow that a run goes by from a put on."""

    flow_version: str
    flow_hash: str
    blueprint: bytes
    """Its structure, kept once per hash."""


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One put: an encoded record, and what must still hold for it to be accepted."""

    run_id: str
    sequence: int
    checkpoint_id: str
    base: str | None
    epoch: int
    body: bytes
    keyframe: bool = False
    status: Status | None = None
    """The run's new status, when this put changes it. A final one, and `halted`, also give the lease back."""
    admission: Admission | None = None
    answers_stop: bool = False
    """True for the put that answers a stop request; any other is refused while one is waiting."""
    ended_at: datetime | None = None
    waits: tuple[WaitRow, ...] = ()
    """Waits that this put opens."""
    closed: tuple[str, ...] = ()
    """Waits whose run goes on with this put, or no longer wants an answer."""
    adopts: Adoption | None = None
    """The run goes on with another version of its flow."""
    hurries: bool = False
    """True if it can be kept elsewhere, so that a store that is busy should rather say so soon."""
    taken: tuple[str, ...] = ()
    """Signals whose values are in the record: they are taken with this put."""
    pairs: bool = False
    """True if it opens or closes a wait for signals: those that are free settle what is open."""
    audit: AuditRow | None = None
    """Who does what this put does, for the audit log: written with it if it is accepted."""
    attributes: tuple[Attribute, ...] = ()
    """Attributes that the record sets: the row has them from this put on."""
    tells: tuple[NoticeRow, ...] = ()
    """Notices that it brings besides that of its status; without a notifier, for all who want to be told."""
    undoing: str | None = None
    """That the run is undoing what it did, or what came of that, if this put changes it. It also answers a
    stop request."""

    @property
    def is_plain(self) -> bool:
        """True if a put brings a record and nothing else."""
        has_rows = self.waits or self.closed or self.adopts is not None or self.taken
        brings = has_rows or self.attributes or self.tells or self.undoing is not None
        return self.status is None and self.admission is None and self.audit is None and not brings


class Verdict(StrEnum):
    """How a store judged one commit."""

    ACCEPTED = "accepted"
    EXISTS = "exists"
    """Admission of a run id that is taken."""
    MOVED = "moved"
    """The run is no longer at the commit's base; of a fork: the base is not there, or was trimmed."""
    FENCED = "fenced"
    """A newer lease exists; or what it is for is to be done once, and the audit log has the row of that."""
    STOP_REQUESTED = "signalled"  # the word of functions and scripts that earlier releases call
    """The run was asked to stop; handle that first."""
    UNKNOWN_RUN = "unknown_run"
    """There is no such run; of a fork: no such parent."""


class StopRequest(StrEnum):
    """What the owner of a run is asked to do with it instead of going on."""

    CANCEL = "cancel"
    UNDO = "undo"
    """To cancel it, and to undo what it did, whatever its flow says."""


class StoredRecord(msgspec.Struct, frozen=True):
    """A record as the store keeps it, or the stub that trimming leaves of it."""

    sequence: int
    checkpoint_id: str
    keyframe: bool
    body: bytes
    digest: bytes | None = None
    """Only in a stub, which has no body: the digest that the next record was hashed onto."""

    @property
    def is_stub(self) -> bool:
        return self.digest is not None


class RunRow(Traits, frozen=True, omit_defaults=True):
    """What a store knows of a run without reading its records."""

    run_id: str
    flow_id: str
    flow_version: str
    flow_hash: str
    parent_run_id: str | None
    status: Status
    created_at: datetime
    ended_at: datetime | None
    checkpoints: int
    """The sequence of the newest record."""
    lease: Lease | None
    """The lease as last claimed, void or not; none once it was given back."""
    stop_request: StopRequest | None = msgspec.field(default=None, name="signal")
    """What is asked of its owner. Stores keep it as `signal`, which earlier releases read."""
    acked_at: datetime | None = None
    forked_at: int | None = None
    """The sequence of the parent's checkpoint that this run goes on from, if it is a fork."""
    trimmed_before: int = 0
    """Records with a smaller sequence are stubs."""
    adopted_at: int | None = None
    """The sequence of the last put with which the run went over to another version of its flow."""
    needs_repair: str | None = None
    """Why workers leave the run alone: it was found damaged, brought here, or paused."""
    pinned: str | None = None
    """Why the run is to be kept, whatever retention says."""
    started_by: StartedBy | None = None
    """Which node of another run started it, if one did."""

    def changed(self, **changes: Any) -> RunRow:
        """Return the row with other values in some fields."""
        return msgspec.structs.replace(self, **changes)

    @property
    def is_paused(self) -> bool:
        """True if it is not over, and paused by itself."""
        return self.needs_repair is not None and is_pause(self.needs_repair) and not self.status.is_final

    @property
    def kept_mark(self) -> str | None:
        """What is left of its mark once it is claimed by name: a pause stays."""
        return self.needs_repair if self.is_paused else None

    @property
    def first(self) -> int:
        """The sequence of the run's own first record."""
        return 1 if self.forked_at is None else self.forked_at + 1
