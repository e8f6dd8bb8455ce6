"""Find the step at which a run went another way than one that went well.

Headers are enough to find it. Values are read only where digests do not settle the matter, and of the step
that is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from everstep.codec.compare import Change, Pair, compare
from everstep.codec.values import Values
from everstep.model.address import Address
from everstep.model.enums import Status, ValueForm
from everstep.model.records import BY_CHANCE, CHANNEL, RESULT, WAITED, ErrorInfo, StepRecord, visit_path
from everstep.model.shapes import HIDDEN, called, shown
from everstep.runtime.drive.apply import TASK
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Version
from everstep.runtime.travel.recall import TASKS, RecalledChain, chain_of

_SIDES = called(before="good", after="bad")
_FINISHED = (Status.COMPLETED, Status.FAILED)


class Visited(msgspec.Struct, frozen=True, kw_only=True):
    """A finished step as one run recorded it."""

    run_id: str
    sequence: int = msgspec.field(name="checkpoint")
    """The checkpoint that holds it."""
    step: Annotated[StepRecord, HIDDEN]

    @shown
    def status(self) -> Status:
        return self.step.status

    @shown
    def decision(self) -> tuple[str, ...] | None:
        return self.step.decision

    @shown
    def error(self) -> ErrorInfo | None:
        return self.step.error


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first step of the bad run that the good run did not take, or that came out differently there."""

    path: str = msgspec.field(name="node")
    visit: int
    good: Visited | None
    """None if the good run has no such step."""
    bad: Visited
    reads: Annotated[tuple[Pair, ...], _SIDES]
    """The values it read, `before` in the good run and `after` in the bad one."""
    outputs: Annotated[tuple[Pair, ...], _SIDES]
    """The values it wrote, likewise."""
    by_chance: Annotated[tuple[Pair, ...], _SIDES] = ()
    """What the clock and chance gave the same visit before that, such as `$now@1`, where it differs: that may
    be the cause."""

    @shown
    def address(self) -> str:
        """The step as commands name it."""
        return str(Address.of(self.path, self.visit))

    @shown
    def is_culprit(self) -> bool:
        """True if the step read equal values and still came out differently: look at the step itself.

        Otherwise the runs began with other inputs, or one was edited, and the step only shows it first; of a
        durable call, its node called it with other arguments.
        """
        is_alike = all(not read.changes for read in self.reads) and not self.has_other_arguments
        return self.good is not None and is_alike

    @shown
    def has_other_arguments(self) -> bool:
        """True of a durable call that was made with other arguments."""
        return self.good is not None and _arguments(self.good.step) != _arguments(self.bad.step)


async def bisect(
    runs: RunReader, values: Values, good: str, bad: str, *, behind: int | None = None
) -> Divergence | None:
    """Return the first step that differs, in the order of the bad run; none if every one is the same.

    Of checkpoints that both have up to `behind`, only the last is read.
    """
    chains = [await chain_of(runs, one, behind) for one in (good, bad)]
    return await _Bisection(values, *chains).run()


class _Bisection:
    def __init__(self, values: Values, good: RecalledChain, bad: RecalledChain) -> None:
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
            if _arguments(bad.step) in BY_CHANCE:
                continue  # what differs later because of it counts
            good = self._there.get((bad.step.path, bad.step.visit))
            if good is None or not await self._is_same(good, bad):
                return await self._divergence(good, bad)
        return None

    async def _is_same(self, good: Visited, bad: Visited) -> bool:
        there, here = good.step, bad.step
        if (there.status, there.decision, there.goto, there.ends) != (
            here.status,
            here.decision,
            here.goto,
            here.ends,
        ):
            return False
        written, others = _written(here), _written(there)
        if written.keys() != others.keys() or _asked(there) != _asked(here):
            return False
        unclear = []
        for name, version in written.items():
            if not self._has_equal_digest(name, others[name], version):
                unclear.append((name, others[name], version))
        if not unclear:
            return True
        before = await self._good.values(good.sequence, [(name, v) for name, v, _ in unclear])
        after = await self._bad.values(bad.sequence, [(name, v) for name, _, v in unclear])
        for name, other, version in unclear:
            was, now = before[name, other], after[name, version]
            if _arguments(here) == WAITED:
                was, now = _without_times(was), _without_times(now)
            pair = compare(self._values, name, was, now)
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
            elif name.startswith(CHANNEL) and ValueForm.DELETED not in (there.form, here.form):
                # What a step added counts; what it was added to depends on who came first.
                answer = there.digest == here.digest
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
        here = bad.step
        after = await self._bad.values(bad.sequence, [*_read(here).items(), *_written(here).items()])
        before: dict[Version, Any] = {}
        reads: dict[str, int] = {}
        writes: dict[str, int] = {}
        if good is not None:
            reads, writes = _read(good.step), _written(good.step)
            before = await self._good.values(good.sequence, [*reads.items(), *writes.items()])
        outputs = [*self._pairs(here, writes, _written(here), before, after)]
        if good is not None and _asked(good.step) != _asked(here):
            was, now = (
                await self._good.tasks(good.sequence, good.step),
                await self._bad.tasks(bad.sequence, here),
            )
            outputs.append(compare(self._values, TASKS, was, now))
        return Divergence(
            path=here.path,
            visit=here.visit,
            good=good,
            bad=bad,
            reads=tuple(self._pairs(here, reads, _read(here), before, after)),
            outputs=tuple(outputs),
            by_chance=tuple(await self._by_chance(bad)),
        )

    async def _by_chance(self, until: Visited) -> list[Pair]:
        """Return what the clock and chance gave a visit up to a step, where it differs."""
        visit, found = _visit_of(until.step), []
        for bad in self._steps[: self._steps.index(until)]:
            good = self._there.get((bad.step.path, bad.step.visit))
            if good is None or _arguments(bad.step) not in BY_CHANCE or _visit_of(bad.step) != visit:
                continue
            [(name, version)] = _written(bad.step).items()
            was = await self._good.values(good.sequence, [(name, version)])
            now = await self._bad.values(bad.sequence, [(name, version)])
            pair = compare(self._values, name, was[name, version], now[name, version])
            if pair.changes:
                found.append(compare(self._values, name.rpartition("/")[2], pair.before, pair.after))
        return found

    def _pairs(
        self,
        step: StepRecord,
        there: dict[str, int],
        here: dict[str, int],
        before: dict[Version, Any],
        after: dict[Version, Any],
    ) -> Iterator[Pair]:
        """Compare values by whole name; a pair has the name that the step knows it by."""
        inside = len(step.whole_name("-")) - 1
        for whole in dict.fromkeys([*there, *here]):
            name = whole if whole[0] == "@" else whole[inside:]
            if whole not in here:
                gone = before[whole, there[whole]]
                yield Pair(name, gone, None, (Change(name, "removed", gone, None),))
            elif whole not in there:
                new = after[whole, here[whole]]
                yield Pair(name, None, new, (Change(name, "added", None, new),))
            else:
                pair = compare(self._values, name, before[whole, there[whole]], after[whole, here[whole]])
                is_equal = self._has_equal_digest(whole, there[whole], here[whole])
                yield Pair(name, pair.before, pair.after, ()) if is_equal else pair


def _finished(chain: RecalledChain) -> list[Visited]:
    """Return the finished steps in order, each once: as it ended after the last time it was reopened.

    Durable calls that a later attempt was to make again are those of an attempt that does not count.
    """
    found: dict[tuple[str, int], Visited] = {}
    calls: dict[str, list[Visited]] = {}
    """The durable calls of each visit that is not over."""
    again: dict[str, list[Visited]] = {}
    """Those that are made again if the visit goes on."""
    for record in chain.records:
        for step in record.steps:
            visit = _visit_of(step)
            for call in again.pop(visit, ()) if again else ():
                if found.get((call.step.path, call.step.visit)) is call:
                    del found[call.step.path, call.step.visit]
            if visit in calls and step.path[0] != "@" and not _is_call(step):
                made = calls.pop(visit)
                if step.error is not None:
                    again[visit] = [call for call in made if _is_forgotten(call.step, step)]
                    calls[visit] = [call for call in made if call not in again[visit]]
            if step.status in _FINISHED and not step.path.startswith("@"):
                found.pop((step.path, step.visit), None)
                ended = Visited(run_id=chain.run_id, sequence=record.sequence, step=step)
                found[step.path, step.visit] = ended
                if _is_call(step):
                    calls.setdefault(visit, []).append(ended)
    return list(found.values())


def _is_call(step: StepRecord) -> bool:
    return step.path.rpartition("/")[2][0] == RESULT


def _is_forgotten(call: StepRecord, failed: StepRecord) -> bool:
    """True if the attempt after one that failed makes a durable call of it again."""
    facts = call.unit
    is_fresh = failed.unit is not None and failed.unit.is_fresh
    return is_fresh or call.status is Status.FAILED or (facts is not None and facts.is_brief)


def _visit_of(step: StepRecord) -> str:
    """Return the visit that a step is of, or that a durable call is made in: `agent@2`."""
    head, _, last = step.path.rpartition("/")
    return head if last[0] == RESULT else visit_path(step.path, step.visit)


def _arguments(step: StepRecord) -> bytes:
    """Return what the step of a durable call keeps of its arguments; nothing of another step."""
    return b"" if step.unit is None else step.unit.arguments


def _without_times(settled: Any) -> Any:
    """Return how a wait was settled, less when."""
    if not isinstance(settled, dict):
        return settled
    return {name: settled.get(name) for name in ("kind", "by_clock", "answer")}


def _read(step: StepRecord) -> dict[str, int]:
    return {step.whole_name(name): version for name, version in step.reads.items()}


def _written(step: StepRecord) -> dict[str, int]:
    """Return what a step wrote; what it deleted counts as its own, and has no value."""
    return {step.whole_name(w.name): w.version for w in step.writes if not w.name.startswith(TASK)}


def _asked(step: StepRecord) -> list[tuple[str, int, list[tuple[str, bytes]]]]:
    """Return the tasks that a step asked for. Their numbers do not count: they depend on what ran beside."""
    digests = {w.name: w.digest for w in step.writes if w.name.startswith(TASK)}
    return [
        (q.node, q.priority, [(name, digests[f"{TASK}{q.number}/{name}"]) for name in sorted(q.arguments)])
        for q in step.queued
    ]
