"""Runs of random flows, drawn by a plain seed and driven by three workers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from everstep import Host
from everstep.client.views import RunInfo, WaitInfo
from everstep.errors import (
    EverstepError,
    RunEnded,
    RunNotFound,
    StoreError,
    VotedAlready,
    WaitClosed,
    WaitSettled,
)
from everstep.graph.author.flow import Flow
from everstep.model.commits import NO_LABELS
from everstep.model.waits import EVENT_KIND, SIGNAL_KIND
from everstep.stores.memory import MemoryStore
from everstep.testing.playing import voter_of
from everstep.testing.simulation.checks import Broken, Judge, Reader
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.store import SharedStore, finished
from everstep.testing.simulation.trial import End, compared, ends_of
from everstep.testing.simulation.world import Here, World
from tests.simulation.randomly.calling import CALLS, Calling
from tests.unit.properties.flows import DURABILITIES, NESTING, PARTS, Body, Case, Design, Part
from tests.unit.properties.worlds import answer_to, without

RUNS = ("A", "B")
KINDS = (*PARTS, *CALLS)
BY = "operator"
MANY: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("tag", "status is set", {"add": ["many"]}),
    ("pin", "status is set", {}),
    ("unpin", "pinned = true", {}),
    ("pause", "status in (running, halted)", {}),
    ("unpause", "paused = true", {}),
)
"""What is done to many runs: nothing that they come to depends on."""
ACTS = ("pause", "unpause", "tag", "untag", "pin", "many")


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
        kind = chance.choice([k for k in KINDS if depth > 0 or k not in ("sub", "over_sub")])
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


class Act(NamedTuple):
    """What an operator does to a run, or to many."""

    at: float
    what: str
    run_id: str
    which: int = 0
    """A place in `MANY`."""


class RandomTrial(FleetTrial):
    """Runs of one random flow, started and answered by a client, while an operator acts on them."""

    def __init__(self, case: Case, acts: Sequence[Act] = (), *, is_remote: bool) -> None:
        built = Calling(case)
        self._case, self._acts, self._racy = case, acts, built.racy
        self._flow: Flow = played(built.flow, ITSELF)
        elsewhere = "m2" if is_remote else "m1"
        workers = {
            "worker-1": WorkerPlace([self._flow], "m1", concurrency=1),
            "worker-2": WorkerPlace([self._flow], elsewhere),
            "worker-3": WorkerPlace([self._flow], elsewhere, concurrency=2),
        }
        people = {"client": self._client, **({BY: self._operator} if acts else {})}
        super().__init__(workers, people, is_remote=is_remote, skew=900 * is_remote)

    def _client(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            for run_id in RUNS:
                start = partial(host.start, self._flow, {"x": self._case.x}, run_id=run_id, tags=["old"])
                persist(here, partial(start, channel={"seed": 1}))
            while not all(persist(here, partial(host.info, run_id)).status.is_final for run_id in RUNS):
                here.sleep(0.5)
                for opened in persist(here, partial(host.waits, limit=100)):
                    persist(here, partial(_settle, host, opened, world.hub.now))

    def _operator(self, world: FleetWorld, here: Here) -> None:
        """Act on the runs, and see to it in the end that they go on."""
        with here.host() as host:
            for label, act in self._labelled():
                here.sleep(max(0.0, act.at - world.hub.now / SECOND))
                if label not in world.notes:
                    world.notes[label] = persist(here, partial(_do, host, act))
            while not self._is_over(persist(here, partial(host.runs, limit=100))):
                here.sleep(2)
                for row in persist(here, partial(host.runs, limit=100)):
                    if row.paused_at is not None:
                        persist(here, partial(_do, host, Act(0, "unpause", row.run_id)))

    def _labelled(self) -> list[tuple[str, Act]]:
        return [(f"{number} {act}", act) for number, act in enumerate(self._acts)]

    def _is_over(self, rows: Sequence[RunInfo]) -> bool:
        """True if all runs have ended, also those that act on many."""
        return {*RUNS} <= {row.run_id for row in rows if row.status.is_final} and all(
            row.status.is_final for row in rows
        )

    def ends(self, world: World, reader: Reader) -> dict[str, End]:
        ends = super().ends(world, reader)
        return {run_id: self._lucky(ends[run_id]) for run_id in RUNS if run_id in ends}

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        if whole is not None:
            found = {run_id: self._lucky(end) for run_id, end in ends_of(judge.kept).items()}
            broken += compared(found, whole)
        return broken + list(self._tagged(world))

    def _tagged(self, world: World) -> Iterator[Broken]:
        """Yield tags that are otherwise than they were asked for."""
        assert isinstance(world, FleetWorld) and isinstance(world.store, SharedStore)
        done = [act for label, act in self._labelled() if world.notes.get(label, "") is None]
        store = MemoryStore(world.store.clock, world.store.data)
        labels = finished(store.labels, (RUNS,), {})
        for run_id in RUNS:
            tags = {tag.name for tag in labels.get(run_id, NO_LABELS).tags} - {"many"}
            asked = {act.what for act in done if act.run_id == run_id}
            wanted = {"old"} - ({"old"} if "untag" in asked else set())
            wanted |= {"seen"} if "tag" in asked else set()
            if tags != wanted:
                yield Broken("result", f"run {run_id!r} has tags {sorted(tags)}, not {sorted(wanted)}.")

    def _lucky(self, end: End) -> End:
        """Return what a run came to without what is a matter of luck, nor in which order it appended."""
        values = without(end.values(), self._racy)
        if "@channel/log" in values:
            values["@channel/log"] = repr(sorted(values["@channel/log"]))
        steps = frozenset(step for step in end.steps if without({step[0]: 0}, self._racy))
        return end._replace(steps=steps, values=lambda: values)


def _settle(host: Host, opened: WaitInfo, now: int) -> None:
    """Answer what is asked; let a timer of hours be over."""
    try:
        if opened.kind == "timer":
            host.waiting.fire(opened.id)
        elif opened.kind == SIGNAL_KIND:
            # All that wait for it are sent the same, as any of them may take it; so it may take another one.
            said = zlib.crc32(opened.listens_for.encode()) % 97
            host.send(opened.run_id, opened.listens_for, said, id=f"{opened.id} {now}")
        elif opened.kind == EVENT_KIND:
            said = zlib.crc32(opened.listens_for.encode()) % 89
            host.publish(opened.listens_for, said, id=f"{opened.id} {now}", keep="1m" if said % 2 else None)
        else:
            answer = answer_to(opened)
            host.answer(opened.id, answer, by=voter_of(opened, answer))
    except (WaitSettled, WaitClosed, RunEnded, VotedAlready):
        return  # the life before this one did


def _do(host: Host, act: Act) -> str | None:
    """Do something to runs; none, or why not."""
    try:
        if act.what == "many":
            name, where, options = MANY[act.which]
            host.fleet.bulk(name, where, by=BY, **options)
        elif act.what in ("tag", "untag"):
            add, remove = (["seen"], []) if act.what == "tag" else ([], ["old"])
            host.fleet.tag(act.run_id, add, remove=remove, by=BY)
        elif act.what == "pin":
            host.retention.pin(act.run_id)
        elif act.what == "pause":
            host.fleet.pause(act.run_id, by=BY)
        else:
            host.fleet.unpause(act.run_id)
    except RunNotFound:
        return "too early"
    except StoreError:
        raise
    except EverstepError as error:  # it has ended, or is paused already
        return error.code
    return None


def acts_of(seed: int) -> list[Act]:
    """Return what an operator does, as it follows from a seed: nothing in one case of three."""
    chance = Random(~seed)
    count = chance.choice([0, 2, 4])
    times = sorted(round(chance.uniform(0.1, 4), 3) for _ in range(count))
    return [Act(at, chance.choice(ACTS), chance.choice(RUNS), chance.randrange(len(MANY))) for at in times]


def trial(seed: int, store: str) -> RandomTrial:
    """Return a random flow in a fleet, as it follows from a seed."""
    return RandomTrial(Sampler(seed).case(), acts_of(seed), is_remote=store == "remote")
