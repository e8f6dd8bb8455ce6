"""Checkpoints and their steps as `--json` shows them: what a record says, with the values that it names.

Apart from the projection, which keeps no record: here each is shown whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from msgspec import Struct

from everstep.client.guards import GuardedInfo
from everstep.client.projection import name_of
from everstep.client.views import WaitInfo
from everstep.model.acts import Act
from everstep.model.enums import Status, Trigger, ValueForm
from everstep.model.records import CheckpointRecord, ErrorInfo, QueuedTask, StepRecord, Written
from everstep.model.shapes import VALUE, Count, Instant, Value, shown
from everstep.model.waits import SettledBy

if TYPE_CHECKING:
    from everstep.ports.live import KeptLog
    from everstep.runtime.live.step_logs import LoggedText


MOST_NODES = 20
"""How many steps of a checkpoint are named in a list."""


class ValueReader(Protocol):
    """Reads what records name."""

    def written(self, step: StepRecord, write: Written) -> Any: ...

    def arguments(self, task: QueuedTask) -> Mapping[str, Any]: ...

    def wait(self, wait_id: str) -> WaitInfo | None: ...


class WriteInfo(Struct, frozen=True, kw_only=True):
    """One value that a step wrote."""

    name: str
    version: int
    size: int
    form: ValueForm
    is_artifact: bool
    value: Value


class TaskInfo(Struct, frozen=True, kw_only=True):
    """One visit that a step asked for."""

    number: int
    node: str
    priority: int
    arguments: dict[str, Value]


class StepLogInfo(Struct, frozen=True, kw_only=True):
    """What one attempt at a step logged and printed."""

    node: str
    visit: Count
    attempt: Count
    epoch: Count
    """That of the owner that drove the run."""
    text: str
    """Its head, a line that says how much is left out, and its tail; whole if it is short."""
    omitted: Count
    """How many bytes are left out."""

    @classmethod
    def of(cls, log: KeptLog, said: LoggedText) -> StepLogInfo:
        """Describe a log."""
        place = log.place
        left = f"\n… {said.omitted:,} bytes left out …\n" if said.omitted else ""
        return cls(
            node=place.path,
            visit=place.visit,
            attempt=place.attempt,
            epoch=place.epoch,
            text=f"{said.head}{left}{said.tail}",
            omitted=said.omitted,
        )


class StepWaitInfo(Struct, frozen=True, kw_only=True):
    """What a step waited for."""

    id: str
    kind: str
    due_at: Instant | None
    scheduler: str
    settled_by: SettledBy | None


class StepInfo(Struct, frozen=True, kw_only=True):
    """One step as its record tells it."""

    address: str
    node: str
    visit: int
    status: Status
    attempts: int
    started_at: Instant | None
    ended_at: Instant | None
    decision: tuple[str, ...] | None
    key: str | None
    retry_at: Instant | None
    error: ErrorInfo | None
    reads: dict[str, int]
    items: int | None
    queued: list[TaskInfo]
    wait: StepWaitInfo | None
    act: Act | None
    task: int | None
    goto: bool
    ends: bool
    spent: Mapping[str, Decimal] | None
    guards: GuardedInfo | None
    writes: list[WriteInfo]

    @shown
    def seconds(self) -> float | None:
        """How long it took; none if it has not ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()

    @classmethod
    def of(cls, step: StepRecord, values: ValueReader) -> StepInfo:
        """Describe a step, with the values that it wrote."""
        return cls(
            address=name_of(step),
            node=step.path,
            visit=step.visit,
            status=step.status,
            attempts=step.attempts,
            started_at=step.started_at,
            ended_at=step.ended_at,
            decision=step.decision,
            key=step.key,
            retry_at=step.retry_at,
            error=step.error,
            reads=step.reads,
            items=step.items,
            queued=[_task(task, values) for task in step.queued],
            wait=_wait(step, values),
            act=step.act,
            task=step.task,
            goto=step.goto,
            ends=step.ends,
            spent=step.spent,
            guards=None if step.guards is None else GuardedInfo.of(step.guards),
            writes=[_write(step, write, values) for write in step.writes],
        )


class RecordInfo(Struct, frozen=True, kw_only=True):
    """One checkpoint with its steps."""

    sequence: int
    run_id: str
    checkpoint_id: str
    created_at: Instant
    trigger: Trigger
    status: Status
    keyframe: bool
    metadata: Annotated[dict[str, Any] | None, VALUE]
    resume_after: Instant | None
    act: Act | None
    error: ErrorInfo | None
    digest: str
    steps: list[StepInfo]

    @classmethod
    def of(cls, record: CheckpointRecord, values: ValueReader) -> RecordInfo:
        """Describe a record, with the values that its steps wrote."""
        return cls(
            sequence=record.sequence,
            run_id=record.run_id,
            checkpoint_id=record.checkpoint_id,
            created_at=record.created_at,
            trigger=record.trigger,
            status=record.status,
            keyframe=record.keyframe,
            metadata=record.metadata,
            resume_after=record.resume_after,
            act=record.act,
            error=record.error,
            digest=record.digest,
            steps=[StepInfo.of(step, values) for step in record.steps],
        )


class CheckpointLine(Struct, frozen=True, kw_only=True):
    """One line of a list of checkpoints, without values."""

    sequence: Count
    checkpoint_id: str
    run_id: str
    """The run it lies in: of a fork's shared part, the run it was forked from."""
    trigger: Trigger
    created_at: Instant
    status: Status
    keyframe: bool
    steps: Count
    """How many steps it holds."""
    nodes: list[str]
    """The addresses of the first of them."""
    digest: str
    act: Act | None

    @classmethod
    def of(cls, record: CheckpointRecord) -> CheckpointLine:
        """Describe a record."""
        steps = [step for step in record.steps if step.path[0] != "@"]
        return cls(
            sequence=record.sequence,
            checkpoint_id=record.checkpoint_id,
            run_id=record.run_id,
            trigger=record.trigger,
            created_at=record.created_at,
            status=record.status,
            keyframe=record.keyframe,
            steps=len(steps),
            nodes=[name_of(step) for step in steps[:MOST_NODES]],
            digest=record.digest,
            act=record.act,
        )


class CheckpointPage(Struct, frozen=True, kw_only=True):
    """Some checkpoints of a run."""

    run_id: str
    checkpoints: list[CheckpointLine]
    next: Count | None
    """The checkpoint to go on from; none if there are no more."""


def _task(task: QueuedTask, values: ValueReader) -> TaskInfo:
    arguments = dict(values.arguments(task))
    return TaskInfo(number=task.number, node=task.node, priority=task.priority, arguments=arguments)


def _write(step: StepRecord, write: Written, values: ValueReader) -> WriteInfo:
    return WriteInfo(
        name=write.name,
        version=write.version,
        size=write.size,
        form=write.form,
        is_artifact=write.artifact is not None,
        value=None if write.form is ValueForm.DELETED else values.written(step, write),
    )


def _wait(step: StepRecord, values: ValueReader) -> StepWaitInfo | None:
    if step.wait is None:
        return None
    found = values.wait(step.wait.wait_id) if step.status is not Status.HALTED else None
    return StepWaitInfo(
        id=step.wait.wait_id,
        kind=step.wait.kind,
        due_at=step.wait.due_at,
        scheduler=step.wait.scheduler,
        settled_by=None if found is None else found.settled_by,
    )
