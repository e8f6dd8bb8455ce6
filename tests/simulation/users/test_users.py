"""Three workers, and users who start, answer, pause, cancel, fork, reopen, pin and remove runs at any time.

`EVERSTEP_SOAK=1` tries many more scripts, those that follow from `EVERSTEP_SEED`.
"""

from __future__ import annotations

from functools import partial

import pytest

from everstep import Context, Node, Retry
from everstep.model.enums import Status
from everstep.testing.simulation import hub
from everstep.testing.simulation.explore import Explorer
from everstep.testing.simulation.faults import Chosen, Drawn, Nothing, parse
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.simulating import check
from everstep.testing.simulation.world import Here, NeverEnds
from tests.simulation.soaking import size, soak
from tests.simulation.stores import FAULTS, place
from tests.simulation.users.flows import OLD, flow
from tests.simulation.users.people import UsersTrial, script, trial

SCRIPTS, EVERYONE, SCHEDULES = size(soak=(300, 150, 12), first=(6, 2, 4))
WORLDS = size(soak=range(20), first=range(2))
"""Seeds of worlds that are seen twice."""


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_a_fleet_keeps_its_promises_whatever_its_users_do(store: str) -> None:
    tried = soak("users", store, SCRIPTS, SCHEDULES)
    assert len(tried) >= len(FAULTS[store]) - 3  # what goes wrong is not always the same


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "remote"])
def test_a_fleet_keeps_its_promises_with_everyone_at_it_at_once(store: str) -> None:
    assert soak("everyone", store, EVERYONE, SCHEDULES)


def test_nothing_of_a_paused_run_is_called_in_a_world_without_faults() -> None:
    tried = 0
    for seed in size(soak=range(40), first=range(12)):
        paused = trial(seed, "remote" if seed % 2 else "local")
        if all(wish.pauses is None for wish in script(seed, pauses=True).wishes):
            continue
        explorer = Explorer(paused, seed=seed, kinds=FAULTS["local"])
        try:
            check(explorer, explorer.whole)
            tried += 1
        finally:
            explorer.close()
    assert tried >= 5


def test_a_worker_that_is_told_to_stop_leaves_its_runs_to_others() -> None:
    seed = next(seed for seed in range(100) if script(seed).replaces is not None)
    world = trial(seed, "local").world(seed, Nothing())
    world.run()
    story = [text for _, text in world.ledger.story]
    after = story[story.index("worker-2 is told to stop.") :]
    claims = [text.split()[0] for text in after if " claims run " in text]
    assert claims
    assert "worker-2.1" not in claims


# -- the same seed is the same world ----------------------------------------------------------------------


def digests(seeds: range) -> list[str]:
    """Return what the worlds of some seeds saw, with faults, and with threads in disorder."""
    found = []
    for seed in seeds:
        store = "remote" if seed % 2 else "local"
        world = trial(seed, store).world(seed, Drawn(seed, hazard=0.02, disorder=0.1, kinds=FAULTS[store]))
        world.run()
        assert world.ledger.taken
        found.append(world.ledger.digest())
    return found


def test_the_same_seed_is_the_same_world_twice() -> None:
    assert digests(WORLDS) == digests(WORLDS)


# -- schedules that once went wrong -----------------------------------------------------------------------


def cancels(asked: dict[str, Status]) -> FleetTrial:
    """One run that waits for an answer, and is cancelled instead."""

    def client(world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            persist(here, partial(host.start, OLD["asks"], {"x": 1}, run_id="A17"))
            here.sleep(2)
            asked["said"] = persist(here, partial(host.cancel, "A17"))

    return FleetTrial({"worker": WorkerPlace([OLD["asks"]])}, {"client": client})


def test_who_cancels_a_run_and_is_overtaken_hears_that_it_is_cancelled() -> None:
    asked: dict[str, Status] = {}
    world = cancels(asked).world(0, Chosen([parse("client.1 before put 2: stall")]))
    world.run()
    assert not world.troubles  # it heard that another process had taken over what it drove
    assert asked == {"said": Status.CANCELLED}


def tries_twice() -> FleetTrial:
    """One run whose node fails once and is tried again a second later, on two machines an hour apart."""

    def call(ctx: Context, x: int) -> int:
        if ctx.attempt == 1:
            raise ConnectionError("try again")
        return x

    called = Node(
        call,
        output="y",
        effects="effectful",
        idempotency_key="auto",
        retry=Retry(3, first=1, jitter=0, on=ConnectionError),
    )
    tries = flow("tries", [called], "strong")
    workers = {"ahead": WorkerPlace([tries], "m2"), "right": WorkerPlace([tries], "m1", after=5)}

    def client(world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            persist(here, partial(host.start, tries, {"x": 1}, run_id="A17"))
            while not persist(here, partial(host.info, "A17")).status.is_final:
                here.sleep(1)
            world.notes["ended"] = world.hub.now

    return FleetTrial(workers, {"client": client}, is_remote=True, skew=3600.0)


def test_a_pause_before_a_retry_is_as_long_on_a_machine_with_another_clock() -> None:
    world = tries_twice().world(0, Chosen([parse("ahead.1 after put 1: power cut")]))
    world.run()
    assert world.store.row("A17").status is Status.COMPLETED  # type: ignore[union-attr]
    assert [body.tag for body in world.ledger.bodies] == ["ahead.1", "right.1"]
    assert world.notes["ended"] < 60 * SECOND  # it was an hour: the pause went by the clock of the first


def test_who_starts_a_run_again_that_went_over_to_another_version_meanwhile_goes_on() -> None:
    """The users of a fleet took that for an error, and everyone else waited for them."""
    decisions = (
        "service.1 after put 1: power cut",
        "worker-3.1 before claim_due 3: full",
        "worker-new.1 after put 3: stall",
    )
    unpaused = UsersTrial(script(3000045), **place(3000045, "remote"))
    world = unpaused.world(3000045010, Chosen(map(parse, decisions)))
    world.run()
    assert not world.troubles
    assert {str(it) for it in world.ledger.taken} == {*decisions}


def test_a_world_that_does_not_end_tells_which_program_ended_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub, "MOST_WAITS", 2_000)

    def client(world: FleetWorld, here: Here) -> None:
        raise ValueError("no such thing")

    world = FleetTrial({"worker": WorkerPlace([OLD["asks"]])}, {"client": client}).world(0, Nothing())
    with pytest.raises(NeverEnds, match=r"client\.1 ended with ValueError: no such thing"):
        world.run()
