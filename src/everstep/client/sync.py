"""`Host`: `AsyncHost` for code that does not await. No logic of its own.

Each call drives an event loop of its own on the caller's thread, so a sync node runs where the caller is,
Ctrl-C reaches it, and threads that share a host do not wait for one another.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from everstep.client.diff import Diff
from everstep.client.guards import BreakerInfo
from everstep.client.host import AsyncHost
from everstep.client.lanes import Lanes
from everstep.client.sync_carrying import SyncCarrying
from everstep.client.sync_retention import SyncRetention
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
    Verified,
    WaitInfo,
    WorkerInfo,
)
from everstep.codec.chain import Codec
from everstep.codec.keyring import KeyRing
from everstep.codec.values import Values
from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.graph.check.validate import Offers, Rule
from everstep.model.durations import Span
from everstep.model.enums import Mode, Status
from everstep.model.records import CheckpointRecord
from everstep.model.retention import Retention
from everstep.model.waits import WaitStatus
from everstep.ports.durability import HostDurability, Notifier, ResumeScheduler
from everstep.ports.store import Counts
from everstep.ports.system import Clock, Ids
from everstep.registry import Opened
from everstep.runtime.doctor import Diagnosis
from everstep.runtime.events import Event, Listener
from everstep.runtime.outage.outbox import Drained
from everstep.runtime.outage.spool import Spool
from everstep.runtime.rekey import Rekeyed
from everstep.runtime.waits.answers import UNSAID
from everstep.runtime.workers.worker import Stats


async def _next_event(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


async def _close(events: AsyncGenerator[Event, None]) -> None:
    await events.aclose()


class Host(SyncCarrying, SyncRetention):
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
        self._host = AsyncHost(
            url,
            on_event=on_event,
            clock=clock,
            ids=ids,
            max_threads=max_threads,
            create=create,
            owns_loop=True,
            key=key,
            base_url=base_url,
            schedulers=schedulers,
            scheduler=scheduler,
            notifiers=notifiers,
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
        )
        self._lanes = Lanes(self._host)

    @property
    def url(self) -> str:
        return self._host.url

    @property
    def schemes(self) -> dict[str, str]:
        """Where queued tasks and channels of new runs are kept: `sqlite`, `redis`."""
        return self._host.schemes

    @property
    def clock(self) -> Clock:
        """The clock that its runs go by."""
        return self._host.clock

    @property
    def durability(self) -> HostDurability:
        """The services that waiting rests on, as far as this host has them."""
        return self._host.durability

    @property
    def spool(self) -> Path:
        """The folder where checkpoints wait while its store is out of reach."""
        return self._host.spool

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
        about: dict[str, Any] = {"channel": channel, "priority": priority, "group": group}
        about |= {"by": by, "comment": comment}
        return self._lanes.call(lambda host: host.run(flow, inputs, run_id=run_id, wait=wait, **about))

    def start(
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
        about: dict[str, Any] = {"channel": channel, "priority": priority, "group": group}
        about |= {"by": by, "comment": comment}
        return self._lanes.call(lambda host: host.start(flow, inputs, run_id=run_id, **about))

    def resume(
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
        how: dict[str, Any] = {"start": start, "wait": wait, "at_once": at_once, "fallback": fallback}
        how |= {"by": by, "comment": comment}
        return self._lanes.call(lambda host: host.resume(run_id, flow, **how))

    def reopen(
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
        return self._lanes.call(lambda host: host.reopen(run_id, flow, start=start, by=by, comment=comment))

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
        A17/rag, the waits of steps in it.
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

    def fire(self, wait_id: str, *, by: str | None = None, comment: str | None = None) -> WaitInfo:
        """Settle a wait as its clock would: a timer fires, anything else is too late.

        This is what a scheduler of your own calls when a time has come.
        """
        return self._lanes.call(lambda host: host.fire(wait_id, by=by, comment=comment))

    def settle(
        self,
        run_id: str,
        step: str,
        *,
        done: Any = UNSAID,
        rerun: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> WaitInfo:
        """Say what became of an effect that was begun and never reported, for a run that stopped for it.

        `done` is the value that the node would have returned; with `rerun` it is called again, with its key.
        After A17/rag, `step` lies inside it.
        """
        who = {"by": by, "comment": comment}
        return self._lanes.call(lambda host: host.settle(run_id, step, done=done, rerun=rerun, **who))

    def reissue(
        self,
        wait_id: str,
        *,
        ttl: Span | None = None,
        single_use: bool = True,
        metadata: dict[str, Any] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> WaitInfo:
        """Make a new token for an open wait and return it with the wait; the old one dies.

        `metadata` is JSON to note of the token, such as for whom it is; `token_metadata` shows it.
        """
        how: dict[str, Any] = {"metadata": metadata, "by": by, "comment": comment}
        return self._lanes.call(lambda host: host.reissue(wait_id, ttl=ttl, single_use=single_use, **how))

    def revoke(self, token_or_id: str | None, *, by: str | None = None, comment: str | None = None) -> None:
        """Make the token of a wait worthless; the wait stays open for those with access to the store."""
        return self._lanes.call(lambda host: host.revoke(token_or_id, by=by, comment=comment))

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

    def compat(self, run_id: str, flow: Flow) -> Compat:
        """Say whether a run can go on with this flow, and what stands in its way. Nothing is written."""
        return self._lanes.call(lambda host: host.compat(run_id, flow))

    def explain(self, run_id: str, flow: Flow) -> Explanation:
        """Say what a resume would skip, start, repeat and miss. Nothing is called or written.

        Of a part such as A17/rag, only which of its steps.
        """
        return self._lanes.call(lambda host: host.explain(run_id, flow))

    def migrate(
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
        return self._lanes.call(
            lambda host: host.migrate(run_id, flow, dry_run=dry_run, by=by, comment=comment)
        )

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

    def workers(self) -> list[WorkerInfo]:
        """List the workers that are alive, the longest serving first, with what they drive."""
        return self._lanes.call(lambda host: host.workers())

    def counts(self) -> Counts:
        """Count runs by status and open waits by kind, and what runs driven here have spent."""
        return self._lanes.call(lambda host: host.counts())

    def spooled(self, run_id: str) -> list[CheckpointRecord]:
        """Return the checkpoints of a run that wait on this machine for its store, oldest first."""
        return self._lanes.call(lambda host: host.spooled(run_id))

    def doctor(self) -> Diagnosis:
        """Look at the store: can it be written to, how fast, and what can it lose as it is set up now."""
        return self._lanes.call(lambda host: host.doctor())

    def drain(self) -> list[Drained]:
        """Bring checkpoints that wait on this machine to the store; says what became of each run's.

        Those of a run that has gone on without them become a fork of it.
        """
        return self._lanes.call(lambda host: host.drain())

    def verify(
        self,
        run_ids: str | Iterable[str] | None = None,
        *,
        blobs: bool = True,
        on_run: Callable[[Verified], object] | None = None,
        on_progress: Callable[[str, int, int], object] | None = None,
    ) -> list[Verified]:
        """Check that what is kept of some runs, or of every run, is as it was written; nothing is changed.

        Of a part such as A17/rag, all of its run. Without `blobs`, artifacts are not read. `on_run` is told
        of each run when it is done, `on_progress` of a run, how many of its checkpoints were checked, and how
        many there are.
        """
        told: dict[str, Any] = {"on_run": on_run, "on_progress": on_progress}
        return self._lanes.call(lambda host: host.verify(run_ids, blobs=blobs, **told))

    def rekey(
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
        return self._lanes.call(lambda host: host.rekey(run_id, dry_run=dry_run, on_run=on_run))

    def cancel(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> Status:
        """Cancel a run; `running` means that its owner was told and will stop at its next write."""
        return self._lanes.call(lambda host: host.cancel(run_id, by=by, comment=comment))

    def breakers(self) -> dict[str, BreakerInfo]:
        """Return the shared breakers of the store that ever changed, by name."""
        return self._lanes.call(lambda host: host.breakers())

    def reset_breaker(self, name: str, *, by: str | None = None, comment: str | None = None) -> BreakerInfo:
        """Close a shared breaker; what it has counted is forgotten. Runs that wait for review still do."""
        return self._lanes.call(lambda host: host.reset_breaker(name, by=by, comment=comment))

    def history(
        self, run_id: str, *, last: int | None = None, count: int | None = None
    ) -> list[CheckpointRecord]:
        """Return the checkpoints of a run up to `last`, oldest first, each with the digest that covers it.

        With `count`, only so many of the newest; no others are read. Of a part such as A17/rag, the
        checkpoints that hold steps of it, with those steps.
        """
        return self._lanes.call(lambda host: host.history(run_id, last=last, count=count))

    def state(self, run_id: str, at: int | str | None = None) -> RunState:
        """Return the values of a run at a checkpoint, given by sequence or id; by default the newest.

        An address such as A17@3 names both the run and the sequence. Of a part such as A17/rag, or A17@3/rag,
        the values inside it, under their whole names; of a node that is no flow, what it writes.
        """
        return self._lanes.call(lambda host: host.state(run_id, at))

    def channel(self, run_id: str) -> dict[str, Any]:
        """Return the channel of a run as it is now, wherever it is kept."""
        return self._lanes.call(lambda host: host.channel(run_id))

    def recall(self, run_id: str, versions: Collection[tuple[str, int]]) -> dict[tuple[str, int], Any]:
        """Return values as steps wrote them, by whole name and version, also those overwritten since.

        Where one cannot be read, what stands in its place says why.
        """
        return self._lanes.call(lambda host: host.recall(run_id, versions))

    def diff(
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
        return self._lanes.call(lambda host: host.diff(run_id, other, start=start, end=end))

    def bisect(self, good: str, bad: str) -> Divergence | None:
        """Return the first step of a bad run that a good one lacks, or that came out differently there.

        None if every finished step of the bad run is the same in the good one.
        """
        return self._lanes.call(lambda host: host.bisect(good, bad))

    def replay(self, run_id: str, step: str, flow: Flow, *, allow_effects: bool = False) -> Replay:
        """Run one recorded step again, alone, on the values it read, and compare. Nothing is written.

        `step` is an address: a node (its last finished visit), `"draft@2"`, `"rag/embed"`, `"check#7"`. An
        effectful node is refused unless `allow_effects` is true. After A17/rag, `step` lies inside it.
        """
        return self._lanes.call(lambda host: host.replay(run_id, step, flow, allow_effects=allow_effects))

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
        marks: dict[str, Any] = {"needs_repair": needs_repair, "pinned": pinned}
        wanted: dict[str, Any] = {"status": status, "parent": parent, **marks}
        return self._lanes.call(lambda host: host.runs(flow=flow, limit=limit, before=before, **wanted))

    def info(self, run_id: str) -> RunInfo:
        """Return one run's line; of a part such as A17/rag, that of its run."""
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
