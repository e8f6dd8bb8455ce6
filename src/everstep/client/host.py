"""`AsyncHost`: the services a run needs, behind one URL."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from everstep.client.diff import Diff, compare_states
from everstep.client.host_carrying import HostCarrying
from everstep.client.host_checks import HostChecks
from everstep.client.host_guards import HostGuards, counted
from everstep.client.host_retention import HostRetention
from everstep.client.host_waits import HostWaits, check_limit
from everstep.client.surroundings import codecs_of, make_own_folder, spool_folder
from everstep.client.views import (
    CheckpointInfo,
    Compat,
    Delivery,
    Divergence,
    Explanation,
    Replay,
    RunInfo,
    RunResult,
    RunState,
    WorkerInfo,
)
from everstep.codec.chain import Codec
from everstep.codec.keyring import KeyRing
from everstep.codec.values import Values
from everstep.engine.leases import seconds_left
from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.graph.check.validate import Offers, Rule
from everstep.model.acts import act_of
from everstep.model.durability import Durability
from everstep.model.durations import Span
from everstep.model.enums import Mode, Status
from everstep.model.records import CheckpointRecord
from everstep.model.retention import Retention
from everstep.ports.durability import HostDurability, Notifier, ResumeScheduler
from everstep.ports.store import Counts, RunFilter, RunRow
from everstep.ports.system import Clock, Ids, uptime
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
from everstep.runtime.addresses import addressed, in_run
from everstep.runtime.doctor import Diagnosis, examine
from everstep.runtime.drive.external_channel import current_channel
from everstep.runtime.events import Event, Listener
from everstep.runtime.host_durability import Bundle
from everstep.runtime.inputs import Given
from everstep.runtime.integrity.fallback import resume_with_fallback
from everstep.runtime.outage.outbox import Drained, drain_all
from everstep.runtime.outage.spool import Spool
from everstep.runtime.outage.spooled_view import ahead, read_waiting
from everstep.runtime.record_events import Tailing
from everstep.runtime.rekey import Rekeyed, rekey
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.runs import Outcome, Runs, gone_on
from everstep.runtime.services import Drivable, Services
from everstep.runtime.system import ProcFs, SystemClock, SystemIds
from everstep.runtime.travel.bisect import bisect
from everstep.runtime.travel.explain import explain
from everstep.runtime.travel.fork import Edits, fork
from everstep.runtime.travel.migrate import migrate, rehearse
from everstep.runtime.travel.recall import recall
from everstep.runtime.travel.replay import replay
from everstep.runtime.waits.answers import Answers
from everstep.runtime.waits.delivery import Deliveries
from everstep.runtime.workers.lease_renewal import LeaseKeeper
from everstep.runtime.workers.worker import GRACE, Stats, Worker


class AsyncHost(HostWaits, HostCarrying, HostChecks, HostGuards, HostRetention):
    """Runs flows and keeps what they do. Without a URL, in a SQLite file under `./.everstep/`."""

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
        max_durability_mode: Mode | Literal["off", "partial", "strong"] = Mode.STRONG,
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
    ) -> None:
        clock = clock or SystemClock()
        if url is None and create:
            make_own_folder()
        opened = url if isinstance(url, Opened) else open_store(url or DEFAULT_URL, clock, create=create)
        self.url = opened.url
        self._schemes = {"queue": _scheme(queue or opened.url), "channel": _scheme(channel or opened.url)}
        blobs = os.environ.get("EVERSTEP_BLOBS") or None if blobs is None else blobs
        self._home: Closes = None
        if blobs is not None:
            opened, self._home = with_blobs(opened, blobs, clock, create=create)
        self._services = Services(
            store=opened.store,
            blobs=opened.blobs,
            clock=clock,
            ids=ids or SystemIds(),
            processes=ProcFs(),
            values=Values(allow_pickle=allow_pickle),
            listener=on_event,
            owns_loop=owns_loop,
            max_threads=max_threads,
            key=os.environ.get("EVERSTEP_KEY") or None if key is None else key,
            base_url=base_url,
            schedulers=schedulers,
            scheduler=scheduler,
            notifiers=notifiers,
            max_mode=Mode.OFF if opened.url == NO_STORE else Durability(max_durability_mode).mode,
            provides=provides,
            spool=spool if isinstance(spool, Spool) else Spool(spool_folder(opened.url, spool)),
            rules=rules,
            channels=open_channels(channel) if channel is not None else None,
            queue=open_queue(queue, clock) if queue is not None else None,
            codecs=codecs_of(encrypt, compress, codecs),
        )
        self._runs = Runs(self._services, LeaseKeeper(opened.store, clock))
        self._tailing = Tailing(self._services, self._runs)
        self._answers = Answers(self._services, self._runs.keeper)
        self._keep_by(retention)

    def twin(self) -> Self:
        """Return this host for another event loop: the same store, leases and types, commits of its own."""
        twin = object.__new__(type(self))
        twin.url = self.url
        twin._schemes = self._schemes
        twin._home = None
        twin._services = self._services.twin()
        twin._runs = Runs(twin._services, self._runs.keeper)
        twin._tailing = Tailing(twin._services, twin._runs)
        twin._answers = Answers(twin._services, self._runs.keeper)
        twin._retention, twin._afterwards = self._retention, self._afterwards
        return twin

    @property
    def driving(self) -> set[Drivable]:
        """What drives runs on this host's loop right now."""
        return self._services.driving

    @property
    def schemes(self) -> dict[str, str]:
        """Where queued tasks and channels of new runs are kept: `sqlite`, `redis`."""
        return dict(self._schemes)

    @property
    def clock(self) -> Clock:
        """The clock that its runs go by."""
        return self._services.clock

    @property
    def spool(self) -> Path:
        """The folder where checkpoints wait while its store is out of reach."""
        return self._services.spool.folder

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
        priority: int = 0,
        group: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunResult:
        """Run a flow to its end, or until it halts, with these values in its channel.

        A run that halts waits for answers; `wait` stays with it through its waits. `priority` and `group` are
        for workers that go on with it. `by` says who starts or continues it and `comment` why, as on every
        other call that has them; both are kept with what the call writes.

        With the id of an unfinished run it continues that one; with the id of a finished one it returns the
        recorded result and runs nothing. Other inputs than the recorded ones are refused.
        """
        given = Given(inputs, channel, priority, group, act_of(by, comment))
        return self._result(await self._runs.run(flow, given, run_id, wait=wait))

    async def start(
        self,
        flow: Flow,
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        channel: Mapping[str, Any] | None = None,
        priority: int = 0,
        group: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Accept a run durably and return at once; a worker drives it, or `resume`.

        The higher its `priority`, the sooner. Runs of a flow with the same `group` take turns with those of
        other groups, and `Flow(max_per_group=...)` says how many of them may be driven at once.
        """
        given = Given(inputs, channel, priority, group, act_of(by, comment))
        return self._info(await self._runs.start(flow, given, run_id))

    async def resume(
        self,
        run_id: str,
        flow: Flow,
        *,
        start: str | None = None,
        wait: bool = False,
        at_once: bool = False,
        fallback: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunResult:
        """Continue a run. One that failed is reopened at the node that failed, with a fresh retry budget.

        It may be named by its id, by an address inside it, by its newest checkpoint, or by a token of a wait.
        With `start` it begins at that node instead, whatever was due. `wait` stays through its waits.
        With `at_once`, a run that another process has is a `LeaseConflict` now, not when its lease runs out.
        With `fallback`, a run whose newest checkpoints are damaged goes on from its newest valid one, as a
        fork; the result's `fallback` says which, and what may be done twice.
        """
        run_id, at, _ = await addressed(self._runs, run_id)
        if at is not None:
            row, sequence = await self._runs.find(run_id, at)
            if sequence != row.checkpoints:
                raise gone_on(row, sequence)
        go_on = partial(resume_with_fallback, self._services, self._runs) if fallback else self._runs.resume
        how: dict[str, Any] = {"wait": wait, "is_patient": not at_once, "act": act_of(by, comment)}
        return self._result(await go_on(run_id, flow, start, **how))

    async def reopen(
        self,
        run_id: str,
        flow: Flow,
        *,
        start: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Let a run that failed or was abandoned go on, as `resume` does, but leave it to workers to drive.

        With `start` it begins at that node, whatever was due, also if it has ended otherwise.
        """
        run_id, _ = await in_run(self._runs, run_id)
        return self._info(await self._runs.reopen(run_id, flow, start, act=act_of(by, comment)))

    def _result(self, outcome: Outcome) -> RunResult:
        waits = [self._wait(row, outcome.tokens.get(row.wait_id)) for row in outcome.waits]
        return RunResult(outcome, waits, self._services.clock.now())

    def worker(
        self,
        flows: Iterable[Flow],
        *,
        concurrency: int = 32,
        per_flow: Mapping[str, int] | None = None,
        grace: Span = GRACE,
    ) -> Worker:
        """Return a worker for these flows; `await worker.run()` works until `worker.stop()`."""
        return Worker(
            self._services, self._runs, flows, concurrency=concurrency, per_flow=per_flow, grace=grace
        )

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
        run_id, part = await in_run(self._runs, run_id)
        async with aclosing(self._tailing.follow(run_id, after, live=live)) as events:
            async for event in events:
                if part is None or (event.node is not None and part.holds(event.node, event.visit)):
                    yield event

    async def compat(self, run_id: str, flow: Flow) -> Compat:
        """Say whether a run can go on with this flow, and what stands in its way. Nothing is written."""
        run_id, _ = await in_run(self._runs, run_id)
        services, runs = await ahead(self._services, self._runs, check_run_id(run_id))
        return (await rehearse(services, runs, await runs.row(run_id), flow)).compat

    async def explain(self, run_id: str, flow: Flow) -> Explanation:
        """Say what a resume would skip, start, repeat and miss. Nothing is called or written.

        Of a part such as A17/rag, only which of its steps.
        """
        run_id, part = await in_run(self._runs, run_id)
        told = await explain(self._services, self._runs, run_id, flow)
        return told if part is None else told.within(part)

    async def migrate(
        self,
        run_id: str,
        flow: Flow,
        *,
        dry_run: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> Compat:
        """Take a run over to this version of its flow without driving it, and say what changed.

        With `dry_run` all of it is tried on a copy, up-casts too, and nothing is written.
        """
        services, runs, act = self._services, self._runs, act_of(by, comment)
        if dry_run:
            services, runs = await ahead(services, runs, check_run_id(run_id))
        return await migrate(services, runs, run_id, flow, dry_run=dry_run, act=act)

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
            return Delivery(delivered.run_id, None, [self._wait(row) for row in delivered.waits], None)
        result = self._result(outcome)
        return Delivery(delivered.run_id, result, result.waits, outcome.resumed)

    async def workers(self) -> list[WorkerInfo]:
        """List the workers that are alive, the longest serving first, with what they drive."""
        rows, is_gone = await self._services.store.workers(), self._services.processes.is_gone
        return [WorkerInfo(row) for row in rows if row.process is None or not is_gone(row.process)]

    async def counts(self) -> Counts:
        """Count runs by status and open waits by kind, and what runs driven here have spent."""
        return await counted(self._services)

    async def spooled(self, run_id: str) -> list[CheckpointRecord]:
        """Return the checkpoints of a run that wait on this machine for its store, oldest first."""
        found = await read_waiting(self._services, await self._runs.row(run_id))
        return [msgspec.structs.replace(one.record, digest=one.digest.hex()) for one in found]

    async def doctor(self) -> Diagnosis:
        """Look at the store: can it be written to, how fast, and what can it lose as it is set up now."""
        return await examine(self._services, self.url)

    async def drain(self) -> list[Drained]:
        """Bring checkpoints that wait on this machine to the store; says what became of each run's.

        Those of a run that has gone on without them become a fork of it.
        """
        drained, errors = await drain_all(self._services)
        if errors:
            raise errors[0]
        return drained

    async def rekey(
        self,
        run_id: str | None = None,
        *,
        dry_run: bool = False,
        on_run: Callable[[Rekeyed], object] | None = None,
    ) -> list[Rekeyed]:
        """Encrypt what is kept of a run, or of every run, with the active key; says what was done to each.

        Digests stay, runs may be driven meanwhile, and what has the key already is passed by. `on_run` is
        told of each run when it is done. With `dry_run` nothing is written.
        """
        return await rekey(self._services, self._runs, run_id, dry_run=dry_run, on_run=on_run)

    async def cancel(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> Status:
        """Cancel a run; `running` means that its owner was told and will stop at its next write."""
        return await self._runs.cancel(run_id, act_of(by, comment))

    async def history(
        self, run_id: str, *, last: int | None = None, count: int | None = None
    ) -> list[CheckpointRecord]:
        """Return the checkpoints of a run up to `last`, oldest first, each with the digest that covers it.

        With `count`, only so many of the newest; no others are read. Of a part such as A17/rag, the
        checkpoints that hold steps of it, with those steps.
        """
        if count is not None:
            check_limit(count)
        run_id, at, part = await addressed(self._runs, run_id)
        if at is not None:
            last = (await self._runs.find(run_id, at))[1] if last is None else last
        return await self._runs.history(run_id, last, count=count, part=part)

    async def state(self, run_id: str, at: int | str | None = None) -> RunState:
        """Return the values of a run at a checkpoint, given by sequence or id; by default the newest.

        An address such as A17@3 names both the run and the sequence. Of a part such as A17/rag, or A17@3/rag,
        the values inside it, under their whole names; of a node that is no flow, what it writes.
        """
        run_id, at, part = await addressed(self._runs, run_id, at)
        return RunState(run_id, await self._runs.look_back(run_id, at), part)

    async def channel(self, run_id: str) -> dict[str, Any]:
        """Return the channel of a run as it is now, wherever it is kept."""
        return await current_channel(self._services, self._runs, run_id)

    async def recall(self, run_id: str, versions: Collection[tuple[str, int]]) -> dict[tuple[str, int], Any]:
        """Return values as steps wrote them, by whole name and version, also those overwritten since.

        Where one cannot be read, what stands in its place says why.
        """
        return await recall(self._runs, run_id, versions)

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
        run_id, at, part = await addressed(self._runs, run_id, at)
        state = state or {}
        if part is not None:
            state = {part.within(name): value for name, value in state.items()}
        edits = Edits(inputs or {}, state, channel or {})
        how: dict[str, Any] = {"fork_id": fork_id, "keep_keys": keep_keys, "act": act_of(by, comment)}
        how["choose_again"] = choose_again
        return self._info(await fork(self._services, self._runs, run_id, at, edits, **how))

    async def checkpoints(
        self, run_id: str, *, first: int = 1, last: int | None = None
    ) -> list[CheckpointInfo]:
        """List the checkpoints of a run between two sequences, oldest first, those a fork shares included.

        Of a part such as A17/rag, those that hold steps of it.
        """
        run_id, part = await in_run(self._runs, run_id)
        found = await self._runs.lineage.open(await self._runs.row(run_id), first, last)
        infos = [CheckpointInfo.of(link, opened, part) for link, opened in found]
        return infos if part is None else [info for info in infos if info.steps]

    async def latest(self, run_id: str) -> CheckpointInfo:
        """Return the newest checkpoint of a run, whichever part of it is named."""
        row = await self._runs.row((await in_run(self._runs, run_id))[0])
        return CheckpointInfo.of(*await self._runs.lineage.read(row, row.checkpoints, needs_values=False))

    async def diff(
        self,
        run_id: str,
        other: str | None = None,
        *,
        start: int | str | None = None,
        end: int | str | None = None,
    ) -> Diff:
        """Compare a run at `start` with `other`, or with itself, at `end`: values, nodes and status.

        Both are sequences or checkpoint ids. `end` is the newest by default; so is `start` if there is
        another run, and otherwise the oldest that was not removed. Of parts such as A17/rag or A17/check#7
        what lies inside is compared, whatever they are called.
        """
        if other is not None:
            before = await self.state(run_id, start)
            return compare_states(before, await self.state(other, end), self.values)
        name, at, part = await addressed(self._runs, run_id)
        if at is not None and start is not None:
            raise BadRequest("the checkpoint is given twice.", fix=f"Leave out `start`, or write {name}.")
        if at is None:
            at = max(1, (await self.info(name)).trimmed_before) if start is None else start
        # A part may have begun after the first of the two.
        before = RunState(name, await self._runs.look_back(name, at), part)
        return compare_states(
            before, RunState(name, await self._runs.look_back(name, end), part), self.values
        )

    async def bisect(self, good: str, bad: str) -> Divergence | None:
        """Return the first step of a bad run that a good one lacks, or that came out differently there.

        None if every finished step of the bad run is the same in the good one.
        """
        return await bisect(self._runs, self.values, good, bad)

    async def replay(self, run_id: str, step: str, flow: Flow, *, allow_effects: bool = False) -> Replay:
        """Run one recorded step again, alone, on the values it read, and compare. Nothing is written.

        `step` is an address: a node (its last finished visit), `"draft@2"`, `"rag/embed"`, `"check#7"`. An
        effectful node is refused unless `allow_effects` is true. After A17/rag, `step` lies inside it.
        """
        run_id, part = await in_run(self._runs, run_id)
        step = step if part is None else part.within(step)
        return await replay(self._runs, self._services, run_id, step, flow, allow_effects=allow_effects)

    async def runs(
        self,
        *,
        flow: str | None = None,
        status: Status | str | None = None,
        parent: str | None = None,
        needs_repair: bool = False,
        pinned: bool = False,
        limit: int = 100,
        before: str | None = None,
    ) -> list[RunInfo]:
        """List runs, newest first; with `parent`, the forks of that run.

        With `needs_repair`, those that workers leave alone because they are damaged; with `pinned`, those
        that retention leaves alone.
        """
        check_limit(limit)
        try:
            wanted = Status(status) if status is not None else None
        except ValueError:
            known = ", ".join(s.value for s in Status if s is not Status.RETRYING)
            raise BadRequest(f"{status!r} is not a status of runs.", fix=f"Use one of {known}.") from None
        narrowed = RunFilter(
            flow_id=flow,
            status=wanted,
            parent_run_id=parent,
            needs_repair=needs_repair,
            pinned=pinned,
            limit=limit,
            before=before,
        )
        return [self._info(row) for row in await self._services.store.list(narrowed)]

    async def info(self, run_id: str) -> RunInfo:
        """Return one run's line; of a part such as A17/rag, that of its run."""
        return self._info(await self._runs.row((await in_run(self._runs, run_id))[0]))

    async def find(self, name: str) -> RunInfo:
        """Return the run that its id, its newest checkpoint's id, or a token of one of its waits names."""
        return self._info(await self._runs.named(name))

    def _info(self, row: RunRow) -> RunInfo:
        lease = row.lease
        services = self._services
        now, here = services.clock.now(), services.processes.me()
        is_driven = (
            lease is not None and seconds_left(lease, now=now, here=here, uptime=uptime(services.clock)) > 0
        )
        if is_driven and lease is not None and lease.process is not None:
            is_driven = not self._services.processes.is_gone(lease.process)
        return RunInfo(row, is_driven=is_driven)

    async def close(self) -> None:
        """Release threads and connections. Runs under way stop with `HostClosed`, wherever they are driven.

        What has finished of them is kept, and they can be resumed at once. A sync node is waited for, up to
        half a minute.
        """
        await self._runs.stop()
        await self._afterwards.close()
        self._runs.close()
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
