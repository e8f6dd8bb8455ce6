"""Find the step at which a run went another way than one that went well.

Headers are enough to find it. Values are read only where digests do not settle the matter, and of the step
that is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from everstep.codec.compare import Change, Pair, compare
from everstep.codec.values import Values
from everstep.model.enums import Status, ValueForm
from everstep.model.records import ErrorInfo, StepRecord
from everstep.runtime.recall import Chain, chain_of
from everstep.runtime.rehydrate import Version
from everstep.runtime.runs import Runs

_FINISHED = (Status.COMPLETED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Visited:
    """A finished step as one run recorded it."""

    run_id: str
    sequence: int
    """The checkpoint that holds it."""
    step: StepRecord

    @property
    def status(self) -> Status:
        return self.step.status

    @property
    def decision(self) -> tuple[str, ...] | None:
        return self.step.decision

    @property
    def error(self) -> ErrorInfo | None:
        return self.step.error


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first step of the bad run that the good run did not take, or that came out differently there."""

    path: str
    visit: int
    good: Visited | None
    """None if the good run has no such step."""
    bad: Visited
    reads: tuple[Pair, ...]
    """The values it read, `before` in the good run and `after` in the bad one."""
    outputs: tuple[Pair, ...]
    """The values it wrote, likewise."""

    @property
    def is_culprit(self) -> bool:
        """True if the step read equal values and still came out differently: look at the step itself.

        Otherwise the runs began with other inputs, or one was edited, and the step only shows it first.
        """
        return self.good is not None and all(not read.changes for read in self.reads)


async def bisect(runs: Runs, values: Values, good: str, bad: str) -> Divergence | None:
    """Return the first step that differs, in the order of the bad run; none if every one is the same."""
    return await _Bisection(values, await chain_of(runs, good), await chain_of(runs, bad)).run()


class _Bisection:
    def __init__(self, values: Values, good: Chain, bad: Chain) -> None:
        self._values = values
        self._good = good
        self._bad = bad
        known = {record.checkpoint_id for record in good.records}
        shared = {record.sequence for record in bad.records if record.checkpoint_id in known}
        self._there = {(v.step.path, v.step.visit): v for v in _finished(good)}
        self._steps = [v for v in _finished(bad) if v.sequence not in shared]
        self._alike: dict[tuple[str, int, int], bool] = {}
        """What is known of a name and its version in the good and in the bad run."""

    async def run(self) -> Divergence | None:
        for bad in self._steps:
            good = self._there.get((bad.step.path, bad.step.visit))
            if good is None or not await self._is_same(good, bad):
                return await self._divergence(good, bad)
        return None

    async def _is_same(self, good: Visited, bad: Visited) -> bool:
        there, here = good.step, bad.step
        if (there.status, there.decision) != (here.status, here.decision):
            return False
        if {w.name for w in there.writes} != {w.name for w in here.writes}:
            return False
        unclear = []
        for name, version in _versions(bad).items():
            other = _versions(good)[name]
            if not self._has_equal_digest(name, other, version):
                unclear.append((name, other, version))
        if not unclear:
            return True
        before = await self._good.values(good.sequence, [(name, v) for name, v, _ in unclear])
        after = await self._bad.values(bad.sequence, [(name, v) for name, _, v in unclear])
        for name, other, version in unclear:
            pair = compare(self._values, name, before[name, other], after[name, version])
            self._alike[name, other, version] = not pair.changes
        return all(self._alike[key] for key in unclear)

    def _has_equal_digest(self, name: str, good: int, bad: int) -> bool:
        """True if two versions are equal for sure; if a list grew, what it grew from must be equal too."""
        grown: list[tuple[str, int, int]] = []
        answer = False
        while True:
            key = (name, good, bad)
            there, here = self._good.writes.get((name, good)), self._bad.writes.get((name, bad))
            if key in self._alike:
                answer = self._alike[key]
            elif there is None or here is None:
                answer = False
            elif ValueForm.TRANSIENT in (there.form, here.form):
                answer = True  # nothing was kept, so nothing is known to differ
            elif there.digest != here.digest or there.form is not here.form:
                answer = False
            elif there.form is ValueForm.APPEND:
                grown.append(key)
                good, bad = good - 1, bad - 1
                continue
            else:
                answer = self._alike[key] = True
            break
        if answer:
            self._alike.update(dict.fromkeys(grown, True))
        return answer

    async def _divergence(self, good: Visited | None, bad: Visited) -> Divergence:
        after = await self._bad.values(bad.sequence, _named(bad))
        before = {} if good is None else await self._good.values(good.sequence, _named(good))
        reads = {} if good is None else good.step.reads
        writes = {} if good is None else _versions(good)
        return Divergence(
            bad.step.path,
            bad.step.visit,
            good,
            bad,
            reads=tuple(self._pairs(reads, bad.step.reads, before, after)),
            outputs=tuple(self._pairs(writes, _versions(bad), before, after)),
        )

    def _pairs(
        self,
        there: dict[str, int],
        here: dict[str, int],
        before: dict[Version, Any],
        after: dict[Version, Any],
    ) -> Iterator[Pair]:
        for name in dict.fromkeys([*there, *here]):
            if name not in here:
                gone = before[name, there[name]]
                yield Pair(name, gone, None, (Change(name, "removed", gone, None),))
            elif name not in there:
                new = after[name, here[name]]
                yield Pair(name, None, new, (Change(name, "added", None, new),))
            else:
                pair = compare(self._values, name, before[name, there[name]], after[name, here[name]])
                is_equal = self._has_equal_digest(name, there[name], here[name])
                yield Pair(name, pair.before, pair.after, ()) if is_equal else pair


def _finished(chain: Chain) -> list[Visited]:
    """Return the finished steps in order, each once: as it ended after the last time it was reopened."""
    found: dict[tuple[str, int], Visited] = {}
    for record in chain.records:
        for step in record.steps:
            if step.status in _FINISHED and not step.path.startswith("@"):
                found.pop((step.path, step.visit), None)
                found[step.path, step.visit] = Visited(chain.run_id, record.sequence, step)
    return list(found.values())


def _versions(visited: Visited) -> dict[str, int]:
    return {w.name: w.version for w in visited.step.writes}


def _named(visited: Visited) -> list[Version]:
    return [*visited.step.reads.items(), *_versions(visited).items()]
