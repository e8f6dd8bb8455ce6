"""One visit to a node in full: its attempts, what it read and wrote, what it decided, spent and waited for.

Apart from the projection, which tells of a node over all its visits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from everstep.client.guards import GuardedInfo
from everstep.client.looking.cuts import ValueCut
from everstep.client.looking.shown_values import as_cut, cut_in
from everstep.client.projection import ItemsInfo, WaitingFor, base_of, name_of
from everstep.errors import RunNotFound
from everstep.model.acts import Act
from everstep.model.address import Address, Part, part_of
from everstep.model.enums import Status, Trigger, ValueForm
from everstep.model.records import RESULT, CheckpointRecord, ErrorInfo, StepRecord, visit_path
from everstep.model.shapes import Count, Instant, OrNull, shown
from everstep.ports.store import RunRow
from everstep.runtime.history import stretch
from everstep.runtime.reader import RunReader
from everstep.runtime.travel.recall import RecalledChain

MOST_UNITS = 300
"""How many durable calls of a visit are listed."""
LOOKED_BACK = 2000
"""How many checkpoints before the one that tells of a visit are read to find how it began."""
_PAGE = 64
_LARGEST_PAGE = 512


class VisitError(Struct, frozen=True, kw_only=True):
    """Why an attempt failed."""

    type: str
    code: str
    message: str
    traceback: str

    @classmethod
    def of(cls, error: ErrorInfo | None) -> VisitError | None:
        """Describe a kept error."""
        if error is None:
            return None
        return cls(type=error.type, code=error.code, message=error.message, traceback=error.traceback)


class VisitAttempt(Struct, frozen=True, kw_only=True):
    """One attempt at a visit."""

    attempt: Count
    checkpoint: Count
    """The newest that tells of it."""
    status: Status
    started_at: Instant | None
    ended_at: Instant | None
    retry_at: Instant | None
    """When the next one is due."""
    error: VisitError | None

    @shown
    def seconds(self) -> float | None:
        """How long it took; none if it has not ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


class VisitUnit(Struct, frozen=True, kw_only=True):
    """A durable call that the visit made."""

    name: str
    address: str
    status: Status
    attempts: Count
    checkpoint: Count
    started_at: Instant | None
    ended_at: Instant | None

    @shown
    def seconds(self) -> float | None:
        """How long it took; none if it has not ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


class VisitWrite(Struct, frozen=True, kw_only=True):
    """One value that a step wrote, without the value."""

    name: str
    version: Count
    size: Count
    form: ValueForm
    is_artifact: bool


class VisitRecord(Struct, frozen=True, kw_only=True):
    """One step of the visit as its record tells it, without values."""

    checkpoint: Count
    checkpoint_id: str
    trigger: Trigger
    created_at: Instant
    digest: str
    status: Status
    attempts: Count
    started_at: Instant | None
    ended_at: Instant | None
    reads: dict[str, int]
    """The version of each value that it read."""
    writes: list[VisitWrite]
    queued: list[str]
    """The nodes that it asked visits to."""
    goto: bool
    ends: bool


class StepVisit(Struct, frozen=True, kw_only=True):
    """One visit to a node in full, as a checkpoint has it."""

    run_id: str
    address: str
    path: str
    visit: Count
    status: Status
    checkpoint: Count
    """The newest that tells of it."""
    began_checkpoint: Count
    """The oldest that does, as far as it was looked for."""
    attempts: list[VisitAttempt]
    inputs: dict[str, ValueCut]
    """What it read, by the names that the node knows it by."""
    outputs: dict[str, ValueCut]
    """What it wrote."""
    before: dict[str, ValueCut]
    """Of what it wrote: the version before it, if there was one."""
    decision: tuple[str, ...] | None
    outcome: OrNull
    error: VisitError | None
    """Of its newest attempt."""
    idempotency_key: str | None
    spent: Mapping[str, Decimal] | None
    """In all of the visit."""
    guards: GuardedInfo | None
    items: ItemsInfo | None
    """Of a map: how its items have ended, as far as what was looked through tells."""
    units: list[VisitUnit]
    """The durable calls that it made, in the order in which they are recorded."""
    unit_count: Count
    """How many there are; the first of them are listed."""
    wait: WaitingFor | None
    act: Act | None
    record: list[VisitRecord]
    """Its steps as they are recorded, oldest first."""
    is_cut: bool
    """True if it began before what was looked through."""

    @shown
    def started_at(self) -> datetime | None:
        """When it began."""
        return next((one.started_at for one in self.attempts if one.started_at is not None), None)

    @shown
    def ended_at(self) -> datetime | None:
        """When it ended, if it has."""
        is_over = self.status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
        return self.attempts[-1].ended_at if is_over and self.attempts else None


class _Told(NamedTuple):
    """A step, and the record that tells of it."""

    record: CheckpointRecord
    step: StepRecord


class FoundVisit(NamedTuple):
    """What the records of a run say of one visit, oldest first."""

    told: list[_Told]
    units: list[_Told]
    records: list[CheckpointRecord]
    """All that were read, without a gap."""
    is_cut: bool


async def find_visit(runs: RunReader, row: RunRow, last: int, path: str) -> FoundVisit | None:
    """Return what records up to one say of a visit; what the path leaves out is the last one.

    The chain is read back from there as far as the visit began; none if it is not told of.
    """
    wanted, size, upper = Address.parse(path), _PAGE, last
    if wanted is None:
        return None
    found, records, part = FoundVisit([], [], [], False), list[CheckpointRecord](), None
    oldest = max(1, row.trimmed_before)
    while upper >= oldest:
        page = await stretch(runs, row, max(oldest, upper - size + 1), upper)
        if part is None:
            part = _newest_part(wanted, page)
        if part is not None:
            records = [*page, *records]
            found = _of_part(part, records)
            if found.told and _has_begun(found.told, page):
                return found
            if (
                found.told
                and found.told[-1].record.sequence - (page[0].sequence if page else 0) > LOOKED_BACK
            ):
                return found._replace(is_cut=True)
        if not page:
            break
        upper, size = page[0].sequence - 1, min(size * 2, _LARGEST_PAGE)
    return found if found.told else None


def _newest_part(wanted: Address, page: Sequence[CheckpointRecord]) -> Part | None:
    # To take an address apart takes longer than to see that it begins otherwise.
    begins = wanted.names[0]
    items = [f"#{segment.item}" for segment in wanted.segments if segment.item is not None]
    for record in reversed(page):
        for step in reversed(record.steps):
            path = step.path
            if not path.startswith(begins) or not all(item in path for item in items):
                continue
            if (part := part_of(wanted, path, step.visit)) is not None:
                if part.visit or step.path != part.path:
                    return part
                return part._replace(visit=step.visit)
    return None


def _of_part(part: Part, records: list[CheckpointRecord]) -> FoundVisit:
    told, units = list[_Told](), list[_Told]()
    inside = f"{visit_path(part.path, max(1, part.visit))}/"
    for record in records:
        for step in record.steps:
            if step.path == part.path and step.visit == (part.visit or step.visit):
                told.append(_Told(record, step))
            elif step.path.startswith(inside) and _is_unit(step.path[len(inside) :]):
                units.append(_Told(record, step))
    return FoundVisit(told, units, records, is_cut=False)


def _is_unit(name: str) -> bool:
    """True for what is left of the path of a durable call behind its node."""
    return name[:1] == RESULT and "/" not in name


def _has_begun(told: Sequence[_Told], page: Sequence[CheckpointRecord]) -> bool:
    """True if no record before these can tell of the visit."""
    step = told[0].step
    if step.attempts > 1 or step.started_at is None or not page:
        return False
    return page[0].created_at < step.started_at or page[0].sequence == 1


def describe(run_id: str, found: FoundVisit) -> StepVisit:
    """Return what is told of a visit, without values."""
    record, step = found.told[-1]
    units = _units(found.units)
    return StepVisit(
        run_id=run_id,
        address=name_of(step),
        path=step.path,
        visit=step.visit,
        status=step.status,
        checkpoint=record.sequence,
        began_checkpoint=found.told[0].record.sequence,
        attempts=_attempts(found.told),
        inputs={},
        outputs={},
        before={},
        decision=step.decision,
        outcome=step.outcome,
        error=VisitError.of(step.error),
        idempotency_key=next((one.step.key for one in reversed(found.told) if one.step.key), None),
        spent=_spent(one.step for one in found.told),
        guards=None if step.guards is None else GuardedInfo.of(step.guards),
        items=_items(found),
        units=units[:MOST_UNITS],
        unit_count=len(units),
        wait=next((w for one in reversed(found.told) if (w := WaitingFor.of(one.step))), None),
        act=step.act,
        record=[_recorded(one) for one in found.told],
        is_cut=found.is_cut,
    )


def _items(found: FoundVisit) -> ItemsInfo | None:
    count = next((one.step.items for one in found.told if one.step.items is not None), None)
    if count is None:
        return None
    completed, failed, begins = 0, set[str](), f"{base_of(found.told[0].step)}#"
    for record in found.records:
        for step in record.steps:
            # What lies inside an item has no part in how the item itself ended.
            if not step.path.startswith(begins) or not step.path[len(begins) :].isdecimal():
                continue
            if step.status is Status.FAILED:
                failed.add(step.path)
            elif step.status is Status.COMPLETED:
                completed += 1
                failed.discard(step.path)
    return ItemsInfo(count=count, completed=completed, failed=len(failed))


def _attempts(told: Iterable[_Told]) -> list[VisitAttempt]:
    found: dict[int, VisitAttempt] = {}
    for record, step in told:
        before = found.get(step.attempts)
        found[step.attempts] = VisitAttempt(
            attempt=step.attempts,
            checkpoint=record.sequence,
            status=step.status,
            started_at=step.started_at or (None if before is None else before.started_at),
            ended_at=None if step.status is Status.HALTED else step.ended_at,
            retry_at=step.retry_at,
            error=VisitError.of(step.error),
        )
    return list(found.values())


def _units(told: Iterable[_Told]) -> list[VisitUnit]:
    found: dict[str, VisitUnit] = {}
    for record, step in told:
        address = name_of(step)
        found[address] = VisitUnit(
            name=step.path.rpartition("/")[2],
            address=address,
            status=step.status,
            attempts=step.attempts,
            checkpoint=record.sequence,
            started_at=step.started_at,
            ended_at=step.ended_at,
        )
    return list(found.values())


def _spent(steps: Iterable[StepRecord]) -> dict[str, Decimal] | None:
    found: dict[str, Decimal] = {}
    for step in steps:
        for name, amount in (step.spent or {}).items():
            found[name] = found.get(name, Decimal(0)) + amount
    return found or None


def _recorded(told: _Told) -> VisitRecord:
    record, step = told
    return VisitRecord(
        checkpoint=record.sequence,
        checkpoint_id=record.checkpoint_id,
        trigger=record.trigger,
        created_at=record.created_at,
        digest=record.digest,
        status=step.status,
        attempts=step.attempts,
        started_at=step.started_at,
        ended_at=step.ended_at,
        reads=step.reads,
        writes=[
            VisitWrite(
                name=write.name,
                version=write.version,
                size=write.size,
                form=write.form,
                is_artifact=write.artifact is not None,
            )
            for write in step.writes
        ],
        queued=[task.node for task in step.queued],
        goto=step.goto,
        ends=step.ends,
    )


async def with_values(runs: RunReader, found: FoundVisit, visit: StepVisit) -> StepVisit:
    """Return a visit with what it read and wrote, as far as values are shown at once."""
    record, step = found.told[-1]
    chain = RecalledChain(runs, visit.run_id, found.records)
    reads = next((one.step for one in reversed(found.told) if one.step.reads), step)
    inputs = {name: (reads.whole_name(name), version) for name, version in reads.reads.items()}
    writes = [write for write in step.writes if write.form is not ValueForm.DELETED]
    outputs = {write.name: (step.whole_name(write.name), write.version) for write in writes}
    before = {name: (whole, version - 1) for name, (whole, version) in outputs.items() if version > 1}
    wanted = {*inputs.values(), *outputs.values(), *before.values()}
    seen = await chain.values(record.sequence, wanted, cut_in)
    return replace(
        visit,
        inputs={name: as_cut(seen[version], version) for name, version in inputs.items()},
        outputs={name: as_cut(seen[version], version) for name, version in outputs.items()},
        before={name: as_cut(seen[version], version) for name, version in before.items()},
    )


def no_such_visit(run_id: str, path: str) -> RunNotFound:
    return RunNotFound(
        f"the steps of {path!r} in run {run_id!r} were removed.",
        fix=f"See what is left: everstep log {run_id}",
    )
