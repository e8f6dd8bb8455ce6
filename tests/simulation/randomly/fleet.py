"""Runs of random flows, drawn by a plain seed and driven by three workers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random

from everstep import Host
from everstep.client.views import WaitInfo
from everstep.errors import WaitClosed, WaitSettled
from everstep.graph.author.flow import Flow
from everstep.testing.simulation.checks import Broken, Judge, Reader
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.trial import End, compared, ends_of
from everstep.testing.simulation.world import Here, World
from tests.unit.properties.flows import DURABILITIES, NESTING, PARTS, Body, Built, Case, Design, Part
from tests.unit.properties.worlds import answer_to, without

RUNS = ("A", "B")


# -- cases from a plain seed ------------------------------------------------------------------------------


class Sampler:
    """Draws what `tests.unit.properties.flows` has strategies for, as it follows from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)

    def case(self) -> Case:
        return Case(self._design(2), self._chance.choice(list(DURABILITIES)), self._chance.randint(0, 5))

    def _design(self, depth: int) -> Design:
        first = Part(kind="plain", reads=(0,), body=self._body(), count=0, variant=0)
        rest = [self._part(depth) for _ in range(self._chance.randint(0, 3 if depth > 0 else 2))]
        return Design((first, *rest), self._chance.random() < 0.5)

    def _part(self, depth: int) -> Part:
        chance = self._chance
        kind = chance.choice([k for k in PARTS if depth > 0 or k not in ("sub", "over_sub")])
        may_lack = kind in ("loop", "group") and chance.random() < 0.5
        return Part(
            kind=kind,
            reads=tuple(chance.randint(0, 5) for _ in range(chance.randint(1, 2))),
            body=self._body(),
            count=chance.randint(0, 3),
            variant=chance.randint(0, 4),
            inner=self._design(depth - 1) if kind in NESTING and depth > 0 and not may_lack else None,
        )

    def _body(self) -> Body:
        chance = self._chance
        return Body(
            failures=chance.choice([0, 0, 0, 1, 2]),
            op=chance.choice([None, None, "set", "append", "prepend", "add", "delete"]),
            effects=chance.choice(["undeclared", "pure", "effectful"]),
        )


# -- a fleet that drives one ------------------------------------------------------------------------------


class RandomTrial(FleetTrial):
    """Runs of one random flow, started and answered by a client."""

    def __init__(self, case: Case, *, is_remote: bool) -> None:
        built = Built(case)
        self._case, self._racy = case, built.racy
        self._flow: Flow = played(built.flow, ITSELF)
        elsewhere = "m2" if is_remote else "m1"
        workers = {
            "worker-1": WorkerPlace([self._flow], "m1", concurrency=1),
            "worker-2": WorkerPlace([self._flow], elsewhere),
            "worker-3": WorkerPlace([self._flow], elsewhere, concurrency=2),
        }
        super().__init__(workers, {"client": self._client}, is_remote=is_remote, skew=900 * is_remote)

    def _client(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            for run_id in RUNS:
                inputs = {"x": self._case.x}
                persist(here, partial(host.start, self._flow, inputs, run_id=run_id, channel={"seed": 1}))
            while not all(persist(here, partial(host.info, run_id)).status.is_final for run_id in RUNS):
                here.sleep(0.5)
                for opened in persist(here, partial(host.waits, limit=100)):
                    persist(here, partial(_settle, host, opened))

    def ends(self, world: World, reader: Reader) -> dict[str, End]:
        return {run_id: self._lucky(end) for run_id, end in super().ends(world, reader).items()}

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        if whole is not None:
            found = {run_id: self._lucky(end) for run_id, end in ends_of(judge.kept).items()}
            broken += compared(found, whole)
        return broken

    def _lucky(self, end: End) -> End:
        """Return what a run came to without what is a matter of luck, nor in which order it appended."""
        values = without(end.values(), self._racy)
        if "@channel/log" in values:
            values["@channel/log"] = repr(sorted(values["@channel/log"]))
        steps = frozenset(step for step in end.steps if without({step[0]: 0}, self._racy))
        return end._replace(steps=steps, values=lambda: values)


def _settle(host: Host, opened: WaitInfo) -> None:
    """Answer what is asked; let a timer of hours be over."""
    try:
        if opened.kind == "timer":
            host.waiting.fire(opened.id)
        else:
            host.answer(opened.id, answer_to(opened))
    except (WaitSettled, WaitClosed):
        return  # the life before this one did


def trial(seed: int, store: str) -> RandomTrial:
    """Return a random flow in a fleet, as it follows from a seed."""
    return RandomTrial(Sampler(seed).case(), is_remote=store == "remote")
