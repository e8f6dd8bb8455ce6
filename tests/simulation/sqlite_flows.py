"""Flows whose runs are kept in a SQLite file of a simulated world, and processes that share one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from everstep import Durability, Flow, Node, Retry, wait
from everstep.model.enums import Status
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.sqlite import SqliteShared, made_before
from everstep.testing.simulation.trial import FlowTrial
from everstep.testing.simulation.world import Here, MakeStore

LARGE = 1000
"""Bytes from which values are artifacts here."""


def step(name: str, given: str, output: str, work: Callable[[Any], Any], **options: Any) -> Node:
    return Node(work, name=name, output=output, **options).with_inputs(it=given)


def add(it: int) -> int:
    return it + 1


def effect(name: str, given: str, output: str, **options: Any) -> Node:
    return step(name, given, output, add, effects="effectful", idempotency_key="auto", **options)


def flow(name: str, nodes: list[Any]) -> Flow:
    return Flow(name, nodes, durability=Durability("strong", blob_threshold=LARGE))


FIVE = flow(
    "five",
    [
        step("first", "x", "a", add),
        effect("charge", "a", "b"),
        step("third", "b", "c", add),
        effect("ship", "c", "d", retry=Retry(3)),
        step("fifth", "d", "e", add),
    ],
)
WAITING = flow(
    "waiting",
    [
        step("first", "x", "a", add),
        wait.timer("rest", duration=30, payload="a", output="rested"),
        wait.question("ask", kind="text", answer_type=int, context="rested", output="said", timeout=3600),
        effect("ship", "said", "shipped"),
    ],
)
MAPPED = flow(
    "mapped",
    [
        step("split", "x", "pieces", lambda it: [it, it + 1, it + 2]),
        effect("pack", "pieces", "packed").map_over("it"),
        step("count", "packed", "sum", lambda it: sum(it)),
    ],
)
SPACIOUS = flow(
    "spacious",
    [
        step("grow", "x", "text", lambda it: "long " * LARGE + str(it)),
        step("measure", "text", "length", lambda it: len(it)),
        effect("ship", "length", "shipped"),
    ],
)
HEARING = flow(
    "hearing",
    [
        step("first", "x", "a", add),
        wait.event("paid", match={"order": "a"}),
        effect("ship", "a", "shipped"),
    ],
)
NOTED = flow("noted", [step("first", "x", "a", add), wait.signal("note"), effect("ship", "note", "shipped")])
FLOWS = {it.name: it for it in (FIVE, WAITING, MAPPED, SPACIOUS, HEARING, NOTED)}
ANSWERS = {"ask": 7, "paid": {"order": 2}, "note": 7}


@cache
def made() -> bytes:
    """Return a database to begin with: to make one takes longer than a schedule."""
    return made_before()


def trial(of: str, make_store: MakeStore | None = None) -> FlowTrial:
    """Return a flow in one process."""
    stored = make_store or partial(SqliteShared, made=made())
    return FlowTrial(FLOWS[of], {"x": 1}, doubles=ITSELF, answers=ANSWERS, make_store=stored)


# -- several processes on one file ------------------------------------------------------------------------

WORKED = played(Flow("worked", FIVE.nodes, durability=Durability("strong", lease_ttl=10)), ITSELF)
RUNS = ("R1", "R2", "R3")


def client(world: FleetWorld, here: Here) -> None:
    """Start some runs, and look after them until all are over."""

    def start() -> None:
        with here.host() as host:
            for run_id in RUNS:
                host.start(WORKED, {"x": 1}, run_id=run_id)

    def are_over() -> bool:
        with here.host() as host:
            return all(host.info(run_id).status is not Status.RUNNING for run_id in RUNS)

    persist(here, start)
    while not persist(here, are_over):
        here.sleep(5)


def fleet_trial() -> FleetTrial:
    """Return two workers on one file."""
    workers = {"w1": WorkerPlace([WORKED]), "w2": WorkerPlace([WORKED], after=0.5)}
    return FleetTrial(workers, {"user": client}, make_store=partial(SqliteShared, made=made()))
