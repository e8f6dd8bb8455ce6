"""What handlers of a pipeline may return, and which nodes may have one."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from everstep import Host
from everstep.errors import BadRequest
from everstep.frontends.pipelines.outcome import Outcome, StageStatus
from everstep.frontends.pipelines.stage import Stage
from everstep.testing import ManualClock
from tests.integration.frontends.pipelines.pipelines import context, square, trace

FIXES = 'start -> work -> exit; work -> fix [condition="outcome=fail"]; fix -> exit'


@pytest.mark.parametrize(("spelled", "status"), [("FAILURE", "fail"), ("ok", "success"), ("retry", "fail")])
def test_an_outcome_may_spell_its_status_as_either_dialect(host: Host, spelled: Any, status: str) -> None:
    result = host.run(square(FIXES, handlers={"work": lambda stage: Outcome(status=spelled)}))
    assert result.status == "completed" and context(host, result)["stages.work"]["status"] == status


def test_an_outcome_may_name_one_node_and_no_updates() -> None:
    more: dict[str, Any] = {"suggested_next": "fix", "context_updates": None}
    outcome = Outcome(status=StageStatus.PARTIAL, **more)
    assert outcome.suggested_next == ("fix",) and outcome.context_updates == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "splendid"},
        {"context_updates": {1: 2}},
        {"context_updates": {"": 1}},
        {"context_updates": {"k" * 300: 1}},
        {"context_updates": {"k": object()}},
        {"context_updates": {"k": "\ud800"}},
        {"metadata": {"k": object()}},
        {"metadata": [1]},
        {"response": "\ud800"},
        {"suggested_next": [1]},
    ],
)
@pytest.mark.parametrize("is_branch", [False, True])
def test_what_cannot_be_kept_of_an_outcome_is_a_failed_stage(
    host: Host, fields: dict[str, Any], is_branch: bool
) -> None:
    body = FIXES
    if is_branch:
        body = (
            "fork [shape=component]; join [shape=tripleoctagon];"
            "start -> fork -> {work other} -> join -> exit;"
            'work -> fix [condition="outcome=fail"]; fix -> join'
        )
    result = host.run(square(body, handlers={"work": lambda stage: Outcome(**fields)}))
    assert result.status == "completed", result.error
    assert "work:fail" in trace(host, result) and "fix" in trace(host, result)


def _prefers(label: str, is_async: bool) -> Any:
    def plain(stage: Stage) -> dict[str, Any]:
        return {"preferred_label": label, "context_updates": {"asked": list(stage.choices)}}

    async def later(stage: Stage) -> dict[str, Any]:
        return plain(stage)

    return later if is_async else plain


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("shape", ["diamond", "hexagon", "house", "Mdiamond"])
def test_a_node_of_any_kind_but_a_fork_may_have_a_handler(host: Host, shape: str, is_async: bool) -> None:
    body = "pick -> left [label=left]; pick -> right [label=right]; left -> exit; right -> exit;"
    name = "start" if shape == "Mdiamond" else "pick"
    body = body.replace("pick", name) if name == "start" else f"pick [shape={shape}]; start -> pick; {body}"
    result = host.run(square(body, handlers={name: _prefers("right", is_async)}))
    assert result.status == "completed" and "right" in trace(host, result)
    assert context(host, result)["asked"] == ["left", "right"]


def test_a_handler_of_all_inner_pipelines_takes_their_place(host: Host) -> None:
    result = host.run(
        square("start -> sub -> exit; sub [shape=tab]", handlers={"subpipeline": lambda s: "hi"})
    )
    assert context(host, result)["last_response"] == "hi"


def test_a_fork_has_no_handler() -> None:
    body = "fork [shape=component]; join [shape=tripleoctagon]; start -> fork -> {a b} -> join -> exit"
    with pytest.raises(BadRequest, match="'fork' forks"):
        square(body, handlers={"fork": lambda stage: None})


@pytest.mark.parametrize(
    ("edges", "asked"),
    [
        ("ask -> exit", None),
        ("ask -> exit; ask -> late [label=fail]", None),
        ("ask -> exit [label=Pass]; ask -> late [label=Fail]", ["Pass", "Fail"]),
        ('ask -> exit [label="[P] Pass"]; ask -> late [label="[F] Fail"]', ["[P] Pass", "[F] Fail"]),
        (
            'ask -> exit [label=Yes]; ask -> start2 [label="No", condition="preferred_label=No"]',
            ["Yes", "No"],
        ),
    ],
)
def test_an_edge_for_a_timeout_is_no_choice(host: Host, edges: str, asked: list[str] | None) -> None:
    flow = square(
        f"start -> ask; ask [shape=hexagon, timeout=1h]; {edges};"
        'ask -> late [condition="outcome=fail"]; late -> exit;'
        + ("start2 -> exit" if "start2" in edges else "")
    )
    halted = host.run(flow)
    assert halted.waits[0].options == asked


@pytest.mark.parametrize(
    ("more", "edges", "response"),
    [
        ('"human.default_choice"=N', '-> x [label="[Y] Yes"]; ask -> y [label="[N] No"]', "No"),
        ('"human.default_choice"=y', '-> x [label="[Y] Yes"]; ask -> y [label="[N] No"]', "No"),
        ('"human.default_choice"="no"', '-> x [label="[Y] Yes"]; ask -> y [label="[N] No"]', "No"),
        ('"human.default_choice"="go ahead"', "-> exit", "go ahead"),
        ("timeout_action=first", "-> exit", None),
    ],
)
def test_a_default_may_be_named_as_an_answer_may_and_by_its_target_first(
    host: Host, more: str, edges: str, response: str | None
) -> None:
    rest = "x -> exit; y -> exit" if "-> x" in edges else ""
    flow = square(f"ask [shape=hexagon, timeout=1h, {more}]; start -> ask; ask {edges}; {rest}")
    halted = host.run(flow)
    assert isinstance(host.clock, ManualClock)
    host.clock.advance(timedelta(hours=2))
    result = host.resume(halted.run_id, flow)
    assert result.status == "completed"
    assert context(host, result).get("human.response") == response


def test_two_edges_to_one_node_are_one_choice_and_one_label_for_two_nodes_is_two(host: Host) -> None:
    body = "start -> ask [label=x]; ask [shape=hexagon]; ask -> work; ask -> work; work -> exit; "
    flow = square(body + "ask -> exit [label=Go]; ask -> other [label=Go]; other -> exit")
    result = host.run(flow)
    assert result.waits[0].options == ["work", "Go (exit)", "Go (other)"]
    host.answer(result.waits[0].id, "Go (other)")
    assert trace(host, host.resume(result.run_id, flow)) == ["start", "ask", "other", "exit"]


def test_a_stage_that_succeeded_may_still_prefer_an_edge_for_failures(host: Host) -> None:
    body = "start -> work; work -> exit [label=pass]; work -> fix [label=fail]; fix -> exit"
    for wish in ({"preferred_label": "Fail"}, {"suggested_next": ["fix"]}):
        result = host.run(square(body, handlers={"work": lambda stage, wish=wish: wish}))
        assert trace(host, result) == ["start", "work", "fix", "exit"]
    assert trace(host, host.run(square(body))) == ["start", "work", "exit"]


def test_a_stage_may_name_itself_to_go_back_to(host: Host) -> None:
    body = 'start -> work -> exit; work [simulate="fail,fail,success", retry_target=work, max_redirects=%d]'
    assert trace(host, host.run(square(body % 2))) == ["start", "work:fail", "work:fail", "work", "exit"]
    failed = host.run(square(body % 1))
    assert failed.error is not None
    assert "nothing leads on from there: [simulated] work: fail. Repair" in failed.error.message
    gate = 'start -> work -> exit; work [simulate="fail,success", goal_gate=true, retry_target=work]'
    assert host.run(square(gate)).status == "completed"


def test_handlers_that_hang_keep_no_other_from_starting(host: Host) -> None:
    hangs, started = threading.Event(), []

    def work(stage: Stage) -> str:
        started.append(stage.visit)
        if stage.visit <= 40:
            hangs.wait(30)
        return "done"

    body = 'start -> work -> exit; work [timeout="20ms"]; work -> work [condition="outcome=fail"]'
    try:
        assert host.run(square(body, handlers={"work": work})).status == "completed"
        assert sorted(started)[:40] == list(range(1, 41))
    finally:
        hangs.set()
