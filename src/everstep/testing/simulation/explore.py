"""Trying schedules: every single fault, then faults by chance; and the few decisions behind a failure."""

from __future__ import annotations

import gc
import random
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from everstep.errors import EverstepError, StateCorrupted
from everstep.testing.simulation.checks import Broken, Reader
from everstep.testing.simulation.faults import RENEWALS, Chosen, Decider, Drawn, Fault, Nothing, Taken
from everstep.testing.simulation.trial import End, Trial
from everstep.testing.simulation.world import NeverEnds, World

SWEEP = 400_000
"""So many objects are freed together: each world leaves circles that only the garbage collector frees."""
REPEATS = 9
"""So many uninterrupted worlds are compared to find what is not always the same."""
_DEATHS = (Fault.CRASH, Fault.POWER_CUT)


class Tried(NamedTuple):
    """One schedule, and what came of it."""

    seed: int
    taken: tuple[Taken, ...]
    digest: str
    broken: tuple[Broken, ...]
    lines: tuple[str, ...]
    """The story."""


class _Values(NamedTuple):
    """What runs came to, by run and name, and what nodes did, in the order in which they did it."""

    values: dict[tuple[str, str], str]
    """Those of gates by path and visit: what they chose."""
    writers: list[tuple[tuple[str, str], str, str]]
    """What was written or chosen, by which node, and the word for it."""


class Explorer:
    """Tries the schedules of one trial. Until it is closed, the dice of `random` are those of its worlds."""

    def __init__(self, trial: Trial, *, seed: int = 0, kinds: Iterable[Fault] = Fault) -> None:
        self._trial = trial
        self._seed = seed
        self._kinds = frozenset(kinds)
        self._reader = Reader()
        self.counts: Counter[str] = Counter()
        """How many schedules were tried, and how often each fault was among them."""
        self.points: list[tuple[str, tuple[Fault, ...]]] = []
        """Where something could go wrong in the uninterrupted world."""
        self._whole: dict[str, End] = {}
        self._deaths: list[tuple[str, Fault]] | None = None
        self._dice = random.getstate()
        self.misuse: EverstepError | None = None
        """What the caller has to do otherwise, if that is what is wrong with the uninterrupted world."""
        self.whole = self._uninterrupted()

    def close(self) -> None:
        self._first.close()
        random.setstate(self._dice)

    def _uninterrupted(self) -> Tried:
        """Try it with nothing going wrong; what comes of it is what all others are compared with."""
        world = self._first = self._trial.world(self._seed, Nothing())
        world.ledger.keeps_points = True
        broken = self._run(world)
        self.points = world.ledger.points
        if broken:
            self.misuse = world.misuse
        else:
            self._whole = self._trial.ends(world, self._reader)
        return _tried(self._seed, world, broken)

    def single_faults(self) -> Iterator[Taken]:
        """Yield each fault at each point of the uninterrupted world."""
        for label, possible in self.points:
            if _is_like_others(label):
                continue
            for fault in possible:
                if fault in self._kinds:
                    yield Taken(label, fault.value)

    @property
    def ends(self) -> dict[str, End]:
        """What the uninterrupted runs came to."""
        return self._whole

    def try_fault(self, taken: Taken) -> Tried:
        """Try one fault. A death is tried from where the uninterrupted world stood: nothing else is left."""
        fault = Fault(taken.choice)
        snapshot = self._first.snapshots.get(taken.label) if fault in _DEATHS else None
        if snapshot is None:
            return self.try_chosen([taken])
        world = self._trial.world(self._seed, Nothing())
        world.go_on_from(snapshot, self._first.ledger, fault)
        return self._end(self._seed, world)

    def try_chosen(self, taken: Sequence[Taken], seed: int | None = None) -> Tried:
        """Try exactly these decisions."""
        return self._try(self._seed if seed is None else seed, Chosen(taken))

    def try_drawn(self, seed: int, *, faults: float = 2.0, disorder: float = 0.05) -> Tried:
        """Try what follows from a seed: so many faults on average."""
        hazard = min(0.5, faults / max(1, len(self.points)))
        return self._try(seed, Drawn(seed, hazard=hazard, disorder=disorder, kinds=self._kinds))

    def try_drawn_behind_a_death(
        self, seed: int, *, faults: float = 2.0, disorder: float = 0.05
    ) -> Tried | None:
        """Try a death that follows from a seed, and behind it what else does: so many faults on average.

        None if no death was to be tried, or none can go on from where the uninterrupted world stood.
        """
        deaths = self._deaths_to_go_on_from()
        if not deaths:
            return None
        label, fault = deaths[zlib.crc32(b"which death", zlib.crc32(str(seed).encode())) % len(deaths)]
        hazard = min(0.5, faults / max(1, len(self.points)))
        world = self._trial.world(
            self._seed, Drawn(seed, hazard=hazard, disorder=disorder, kinds=self._kinds)
        )
        world.go_on_from(self._first.snapshots[label], self._first.ledger, fault)
        return self._end(self._seed, world)

    def _deaths_to_go_on_from(self) -> list[tuple[str, Fault]]:
        if self._deaths is None:
            self._deaths = [
                (it.label, Fault(it.choice))
                for it in self.single_faults()
                if it.choice in _DEATHS and it.label in self._first.snapshots
            ]
        return self._deaths

    def _try(self, seed: int, decider: Decider) -> Tried:
        return self._end(seed, self._trial.world(seed, decider))

    def _end(self, seed: int, world: World) -> Tried:
        tried = _tried(seed, world, self._run(world))
        world.close()
        self.counts["schedules"] += 1
        for it in tried.taken:
            if not it.choice.isdecimal():
                self.counts[it.choice] += 1
        if gc.get_count()[0] > SWEEP and not gc.isenabled():
            gc.collect()
        return tried

    def _run(self, world: World) -> list[Broken]:
        try:
            world.run(returns_dice=False)
        except NeverEnds as error:
            return [Broken("progress", str(error))]
        try:
            return self._trial.judge(world, self._reader, self._whole or None)
        except StateCorrupted as error:
            return [Broken("store", error.message)]

    def undetermined(self) -> str:
        """Return which node gives or chooses something else in two uninterrupted worlds; empty if none does.

        The worlds have different seeds, so nodes roll other dice in each, as another life of a process does.
        """
        first = self._values_of(self._seed)
        for number in range(1, REPEATS):  # where a gate has two ways, two worlds often go the same
            second = self._values_of(self._seed + number)
            for place, path, verb in second.writers:
                before, after = first.values.get(place), second.values.get(place)
                if before is not None and before != after:
                    return (
                        f"node {path!r} {verb} {before[:200]} in one of them, "
                        f"and {str(after)[:200]} in the other"
                    )
        return ""

    def _values_of(self, seed: int) -> _Values:
        world = self._trial.world(seed, Nothing())
        found: dict[tuple[str, str], str] = {}
        writers = []
        try:
            world.run()
            for run_id, end in self._trial.ends(world, self._reader).items():
                found |= {(run_id, name): shown for name, shown in end.values().items()}
            for run_id, kept in self._reader.kept(world).items():
                for _, step in kept.steps:
                    if step.decision is not None:
                        place = run_id, f"{step.path} {step.visit}"
                        found[place] = ", ".join(map(repr, step.decision)) or "nothing"
                        writers.append((place, step.path, "chose"))
                    writers += [
                        ((run_id, step.whole_name(written.name)), step.path, "gave")
                        for written in step.writes
                    ]
        except (NeverEnds, StateCorrupted):
            return _Values({}, [])
        finally:
            world.close()
        return _Values(found, writers)

    def shrink(self, tried: Tried) -> Tried:
        """Return a schedule that breaks the same promise with as few decisions as were found."""
        wanted = {it.invariant for it in tried.broken}
        best, size = tried, max(1, len(tried.taken) // 2)
        while size >= 1:
            at = 0
            while at < len(best.taken):
                fewer = best.taken[:at] + best.taken[at + size :]
                again = self.try_chosen(fewer, tried.seed)
                if wanted & {it.invariant for it in again.broken}:
                    best = again if len(again.taken) <= len(fewer) else again._replace(taken=fewer)
                else:
                    at += size
            size //= 2
        return best


def _is_like_others(label: str) -> bool:
    """True of a renewal that comes after many others: a node that takes an hour has hundreds."""
    _, _, number = label.rpartition(" renew ")
    return label != number and int(number) > RENEWALS


def _tried(seed: int, world: World, broken: list[Broken]) -> Tried:
    lines = tuple(world.ledger.lines()) if broken else ()
    return Tried(
        seed, tuple(world.ledger.taken), world.ledger.digest() if broken else "", tuple(broken), lines
    )


@contextmanager
def without_collector() -> Iterator[None]:
    """Let garbage be collected in large sweeps: it is the same work in far fewer rounds."""
    was_on, is_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # what others left open is not for us to report
        gc.collect()
    if not is_frozen:  # what others have frozen stays so: to thaw it would make all that they do slower
        gc.freeze()  # what is there already is not looked at again and again
    gc.disable()
    try:
        yield
    finally:
        if not is_frozen:
            gc.unfreeze()
        if was_on:
            gc.enable()
            gc.collect()
