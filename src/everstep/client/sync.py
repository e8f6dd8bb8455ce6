"""`Host`: `AsyncHost` for code that does not await. No logic of its own.

Made by `scripts/generate_host.py` from `host.py` and `groups/`: change those, and run it.

Each call drives an event loop of its own on the caller's thread, so a sync node runs where the caller is,
Ctrl-C reaches it, and threads that share a host do not wait for one another.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, overload

from everstep.client.host import AsyncHost
from everstep.client.lanes import Lanes
from everstep.client.moved import with_moved_calls
from everstep.errors import BadRequest
from everstep.model.enums import Mode
from everstep.model.waits import UNSAID, WaitStatus
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path
    from typing import Any, Literal, Unpack

    from everstep.client import sync_groups
    from everstep.client.looking.changes import Changes
    from everstep.client.queries import RunConditions
    from everstep.client.streaming import streamed_here
    from everstep.client.sync_groups import (
        SyncDebugCalls,
        SyncFleetCalls,
        SyncNoticeCalls,
        SyncRetentionCalls,
        SyncScheduleCalls,
        SyncStorageCalls,
        SyncTransferCalls,
        SyncVersionCalls,
        SyncWaitingCalls,
    )
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
        WaitInfo,
    )
    from everstep.codec.chain import Codec
    from everstep.codec.keyring import KeyRing
    from everstep.codec.values import Values
    from everstep.graph.author.flow import Flow
    from everstep.graph.check.validate import Offers, Rule
    from everstep.graph.tells import Telling
    from everstep.model.commits import AttributeValue
    from everstep.model.durability import DurabilityMode
    from everstep.model.durations import Span
    from everstep.model.enums import Status
    from everstep.model.records import CheckpointRecord
    from everstep.model.retention import Retention
    from everstep.ports.durability import HostDurability, Notifier, ResumeScheduler
    from everstep.ports.system import Clock, Ids
    from everstep.ports.tracing import Tracing
    from everstep.registry import Opened
    from everstep.runtime.events import Event, Listener
    from everstep.runtime.outage.spool import Spool
    from everstep.runtime.travel.explain import Explanation
    from everstep.runtime.workers.worker import Stats
else:
    sync_groups = on_demand("everstep.client.sync_groups")
    streamed_here = on_demand("everstep.client.streaming:streamed_here")


async def _next_event(events: AsyncGenerator[Any, None]) -> Any:
    return await anext(events, None)


async def _close(events: AsyncGenerator[Any, None]) -> None:
    await events.aclose()


@with_moved_calls
class Host:
    """Runs flows and keeps what they do. Without a URL, in a SQLite file under `./.everstep/`.

    What most programs need is here; the rest is in groups, such as `host.retention.gc()`.
    """

    def __init__(
        self,
        url: str | Opened | None = None,
        *,
        on_event: Listener | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        max_threads: int = 32,
        create: bool = True,
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
        self._host = AsyncHost(
            url,
            on_event=on_event,
            clock=clock,
            ids=ids,
            max_threads=max_threads,
            create=create,
            key=key,
            base_url=base_url,
            schedulers=schedulers,
            scheduler=scheduler,
            notifiers=notifiers,
            notify=notify,
            max_durability_mode=max_durability_mode,
            provides=provides,
            spool=spool,
            rules=rules,
            channel=channel,
            queue=queue,
            blobs=blobs,
            encrypt=encrypt,
            compress=compress,
            codecs=codecs,
            allow_pickle=allow_pickle,
            retention=retention,
            tracing=tracing,
            metrics=metrics,
            owns_loop=True,
        )
        self._lanes = Lanes(self._host)

    @property
    def url(self) -> str:
        """Where its runs are kept."""
        return self._host.url

    @property
    def debug(self) -> SyncDebugCalls:
        """Find out what happened: two runs compared, the first step that differs, one step again."""
        return sync_groups.SyncDebugCalls(self._lanes)

    @property
    def versions(self) -> SyncVersionCalls:
        """Runs of a flow that has changed since they began."""
        return sync_groups.SyncVersionCalls(self._lanes)

    @property
    def waiting(self) -> SyncWaitingCalls:
        """Waits that are settled otherwise than by an answer, and their tokens."""
        return sync_groups.SyncWaitingCalls(self._lanes)

    @property
    def notices(self) -> SyncNoticeCalls:
        """What people and systems are told of runs, and whether it was sent."""
        return sync_groups.SyncNoticeCalls(self._lanes)

    @property
    def fleet(self) -> SyncFleetCalls:
        """Workers, what they share, and runs for them to drive."""
        return sync_groups.SyncFleetCalls(self._lanes)

    @property
    def schedules(self) -> SyncScheduleCalls:
        """Runs that are started again and again by the clock."""
        return sync_groups.SyncScheduleCalls(self._lanes)

    @property
    def retention(self) -> SyncRetentionCalls:
        """How long runs are kept: clean-up, pins, erasing."""
        return sync_groups.SyncRetentionCalls(self._lanes)

    @property
    def transfer(self) -> SyncTransferCalls:
        """Whole runs carried elsewhere: bundles, copies to other stores, folders of plain files."""
        return sync_groups.SyncTransferCalls(self._lanes)

    @property
    def storage(self) -> SyncStorageCalls:
        """The store itself: its health, whether what it keeps is sound, what waits for it on this machine."""
        return sync_groups.SyncStorageCalls(self._lanes)

    @property
    def clock(self) -> Clock:
        """The clock that its runs go by."""
        return self._host.clock

    @property
    def durability(self) -> HostDurability:
        """The services that waiting rests on, as far as this host has them."""
        return self._host.durability

    @property
    def offers(self) -> Offers:
        """What this host has for the flows that run on it, as `validate` asks for it."""
        return self._host.offers

    @property
    def values(self) -> Values:
        """How values become bytes; register serializers for types of your own here."""
        return self._host.values

    def run(
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
        return self._lanes.call(
            lambda host: host.run(
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
            )
        )

    def stream(
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
    ) -> Iterator[Event]:
        """Run a flow as `run` does, and yield what happens as it comes: steps, emitted data, chunks, its end.

        The last event is `result`, with the result in its data; what `run` would raise is raised. A reader
        that is too slow misses events and gets a `gap`; the run does not wait for it. Closing the generator
        early stops the drive: what has finished is kept, and the run can be resumed.
        """

        yield from streamed_here(
            self._lanes.aside,
            self._host.clock,
            lambda host, told: host._telling(told).run(
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
        )

    def start(
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
        return self._lanes.call(
            lambda host: host.start(
                flow,
                inputs,
                run_id=run_id,
                channel=channel,
                at=at,
                after=after,
                deadline=deadline,
                priority=priority,
                group=group,
                tags=tags,
                attributes=attributes,
                by=by,
                comment=comment,
            )
        )

    def resume(
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
        return self._lanes.call(
            lambda host: host.resume(
                run_id,
                flow,
                start=start,
                wait=wait,
                at_once=at_once,
                fallback=fallback,
                deadline=deadline,
                by=by,
                comment=comment,
            )
        )

    def work(
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
        return self._lanes.call(
            lambda host: host.work(flows, concurrency=concurrency, per_flow=per_flow, until_idle=until_idle)
        )

    def events(self, run_id: str, *, after: str | None = None, live: bool = True) -> Iterator[Event]:
        """Yield the events of a run as its records tell them, those still to come too until it has ended.

        `after` is the id of an event to go on from. Of a part such as A17/rag, the events of steps in it.
        """

        events = self._host.twin().events(run_id, after=after, live=live)
        try:
            while (event := self._lanes.call(lambda _: _next_event(events))) is not None:
                yield event
        finally:
            with suppress(BadRequest):  # the host is closed
                self._lanes.call(lambda _: _close(events))

    def follow(self, run_id: str, *, after: str | None = None) -> Iterator[Event]:
        """Yield the events of a run that any process drives, with what its nodes emit and yield, to its end.

        Steps come from its records; what is emitted comes if its flow has `streams=True`, as long as it is
        kept. `after` is the id of an event to go on from. What is no longer there is an event `gap`. Of a
        part such as A17/rag, the events of steps in it.
        """

        events = self._host.twin().follow(run_id, after=after)
        try:
            while (event := self._lanes.call(lambda _: _next_event(events))) is not None:
                yield event
        finally:
            with suppress(BadRequest):  # the host is closed
                self._lanes.call(lambda _: _close(events))

    def changes(
        self, run_ids: str | Iterable[str] = (), *, after: str | None = None, live: bool = True
    ) -> Iterator[Changes]:
        """Yield which runs of the store change, in any process, at most four times a second.

        Of all runs, or of those that are named. The first message says that from now on nothing is missed;
        `after` is the id of one to go on from. Only ids, sequences and statuses are told. Of all runs these
        are seen to change: those that are driven, the 200 newest, and the 200 newest that wait. Without
        `live`, one message with all that has changed since `after`.
        """

        events = self._host.twin().changes(run_ids, after=after, live=live)
        try:
            while (event := self._lanes.call(lambda _: _next_event(events))) is not None:
                yield event
        finally:
            with suppress(BadRequest):  # the host is closed
                self._lanes.call(lambda _: _close(events))

    def explain(self, run_id: str, flow: Flow) -> Explanation:
        """Say what a resume would skip, start, repeat and miss. Nothing is called or written.

        Of a part such as A17/rag, only which of its steps.
        """
        return self._lanes.call(lambda host: host.explain(run_id, flow))

    def waits(
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
        return self._lanes.call(
            lambda host: host.waits(run_id, flow=flow, kind=kind, status=status, limit=limit, after=after)
        )

    def wait(self, token_or_id: str | None) -> WaitInfo:
        """Return one wait, by its id or its token. Looking uses nothing up."""
        return self._lanes.call(lambda host: host.wait(token_or_id))

    def answer(
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
        return self._lanes.call(lambda host: host.answer(token_or_id, answer, by=by, comment=comment))

    @overload
    def send(
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
    def send(
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
    def send(
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
    def send(
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
        return self._lanes.call(
            lambda host: host.send(
                run_id, name, value, id=id, by=by, comment=comment, drive=drive, inputs=inputs
            )
        )

    def publish(
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
        return self._lanes.call(
            lambda host: host.publish(name, value, id=id, keep=keep, by=by, comment=comment)
        )

    def inbox(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[SignalInfo]:
        """Return what was sent to a run and was not taken yet, the oldest first; looking takes nothing."""
        return self._lanes.call(lambda host: host.inbox(run_id, after=after, limit=limit))

    def drop_signal(
        self, run_id: str, id: str, *, by: str | None = None, comment: str | None = None
    ) -> SignalInfo:
        """Take a signal out of the inbox of a run unread, such as one that fits nothing; returns what it was.

        No process may be driving the run. A checkpoint says that it was dropped, and by whom.
        """
        return self._lanes.call(lambda host: host.drop_signal(run_id, id, by=by, comment=comment))

    def deliver(
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
        return self._lanes.call(
            lambda host: host.deliver(message, flows, drive=drive, by=by, comment=comment)
        )

    def cancel(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> Status:
        """Cancel a run; `running` means that its owner was told and will stop at its next write.

        One that has something to undo is left to who has its code: a worker, or `resume`.
        """
        return self._lanes.call(lambda host: host.cancel(run_id, by=by, comment=comment))

    def undo(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> Status:
        """Undo what a run did: cancel an unfinished one with undo, or undo one that failed or was cancelled.

        What undoes its steps is called by who has its code: its owner, a worker, or `resume`. A completed run
        is refused.
        """
        return self._lanes.call(lambda host: host.undo(run_id, by=by, comment=comment))

    def history(
        self, run_id: str, *, last: int | None = None, count: int | None = None, after: int | None = None
    ) -> list[CheckpointRecord]:
        """Return the checkpoints of a run up to `last`, oldest first, each with the digest that covers it.

        With `count`, only so many of the newest; no others are read. With `after`, those behind that sequence
        and of these the first `count`, so that a long run can be read page by page. Of a part such as
        A17/rag, the checkpoints that hold steps of it, with those steps.
        """
        return self._lanes.call(lambda host: host.history(run_id, last=last, count=count, after=after))

    def state(self, run_id: str, at: int | str | None = None) -> RunState:
        """Return the values of a run at a checkpoint, given by sequence or id; by default the newest.

        An address such as A17@3 names both the run and the sequence. Of a part such as A17/rag, or A17@3/rag,
        the values inside it, under their whole names; of a node that is no flow, what it writes.
        """
        return self._lanes.call(lambda host: host.state(run_id, at))

    def channel(self, run_id: str) -> dict[str, Any]:
        """Return the channel of a run as it is now, wherever it is kept."""
        return self._lanes.call(lambda host: host.channel(run_id))

    def fork(
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
        return self._lanes.call(
            lambda host: host.fork(
                run_id,
                at=at,
                inputs=inputs,
                state=state,
                channel=channel,
                fork_id=fork_id,
                keep_keys=keep_keys,
                choose_again=choose_again,
                by=by,
                comment=comment,
            )
        )

    def checkpoints(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[CheckpointInfo]:
        """List the checkpoints of a run between two sequences, oldest first, those a fork shares included.

        Of a part such as A17/rag, those that hold steps of it.
        """
        return self._lanes.call(lambda host: host.checkpoints(run_id, first=first, last=last))

    def latest(self, run_id: str) -> CheckpointInfo:
        """Return the newest checkpoint of a run, whichever part of it is named."""
        return self._lanes.call(lambda host: host.latest(run_id))

    def runs(
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
        return self._lanes.call(
            lambda host: host.runs(
                where=where,
                flow=flow,
                status=status,
                parent=parent,
                needs_repair=needs_repair,
                paused=paused,
                pinned=pinned,
                tag=tag,
                attribute=attribute,
                labels=labels,
                limit=limit,
                before=before,
                **more,
            )
        )

    def info(self, run_id: str) -> RunInfo:
        """Return one run's line with its labels; of a part such as A17/rag, that of its run."""
        return self._lanes.call(lambda host: host.info(run_id))

    def find(self, name: str) -> RunInfo:
        """Return the run that its id, its newest checkpoint's id, or a token of one of its waits names."""
        return self._lanes.call(lambda host: host.find(name))

    def close(self) -> None:
        """Release threads and connections. Runs under way stop with `HostClosed`, wherever they are driven.

        What has finished of them is kept, and they can be resumed at once. A sync node is waited for, up to
        half a minute.
        """
        self._lanes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
