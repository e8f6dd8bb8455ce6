"""A run's end of its chain: steps are buffered here and written as checkpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from everstep.codec.records import seal
from everstep.engine.fold import take
from everstep.engine.state import RunState
from everstep.errors import LeaseLost, RunCancelled, StoreError, StoreUnavailable
from everstep.model.acts import Act
from everstep.model.commits import NoticeRow, StartedBy, Tag, Told
from everstep.model.durability import Durability
from everstep.model.durations import spell
from everstep.model.enums import PRIORITIES, Flush, Mode, Status, Trigger, ValueForm, with_priority
from everstep.model.leases import Lease
from everstep.model.records import (
    ATTRIBUTE,
    DEADLINE,
    INPUTS,
    OWNER,
    TRACE,
    CheckpointRecord,
    Counters,
    ErrorInfo,
    StepRecord,
)
from everstep.model.retention import Retention
from everstep.model.waits import WaitRow
from everstep.on_demand import on_demand
from everstep.ports.store import Admission, Adoption, Commit, RunRow, Traits, Verdict
from everstep.runtime.drive.apply import apply
from everstep.runtime.drive.values import Slot, ValueSpace
from everstep.runtime.events import Event, checkpoint_data, tell
from everstep.runtime.outage.store_retry import outage, patiently
from everstep.runtime.services import Services
from everstep.runtime.workers.backpressure import enduringly

if TYPE_CHECKING:
    from everstep.codec.notes import look_at_act
    from everstep.codec.sealing import seal_closed
    from everstep.engine.keyframe import snapshot
    from everstep.graph.author.flow import Flow
    from everstep.runtime.drive.attributes import with_attributes
    from everstep.runtime.drive.children.cancelling import stop_children
    from everstep.runtime.drive.external_channel import Elsewhere
    from everstep.runtime.metrics.meter import FlowMeter
    from everstep.runtime.operations.acting import riding, written
    from everstep.runtime.outage.outbox import Outbox
    from everstep.runtime.tracing.spans import DriveTrace
else:
    look_at_act = on_demand("everstep.codec.notes:look_at_act")
    seal_closed = on_demand("everstep.codec.sealing:seal_closed")
    snapshot = on_demand("everstep.engine.keyframe:snapshot")
    stop_children = on_demand("everstep.runtime.drive.children.cancelling:stop_children")
    with_attributes = on_demand("everstep.runtime.drive.attributes:with_attributes")
    riding = on_demand("everstep.runtime.operations.acting:riding")
    written = on_demand("everstep.runtime.operations.acting:written")
    Outbox = on_demand("everstep.runtime.outage.outbox:Outbox")


T = TypeVar("T")
_UNDONE = "undone"
"""`Occasion.UNDONE`; most processes do not load what has all occasions."""
_RUNNING, _ACCEPTED = Status.RUNNING, Verdict.ACCEPTED
KEYFRAME_BYTES = 8 * 1024
"""A resume reads at least so much behind a keyframe: some fifty small steps."""
_NODE_COST = 64
"""About how many bytes a keyframe takes for one node."""


def spacing(live: int) -> int:
    """Return how many bytes lie between two keyframes of a size: eight times as many, if that is little."""
    return max(2 * live, min(8 * live, 8 * KEYFRAME_BYTES))


def _unannounced(rows: tuple[WaitRow, ...]) -> None:
    return


class Head:
    """The newest checkpoint of a run, as far as its owner knows."""

    __slots__ = ("checkpoint_id", "digest", "sequence", "tail_bytes")

    def __init__(self) -> None:
        self.sequence = 0
        self.checkpoint_id: str | None = None
        self.digest = b""
        self.tail_bytes = 0
        """Bytes written since the last keyframe."""


class StepWatcher(NamedTuple):
    """A callback for when so many more steps are durable."""

    left: int
    written: Callable[[], None]


class Identity(msgspec.Struct, frozen=True):
    """Which run of which flow."""

    run_id: str
    flow_id: str
    flow_version: str
    flow_hash: str
    blueprint: bytes
    parent_run_id: str | None = None
    source: str | None = None
    traits: Traits = Traits()
    retention: Retention | None = None
    tags: tuple[Tag, ...] = ()
    told: Told | None = None
    started_by: StartedBy | None = None

    def about(self, durability: Durability) -> dict[str, Any]:
        """Return what the first record says of the flow besides its structure."""
        told: dict[str, Any] = {}
        if self.source is not None:
            told["source"] = self.source
        if self.retention is not None:
            told["retention"] = self.retention.to_wire()
        if durability.retain_completed_for is not None:
            told["retain_completed_for"] = spell(durability.retain_completed_for)
        return told


class StartedRuns(Protocol):
    """The runs that the nodes of one have started in a drive."""

    @property
    def owes(self) -> bool:
        """True if a recorded start has no run yet, as far as this drive knows."""

    async def pay(self) -> None:
        """Admit the runs of all that is recorded, once that is written."""

    async def at_rest(self) -> None:
        """Let what is under way come to its end."""


class Journal:
    """Buffers the steps of one run and puts them. At most one put is in flight."""

    trace: DriveTrace | None = None
    """The spans of this drive, if it is traced."""
    noted: dict[str, str] | None = None
    """What records say of the trace of the drive before."""
    note: dict[str, str] | None = None
    """What its records say of its trace: the first that this drive writes, and keyframes."""
    took_over: dict[str, Any] | None = None
    """What the first record of this drive says of its owner, if the one before it did not come to rest."""
    tells: tuple[NoticeRow, ...] = ()
    """Notices that the next checkpoint brings besides that of a status."""
    noted_from = 0
    """The sequence that this drive goes on from."""
    undoing: str | None = None
    """What the row says of it, as far as this drive has written that."""
    group: str | None = None
    """With whom the run takes turns."""
    starts: StartedRuns | None = None
    """The runs that its nodes have started in this drive, if they did."""
    stopped: Sequence[RunRow] = ()
    """Runs that it has started, and that were asked to stop as it was cancelled."""
    on_started: Callable[[str, Flow], None] | None = None
    """Told of them, if this process drives them too."""
    opening: Sequence[tuple[StepRecord, WaitRow]] = ()
    """The waits that it is admitted with: for the time at which it begins, and for its deadline."""

    def __init__(
        self,
        services: Services,
        identity: Identity,
        durability: Durability,
        state: RunState,
        space: ValueSpace,
    ) -> None:
        self._services = services
        self.listener = services.listener
        self.meter: FlowMeter | None = None
        """What counts its steps, if anything does."""
        self._codecs = services.codecs
        self._identity = identity
        self._durability = durability
        self.run_id = identity.run_id
        self.started_by = identity.started_by
        """Which node of another run started it, if one did."""
        self.key_run = identity.run_id
        """The run whose id idempotency keys are made of."""
        self._state = state
        self._space = space
        self.head = Head()
        self.lease: Lease | None = None
        self.admission: Admission | None = None
        """What the run was given when it was admitted, if that was done here."""
        self.act: Act | None = None
        """Who started, resumed or cancelled the run, until a record says so."""
        self.is_unsigned = services.notes_unnamed
        """True until then if the audit log may have a row of that though no name was said."""
        self.is_halted = False
        """True while the store has the run as halted."""
        self.waits: list[WaitRow] = []
        """Waits that the next checkpoint opens."""
        self.on_opened: Callable[[tuple[WaitRow, ...]], None] = _unannounced
        """Told of waits once they are durable."""
        self.closed: list[str] = []
        """Waits that were closed."""
        self.taken: list[str] = []
        """Signals whose values are in what is buffered."""
        self._claimed: dict[str, object] = {}
        """Signals whose values this drive has recorded or is about to, each with a mark of who takes it."""
        self.listens = False
        """True if the run has, or had, waits for signals."""
        self.steps: list[StepRecord] = []
        self._payloads: list[bytes] = []
        self._keyframe_payloads: list[bytes] = []
        self._unsure: tuple[CheckpointRecord, Commit, bytes] | None = None
        """A commit that may or may not have gone through; it is put again before any other."""
        self.size = 0
        """Payload bytes in the buffer."""
        self._oldest = 0.0
        self._is_timed = durability.interval is not None or durability.flush is not Flush.EVERY_STEP
        self.writes = durability.mode is not Mode.OFF
        if services.meter is not None and self.writes:
            self.meter = services.meter.of(identity.flow_id)
        self._is_told = self.listener is not None or self.meter is not None
        """True if anybody wants to know of its records."""
        self.endures = False
        """True if a commit is put again for as long as the store is out of reach."""
        self.outbox: Outbox | None = None
        """Where commits wait if the store cannot take them, with `on_store_failure="best_effort"`."""
        if self.writes and durability.on_store_failure == "best_effort":
            self.outbox = Outbox(services, identity.run_id)
        elif self.writes and services.store.capabilities.rationed and services.channels is None:
            self.outbox = Outbox(services, identity.run_id, tolerates=StoreUnavailable)
        self.watchers: list[StepWatcher] = []
        """Who wants to know when the steps of now are durable."""
        self.elsewhere: Elsewhere | None = None
        """The channel, if the chain does not keep it."""

    @property
    def flow_id(self) -> str:
        """The name of the flow."""
        return self._identity.flow_id

    def add(self, step: StepRecord, drafts: tuple[Slot, ...]) -> None:
        """Buffer a step with the values it wrote and take it into account."""
        if not self.writes:
            self.pass_by(step, drafts)
            return
        if self._is_timed and not self.steps:
            self._oldest = self._services.clock.monotonic()
        kept, own = (step, drafts) if self.elsewhere is None else self.elsewhere.keep_out(step, drafts)
        self.steps.append(kept)
        for draft in own:
            if draft.payload is not None and draft.written.form is not ValueForm.LIFTED:
                self._payloads.append(draft.payload)
                self.size += len(draft.payload)
        apply(self._state, self._space, step, drafts)

    def add_plain(self, step: StepRecord, i: int, drafts: tuple[Slot, ...]) -> None:
        """Buffer a step of the run's own flow that succeeded and asked for nothing."""
        if not self.writes:
            self.pass_by(step, drafts)
            return
        if self._is_timed and not self.steps:
            self._oldest = self._services.clock.monotonic()
        self.steps.append(step)
        state, space = self._state, self._space
        for draft in drafts:
            if draft.payload is not None:
                self._payloads.append(draft.payload)
                self.size += len(draft.payload)
            space.accept(state, draft)
        take(state, i, step)
        state.total += 1

    def claim(self, signal_id: str) -> bool:
        """Let a signal be taken by who asks first, on whichever thread.

        The store shows it as untaken until the put is accepted, and a look may be older than that.
        """
        mark = object()
        return self._claimed.setdefault(signal_id, mark) is mark

    def disclaim(self, signal_ids: Iterable[str]) -> None:
        """Leave signals to others that were not recorded after all."""
        for signal_id in signal_ids:
            self._claimed.pop(signal_id, None)

    def pass_by(self, step: StepRecord, drafts: tuple[Slot, ...]) -> None:
        """Take a step into account of which nothing is kept: inside an atomic flow, or under `off`."""
        apply(self._state, self._space, step, drafts)

    @property
    def has_ended_steps(self) -> bool:
        """True if more is buffered than that something has begun."""
        return any(step.status is not Status.RUNNING for step in self.steps)

    def age(self) -> float:
        """Return for how many seconds the oldest buffered step has waited; 0 where nothing depends on it."""
        return self._services.clock.monotonic() - self._oldest if self._is_timed and self.steps else 0.0

    async def admit(self, inputs: tuple[Slot, ...], owner: str | None) -> Verdict:
        """Write the first checkpoint: the inputs, and the lease of the run's first owner."""
        now = self._services.clock.now()
        for draft in inputs:
            draft.is_lent = True
        self.add(StepRecord(path=INPUTS, writes=tuple([d.written for d in inputs])), inputs)
        if self.opening:
            self._open_waits()
        if not self.writes:
            self._clear()
            return Verdict.ACCEPTED
        status = _RUNNING if self._state.delay is None else Status.HALTED
        flow, ttl = self._identity, self._durability.lease_ttl
        about = flow.about(self._durability)
        if self.note is not None:
            about[TRACE] = self.note
        process = self._services.holder(ttl)
        record = CheckpointRecord(
            checkpoint_id=self._services.ids.new_id(),
            sequence=1,
            trigger=Trigger.ADMISSION,
            created_at=now,
            status=status,
            steps=tuple(self.steps),
            run_id=self.run_id,
            flow_id=flow.flow_id,
            flow_version=flow.flow_version,
            flow_hash=flow.flow_hash,
            ttl=self._durability.checkpoint_ttl,
            metadata=about or None,
            resume_after=None if status is _RUNNING else self._resume_after(status),
            act=self.act,
        )
        self.admission = Admission(
            flow_id=flow.flow_id,
            flow_version=flow.flow_version,
            flow_hash=flow.flow_hash,
            blueprint=flow.blueprint,
            created_at=now,
            owner=owner,
            ttl=ttl,
            process=process if owner is not None else None,
            tags=flow.tags,
            told=flow.told,
            started_by=flow.started_by,
            **flow.traits.traits(),
        )
        self.lease = Lease(self.run_id, owner or "", 1 if owner else 0, now + ttl, process)
        return await self._put(record, status, admission=self.admission)

    def lift_deadline(self) -> None:
        """Buffer that a deadline does not count any more: the run ends otherwise, or gets another one."""
        deadline = self._state.deadline
        if deadline is not None:
            now = self._services.clock.now()
            self.add(StepRecord(path=DEADLINE, status=Status.CANCELLED, wait=deadline, ended_at=now), ())

    def _open_waits(self) -> None:
        """Buffer the waits that the run is admitted with."""
        for step, row in self.opening:
            self.add(step, ())
            if self.writes:
                self.waits.append(row)

    async def flush(
        self,
        trigger: Trigger,
        *,
        status: Status = Status.RUNNING,
        error: ErrorInfo | None = None,
        metadata: dict[str, Any] | None = None,
        changes_status: bool = False,
    ) -> None:
        """Write what is buffered. Raises `LeaseLost` if another owner drives the run by now."""
        if not self.writes:
            self._clear()
            self._tell_watchers(None)
            return
        if self._unsure is not None:
            await self._make_sure()
        try:
            record = self._record(trigger, status, error, metadata, self._services.clock.now())
        except StoreUnavailable as failed:
            record = await self._persist_record(
                partial(self._record, trigger, status, error, metadata), failed
            )
        self._judge(await self._put(record, status if changes_status or self.is_halted else None))

    async def _make_sure(self) -> None:
        """Put what may not have gone through. Who is interrupted meanwhile puts the very same again."""
        assert self._unsure is not None
        record, commit, digest = self._unsure
        if self.head.sequence < record.sequence:  # else it was heard of after an interrupt
            await self._confirm(record, commit, digest)
        self._unsure = None

    async def _persist_record(
        self, make: Callable[[datetime], CheckpointRecord], failed: StoreUnavailable
    ) -> CheckpointRecord:
        """Make a record whose keyframe needs a value, or room for one, that is out of reach."""

        async def again() -> CheckpointRecord:
            return make(self._services.clock.now())

        return await self.persist(again, failed=failed)

    async def call_off(self, error: ErrorInfo | None = None) -> None:
        """Write what is buffered and end the run as cancelled, with who asked for that if it is known."""
        if self.writes:
            await self.stop_for_good()
        await self.flush(Trigger.CANCELLED, status=Status.CANCELLED, error=error, changes_status=True)

    async def stop_for_good(self) -> None:
        """Learn who wanted the run to stop, and ask the runs to stop that it has started."""
        await self.learn_who_stops()
        if self._services.store.capabilities.has_children:
            # Before the put, so that who takes over after a crash finds the request, and does the rest.
            self.stopped = await stop_children(self._services, self.run_id, self.act, self.persist)

    async def end_undone(self) -> Status:
        """End a run that has undone what it did, as it would have ended without that."""
        undo = self._state.undo
        assert undo is not None
        ended, about = Status(undo.ends), {"undo": undo.came_to}
        if ended is Status.CANCELLED:
            await self.stop_for_good()
        if not undo.is_declined and all(row.occasion != _UNDONE for row in self.tells):
            self.tell(_UNDONE)
        await self.flush(
            Trigger(undo.ends), status=ended, error=undo.error, metadata=about, changes_status=True
        )
        return ended

    async def learn_who_stops(self) -> None:
        """Let the next record say who wanted the run to stop, if that is known."""
        self.act = await self._who_stops() or self.act

    async def _who_stops(self) -> Act | None:
        services = self._services
        ask = partial(services.store.stop_note, self.run_id)
        note = await patiently(services.clock, ask, outage(services.store))
        return None if note is None else look_at_act(self._codecs, self.run_id, note)

    async def migrate(self, status: Status, error: ErrorInfo | None, metadata: dict[str, Any]) -> None:
        """Write where the run stands as a keyframe; from here on it goes by this version of its flow."""
        flow = self._identity
        delta = CheckpointRecord(
            checkpoint_id=self._services.ids.new_id(),
            sequence=self.head.sequence + 1,
            trigger=Trigger.MIGRATION,
            created_at=self._services.clock.now(),
            status=status,
            error=error,
            metadata=metadata,
            act=self.act,
        )
        adopts = Adoption(flow_version=flow.flow_version, flow_hash=flow.flow_hash, blueprint=flow.blueprint)
        self._judge(await self._put(self._keyframe(delta), None, adopts=adopts))

    async def compact(
        self,
        row: RunRow,
        error: ErrorInfo | None,
        *,
        ttl: timedelta | None,
        metadata: dict[str, Any] | None,
    ) -> None:
        """Write where an ended run stands as a keyframe; nothing else of it changes. Gives the lease back."""
        delta = CheckpointRecord(
            checkpoint_id=self._services.ids.new_id(),
            sequence=self.head.sequence + 1,
            trigger=Trigger.TRIM,
            created_at=self._services.clock.now(),
            status=row.status,
            error=error,
            metadata=metadata,
            ttl=ttl,
        )
        record = self._keyframe(delta)
        commit, digest = self._seal(record, row.status, None)
        commit = msgspec.structs.replace(commit, ended_at=row.ended_at, answers_stop=True)
        self._judge(await self._deliver(record, commit, digest))
        self._advance(record, commit, digest)

    def flush_soon(
        self,
        trigger: Trigger,
        metadata: dict[str, Any] | None = None,
        *,
        status: Status = _RUNNING,
        error: ErrorInfo | None = None,
        changes_status: bool = False,
    ) -> Coroutine[Any, Any, None] | None:
        """Write what is buffered: on the spot if nothing waits for this thread, else return what to await."""
        services, store = self._services, self._services.blocking
        committer = services.committer
        is_free = services.owns_loop and not (committer.is_busy or committer.drives > 1 or committer.tasks)
        is_plain = self.writes and not (self.is_halted or self._unsure or self.outbox is not None)
        if not (is_free and is_plain) or (self.elsewhere is not None and self.elsewhere.has_changes):
            return self.flush(
                trigger, status=status, error=error, metadata=metadata, changes_status=changes_status
            )
        try:
            record = self._record(trigger, status, error, metadata, services.clock.now())
        except StoreUnavailable:
            return self.flush(
                trigger, status=status, error=error, metadata=metadata, changes_status=changes_status
            )
        commit, digest = self._seal(record, status if changes_status else None, None)
        try:
            if committer.until_timed > 1 and store is not None:
                committer.until_timed -= 1
                verdict = store.put_blocking((commit,))[0]
            else:
                verdict = committer.write_here((commit,))[0]
        except StoreUnavailable:
            committer.fell_silent()
            # It may have gone through all the same, so the very same commit is put again.
            return self._confirm(record, commit, digest)
        if verdict is not _ACCEPTED:
            self._judge(verdict)
        self._advance(record, commit, digest)
        return None

    async def _confirm(self, record: CheckpointRecord, commit: Commit, digest: bytes) -> None:
        verdict = await self._deliver(record, commit, digest)
        self._judge(verdict)
        self._advance(record, commit, digest)

    def flush_blocking(self, trigger: Trigger, metadata: dict[str, Any] | None = None) -> bool:
        """Write what is buffered from a thread, while the drive is in user code; false if it may be lost."""
        store = self._services.blocking
        assert store is not None
        if self.outbox is not None and self.outbox.kept:
            return False
        if self._unsure is not None and not self.confirm_blocking():
            return False
        try:
            record = self._record(trigger, Status.RUNNING, None, metadata, self._services.clock.now())
            # A run that stayed halted without a wait would be found by no worker if its owner died.
            commit, digest = self._seal(record, Status.RUNNING if self.is_halted else None, None)
            if self.elsewhere is not None and (changes := self.elsewhere.take()):
                self.elsewhere.stage(record, changes)
        except StoreError:
            return False  # nothing was put, so all of it is still to be written
        self._unsure = (record, commit, digest)
        return self.confirm_blocking()

    def confirm_blocking(self) -> bool:
        """Put what may not have gone through, from a thread; true if nothing is left in doubt."""
        if self._unsure is None or self.head.sequence >= self._unsure[0].sequence:
            self._unsure = None
            return True
        store = self._services.blocking
        assert store is not None
        record, commit, digest = self._unsure
        try:
            verdict = store.put_blocking([commit])[0]
        except StoreError as error:
            if self.outbox is None and not isinstance(error, StoreUnavailable):
                self._unsure = None
                raise
            return False
        self._unsure = None
        self._judge(verdict)
        self._advance(record, commit, digest)
        return True

    def persist_blocking(self, trigger: Trigger, metadata: dict[str, Any] | None = None) -> bool:
        """Hold this thread up until all that is buffered is written, for as long as an outage is waited out.

        False if it is not by then.
        """
        services = self._services
        for pause in outage(services.store):
            services.system.event().wait(pause.total_seconds())
            if self.confirm_blocking() and (not self.steps or self.flush_blocking(trigger, metadata)):
                return True
        return False

    def _judge(self, verdict: Verdict) -> None:
        if verdict is _ACCEPTED:
            return
        if verdict is Verdict.STOP_REQUESTED:
            raise RunCancelled(f"run {self.run_id!r} was cancelled.")
        raise LeaseLost(
            f"run {self.run_id!r} was taken over while this process drove it ({verdict.value}).",
            fix="Nothing was lost: the other owner goes on from the last checkpoint.",
            run_id=self.run_id,
        )

    def _record(
        self,
        trigger: Trigger,
        status: Status,
        error: ErrorInfo | None,
        metadata: dict[str, Any] | None,
        now: datetime,
    ) -> CheckpointRecord:
        if self.note is not None and self.head.sequence == self.noted_from:
            metadata = {**(metadata or {}), TRACE: self.note}
        if self.took_over is not None and self.head.sequence == self.noted_from:
            metadata = {**(metadata or {}), OWNER: self.took_over}
        delta = CheckpointRecord(
            checkpoint_id=self._services.ids.new_id(),
            sequence=self.head.sequence + 1,
            trigger=trigger,
            created_at=now,
            status=status,
            steps=tuple(self.steps),
            error=error,
            metadata=with_priority(trigger, metadata) if trigger in PRIORITIES else metadata,
            resume_after=None if status is _RUNNING else self._resume_after(status),
            act=self.act,
        )
        if self._state.undo is not None:
            self._state.undo.number(delta.sequence)
        tail = self.head.tail_bytes + self.size
        if tail < KEYFRAME_BYTES or tail < spacing(self._live()):
            return delta
        if self._space.size > self._services.record_bytes and not self._space.has_aside:
            return delta  # a keyframe that the store might not take; the tail is longer instead
        return self._keyframe(delta)

    def _live(self) -> int:
        """Return about how many bytes a keyframe takes."""
        nodes = min(self._state.total, len(self._state.visits)) + len(self._space.areas)
        return self._space.size + _NODE_COST * nodes

    def _resume_after(self, status: Status) -> datetime | None:
        return self._state.next_due() if status is Status.HALTED else None

    def _keyframe(self, delta: CheckpointRecord) -> CheckpointRecord:
        """Add the folded state, so that a resume need not read further back."""
        values, self._keyframe_payloads = self._space.snapshot()
        limit = self._services.record_bytes
        if sum(map(len, self._keyframe_payloads)) > limit and self._space.make_room(limit):
            values, self._keyframe_payloads = self._space.snapshot()
        state, identity = self._state, self._identity
        return msgspec.structs.replace(
            delta,
            keyframe=True,
            run_id=self.run_id,
            parent_run_id=identity.parent_run_id,
            flow_id=identity.flow_id,
            flow_version=identity.flow_version,
            flow_hash=identity.flow_hash,
            state=snapshot(state, values),
            counters=Counters(state.total),
            ttl=delta.ttl or self._durability.checkpoint_ttl,
            metadata=delta.metadata if self.note is None else {**(delta.metadata or {}), TRACE: self.note},
        )

    async def _put(
        self,
        record: CheckpointRecord,
        status: Status | None,
        admission: Admission | None = None,
        adopts: Adoption | None = None,
    ) -> Verdict:
        commit, digest = self._seal(record, status, admission)
        if adopts is not None:
            # A run that was cancelled, and has something to undo, goes over to this version for that.
            ignores = commit.answers_stop or self._state.undo is not None
            commit = msgspec.structs.replace(commit, adopts=adopts, answers_stop=ignores)
        if self.elsewhere is not None and (changes := self.elsewhere.take()):
            await self.persist(
                partial(self._services.system.to_thread, self.elsewhere.stage, record, changes)
            )
        verdict = await self._deliver(record, commit, digest)
        if verdict is _ACCEPTED:
            self._advance(record, commit, digest)
        elif self.elsewhere is not None:
            self.elsewhere.settle(record.checkpoint_id, is_written=False)
        return verdict

    def _seal(
        self, record: CheckpointRecord, status: Status | None, admission: Admission | None
    ) -> tuple[Commit, bytes]:
        assert self.lease is not None
        payloads = self._payloads + self._keyframe_payloads if record.keyframe else self._payloads
        if self._codecs.is_active:
            body, digest = seal_closed(self._codecs, self.run_id, record, self.head.digest, payloads)
        else:
            body, digest = seal(record, self.head.digest, payloads)
        is_final = status is not None and status.is_final
        commit = Commit(
            self.run_id,
            record.sequence,
            record.checkpoint_id,
            self.head.checkpoint_id,
            self.lease.epoch,
            body,
            record.keyframe,
            status,
            admission,
            is_final and status is not Status.COMPLETED,
            record.created_at if is_final else None,
            tuple(self.waits) if self.waits else (),
            tuple(self._state.gone) if self._state.gone else (),
            hurries=self.outbox is not None and admission is None,
        )
        if self._state.undo is not None:
            if self._state.undo.has_begun:
                commit = self._with_undoing(commit)
            elif status is Status.FAILED:  # while it is cancelled: undone as its flow says of that
                commit = msgspec.structs.replace(commit, answers_stop=False)
        if self.taken or self.listens:
            pairs = self.listens and bool(commit.waits or commit.closed)
            commit = msgspec.structs.replace(commit, taken=tuple(self.taken), pairs=pairs)
        if (record.act is not None or self.is_unsigned) and (
            audit := riding(record.act, self.run_id)
        ) is not None:
            commit = msgspec.structs.replace(commit, audit=audit)
        if self.tells:
            commit = msgspec.structs.replace(commit, tells=self.tells)
        if ATTRIBUTE in self._space.areas:
            commit = with_attributes(commit, record.steps, self._space)
        return commit, digest

    def _with_undoing(self, commit: Commit) -> Commit:
        """Return the commit with what the row says of a run that is undoing. It has been told to stop."""
        undo = self._state.undo
        assert undo is not None
        is_told = commit.status is not None or self.undoing != undo.came_to
        said = undo.came_to if is_told else None
        return msgspec.structs.replace(commit, answers_stop=True, undoing=said)

    def _advance(self, record: CheckpointRecord, commit: Commit, digest: bytes) -> None:
        if self.elsewhere is not None:
            self.elsewhere.settle(record.checkpoint_id, is_written=True)
        if self.watchers:
            self._tell_watchers(len(record.steps))
        head, size = self.head, len(commit.body)
        head.sequence = record.sequence
        head.checkpoint_id = record.checkpoint_id
        head.digest = digest
        head.tail_bytes = 0 if record.keyframe else head.tail_bytes + size
        if len(record.steps) == len(self.steps):
            self._clear()
        else:
            self._drop_first(record.steps)
        if record.act is not None or self.is_unsigned:
            self.act, self.is_unsigned = None, False
            written(commit.audit)
        if commit.status is not None:
            self.is_halted = commit.status is Status.HALTED
        if commit.undoing is not None:
            self.undoing = commit.undoing
        if commit.waits or commit.closed:
            self._note_waits(commit)
        if commit.taken:
            del self.taken[: len(commit.taken)]
        if commit.tells:
            self.tells = self.tells[len(commit.tells) :]
        if self._is_told:
            self._tell(record, commit)

    def _tell(self, record: CheckpointRecord, commit: Commit) -> None:
        if self.meter is not None:
            self.meter.wrote(record, commit.status)
        if self.listener is not None and record.sequence > 1:
            data = checkpoint_data(record)
            event = Event(kind="checkpoint", run_id=self.run_id, at=record.created_at, data=data)
            tell(self.listener, event)

    def tell(self, occasion: str) -> None:
        """Let all who want to be told of an occasion hear of it: the notice goes with the next checkpoint.

        This is all that code which brings about an occasion has to do; `Occasion` has its name.
        """
        if self._services.store.capabilities.has_notices:
            self.tells += (NoticeRow(occasion=str(occasion)),)

    def watch(self, written: Callable[[], None]) -> None:
        """Call back once all that is buffered now is durable."""
        self.watchers.append(StepWatcher(len(self.steps), written))

    def _tell_watchers(self, steps: int | None) -> None:
        """Tell those whose steps are all written; none means all of them."""
        watching, self.watchers = self.watchers, []
        for left, written in watching:
            if steps is None or left <= steps:
                written()
            else:
                self.watchers.append(StepWatcher(left - steps, written))

    async def empty_outbox(self) -> int:
        """Bring what waits on this machine to the store; returns how many checkpoints still wait."""
        if self.outbox is None or not self.outbox.kept:
            return 0
        await self.outbox.drain()
        return self.outbox.kept

    def _note_waits(self, commit: Commit) -> None:
        del self.waits[: len(commit.waits)]
        del self._state.gone[: len(commit.closed)]
        self.closed += commit.closed
        # One that was over before it was ever written closes with the same put that opens it.
        if commit.status not in (Status.COMPLETED, Status.CANCELLED):
            self.on_opened(tuple(row for row in commit.waits if row.wait_id not in commit.closed))

    async def _deliver(self, record: CheckpointRecord, commit: Commit, digest: bytes) -> Verdict:
        """Put the commit; while the store is out of reach, put the very same one again.

        If an earlier try went through and only its reply was lost, the store finds the record there. An
        owner that is cancelled while it is under way goes on from it all the same, if it was accepted.
        """
        put = partial(self._services.committer.put, commit, partial(self._note, record, commit, digest))
        if self.outbox is not None:
            deliver = partial(self.outbox.deliver, commit, put)
            # Both the store and the disk of this machine may be full.
            return await (self.persist(deliver) if self.endures else deliver())
        try:
            return await put()
        except StoreUnavailable as error:
            return await self.persist(put, at_stake=commit.admission is None, failed=error)

    def _note(self, record: CheckpointRecord, commit: Commit, digest: bytes, verdict: Verdict) -> None:
        """Take note of a put whose owner was cancelled meanwhile."""
        if verdict is _ACCEPTED:
            self._advance(record, commit, digest)

    async def persist(
        self,
        ask: Callable[[], Awaitable[T]],
        *,
        at_stake: bool = True,
        failed: StoreUnavailable | None = None,
    ) -> T:
        """Return what `ask` gives, asking a store that is out of reach or full as long as this drive may.

        `failed` is what came of asking just now.
        """
        services = self._services
        if self.endures:
            return await enduringly(services.clock, services.ids, services.weather, ask, failed)
        pauses = outage(services.store)
        return await patiently(services.clock, ask, pauses, at_stake=at_stake, failed=failed)

    async def ask_time(self) -> None:
        """Ask a store that was never heard what time it is, for as long as an outage is waited out.

        By a clock that is an hour behind, what is due in a minute would be overdue when the store is back.
        """
        if self.writes and self.outbox is None:
            await self.persist(self._services.time.ask)

    def _drop_first(self, written: tuple[StepRecord, ...]) -> None:
        """Take what was written out of the buffer; more was added since."""
        payloads = sum(w.is_inline for step in written for w in step.writes)
        del self.steps[: len(written)]
        del self._payloads[:payloads]
        self.size = sum(map(len, self._payloads))

    def _clear(self) -> None:
        self.steps = []
        self._payloads = []
        self.size = 0
