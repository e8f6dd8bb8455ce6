"""The real store on a SQLite file in a simulated world: deaths and power cuts at every write and sync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

import apsw
import pytest

from everstep.stores.artifacts import Syncs
from everstep.testing.simulation import simulate
from everstep.testing.simulation.disk import Disk
from everstep.testing.simulation.explore import Explorer, Tried, without_collector
from everstep.testing.simulation.faults import Drawn, Fault
from everstep.testing.simulation.played import ITSELF
from everstep.testing.simulation.process import SimProcess
from everstep.testing.simulation.simulating import check
from everstep.testing.simulation.sqlite import SqliteShared
from everstep.testing.simulation.story import told
from everstep.testing.simulation.world import MakeStore
from tests.simulation.soaking import IS_SOAK, SEED, opened, size
from tests.simulation.sqlite_flows import FIVE, FLOWS, made, trial

DEATHS = (Fault.CRASH, Fault.POWER_CUT)
BY_CHANCE = size(soak=3000, first=8)


def tried_deaths(
    of: str, make_store: MakeStore, points: str = "", kinds: Iterable[Fault] = DEATHS
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


def test_no_death_at_a_write_or_a_sync_loses_or_repeats_anything() -> None:
    assert stories(tried_deaths("five", partial(SqliteShared, made=made()))) == []


@pytest.mark.parametrize("name", ["waiting", "mapped", "spacious"])
def test_no_power_cut_before_a_sync_loses_or_repeats_anything(name: str) -> None:
    points, kinds = ("", DEATHS) if IS_SOAK else ("sync", [Fault.POWER_CUT])
    assert stories(tried_deaths(name, partial(SqliteShared, made=made()), points, kinds)) == []


def test_no_death_while_the_database_is_made_leaves_one_that_cannot_be_used() -> None:
    assert stories(tried_deaths("five", SqliteShared, "" if IS_SOAK else "sync")) == []


@pytest.mark.parametrize("name", FLOWS)
def test_whatever_goes_wrong_by_chance_all_is_as_if_nothing_had(name: str) -> None:
    with without_collector(), opened("sqlite", subject=name, store="sqlite", seed=SEED) as explorer:
        for number in range(BY_CHANCE):
            check(explorer, explorer.try_drawn(SEED * 1_000_003 + number, faults=3))
    assert explorer.counts["schedules"] >= BY_CHANCE


def test_a_flow_is_simulated_on_a_file_at_the_front_door() -> None:
    simulated = simulate(
        FIVE, {"x": 1}, doubles=ITSELF, store="sqlite", schedules=5, faults=["full", "outage"]
    )
    assert simulated.faults["full"] >= 6


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_a_commit_that_is_told_of_before_it_is_synced_is_found(synchronous: str) -> None:
    hasty = partial(SqliteShared, made=made(), synchronous=synchronous)
    found = broken(tried_deaths("five", hasty, kinds=[Fault.POWER_CUT]))
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
def test_an_artifact_that_is_named_before_it_is_synced_is_found(disk: type[Disk]) -> None:
    hasty = partial(SqliteShared, made=made(), disk=disk)
    found = broken(tried_deaths("spacious", hasty, kinds=[Fault.POWER_CUT]))
    assert found["verify"]


def test_only_a_power_cut_takes_back_what_was_written() -> None:
    careless = partial(SqliteShared, made=made(), synchronous="OFF")
    assert stories(tried_deaths("five", careless, "put", [Fault.CRASH])) == []


def test_the_same_seed_gives_the_same_world_and_another_one_another() -> None:
    def digest(seed: int) -> str:
        world = trial("spacious", partial(SqliteShared, made=made())).world(
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


def test_nothing_is_left_of_a_world_that_was_closed() -> None:
    world = trial("five", partial(SqliteShared, made=made())).world(0, Drawn(0, hazard=0.0, disorder=0.0))
    assert isinstance(world.store, SqliteShared)
    folder, vfs = world.store.disk.folder, world.store.disk.vfs.name
    world.run()
    assert folder.exists()
    world.close()
    assert not folder.exists()
    assert vfs not in apsw.vfs_names()


# -- several processes on one file ------------------------------------------------------------------------


def test_processes_that_share_a_file_outlive_the_deaths_of_others_in_the_middle_of_a_write() -> None:
    with without_collector(), opened("sqlite fleet", seed=SEED, store="sqlite") as explorer:
        check(explorer, explorer.whole)
        for number in range(BY_CHANCE):
            check(explorer, explorer.try_drawn(SEED * 1_000_003 + number, faults=3))
    assert explorer.counts["crash"] and explorer.counts["power cut"]
