"""`simulate`: test a flow against every crash, in a few lines of pytest. Apart from the package, which loads
it when it is asked for: it needs greenlet.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args

from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.testing.simulation.checks import Broken
from everstep.testing.simulation.explore import Explorer, Tried, without_collector
from everstep.testing.simulation.faults import Fault, Taken, parse
from everstep.testing.simulation.played import Doubles
from everstep.testing.simulation.sqlite import SqliteShared
from everstep.testing.simulation.story import told
from everstep.testing.simulation.trial import FlowTrial, check_answers

MOST_POINTS = 10_000_000
"""To so many points may all schedules with a single fault come together: that takes some minutes."""
Store = Literal["local", "remote", "awaited", "sqlite"]


class SimulationFailed(AssertionError):
    """A schedule broke a promise. Its text is the story of that schedule, and a test that repeats it."""

    def __init__(self, text: str, tried: Tried) -> None:
        super().__init__(text)
        self.seed = tried.seed
        self.decisions = [str(taken) for taken in tried.taken]
        """What went wrong in it, and who went first: as `only=` takes it."""
        self.broken: tuple[Broken, ...] = tried.broken
        """Which promises it broke."""
        self.digest = tried.digest
        self._tried = tried

    def because(self, reason: str) -> SimulationFailed:
        """Return the same with a reason that is not in the schedule."""
        return SimulationFailed(f"{reason}\n\n{self}", self._tried)


class Simulated(NamedTuple):
    """What was tried, when nothing broke."""

    schedules: int
    points: int
    """Where something could go wrong, in one uninterrupted run."""
    faults: Mapping[str, int]
    """How often each fault was tried."""
    seconds: float


def simulate(
    flow: Flow,
    inputs: Mapping[str, Any] | None = None,
    *,
    doubles: Doubles | None = None,
    answers: Mapping[str, Any] | None = None,
    channel: Mapping[str, Any] | None = None,
    schedules: int = 200,
    single_faults: int | None = None,
    seed: int = 0,
    faults: Iterable[str] = tuple(Fault),
    store: Store = "local",
    deterministic: bool = True,
    ends: Literal["completed", "failed", "cancelled"] = "completed",
    only: Iterable[str] | None = None,
) -> Simulated:
    """Run a flow in a simulated world against every fault at every point, then against many by chance.

    Each time it must come to what an uninterrupted run comes to, and keep every promise of durable runs, or
    `SimulationFailed` tells the story of the shortest schedule that was found. Time is simulated, and nothing
    is really written. `doubles` stand in for effects, by the names of their nodes: a function, what it
    returns, or `ITSELF` for one that does nothing to the world. `answers` are given to nodes that wait;
    where there is none, the due time comes.

    First every fault of `faults` is tried at every point, then `schedules` that follow from `seed`. A long
    run has too many points for that: say with `single_faults` how many of those are tried, spread over the
    whole run. With `only`, the decisions that a failure printed, and nothing else. The uninterrupted run must
    end as `ends` says. A flow that is not `deterministic` is not compared with it.
    """
    kinds = _kinds(faults)
    if store not in get_args(Store):
        raise BadRequest(f"store is {store!r}.", fix=f"Say one of {', '.join(get_args(Store))}.")
    check_answers(flow, answers or {})
    trial = FlowTrial(
        flow,
        inputs,
        channel=channel,
        doubles=doubles,
        answers=answers,
        is_remote=store == "remote",
        is_awaited=store == "awaited",
        make_store=SqliteShared if store == "sqlite" else None,
        is_chancy=not deterministic,
    )
    began = time.perf_counter()
    explorer = Explorer(trial, seed=seed, kinds=kinds)
    try:
        with without_collector():
            if explorer.misuse is not None:
                raise explorer.misuse.with_traceback(None)
            check(explorer, explorer.whole)
            _check_end(explorer, ends)
            try:
                if only is not None:
                    _repeat(explorer, _decisions(only))
                else:
                    explore(explorer, schedules, seed, single_faults)
            except SimulationFailed as failed:
                raise _explained(explorer, failed) from None
        counts = dict(explorer.counts)
        tried = counts.pop("schedules", 0)
        return Simulated(tried, len(explorer.points), counts, time.perf_counter() - began)
    finally:
        explorer.close()


def _decisions(only: Iterable[str]) -> list[Taken]:
    return [parse(said) for said in ([only] if isinstance(only, str) else only)]


def _check_end(explorer: Explorer, ends: str) -> None:
    for run_id, end in explorer.ends.items():
        if end.status.value != ends:
            why = f": {end.error.rstrip('.')}." if end.error else "."
            raise BadRequest(
                f"with nothing going wrong, run {run_id!r} is {end.status.value}{why}",
                fix=f'Correct the flow or its doubles, or say ends="{end.status.value}" if it is meant to.',
            )


def _explained(explorer: Explorer, failed: SimulationFailed) -> SimulationFailed:
    """Return a failure that names the node whose results are not always the same, if that is behind it.

    Such a node is no mistake by itself: what it gave is not rolled again once it is on record, nor once an
    effect has begun that was given it. Only the result of another life cannot be the same.
    """
    told = explorer.undetermined() if {it.invariant for it in failed.broken} == {"result"} else ""
    if not told:
        return failed
    return failed.because(
        f"Two uninterrupted runs differ already: {told}. A process that dies before that is kept makes it "
        "anew. Let it depend on nothing but its inputs, or say deterministic=False."
    )


def _check_taken(only: Iterable[Taken], tried: Tried) -> None:
    missed = [str(taken) for taken in only if taken not in tried.taken]
    if missed:
        raise BadRequest(
            f"the run does not come to {missed[0]!r}, so nothing went wrong there.",
            fix="Give the decisions that a failure prints today: labels change with the flow.",
        )


def _kinds(faults: Iterable[str]) -> list[Fault]:
    faults = [faults] if isinstance(faults, str) else faults
    try:
        return [Fault(name) for name in faults]
    except ValueError as error:
        raise BadRequest(
            f"there is no such fault: {error}.", fix=f"Use some of {', '.join(Fault)}."
        ) from None


def _repeat(explorer: Explorer, only: list[Taken]) -> None:
    tried = explorer.try_chosen(only)
    check(explorer, tried, is_short=True)
    _check_taken(only, tried)


def explore(explorer: Explorer, schedules: int, seed: int, single_faults: int | None) -> None:
    """Try what is to be tried; raise for the first schedule that breaks a promise, as short as it gets."""
    single = list(explorer.single_faults())
    if schedules and not single:
        raise BadRequest(
            "none of these faults can happen in this flow, so nothing would be tried.",
            fix="Leave faults= out, or name others.",
        )
    if single_faults is None:
        _check_length(len(single), len(explorer.points))
    elif single_faults < len(single):
        chosen = sorted(random.Random(seed).sample(range(len(single)), max(0, single_faults)))
        single = [single[k] for k in chosen]
    for taken in single:
        check(explorer, explorer.try_fault(taken))
    for number in range(schedules):
        check(explorer, explorer.try_drawn(seed * 1_000_003 + number))


def _check_length(single: int, points: int) -> None:
    """Raise if each fault at each point would take very long: a run with more points also takes longer."""
    if single * points > MOST_POINTS:
        raise BadRequest(
            f"the run comes to {points:,} points at which something can go wrong, so there are {single:,} "
            "schedules with a single fault: that would take very long.",
            fix="Give the flow less to do, name fewer faults=, or say how many of these schedules are tried, "
            f"single_faults={max(1, MOST_POINTS // points // 10):_}.",
        )


def check(explorer: Explorer, tried: Tried, *, is_short: bool = False) -> None:
    """Raise if a schedule broke a promise."""
    if tried.broken:
        best = tried if is_short or len(tried.taken) < 2 else explorer.shrink(tried)
        raise SimulationFailed(told(best), best)
