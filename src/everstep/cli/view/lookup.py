"""The values that steps read and wrote, by version, read a stretch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from everstep import Host
from everstep.cli.view.text import Unreadable
from everstep.cli.view.waits import all_waits
from everstep.client.views import WaitInfo
from everstep.codec.tags import Unreadable as UnreadableValue
from everstep.errors import WaitNotFound
from everstep.model.enums import ValueForm
from everstep.model.records import CheckpointRecord, QueuedTask, StepRecord, Written

STRETCH, ROOM = 5000, 1 << 24
"""How many versions are read at once, and of how many bytes, about."""

Version = tuple[str, int]
PAGE = 500
"""How many checkpoints are read at a time."""
RECENT = 2000
"""Of so many checkpoints everything is read; of those before them, if it must not be all, only how the run
stood."""


class Pages:
    """The checkpoints of a run, or of a part of one, a page at a time; or so many of the newest.

    They can be gone over again. A run of one page is read once.
    """

    def __init__(
        self, host: Host, run: str, *, newest: int | None = None, after: int = 0, upto: int | None = None
    ) -> None:
        self._host = host
        self._run = run
        self._after = after
        self._upto = upto
        self._only = None if newest is None else host.history(run, count=newest)

    def __iter__(self) -> Iterator[list[CheckpointRecord]]:
        if self._only is not None:
            yield self._only
            return
        found = self._page(self._after)
        self._only = found if len(found) < PAGE else None
        while found:
            yield found
            found = self._page(found[-1].sequence) if len(found) == PAGE else []

    def _page(self, after: int) -> list[CheckpointRecord]:
        return self._host.history(self._run, after=after, last=self._upto, count=PAGE)


class Lookup:
    """Reads versions of values in about the order of the steps that are to be shown."""

    def __init__(self, host: Host, run_id: str, steps: Iterable[StepRecord]) -> None:
        self._host = host
        self._run_id = run_id
        self._at = run_id
        """Where to begin to look back for values."""
        self._waits: dict[str, WaitInfo | None] | None = None
        self.turn_to(steps)

    def turn_to(
        self, steps: Iterable[StepRecord], *, with_reads: bool = False, upto: int | None = None
    ) -> None:
        """Be ready for the values of these steps, and forget those of others.

        `upto` is the newest checkpoint that any of them lies in, so that no newer one is read.
        """
        self._at = self._run_id if upto is None else f"{self._run_id}@{upto}"
        self._sizes = {
            version: size for step in steps for version, size in _versions(step, with_reads=with_reads)
        }
        self._order = list(self._sizes)
        self._place = {version: k for k, version in enumerate(self._order)}
        self._read: dict[Version, Any] = {}

    def value(self, name: str, version: int) -> Any:
        """Return a version of a value by its whole name, or an `Unreadable` that says why not."""
        wanted = (name, version)
        if wanted not in self._read:
            at = self._place.get(wanted)
            self._read = self._host.debug.recall(self._at, [wanted] if at is None else self._stretch(at))
        found = self._read[wanted]
        return Unreadable(found.why) if isinstance(found, UnreadableValue) else found

    def _stretch(self, at: int) -> list[Version]:
        chosen: list[Version] = []
        room = ROOM
        for version in self._order[at : at + STRETCH]:
            room -= self._sizes[version]
            if chosen and room < 0:
                break
            chosen.append(version)
        return chosen

    def written(self, step: StepRecord, write: Written) -> Any:
        """Return what a step wrote."""
        return self.value(step.whole_name(write.name), write.version)

    def read(self, step: StepRecord, name: str) -> Any:
        """Return what a step read under a name."""
        return self.value(step.whole_name(name), step.reads[name])

    def added(self, step: StepRecord, write: Written) -> list[Any] | None:
        """Return the items that a write added to a list; none if it wrote the list whole, or who knows."""
        if write.form not in (ValueForm.APPEND, ValueForm.PREPEND):
            return None
        name = step.whole_name(write.name)
        after = self.value(name, write.version)
        before = self.value(name, write.version - 1) if write.version > 1 else []
        if not isinstance(before, list) or not isinstance(after, list):
            return None
        return after[len(before) :] if write.form is ValueForm.APPEND else after[: len(after) - len(before)]

    def wait(self, wait_id: str) -> WaitInfo | None:
        """Return what the store knows of a wait; nothing if it has forgotten it."""
        if self._waits is None:
            self._waits = {wait.id: wait for wait in all_waits(self._host, self._run_id, status=None)}
        if wait_id not in self._waits:  # of the run that this one was forked from
            try:
                self._waits[wait_id] = self._host.wait(wait_id)
            except WaitNotFound:
                self._waits[wait_id] = None
        return self._waits[wait_id]

    def arguments(self, task: QueuedTask) -> dict[str, Any]:
        """Return what a queued task is called with."""
        return {name: self.value(*_argument(task, name)) for name in task.arguments}


def _argument(task: QueuedTask, name: str) -> Version:
    return f"@task/{task.number}/{name}", 1


def _versions(step: StepRecord, *, with_reads: bool) -> Iterable[tuple[Version, int]]:
    """Yield what may be asked for of a step, and how large it is as far as its record says."""
    if with_reads:
        yield from (((step.whole_name(name), version), 0) for name, version in step.reads.items())
    for task in step.queued:
        yield from ((_argument(task, name), 0) for name in task.arguments)
    for write in step.writes:
        name = step.whole_name(write.name)
        if write.form is ValueForm.DELETED:
            continue
        if write.form in (ValueForm.APPEND, ValueForm.PREPEND) and write.version > 1:
            yield (name, write.version - 1), write.size
        yield (name, write.version), write.size
