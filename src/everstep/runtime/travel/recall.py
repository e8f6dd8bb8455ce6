"""Values as a step found them and left them, also those that were overwritten within its checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from everstep.codec.tags import Unreadable
from everstep.errors import RunNotFound
from everstep.model.enums import ValueForm
from everstep.model.records import FORK, CheckpointRecord, StepRecord, Written
from everstep.runtime.drive.apply import TASK
from everstep.runtime.drive.values import ValueSpace, split_name
from everstep.runtime.history import history, stretch
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Rehydrated, See, Version

_FEW = 64
"""How many records are read first to find values in; then twice as many, and so on."""
TASKS = "@tasks"
"""What the tasks that a step asked for are compared under."""


class _Index(NamedTuple):
    """In which record each value was written."""

    writes: dict[Version, Written]
    written_in: dict[Version, int]
    entered_in: dict[str, int]
    """By the prefix of an inner flow, the first record that tells of it."""


class RecalledChain:
    """The headers of a run, and the values they name, read when they are asked for."""

    def __init__(self, runs: RunReader, run_id: str, records: Sequence[CheckpointRecord]) -> None:
        self._runs = runs
        self.run_id = run_id
        self.records = records
        numbers = {record.sequence for record in records}
        self.beginnings = sorted(n for n in numbers if n - 1 not in numbers)
        """The records before which there is none: of a fork, what lies between may have been removed."""

    @cached_property
    def _index(self) -> _Index:
        # Made only when it is needed: most values that are looked at stand where they are looked for.
        writes, written_in, entered_in = dict[Version, Written](), dict[Version, int](), dict[str, int]()
        newest: dict[str, int] = {}
        for record in self.records:
            for write in record.state.values if record.state is not None else ():
                writes.setdefault((write.name, write.version), write)
                written_in.setdefault((write.name, write.version), record.sequence)
            for step in record.steps:
                entered_in.setdefault(split_name(step.whole_name("-"))[0], record.sequence)
                for write in step.writes:
                    name = step.whole_name(write.name)
                    # An edit is recorded without a number: it is the version after the newest.
                    newest[name] = write.version or newest.get(name, 0) + 1
                    writes[name, newest[name]] = write
                    written_in[name, newest[name]] = record.sequence
        return _Index(writes, written_in, entered_in)

    @property
    def writes(self) -> dict[Version, Written]:
        """What was written, by name and version."""
        return self._index.writes

    def written_in(self, version: Version) -> int | None:
        """Return the checkpoint that holds a version; of what an inner flow began with, its first."""
        found = self._index.written_in.get(version)
        prefix = split_name(version[0])[0]
        return self._index.entered_in.get(prefix) if found is None and prefix and version[1] == 1 else found

    async def values(
        self, sequence: int, wanted: Collection[Version], see: See = ValueSpace.peek
    ) -> dict[Version, Any]:
        """Return versions written in or before a checkpoint; where one cannot be read, an `Unreadable`.

        With `see`, what that gives of each instead of the value.
        """
        found: dict[Version, Any] = {}
        if any(one.keyframe for one in self.records if one.sequence == sequence):  # it is read without a fold
            folded = await self._runs.look_back(self.run_id, sequence)
            folded.watch(wanted, see)
            found |= folded.seen
        left = set(wanted) - found.keys()
        if not left:
            return found
        begins = sequence in self.beginnings
        folded = await self._runs.look_back(self.run_id, sequence if begins else sequence - 1)
        folded.watch(left, see)
        if not begins:
            await self._runs.go_on(folded, self.run_id, sequence, sequence)
        found |= folded.seen
        for version in left - found.keys():
            found[version] = await self._older(version, sequence, see)
        return found

    async def tasks(self, sequence: int, step: StepRecord) -> list[dict[str, Any]]:
        """Return the tasks that a step asked for, with their arguments."""
        names = [(task, name) for task in step.queued for name in task.arguments]
        versions = {(task.number, name): (f"{TASK}{task.number}/{name}", 1) for task, name in names}
        found = await self.values(sequence, list(versions.values()))
        return [
            {
                "node": task.node,
                "priority": task.priority,
                "arguments": {name: found[versions[task.number, name]] for name in task.arguments},
            }
            for task in step.queued
        ]

    async def key_run(self, sequence: int) -> str:
        """Return the run whose id went into idempotency keys at a checkpoint."""
        for record in reversed([r for r in self.records if r.sequence <= sequence]):
            forked = [step.key for step in record.steps if step.path == FORK and step.key]
            known = forked[-1] if forked else record.state.key_run if record.state is not None else None
            if known:
                return known
        return (await self._runs.lineage.root(await self._runs.row(self.run_id))).run_id

    async def _older(self, version: Version, sequence: int, see: See) -> Any:
        """Return a version that was overwritten before the checkpoint before this one was written."""
        written_in = self._index.written_in.get(version)
        write = self.writes.get(version)
        if write is not None and write.form is ValueForm.DELETED:
            return Unreadable("it was deleted")
        if written_in is None or written_in >= sequence:
            return Unreadable(f"no checkpoint up to {sequence} wrote version {version[1]} of {version[0]!r}")
        return (await self.values(written_in, [version], see))[version]


async def recall(runs: RunReader, run_id: str, wanted: Collection[Version]) -> dict[Version, Any]:
    """Return recorded versions of values; where one cannot be read, an `Unreadable`.

    The chain is read back from its end, or from checkpoint N of RUN@N, and only as far as the oldest of them.
    """
    row, last = await runs.find(run_id)
    found: dict[Version, Any] = {}
    size = _FEW
    while last >= 1 and not found.keys() >= set(wanted):
        first = max(1, last - size + 1)
        records = await stretch(runs, row, first, last)
        left = [version for version in wanted if version not in found]
        found |= await _among(runs, RecalledChain(runs, row.run_id, records), left)
        last, size = first - 1 if records else 0, size * 2
    return {
        version: found.get(version, Unreadable(f"no checkpoint wrote version {version[1]} of {version[0]!r}"))
        for version in wanted
    }


async def _among(runs: RunReader, chain: RecalledChain, wanted: Collection[Version]) -> dict[Version, Any]:
    """Return the versions that some records wrote, and what was there before the first of those."""
    places = {version: chain.written_in(version) for version in wanted}
    found: dict[Version, Any] = {}
    for begin, end in zip(chain.beginnings, [*chain.beginnings[1:], None], strict=True):
        known = [p for p in places.values() if p is not None and p >= begin and (end is None or p < end)]
        if not known:
            continue
        folded = await _before(runs, chain.run_id, min(known), begin)
        folded.watch(wanted)
        first = folded.head.sequence + 1
        if first <= max(known):
            await runs.go_on(folded, chain.run_id, first, max(known))
        found.update(folded.seen)
    return found


async def _before(runs: RunReader, run_id: str, sequence: int, begin: int) -> Rehydrated:
    """Fold a run up to the checkpoint before one; if that was removed, or never was, up to it."""
    if sequence > 1:
        try:
            return await runs.look_back(run_id, sequence - 1)
        except RunNotFound:
            pass
    return await runs.look_back(run_id, max(sequence - 1, begin))


async def chain_of(runs: RunReader, run_id: str, behind: int | None = None) -> RecalledChain:
    """Read the headers of a run, of RUN@N up to there; with `behind`, from that checkpoint on."""
    row, last = await runs.find(run_id)
    after = None if behind is None else max(0, behind - 1)
    return RecalledChain(runs, row.run_id, await history(runs, row.run_id, last, after=after))
