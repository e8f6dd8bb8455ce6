"""The simulated world itself: every fault at every point of flows of every shape, the same again from a seed,
and failures that are made short and told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep import Flow, Host, node, wait
from everstep.errors import BadRequest
from everstep.testing.simulation import ITSELF, SimulationFailed, recorded, simulate
from everstep.testing.simulation.checks import INVARIANTS
from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Chosen, Drawn, Fault, Nothing, Taken
from everstep.testing.simulation.played import shown
from everstep.testing.simulation.simulating import check
from tests.simulation.flows import STORES, SUBJECTS, charge, take

ROOT = Path(__file__).resolve().parents[2]
IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0"))
BY_CHANCE = 24_000 if IS_SOAK else 10
"""With all flows and stores a million schedules, if it is to be long."""


@pytest.fixture(scope="module", autouse=True)
def quietly() -> Iterator[None]:
    with without_collector():
        yield


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_flow_survives_every_fault_at_every_point(name: str, store: str) -> None:
    explorer = Explorer(SUBJECTS[name].trial(store))
    check(explorer, explorer.whole)
    for taken in explorer.single_faults():
        check(explorer, explorer.try_fault(taken))
    for number in range(BY_CHANCE):
        check(explorer, explorer.try_drawn(SEED * 1_000_003 + number, faults=3))
    explorer.close()


@pytest.mark.parametrize("name", ["five", "map", "approved"])
def test_a_death_from_a_snapshot_is_the_death_of_a_whole_world(name: str) -> None:
    trial = SUBJECTS[name].trial()
    explorer = Explorer(trial)
    deaths = [it for it in explorer.single_faults() if it.choice in (Fault.CRASH, Fault.POWER_CUT)]
    assert len(deaths) > 20
    for taken in deaths:
        whole = trial.world(0, Chosen([taken]))
        whole.run()
        rest = trial.world(0, Nothing())
        rest.go_on_from(explorer._first.snapshots[taken.label], explorer._first.ledger, Fault(taken.choice))
        rest.run()
        assert rest.ledger.trace == whole.ledger.trace
        assert rest.ledger.taken == whole.ledger.taken == [taken]
    explorer.close()


def test_the_page_names_every_promise_and_every_fault() -> None:
    page = (ROOT / "docs/how-to/test-a-flow-against-every-crash.md").read_text()
    assert [name for name, means in INVARIANTS.items() if f"| `{name}` | {means} |" not in page] == []
    assert [fault for fault in Fault if f"`{fault.value}`" not in page] == []


DIGESTS = """
from everstep.testing.simulation.faults import Drawn
from tests.simulation.flows import STORES, SUBJECTS
for name, subject in SUBJECTS.items():
    for store in STORES:
        for seed in range(6):
            world = subject.trial(store).world(seed, Drawn(seed, hazard=0.05, disorder=0.3))
            world.run()
            print(name, store, seed, world.ledger.digest(), len(world.ledger.taken))
"""


def test_the_same_seed_gives_the_same_trace_under_any_hash_seed() -> None:
    found = set()
    for seed in ("1", "2"):
        command = [sys.executable, "-c", DIGESTS]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    [told] = found
    lines = told.splitlines()
    assert len(lines) == len(SUBJECTS) * len(STORES) * 6
    assert any(int(line.split()[-1]) > 1 for line in lines)
    assert len({line.split()[-2] for line in lines}) > len(lines) / 2, "worlds of different seeds differ"


def test_leaving_a_decision_out_changes_no_other() -> None:
    """The world of a seed is the world of its decisions."""
    trial = SUBJECTS["approved"].trial()
    drawn = trial.world(3, Drawn(3, hazard=0.1, disorder=0.0))
    drawn.run()
    assert drawn.ledger.taken
    chosen = trial.world(3, Chosen(drawn.ledger.taken))
    chosen.run()
    assert chosen.ledger.trace == drawn.ledger.trace


@node(output="number")
def roll(order: str) -> int:
    Dice.rolled += 1
    return Dice.rolled


class Dice:
    """What a process should have kept in a record."""

    rolled = 0


FORGETFUL = Flow("forgetful", [take, roll, charge.with_inputs(price="number")])


def test_a_failure_is_made_short_and_told() -> None:
    Dice.rolled = 0
    with pytest.raises(SimulationFailed) as failed:
        simulate(FORGETFUL, {"customer": "ada"}, doubles=ITSELF, faults=["crash", "lost reply"])
    error = failed.value
    assert len(error.decisions) <= 1
    text = str(error)
    assert "result (the run ends with the result of an uninterrupted one)" in text
    assert "def test_this_schedule():" in text and "calls roll of run 'A17'" in text
    assert all(repr(decision) in text for decision in error.decisions)


def test_only_the_decisions_that_count_are_left() -> None:
    trial = SUBJECTS["five"].trial()
    explorer = Explorer(trial)
    tried = explorer.try_chosen(
        [
            Taken("app.1 before put 2", "lost request"),
            Taken("app.1 after put 3", "crash"),
            Taken("turn 1", "1"),
        ]
    )
    assert not tried.broken and [it.choice for it in tried.taken] == ["lost request", "crash"]
    explorer.close()


def test_effects_without_a_double_are_refused_by_name() -> None:
    flow = SUBJECTS["nested"].flow
    with pytest.raises(BadRequest, match="makes effects at 'inner/charge'"):
        simulate(flow, {"customer": "ada"})
    with pytest.raises(BadRequest, match="no node 'chrage' to double"):
        simulate(flow, {"customer": "ada"}, doubles={"charge": "paid", "chrage": "paid"})
    tried = simulate(flow, {"customer": "ada"}, doubles={"inner/charge": "paid"}, schedules=3)
    assert tried.schedules > tried.points > 20


def test_doubles_come_from_a_recorded_run() -> None:
    five = SUBJECTS["five"]
    with Host("memory:") as host:
        host.run(five.flow, five.inputs, run_id="R1")
        doubles = recorded(host, "R1")
    simulate(five.flow, five.inputs, doubles=doubles, schedules=5)
    loop = SUBJECTS["map"]
    with Host("memory:") as host:
        host.run(loop.flow, loop.inputs, run_id="R2")
        short = recorded(host, "R2")
    simulate(loop.flow, loop.inputs, doubles=short, schedules=5, faults=["crash"])
    with pytest.raises(SimulationFailed, match="no record of what measure#3 gave at visit 1"):
        simulate(loop.flow, {"text": "a bb ccc dddd"}, doubles=short, schedules=0)


def test_a_flow_that_fails_by_itself_is_told_before_anything_goes_wrong() -> None:
    five = SUBJECTS["five"]

    def declined(order: str, price: int) -> str:
        raise ConnectionError("declined")

    with pytest.raises(BadRequest, match="with nothing going wrong, run 'A17' is failed: declined"):
        simulate(five.flow, five.inputs, doubles={"charge": declined})
    simulate(five.flow, five.inputs, doubles={"charge": declined}, ends="failed", schedules=3, faults="crash")
    with pytest.raises(BadRequest, match="double of 'charge' is async"):

        async def later(**_: object) -> str:
            return "paid"

        simulate(five.flow, five.inputs, doubles={"charge": later})


def test_what_is_never_met_is_refused() -> None:
    five, approved = SUBJECTS["five"], SUBJECTS["approved"]
    with pytest.raises(BadRequest, match="no node 'okk' of flow 'approved' waits"):
        simulate(approved.flow, approved.inputs, doubles=ITSELF, answers={"okk": {"approved": True}})
    with pytest.raises(BadRequest, match=r"does not come to 'app\.1 after put 99"):
        simulate(five.flow, five.inputs, doubles=ITSELF, only="app.1 after put 99: crash")
    with pytest.raises(BadRequest, match="none of these faults can happen"):
        simulate(five.flow, five.inputs, doubles=ITSELF, faults="torn")


def test_an_interrupt_is_an_interrupt() -> None:
    @node(output="x")
    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(Flow("interrupted", [interrupted]))


def test_long_inputs_are_compared_to_their_end() -> None:
    """An effect whose long input changes at its end is an effect with other inputs."""
    long = "x" * 1000
    assert shown({"text": long + "1"}, None) != shown({"text": long + "2"}, None)
    assert len(shown({"text": long}, None)) < 500
    words = {"a", "b", "c", "d"}
    assert "set" not in shown({"text": (words, [words])}, None).replace("{'a', 'b', 'c', 'd'}", "")


@pytest.mark.parametrize("said", ["app.1 after put 3", "app.1 after put 3: explosion", ""])
def test_a_decision_that_is_none_is_refused(said: str) -> None:
    five = SUBJECTS["five"]
    with pytest.raises(BadRequest, match="no decision of a schedule"):
        simulate(five.flow, five.inputs, doubles=ITSELF, only=[said])
    with pytest.raises(BadRequest, match="no such fault"):
        simulate(five.flow, five.inputs, doubles=ITSELF, faults=["explosion"])


def test_a_wait_without_an_answer_or_a_due_time_is_told() -> None:
    flow = Flow("asking", [wait.approval("ok")])
    with pytest.raises(SimulationFailed, match="'ok' waits for an answer"):
        simulate(flow)
