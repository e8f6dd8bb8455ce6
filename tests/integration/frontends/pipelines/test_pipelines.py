"""Pipelines as they run: stages, edges, retries, failures, goals, people, and what is kept of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from everstep import Flow, Host
from everstep.backends import Simulation
from everstep.errors import BackendChanged, BadRequest, FlowError
from everstep.frontends.pipelines.interviewers import AutoApprove, Queue, Recording
from everstep.frontends.pipelines.outcome import Outcome
from everstep.frontends.pipelines.stage import Stage
from everstep.testing import play
from tests.integration.frontends.pipelines.pipelines import SQUARE, context, edge, round_, square, trace

# -- stages ---------------------------------------------------------------------------------------------


def test_a_pipeline_runs_out_of_the_box_and_every_node_is_one_step(host: Host) -> None:
    flow = square('start -> plan -> build -> exit; plan [prompt="Plan for $goal"]')
    result = host.run(flow)
    assert result.status == "completed" and trace(host, result) == ["start", "plan", "build", "exit"]
    steps = [s.path for c in host.history(result.run_id) for s in c.steps if s.path[0] != "@"]
    assert steps == ["start", "plan", "build", "exit"]
    found = context(host, result)
    assert found["stages.plan"]["prompt"] == "Plan for ship it"
    assert found["last_stage"] == "build" and found["current_node"] == "exit"
    assert flow.durability.mode == "strong" and flow.name == "p"


def test_a_run_begins_with_the_context_it_is_given(host: Host) -> None:
    seen: dict[str, Any] = {}

    def work(stage: Stage) -> dict[str, Any]:
        seen.update(stage.context)
        return {"status": "success", "context_updates": {"size": stage.context["issue"] * 2}}

    flow = square(
        'start -> work -> exit; work [prompt="issue $issue of ${graph.goal}"]', handlers={"work": work}
    )
    result = host.run(flow, {"context": {"issue": 21}})
    assert seen["issue"] == 21 and seen["graph.goal"] == "ship it"
    assert context(host, result)["size"] == 42
    assert context(host, result)["stages.work"]["prompt"] == "issue 21 of ship it"


def test_a_handler_is_found_by_id_by_type_and_by_kind(host: Host) -> None:
    def says(word: str) -> Any:
        return lambda stage: {"context_updates": {stage.node: word}}

    flow = square(
        "start -> a -> b -> c -> d -> exit; b [type=special]; c [type=special]",
        handlers={
            "a": says("by id"),
            "special": says("by type"),
            "c": says("its own"),
            "task": says("by kind"),
        },
    )
    found = context(host, host.run(flow))
    assert [found[name] for name in "abcd"] == ["by id", "by type", "its own", "by kind"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_backend_may_be_a_plain_function_or_async(host: Host, is_async: bool) -> None:
    def plain(stage: Stage) -> str:
        return f"did {stage.node}"

    async def later(stage: Stage) -> str:
        await asyncio.sleep(0)
        return f"did {stage.node}"

    result = host.run(square("start -> work -> exit", backend=later if is_async else plain))
    assert context(host, result)["last_response"] == "did work"


def test_what_a_handler_returns_is_checked(host: Host) -> None:
    result = host.run(square("start -> work -> exit", handlers={"work": lambda stage: 17}))
    assert result.status == "failed" and result.error is not None
    assert result.error.code == "pipeline.failed" and "17" in result.error.message
    reserved: dict[str, Any] = {"work": lambda stage: {"context_updates": {"internal.edge": {}}}}
    result = host.run(square("start -> work -> exit", handlers=reserved))
    assert result.error is not None and "internal.edge" in result.error.message


def test_the_style_sheet_says_which_model_a_stage_is_given(host: Host) -> None:
    seen: dict[str, Mapping[str, Any]] = {}

    def work(stage: Stage) -> None:
        seen[stage.node] = stage.model

    sheet = "* { llm_model: small; } .hard { llm_model: big; } #c { temperature: 0.5; }"
    flow = square(
        f'model_stylesheet="{sheet}"; start -> a -> b -> c -> exit; b [class=hard]; c [llm_model=own]',
        backend=work,
    )
    host.run(flow)
    assert seen["a"] == {"llm_model": "small"} and seen["b"] == {"llm_model": "big"}
    assert seen["c"] == {"llm_model": "own", "temperature": "0.5"}


# -- edges ----------------------------------------------------------------------------------------------

WAYS = "start -> pick; pick -> left; pick -> right; left -> exit; right -> exit;"


@pytest.mark.parametrize(
    ("more", "returned", "target", "reason"),
    [
        ("", None, "left", "lexical"),
        ("pick -> right [weight=2];", None, "right", "weight"),
        ("", {"suggested_next_ids": ["nowhere", "right"]}, "right", "suggested_next"),
        ('pick -> right [label="[G] Go"];', {"preferred_label": "go"}, "right", "preferred_label"),
        (
            'pick -> right [condition="outcome=success"]; pick -> left [weight=9];',
            {"suggested_next": ["left"]},
            "right",
            "condition",
        ),
        (
            'pick -> right [condition="context.size > 3"];',
            {"context_updates": {"size": 4}},
            "right",
            "condition",
        ),
        (
            'pick -> right [condition="context.size > 3"];',
            {"context_updates": {"size": 2}},
            "left",
            "lexical",
        ),
    ],
)
def test_an_edge_is_chosen_in_five_steps_and_kept_with_its_reason(
    host: Host, more: str, returned: Any, target: str, reason: str
) -> None:
    result = host.run(square(WAYS + more, handlers={"pick": lambda stage: returned}))
    found = edge(host, result, "pick")
    assert (found["to"], found["reason"]) == (target, reason)


def test_among_conditions_that_hold_the_dialects_choose_differently(host: Host) -> None:
    round_body = """begin -> pick; left -> done; right -> done;
      pick -> left [condition="status == 'SUCCESS'", weight=5];
      pick -> right [condition="status == 'SUCCESS' AND size > 1"];"""
    handlers = {"pick": lambda stage: {"context_updates": {"size": 2}}}
    assert edge(host, host.run(round_(round_body, handlers=handlers)), "pick")["to"] == "right"
    square_body = """start -> pick; left -> exit; right -> exit;
      pick -> left [condition="outcome=success", weight=5];
      pick -> right [condition="outcome=success && context.size=2"];"""
    assert edge(host, host.run(square(square_body, handlers=handlers)), "pick")["to"] == "left"


def test_no_edge_that_holds_is_a_failure_with_a_name(host: Host) -> None:
    flow = square('start -> work -> exit [condition="context.never=1"]')
    result = host.run(flow)
    assert result.status == "failed" and result.error is not None
    assert "none of its edges holds: context.never=1." in result.error.message
    assert (result.error.type, result.error.code) == ("NoEdgeHolds", "pipeline.no_edge")


def test_a_conditional_node_hands_on_how_the_stage_before_it_ended(host: Host) -> None:
    flow = square(
        """start -> work -> check; check [shape=diamond]; fix -> exit;
        check -> exit [condition="outcome=success"]; check -> fix [condition="outcome!=success"]""",
        backend=Simulation({"work": {"status": "fail"}}),
    )
    result = host.run(flow)
    assert trace(host, result) == ["start", "work:fail", "check:fail", "fix", "exit"]
    assert edge(host, result, "work")["reason"] == "judged"


# -- retries and failures -------------------------------------------------------------------------------


def test_a_failed_stage_is_tried_again_as_often_as_it_says(host: Host) -> None:
    tries: list[int] = []

    def work(stage: Stage) -> dict[str, str]:
        tries.append(stage.attempt)
        return {"status": "FAILURE" if stage.attempt < 3 else "SUCCESS"}

    result = host.run(square("start -> work -> exit; work [max_retries=2]", handlers={"work": work}))
    assert tries == [1, 2, 3] and result.status == "completed"
    assert context(host, result)["stages.work"]["retries"] == 2


def test_an_exception_is_a_failed_stage_and_no_failed_step(host: Host) -> None:
    def work(stage: Stage) -> None:
        raise ValueError("broken")

    flow = square(
        'start -> work -> exit; work -> fix [condition="outcome=fail"]; fix -> exit',
        handlers={"work": work},
    )
    result = host.run(flow)
    assert result.status == "completed" and trace(host, result) == ["start", "work:fail", "fix", "exit"]
    assert "ValueError: broken" in context(host, result)["stages.work"]["failure_reason"]


def test_an_error_that_says_so_is_not_tried_again(host: Host) -> None:
    tries: list[int] = []

    def work(stage: Stage) -> Outcome:
        tries.append(stage.attempt)
        return Outcome.fail("the key is wrong", retryable=False)

    result = host.run(square("start -> work -> exit; work [max_retries=5]", handlers={"work": work}))
    assert tries == [1] and result.status == "failed"


def test_a_stage_that_takes_too_long_fails_and_is_routed(host: Host) -> None:
    async def slow(stage: Stage) -> None:
        await asyncio.Event().wait()

    def stuck(stage: Stage) -> None:
        time.sleep(0.2)

    for handler in (slow, stuck):
        flow = square(
            "start -> work -> exit; work [timeout=20ms]; work -> late [label=fail]; late -> exit",
            handlers={"work": handler},
        )
        result = host.run(flow)
        assert trace(host, result) == ["start", "work:fail", "late", "exit"]
        assert edge(host, result, "work")["reason"] == "failure_label"


def test_retries_that_are_used_up_may_count_as_partly_done(host: Host) -> None:
    flow = square(
        "start -> work -> exit; work [max_retries=1, allow_partial=true]",
        backend=Simulation({"work": {"status": "retry"}}),
    )
    result = host.run(flow)
    assert result.status == "completed" and "work:partial_success" in trace(host, result)


@pytest.mark.parametrize(
    ("graph", "node", "target"),
    [
        ("", "retry_target=fix", "fix"),
        ("", "fallback_retry_target=fix", "fix"),
        ("retry_target=fix;", "", "fix"),
        ("fallback=fix;", "", "fix"),
        ("retry_target=other;", "retry_target=fix", "fix"),
    ],
)
def test_a_failure_goes_where_the_node_or_the_graph_says(
    host: Host, graph: str, node: str, target: str
) -> None:
    flow = square(
        f"{graph} start -> fix -> other -> work -> exit; work [{node}]",
        backend=Simulation({"work": [{"status": "fail"}, "done"]}),
    )
    result = host.run(flow)
    assert result.status == "completed"
    after = trace(host, result)
    assert after[after.index("work:fail") + 1] == target


def test_a_failure_comes_back_only_so_often(host: Host) -> None:
    flow = square(
        "start -> fix -> work -> exit; work [retry_target=fix, max_redirects=2]",
        backend=Simulation({"work": {"status": "fail"}}),
    )
    result = host.run(flow)
    assert result.status == "failed" and trace(host, result).count("fix") == 3


# -- goals, restarts ------------------------------------------------------------------------------------


def test_a_goal_that_is_missed_sends_the_run_back(host: Host) -> None:
    flow = square(
        """start -> build -> test -> report -> exit; test [goal_gate=true, retry_target=build];
        test -> report [condition="outcome=fail"]""",
        backend=Simulation({"test": [{"status": "fail"}, {"status": "fail"}, "green"]}),
    )
    result = host.run(flow)
    assert result.status == "completed"
    assert trace(host, result)[-6:] == ["report", "exit", "build", "test", "report", "exit"]
    assert trace(host, result).count("build") == 3


def test_in_the_round_dialect_a_goal_that_was_never_reached_is_missed_too(host: Host) -> None:
    body = "PLACE -> work; work -> END; work -> gate [condition=\"context.never == '1'\"]; gate -> END;"
    flow = round_(body.replace("PLACE", "begin").replace("END", "done") + "gate [goal_gate=true]")
    result = host.run(flow)
    assert result.status == "completed" and trace(host, result) == ["begin", "work", "done", "gate", "done"]
    flow = square(
        body.replace("PLACE", "start").replace("END", "exit").replace("== '1'", "= 1")
        + "gate [goal_gate=true, retry_target=work]"
    )
    assert trace(host, host.run(flow)) == ["start", "work", "exit"]


def test_a_goal_that_is_missed_for_good_fails_the_run_by_name(host: Host) -> None:
    flow = square(
        """start -> test -> exit; test [goal_gate=true, retry_target=test, max_redirects=2];
        test -> exit [label=fail]""",
        backend=Simulation({"test": {"status": "fail"}}),
    )
    result = host.run(flow)
    assert result.status == "failed" and result.error is not None
    assert "'test'" in result.error.message and result.error.code == "pipeline.failed"


def test_a_restart_takes_the_context_back_to_the_beginning(host: Host) -> None:
    seen: list[dict[str, Any]] = []

    def work(stage: Stage) -> dict[str, Any]:
        assert stage.goal == "ship it"
        seen.append({k: v for k, v in stage.context.items() if not k.startswith("graph.")})
        return {
            "context_updates": {"found": len(seen), "issue": 7, "graph.goal": "another"},
            "preferred_label": "again" if len(seen) < 3 else "on",
        }

    flow = square(
        "start -> work; work -> work [label=again, loop_restart=true]; work -> exit [label=on]",
        handlers={"work": work},
    )
    result = host.run(flow, {"context": {"issue": 1}})
    assert result.status == "completed" and all("found" not in s and s["issue"] == 1 for s in seen)
    assert context(host, result)["internal.restarts"] == 2


# -- people ---------------------------------------------------------------------------------------------

ASK = """start -> ask; ask [shape=hexagon, label="Ship it?"]; fix -> ask;
  ask -> exit [label="[Y] Yes"]; ask -> fix [label="[N] No"];"""


def test_a_run_halts_for_a_person_and_goes_the_way_they_say(host: Host) -> None:
    flow = square(ASK)
    halted = host.run(flow)
    assert halted.status == "halted" and halted.waits[0].prompt == "Ship it?"
    assert halted.waits[0].options == ["[Y] Yes", "[N] No"]
    with pytest.raises(Exception, match="cannot take this answer"):
        host.answer(halted.waits[0].id, "perhaps")
    host.answer(halted.waits[0].id, "n")
    again = host.resume(halted.run_id, flow)
    assert again.status == "halted"
    host.answer(again.waits[0].id, "Yes")
    result = host.resume(halted.run_id, flow)
    assert result.status == "completed" and trace(host, result) == ["start", "ask", "fix", "ask", "exit"]
    found = context(host, result)
    assert found["human.gate.selected"] == "Y" and found["human.gate.label"] == "Yes"
    assert edge(host, result, "ask")["reason"] == "answer"


@pytest.mark.parametrize("answer", ["y", "YES", "[Y] Yes", "1", 1, "exit", "ye"])
def test_an_answer_may_be_said_in_many_ways(host: Host, answer: Any) -> None:
    result = play(host, square(ASK), answers={"ask": answer})
    assert result.status == "completed" and "fix" not in trace(host, result)


@pytest.mark.parametrize(
    ("more", "last", "status"),
    [
        ("timeout_action=first", "exit", "completed"),
        ('"human.default_choice"=no', "fix", "completed"),
        ("timeout_action=fail", "ask:fail", "failed"),
        ("", "ask:fail", "failed"),
    ],
)
def test_when_no_answer_comes_the_node_says_what_counts(
    host: Host, more: str, last: str, status: str
) -> None:
    body = ASK.replace("fix -> ask", "fix -> exit").replace(
        'label="Ship it?"', f'label="Ship it?", timeout=2h, {more}'
    )
    result = play(host, square(body))
    assert result.status == status
    if status == "completed":
        assert last in trace(host, result)
    else:
        assert result.error is not None and "no answer came in time" in result.error.message


def test_a_free_question_takes_any_text(host: Host) -> None:
    flow = square('start -> ask -> exit; ask [shape=hexagon, label="What is missing?"]')
    result = play(host, flow, answers={"ask": "the tests"})
    assert context(host, result)["human.response"] == "the tests" and result.status == "completed"


def test_others_may_answer_for_people(host: Host) -> None:
    assert trace(host, host.run(square(ASK, human=AutoApprove()))) == ["start", "ask", "exit"]
    recording = Recording(Queue(["no", "yes"]))
    assert trace(host, host.run(square(ASK, human=recording))) == ["start", "ask", "fix", "ask", "exit"]
    assert [answer for _, answer in recording.recorded] == ["no", "yes"]
    left_alone = host.run(square(ASK, human=Queue([])))
    assert left_alone.status == "halted", "who does not answer leaves it to people"


# -- pipelines inside -----------------------------------------------------------------------------------

CHILD = "digraph child { begin [shape=Mdiamond]; over [shape=Msquare]; begin -> count -> over; }"


def test_a_pipeline_runs_another_until_its_stop_condition_holds(host: Host) -> None:
    def count(stage: Stage) -> dict[str, Any]:
        return {"context_updates": {"count": stage.context.get("count", 0) + 1}}

    body = """start -> sub -> exit; sub [shape=house, "stack.child_dotfile"="child.dot",
      "manager.stop_condition"="context.count=3"]"""
    flow = square(body, handlers={"count": count}, children={"child.dot": CHILD})
    result = host.run(flow)
    assert result.status == "completed" and context(host, result)["count"] == 3
    assert [s.path for c in host.history(result.run_id) for s in c.steps if s.path.endswith("count")] == [
        "sub/count",
        "sub@2/count",
        "sub@3/count",
    ]


def test_an_inner_pipeline_that_fails_is_a_stage_that_failed(host: Host) -> None:
    body = """start -> sub -> exit; sub [shape=house, "stack.child_dotfile"="child.dot"];
      sub -> fix [condition="outcome=fail"]; fix -> exit"""
    flow = square(body, backend=Simulation({"count": {"status": "fail"}}), children={"child.dot": CHILD})
    result = host.run(flow)
    assert result.status == "completed" and "fix" in trace(host, result)


@pytest.mark.parametrize("named", ["../outside.dot", "/etc/passwd", "missing.dot"])
def test_a_pipeline_names_no_files_but_those_beside_it(tmp_path: Any, named: str) -> None:
    (tmp_path / "outside.dot").write_text(CHILD)
    folder = tmp_path / "in"
    folder.mkdir()
    body = f'start -> sub -> exit; sub [shape=house, "stack.child_dotfile"="{named}"]'
    with pytest.raises(BadRequest, match=r"outside its folder|cannot be read"):
        square(body, file=str(folder / "p.dot"))


def test_pipelines_that_run_each_other_without_end_are_refused() -> None:
    body = 'start -> sub -> exit; sub [shape=house, "stack.child_dotfile"="child.dot"]'
    child = f"digraph child {{ {SQUARE} {body} }}"
    with pytest.raises(BadRequest, match="without end"):
        square(body, children={"child.dot": child})


# -- fidelity, backends, limits -------------------------------------------------------------------------


def test_fidelity_is_the_edges_the_nodes_the_graphs_or_compact(host: Host) -> None:
    seen: dict[str, str] = {}

    def work(stage: Stage) -> None:
        seen[stage.node] = stage.fidelity

    body = """default_fidelity=truncate; start -> a -> b; b -> c [fidelity="summary:high"]; c -> exit;
      b [fidelity=full]; c [fidelity=full]"""
    host.run(square(body, backend=work))
    assert seen == {"a": "truncate", "b": "full", "c": "summary:high"}
    host.run(square("start -> a -> exit", backend=work))
    assert seen["a"] == "compact"


def test_the_first_stage_after_a_resume_is_compact_and_only_that_one(host: Host) -> None:
    seen: list[tuple[str, str, str]] = []

    def work(stage: Stage) -> str:
        seen.append((stage.node, stage.fidelity, stage.degraded_from))
        return "ok"

    flow = square(ASK + 'default_fidelity=full; ask -> a [label="[A] On"]; a -> b -> exit', backend=work)
    play(host, flow, answers={"ask": "a"})
    assert seen == [("a", "compact", "full"), ("b", "full", "")]


def test_a_preamble_tells_what_came_before_within_its_room(host: Host) -> None:
    told: dict[str, str] = {}

    def work(stage: Stage) -> dict[str, Any]:
        told[stage.node] = stage.preamble
        return {"notes": "x" * 5000, "context_updates": {"plan": "y" * 5000}}

    body = 'start -> a -> b -> c -> exit; b [fidelity="summary:high"]; c [fidelity=truncate]'
    host.run(square(body, backend=work))
    assert "Goal: ship it" in told["a"] and len(told["b"]) <= 12_000 and "a: success" in told["b"]
    assert len(told["c"]) <= 400


def test_a_prompt_that_is_too_large_is_a_failure_with_a_name(host: Host) -> None:
    flow = square('start -> work -> exit; work [prompt="$text", max_retries=3]')
    result = host.run(flow, {"context": {"text": "x" * 10_000_000}})
    assert result.status == "failed" and result.error is not None
    assert "10,000,000 bytes" in result.error.message
    assert trace(host, result) == ["start", "work:fail"], "what went before is kept"
    assert "prompt" not in context(host, result)["stages.work"]


def test_a_run_that_began_with_a_backend_does_not_go_on_with_a_simulation(host: Host) -> None:
    def agent(stage: Stage) -> str:
        return "done by the agent"

    halted = host.run(square(ASK + "fix -> exit", backend=agent))
    host.answer(halted.waits[0].id, "no")
    with pytest.raises(BackendChanged, match="agent"):
        host.resume(halted.run_id, square(ASK + "fix -> exit"))
    assert host.info(halted.run_id).status == "halted", "and nothing was changed"
    result = host.resume(halted.run_id, square(ASK + "fix -> exit", backend=agent))
    assert result.status == "halted" and context(host, result)["last_response"] == "done by the agent"


def test_a_tool_needs_leave_and_an_unknown_handler_a_name(host: Host) -> None:
    with pytest.raises(FlowError, match="--allow-tools") as raised:
        square('start -> t -> exit; t [shape=parallelogram, tool_command="true"]')
    assert raised.value.details["problems"][0]["code"] == "pipeline.tools"  # type: ignore[index]
    with pytest.raises(FlowError, match="mystery"):
        square("start -> t -> exit; t [type=mystery]")
    with pytest.raises(FlowError, match="condition"):
        square('start -> t; t -> exit [condition="a = = b"]')


def test_a_pipeline_survives_as_ir(host: Host) -> None:
    flow = square(ASK)
    twin = Flow.from_ir(flow.to_ir(), flow.functions())
    assert twin.plan.hash == flow.plan.hash


def test_a_pipeline_has_a_budget_and_costly_nodes(host: Host) -> None:
    def work(stage: Stage) -> str:
        assert stage.ctx is not None
        stage.ctx.spend(usd="0.30")
        return "done"

    body = """"budget.usd"="0.50"; start -> a -> b -> c -> exit; a [expensive=true]; b [destructive=true]"""
    flow = square(body, backend=work)
    halted = host.run(flow)
    assert halted.status == "halted" and halted.waits[0].node == "c" and halted.waits[0].kind == "approval"
    triggers = [record.trigger.value for record in host.history(halted.run_id)]
    assert "expensive_op" in triggers and "destructive_op" in triggers
    host.answer(halted.waits[0].id, {"approved": True})
    assert host.resume(halted.run_id, flow).status == "completed"


def test_a_person_may_be_asked_by_a_node_whose_id_is_no_word(host: Host) -> None:
    flow = square('start -> "ask-1.a"; "ask-1.a" [shape=hexagon]; "ask-1.a" -> exit [label=Go];')
    asked = host.run(flow, run_id="r")
    assert [wait.node for wait in asked.waits] == ["ask-1.a"]
    host.answer(asked.waits[0].id, "go")
    assert host.resume("r", flow).status == "completed"


def test_a_run_does_not_go_on_without_the_handlers_it_began_with(host: Host) -> None:
    def fix(stage: Stage) -> str:
        return "fixed"

    halted = host.run(square(ASK, handlers={"fix": fix}))
    host.answer(halted.waits[0].id, "no")
    with pytest.raises(BackendChanged, match="handlers for fix"):
        host.resume(halted.run_id, square(ASK))
    result = host.resume(halted.run_id, square(ASK, handlers={"fix": fix, "task": fix}))
    assert result.status == "halted" and context(host, result)["last_response"] == "fixed"


def test_a_handler_that_nothing_asks_for_is_refused() -> None:
    with pytest.raises(BadRequest, match="Did you mean 'work'"):
        square("start -> work -> exit", handlers={"wrok": lambda stage: None})
    square("start -> work -> exit", handlers={"tool": lambda stage: None, "codergen": lambda stage: None})


def test_people_who_did_not_answer_in_time_are_asked_again(host: Host) -> None:
    flow = square(ASK.replace('label="Ship it?"', 'label="Ship it?", timeout=2h'))
    failed = play(host, flow)
    assert failed.status == "failed"
    again = host.resume(failed.run_id, flow)
    assert again.status == "halted"
    host.answer(again.waits[0].id, "yes")
    assert host.resume(failed.run_id, flow).status == "completed"


def test_the_traceback_of_a_handler_is_kept(host: Host) -> None:
    def deep() -> None:
        raise KeyError("missing")

    def work(stage: Stage) -> None:
        deep()

    result = host.run(square("start -> work -> exit", handlers={"work": work}))
    assert result.error is not None and "in deep" in result.error.traceback


def test_a_run_may_have_a_goal_of_its_own(host: Host) -> None:
    flow = square('start -> work -> exit; work [prompt="Do $goal"]')
    result = host.run(flow, {"context": {"goal": "something else"}})
    assert context(host, result)["stages.work"]["prompt"] == "Do something else"
