"""The groups of calls of `Host`: those of `AsyncHost` for code that does not await. Apart from `sync`, which
is generated too: the calls of groups few programs load.

Made by `scripts/generate_host.py` from `groups/`: change that, and run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from everstep.model.waits import UNSAID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from typing import Any, Literal, Unpack

    from everstep.client.audit import AuditInfo
    from everstep.client.checkpoint_steps import CheckpointPage, StepLogInfo
    from everstep.client.diff import Diff
    from everstep.client.guards import BreakerInfo
    from everstep.client.lanes import Lanes
    from everstep.client.looking.comparison import Comparison
    from everstep.client.looking.drawing import FlowDrawing, RunDrawing
    from everstep.client.looking.edges import RunEdges
    from everstep.client.looking.schedules import AppliedSchedule, ScheduleInfo
    from everstep.client.looking.shown_values import RawValue, RunValues
    from everstep.client.looking.store_info import StoreInfo
    from everstep.client.looking.timeline import Timeline
    from everstep.client.looking.visits import StepVisit
    from everstep.client.projection import RunNodes, StepPage
    from everstep.client.queries import BulkOptions, NoticeStates
    from everstep.client.views import NoticeInfo, PauseInfo, RunInfo, WaitInfo, WorkerInfo
    from everstep.graph.author.flow import Flow
    from everstep.model.bundles import LeaveOut
    from everstep.model.commits import AttributeValue
    from everstep.model.compat import Compat, FlowCompat
    from everstep.model.durations import Span
    from everstep.model.enums import Status
    from everstep.model.records import CheckpointRecord
    from everstep.model.removal import Removal
    from everstep.model.retention import Retention
    from everstep.ports.store import Counts
    from everstep.registry import Opened
    from everstep.runtime.bundles.copy import Copied
    from everstep.runtime.bundles.export import Exported, Progress
    from everstep.runtime.bundles.import_run import Imported
    from everstep.runtime.integrity.doctor import Diagnosis
    from everstep.runtime.integrity.findings import Verified
    from everstep.runtime.operations.after_restore import AfterRestore
    from everstep.runtime.operations.asking.answers import FlowFindings, FlowReport
    from everstep.runtime.operations.bulk.flow import BulkProgress
    from everstep.runtime.operations.bulk.pages import BulkPreview
    from everstep.runtime.operations.count import RunCount
    from everstep.runtime.operations.durations import Durations
    from everstep.runtime.operations.flows import FlowInfo
    from everstep.runtime.operations.limits import LimitInfo
    from everstep.runtime.operations.untaken import Untaken
    from everstep.runtime.outage.outbox import Drained
    from everstep.runtime.rekey import Rekeyed
    from everstep.runtime.retention.collect import Collected
    from everstep.runtime.retention.erase import Erased
    from everstep.runtime.retention.summaries import RemovedRun
    from everstep.runtime.travel.bisect import Divergence
    from everstep.runtime.travel.explain import Explanation
    from everstep.runtime.travel.fork import ForkPreview
    from everstep.runtime.travel.replay import Replay
    from everstep.runtime.waits.notices.send import SentNotices


class SyncDebugCalls:
    """What happened in runs, and where two of them part."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

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
        return self._lanes.call(lambda host: host.debug.diff(run_id, other, start=start, end=end))

    def compare(self, run_id: str, other: str) -> Comparison:
        """Compare two runs, or two moments such as A17@3 and A17@9, for people who look at both.

        What `diff` says, with long values cut and at most 500 differences; the newest checkpoint that both
        have; and what `bisect` says, if neither has more than 2,000 checkpoints behind that one.
        """
        return self._lanes.call(lambda host: host.debug.compare(run_id, other))

    def logs(self, run_id: str) -> list[StepLogInfo]:
        """Return what nodes logged and printed, if their flow has `logs=True`, by step and attempt.

        Of a part such as A17/draft@2, the logs of steps in it. An attempt whose process died has another
        epoch than the one that took its place.
        """
        return self._lanes.call(lambda host: host.debug.logs(run_id))

    def nodes(self, run_id: str, *, newest: int | None = None) -> RunNodes:
        """Return a run at a glance: its nodes with visits, attempts, items, waits, times, and who did what.

        It is read page by page; with `newest`, only so many checkpoints are, and of what came before them it
        is known how often nodes were visited. Of a part such as A17/rag, the nodes in it; A17@3 is how it
        stood there.
        """
        return self._lanes.call(lambda host: host.debug.nodes(run_id, newest=newest))

    def edges(self, run_id: str, at: int | str | None = None, *, newest: int = 1000) -> RunEdges:
        """Return which edges of its flow a run took up to a checkpoint, how often, and in which round.

        So many checkpoints are read, the newest up to there; how often edges were taken before them is
        estimated by the visits to nodes. Of a part such as A17/rag it is told of the whole run.
        """
        return self._lanes.call(lambda host: host.debug.edges(run_id, at, newest=newest))

    def drawing(
        self,
        run_id: str,
        *,
        opened: Collection[str] | None = None,
        around: str | None = None,
        all_open: bool = False,
    ) -> RunDrawing:
        """Return where each node of a run's flow stands in a picture of it, as the flow was declared.

        `opened` are paths of inner flows whose nodes are shown; by default all of a flow of up to 300 nodes,
        but for maps and atomic flows, and with `all_open` every one. If more than 2,000 nodes would be shown,
        the 300 nearest to `around` are. A17@3 is the flow by which the run went at checkpoint 3.
        """
        return self._lanes.call(
            lambda host: host.debug.drawing(run_id, opened=opened, around=around, all_open=all_open)
        )

    def steps(self, run_id: str, *, after: int = 0, limit: int = 100, full: bool = False) -> StepPage:
        """Return the steps of the first `limit` checkpoints behind `after`, as `log` lists them.

        Those of a map's items are counted in one line, and those that failed follow; with `full` each has its
        own. `next` of a page is the `after` of the one that follows. Of a part such as A17/rag, the steps in
        it; of one in an item, such as A17/check#7, each has its own line.
        """
        return self._lanes.call(lambda host: host.debug.steps(run_id, after=after, limit=limit, full=full))

    def timeline(
        self,
        run_id: str,
        *,
        at: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        most: int = 300,
    ) -> Timeline:
        """Return when what of a run happened: of each node attempts, pauses and waits, of maps their items.

        It is read from the newest 2,000 checkpoints, or those around `at`, or the newest of those made
        between `since` and `until`; fewer where they hold more than 20,000 steps. `left_out` says what it
        does not tell of. Above `most` segments the nearest ones are told as one. A17@3 is how the run stood
        there, and of A17/rag what lies inside.
        """
        return self._lanes.call(
            lambda host: host.debug.timeline(run_id, at=at, since=since, until=until, most=most)
        )

    def checkpoints(
        self, run_id: str, *, after: int | None = None, before: int | None = None, limit: int = 100
    ) -> CheckpointPage:
        """List checkpoints: the newest first, those before one, or with `after`, those behind one in order.

        `next` is the `before`, or the `after`, of the page that follows. Of A17/rag, those with steps in it.
        """
        return self._lanes.call(
            lambda host: host.debug.checkpoints(run_id, after=after, before=before, limit=limit)
        )

    def visit(self, run_id: str, address: str, *, at: int | None = None, values: bool = True) -> StepVisit:
        """Return one visit to a node in full: attempts, values before and after, units, its record.

        `address` is that of a step, such as `draft@2`, `check#7`, `rag/embed` or `agent@2/$search`; a visit
        that it leaves out is the last one. With `at`, as that checkpoint has it. The chain is read back from
        there to its beginning, 2,000 checkpoints at most. Values are cut as those of `values` are; with
        `values=False` there are none.
        """
        return self._lanes.call(lambda host: host.debug.visit(run_id, address, at=at, values=values))

    def values(
        self,
        run_id: str,
        name: str | None = None,
        *,
        at: int | None = None,
        version: int | None = None,
        pointer: str = "",
        start: int = 0,
        count: int | None = None,
    ) -> RunValues:
        """Return the values of a run at a checkpoint, cut: 100 members a level, 2,000 characters of a text.

        With `name`, a whole name, that one alone: the part that `pointer` leads to (`/lines/3`, as JSON
        pointers have it), and of that `count` members or characters from `start` on. With `version`, as it
        was before it was overwritten, if that was in one of the last 64 checkpoints. What lies beside the
        records is read only if it is named.
        """
        return self._lanes.call(
            lambda host: host.debug.values(
                run_id, name, at=at, version=version, pointer=pointer, start=start, count=count
            )
        )

    def raw_value(
        self, run_id: str, name: str, *, at: int | None = None, version: int | None = None, pointer: str = ""
    ) -> RawValue:
        """Return one value, or a part of one, as bytes: bytes and images as they are, texts, else JSON."""
        return self._lanes.call(
            lambda host: host.debug.raw_value(run_id, name, at=at, version=version, pointer=pointer)
        )

    def bisect(self, good: str, bad: str) -> Divergence | None:
        """Return the first step of a bad run that a good one lacks, or that came out differently there.

        None if every finished step of the bad run is the same in the good one.
        """
        return self._lanes.call(lambda host: host.debug.bisect(good, bad))

    def preview_fork(
        self,
        run_id: str,
        *,
        at: int | str | None = None,
        inputs: Iterable[str] = (),
        state: Iterable[str] = (),
        channel: Iterable[str] = (),
        choose_again: bool = False,
    ) -> ForkPreview:
        """Say what `host.fork` would start first and run again, if these were edited; nothing is written.

        Of what is edited the names are enough. It goes by what is stored, so no flow is needed.
        """
        return self._lanes.call(
            lambda host: host.debug.preview_fork(
                run_id, at=at, inputs=inputs, state=state, channel=channel, choose_again=choose_again
            )
        )

    def replay(self, run_id: str, step: str, flow: Flow, *, allow_effects: bool = False) -> Replay:
        """Run one recorded step again, alone, on the values it read, and compare. Nothing is written.

        `step` is an address: a node (its last finished visit), `"draft@2"`, `"rag/embed"`, `"check#7"`. An
        effectful node is refused unless `allow_effects` is true. Durable calls in it give what is recorded;
        effectful ones that are not are refused likewise. After A17/rag, `step` lies inside it.
        """
        return self._lanes.call(
            lambda host: host.debug.replay(run_id, step, flow, allow_effects=allow_effects)
        )

    def recall(self, run_id: str, versions: Collection[tuple[str, int]]) -> dict[tuple[str, int], Any]:
        """Return values as steps wrote them, by whole name and version, also those overwritten since.

        Where one cannot be read, what stands in its place says why. Of A17@512, those up to there; nothing
        newer is read to find them.
        """
        return self._lanes.call(lambda host: host.debug.recall(run_id, versions))


class SyncVersionCalls:
    """Runs of a flow that has changed since they began."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def compat(self, run_id: str, flow: Flow) -> Compat:
        """Say whether a run can go on with this flow, and what stands in its way. Nothing is written."""
        return self._lanes.call(lambda host: host.versions.compat(run_id, flow))

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
            lambda host: host.versions.migrate(run_id, flow, dry_run=dry_run, by=by, comment=comment)
        )


class SyncWaitingCalls:
    """What an operator or a scheduler does about waits, besides answering them."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def fire(self, wait_id: str, *, by: str | None = None, comment: str | None = None) -> WaitInfo:
        """Settle a wait as its clock would: a timer fires, anything else is too late.

        This is what a scheduler of your own calls when a time has come.
        """
        return self._lanes.call(lambda host: host.waiting.fire(wait_id, by=by, comment=comment))

    def settle(
        self,
        run_id: str,
        step: str,
        *,
        done: Any = UNSAID,
        rerun: bool = False,
        skip: str = "",
        by: str | None = None,
        comment: str | None = None,
    ) -> WaitInfo:
        """Say what became of an effect that was begun and never reported, or of an undo that failed.

        `done` is the value that the node would have returned; with `rerun` it is called again, with its key.
        An undo that was done by hand is `done=None`; one that is to be left out is skipped with a reason.
        After A17/rag, `step` lies inside it.
        """
        return self._lanes.call(
            lambda host: host.waiting.settle(
                run_id, step, done=done, rerun=rerun, skip=skip, by=by, comment=comment
            )
        )

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
        return self._lanes.call(
            lambda host: host.waiting.reissue(
                wait_id, ttl=ttl, single_use=single_use, metadata=metadata, by=by, comment=comment
            )
        )

    def revoke(self, token_or_id: str | None, *, by: str | None = None, comment: str | None = None) -> None:
        """Make the token of a wait worthless; the wait can still be answered by its id."""
        return self._lanes.call(lambda host: host.waiting.revoke(token_or_id, by=by, comment=comment))


class SyncNoticeCalls:
    """What becomes of notices."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def find(
        self,
        *,
        state: NoticeStates | None = None,
        run_id: str | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> list[NoticeInfo]:
        """Return notices, the newest first: all, those of a run, or those that stand like this.

        With `before`, those behind the one with this number.
        """
        return self._lanes.call(
            lambda host: host.notices.find(state=state, run_id=run_id, limit=limit, before=before)
        )

    def again(self, notice_id: str, *, by: str | None = None, comment: str | None = None) -> NoticeInfo:
        """Have a notice sent once more, with the same id, whatever became of it: as soon as one looks.

        Who looks is `send`, and each worker that has its notifier.
        """
        return self._lanes.call(lambda host: host.notices.again(notice_id, by=by, comment=comment))

    def again_all(self, *, by: str | None = None, comment: str | None = None) -> int:
        """Have all dead letters sent once more, and return how many there were."""
        return self._lanes.call(lambda host: host.notices.again_all(by=by, comment=comment))

    def send(self, run_id: str | None = None) -> SentNotices:
        """Send what is due and for one of this host's notifiers, of a run or of all, and say what came of it.

        Workers do so by themselves; this is for programs that have none.
        """
        return self._lanes.call(lambda host: host.notices.send(run_id))


class SyncFleetCalls:
    """The workers of a store, what they share, and runs for them to drive."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def workers(self) -> list[WorkerInfo]:
        """List the workers that are alive, the longest serving first, with what they drive."""
        return self._lanes.call(lambda host: host.fleet.workers())

    def flows(
        self, *, only: Collection[str] | None = None, tags: Iterable[str] | None = None
    ) -> list[FlowInfo]:
        """List the flows that the store has runs of, or that workers drive, by name.

        Statuses and versions are counted among the newest 5,000 runs, of flows named in `only`, and among
        runs with one of these `tags`, `vip` or `team=blue`.
        """
        return self._lanes.call(lambda host: host.fleet.flows(only=only, tags=tags))

    def drawing(
        self,
        flow: str | Flow,
        *,
        opened: Collection[str] | None = None,
        around: str | None = None,
        all_open: bool = False,
    ) -> FlowDrawing:
        """Return where the nodes of a flow stand in a picture of it; of a name, that of its newest run.

        `opened`, `around` and `all_open` are those of `host.debug.drawing`.
        """
        return self._lanes.call(
            lambda host: host.fleet.drawing(flow, opened=opened, around=around, all_open=all_open)
        )

    def untaken(self, *run_ids: str, limit: int = 100) -> list[Untaken]:
        """Return runs that are due and that no live worker will take, each with why and what to do about it.

        Of those that are named, or of the first `limit` that are due. Of a run that is named and waits for an
        answer it says whether a worker would take it then.
        """
        return self._lanes.call(lambda host: host.fleet.untaken(*run_ids, limit=limit))

    def explain(self, run_id: str, *, within: Span = 5.0) -> Explanation:
        """Say what a resume of a run would do, as `host.explain` does: a live worker with its flow says it.

        `flow.not_loaded` if none has it, and `flow.no_answer` if none answered within that time.
        """
        return self._lanes.call(lambda host: host.fleet.explain(run_id, within=within))

    def report(self, flow: Flow | str, *, within: Span = 5.0) -> FlowReport:
        """Say what of a flow is durable, as `everstep report` does; of a name, a live worker says it."""
        return self._lanes.call(lambda host: host.fleet.report(flow, within=within))

    def findings(self, flow: Flow | str, *, within: Span = 5.0) -> FlowFindings:
        """Say what is wrong or odd about a flow, as `validate` does; of a name, a live worker says it."""
        return self._lanes.call(lambda host: host.fleet.findings(flow, within=within))

    def compat(
        self, flow: Flow | str, *, run_ids: Iterable[str] | None = None, newest: int = 100, within: Span = 5.0
    ) -> FlowCompat:
        """Say which unfinished runs can go on with a flow as it is; of a name, a live worker says it.

        Of the newest ones, or of those that are named. Nothing is written.
        """
        return self._lanes.call(
            lambda host: host.fleet.compat(flow, run_ids=run_ids, newest=newest, within=within)
        )

    def counts(self) -> Counts:
        """Count runs by status and open waits by kind, and what runs driven here have spent."""
        return self._lanes.call(lambda host: host.fleet.counts())

    def metrics(self) -> str:
        """Return what is counted and measured, as Prometheus reads it, at once also while the store is away.

        What runs and workers do here is counted by a host that was opened with `metrics=True`, from then on.
        """
        return self._lanes.call(lambda host: host.fleet.metrics())

    def count(
        self,
        by: str = "status",
        *,
        where: str | None = None,
        tag: str | Iterable[str] = (),
        attribute: str | Iterable[str] | Mapping[str, AttributeValue] = (),
        before: str | None = None,
    ) -> RunCount:
        """Count runs by a field of queries: `status`, `flow`, `group`, `tag`, `tag.team`, `attribute.region`.

        All runs by status, flow or label are counted by an index, where the store has one. Any other call
        looks at 5,000 runs at most, and `next` says where to go on, if anywhere.
        """
        return self._lanes.call(
            lambda host: host.fleet.count(by, where=where, tag=tag, attribute=attribute, before=before)
        )

    def durations(self, flow: str | None = None, *, where: str | None = None, newest: int = 200) -> Durations:
        """Say how long the newest ended runs took, and the visits to their nodes; of one flow, or of all.

        Their checkpoints tell, so nothing is counted while runs are driven; what was read of a run is kept
        in mind. With `where`, of those that a query asks for: `where="started > -1d and status = completed"`.
        """
        return self._lanes.call(lambda host: host.fleet.durations(flow, where=where, newest=newest))

    def tag(
        self,
        run_id: str,
        add: Iterable[str] | Mapping[str, str] = (),
        *,
        remove: Iterable[str] = (),
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Tag a run, also one that has ended: names, or names with values; and take tags away.

        A tag of the same name gets the new value. `host.runs(where="tag = vip")` finds what is tagged.
        """
        return self._lanes.call(
            lambda host: host.fleet.tag(run_id, add, remove=remove, by=by, comment=comment)
        )

    def pause(
        self,
        run_id: str | None = None,
        *,
        flow: str | None = None,
        group: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> PauseInfo:
        """Pause a run; or a flow, a group of it, or with `group` alone that group of every flow.

        Nothing of it starts: no node, no item of a map, no durable call and no retry. Owners record what is
        under way and give their runs back. Waits take their answers and their times run. What is paused
        already stays as it is. `unpause` lets it go on.
        """
        return self._lanes.call(
            lambda host: host.fleet.pause(run_id, flow=flow, group=group, by=by, comment=comment)
        )

    def unpause(
        self,
        run_id: str | None = None,
        *,
        flow: str | None = None,
        group: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> bool:
        """Let a run, a flow or a group go on that was paused by that name; false if it was not paused.

        What is due of it is so at once. A run of a flow that is still paused goes on when that does.
        """
        return self._lanes.call(
            lambda host: host.fleet.unpause(run_id, flow=flow, group=group, by=by, comment=comment)
        )

    def pauses(self, *, runs: bool = True) -> list[PauseInfo]:
        """Return what is paused: flows and groups first, then up to a thousand runs, the newest first.

        Without `runs`, flows and groups alone, which is one small question to any store.
        """
        return self._lanes.call(lambda host: host.fleet.pauses(runs=runs))

    def limits(self) -> list[LimitInfo]:
        """Return what limits hold back, by key: what runs, what has started, what waits, and why.

        Those for which most runs wait come first. The limits of a flow are those that live workers have.
        """
        return self._lanes.call(lambda host: host.fleet.limits())

    def reopen(
        self,
        run_id: str,
        flow: Flow | None = None,
        *,
        start: str | None = None,
        deadline: Span | datetime | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Let a run that failed or was abandoned go on, as `resume` does, but leave it to workers to drive.

        With `start` it begins at that node, whatever was due, also if it has ended otherwise; that takes the
        flow. Without a flow nothing is checked against its code: the worker that takes the run does. It has
        the `deadline` that is given here, and no other.
        """
        return self._lanes.call(
            lambda host: host.fleet.reopen(
                run_id, flow, start=start, deadline=deadline, by=by, comment=comment
            )
        )

    @overload
    def bulk(
        self, act: str, where: str, *, dry_run: Literal[True], **options: Unpack[BulkOptions]
    ) -> BulkPreview: ...
    @overload
    def bulk(
        self, act: str, where: str, *, dry_run: Literal[False] = False, **options: Unpack[BulkOptions]
    ) -> str: ...
    @overload
    def bulk(
        self, act: str, where: str, *, dry_run: bool = False, **options: Unpack[BulkOptions]
    ) -> BulkPreview | str: ...
    def bulk(
        self, act: str, where: str, *, dry_run: bool = False, **options: Unpack[BulkOptions]
    ) -> BulkPreview | str:
        """Do something to all runs that a query asks for, as a run that any worker drives; returns its id.

        Acts: `cancel`, `retry` (reopen what failed, for workers), `resume` (let workers drive again what was
        set aside as damaged), `fork`, `pause`, `unpause`, `tag`, `pin`, `unpin`, `erase`. With `dry_run`
        nothing is done, and it is returned how many runs there are, by status and flow, and what would come
        of them.

        Only runs that were there before are acted on, each at most once and as long as the query asks for it
        then. `at_most` stops after so many; `per_second` limits the speed. Each act is in the audit log.
        `tag` takes `add` and `remove`, `pin` a `reason`, `fork` what `host.fork` takes.
        `bulk_progress` says how far it has come, `host.cancel` ends it, `drive_bulk` goes on with it here.
        """
        return self._lanes.call(lambda host: host.fleet.bulk(act, where, dry_run=dry_run, **options))

    def drive_bulk(self, run_id: str) -> BulkProgress:
        """Go on here and now with a run that acts on many runs, until it is over: no worker is needed."""
        return self._lanes.call(lambda host: host.fleet.drive_bulk(run_id))

    def bulk_progress(self, run_id: str) -> BulkProgress:
        """Say how far a run that acts on many runs has come."""
        return self._lanes.call(lambda host: host.fleet.bulk_progress(run_id))

    def audit(
        self,
        run_id: str | None = None,
        *,
        by: str | None = None,
        act: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[AuditInfo]:
        """Say who did what, the newest acts last: of one run, by one name, of one kind, in some time.

        An act with a name is there, done or refused. `since` and `until` are times, or
        text such as `-7d`. With `after` the first acts behind that number, so that all can be read page by
        page: `after=0`, then the number of the last. Acts on runs that were removed are there, too.
        """
        return self._lanes.call(
            lambda host: host.fleet.audit(
                run_id, by=by, act=act, since=since, until=until, limit=limit, after=after
            )
        )

    def breakers(self) -> dict[str, BreakerInfo]:
        """Return the shared breakers of the store that ever changed, by name."""
        return self._lanes.call(lambda host: host.fleet.breakers())

    def reset_breaker(self, name: str, *, by: str | None = None, comment: str | None = None) -> BreakerInfo:
        """Close a shared breaker; what it has counted is forgotten. Runs that wait for review still do."""
        return self._lanes.call(lambda host: host.fleet.reset_breaker(name, by=by, comment=comment))


class SyncScheduleCalls:
    """Runs of a flow, started by the clock: workers that have the flow start them and drive them."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def create(
        self,
        flow: Flow | str,
        schedule_id: str,
        *,
        cron: str | None = None,
        every: Span | None = None,
        zone: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        time_input: str | None = None,
        overlap: str | None = None,
        catch_up: Span | None = None,
        jitter: Span | None = None,
        priority: int | None = None,
        group: str | None = None,
        tags: Iterable[str] | Mapping[str, str] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> ScheduleInfo:
        """Start runs of a flow at the times of a cron expression in a zone, or after each span of time.

        `time_input` names the input that gets the scheduled time, in UTC. `overlap` says what becomes of a
        time at which a run before is not over: `skip` (the default), `queue`, `replace` or `allow`. A time
        that comes later than `catch_up`, by default an hour, as no worker was there, is missed. Starts are
        put off by up to `jitter`. The same call again changes nothing.
        """
        return self._lanes.call(
            lambda host: host.schedules.create(
                flow,
                schedule_id,
                cron=cron,
                every=every,
                zone=zone,
                inputs=inputs,
                time_input=time_input,
                overlap=overlap,
                catch_up=catch_up,
                jitter=jitter,
                priority=priority,
                group=group,
                tags=tags,
                by=by,
                comment=comment,
            )
        )

    def apply(
        self,
        flows: Flow | Iterable[Flow],
        *,
        dry_run: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> Sequence[AppliedSchedule]:
        """Make the schedules of these flows what they declare, and say what was done about each.

        One that is declared no more is paused, and goes on when it is declared again. Those that were made
        by hand under other ids are left alone. With `dry_run` it is only said what would be done.
        """
        return self._lanes.call(
            lambda host: host.schedules.apply(flows, dry_run=dry_run, by=by, comment=comment)
        )

    def list(
        self, flow: str | None = None, *, limit: int = 100, before: str | None = None
    ) -> Sequence[ScheduleInfo]:
        """List schedules, the newest first; of one flow, or of all. `before` is the last one seen."""
        return self._lanes.call(lambda host: host.schedules.list(flow, limit=limit, before=before))

    def get(self, schedule_id: str) -> ScheduleInfo:
        """Return one schedule."""
        return self._lanes.call(lambda host: host.schedules.get(schedule_id))

    def times(self, schedule_id: str, count: int = 10) -> Sequence[datetime]:
        """Return the next times of a schedule, in UTC, whether or not it is paused."""
        return self._lanes.call(lambda host: host.schedules.times(schedule_id, count))

    def pause(self, schedule_id: str, *, by: str | None = None, comment: str | None = None) -> ScheduleInfo:
        """Let a schedule start nothing until it is let go on. Its runs go on."""
        return self._lanes.call(lambda host: host.schedules.pause(schedule_id, by=by, comment=comment))

    def unpause(self, schedule_id: str, *, by: str | None = None, comment: str | None = None) -> ScheduleInfo:
        """Let a schedule go on. Times that passed meanwhile count as late: see `catch_up`."""
        return self._lanes.call(lambda host: host.schedules.unpause(schedule_id, by=by, comment=comment))

    def run_now(
        self, schedule_id: str, *, id: str | None = None, by: str | None = None, comment: str | None = None
    ) -> str:
        """Start a run of a schedule now, whatever its times; returns the id that the run will have.

        A worker starts it, once for the same `id`. It does not if the schedule is paused, until it goes on.
        """
        return self._lanes.call(
            lambda host: host.schedules.run_now(schedule_id, id=id, by=by, comment=comment)
        )

    def change(
        self,
        schedule_id: str,
        *,
        cron: str | None = None,
        every: Span | None = None,
        zone: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        time_input: str | None = None,
        overlap: str | None = None,
        catch_up: Span | None = None,
        jitter: Span | None = None,
        priority: int | None = None,
        group: str | None = None,
        tags: Iterable[str] | Mapping[str, str] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> None:
        """Change what is said, and leave the rest of a schedule as it is; a worker does it.

        Times count from then on. What was asked of it before is done first.
        """
        return self._lanes.call(
            lambda host: host.schedules.change(
                schedule_id,
                cron=cron,
                every=every,
                zone=zone,
                inputs=inputs,
                time_input=time_input,
                overlap=overlap,
                catch_up=catch_up,
                jitter=jitter,
                priority=priority,
                group=group,
                tags=tags,
                by=by,
                comment=comment,
            )
        )

    def backfill(
        self,
        schedule_id: str,
        since: datetime | str,
        until: datetime | str,
        *,
        at_most: int = 100,
        at_once: int = 1,
        by: str | None = None,
        comment: str | None = None,
    ) -> None:
        """Run the times between two moments that have no run yet, the oldest first; a worker does it.

        At most so many, and so many at once; each run has the tag `backfill`. A time that was started before
        is left alone, so the same again does what is missing. One more backfill takes the place of the first.
        """
        return self._lanes.call(
            lambda host: host.schedules.backfill(
                schedule_id, since, until, at_most=at_most, at_once=at_once, by=by, comment=comment
            )
        )

    def stop_backfill(self, schedule_id: str, *, by: str | None = None, comment: str | None = None) -> None:
        """Start no more times gone by; those that were started go on."""
        return self._lanes.call(
            lambda host: host.schedules.stop_backfill(schedule_id, by=by, comment=comment)
        )

    def delete(self, schedule_id: str, *, by: str | None = None, comment: str | None = None) -> bool:
        """Remove a schedule for good; its id is free again. Runs that it has started go on.

        One that starts something at this moment starts no more: false, and it is removed when asked again.
        """
        return self._lanes.call(lambda host: host.schedules.delete(schedule_id, by=by, comment=comment))


class SyncRetentionCalls:
    """How long runs are kept, and what became of those that went."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def gc(
        self,
        *run_ids: str,
        retention: Retention | None = None,
        flows: Iterable[Flow] = (),
        dry_run: bool = False,
        shared: bool = False,
        audit_older_than: Span | None = None,
        on_progress: Callable[[str], object] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> Collected:
        """Remove what the rules say: of every run, or of those that are named; says what went and what not.

        A run is kept by the rules of its flow if that is among `flows`, else by those that it was begun with,
        else by `retention`, or the host's. Without names, artifacts that no record names go too, and
        tombstones whose time is over; `shared` says that no other store keeps artifacts in that place. With
        `dry_run` nothing is removed. Rows of the audit log go only with `audit_older_than`, such as `"365d"`:
        those of older acts, whichever runs they tell of. `on_progress` is told in words how far it has come.
        With `by` the audit log has one row of it, which counts what went.
        """
        return self._lanes.call(
            lambda host: host.retention.gc(
                *run_ids,
                retention=retention,
                flows=flows,
                dry_run=dry_run,
                shared=shared,
                audit_older_than=audit_older_than,
                on_progress=on_progress,
                by=by,
                comment=comment,
            )
        )

    def pin(
        self,
        run_id: str,
        reason: str = "pinned on request",
        *,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Keep a run whole until it is unpinned, whatever retention says."""
        return self._lanes.call(lambda host: host.retention.pin(run_id, reason, by=by, comment=comment))

    def unpin(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> RunInfo:
        """Let retention apply to a run again; who wants that stands in the log of what went."""
        return self._lanes.call(lambda host: host.retention.unpin(run_id, by=by, comment=comment))

    def ack(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> RunInfo:
        """Note that the result of a run that has ended was taken: rules about time count from then on.

        Only the first time counts. Who took it stands in the log of what went.
        """
        return self._lanes.call(lambda host: host.retention.ack(run_id, by=by, comment=comment))

    def erase(
        self, run_id: str, *, dry_run: bool = False, by: str | None = None, comment: str | None = None
    ) -> Erased:
        """Remove a run that has ended, with the artifacts that only it names. Its id stays taken.

        Nothing is told of it afterwards but that it was there. A run that is not over, that is pinned or that
        a fork goes on from is refused.
        """
        return self._lanes.call(
            lambda host: host.retention.erase(run_id, dry_run=dry_run, by=by, comment=comment)
        )

    def removed(
        self, *, flow: str | None = None, limit: int = 100, before: str | None = None
    ) -> list[RemovedRun]:
        """List what is left of runs that were removed, those removed last first, with their summaries."""
        return self._lanes.call(lambda host: host.retention.removed(flow=flow, limit=limit, before=before))

    def removals(self, *, limit: int = 100) -> list[Removal]:
        """Return the log of what went, the newest lines first: runs, checkpoints, artifacts."""
        return self._lanes.call(lambda host: host.retention.removals(limit=limit))

    def clean_up(self, run_id: str, *, keep: int = 5) -> int:
        """Remove old checkpoints and return how many: what a resume from the last `keep` does not need.

        Whatever lies before a keyframe can go, so as much stays as lies between two of them. Nothing that a
        fork goes on from is removed.
        """
        return self._lanes.call(lambda host: host.retention.clean_up(run_id, keep=keep))


class SyncTransferCalls:
    """Whole runs, carried elsewhere."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def export(
        self,
        run_id: str,
        path: str | Path,
        *,
        leave_out: LeaveOut | None = None,
        decrypt: bool = False,
        force: bool = False,
        flow: Flow | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> Exported:
        """Write a run into one file: its records, artifacts, waits and the structure of its flow.

        A fork brings the runs along that it comes from. Tokens are left out, and with
        `leave_out=LeaveOut.secrets()` values whose names say that they are secrets. What is encrypted stays
        so unless `decrypt`. The Flow IR is added if the flow is given. A file that is there is replaced only
        with `force`. Of a part such as A17/rag, the whole run. The run itself is not changed; `by` and
        `comment` stand in the audit log.
        """
        return self._lanes.call(
            lambda host: host.transfer.export(
                run_id,
                path,
                leave_out=leave_out,
                decrypt=decrypt,
                force=force,
                flow=flow,
                on_progress=on_progress,
                by=by,
                comment=comment,
            )
        )

    def import_(
        self,
        path: str | Path,
        *,
        values: Mapping[str, Any] | None = None,
        live: bool = False,
        dry_run: bool = False,
        on_progress: Callable[[Progress], object] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> Imported:
        """Put the runs of a bundle into the store. All of it is checked before anything is written.

        They keep their ids. Workers leave an unfinished one alone until it is resumed by name, as it
        may still be driven where it comes from; with `live` they go on with it. `values` are values that were
        left out, by name: their digests must fit. Done again, it changes nothing. Records are not changed by
        it, so who imports them stands in the log of what went.
        """
        return self._lanes.call(
            lambda host: host.transfer.import_(
                path,
                values=values,
                live=live,
                dry_run=dry_run,
                on_progress=on_progress,
                by=by,
                comment=comment,
            )
        )

    def was_imported(self, run_id: str) -> bool:
        """True if a run came with a bundle, so that what it says of itself is the word of a stranger."""
        return self._lanes.call(lambda host: host.transfer.was_imported(run_id))

    def copy(
        self,
        to: str | Opened,
        run_ids: Sequence[str] | None = None,
        *,
        flow: str | None = None,
        status: Status | str | None = None,
        move: bool = False,
        blobs: str | None = None,
        on_run: Callable[[Copied], object] | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> list[Copied]:
        """Copy runs to another store as they are, all unless some are named; says what became of each.

        An unfinished run is claimed meanwhile. Workers there leave the copy of one alone, as it goes on here;
        with `move` it goes on there, and is erased here once the digests of both were compared. `blobs` is
        where the other store's artifacts are kept, if not beside it. Stopped anywhere, it can be done again.
        Who copies them stands in the log of the other store, and of what was moved also in this one's.
        """
        return self._lanes.call(
            lambda host: host.transfer.copy(
                to,
                run_ids,
                flow=flow,
                status=status,
                move=move,
                blobs=blobs,
                on_run=on_run,
                on_progress=on_progress,
                by=by,
                comment=comment,
            )
        )

    def checkpoint_as(self, run_id: str, form: str, *, at: int | str | None = None) -> dict[str, Any]:
        """Return a checkpoint in another form, as JSON has it: `pipeline` or `phases`; by default the newest.

        `pipeline` has nine fields: where a graph of nodes stands, its context and its history. `phases` has
        phase outputs, gate history and counters; ids that are no UUIDs become some.
        """
        return self._lanes.call(lambda host: host.transfer.checkpoint_as(run_id, form, at=at))

    def write_run_folder(
        self,
        run_id: str,
        folder: str | Path,
        *,
        pipeline: str | None = None,
        until: Callable[[], bool] | None = None,
    ) -> Path:
        """Write a run as a folder of plain files below `folder`, and return it; done again, it goes on.

        It holds checkpoints, events, and what each node was asked and answered, in the clear, as the records
        tell it. It is never read back. `pipeline` is the text of `pipeline.dot`. With `until` it goes on with
        what comes until that function says so.
        """
        return self._lanes.call(
            lambda host: host.transfer.write_run_folder(run_id, folder, pipeline=pipeline, until=until)
        )


class SyncStorageCalls:
    """The store itself, and what it keeps as bytes."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def doctor(self) -> Diagnosis:
        """Look at the store: can it be written to, how fast, and what can it lose as it is set up now."""
        return self._lanes.call(lambda host: host.storage.doctor())

    def info(self, *, flows: Iterable[Flow] = ()) -> StoreInfo:
        """Say how the store is and what it keeps: what `doctor` finds, room, runs by status, retention.

        The rules of `flows` are told besides those of the host.
        """
        return self._lanes.call(lambda host: host.storage.info(flows=flows))

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
        return self._lanes.call(
            lambda host: host.storage.verify(run_ids, blobs=blobs, on_run=on_run, on_progress=on_progress)
        )

    @property
    def spool(self) -> Path:
        """The folder where checkpoints wait while its store is out of reach."""
        return self._lanes.host.storage.spool

    def spooled(self, run_id: str) -> list[CheckpointRecord]:
        """Return the checkpoints of a run that wait on this machine for its store, oldest first."""
        return self._lanes.call(lambda host: host.storage.spooled(run_id))

    def drain(self) -> list[Drained]:
        """Bring checkpoints that wait on this machine to the store; says what became of each run's.

        Those of a run that has gone on without them become a fork of it.
        """
        return self._lanes.call(lambda host: host.storage.drain())

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
        return self._lanes.call(lambda host: host.storage.rekey(run_id, dry_run=dry_run, on_run=on_run))

    def after_restore(
        self,
        *,
        dry_run: bool = False,
        again: bool = False,
        on_progress: Callable[[str], object] | None = None,
    ) -> AfterRestore:
        """Make a store safe that was itself put back from a backup; call it before anything drives its runs.

        Every lease is void and every owner from before, also those that the backup does not know, is fenced.
        Tokens of open waits die, also those that were issued since; notifiers are told of another one. It
        says which runs may repeat what they did since. It may be cut off and called again. Once it was done
        and the store has been used since, it takes `again`: tokens that were told since would die. With
        `dry_run` nothing is written. `on_progress` is told in words how far it has come.
        """
        return self._lanes.call(
            lambda host: host.storage.after_restore(dry_run=dry_run, again=again, on_progress=on_progress)
        )

    @property
    def schemes(self) -> dict[str, str]:
        """Where queued tasks and channels of new runs are kept: `sqlite`, `redis`."""
        return self._lanes.host.storage.schemes
