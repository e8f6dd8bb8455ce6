"""The simulated world itself: every fault at every point of flows of every shape, the same again from a seed,
and failures that are made short and told."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from math import inf, nextafter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from everstep import Context, Flow, Host, Retry, ifelse, node, wait
from everstep.engine.keyframe import snapshot
from everstep.errors import BadRequest, InputError, StateCorrupted
from everstep.runtime.rehydrate import Rehydrated
from everstep.stores.memory.store import MemoryLog
from everstep.stores.objects.entries import Entry
from everstep.testing.simulation import ITSELF, SimulationFailed, hub, recorded, simulate, simulating
from everstep.testing.simulation.checks import INVARIANTS, Broken, Reader
from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Chosen, Drawn, Fault, Nothing, Taken
from everstep.testing.simulation.hub import SECOND, current_thread
from everstep.testing.simulation.played import played, shown
from everstep.testing.simulation.simulating import check
from everstep.testing.simulation.store import Line, SharedStore
from everstep.testing.simulation.trial import RUN, FlowTrial
from everstep.testing.simulation.world import Here, World
from tests.simulation.flows import APPROVAL, STORES, SUBJECTS, charge, charge_if_approved, take

ROOT = Path(__file__).resolve().parents[2]
IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
SEED = int(os.environ.get("EVERSTEP_SEED", "0"))
BY_CHANCE = 3_400 if IS_SOAK else 2
"""So often one schedule from the beginning and three behind a death; with all flows and stores a million
schedules, if it is to be long."""


@pytest.fixture(scope="module", autouse=True)
def quietly() -> Iterator[None]:
    with without_collector():
        yield


def faults_for(explorer: Explorer, store: str) -> Iterator[Taken]:
    """Yield all there are; the two kinds of stores elsewhere share a quarter, if it is not to be long."""
    for place, taken in enumerate(explorer.single_faults()):
        if IS_SOAK or store == "local" or place % 8 == 4 * (store == "awaited"):
            yield taken


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_flow_survives_every_fault_at_every_point(name: str, store: str) -> None:
    explorer = Explorer(SUBJECTS[name].trial(store))
    check(explorer, explorer.whole)
    for taken in faults_for(explorer, store):
        check(explorer, explorer.try_fault(taken))
    for number in range(SEED * 1_000_003, SEED * 1_000_003 + BY_CHANCE):
        check(explorer, explorer.try_drawn(number, faults=3))
        for further in range(3):
            tried = explorer.try_drawn_behind_a_death(number * 3 + further)
            assert tried is not None
            check(explorer, tried)
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


@pytest.mark.parametrize("name", ["five", "map", "approved"])
def test_what_is_drawn_behind_a_death_is_what_a_whole_world_would_come_to(name: str) -> None:
    trial = SUBJECTS[name].trial("remote")
    explorer, longest = Explorer(trial), 0
    for seed in range(20):
        rests: list[World] = []
        explorer._end = lambda _, world, rests=rests: rests.append(world)  # type: ignore[method-assign, misc]
        explorer.try_drawn_behind_a_death(seed, faults=4, disorder=0.2)
        [rest] = rests
        rest.run()
        whole = trial.world(0, Chosen(rest.ledger.taken))
        whole.run()
        assert rest.ledger.trace == whole.ledger.trace
        assert rest.ledger.taken == whole.ledger.taken
        longest = max(longest, len(rest.ledger.taken))
    assert longest > 3
    explorer.close()


def _died(explorer: Explorer, trial: FlowTrial, taken: Taken) -> World:
    world = trial.world(0, Nothing())
    world.go_on_from(explorer._first.snapshots[taken.label], explorer._first.ledger, Fault(taken.choice))
    world.run()
    return world


@pytest.mark.parametrize("name", SUBJECTS)
def test_records_that_another_world_has_are_judged_as_if_they_were_read_anew(name: str) -> None:
    trial = SUBJECTS[name].trial()
    explorer = Explorer(trial)
    [route] = (explorer._reader._routes or {}).values()
    passed_by = 0
    for taken in (it for it in explorer.single_faults() if it.choice == Fault.CRASH):
        world = _died(explorer, trial, taken)
        [found], [anew] = explorer._reader.kept(world).values(), Reader().kept(world).values()
        assert (found.row, found.records, found.flaws, found.waits) == (
            *(anew.row, anew.records, anew.flaws, anew.waits),
        )
        assert found.folded is not None and anew.folded is not None
        assert found.folded.digests() == anew.folded.digests()
        assert snapshot(found.folded.state, ()) == snapshot(anew.folded.state, ())
        assert _head(found.folded) == _head(anew.folded) and found.folded.space.size == anew.folded.space.size
        passed_by += bool(route.milestones) and route.milestones[0].record is found.records[0]
        world.close()
    assert passed_by or name == "aside"  # what lies in artifacts is always looked at
    for at, folded in _folds(explorer).items():  # no world has changed where others begin
        known = route.milestones[at - 1].folded
        assert snapshot(known.state, ()) == snapshot(folded.state, ())
        assert (known.digests(), _head(known)) == (folded.digests(), _head(folded))
    explorer.close()


def _folds(explorer: Explorer) -> dict[int, Rehydrated]:
    """Return what the records of the uninterrupted world fold to, up to each milestone."""
    reader = Reader()
    [kept] = reader.kept(explorer._first).values()
    [route] = (explorer._reader._routes or {}).values()
    runs = reader._host._runs.reader
    plan = reader._now(runs.plan(kept.row))
    return {
        it.record.sequence: reader._now(runs.rehydrate(kept.row, plan, at=it.record.sequence))
        for it in route.milestones
    }


def _head(folded: Rehydrated) -> list[object]:
    return [getattr(folded.head, name) for name in folded.head.__slots__]


@pytest.mark.parametrize("byte", [-1, 12, 40, 60])
def test_a_record_that_was_altered_is_found_though_another_world_has_it_as_it_was(byte: int) -> None:
    trial = SUBJECTS["five"].trial()
    explorer = Explorer(trial)
    last = [it for it in explorer.single_faults() if it.choice == Fault.CRASH][-1]
    altered = 0
    for place in range(20):
        world = _died(explorer, trial, last)
        assert isinstance(world.store, SharedStore)
        if _alter(world.store.data.logs[RUN], place, byte):
            altered += 1
            assert "verify" in {it.invariant for it in _judged(explorer, trial, world)}, place
        world.close()
    assert altered == 6
    explorer.close()


def _judged(explorer: Explorer, trial: FlowTrial, world: World) -> list[Broken]:
    try:
        return trial.judge(world, explorer._reader, None)
    except StateCorrupted as error:  # as one that says nothing of steps
        return [Broken("verify", error.message)]


def _alter(log: MemoryLog, place: int, byte: int) -> bool:
    """Change a byte of the record at a place; false if there is none."""
    kept = log.places[place] if place < len(log.places) else ()
    records = kept.records if isinstance(kept, Entry) else kept
    for record in records:
        body = bytearray(record.body)
        body[byte] ^= 1
        changed = (msgspec.structs.replace(record, body=bytes(body)),)
        log.places[place] = (
            msgspec.structs.replace(kept, records=changed) if isinstance(kept, Entry) else changed
        )
    return bool(records)


@pytest.mark.parametrize(
    "slot", ["visits", "statuses", "attempts", "reads", "total", "consumed", "ended", "values"]
)
def test_a_run_in_memory_that_is_not_what_its_records_say_is_found(slot: str) -> None:
    trial = SUBJECTS["five"].trial()
    world, reader = trial.world(0, Nothing()), Reader()
    world.run()
    assert not trial.judge(world, reader, None)
    [live] = world.ledger.driven.values()
    if slot == "values":
        live.space.slots.pop("price")
    elif slot in ("total", "ended"):
        setattr(live.state, slot, not getattr(live.state, slot))
    elif slot == "consumed":
        live.state.consumed[0] = "other"
    else:
        getattr(live.state, slot)[0] = {"visits": 2, "statuses": None, "attempts": 7, "reads": {"x": 1}}[slot]
    assert {it.invariant for it in trial.judge(world, reader, None)} == {"fold"}
    world.close()


def test_the_dice_of_a_program_are_as_they_were_when_a_simulation_is_over() -> None:
    before = random.getstate()
    simulate(
        SUBJECTS["five"].flow, SUBJECTS["five"].inputs, doubles=ITSELF, schedules=1, faults=[Fault.CRASH]
    )
    assert random.getstate() == before


def test_a_simulated_host_takes_nothing_from_the_environment_of_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("BLOBS", "KEY", "SPOOL"):
        monkeypatch.setenv(f"EVERSTEP_{name}", "nowhere://")
    five = SUBJECTS["five"]
    simulate(five.flow, five.inputs, doubles=ITSELF, schedules=0, faults=["clock back"])


def test_the_page_names_every_promise_and_every_fault() -> None:
    page = (ROOT / "docs/how-to/test-a-flow-against-every-crash.md").read_text()
    assert [name for name, means in INVARIANTS.items() if f"| `{name}` | {means} |" not in page] == []
    assert [fault for fault in Fault if f"`{fault.value}`" not in page] == []


WORLDS = 6 if IS_SOAK else 2
DIGESTS = f"""
from everstep.testing.simulation.faults import Drawn
from tests.simulation.flows import STORES, SUBJECTS
for name, subject in SUBJECTS.items():
    for store in STORES:
        for seed in range({WORLDS}):
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
    assert len(lines) == len(SUBJECTS) * len(STORES) * WORLDS
    assert any(int(line.split()[-1]) > 1 for line in lines)
    assert len({line.split()[-2] for line in lines}) > len(lines) / 2, "worlds of different seeds differ"


RESTLESS = """
import itertools, random, threading, time
tens = itertools.count(0, 10)
for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
    setattr(time, name, lambda: next(tens) + random.SystemRandom().random())
time.sleep = None
def burn():
    while True:
        sum(range(1000))
threading.Thread(target=burn, daemon=True).start()
"""
"""A machine so busy that seconds pass between two looks at its clock, and another thread is always ready."""


def test_the_same_seed_gives_the_same_trace_under_load() -> None:
    few = DIGESTS.replace(f"range({WORLDS})", "range(1)").replace("in STORES", "in ('remote',)")
    found = []
    for before in ("", RESTLESS):
        command = [sys.executable, "-c", f"{before}\nimport sys; sys.setswitchinterval(1e-5)\n{few}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] == found[1]
    assert len(found[0].splitlines()) == len(SUBJECTS)


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
    assert text.startswith("Two uninterrupted runs differ already: node 'roll' gave ")


def test_a_node_that_rolls_dice_is_named_and_a_crash_not_blamed() -> None:
    @node(output="number")
    def throw(order: str) -> int:
        return random.randrange(10**9)

    flow = Flow("throwing", [take, throw, charge.with_inputs(price="number")])
    with pytest.raises(SimulationFailed, match=r"differ already: node 'throw' gave \d+ in one of them"):
        simulate(flow, {"customer": "ada"}, doubles=ITSELF, faults="crash")
    simulate(flow, {"customer": "ada"}, doubles=ITSELF, faults="crash", deterministic=False)
    # What is recorded is not rolled again, so it is no mistake as long as no process dies.
    simulate(flow, {"customer": "ada"}, doubles=ITSELF, faults="lost reply", schedules=0)


def test_a_gate_that_follows_no_input_is_named_and_not_the_node_behind_it() -> None:
    @ifelse(when_true="early", when_false="late")
    def is_early(order: str) -> bool:
        return random.random() < 0.5

    @node(output="parcel")
    def early(order: str) -> str:
        return "early"

    @node(output="parcel")
    def late(order: str) -> str:
        return "late"

    flow = Flow("hours", [take >> is_early, early, late])
    told = r"node 'is_early' chose '(early|late)' in one of them, and '(early|late)' in the other"
    with pytest.raises(SimulationFailed, match=told):
        simulate(flow, {"customer": "ada"}, faults="crash")


def test_a_failure_of_a_flow_that_is_deterministic_blames_no_node() -> None:
    @node(output="number")
    def forget(order: str) -> int:
        process = current_thread()
        assert process is not None
        return int(process.owner.life)  # type: ignore[attr-defined]

    flow = Flow("forgetting", [take, forget, charge.with_inputs(price="number")])
    with pytest.raises(SimulationFailed) as failed:
        simulate(flow, {"customer": "ada"}, doubles=ITSELF, faults="crash")
    assert str(failed.value).startswith("A schedule breaks what durable runs promise.")


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


def test_what_is_left_of_a_dead_process_makes_no_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made then stayed open, and was complained of in the middle of another test."""
    made: list[str] = []
    monkeypatch.setattr(
        asyncio.events, "_event_loop_policy", SimpleNamespace(get_event_loop=lambda: made.append("a loop"))
    )
    world, lives = World(), []

    async def wait_for_others() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.gather()

    def program(here: Here) -> None:
        lives.append(here.process)
        if len(lives) == 1:
            with here.runner() as runner:
                runner.run(wait_for_others())

    world.start("app", program)
    world.hub.at(SECOND, lambda: world.kill(lives[0]))
    world.run()
    assert (len(lives), made) == (2, [])


def test_a_run_that_killed_too_many_owners_is_given_up_and_ends_when_it_is_reopened() -> None:
    explorer = Explorer(SUBJECTS["spending"].trial())
    deaths = [Taken(f"app.{life} after lease 1", "crash") for life in range(2, 13)]
    tried = explorer.try_chosen([Taken("app.1 after put 3", "crash"), *deaths])
    assert not tried.broken, tried.broken
    assert len(tried.taken) == 12
    explorer.close()


def test_renewals_are_in_less_and_less_danger() -> None:
    """A pause of an hour has hundreds: if they were as dangerous as all else, every owner would die of it."""
    drawn = Drawn(0, hazard=0.5, disorder=0)
    early = sum(drawn.fault(f"app.1 before renew {n}", (Fault.CRASH,)) is not None for n in range(1, 11))
    late = sum(drawn.fault(f"app.1 before renew {n}", (Fault.CRASH,)) is not None for n in range(11, 411))
    assert early > 0 and late < 10


def test_a_host_that_drives_nothing_is_not_woken() -> None:
    """It looks for a while, as a run may begin soon; then it waits for one."""
    world, ends = World(), []

    def program(here: Here) -> None:
        with here.host() as host:
            for run_id in ("A", "B"):
                ends.append(host.run(SUBJECTS["five"].flow, SUBJECTS["five"].inputs, run_id=run_id).status)
                here.sleep(7 * 24 * 3600)

    world.start("app", program)
    world.run()
    assert ends == ["completed"] * 2
    assert world.hub.waits < 300


@pytest.mark.parametrize("away", [1, 8])
def test_a_wait_does_not_time_out_at_once_where_a_clock_is_behind_and_the_store_away(away: int) -> None:
    """What it is due by was made of this machine's clock, if the store could not be asked what time it is."""
    world = World(is_remote=True)

    @node(output="price")
    def lose_the_store(order: str) -> int:
        world.store.away_until = world.hub.now + away * SECOND
        return 7

    flow = played(Flow("late", [take, lose_the_store, APPROVAL, charge_if_approved]), ITSELF)
    seen: list[str] = []

    def program(here: Here) -> None:
        here.process.machine.ahead = timedelta(hours=-2)
        with here.host() as host:
            host.run(flow, {"customer": "ada"}, run_id=RUN)
            here.sleep(60)
            seen.append(host.resume(RUN, flow).status)

    world.start("app", program)
    world.run()
    assert seen == ["halted"]


@pytest.mark.parametrize("inside", [False, True])
def test_a_pause_goes_on_for_no_hours_where_a_clock_is_behind_and_the_store_away(
    inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process began it, by the store's clock, which is out of reach when this one asks."""
    world = World(is_remote=True)
    called: list[int] = []
    ended: list[float] = []

    def fail_once() -> int:
        called.append(1)
        if len(called) == 1:
            raise ConnectionError("busy")
        return 7

    async def fail_soon() -> int:
        return fail_once()

    async def call(order: str, ctx: Context) -> int:
        return await ctx.step("ask", fail_soon, retry=LATER) if inside else fail_once()

    pausing = node(output="price", retry=None if inside else LATER)(call)
    flow = played(Flow("pausing", [take, pausing]), ITSELF)

    tell_time = Line.now

    async def lose_the_store(line: Line) -> datetime | None:
        if len(world.processes) == 2 and world.store.away_until == 0:
            world.store.away_until = world.hub.now + 3 * SECOND
        return await tell_time(line)

    monkeypatch.setattr(Line, "now", lose_the_store)

    def program(here: Here) -> None:
        if here.life == 1:
            world.hub.at(5 * SECOND, lambda: world.kill(here.process))
        else:
            here.process.machine.ahead = timedelta(hours=-1)
        with here.host() as host:
            assert host.run(flow, {"customer": "ada"}, run_id=RUN).status == "completed"
        ended.append(world.hub.now / SECOND)

    world.start("app", program)
    world.run()
    assert world.store.away_until and len(called) == 2
    assert 30 < ended[0] < 60


LATER = Retry(3, first=30, jitter=0)


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
    with pytest.raises(BadRequest, match="no record of what measure#3 gave at visit 1"):
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


def test_a_run_with_too_many_points_is_refused_unless_few_of_them_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    five = SUBJECTS["five"]
    monkeypatch.setattr(simulating, "MOST_POINTS", 2_200)
    with pytest.raises(
        BadRequest, match=r"comes to 22 points .* there are 125 schedules .* single_faults=10"
    ):
        simulate(five.flow, five.inputs, doubles=ITSELF, schedules=0)
    few = simulate(five.flow, five.inputs, doubles=ITSELF, schedules=0, single_faults=10)
    assert few.schedules == 10 and len(few.faults) > 2
    again = simulate(five.flow, five.inputs, doubles=ITSELF, schedules=0, single_faults=10)
    assert again.faults == few.faults
    crashes = simulate(five.flow, five.inputs, doubles=ITSELF, schedules=0, faults="crash")
    assert crashes.schedules == 22


def test_a_run_that_does_more_than_can_be_simulated_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    five = SUBJECTS["five"]
    monkeypatch.setattr(hub, "MOST_WAITS", 10)
    with pytest.raises(
        SimulationFailed, match=r"threads have waited 11 times: .* more than can be simulated"
    ):
        simulate(five.flow, five.inputs, doubles=ITSELF)


def test_who_waits_for_a_time_just_ahead_waits_no_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added up of seconds is often the least there is behind a whole microsecond."""
    monkeypatch.setattr(hub, "MOST_WAITS", 20_000)

    @node(output="met")
    async def wait_on(count: int) -> int:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1.551)
        for _ in range(count):
            until = nextafter(loop.time(), inf)
            while loop.time() < until:
                due = loop.create_future()
                loop.call_at(until, due.set_result, None)
                await due
        return count

    simulate(Flow("waits", [wait_on]), {"count": 100}, doubles=ITSELF, schedules=0)


def test_a_lock_is_handed_on_past_a_thread_that_something_else_has_woken() -> None:
    got: list[str] = []

    def program(here: Here) -> None:
        system = here.process.system
        lock, rings, alarm = system.lock(), system.event(), system.event()

        def hold() -> None:
            with lock:
                here.sleep(3)

        def ring(who: str) -> None:
            rings.wait(0.5)  # in vain: it is set while this thread waits for the lock
            with lock:
                got.append(who)

        def take(who: str) -> None:
            alarm.wait(2)
            with lock:
                got.append(who)

        threads = [system.spawn(hold, "hold"), system.spawn(partial(ring, "rung"), "rung")]
        threads.append(system.spawn(partial(take, "last"), "last"))
        here.sleep(1)
        rings.set()
        for thread in threads:
            thread.join()

    world = World()
    world.start("app", program)
    world.run()
    assert got == ["rung", "last"]
    assert not world.troubles


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
    with pytest.raises(BadRequest, match="'ok' waits for an answer"):
        simulate(flow)


def test_an_input_that_is_missing_is_no_broken_promise() -> None:
    with pytest.raises(InputError, match="'customer' is missing"):
        simulate(SUBJECTS["five"].flow, doubles=ITSELF)


def test_a_durable_call_without_a_double_is_refused_by_name() -> None:
    turns = SUBJECTS["steps in turn"]
    with pytest.raises(BadRequest, match=r"makes an effect in step 'look@1'.*doubles=\{'\$look'"):
        simulate(turns.flow, turns.inputs)


def test_a_node_that_opens_a_socket_is_told_that_there_are_none() -> None:
    @node(output="page")
    async def fetch() -> str:
        await asyncio.open_connection("127.0.0.1", 9)
        return "read"

    with pytest.raises(BadRequest, match="opens no sockets"):
        simulate(Flow("fetching", [fetch]))


@pytest.mark.parametrize("store", STORES)
def test_a_signal_is_sent_and_an_event_published_as_an_answer_is_given(store: Any) -> None:
    @node(output="receipt", effects="effectful", idempotency_key="auto")
    def close(paid: dict[str, str], note: str) -> str:
        return f"{paid['order']}: {note}"

    paid = wait.event("paid", match={"order": "order"})
    flow = Flow("shop", [take >> paid >> wait.signal("note", answer_type=str), close])
    answers: dict[str, Any] = {"paid": {"order": "order of ada"}, "note": "thanks"}
    simulate(flow, {"customer": "ada"}, doubles=ITSELF, answers=answers, store=store, schedules=20)
    with pytest.raises(BadRequest, match=r"is failed: the answer is no str"):
        simulate(flow, {"customer": "ada"}, doubles=ITSELF, answers={**answers, "note": 7})
    with pytest.raises(BadRequest, match="'paid' waits for the event 'paid'"):
        simulate(flow, {"customer": "ada"}, doubles=ITSELF, answers={**answers, "paid": {"order": "other"}})
