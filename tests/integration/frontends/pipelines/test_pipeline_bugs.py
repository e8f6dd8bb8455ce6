"""Bugs that engines of pipelines are known for, one test each."""

from __future__ import annotations

from typing import Any

from everstep import Flow, Host
from everstep.backends import Simulation
from everstep.frontends.pipelines.stage import Stage
from everstep.registry import Opened
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests.integration.frontends.pipelines.pipelines import context, edge, square, trace


class World:
    """A store that outlives its hosts, and a clock that goes on by itself."""

    def __init__(self) -> None:
        self.clock = ManualClock(auto=True)
        self._data = MemoryData()

    def host(self, killer: Killer | None = None) -> Host:
        store = MemoryStore(self.clock, self._data)
        return Host(
            killing(Opened(store, store.artifacts, "memory:"), by=killer or Killer()), clock=self.clock
        )

    def crash_at(self, flow: Flow, point: int | str, run_id: str = "r", **inputs: Any) -> None:
        """Run a flow up to a point, die there, and let its lease run out."""
        assert self.crashes_at(flow, point, run_id, **inputs)

    def crashes_at(self, flow: Flow, point: int | str, run_id: str = "r", **inputs: Any) -> bool:
        """Do so, or run it to its end; says whether there was such a point."""
        try:
            with self.host(Killer(point, act=crash)) as host:
                host.run(flow, {"context": inputs}, run_id=run_id)
        except Crashed:
            return True
        finally:
            self.clock.advance(3600)
        return False


def puts(world: World, flow: Flow) -> int:
    """How often an undisturbed run writes a checkpoint."""
    killer = Killer()
    with world.host(killer) as host:
        host.run(flow, run_id="undisturbed")
    return sum(point.startswith("before put") for point in killer.points)


def test_a_goal_gate_passed_before_a_crash_still_counts_after_it() -> None:
    tests: list[int] = []

    def check(stage: Stage) -> str:
        tests.append(stage.visit)
        return "green"

    body = "start -> test -> docs -> exit; test [goal_gate=true, retry_target=test]"
    flow = square(body, handlers={"test": check})
    count = puts(World(), flow)
    for point in range(1, count + 1):
        world = World()
        world.crash_at(flow, f"after put {point}")
        tests.clear()
        with world.host() as host:
            result = host.run(flow, run_id="r")
            assert result.status == "completed"
            assert trace(host, result) == ["start", "test", "docs", "exit"], f"killed after put {point}"
            assert context(host, result)["gates.test"] == "success"
    assert tests == [], "the last crash came long after the gate was passed"


def test_a_gate_redirect_does_not_make_the_gate_vanish() -> None:
    # The redirect goes back before the gate; what leads to the gate then takes another way and misses it.
    def build(stage: Stage) -> dict[str, Any]:
        return {"preferred_label": "straight on" if stage.visit == 2 else "test"}

    body = """start -> build; build -> test [label=test]; build -> exit [label="straight on"];
      test -> exit [condition="outcome!=success"]; test -> exit;
      test [goal_gate=true, retry_target=build]"""

    def flow() -> Flow:
        backend = Simulation({"test": [{"status": "fail"}, "green"]})
        return square(body, handlers={"build": build}, backend=backend)

    for point in range(puts(World(), flow()) + 1):
        world = World()
        if point:
            world.crash_at(flow(), f"after put {point}")
        with world.host() as host:
            result = host.run(flow(), run_id="r")
            assert result.status == "completed"
            first, second = (
                ["start", "build", "test:fail", "exit"],
                ["build", "exit", "build", "test", "exit"],
            )
            assert trace(host, result) == [*first, *second], f"killed after put {point}"


def test_loop_counters_are_reset_between_units_of_work() -> None:
    # Five units, each of which fails twice and is sent back; more failures in all than any of them may have.
    failures = {"count": 0}

    def unit(stage: Stage) -> dict[str, Any]:
        done = stage.context.get("done", 0)
        failures["count"] += 1
        if failures["count"] % 3:
            return {"status": "fail"}
        return {"context_updates": {"done": done + 1}, "preferred_label": "more" if done < 4 else "enough"}

    flow = square(
        """start -> fetch -> unit; unit [retry_target=fetch, max_redirects=2, max_retries=0];
        unit -> fetch [label=more]; unit -> exit [label=enough]""",
        handlers={"unit": unit},
    )
    with World().host() as host:
        result = host.run(flow)
        assert result.status == "completed" and context(host, result)["done"] == 5
        assert trace(host, result).count("unit:fail") == 10
        failures["count"] = 0
        flow = square(
            """start -> fetch -> unit; unit [retry_target=fetch, max_redirects=1];
            unit -> fetch [label=more]; unit -> exit [label=enough]""",
            handlers={"unit": unit},
        )
        assert host.run(flow).status == "failed", "within one unit they count"


def test_branch_outputs_survive_the_fan_in_and_a_crash_at_any_write() -> None:
    def work(stage: Stage) -> dict[str, Any]:
        return {"context_updates": {f"{stage.node}.out": stage.node * 3}, "notes": f"{stage.node} is done"}

    body = """start -> fan; fan [shape=component]; fan -> a; fan -> b; a -> a2 -> meet; b -> meet;
      meet [shape=tripleoctagon]; meet -> use -> exit"""
    flow = square(body, backend=work)
    count = puts(World(), flow)
    for point in range(1, count + 1):
        for when in ("before", "after"):
            world = World()
            # Branches that end together share a put, so one run may have fewer of them than another.
            assert world.crashes_at(flow, f"{when} put {point}") or point > count // 2
            with world.host() as host:
                result = host.run(flow, {"context": {}}, run_id="r")
                found = context(host, result)
                assert result.status == "completed"
                assert (found["a.out"], found["a2.out"], found["b.out"]) == ("aaa", "a2a2a2", "bbb")
                left = {r["branch"]: r["context"] for r in found["parallel.results"]}
                assert left == {"a": {"a.out": "aaa", "a2.out": "a2a2a2"}, "b": {"b.out": "bbb"}}


def test_a_resume_after_an_abort_does_not_enter_the_abort_again() -> None:
    aborts: list[int] = []
    is_fixed = False

    def work(stage: Stage) -> dict[str, str]:
        return {"status": "success" if is_fixed else "fail"}

    def abort(stage: Stage) -> dict[str, str]:
        aborts.append(stage.visit)
        return {"status": "fail", "failure_reason": "aborted"}

    flow = square(
        'start -> work -> exit; work -> abort [condition="outcome=fail"]',
        handlers={"work": work, "abort": abort},
    )
    with World().host() as host:
        result = host.run(flow)
        assert result.status == "failed" and aborts == [1]
        again = host.resume(result.run_id, flow)
        assert again.status == "failed" and aborts == [1, 1] and trace(host, again).count("work:fail") == 2
        is_fixed = True
        result = host.resume(result.run_id, flow)
        assert result.status == "completed" and aborts == [1, 1]


def test_a_resume_after_a_missed_goal_goes_back_to_the_goal() -> None:
    is_fixed = False

    def check(stage: Stage) -> dict[str, str]:
        return {"status": "success" if is_fixed else "fail"}

    flow = square(
        """start -> build -> test -> exit; test [goal_gate=true, retry_target=build, max_redirects=1];
        test -> exit [label=fail]""",
        handlers={"test": check},
    )
    with World().host() as host:
        result = host.run(flow)
        assert result.status == "failed"
        is_fixed = True
        result = host.resume(result.run_id, flow)
        assert result.status == "completed" and trace(host, result)[-3:] == ["build", "test", "exit"]


def test_a_crash_on_the_way_to_an_abort_still_aborts() -> None:
    flow = square(
        'start -> work -> exit; work -> abort [condition="outcome=fail"]',
        backend=Simulation({"work": {"status": "fail"}, "abort": {"status": "fail"}}),
    )
    world = World()
    world.crash_at(flow, "after put 3")  # the choice of the abort is durable, the abort has not begun
    with world.host() as host:
        result = host.run(flow, run_id="r")
        assert result.status == "failed" and trace(host, result) == ["start", "work:fail", "abort:fail"]
        assert result.error is not None and "abort" in result.error.message


def test_a_failed_node_does_not_follow_an_unconditional_edge() -> None:
    flow = square("start -> work -> next -> exit", backend=Simulation({"work": {"status": "fail"}}))
    with World().host() as host:
        result = host.run(flow)
        assert result.status == "failed" and trace(host, result) == ["start", "work:fail"]
        flow = square(
            'start -> work -> next -> exit; work -> fix [condition="outcome=fail"]; fix -> next',
            backend=Simulation({"work": {"status": "fail"}}),
        )
        result = host.run(flow)
        assert edge(host, result, "work")["to"] == "fix"
