"""Counts what a host does: what its runs have put, what its workers claim, what its store takes.

A step is counted when it is durable, from its record; that it has begun is the only thing counted before. So
what is counted here and what a chain says agree, but for steps that a crash undid. Steps inside atomic flows,
which have no records, are counted when they end.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Protocol

from everstep.model.address import plain_of
from everstep.model.commits import RunRow
from everstep.model.enums import Status, Trigger
from everstep.model.leases import Lease, WorkerRow
from everstep.model.records import RESULT, CheckpointRecord, StepRecord
from everstep.ports.system import Lock, System
from everstep.runtime.metrics.histogram import Histogram

STEP_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0)
DUE_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 3600.0)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
COMMIT_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_FLOWS, MOST_NODES = 200, 500
"""So many flows, and nodes of all of them, have numbers of their own; the rest share those of `OTHER`."""
OTHER = "other"
_MOST_PATHS = 4096
"""So many paths with a visit or an item are remembered, so that they need not be taken apart each time."""
_RUNNING, _COMPLETED = Status.RUNNING, Status.COMPLETED


class LetGo(Protocol):
    """What a worker did with runs besides driving them."""

    handed_back: int
    set_aside: int


class Works(Protocol):
    """A worker of this process."""

    @property
    def stats(self) -> LetGo: ...

    def describe(self) -> WorkerRow: ...


class NodeMeter:
    """The attempts of one node."""

    __slots__ = ("began", "completed", "observe", "other_ends", "took")

    def __init__(self) -> None:
        self.began = 0
        self.completed = 0
        self.other_ends: Counter[Status] = Counter()
        """What became of attempts that did not complete."""
        self.took = Histogram(STEP_SECONDS)
        self.observe = self.took.observe


class FlowMeter:
    """The runs of one flow, and the attempts of its nodes. Used by one thread or many."""

    def __init__(self, meter: Meter, name: str) -> None:
        self.name = name
        self._meter = meter
        self._lock = meter.lock
        self.began = 0
        self.halted = 0
        self.claimed = 0
        self.taken_over = 0
        self.ended: Counter[str] = Counter()
        self.nodes: dict[str, NodeMeter] = {}
        """By the names on the way to them, whichever visit and item."""
        self.calls: dict[str, NodeMeter] = {}
        """Durable calls inside nodes, by the node that makes them."""
        self._paths: dict[str, NodeMeter | None] = {}
        """By the paths of records; none for what is no step of a node."""

    def step_began(self, path: str) -> None:
        """Count an attempt that begins."""
        found = self._paths.get(path)
        if found is None:
            with self._lock:
                found = self._of(path)
        if found is not None:
            found.began += 1

    def wrote(self, record: CheckpointRecord, status: Status | None) -> None:
        """Count what a durable record says; `status` is what it made of the run, if that has changed."""
        with self._lock:
            paths = self._paths
            for step in record.steps:
                if step.status is not _RUNNING:
                    self._ended(paths.get(step.path) or self._of(step.path), step)
            if record.trigger is Trigger.ADMISSION:
                self.began += 1
            elif status is not None and record.trigger is not Trigger.TRIM:
                self._changed(status)

    def passed(self, step: StepRecord) -> None:
        """Count an attempt inside an atomic flow: it has ended, and no record will say so."""
        with self._lock:
            self._ended(self._paths.get(step.path) or self._of(step.path), step)

    def _ended(self, found: NodeMeter | None, step: StepRecord) -> None:
        if found is None:
            return
        if step.status is _COMPLETED:
            found.completed += 1
        else:
            found.other_ends[step.status] += 1
        began, ended = step.started_at, step.ended_at
        if began is not None and ended is not None and step.wait is None:
            found.observe((ended - began).total_seconds())

    def _changed(self, status: Status) -> None:
        if status is Status.HALTED:
            self.halted += 1
        elif status.is_final:
            self.ended[status.value] += 1

    def forked(self) -> None:
        """Count a run that begins as a fork."""
        with self._lock:
            self.began += 1

    def _of(self, path: str) -> NodeMeter | None:
        """Return what counts a path."""
        if path in self._paths:
            return self._paths[path]
        if len(self._paths) >= _MOST_PATHS:
            self._paths.clear()
        found = self._paths[path] = None if path[0] == "@" else self._named(path)
        return found

    def _named(self, path: str) -> NodeMeter:
        node, mark, _ = path.partition(f"/{RESULT}")
        kept = self.calls if mark else self.nodes
        node = plain_of(node)
        if node not in kept and not self._meter.has_room(self):
            node = OTHER
        return kept.setdefault(node, NodeMeter())


class Meter:
    """Everything that one process counts, for all its event loops."""

    def __init__(self, system: System) -> None:
        self.lock: Lock = system.lock()
        self.flows: dict[str, FlowMeter] = {}
        self._workers: list[Works] = []
        self._let_go: Counter[str] = Counter()
        """What workers that have ended did with runs besides driving them."""
        self.accepted: dict[str, Histogram] = {}
        """By flow: how long accepted runs waited for a worker."""
        self.woken: dict[str, Histogram] = {}
        """By flow: how long after a wait was over its run went on."""
        self.drift: dict[str, Histogram] = {}
        """By flow: how long after they were due waits were ended by the clock."""
        self.commit_seconds = Histogram(COMMIT_SECONDS)
        self.commit_sizes = Histogram(COMMIT_SIZES)
        self.notified: Counter[tuple[str, bool]] = Counter()
        """By notifier, and whether it could be told."""
        self.artifacts = 0
        self.artifact_bytes = 0
        self._nodes = 0

    def of(self, flow: str) -> FlowMeter:
        """Return what counts the runs of a flow."""
        found = self.flows.get(flow)
        if found is None:
            with self.lock:
                name = flow if len(self.flows) < MOST_FLOWS else OTHER
                found = self.flows.setdefault(name, FlowMeter(self, name))
        return found

    def has_room(self, flow: FlowMeter) -> bool:
        """Take room for one more node, if there is any. The caller holds the lock."""
        self._nodes += self._nodes < MOST_NODES
        return self._nodes < MOST_NODES

    def enter(self, worker: Works) -> None:
        """Let a worker that begins be seen."""
        with self.lock:
            self._workers.append(worker)

    def leave(self, worker: Works) -> None:
        """Keep what a worker has done that has ended."""
        with self.lock:
            self._workers.remove(worker)
            self._let_go.update(_let_go_by(worker))

    def let_go(self) -> Counter[str]:
        """Return how many runs were let go of before they ended or halted, by what became of them."""
        with self.lock:
            return sum(map(_let_go_by, self._workers), Counter(self._let_go))

    def slots(self) -> tuple[int, int]:
        """Return how many runs the workers here drive, and how many they may."""
        with self.lock:
            rows = [worker.describe() for worker in self._workers]
        return sum(row.driving for row in rows), sum(row.concurrency for row in rows)

    def claimed(self, row: RunRow, lease: Lease, now: datetime) -> None:
        """Count a run that a worker has claimed."""
        flow = self.of(row.flow_id)
        is_first = lease.epoch <= 1 and row.status is _RUNNING
        with self.lock:
            flow.claimed += 1
            if row.status is _RUNNING and not is_first:
                flow.taken_over += 1
            if is_first:
                _observe(self.accepted, flow.name, now - row.created_at)

    def went_on(self, flow_id: str, since: datetime, now: datetime, *, by_clock: bool) -> None:
        """Count a wait that is over, and since when, whose run goes on with that."""
        flow = self.of(flow_id)
        with self.lock:
            _observe(self.woken, flow.name, now - since)
            if by_clock:
                _observe(self.drift, flow.name, now - since)

    def committed(self, size: int, seconds: float) -> None:
        """Count a put of so many commits."""
        with self.lock:
            self.commit_seconds.observe(seconds)
            self.commit_sizes.observe(size)

    def told(self, notifier: str, *, is_told: bool) -> None:
        """Count a call of a notifier."""
        with self.lock:
            self.notified[notifier, is_told] += 1

    def kept(self, size: int) -> None:
        """Count an artifact."""
        with self.lock:
            self.artifacts += 1
            self.artifact_bytes += size


def _let_go_by(worker: Works) -> Counter[str]:
    return Counter(handed_back=worker.stats.handed_back, set_aside=worker.stats.set_aside)


def _observe(kept: dict[str, Histogram], flow: str, span: timedelta) -> None:
    found = kept.get(flow)
    if found is None:
        found = kept[flow] = Histogram(DUE_SECONDS)
    found.observe(max(0.0, span.total_seconds()))
