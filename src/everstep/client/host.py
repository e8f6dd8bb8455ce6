"""`AsyncHost`: the services a run needs, behind one URL."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from copy import copy
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

import msgspec

from everstep.client.moved import with_moved_calls
from everstep.client.parts import CallGroup, Parts, check_asked, check_goes_on, check_limit, check_number
from everstep.client.surroundings import codecs_of, make_own_folder, spool_folder
from everstep.client.views import (
    CheckpointInfo,
    Delivery,
    PublishedEvent,
    RunInfo,
    RunPage,
    RunResult,
    RunState,
    SentSignal,
    SignalInfo,
    StartedRun,
    WaitInfo,
)
from everstep.codec.chain import Codec
from everstep.codec.keyring import KeyRing
from everstep.codec.values import Values
from everstep.errors import BadRequest, StoreUnavailable, WaitNotFound
from everstep.graph.author.flow import Flow
from everstep.graph.check.validate import Offers, Rule
from everstep.model.acts import act_of
from everstep.model.commits import NO_LABELS, AttributeValue
from everstep.model.durability import DurabilityMode, mode_of
from everstep.model.durations import Span, span_of
from everstep.model.enums import Mode, Status
from everstep.model.records import CheckpointRecord
from everstep.model.retention import KEEP_ALL, Retention, checked_retention
from everstep.model.waits import DEADLINE_KIND, UNSAID, WaitRow, WaitStatus
from everstep.on_demand import on_demand
from everstep.ports.durability import HostDurability, Notifier, ResumeScheduler
from everstep.ports.store import RunFilter, RunRow, Traits, WaitFilter
from everstep.ports.system import Clock, Ids, System
from everstep.registry import (
    DEFAULT_URL,
    NO_STORE,
    Closes,
    Opened,
    open_channels,
    open_queue,
    open_store,
    with_blobs,
)
from everstep.runtime.after_run import Afterwards, retaining_store
from everstep.runtime.inputs import Given
from everstep.runtime.outage.spool import Spool
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.runs import Runs
from everstep.runtime.services import Bundle, Drivable, Services
from everstep.runtime.system import RealSystem
from everstep.runtime.workers.lease_renewal import GRACE, LeaseKeeper

if TYPE_CHECKING:
    from datetime import datetime

    from everstep.client.groups.debug import DebugCalls
    from everstep.client.groups.fleet import FleetCalls
    from everstep.client.groups.notices import NoticeCalls
    from everstep.client.groups.retention import RetentionCalls
    from everstep.client.groups.schedules import ScheduleCalls
    from everstep.client.groups.storage import StorageCalls
    from everstep.client.groups.transfer import TransferCalls
    from everstep.client.groups.versions import VersionCalls
    from everstep.client.groups.waiting import WaitingCalls
    from everstep.client.looking.changes import Changes, Watch
    from everstep.client.queries import RunConditions
    from everstep.client.record_events import Tailing
    from everstep.client.streaming import streamed, told_both
    from everstep.client.tracing import tracer_of
    from everstep.engine.query.text import query_of
    from everstep.engine.query.tree import asks_for_undoing, given_of
    from everstep.graph.labels import labels_of
    from everstep.graph.tells import Telling, tells_of
    from everstep.model.address import Part
    from everstep.ports.tracing import Tracing
    from everstep.runtime.addresses import addressed, in_run
    from everstep.runtime.at_rest import RestingRuns
    from everstep.runtime.drive.timed.times import deadline_of, times_of
    from everstep.runtime.events import Event, Listener
    from everstep.runtime.history import history
    from everstep.runtime.integrity.fallback import resume_with_fallback
    from everstep.runtime.metrics.meter import Meter
    from everstep.runtime.operations.find import find
    from everstep.runtime.outage.outbox import waits_here
    from everstep.runtime.outcome import Outcome
    from everstep.runtime.reader import current_channel, gone_on
    from everstep.runtime.retention.collect import Collector
    from everstep.runtime.travel.explain import Explanation, explain
    from everstep.runtime.travel.fork import Edits, fork
    from everstep.runtime.waits.answers import Answers
    from everstep.runtime.waits.delivery import Deliveries
    from everstep.runtime.waits.drop import drop
    from everstep.runtime.waits.inbox import Inboxes
    from everstep.runtime.waits.publish import publish
    from everstep.runtime.waits.turns import Said, Turns
    from everstep.runtime.workers.cleaning import Cleaning
    from everstep.runtime.workers.worker import Stats, Worker
else:
    resume_with_fallback = on_demand("everstep.runtime.integrity.fallback:resume_with_fallback")
    Watch = on_demand("everstep.client.looking.changes:Watch")
    Collector = on_demand("everstep.runtime.retention.collect:Collector")
    explain = on_demand("everstep.runtime.travel.explain:explain")
    Edits = on_demand("everstep.runtime.travel.fork:Edits")
    fork = on_demand("everstep.runtime.travel.fork:fork")
    Answers = on_demand("everstep.runtime.waits.answers:Answers")
    publish = on_demand("everstep.runtime.waits.publish:publish")
    Inboxes = on_demand("everstep.runtime.waits.inbox:Inboxes")
    drop = on_demand("everstep.runtime.waits.drop:drop")
    Said = on_demand("everstep.runtime.waits.turns:Said")
    Turns = on_demand("everstep.runtime.waits.turns:Turns")
    Deliveries = on_demand("everstep.runtime.waits.delivery:Deliveries")
    Cleaning = on_demand("everstep.runtime.workers.cleaning:Cleaning")
    Worker = on_demand("everstep.runtime.workers.worker:Worker")
    tells_of = on_demand("everstep.graph.tells:tells_of")
    deadline_of = on_demand("everstep.runtime.drive.timed.times:deadline_of")
    times_of = on_demand("everstep.runtime.drive.timed.times:times_of")
    addressed = on_demand("everstep.runtime.addresses:addressed")
    in_run = on_demand("everstep.runtime.addresses:in_run")
    labels_of = on_demand("everstep.graph.labels:labels_of")
    query_of = on_demand("everstep.engine.query.text:query_of")
    given_of = on_demand("everstep.engine.query.tree:given_of")
    asks_for_undoing = on_demand("everstep.engine.query.tree:asks_for_undoing")
    find = on_demand("everstep.runtime.operations.find:find")
    history = on_demand("everstep.runtime.history:history")
    Meter = on_demand("everstep.runtime.metrics.meter:Meter")
    waits_here = on_demand("everstep.runtime.outage.outbox:waits_here")
    Tailing = on_demand("everstep.client.record_events:Tailing")
    tracer_of = on_demand("everstep.client.tracing:tracer_of")
    streamed = on_demand("everstep.client.streaming:streamed")
    told_both = on_demand("everstep.client.streaming:told_both")
    current_channel = on_demand("everstep.runtime.reader:current_channel")
    gone_on = on_demand("everstep.runtime.reader:gone_on")


_USUAL = Traits()
"""What a run is given for which nothing is said."""


@with_moved_calls
class AsyncHost:
    """Runs flows and keeps what they do. Without a URL, in a SQLite file under `./.everstep/`.

    What most programs need is here; the rest is in groups, such as `host.retention.gc()`.
    """

    debug: CallGroup[DebugCalls] = CallGroup("everstep.client.groups.debug", "DebugCalls")
    """Find out what happened: two runs compared, the first step that differs, one step again."""
    versions: CallGroup[VersionCalls] = CallGroup("everstep.client.groups.versions", "VersionCalls")
    """Runs of a flow that has changed since they began."""
    waiting: CallGroup[WaitingCalls] = CallGroup("everstep.client.groups.waiting", "WaitingCalls")
    """Waits that are settled otherwise than by an answer, and their tokens."""
    notices: CallGroup[NoticeCalls] = CallGroup("everstep.client.groups.notices", "NoticeCalls")
    """What people and systems are told of runs, and whether it was sent."""
    fleet: CallGroup[FleetCalls] = CallGroup("everstep.client.groups.fleet", "FleetCalls")
    """Workers, what they share, and runs for them to drive."""
    schedules: CallGroup[ScheduleCalls] = CallGroup("everstep.client.groups.schedules", "ScheduleCalls")
    """Runs that are started again and again by the clock."""
    retention: CallGroup[RetentionCalls] = CallGroup("everstep.client.groups.retention", "RetentionCalls")
    """How long runs are kept: clean-up, pins, erasing."""
    transfer: CallGroup[TransferCalls] = CallGroup("everstep.client.groups.transfer", "TransferCalls")
    """Whole runs carried elsewhere: bundles, copies to other stores, folders of plain files."""
    storage: CallGroup[StorageCalls] = CallGroup("everstep.client.groups.storage", "StorageCalls")
    """The store itself: its health, whether what it keeps is sound, what waits for it on this machine."""

    _environ: Mapping[str, str] = os.environ
    """Where it finds what it is not told. A simulation has another one."""

    def __init__(
        self,
        url: str | Opened | None = None,
        *,
        on_event: Listener | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        max_threads: int = 32,
        create: bool = True,
        owns_loop: bool = False,
        key: str | bytes | None = None,
        base_url: str | None = None,
        schedulers: Mapping[str, ResumeScheduler] | None = None,
        scheduler: str = "",
        notifiers: Mapping[str, Notifier] | None = None,
        notify: Telling | None = None,
        max_durability_mode: DurabilityMode = Mode.STRONG,
        provides: Iterable[str] = (),
        spool: str | Path | Spool | None = None,
        rules: Iterable[Rule] = (),
        channel: str | None = None,
        queue: str | None = None,
        blobs: str | None = None,
        encrypt: KeyRing | Literal[False] | None = None,
        compress: bool | None = None,
        codecs: Iterable[Codec] = (),
        allow_pickle: bool = False,
        retention: Retention | None = None,
        tracing: bool | Tracing | None = None,
        metrics: bool = False,
    ) -> None:
        system = self._system_of(clock, ids)
        clock = system.clock
        if url is None and create:
            make_own_folder()
        opened = url if isinstance(url, Opened) else open_store(url or DEFAULT_URL, clock, create=create)
        self.url = opened.url
        schemes = {"queue": _scheme(queue or opened.url), "channel": _scheme(channel or opened.url)}
        blobs = self._environ.get("EVERSTEP_BLOBS") or None if blobs is None else blobs
        self._home: Closes = None
        if blobs is not None:
            opened, self._home = with_blobs(opened, blobs, clock, create=create)
        self._services = Services(
            store=opened.store,
            blobs=opened.blobs,
            system=system,
            values=Values(allow_pickle=allow_pickle),
            listener=on_event,
            owns_loop=owns_loop,
            max_threads=max_threads,
            key=self._environ.get("EVERSTEP_KEY") or None if key is None else key,
            base_url=base_url,
            schedulers=schedulers,
            scheduler=scheduler,
            notifiers=notifiers,
            max_mode=Mode.OFF if opened.url == NO_STORE else mode_of(max_durability_mode),
            provides=provides,
            spool=spool if isinstance(spool, Spool) else Spool(spool_folder(opened.url, spool)),
            rules=rules,
            channels=open_channels(channel) if channel is not None else None,
            queue=open_queue(queue, clock) if queue is not None else None,
            codecs=codecs_of(encrypt, compress, codecs),
            meter=Meter(system) if metrics else None,
        )
        if notify is not None:
            self._services.notify = tells_of(notify, "the host", of_all=True)
        if tracing is not None or "EVERSTEP_TRACING" in self._environ:
            self._services.tracing = tracer_of(tracing, self._environ)
        self._runs = Runs(self._services, LeaseKeeper(opened.store, self._services.blocking, system))
        self._assemble(self._keep_by(retention), schemes)

    def _system_of(self, clock: Clock | None, ids: Ids | None) -> System:
        """Return what this host takes from its machine. A simulation overrides it."""
        return RealSystem(clock, ids)

    def _keep_by(self, retention: Retention | None) -> Retention:
        kept = checked_retention(retention) or KEEP_ALL
        self._after_run = Afterwards(kept, self._twin_resting, self._services.system, Collector)
        if not kept.keeps_all:
            retaining_store(self._services)
        if self._services.store.capabilities.retains:
            self._services.after_run = self._after_run.note
        return kept

    def _assemble(self, retention: Retention, schemes: Mapping[str, str]) -> None:
        self._parts = Parts(self.url, schemes, self._services, self._runs, retention)

    @cached_property
    def _tailing(self) -> Tailing:
        return Tailing(self._services, self._runs.reader)

    @cached_property
    def _watch(self) -> Watch:
        return Watch(self._parts)

    @property
    def _answers(self) -> Answers:
        return Answers(self._services, self._runs.keeper)

    @property
    def _inboxes(self) -> Inboxes:
        return Inboxes(self._services, self._runs.keeper)

    def _twin_runs(self) -> tuple[Services, Runs]:
        services = self._services.twin()
        return services, Runs(services, self._runs.keeper)

    def _twin_resting(self) -> tuple[Services, RestingRuns]:
        services, runs = self._twin_runs()
        return services, runs.resting

    def _telling(self, listener: Listener) -> Self:
        """Return this host, on the same event loop, with one more who is told what its runs do."""
        services = copy(self._services)
        services.listener = told_both(services.listener, listener)
        return self._with(services, Runs(services, self._runs.keeper))

    def _with(self, services: Services, runs: Runs) -> Self:
        twin = object.__new__(type(self))
        twin.url = self.url
        twin._home = None
        twin._services, twin._runs = services, runs
        twin._after_run = self._after_run
        twin._assemble(self._parts.retention, self._parts.schemes)
        return twin

    def twin(self) -> Self:
        """Return this host for another event loop: the same store, leases and types, commits of its own."""
        return self._with(*self._twin_runs())

    @property
    def borrower(self) -> Callable[[Any], None] | None:
        """What takes an event loop to give leases back on, as the store is only awaited; else none."""
        return self._runs.keeper.lend if self._services.blocking is None else None

    @property
    def driving(self) -> set[Drivable]:
        """What drives runs on this host's loop right now."""
        return self._services.driving

    @property
    def clock(self) -> Clock:
        """The clock that its runs go by."""
        return self._services.clock

    @property
    def durability(self) -> HostDurability:
        """The services that waiting rests on, as far as this host has them."""
        return Bundle(self._services)

    @property
    def offers(self) -> Offers:
        """What this host has for the flows that run on it, as `validate` asks for it."""
        return self._services.offers

    @property
    def values(self) -> Values:
        """How values become bytes; register serializers for types of your own here."""
        return self._services.values

    async def run(
        self,
        flow: Flow,
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        channel: Mapping[str, Any] | None = None,
        wait: bool = False,
        at: datetime | str | None = None,
        after: Span | None = None,
        deadline: Span | datetime | None = None,
        priority: int = 0,
        group: str | None = None,
        tags: Iterable[str] | Mapping[str, str] = (),
        attributes: Mapping[str, AttributeValue] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunResult:
        """Run a flow to its end, or until it halts, with these values in its channel.

        A run that halts waits for answers; `wait` stays with it through its waits. One that is to begin `at`
        a time, or `after` a while, halts at `@start` until then. `deadline` is when it is ended if it has not
        ended by itself, a moment or a span from its beginning. `priority` and `group` are for workers that go
        on with it. `by` says who starts or continues it and `comment` why, as on every
        other call that has them; both are kept with what the call writes.

        With the id of an unfinished run it continues that one; with the id of a finished one it returns the
        recorded result and runs nothing. Other inputs than the recorded ones are refused.
        """
        act = act_of(by, comment)
        labels = labels_of(tags, attributes) if tags or attributes else NO_LABELS
        is_usual = group is None and priority is _USUAL.priority
        traits = _USUAL if is_usual else Traits(priority=priority, group=group)
        given = Given(inputs, channel, traits, act, labels)
        if at is not None or after is not None or deadline is not None:
            given = given.timed(times_of(at, after, deadline))
        doing = self._runs.run(flow, given, run_id, wait=wait)
        outcome = await (
            self._parts.audited("run", act, doing, run_id)
            if act is not None or self._services.notes_unnamed
            else doing
        )
        return self._parts.result(outcome)

    async def stream(
        self,
        flow: Flow,
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        channel: Mapping[str, Any] | None = None,
        wait: bool = False,
        at: datetime | str | None = None,
        after: Span | None = None,
        deadline: Span | datetime | None = None,
        priority: int = 0,
        group: str | None = None,
        tags: Iterable[str] | Mapping[str, str] = (),
        attributes: Mapping[str, AttributeValue] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a flow as `run` does, and yield what happens as it comes: steps, emitted data, chunks, its end.

        The last event is `result`, with the result in its data; what `run` would raise is raised. A reader
        that is too slow misses events and gets a `gap`; the run does not wait for it. Closing the generator
        early stops the drive: what has finished is kept, and the run can be resumed.
        """
        async with aclosing(
            streamed(
                lambda told: self._telling(told).run(
                    flow,
                    inputs,
                    run_id=run_id,
                    channel=channel,
                    wait=wait,
                    at=at,
                    after=after,
                    deadline=deadline,
                    priority=priority,
                    group=group,
                    tags=tags,
                    attributes=attributes,
                    by=by,
                    comment=comment,
                ),
                self.clock,
            )
        ) as events:
            async for event in events:
                yield event

    async def start(
        self,
        flow: Flow,
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        channel: Mapping[str, Any] | None = None,
        at: datetime | str | None = None,
        after: Span | None = None,
        deadline: Span | datetime | None = None,
        priority: int = 0,
        group: str | None = None,
        tags: Iterable[str] | Mapping[str, str] = (),
        attributes: Mapping[str, AttributeValue] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Accept a run durably and return at once; a worker drives it, or `resume`.

        `at` and `after` say when it begins, if not as soon as a worker is free: a moment with its time zone,
        or a span such as "2h". Until then it is halted at `@start`. A moment that has gone by is now.
        `deadline` is when it is ended if it has not ended by itself, a moment or a span from its beginning;
        it takes the place of that of the flow.

        The higher its `priority`, the sooner. Runs of a flow with the same `group` take turns with those of
        other groups, and `Flow(max_per_group=...)` says how many of them may be driven at once.
        """
        act = act_of(by, comment)
        labels = labels_of(tags, attributes) if tags or attributes else NO_LABELS
        is_usual = group is None and priority is _USUAL.priority
        traits = _USUAL if is_usual else Traits(priority=priority, group=group)
        given = Given(inputs, channel, traits, act, labels)
        if at is not None or after is not None or deadline is not None:
            given = given.timed(times_of(at, after, deadline))
        doing = self._runs.start(flow, given, run_id)
        row = await (
            self._parts.audited("start", act, doing, run_id)
            if act is not None or self._services.notes_unnamed
            else doing
        )
        if row.__class__ is not RunRow:
            return StartedRun.of(row, is_driven=self._parts.is_driven(row))  # its flow has a singleton
        return self._parts.info(row)

    async def resume(
        self,
        run_id: str,
        flow: Flow,
        *,
        start: str | None = None,
        wait: bool = False,
        at_once: bool = False,
        fallback: bool = False,
        deadline: Span | datetime | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunResult:
        """Continue a run. One that failed is reopened at the node that failed, with a fresh retry budget.

        It may be named by its id, by an address inside it, by its newest checkpoint, or by a token of a wait.
        With `start` it begins at that node instead, whatever was due. `wait` stays through its waits.
        With `at_once`, a run that another process has is a `LeaseConflict` now, not when its lease runs out.
        With `fallback`, a run whose newest checkpoints are damaged goes on from its newest valid one, as a
        fork; the result's `fallback` says which, and what may be done twice. `deadline` takes the place of
        the one it has; one that is reopened, or that is a fork, has none otherwise.
        """
        act = act_of(by, comment)
        go_on = partial(resume_with_fallback, self._services, self._runs) if fallback else self._runs.resume
        ends = None if deadline is None else deadline_of(deadline)
        go_on = partial(go_on, wait=wait, is_patient=not at_once, act=act, ends=ends)
        doing = self._go_on(run_id, go_on, flow, start)
        outcome = await (
            self._parts.audited("resume", act, doing, run_id)
            if act is not None or self._services.notes_unnamed
            else doing
        )
        return self._parts.result(outcome)

    async def _go_on(
        self, run_id: str, go_on: Callable[..., Awaitable[Outcome]], flow: Flow, start: str | None
    ) -> Outcome:
        run_id, at, _ = await addressed(self._runs.reader, run_id)
        if at is not None:
            row, sequence = await self._runs.reader.find(run_id, at)
            if sequence != row.checkpoints:
                raise gone_on(row, sequence)
        return await go_on(run_id, flow, start)

    def worker(
        self,
        flows: Iterable[Flow],
        *,
        concurrency: int = 32,
        per_flow: Mapping[str, int] | None = None,
        grace: Span = GRACE,
        gc_every: Span | None = None,
        audit_older_than: Span | None = None,
    ) -> Worker:
        """Return a worker for these flows; `await worker.run()` works until `worker.stop()`.

        With `gc_every` it cleans up as often as that, as `host.retention.gc(flows=flows)` does: of all
        workers that are told to, the longest serving one alone. Rows of the audit log go with that, if it is
        said how old they are then: `audit_older_than="365d"`.
        """
        flows = list(flows)
        how: dict[str, Any] = {"concurrency": concurrency, "per_flow": per_flow, "grace": grace}
        if gc_every is not None:
            every = span_of(gc_every, "gc_every")
            if every <= timedelta():
                raise BadRequest(f"gc_every is {gc_every!r}.", fix='Give a span such as "1h".')
            retaining_store(self._services)
            age = None if audit_older_than is None else span_of(audit_older_than, "audit_older_than")
            clean = partial(self.retention.gc, flows=flows, audit_older_than=age)
            how["cleaning"] = Cleaning(self._services, every, clean)
        elif audit_older_than is not None:
            raise BadRequest(
                "audit_older_than is given, and this worker does not clean up.",
                fix='Say how often: gc_every="1h".',
            )
        return Worker(self._services, self._runs, flows, **how)

    async def work(
        self,
        flows: Iterable[Flow],
        *,
        concurrency: int = 32,
        per_flow: Mapping[str, int] | None = None,
        until_idle: bool = False,
    ) -> Stats:
        """Drive whatever is due of these flows: accepted runs, answered or overdue waits, dead owners' runs.

        It works until it is cancelled, or until nothing is due; `concurrency` runs at once, and of each flow
        as many as `per_flow` says.
        """
        worker = self.worker(flows, concurrency=concurrency, per_flow=per_flow)
        return await worker.run(until_idle=until_idle)

    async def events(
        self, run_id: str, *, after: str | None = None, live: bool = True
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a run as its records tell them, those still to come too until it has ended.

        `after` is the id of an event to go on from. Of a part such as A17/rag, the events of steps in it.
        """
        run_id, part = await in_run(self._runs.reader, run_id)
        async with aclosing(self._tailing.follow(run_id, after, live=live)) as events:
            async for event in events:
                if part is None or (event.node is not None and part.holds(event.node, event.visit)):
                    yield event

    async def follow(self, run_id: str, *, after: str | None = None) -> AsyncGenerator[Event, None]:
        """Yield the events of a run that any process drives, with what its nodes emit and yield, to its end.

        Steps come from its records; what is emitted comes if its flow has `streams=True`, as long as it is
        kept. `after` is the id of an event to go on from. What is no longer there is an event `gap`. Of a
        part such as A17/rag, the events of steps in it.
        """
        run_id, part = await in_run(self._runs.reader, run_id)
        following = self._tailing.follow(run_id, after, live=True, with_emitted=True)
        async with aclosing(following) as events:
            async for event in events:
                if part is None or event.kind == "gap" or part.holds(event.node, event.visit):
                    yield event

    async def changes(
        self, run_ids: str | Iterable[str] = (), *, after: str | None = None, live: bool = True
    ) -> AsyncGenerator[Changes, None]:
        """Yield which runs of the store change, in any process, at most four times a second.

        Of all runs, or of those that are named. The first message says that from now on nothing is missed;
        `after` is the id of one to go on from. Only ids, sequences and statuses are told. Of all runs these
        are seen to change: those that are driven, the 200 newest, and the 200 newest that wait. Without
        `live`, one message with all that has changed since `after`.
        """
        named = (run_ids,) if isinstance(run_ids, str) else tuple(run_ids)
        rows = [await self._runs.reader.row((await in_run(self._runs.reader, one))[0]) for one in named]
        wanted = [row.run_id for row in rows]
        if not live:
            yield await self._watch.look(wanted, after)
            return
        async with aclosing(self._watch.follow(wanted, after)) as told:
            async for one in told:
                yield one

    async def explain(self, run_id: str, flow: Flow) -> Explanation:
        """Say what a resume would skip, start, repeat and miss. Nothing is called or written.

        Of a part such as A17/rag, only which of its steps.
        """
        run_id, part = await in_run(self._runs.reader, run_id)
        told = await explain(self._services, self._runs.reader, run_id, flow)
        return told if part is None else told.within(part)

    async def waits(
        self,
        run_id: str | None = None,
        *,
        flow: str | None = None,
        kind: str | None = None,
        status: WaitStatus | Literal["open", "settled", "closed"] | None = WaitStatus.OPEN,
        limit: int = 100,
        after: str | None = None,
    ) -> list[WaitInfo]:
        """List waits, the oldest first; open ones unless told otherwise. `after` continues a listing.

        Those that wait on this machine for a store that cannot be reached come last. Of a part such as
        A17/rag, the waits of steps in it. Deadlines are listed if that is the `kind`.
        """
        check_limit(limit)
        if (flow, kind, after) != (None, None, None):
            check_asked(flow=flow, kind=kind, after=after)
        part = None
        if run_id is not None:
            run_id, part = await in_run(self._runs.reader, run_id)
        try:
            wanted = WaitStatus(status) if status is not None else None
        except ValueError:
            known = ", ".join(WaitStatus)
            raise BadRequest(f"{status!r} is not a status of waits.", fix=f"Use one of {known}.") from None
        here = [
            row
            for row in waits_here(self._services)
            if run_id in (None, row.run_id) and flow in (None, row.flow_id) and kind in (None, row.kind)
            if kind is not None or row.kind != DEADLINE_KIND
            if part is None or part.holds(row.path, row.visit)
        ]
        if after in [row.wait_id for row in here]:
            return []  # they were all on the last page
        try:
            asked = WaitFilter(
                run_id=run_id, flow_id=flow, kind=kind, status=wanted, limit=limit, after=after
            )
            rows = await self._rows(asked, part)
        except StoreUnavailable:
            if not here:
                raise
            rows = []
        if len(rows) < limit and wanted in (None, WaitStatus.OPEN):
            there = {row.wait_id for row in rows}
            rows += [row for row in here if row.wait_id not in there]
        if after is not None and not rows and await self._services.store.wait(after) is None:
            raise WaitNotFound(
                f"the list cannot go on behind wait {after!r:.60}: it is not there, or not any more.",
                fix="Begin again, without `after`.",
            )
        return [self._parts.wait(row) for row in rows]

    async def _rows(self, asked: WaitFilter, part: Part | None) -> list[WaitRow]:
        """Return waits as the store has them; some are left out, so page by page until there are enough."""

        def wanted(row: WaitRow) -> bool:
            is_meant = asked.kind is not None or row.kind != DEADLINE_KIND
            return is_meant and (part is None or part.holds(row.path, row.visit))

        rows = await self._services.store.waits(asked)
        found = [row for row in rows if wanted(row)]
        while len(rows) == asked.limit and len(found) < asked.limit:
            asked = msgspec.structs.replace(asked, after=rows[-1].wait_id)
            rows = await self._services.store.waits(asked)
            found += [row for row in rows if wanted(row)]
        return found[: asked.limit]

    async def wait(self, token_or_id: str | None) -> WaitInfo:
        """Return one wait, by its id or its token. Looking uses nothing up."""
        return self._parts.wait((await self._answers.find(token_or_id, brings=False)).row)

    async def answer(
        self,
        token_or_id: str | None,
        answer: Any = UNSAID,
        *,
        by: str | None = None,
        comment: str | None = None,
    ) -> WaitInfo:
        """Settle a wait with an answer, once. The run goes on when a worker, or `resume`, drives it.

        An answer of the wrong shape is refused and uses nothing up; so is a second one, and one that JSON
        would change without being asked to. Only a timer goes on without one.
        """
        act = act_of(by, comment)
        doing = self._answers.answer(token_or_id, answer, act)
        return self._parts.wait(
            await (
                self._parts.audited("answer", act, doing)
                if act is not None or self._services.notes_unnamed
                else doing
            )
        )

    @overload
    async def send(
        self,
        run_id: str,
        name: str,
        value: Any = None,
        *,
        id: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        drive: None = None,
    ) -> SentSignal: ...
    @overload
    async def send(
        self,
        run_id: str,
        name: str,
        value: Any = None,
        *,
        id: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        drive: Flow,
        inputs: Mapping[str, Any] | None = None,
    ) -> RunResult: ...
    @overload
    async def send(
        self,
        run_id: str,
        name: str,
        value: Any = None,
        *,
        id: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        drive: Flow | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> SentSignal | RunResult: ...
    async def send(
        self,
        run_id: str,
        name: str,
        value: Any = None,
        *,
        id: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        drive: Flow | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> SentSignal | RunResult:
        """Send a signal to a run that has not ended, whether or not it waits for one.

        It stays in the run's inbox until the run takes it: a `wait.signal` of that name, the flow's `inbox=`,
        or a node that asks. The same `id` is the same signal for as long as the run is there, so a call whose
        reply was lost may be repeated with it. Signals of one sender are taken in the order they were sent.

        With `drive`, the flow of the run, this is a turn: if `name` is the path of a wait, that is answered;
        then the run is driven to its next wait or its end, and the result returned as `run` does. If another
        process drives it, that one is followed. `inputs` start a run that is not there yet.
        """
        act = act_of(by, comment)
        if drive is not None:
            said = Said(run_id, name, value, id, act)
            turn = Turns(self._services, self._runs).take(said, drive, inputs)
            return self._parts.result(
                await (
                    self._parts.audited("send", act, turn, run_id, name)
                    if act is not None or self._services.notes_unnamed
                    else turn
                )
            )
        if inputs is not None:
            raise BadRequest("inputs start a run that is driven.", fix="Give its flow: drive=flow.")
        doing = self._inboxes.send(run_id, name, value, signal_id=id, act=act)
        if act is not None or self._services.notes_unnamed:
            doing = self._parts.audited("send", act, doing, run_id, name)
        signal_id, is_new = await doing
        return SentSignal(run_id=run_id, name=name, id=signal_id, is_new=is_new)

    async def publish(
        self,
        name: str,
        value: Any = None,
        *,
        id: str | None = None,
        keep: Span | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> PublishedEvent:
        """Publish an event: every open `wait.event` of that name whose `match` it meets goes on with it.

        With `keep`, such as `"1d"`, so do waits that open until then. No node of a run has an event of the
        same `id` twice, so a call whose reply was lost may be repeated with it.
        """
        act = act_of(by, comment)
        how: dict[str, Any] = {"event_id": id, "keep": keep, "act": act}
        doing = publish(self._services, self._runs.keeper, name, value, **how)
        event_id, settled = await (
            self._parts.audited("publish", act, doing, about=name)
            if act is not None or self._services.notes_unnamed
            else doing
        )
        return PublishedEvent(name=name, id=event_id, settled=settled)

    async def inbox(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[SignalInfo]:
        """Return what was sent to a run and was not taken yet, the oldest first; looking takes nothing."""
        check_limit(limit)
        check_number(after)
        found = await self._inboxes.look(run_id, after=after, limit=limit)
        return [SignalInfo.of(signal) for signal in found]

    async def drop_signal(
        self, run_id: str, id: str, *, by: str | None = None, comment: str | None = None
    ) -> SignalInfo:
        """Take a signal out of the inbox of a run unread, such as one that fits nothing; returns what it was.

        No process may be driving the run. A checkpoint says that it was dropped, and by whom.
        """
        act = act_of(by, comment)
        doing = drop(self._services, self._runs.resting, run_id, id, act)
        if act is not None or self._services.notes_unnamed:
            doing = self._parts.audited("drop_signal", act, doing, run_id, id)
        return SignalInfo.of(await doing)

    async def deliver(
        self,
        message: Mapping[str, Any],
        flows: Iterable[Flow],
        *,
        drive: bool = True,
        by: str | None = None,
        comment: str | None = None,
    ) -> Delivery:
        """Take in a message that lets a run go on, as a queue, a timer or `POST /resume` brings it.

        It is `{"token": ..., "answer": ...}`, `{"wait_id": ...}` if its time is over, `{"wait_id": ...,
        "answer": ...}`, or `{"checkpoint_id": ...}`. The answer is checked and settles the wait; then the run
        is driven here if its flow is among `flows` and no other process has it; without `drive` workers go on
        with it.
        """
        act = act_of(by, comment)
        delivered = await Deliveries(self._services, self._runs, self._answers).deliver(
            message, flows, act, drive=drive
        )
        outcome = delivered.outcome
        if outcome is None:
            waits = [self._parts.wait(row) for row in delivered.waits]
            return Delivery(run_id=delivered.run_id, result=None, waits=waits, resumed=None)
        result = self._parts.result(outcome)
        return Delivery(run_id=delivered.run_id, result=result, waits=result.waits, resumed=outcome.resumed)

    async def cancel(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> Status:
        """Cancel a run; `running` means that its owner was told and will stop at its next write.

        One that has something to undo is left to who has its code: a worker, or `resume`.
        """
        act = act_of(by, comment)
        doing = self._runs.cancel(run_id, act)
        return await (
            self._parts.audited("cancel", act, doing, run_id)
            if act is not None or self._services.notes_unnamed
            else doing
        )

    async def undo(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> Status:
        """Undo what a run did: cancel an unfinished one with undo, or undo one that failed or was cancelled.

        What undoes its steps is called by who has its code: its owner, a worker, or `resume`. A completed run
        is refused.
        """
        act = act_of(by, comment)
        doing = self._runs.undo(run_id, act)
        return await (
            self._parts.audited("undo", act, doing, run_id)
            if act is not None or self._services.notes_unnamed
            else doing
        )

    async def history(
        self, run_id: str, *, last: int | None = None, count: int | None = None, after: int | None = None
    ) -> list[CheckpointRecord]:
        """Return the checkpoints of a run up to `last`, oldest first, each with the digest that covers it.

        With `count`, only so many of the newest; no others are read. With `after`, those behind that sequence
        and of these the first `count`, so that a long run can be read page by page. Of a part such as
        A17/rag, the checkpoints that hold steps of it, with those steps.
        """
        if count is not None:
            check_limit(count)
        run_id, at, part = await addressed(self._runs.reader, run_id)
        if at is not None:
            last = (await self._runs.reader.find(run_id, at))[1] if last is None else last
        return await history(self._runs.reader, run_id, last, count=count, after=after, part=part)

    async def state(self, run_id: str, at: int | str | None = None) -> RunState:
        """Return the values of a run at a checkpoint, given by sequence or id; by default the newest.

        An address such as A17@3 names both the run and the sequence. Of a part such as A17/rag, or A17@3/rag,
        the values inside it, under their whole names; of a node that is no flow, what it writes.
        """
        run_id, at, part = await addressed(self._runs.reader, run_id, at)
        return RunState(run_id, await self._runs.reader.look_back(run_id, at), part)

    async def channel(self, run_id: str) -> dict[str, Any]:
        """Return the channel of a run as it is now, wherever it is kept."""
        return await current_channel(self._services, self._runs.reader, run_id)

    async def fork(
        self,
        run_id: str,
        *,
        at: int | str | None = None,
        inputs: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        channel: Mapping[str, Any] | None = None,
        fork_id: str | None = None,
        keep_keys: bool = False,
        choose_again: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Make a run that goes on from a checkpoint of another, with what you edit; `resume` drives it.

        `at` is a sequence or a checkpoint id, by default the newest; RUN@N says the same. Nothing is copied.
        What read an edited value runs again. Idempotency keys differ from the original's unless `keep_keys`.
        With `choose_again`, gates whose choice nothing has acted on yet choose once more, as an edit of the
        channel may want. A part such as A17@3/rag is forked with its run; `state` then names what is inside.
        """
        act = act_of(by, comment)

        async def make() -> RunRow:
            name, sequence, part = await addressed(self._runs.reader, run_id, at)
            values = state or {}
            if part is not None:
                values = {part.within(one): value for one, value in values.items()}
            edits = Edits(inputs or {}, values, channel or {})
            how: dict[str, Any] = {"fork_id": fork_id, "keep_keys": keep_keys, "choose_again": choose_again}
            return await fork(self._services, self._runs.reader, name, sequence, edits, act=act, **how)

        return self._parts.info(await self._parts.audited("fork", act, make(), run_id))

    async def checkpoints(
        self, run_id: str, *, first: int = 1, last: int | None = None
    ) -> list[CheckpointInfo]:
        """List the checkpoints of a run between two sequences, oldest first, those a fork shares included.

        Of a part such as A17/rag, those that hold steps of it.
        """
        run_id, part = await in_run(self._runs.reader, run_id)
        found = await self._runs.reader.lineage.open(await self._runs.reader.row(run_id), first, last)
        infos = [CheckpointInfo.of(link, opened, part) for link, opened in found]
        return infos if part is None else [info for info in infos if info.steps]

    async def latest(self, run_id: str) -> CheckpointInfo:
        """Return the newest checkpoint of a run, whichever part of it is named."""
        row = await self._runs.reader.row((await in_run(self._runs.reader, run_id))[0])
        read = await self._runs.reader.lineage.read(row, row.checkpoints, needs_values=False)
        return CheckpointInfo.of(*read)

    async def runs(
        self,
        *,
        where: str | None = None,
        flow: str | None = None,
        status: Status | str | None = None,
        parent: str | None = None,
        needs_repair: bool = False,
        paused: bool = False,
        pinned: bool = False,
        tag: str | Iterable[str] = (),
        attribute: str | Iterable[str] | Mapping[str, AttributeValue] = (),
        labels: bool = False,
        limit: int = 100,
        before: str | None = None,
        **more: Unpack[RunConditions],
    ) -> RunPage:
        """List runs, newest first; with `parent`, the forks of that run.

        With `needs_repair`, those that workers leave alone because they are damaged; with `paused`, those
        that are paused, each by itself; with `pinned`, those that retention leaves alone. With `where`, those
        that a query asks for, and that the others leave:
        `where="status = failed and flow = orders and started > -2d"`. With `tag`, such as `"vip"` or
        `["vip", "team=blue"]`, and `attribute`, such as `"customer=7"` or `{"customer": "7"}`, those that
        have all of them. With `labels`, each run is shown with its tags and attributes, and with when it
        changed if the query asks for `changed`. More arguments are fields of a query: `version`, `id_prefix`,
        `group`, `owner`, `waiting` (a kind), `waiting_at` (a node), `error` (a part of it), `error_code`,
        `undoing`, and `since` (from then on), `until` (before) of `started`, `ended` and `changed`:
        `started_since="-2d"`.

        A call looks at 5,000 runs at most, so a page may have fewer than `limit`: it goes on with
        `before=page.next` unless that is none.
        """
        check_limit(limit)
        for name in filter(None, (parent, before)):
            check_run_id(name)
        if flow is not None:
            check_asked(flow=flow)
        narrowed = RunFilter(
            flow_id=flow,
            status=None if status is None else _status_of(status),
            parent_run_id=parent,
            needs_repair=needs_repair,
            paused=paused,
            pinned=pinned,
            limit=limit,
            before=before,
        )
        rows: list[RunRow]
        changed: Mapping[str, datetime] = {}
        argued = given_of(more) if more else {}
        if where is None and not tag and not attribute and not argued:
            rows = await self._services.store.list(narrowed)
            following = rows[-1].run_id if len(rows) == limit else None
        else:
            query = query_of(where, tag, attribute, self._services.time.now(), argued)
            rows, following, changed = await find(self._services, self._runs.reader, narrowed, query)
            labels = labels or asks_for_undoing(query)  # which are kept together
        if not rows and following is None:
            await check_goes_on(self._runs.reader, before)
        infos = (
            await self._parts.infos(rows, changed)
            if labels or tag or attribute
            else [self._parts.info(row, changed_at=changed.get(row.run_id)) for row in rows]
        )
        return RunPage(infos, following)

    async def info(self, run_id: str) -> RunInfo:
        """Return one run's line with its labels; of a part such as A17/rag, that of its run."""
        row = await self._runs.reader.row((await in_run(self._runs.reader, run_id))[0])
        return (await self._parts.infos([row]))[0]

    async def find(self, name: str) -> RunInfo:
        """Return the run that its id, its newest checkpoint's id, or a token of one of its waits names."""
        return (await self._parts.infos([await self._runs.reader.named(name)]))[0]

    async def close(self) -> None:
        """Release threads and connections. Runs under way stop with `HostClosed`, wherever they are driven.

        What has finished of them is kept, and they can be resumed at once. A sync node is waited for, up to
        half a minute.
        """
        await self._runs.stop()
        await self._after_run.close()
        await self._runs.close()
        self._services.close()
        await self._services.store.close()
        if self._home is not None:
            await self._home.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _scheme(url: str) -> str:
    return url.partition(":")[0]


def _status_of(status: Status | str) -> Status:
    try:
        return Status(status)
    except ValueError:
        known = ", ".join(s.value for s in Status if s is not Status.RETRYING)
        raise BadRequest(f"{status!r} is not a status of runs.", fix=f"Use one of {known}.") from None
