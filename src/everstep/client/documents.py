"""What commands show as one JSON document where no call of a host returns just that; and any result so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from everstep.client.guards import BreakerInfo, RunGuards
from everstep.client.outline import next_of
from everstep.client.projection import NodeInfo, RunAct
from everstep.client.views import Delivery, RunInfo, RunResult, RunState, Values
from everstep.codec.plain_json import Wire, jsonable
from everstep.codec.tags import Unreadable
from everstep.codec.wire import wire
from everstep.errors import ValueUnreadable
from everstep.graph.check.diagnostics import Diagnostic, Diagnostics
from everstep.graph.check.report import DurabilityReport, Segment
from everstep.model.address import Part
from everstep.model.enums import Status, Trigger
from everstep.model.records import CHANNEL, CheckpointRecord, ErrorInfo, IdempotencyState
from everstep.model.shapes import Count, Instant, Value
from everstep.runtime.integrity.findings import Fallback


class QueuedInfo(Struct, frozen=True, kw_only=True):
    """A task still to come."""

    number: Count
    node: str
    priority: int
    asked_by: str
    arguments: dict[str, Value]


def queued_in(state: RunState, read: Callable[[str], Any]) -> list[QueuedInfo]:
    """Return the tasks still to come; `read` gives a value by its whole name."""
    return [
        QueuedInfo(
            number=task.number,
            node=task.node,
            priority=task.priority,
            asked_by=task.asked_by,
            arguments={name: read(f"@task/{task.number}/{name}") for name in task.arguments},
        )
        for task in state.queued
    ]


class WaitAt(Struct, frozen=True, kw_only=True):
    """What a node waited for at a checkpoint."""

    id: str
    node: str
    kind: str
    since: Instant | None
    due_at: Instant | None


class VisitAt(Struct, frozen=True, kw_only=True):
    """How far a visit to a flow or a map was at a checkpoint."""

    visit: Count
    items: Count | None
    completed: Count
    failed: tuple[int, ...]


class StreamAtState(Struct, frozen=True, kw_only=True):
    """How far a stream was at a checkpoint."""

    chunks: Count
    cursor: str | None


class StateDocument(Struct, frozen=True, kw_only=True):
    """The values of a run at a checkpoint, and where it stood."""

    run_id: str
    path: str | UnsetType
    """The part of the run, if one was asked for."""
    checkpoint: Count
    status: Status
    values: dict[str, Value]
    channel: dict[str, Value]
    queued: list[QueuedInfo]
    waits: list[WaitAt]
    open: dict[str, VisitAt]
    versions: dict[str, int]
    streams: dict[str, StreamAtState]
    pending: tuple[str, ...]
    idempotency: IdempotencyState
    next: list[str]
    steps: Count

    @classmethod
    def of(cls, state: RunState, values: Mapping[str, Any], read: Callable[[str], Any]) -> StateDocument:
        """Describe a state: values by whole name, the channel by key."""
        nodes = state.nodes.items()
        return cls(
            run_id=state.run_id,
            path=UNSET if state.part is None else state.part.base,
            checkpoint=state.sequence,
            status=state.status,
            values={name: value for name, value in values.items() if name[0] != "@"},
            channel={n.removeprefix(CHANNEL): v for n, v in values.items() if n.startswith(CHANNEL)},
            queued=queued_in(state, read),
            waits=[
                WaitAt(id=w.wait_id, node=path, kind=w.kind, since=node.since, due_at=w.due_at)
                for path, node in nodes
                if (w := node.wait) is not None
            ],
            open={
                path: VisitAt(visit=v.visit, items=v.items, completed=len(v.done), failed=v.failed)
                for path, v in state.opened.items()
            },
            versions=state.versions,
            streams={
                path: StreamAtState(chunks=s.chunks, cursor=s.cursor)
                for path, node in nodes
                if (s := node.stream) is not None
            },
            pending=state.frontier.pending,
            idempotency=state.idempotency,
            next=next_of(state)[0],
            steps=state.counters.steps,
        )


class Relative(Struct, frozen=True, kw_only=True):
    """One run among its forks and those it comes from."""

    run_id: str
    parent_run_id: str | None
    forked_at: Count | None
    status: Status
    checkpoints: Count


class Family(Struct, frozen=True, kw_only=True):
    """A run with its forks and those it comes from."""

    run_id: str
    runs: list[Relative]

    @classmethod
    def of(cls, run_id: str, family: Iterable[RunInfo]) -> Family:
        """Describe a family."""
        names = Relative.__struct_fields__
        return cls(
            run_id=run_id,
            runs=[Relative(**{name: getattr(run, name) for name in names}) for run in family],
        )


class SpooledStep(Struct, frozen=True, kw_only=True):
    """A step of a checkpoint that waits on this machine."""

    node: str
    visit: Count
    status: Status


class SpooledInfo(Struct, frozen=True, kw_only=True):
    """A checkpoint that waits on this machine."""

    sequence: Count
    checkpoint_id: str
    created_at: Instant
    trigger: Trigger
    status: Status
    digest: str
    steps: list[SpooledStep]


class Spooled(Struct, frozen=True, kw_only=True):
    """The checkpoints of a run that the store does not have yet, or why they cannot be read."""

    spooled: list[SpooledInfo]
    spool_problem: str | None

    @classmethod
    def of(cls, records: Iterable[CheckpointRecord]) -> Spooled:
        """Describe the checkpoints."""
        found = [
            SpooledInfo(
                sequence=record.sequence,
                checkpoint_id=record.checkpoint_id,
                created_at=record.created_at,
                trigger=record.trigger,
                status=record.status,
                digest=record.digest,
                steps=[SpooledStep(node=s.path, visit=s.visit, status=s.status) for s in record.steps],
            )
            for record in records
        ]
        return cls(spooled=found, spool_problem=None)


class RunDocument(Struct, frozen=True, kw_only=True):
    """What a run came to, as the command that drove it shows it."""

    run_id: str
    status: Status
    values: Value
    channel: Value | UnsetType = UNSET
    error: ErrorInfo | None
    steps: Count
    waits: Value
    spooled: Count
    paused: bool = False
    """True if it was let go of because it, its flow or its group is paused."""
    fallback: Fallback | None
    run_folder: Path | UnsetType = UNSET

    @classmethod
    def of(cls, result: RunResult) -> RunDocument:
        """Read the values of a result; its waits have their tokens, as each has by itself."""
        return cls(
            run_id=result.run_id,
            status=result.status,
            values=readable(result),
            channel=result.channel or UNSET,
            error=result.error,
            steps=result.steps,
            waits=[wire(wait) for wait in result.waits],
            spooled=result.spooled,
            paused=result.is_paused,
            fallback=result.fallback,
        )


class ShowDocument(RunInfo, frozen=True, kw_only=True):
    """A run at a glance."""

    steps: Count
    pending: tuple[str, ...]
    next: list[str]
    queued: list[QueuedInfo]
    waits: Value
    error: ErrorInfo | None
    guards: RunGuards
    spooled: Count
    nodes: list[NodeInfo]
    acts: list[RunAct]
    begins_at: Instant | UnsetType = UNSET
    """When it begins, if it was to begin later and has not."""
    ends_at: Instant | UnsetType = UNSET
    """Its deadline, if it has one and has not ended."""

    @classmethod
    def with_more(cls, info: RunInfo, **more: Any) -> ShowDocument:
        """Describe a run, with what its records say."""
        return cls(**asdict(info), **more)


def readable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name, those of inner flows below theirs; where one cannot be read, why."""
    return {name: _read(values, name) for name in values}


def _read(values: Mapping[str, Any], name: str) -> Any:
    try:
        found = values[name]
    except ValueUnreadable as error:
        return Unreadable(error)
    return readable(found) if isinstance(found, Values) else found


def as_json(result: object) -> Any:
    """Return what a call of a host returned as `--json` shows it: a struct, a list, values by name, none.

    What is at work and holds no data, such as a store or a worker, is a `TypeError`.
    """
    match result:
        case RunResult():
            return wire(RunDocument.of(result))
        case RunState():
            return wire(StateDocument.of(result, readable(result), partial(_read, result)))
        case Delivery():
            return Wire({**wire(replace(result, result=None)), "result": as_json(result.result)})
        case Struct() | None:
            return wire(result)
        case Diagnostic() | Diagnostics() | DurabilityReport() | Segment():
            return result.to_json()
        case Part():
            return result._asdict()
        case Enum():
            return result.value
        case datetime():
            return result.isoformat()
        case Path():
            return str(result)
    return _plain(result)


def _plain(result: object) -> Any:
    match result:
        case Mapping():
            shown = {k: wire(v) if isinstance(v, BreakerInfo) else v for k, v in readable(result).items()}
            return jsonable(shown)
        case list():
            return [as_json(one) for one in result]
        case Unreadable() | bool() | int() | float() | str() | bytes():
            return jsonable(result)
    raise TypeError(
        f"as_json takes what a call of a host returns, and {type(result).__qualname__} holds no such data. "
        "Give it a result, a list of results, or values by name."
    )
