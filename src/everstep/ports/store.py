"""The store of checkpoints, and the words it speaks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Protocol, TypeGuard, runtime_checkable

import msgspec

from everstep.errors import RunNotFound
from everstep.model.acts import AuditRow
from everstep.model.commits import (
    Admission,
    Adoption,
    Commit,
    RunRow,
    StopRequest,
    StoredRecord,
    Traits,
    Verdict,
)
from everstep.model.enums import Status
from everstep.model.leases import Lease, Process, Quota, WorkerRow, is_pause
from everstep.model.records import ArtifactRef
from everstep.model.waits import SettledBy, WaitChange, WaitRow, WaitStatus

__all__ = [
    "Admission",
    "Adoption",
    "BelievingStore",
    "BlockingStore",
    "Capabilities",
    "CheckpointBlobStore",
    "CheckpointStore",
    "Commit",
    "Counts",
    "PolledStore",
    "RationedStore",
    "Recoded",
    "RecodedWait",
    "RecodingStore",
    "ResumingStore",
    "RunFilter",
    "RunRow",
    "StopRequest",
    "StoredRecord",
    "StreamedBlobs",
    "TakenUp",
    "TimedStore",
    "Traits",
    "Verdict",
    "WaitFilter",
    "WakingStore",
    "no_such_run",
]


def no_such_run(run_id: str) -> RunNotFound:
    """Say that a store has no run of this id."""
    return RunNotFound(f"there is no run {run_id!r}.", fix="Look with: everstep runs")


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first."""

    flow_id: str | None = None
    run_id: str | None = None
    status: Status | None = None
    parent_run_id: str | None = None
    """Only the forks of this run."""
    started_by: str | None = None
    """Only the runs that nodes of this run started."""
    needs_repair: bool = False
    """Only runs that were found damaged, or were brought here."""
    paused: bool = False
    """Only runs that are paused, each by itself."""
    pinned: bool = False
    """Only runs that are pinned."""
    limit: int = 100
    before: str | None = None
    """Continue a listing: only runs admitted before this one, which may have been erased meanwhile."""

    def _fits(self, row: RunRow) -> bool:
        if self.paused:
            return row.is_paused
        return row.needs_repair is not None and not is_pause(row.needs_repair)

    @property
    def marked(self) -> int:
        """What kind of mark is wanted: 1 of damage, 2 of a pause, 0 of no matter which, if any."""
        return 2 if self.paused else int(self.needs_repair)

    def matches(self, row: RunRow) -> bool:
        """True if a listing shows this run. Where it begins and ends is for the store to say."""
        return (
            self.flow_id in (None, row.flow_id)
            and self.run_id in (None, row.run_id)
            and self.status in (None, row.status)
            and self.parent_run_id in (None, row.parent_run_id)
            and self.started_by in (None, row.started_by and row.started_by.run)
            and (not self.marked or self._fits(row))
            and (row.pinned is not None or not self.pinned)
        )


class WaitFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which waits to list, the oldest first."""

    run_id: str | None = None
    flow_id: str | None = None
    kind: str | None = None
    status: WaitStatus | None = None
    is_unclosed: bool = False
    """Only the open and settled ones of a run, however many it has closed; it needs `run_id`."""
    is_untold: bool = False
    """Only open ones whose notification was not sent, or whose scheduler does not know them yet."""
    limit: int = 100
    after: str | None = None
    """Continue a listing: only waits opened after this one."""

    @property
    def leaves_out_closed(self) -> bool:
        """True if no wait is wanted whose run has gone on."""
        return self.is_unclosed or self.status in (WaitStatus.OPEN, WaitStatus.SETTLED)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How much a store keeps."""

    runs: dict[str, int]
    """By status."""
    waits: dict[str, int]
    """Those that are open, by kind."""
    spent: dict[str, Decimal] = {}
    """What runs that this host has driven since it was opened have spent, by name."""
    warnings: dict[str, int] = {}
    """How often their budgets were nearly spent, by name."""
    trips: dict[str, int] = {}
    """How often their breakers opened, by name."""


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one version of a flow that are due: any worker that has it may claim them now."""

    flow_id: str
    flow_hash: str
    many: int
    """How many there are; a store need not count further than to `MOST_DUE`."""
    since: datetime
    """Since when the first of them is due; of one that was given back, since it was made."""


MOST_DUE = 10_000
"""So many due runs of a kind are looked at when they are counted."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store promises."""

    durable: bool
    """Survives the end of the process."""
    single_writer: bool
    """Refuses stale owners inside the write, so that many workers may share it."""
    remote: bool = False
    """May be on another machine: leases run by its own clock, and a call may take long."""
    recodes: bool = False
    """It is a `RecodingStore`: what it keeps can be encrypted with another key."""
    retains: bool = False
    """It is a `RetainingStore`: runs can be pinned and erased."""
    restores: bool = False
    """It is a `RestoringStore`: whole runs of other stores can be put into it."""
    rationed: bool = False
    """It is a `RationedStore`: while it takes no more calls, what was synced on this machine counts."""
    live: bool = False
    """It is a `LiveStore`: what nodes emit can be followed from other processes."""
    has_inbox: bool = False
    """It is an `InboxStore`: signals can be sent to its runs."""
    has_events: bool = False
    """It is an `EventStore`: waits can be for events."""
    fences: bool = False
    """It is a `FencingStore`: owners from before it was restored can be kept from writing."""
    audits: bool = False
    """It is an `AuditStore`: who does what to runs is kept with what they do."""
    has_labels: bool = False
    """It is a `LabelStore`: runs have tags and attributes."""
    compares: bool = False
    """Its `settle` and `change_wait` take `was`: votes on an approval are counted."""
    takes_head: bool = False
    """Its `request_stop`, `pin` and `tag` take `head`, so that a run that has gone on is left alone."""
    pauses: bool = False
    """It is a `PausingStore`: runs, flows and groups can be paused."""
    has_children: bool = False
    """Its runs say which node of another run started them, and are found by that run."""
    limits: bool = False
    """It is a `LimitingStore`: its claims go by `Quota.limits`."""
    undoes: bool = False
    """Its runs say that they undo what they did, which answers a stop request. It is a `LabelStore`."""
    searches: bool = False
    """It is a `SearchingStore`: runs are found by labels and times with an index."""
    has_notices: bool = False
    """It is a `NoticeStore`: people and systems are told of its runs."""
    holds_waits: bool = True
    """It keeps waits, when they are due, and their tokens; else no flow that halts runs on it."""


@runtime_checkable
class CheckpointStore(Protocol):
    """Keeps the chains of runs. Every method is one atomic act."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        """Judge each commit alone and keep the accepted ones durably, in one go, all or nothing.

        A commit whose record is already there was accepted before its reply was lost: it is accepted again.
        A fork is admitted only if its base is there, whole, in the same transaction.
        """

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        """Return a run's own records between two sequences, in order; trimmed ones as stubs."""

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        """Return a run's own newest keyframe (not after `at`) and what follows it, in order.

        Without such a keyframe, all its own records.
        """

    async def trim(self, run_id: str, *, before: int) -> int:
        """Turn every record before a keyframe into a stub and return how many; stubs cannot be read again.

        Raises `CheckpointPinned` if a fork goes on from one of them or the run is pinned, `BadRequest` if
        `before` is no keyframe.
        """

    async def lease(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> Lease:
        """Claim the run, or raise `LeaseConflict` while another's lease holds.

        `void_epoch` names an epoch whose owner the claimant knows to be dead: that one may be taken over
        before it expires. Who claims a run by name may drive it even if it was set aside; it no longer is.
        """

    async def renew(self, leases: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        """Prolong these leases; in place of one that was not prolonged, why: fenced, or asked to stop."""

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back; does nothing if it is no longer ours."""

    async def run(self, run_id: str) -> RunRow | None:
        """Return what is known of a run."""

    async def blueprint(self, flow_hash: str) -> bytes | None:
        """Return the structure of a flow that some run began with."""

    async def introduce(self, flow_id: str, flow_hash: str, blueprint: bytes) -> list[str]:
        """Keep the structure of a flow, and return those it knew before that unfinished runs still have.

        Only those of runs of this flow, by their hashes; one that became known later is newer, and left out.
        """

    async def request_stop(
        self,
        run_id: str,
        wanted: StopRequest,
        note: bytes | None = None,
        *,
        head: int | None = None,
        audit: AuditRow | None = None,
    ) -> bool:
        """Ask the run's owner to stop, with a note on who wants it; false if the run has ended.

        With `head`, only while its newest record has that sequence; false if it has another. Only a store
        that declares `takes_head` is given one, and only one that declares `audits` an `audit`, here and
        wherever else they are taken.
        """

    async def stop_note(self, run_id: str) -> bytes | None:
        """Return the note of the newest stop request that was not handled yet."""

    async def waits(self, wanted: WaitFilter) -> list[WaitRow]:
        """Return the waits that match, the oldest first."""

    async def wait(self, wait_id: str) -> WaitRow | None:
        """Return one wait."""

    async def wait_of_token(self, token_hash: bytes) -> WaitRow | None:
        """Return the wait that a token belongs to."""

    async def settle(
        self,
        wait_id: str,
        *,
        by: SettledBy,
        answer: bytes | None,
        token_hash: bytes | None = None,
        at: datetime | None = None,
        details: bytes | None = None,
        was: bytes | None = None,
        audit: AuditRow | None = None,
    ) -> tuple[bool, WaitRow | None]:
        """Give an open wait its answer, once. Returns whether this did it, and the wait as it is now.

        With `token_hash`, only if that is still its token. From its due time on an answer does not count:
        the clock's is written in its place, as `engine.settling` says. That goes by the store's clock where
        it has one; `at` is for an answer that another store took at that time. `details` take the place of
        the wait's own with the answer, and say who gave it. With `was`, only if its own are still these.
        """

    async def fire(self, run_id: str) -> list[WaitRow]:
        """Settle what is due of a run's waits by the store's own scheduler, and return all settled ones."""

    async def change_wait(
        self, wait_id: str, change: WaitChange, *, was: bytes | None = None, audit: AuditRow | None = None
    ) -> WaitRow | None:
        """Change an open wait and return it; one that is not open is returned as it is.

        So is, with `was`, one whose details are others by now.
        """

    async def claim_due(
        self,
        *,
        flows: Collection[tuple[str, str]],
        new_owner: Callable[[], str],
        ttl: timedelta,
        process: Process | None,
        limit: int,
        apart_from: Collection[str] = (),
        quotas: Mapping[str, Quota] | None = None,
    ) -> list[tuple[RunRow, Lease]]:
        """Claim due runs of these flows, in one go.

        A flow is named with its hash. Those runs are: halted with a wait that is settled or due, running
        without a lease that holds, and unfinished with an unhandled stop request; none that was set aside.
        Waits that are due are settled on the way. `engine.claims` says which come first: the highest
        priority, flows and groups in turn, the longest due.

        `quotas` are by the name of a flow. No claim makes more leases hold than they allow, however many
        clients claim at once: every live lease of the flow counts, whichever owner has it.
        """

    async def leased(self, owners: Collection[str] | None = None) -> list[RunRow]:
        """Return the runs whose lease holds; with `owners`, those that they hold.

        A client that lost the reply to a claim finds out like this what it got.
        """

    async def set_aside(self, run_id: str, *, epoch: int, reason: str) -> bool:
        """Mark a damaged run, so that workers leave it alone until it is claimed by name.

        False if it was claimed since that epoch, or has ended. A lease of that epoch is given back.
        """

    async def report(self, worker: WorkerRow, ttl: timedelta) -> None:
        """Keep what a worker says of itself until it says so again, leaves, or `ttl` is over.

        That counts by the store's clock. It need not show in `changes`.
        """

    async def leave(self, worker_id: str) -> None:
        """Forget a worker."""

    async def workers(self) -> list[WorkerRow]:
        """Return the workers that are alive, the longest serving first."""

    async def next_due(self, *, after: datetime | None = None) -> datetime | None:
        """Return when the next wait of a halted run is due by the store's own scheduler.

        With `after`, the next one later than that: what is due already may be another worker's to drive.
        """

    def changes(self) -> int:
        """Return a number that is another one soon after another client wrote. It costs next to nothing."""

    async def counts(self) -> Counts:
        """Count runs by status and open waits by kind."""

    async def run_at(self, checkpoint_id: str) -> str | None:
        """Return the run whose newest record this is, if it can still go on. It may have to look for long."""

    async def ack(self, run_id: str, *, audit: AuditRow | None = None) -> None:
        """Note that a run's result was taken, so that retention may apply."""

    async def close(self) -> None: ...

    async def list(self, wanted: RunFilter) -> list[RunRow]:
        """Return the runs that match, newest first."""


@runtime_checkable
class TimedStore(Protocol):
    """A store with a clock of its own, by which leases run out and waits are due."""

    async def now(self) -> datetime | None:
        """Return the time by that clock; none if the host's counts after all."""


class TakenUp(msgspec.Struct, frozen=True):
    """A run that was claimed, and what a resume reads of it, as it stood right after the claim."""

    lease: Lease
    row: RunRow | None = None
    """None if the store was only asked for the lease."""
    tail: list[StoredRecord] | None = None


@runtime_checkable
class BacklogStore(Protocol):
    """A store that can say what is due without reading all its runs."""

    async def backlog(self) -> list[Backlog]:
        """Count the runs that are due, by version of their flow, those that are set aside left out."""


@runtime_checkable
class ResumingStore(Protocol):
    """A store that claims a run and reads it in one go, as each call takes a round trip."""

    async def take_up(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> TakenUp:
        """Claim the run as `lease` does, and return it with its row and its `tail`."""


@runtime_checkable
class WakingStore(Protocol):
    """A store that says by itself when a run may be due, so that it need not be asked again and again."""

    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` soon after another client made a run due, from any thread; returns what ends that.

        It begins with the first call of `changes`, which counts all that is told of here, and more.
        """


@runtime_checkable
class PolledStore(Protocol):
    """A store whose `changes` asks its server several times a second, for as long as it is called."""

    async def written(self) -> int:
        """Return a number that is another one once anybody wrote, by one short question.

        It may be before what was written can be read: who wants to miss nothing calls `changes` from then on.
        """


@runtime_checkable
class BlockingStore(Protocol):
    """A store whose put is a short local call, which the runtime may make wherever it suits."""

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]: ...

    def renew_blocking(self, leases: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        """Prolong leases; called from a thread of its own, also after `close` if a node still runs."""

    def release_blocking(self, lease: Lease) -> None:
        """Give a lease back, from where leases are prolonged."""

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        """Keep what a worker says of itself, from where leases are prolonged."""


def is_resuming(store: object) -> TypeGuard[ResumingStore]:
    """True of a `ResumingStore`."""
    return _has_calls(store, ResumingStore)


def is_blocking(store: object) -> TypeGuard[BlockingStore]:
    """True of a `BlockingStore`."""
    return _has_calls(store, BlockingStore)


def _has_calls(store: object, protocol: type) -> bool:
    """Say what `isinstance` says, which looks at the protocol anew each time; of a class it is remembered."""
    kind = type(store)
    return issubclass(kind, protocol) or (hasattr(kind, "__getattr__") and isinstance(store, protocol))


@runtime_checkable
class RationedStore(Protocol):
    """A store that takes only so many calls in a while."""

    def is_short(self) -> bool:
        """True while so few are left that several checkpoints should share one put. It costs nothing."""


@runtime_checkable
class BelievingStore(Protocol):
    """A store that can be read without a look at what others write meanwhile, to save calls."""

    def believing(self, run_id: str) -> AbstractContextManager[None]:
        """Until this ends, read what a run says only once, and look no more for what others write to it.

        For clean-up, which reads a run several times before it writes. What it writes is judged by how the
        run stands then, as ever.
        """


class Recoded(msgspec.Struct, frozen=True):
    """Other bytes for a record that says the same: values encrypted anew. Its digest stays."""

    sequence: int
    checkpoint_id: str
    body: bytes


class RecodedWait(msgspec.Struct, frozen=True):
    """Other bytes for what a wait asks and was answered, and those that were read before."""

    wait_id: str
    was: tuple[bytes, bytes | None]
    details: bytes
    answer: bytes | None


class RecodedSignal(msgspec.Struct, frozen=True):
    """Other bytes for a signal that says the same: its value encrypted anew."""

    number: int
    was: bytes
    value: bytes


@runtime_checkable
class RecodingStore(Protocol):
    """A store that lets bytes be replaced by others that mean the same."""

    async def recode(self, run_id: str, records: Sequence[Recoded], waits: Sequence[RecodedWait] = ()) -> int:
        """Replace the bytes of a run's own records and waits in one go, and return how many were.

        A record is replaced only while it is there, no stub, and only by one that claims the same digest; a
        wait only while it says what was read. All others stay as they are. It needs no lease.
        """


class CheckpointBlobStore(Protocol):
    """Keeps artifacts: bytes named by their digest."""

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        """Keep header and data durably, in place of what has the same key.

        Key, size and checksum are those of the data alone, or of `plain`: the data before it was encoded.
        Blocking; may be called from any thread.
        """

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        """Return header and data as they were put; `StateCorrupted` if they are missing."""


@runtime_checkable
class StreamedBlobs(Protocol):
    """A store of artifacts that can be read a piece at a time, so that a large one need not fit in memory."""

    def stream_checkpoint_blob(self, ref: ArtifactRef) -> Iterable[bytes]:
        """Yield header and data as they were put; `StateCorrupted` if they are missing. Blocking."""
