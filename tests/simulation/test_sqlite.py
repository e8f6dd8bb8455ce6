"""The real store on a SQLite file in a simulated world: deaths and power cuts at every write and sync."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import apsw
import pytest

from everstep import Durability, Flow, Node, Retry, wait
from everstep.model.enums import Status
from everstep.stores.artifacts import Syncs
from everstep.testing.simulation import simulate
from everstep.testing.simulation.disk import Disk
from everstep.testing.simulation.explore import Explorer, Tried, without_collector
from everstep.testing.simulation.faults import Drawn, Fault
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.process import SimProcess
from everstep.testing.simulation.simulating import check
from everstep.testing.simulation.sqlite import SqliteShared, made_before
from everstep.testing.simulation.story import told
from everstep.testing.simulation.trial import FlowTrial
from everstep.testing.simulation.world import Here, MakeStore

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0")) if IS_SOAK else 0
DEATHS = (Fault.CRASH, Fault.POWER_CUT)
BY_CHANCE = 3000 if IS_SOAK else 8
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
FLOWS = {it.name: it for it in (FIVE, WAITING, MAPPED, SPACIOUS)}


@pytest.fixture(scope="module")
def made() -> bytes:
    return made_before()


def trial(of: Flow, make_store: MakeStore) -> FlowTrial:
    return FlowTrial(of, {"x": 1}, doubles=ITSELF, answers={"ask": 7}, make_store=make_store)


def tried_deaths(
    of: Flow, make_store: MakeStore, points: str = "", kinds: Iterable[Fault] = DEATHS
) -> Iterator[Tried]:
    """Try nothing, then each death at each point of these."""
    explorer = Explorer(trial(of, make_store), seed=SEED, kinds=kinds)
    try:
        with without_collector():
            yield explorer.whole
            for taken in explorer.single_faults():
                if points in taken.label:
                    yield explorer.try_chosen([taken])
    finally:
        explorer.close()


def stories(tries: Iterable[Tried]) -> list[str]:
    return [told(tried) for tried in tries if tried.broken]


def broken(tries: Iterable[Tried]) -> Counter[str]:
    return Counter(name for tried in tries for name in {it.invariant for it in tried.broken})


def test_no_death_at_a_write_or_a_sync_loses_or_repeats_anything(made: bytes) -> None:
    assert stories(tried_deaths(FIVE, partial(SqliteShared, made=made))) == []


@pytest.mark.parametrize("name", ["waiting", "mapped", "spacious"])
def test_no_power_cut_before_a_sync_loses_or_repeats_anything(name: str, made: bytes) -> None:
    points, kinds = ("", DEATHS) if IS_SOAK else ("sync", [Fault.POWER_CUT])
    assert stories(tried_deaths(FLOWS[name], partial(SqliteShared, made=made), points, kinds)) == []


def test_no_death_while_the_database_is_made_leaves_one_that_cannot_be_used() -> None:
    assert stories(tried_deaths(FIVE, SqliteShared, "" if IS_SOAK else "sync")) == []


@pytest.mark.parametrize("name", FLOWS)
def test_whatever_goes_wrong_by_chance_all_is_as_if_nothing_had(name: str, made: bytes) -> None:
    explorer = Explorer(trial(FLOWS[name], partial(SqliteShared, made=made)), seed=SEED)
    try:
        with without_collector():
            for number in range(BY_CHANCE):
                check(explorer, explorer.try_drawn(SEED * 1_000_003 + number, faults=3))
        assert explorer.counts["schedules"] >= BY_CHANCE
    finally:
        explorer.close()


def test_a_flow_is_simulated_on_a_file_at_the_front_door() -> None:
    simulated = simulate(
        FIVE, {"x": 1}, doubles=ITSELF, store="sqlite", schedules=5, faults=["full", "outage"]
    )
    assert simulated.faults["full"] >= 6


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_a_commit_that_is_told_of_before_it_is_synced_is_found(synchronous: str, made: bytes) -> None:
    hasty = partial(SqliteShared, made=made, synchronous=synchronous)
    found = broken(tried_deaths(FIVE, hasty, kinds=[Fault.POWER_CUT]))
    assert found["durable"]


class ForgetfulDisk(Disk):
    """Syncs no artifact."""

    def syncs_of(self, process: SimProcess) -> Syncs:
        return super().syncs_of(process)._replace(file=lambda file: None)


class NamelessDisk(Disk):
    """Syncs no name of an artifact."""

    def syncs_of(self, process: SimProcess) -> Syncs:
        return super().syncs_of(process)._replace(folder=lambda folder: None)


@pytest.mark.parametrize("disk", [ForgetfulDisk, NamelessDisk])
def test_an_artifact_that_is_named_before_it_is_synced_is_found(disk: type[Disk], made: bytes) -> None:
    hasty = partial(SqliteShared, made=made, disk=disk)
    found = broken(tried_deaths(SPACIOUS, hasty, kinds=[Fault.POWER_CUT]))
    assert found["verify"]


def test_only_a_power_cut_takes_back_what_was_written(made: bytes) -> None:
    careless = partial(SqliteShared, made=made, synchronous="OFF")
    assert stories(tried_deaths(FIVE, careless, "put", [Fault.CRASH])) == []


def test_the_same_seed_gives_the_same_world_and_another_one_another(made: bytes) -> None:
    def digest(seed: int) -> str:
        world = trial(SPACIOUS, partial(SqliteShared, made=made)).world(
            seed, Drawn(seed, hazard=0.03, disorder=0.05)
        )
        try:
            world.run()
            return world.ledger.digest()
        finally:
            world.close()

    digests = [digest(seed) for seed in range(5)]
    assert digests == [digest(seed) for seed in range(5)]
    assert len(set(digests)) == 5


def test_nothing_is_left_of_a_world_that_was_closed(made: bytes) -> None:
    world = trial(FIVE, partial(SqliteShared, made=made)).world(0, Drawn(0, hazard=0.0, disorder=0.0))
    assert isinstance(world.store, SqliteShared)
    folder, vfs = world.store.disk.folder, world.store.disk.vfs.name
    world.run()
    assert folder.exists()
    world.close()
    assert not folder.exists()
    assert vfs not in apsw.vfs_names()


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


def test_processes_that_share_a_file_outlive_the_deaths_of_others_in_the_middle_of_a_write(
    made: bytes,
) -> None:
    workers = {"w1": WorkerPlace([WORKED]), "w2": WorkerPlace([WORKED], after=0.5)}
    fleet = FleetTrial(workers, {"user": client}, make_store=partial(SqliteShared, made=made))
    steady = [fault for fault in Fault if fault not in (Fault.CLOCK_AHEAD, Fault.CLOCK_BACK)]
    explorer = Explorer(fleet, seed=SEED, kinds=steady)
    try:
        with without_collector():
            check(explorer, explorer.whole)
            for number in range(BY_CHANCE):
                check(explorer, explorer.try_drawn(SEED * 1_000_003 + number, faults=3))
        assert explorer.counts["crash"] and explorer.counts["power cut"]
    finally:
        explorer.close()
