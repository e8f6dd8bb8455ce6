"""Branches of pipelines: copies of the context, joins, what becomes of what they leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep import Flow, Host
from everstep.backends import Simulation
from everstep.frontends.pipelines.stage import Stage
from tests.integration.frontends.pipelines.pipelines import SQUARE, context, square, trace

FORK = "start -> fan; fan -> a; fan -> b; fan -> c; a -> meet; b -> meet; c -> meet; meet -> exit;"
FORK += "fan [shape=component, join_policy=POLICY, k=2]; meet [shape=tripleoctagon];"


def forked(policy: str, **backend: Any) -> Flow:
    return square(FORK.replace("POLICY", policy), backend=Simulation(backend))


def test_each_branch_has_its_own_copy_of_the_context_and_they_are_merged(host: Host) -> None:
    seen: dict[str, Any] = {}

    def work(stage: Stage) -> dict[str, Any]:
        seen[stage.node] = dict(stage.context)
        return {"context_updates": {stage.node: 1, "shared": stage.node}}

    result = host.run(square(FORK.replace("POLICY", "wait_all"), backend=work), {"context": {"base": 7}})
    assert all(s["base"] == 7 and not {"a", "b", "c", "shared"} & s.keys() for s in seen.values())
    found = context(host, result)
    assert found["a"] == found["b"] == found["c"] == 1 and found["shared"] in "abc"
    assert not [key for key in found if key.startswith("~")], "layers are gone once they are merged"
    assert [r["context"]["shared"] for r in found["parallel.results"]] == ["a", "b", "c"]


def test_what_branches_answered_is_there_where_they_meet(host: Host) -> None:
    def answer(stage: Stage) -> str:
        return f"{stage.node} says {stage.prompt}"

    body = (
        FORK.replace("POLICY", "wait_all") + 'a [prompt=yes]; b [prompt=no]; c [prompt="$parallel.results"];'
    )
    found = context(host, host.run(square(body, backend=answer)))
    assert [r["response"] for r in found["parallel.results"]] == [
        "a says yes",
        "b says no",
        "c says $parallel.results",
    ]


@pytest.mark.parametrize(
    ("policy", "failing", "status"),
    [
        ("wait_all", "", "success"),
        ("wait_all", "a", "partial_success"),
        ("wait_all", "abc", "fail"),
        ("first_success", "ab", "success"),
        ("first_success", "abc", "fail"),
        ("k_of_n", "a", "success"),
        ("k_of_n", "ab", "fail"),
        ("quorum", "c", "success"),
        ("quorum", "bc", "fail"),
    ],
)
def test_a_join_says_how_many_branches_must_succeed(
    host: Host, policy: str, failing: str, status: str
) -> None:
    flow = forked(policy, **{name: {"status": "fail"} for name in failing})
    result = host.run(flow)
    assert context(host, result)["stages.fan"]["status"] == status
    assert result.status == ("failed" if status == "fail" else "completed")


def test_the_first_success_stops_the_other_branches(host: Host) -> None:
    async def work(stage: Stage) -> str:
        if stage.node != "b":
            await asyncio.Event().wait()
        return stage.node

    result = host.run(square(FORK.replace("POLICY", "first_success"), backend=work))
    assert result.status == "completed"
    assert [r["branch"] for r in context(host, result)["parallel.results"]] == ["b"]


def test_a_fan_in_names_the_best_branch(host: Host) -> None:
    def work(stage: Stage) -> dict[str, Any]:
        return {"status": "fail" if stage.node == "c" else "success", "metadata": {"score": ord(stage.node)}}

    result = host.run(square(FORK.replace("POLICY", "wait_all"), backend=work))
    assert context(host, result)["parallel.fan_in.best_id"] == "b"


def test_no_more_branches_run_at_once_than_allowed(host: Host) -> None:
    running, most = 0, 0

    async def work(stage: Stage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1

    body = FORK.replace("POLICY", "wait_all").replace("k=2", "max_parallel=2")
    assert host.run(square(body, backend=work)).status == "completed" and most == 2


def test_branches_may_fork_again_and_loop(host: Host) -> None:
    body = """start -> fan; fan [shape=component]; fan -> a; fan -> inner; inner [shape=component];
      inner -> x; inner -> y; x -> near; y -> near; near [shape=tripleoctagon]; near -> last;
      last -> last [condition="context.turns=1"]; a -> meet; last -> meet; meet -> exit;
      meet [shape=tripleoctagon]"""

    def work(stage: Stage) -> dict[str, Any]:
        return {"context_updates": {"turns": stage.visit, f"did_{stage.node}": stage.path}}

    result = host.run(square(body, backend=work))
    found = context(host, result)
    assert result.status == "completed" and found["did_x"] == "fan/inner/inner/x/x"
    assert found["turns"] == 2 and found["did_a"] == "fan/a/a"
    assert trace(host, result).count("last") == 2


def test_a_branch_that_goes_round_and_round_is_stopped_by_the_limit_of_the_pipeline(host: Host) -> None:
    body = FORK.replace("POLICY", "wait_all").replace("a -> meet;", 'a -> a; a -> meet [condition="never"];')
    result = host.run(square(body, max_steps=30))
    assert result.status == "failed"
    assert result.error is not None and "30 steps" in result.error.message


def test_branches_that_are_begun_anew_before_they_met_count_once(host: Host) -> None:
    seen = []

    def quick(stage: Stage) -> dict[str, Any]:
        seen.append(stage.context.get("mark"))
        return {"context_updates": {"mark": stage.visit}}

    flow = square(
        "fork [shape=component]; join [shape=tripleoctagon]; start -> fork -> {ask quick} -> join -> exit;"
        "ask [shape=hexagon]; quick -> more -> join",
        handlers={"quick": quick},
    )
    halted = host.run(flow)
    assert halted.status == "halted" and seen == [None]
    halted = host.resume(halted.run_id, flow, start="fork")
    assert halted.status == "halted" and seen == [None, None]
    host.answer(halted.waits[0].id, "fine")
    result = host.resume(halted.run_id, flow)
    found = context(host, result)
    assert [one["branch"] for one in found["parallel.results"]] == ["ask", "quick"]
    assert found["stages.fork"]["status"] == "success"


def test_an_inner_pipeline_that_is_begun_anew_has_forgotten_its_first_try(host: Host) -> None:
    seen = []

    def work(stage: Stage) -> dict[str, Any]:
        seen.append(stage.context.get("mark"))
        return {"context_updates": {"mark": 1}}

    inner = f"digraph inner {{ {SQUARE} start -> work -> ask -> exit; ask [shape=hexagon] }}"
    flow = square(
        'start -> sub -> exit; sub [shape=tab, "stack.child_dotfile"="inner.dot"]',
        handlers={"work": work},
        children={"inner.dot": inner},
    )
    halted = host.run(flow)
    halted = host.resume(halted.run_id, flow, start="sub")
    assert seen == [None, None]
    host.answer(halted.waits[0].id, "fine")
    assert host.resume(halted.run_id, flow).status == "completed"


def test_visits_to_a_node_inside_a_fork_are_counted_over_all_visits_to_the_fork(host: Host) -> None:
    flow = square(
        "fork [shape=component]; join [shape=tripleoctagon]; start -> fork -> {a b} -> join -> exit;"
        'a [goal_gate=true, simulate="fail,fail,success", retry_target=fork]'
    )
    result = host.run(flow)
    assert result.status == "completed"
    assert [name for name in trace(host, result) if name.startswith("a")] == ["a:fail", "a:fail", "a"]


def test_an_inner_pipeline_that_failed_says_why(host: Host) -> None:
    inner = f'digraph inner {{ {SQUARE} start -> work -> exit; work [simulate="fail"] }}'
    flow = square(
        'start -> sub -> exit; sub [shape=tab, "stack.child_dotfile"="inner.dot"]',
        children={"inner.dot": inner},
    )
    result = host.run(flow)
    assert result.error is not None and "[simulated] work: fail" in result.error.message


@pytest.mark.parametrize("times", [0, 2])
def test_an_inner_pipeline_and_a_fork_that_failed_are_gone_through_again(host: Host, times: int) -> None:
    inner = f'digraph inner {{ {SQUARE} start -> work -> exit; work [simulate="fail,fail,success"] }}'
    flow = square(
        f'sub [shape=tab, "stack.child_dotfile"="inner.dot", max_retries={times}];'
        f"fork [shape=component, max_retries={times}]; join [shape=tripleoctagon];"
        'a [simulate="fail,success"]; b [simulate="fail,success"]; start -> sub -> lost; lost -> fork;'
        "fork -> {a b} -> join -> exit; lost [label=lost];"
        'sub -> fork [condition="outcome=fail"]; join -> exit [condition="outcome=fail"]',
        children={"inner.dot": inner},
    )
    result = host.run(flow)
    found = trace(host, result)
    assert result.status == "completed"
    assert [name for name in found if name.startswith("sub")] == ["sub:fail"] * min(times + 1, 2) + [
        "sub"
    ] * (times > 0)
    assert [n for n in found if n.startswith("fork")] == ["fork:fail"] + ["fork"] * (times > 0)
    assert not [key for key in context(host, result) if key.startswith("internal.tries")]


@pytest.mark.parametrize("policy", ["first_success", "quorum", "k_of_n"])
def test_a_branch_that_was_skipped_wins_no_race(host: Host, policy: str) -> None:
    async def slow(stage: Stage) -> str:
        await asyncio.sleep(0.05)
        return "here"

    body = FORK.replace("POLICY", policy) + "a [simulate=skipped]"
    result = host.run(square(body, handlers={"b": slow, "c": slow}))
    assert result.status == "completed", result.error
    assert context(host, result)["stages.fan"]["status"] == "success"


def test_a_prompt_may_name_the_node_it_is_for_and_the_one_before(host: Host) -> None:
    told = 'prompt="$_current_node after $_previous_node"'
    body = (
        "start -> one -> fork; fork [shape=component]; join [shape=tripleoctagon];"
        f"fork -> {{a b}} -> join -> exit; one [{told}]; a [{told}]"
    )
    found = context(host, host.run(square(body)))
    assert found["stages.one"]["prompt"] == "one after start"
    assert found["stages.fork/a/a"]["prompt"] == "a after one"
