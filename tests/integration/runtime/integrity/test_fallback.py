"""A run whose head is damaged is refused, and with `fallback` goes on from its newest valid checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Context, Flow, Host, node
from everstep.cli.commands.travel.fork import fork
from everstep.cli.main import cli
from everstep.errors import BadRequest, LeaseConflict, StateCorrupted
from everstep.registry import Opened
from everstep.runtime.integrity.fallback import name_of_fork
from everstep.runtime.run_ids import check_run_id
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests import inside_memory
from tests.integration.runtime.integrity.test_verify_damage import Place, flipped

pytestmark = pytest.mark.servers

SENT: list[tuple[str, str]] = []
"""What left the house: who sent it, and with which key."""


@node(output="a", effects="pure")
def first(x: int) -> int:
    return x + 1


@node(output="large", effects="effectful", idempotency_key="auto")
def second(a: int, ctx: Context) -> str:
    SENT.append(("second", ctx.idempotency_key or ""))
    return "x" * 700_000


@node(output="c", effects="effectful", idempotency_key="auto")
def third(large: str, ctx: Context) -> int:
    SENT.append(("third", ctx.idempotency_key or ""))
    return len(large)


@node(output="d")
def last(c: int, broken: bool) -> int:
    if broken and not FIXED:
        raise ValueError("not yet")
    return c + 1


FIXED: list[bool] = []
FLOW = Flow("f", [first, second, third, last], durability="strong")


@pytest.fixture(autouse=True)
def nothing_sent() -> Iterator[None]:
    SENT.clear()
    FIXED.clear()
    yield
    FIXED.clear()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Those that can be reached beneath by a vandal; buckets are in test_verify_buckets."""
    if request.param in ("postgres", "redis"):
        return str(request.getfixturevalue(f"{request.param}_url"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def place(url: str, tmp_path: Path) -> Place:
    """A store with a run A that failed in its fifth checkpoint."""
    made = Place(url, tmp_path)
    with made.host() as host:
        assert host.run(FLOW, {"x": 1, "broken": True}, run_id="A").status == "failed"
        assert host.info("A").checkpoints == 5
    FIXED.append(True)
    return made


def spoil(place: Place, sequence: int, run: str = "A") -> None:
    body = place.vandal.body(run, sequence)
    place.vandal.write(run, sequence, flipped(body, len(body) // 2))


def test_an_invalid_head_is_refused_and_falls_back_as_a_fork_with_the_same_keys(place: Place) -> None:
    spoil(place, 4)
    with place.host() as host:
        with pytest.raises(StateCorrupted) as refused:
            host.resume("A", FLOW)
        assert refused.value.details["newest_valid"] == 3 and "--fallback" in refused.value.fix
        result = host.resume("A", FLOW, fallback=True)
        assert (result.run_id, result.status, result["d"]) == ("A-from-3", "completed", 700_001)
        told = result.fallback
        assert told is not None and (told.run_id, told.fork, told.at) == ("A", "A-from-3", 3)
        assert "checkpoint 4 of run 'A'" in told.reason
        assert [name for name, _ in SENT] == ["second", "third", "third"] and SENT[1] == SENT[2]
        repeated = {step.path: step.key for step in told.may_repeat}
        if told.unread:  # as many bytes as fit may still be read of what was altered
            assert told.unread == (4,)
        else:
            assert repeated["third"] == SENT[1][1]
        assert "first" not in repeated and "second" not in repeated and "last" in repeated
        damaged = host.info("A")
        assert damaged.status == "failed" and damaged.checkpoints == 5 and not damaged.is_driven
        assert host.info("A-from-3").parent_run_id == "A"


def test_effects_behind_the_checkpoint_are_listed_as_far_as_they_can_be_read(place: Place) -> None:
    place.vandal.write("A", 3, b"no record")
    with place.host() as host:
        told = host.resume("A", FLOW, fallback=True).fallback
    assert told is not None and told.at == 2 and told.unread == (3,)
    listed = [(step.path, step.sequence, step.status.value, step.effects.value) for step in told.may_repeat]
    assert listed == [("third", 4, "completed", "effectful"), ("last", 5, "failed", "undeclared")]


def test_asked_again_it_is_the_same_fork(place: Place) -> None:
    spoil(place, 5)
    with place.host() as host:
        first_time = host.resume("A", FLOW, fallback=True)
        again = host.resume("A", FLOW, fallback=True)
        assert (again.run_id, again["d"], again.status) == (first_time.run_id, 700_001, "completed")
        assert [run.run_id for run in host.runs()] == ["A-from-4", "A"]
        assert len(SENT) == 2


def test_a_damaged_run_that_is_named_by_its_newest_checkpoint_falls_back_too(place: Place) -> None:
    with place.host() as host:
        newest = host.history("A")[-1].checkpoint_id
    spoil(place, 4)
    with place.host() as host:
        assert host.resume(newest, FLOW, fallback=True).run_id == "A-from-3"


def test_a_sound_run_goes_on_as_itself(place: Place) -> None:
    with place.host() as host:
        result = host.resume("A", FLOW, fallback=True)
        assert (result.run_id, result.fallback, result["d"]) == ("A", None, 700_001)


def test_with_nothing_valid_left_it_is_refused(place: Place) -> None:
    spoil(place, 1)
    with place.host() as host, pytest.raises(StateCorrupted):
        host.resume("A", FLOW, fallback=True)


def test_a_lost_artifact_is_made_again_from_before_it(place: Place) -> None:
    spoil(place, 5)
    place.vandal.change_blob(lambda _: None)
    with place.host() as host:
        result = host.resume("A", FLOW, fallback=True)
        assert result.fallback is not None and result.fallback.at == 2
        assert result["d"] == 700_001 and result["large"] == "x" * 700_000


def test_a_run_that_needs_a_lost_artifact_does_not_fail_but_is_set_aside_and_falls_back(
    url: str, tmp_path: Path
) -> None:
    stops, made = [True], []

    @node(output="large")
    def make(x: int) -> str:
        made.append(x)
        return "x" * 700_000

    @node(output="size")
    def measure(large: str) -> int:
        return len(large)

    @node(output="end")
    def end(size: int, large: str) -> int:
        if stops:
            raise KeyboardInterrupt
        return size + len(large)

    flow = Flow("f", [make, measure, end], durability="strong")
    place = Place(url, tmp_path)
    with place.host() as host, pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": 1}, run_id="L")
    stops.clear()
    kept: list[bytes] = []
    place.vandal.change_blob(lambda old: kept.append(old) or flipped(old, 9))  # type: ignore[func-returns-value]
    with place.host() as host:
        with pytest.raises(StateCorrupted):
            host.resume("L", flow)
        assert host.info("L").status == "running" and not host.info("L").is_driven
        stats = host.work([flow], until_idle=True)
        assert (stats.set_aside, stats.failed) == (1, 0)
        assert [run.run_id for run in host.runs(needs_repair=True)] == ["L"]
        result = host.resume("L", flow, fallback=True)
        assert (result["end"], result.run_id, made) == (1_400_000, "L-from-1", [1, 1])


def test_a_finished_run_whose_end_was_cut_off_falls_back_too(place: Place) -> None:
    with place.host() as host:
        assert host.resume("A", FLOW).status == "completed"
        end = host.info("A").checkpoints
    place.vandal.delete("A", end)
    with place.host() as host:
        with pytest.raises(StateCorrupted):
            host.resume("A", FLOW)
        result = host.resume("A", FLOW, fallback=True)
        assert result.status == "completed" and result.run_id == f"A-from-{end - 1}"


def test_a_damaged_fork_falls_back_to_what_it_shares(place: Place) -> None:
    with place.host() as host:
        host.fork("A", at=3, fork_id="F")
        host.resume("F", FLOW)
    spoil(place, 4, "F")
    with place.host() as host:
        result = host.resume("F", FLOW, fallback=True)
        assert result.status == "completed" and host.info(result.run_id).parent_run_id == "A"
        assert result.fallback is not None and result.fallback.at == 3


def test_a_run_with_an_owner_is_left_to_it(place: Place) -> None:
    spoil(place, 5)
    with place.host() as host:
        host._lanes.call(lambda it: _lease(it, "A"))
        with pytest.raises(LeaseConflict):
            host.resume("A", FLOW, fallback=True, at_once=True)
        assert [run.run_id for run in host.runs()] == ["A"]


async def _lease(host: Any, run_id: str) -> Any:
    return await host._services.store.lease(run_id, owner="them", ttl=timedelta(hours=1), process=None)


def test_a_run_of_that_name_that_is_no_such_fork_is_not_touched(place: Place) -> None:
    spoil(place, 5)
    with place.host() as host:
        host.start(FLOW, {"x": 1, "broken": True}, run_id="A-from-4")
        with pytest.raises(BadRequest, match="A-from-4") as refused:
            host.resume("A", FLOW, fallback=True)
        assert not host.info("A").is_driven
    parts = refused.value.fix.partition("everstep ")[2].split()
    assert not {part for part in parts if part.startswith("--")} - {o for p in fork.params for o in p.opts}


@pytest.mark.parametrize("length", [1, 100, 121, 122, 128])
def test_the_name_of_the_fork_is_one_that_runs_may_have(length: int) -> None:
    names = {check_run_id(name_of_fork("a" * (length - 1) + end, 12)) for end in "xy"}
    assert len(names) == 2


# -- crashes ----------------------------------------------------------------------------------------------


class Life:
    """A memory store that outlives its hosts, with the damaged run A."""

    def __init__(self, *, is_running: bool) -> None:
        self.clock = ManualClock(auto=True)
        self.data = MemoryData()
        with self.host() as host:
            if is_running:
                with pytest.raises(KeyboardInterrupt):
                    host.run(stopping, {"x": 1, "broken": True}, run_id="A")
            else:
                host.run(FLOW, {"x": 1, "broken": True}, run_id="A")
        FIXED.append(True)
        self.clock.advance(3600)
        inside_memory.set_record(self.data, "A", 4, body=b"x")

    def host(self, killer: Killer | None = None) -> Host:
        store = MemoryStore(self.clock, self.data)
        opened = killing(Opened(store, store.artifacts, "memory:"), by=killer or Killer())
        return Host(opened, clock=self.clock, encrypt=False, compress=False)

    def fall_back(self, killer: Killer | None = None) -> bool:
        """Fall back; false if the process crashed."""
        with self.host(killer) as host:
            try:
                host.resume("A", FLOW, fallback=True)
            except Crashed:
                self.clock.advance(3600)
                return False
        return True


@node(output="c", effects="effectful", idempotency_key="auto")
def third_stops(large: str, ctx: Context) -> int:
    SENT.append(("third", ctx.idempotency_key or ""))
    return len(large)


@node(output="d")
def interrupted(c: int, broken: bool) -> int:
    raise KeyboardInterrupt


third_stops.name = "third"
interrupted.name = "last"
stopping = Flow("f", [first, second, third_stops, interrupted], durability="strong")


@pytest.mark.parametrize("is_running", [False, True])
def test_killed_at_any_write_of_it_one_fork_goes_on_once(is_running: bool) -> None:
    whole = Killer()
    life = Life(is_running=is_running)
    assert life.fall_back(whole) and len(whole.points) > 8
    for at in range(1, len(whole.points) + 1):
        SENT.clear()
        FIXED.clear()
        life = Life(is_running=is_running)
        assert not life.fall_back(Killer(at, act=crash)), whole.points[at - 1]
        assert life.fall_back()
        with life.host() as host:
            runs = {run.run_id: run.status.value for run in host.runs()}
            assert runs == {"A-from-3": "completed", "A": "running" if is_running else "failed"}
            assert host.state("A-from-3")["d"] == 700_001
            assert host.info("A").needs_repair is not None or not is_running
            stats = host.work([FLOW], until_idle=True)
            assert (stats.completed, stats.failed) == (0, 0)
        keys = {key for name, key in SENT if name == "third"}
        assert len(keys) == 1, "the effect was repeated with another key"


def test_killed_at_any_write_workers_bring_the_fork_to_its_end() -> None:
    whole = Killer()
    assert Life(is_running=True).fall_back(whole)
    forked = False
    for at in range(1, len(whole.points) + 1):
        FIXED.clear()
        life = Life(is_running=True)
        assert not life.fall_back(Killer(at, act=crash))
        forked = forked or inside_memory.has_run(life.data, "A-from-3")
        with life.host() as host:
            host.work([FLOW], until_idle=True)
            runs = {run.run_id: run.status.value for run in host.runs()}
            assert runs["A"] == "running" and host.info("A").needs_repair is not None
            if forked and "A-from-3" in runs:
                assert runs["A-from-3"] == "completed"
    assert forked


# -- the command ------------------------------------------------------------------------------------------

FILE = """
from everstep import Flow, node
from tests import inside_memory

@node(output="b", effects="effectful", idempotency_key="auto")
def send(x: int) -> int:
    return x + 1

@node(output="c")
def fail(b: int) -> int:
    if not __import__("pathlib").Path(__file__).with_name("fixed").exists():
        raise ValueError("not yet")
    return b + 1

flow = Flow("orders", [send, fail], durability="strong")
"""


def test_the_command_says_what_it_falls_back_to_and_what_may_be_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_ENCRYPT_KEYS", "")
    file, store = tmp_path / "orders_that_fall_back.py", f"sqlite:///{tmp_path}/runs.db"
    file.write_text(FILE)

    def shell(*words: str) -> Any:
        return CliRunner().invoke(cli, [*words, "--store", store], standalone_mode=False)

    assert shell("run", str(file), "-i", "x=1", "--run-id", "A").return_value == 1
    place = Place(store, tmp_path)
    spoil(place, 3)
    (tmp_path / "fixed").touch()
    refused = shell("resume", "A")
    assert isinstance(refused.exception, StateCorrupted) and "--fallback" in refused.exception.fix
    place.vandal.write("A", 2, b"")
    said = shell("resume", "A", "--fallback")
    assert said.return_value == 0, said.output
    assert "goes on from checkpoint 1 as run A-from-1" in said.output and "c = 3" in said.output
    assert "what was done in checkpoint 2" in said.output
    told = json.loads(shell("resume", "A", "--fallback", "--json", "--quiet").stdout)
    assert told["run_id"] == "A-from-1" and told["fallback"]["at"] == 1
    assert told["fallback"]["run_id"] == "A" and 2 in told["fallback"]["unread"]
