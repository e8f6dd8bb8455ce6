"""Steps as a tree: those of an inner flow below it, those of a map's items in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from everstep.model.address import Address, item_of, map_of
from everstep.model.enums import Status
from everstep.model.records import CheckpointRecord, OpenedState, StepRecord


class Line:
    """A step with a line of its own."""

    def __init__(self, record: CheckpointRecord, step: StepRecord, depth: int, name: str) -> None:
        self.record = record
        self.step = step
        self.depth = depth
        self.name = name
        """As people see it below what stands above: `draft@2`, `#7/inner@1`, `inputs`."""


class Fold:
    """Steps inside a map that follow one another, in one line, whichever checkpoints hold them."""

    def __init__(self, record: CheckpointRecord, path: str, depth: int, *, begins_record: bool) -> None:
        self.first = self.last = record
        self.path = path
        """The visit to the map."""
        self.depth = depth
        self.begins_record = begins_record
        self.steps = 0
        self.completed: set[str] = set()
        self.failed: set[str] = set()
        self.failures: list[Line] = []
        self.began: datetime | None = None
        self.ended: datetime | None = None

    def take(self, record: CheckpointRecord, step: StepRecord) -> None:
        """Add a step of one of the items."""
        self.last = record
        self.steps += 1
        item = item_of(step.path)
        assert item is not None
        if step.started_at is not None:
            self.began = min(self.began or step.started_at, step.started_at)
        if step.ended_at is not None:
            self.ended = max(self.ended or step.ended_at, step.ended_at)
        if step.status is Status.FAILED:
            if item != step.path or not any(item_of(line.step.path) == item for line in self.failures[-8:]):
                self.failures.append(Line(record, step, self.depth, inside(step)))
            if item == step.path:
                self.failed.add(item)
        elif step.status is Status.COMPLETED and item == step.path:
            self.completed.add(item)
            self.failed.discard(item)  # it was tried again

    @property
    def lasting(self) -> list[Line]:
        """The failures of items that did not complete later."""
        return [line for line in self.failures if item_of(line.step.path) not in self.completed]


class Tally:
    """How the items of each visit to a map have ended so far."""

    def __init__(self, records: Iterable[CheckpointRecord]) -> None:
        self._sizes = {
            base_of(step): step.items for record in records for step in record.steps if step.items is not None
        }
        self._failed: dict[str, set[str]] = {}

    def begin(self, opened: Mapping[str, OpenedState]) -> None:
        """Note the maps that were under way before the first of the records."""
        for path, visit in opened.items():
            if visit.items is not None:
                base = path + (f"@{visit.visit}" if visit.visit > 1 else "")
                self._sizes.setdefault(base, visit.items)
                self.count(base, {f"{base}#{item}" for item in visit.failed}, set())

    def size(self, base: str) -> int | None:
        """Return over how many items a visit goes; none if it is no map."""
        return self._sizes.get(base)

    def failed(self, base: str) -> int:
        """Return how many items of a visit have failed."""
        return len(self._failed.get(base, ()))

    def take(self, step: StepRecord) -> None:
        """Count an item that has ended."""
        base = map_of(step.path)
        if base is not None and step.path == item_of(step.path):
            if step.status is Status.FAILED:
                self.count(base, {step.path}, set())
            elif step.status is Status.COMPLETED:
                self.count(base, set(), {step.path})

    def count(self, base: str, failed: set[str], completed: set[str]) -> None:
        """Note items of a visit that have failed, and those that have completed, maybe after a failure."""
        known = self._failed.setdefault(base, set())
        known |= failed
        known -= completed


def base_of(step: StepRecord) -> str:
    """Return what the paths inside a visit begin with: `rag`, `rag@2`."""
    return step.path + (f"@{step.visit}" if step.visit > 1 else "")


def name_of(step: StepRecord) -> str:
    """Name a step in full, as people see it: `draft@2`, `rag@1/inner@1`, `inputs`, `fork`."""
    return step.path[1:] if step.path.startswith("@") else str(Address.of(step.path, step.visit))


def inside(step: StepRecord) -> str:
    """Name a step of a map's item below the map: `#7/inner@1`."""
    return "#" + name_of(step).partition("#")[2]


def lines(
    records: Sequence[CheckpointRecord], *, full: bool, below: StepRecord | None = None
) -> Iterator[Line | Fold]:
    """Lay the steps out in order; with `full`, those of a map's items line by line as well."""
    above: set[str] = set() if below is None else _scopes(below)
    fold: Fold | None = None
    for record in records:
        for k, step in enumerate(record.steps):
            base = map_of(step.path)
            if base is not None and not full:
                if fold is None or fold.path != base:
                    if fold is not None:
                        yield fold
                    depth = base.count("/") + 1
                    fold = Fold(record, base, depth, begins_record=k == 0)
                fold.take(record, step)
                continue
            if fold is not None:
                yield fold
                fold = None
            yield _line(record, step, above)
            above = _scopes(step)
        if not record.steps:
            if fold is not None:
                yield fold
                fold = None
            yield Line(record, StepRecord(path="@"), 0, "–")
    if fold is not None:
        yield fold


def _line(record: CheckpointRecord, step: StepRecord, above: set[str]) -> Line:
    base = map_of(step.path)
    if base is not None:
        is_below = base in above
        return Line(
            record, step, base.count("/") + 1 if is_below else 0, inside(step) if is_below else name_of(step)
        )
    outer, _, _ = step.path.rpartition("/")
    name = name_of(step)
    if outer and outer in above:
        return Line(record, step, outer.count("/") + 1, name.rpartition("/")[2])
    return Line(record, step, 0, name)


def _scopes(step: StepRecord) -> set[str]:
    """Return the flows below whose lines the next step may stand."""
    parts = base_of(step).split("/")
    found = {"/".join(parts[: k + 1]) for k in range(len(parts))}
    return found | {part for path in found if (part := map_of(path))}
