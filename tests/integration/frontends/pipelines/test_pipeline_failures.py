"""What a pipeline keeps of the stage that fails it, and where it goes on from there."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Flow, Host, node
from everstep.backends import Simulation, Tools
from everstep.frontends.pipelines.stage import Stage
from everstep.migrate import accept
from everstep.pipelines import Outcome
from everstep.results import RunResult
from everstep.testing import ManualClock
from everstep.testing.killing import Killer
from tests.integration.frontends.pipelines.pipelines import context, round_, square, trace
from tests.integration.frontends.pipelines.test_pipeline_bugs import World

CHILD = "digraph child { start -> one -> two -> exit }"
FORK = (
    "start -> fork; fork [shape=component]; fork -> {a b} -> join; join [shape=tripleoctagon]; join -> exit"
)


class Worker:
    """A backend that fails as often as it is told, with everything that an outcome can hold."""

    def __init__(self, **fails: int) -> None:
        self.fails = fails
        self.calls: list[str] = []

    def __call__(self, stage: Stage) -> Outcome:
        self.calls.append(stage.node)
        count = self.calls.count(stage.node)
        if count > self.fails.get(stage.node, 0):
            return Outcome(response=f"{stage.node} did it")
        return Outcome.fail(f"{stage.node} broke", retryable=False, type="Broken").but(
            context_updates={f"{stage.node}.tried": count},
            response=f"{stage.node} printed this",
            notes="a note",
            artifacts=(f"{stage.node}.log",),
            metadata={"score": 3},
        )


KEPT = {
    "status": "fail",
    "failure_reason": "work broke",
    "response": "work printed this",
    "notes": "a note",
    "artifacts": ["work.log"],
    "metadata": {"score": 3},
    "error": {"type": "Broken", "message": "work broke", "retryable": False, "details": {}},
}


def test_the_outcome_of_the_stage_that_fails_a_pipeline_is_kept(host: Host) -> None:
    result = host.run(square("start -> work -> exit; work [goal_gate=true]", backend=Worker(work=1)))
    assert result.status == "failed"
    assert trace(host, result) == ["start", "work:fail"]
    found = context(host, result)
    assert found["stages.work"].items() >= KEPT.items()
    assert (found["work.tried"], found["outcome"], found["gates.work"]) == (1, "fail", "fail")
    assert found["last_response"] == "work printed this"


def test_what_a_failing_tool_printed_is_kept(host: Host) -> None:
    body = 'start -> make -> exit; make [shape=parallelogram, tool_command="echo FAILED test_login; exit 1"]'
    result = host.run(square(body, tools=Tools()))
    assert result.status == "failed"
    found = context(host, result)
    assert (found["tool.output"], found["tool.exit_code"]) == ("FAILED test_login\n", 1)
    assert found["stages.make"]["response"] == "FAILED test_login\n"


def test_what_each_attempt_came_to_is_kept_and_nothing_of_it_counts(host: Host) -> None:
    def work(stage: Stage) -> dict[str, Any]:
        assert "tried" not in stage.context
        said = {"response": f"attempt {stage.attempt}", "context_updates": {"tried": stage.attempt}}
        return said if stage.attempt == 3 else {"status": "fail", **said}

    result = host.run(square("start -> work -> exit; work [max_retries=2]", backend=work))
    steps = [s for r in host.history(result.run_id) for s in r.steps if s.path == "work"]
    assert [(s.status, s.outcome) for s in steps] == [
        ("retrying", "retry"),
        ("retrying", "retry"),
        ("completed", "success"),
    ]
    for number, record in enumerate(r for r in host.history(result.run_id) if r.trigger == "retry"):
        kept = host.state(result.run_id, record.sequence)["@channel/internal.attempts.work"]
        assert kept.items() >= {"attempt": number + 1, "response": f"attempt {number + 1}"}.items()
    found = context(host, result)
    assert found["tried"] == 3 and "internal.attempts.work" not in found


@pytest.mark.parametrize(
    ("body", "fails", "before", "after"),
    [
        ("start -> a -> work -> exit", {"work": 1}, ["a", "work"], ["work"]),
        (FORK, {"a": 1, "b": 1}, ["a", "b"], ["a", "b"]),
        (
            FORK.replace("shape=component", "shape=component, join_policy=quorum"),
            {"a": 1},
            ["a", "b"],
            ["a"],
        ),
        (
            'start -> mgr -> exit; mgr [shape=house, "stack.child_dotfile"=child]',
            {"two": 1},
            ["one", "two"],
            ["two"],
        ),
        (
            'start -> a -> check; check [shape=diamond]; check -> exit [condition="outcome=success"]',
            {"a": 1},
            ["a"],
            ["a"],
        ),
        (
            "start -> a -> c1 -> c2; c1 [shape=diamond]; c2 [shape=diamond]; "
            'c2 -> exit [condition="outcome=success"]',
            {"a": 1},
            ["a"],
            ["a"],
        ),
    ],
    ids=["a stage", "a fork", "a race", "an inner pipeline", "judged", "judged twice"],
)
def test_a_failed_pipeline_goes_on_where_something_can_change(
    host: Host, body: str, fails: dict[str, int], before: list[str], after: list[str]
) -> None:
    worker = Worker(**fails)

    def flow() -> Flow:
        return square(body, backend=worker, children={"child": CHILD})

    failed = host.run(flow(), run_id="r")
    assert (failed.status, sorted(worker.calls)) == ("failed", before)
    kept = context(host, failed)
    assert [n for n in fails if f"{n}.tried" not in str(kept)] == []
    worker.calls.clear()
    worker.fails = {}
    planned = [due.path for due in host.explain("r", flow()).starts]
    assert planned in (["work"], ["a"], ["fork@2/a/a", "fork@2/b/b"], ["mgr@2/start"]), "explain knows it too"
    assert host.resume("r", flow()).status == "completed"
    assert sorted(worker.calls) == after


RACE = FORK.replace("shape=component", "shape=component, join_policy=quorum")
INNER = 'start -> mgr -> exit; mgr [shape=house, "stack.child_dotfile"=child]'


class Telling(Worker):
    """A worker whose stages also tell the context something."""

    def __call__(self, stage: Stage) -> Outcome:
        outcome = super().__call__(stage)
        return outcome.but(
            context_updates={**outcome.context_updates, f"{stage.node}.said": self.calls.count(stage.node)}
        )


def test_what_a_branch_that_succeeded_told_the_context_is_there_after_a_resume(host: Host) -> None:
    def end(worker: Telling, run_id: str) -> dict[str, Any]:
        flow = square(RACE, backend=worker)
        if host.run(flow, run_id=run_id).status == "failed":
            assert host.resume(run_id, flow).status == "completed"
        return context(host, host.run(flow, run_id=run_id))

    worker = Telling(a=1)
    resumed, whole = end(worker, "r"), end(Telling(), "w")
    assert sorted(worker.calls) == ["a", "a", "b"]
    assert resumed["b.said"] == whole["b.said"] == 1
    found, expected = (one["parallel.results"][1] for one in (resumed, whole))
    assert found == expected


def test_a_fork_that_fails_again_and_again_calls_only_what_fails(host: Host) -> None:
    worker = Worker(a=3)
    flow = square(RACE, backend=worker)
    result = host.run(flow, run_id="r")
    for _ in range(3):
        assert result.status == "failed"
        assert [step.path for step in host.explain("r", flow).may_repeat] == [
            f"fork@{worker.calls.count('a') + 1}/a/a"
        ]
        result = host.resume("r", flow)
    assert result.status == "completed"
    assert sorted(worker.calls) == ["a"] * 4 + ["b"]
    names = [name for name, _ in host.transfer.checkpoint_as("r", "pipeline")["node_history"]]
    assert names.count("fork/b/b") == 1, "a stage that is passed is not told of twice"


@pytest.mark.parametrize(
    ("body", "calls"), [(RACE, ["a", "a", "b", "b"]), (INNER, ["one", "one", "two", "two"])]
)
def test_a_resume_at_a_fork_or_an_inner_pipeline_does_all_of_it_again(
    host: Host, body: str, calls: list[str]
) -> None:
    worker = Worker(a=1, two=1)
    flow = square(body, backend=worker, children={"child": CHILD})
    assert host.run(flow, run_id="r").status == "failed"
    start = "fork" if "fork" in body else "mgr"
    assert host.resume("r", flow, start=start).status == "completed"
    assert sorted(worker.calls) == calls


def test_a_loop_inside_calls_a_stage_again_that_was_passed(host: Host) -> None:
    child = """digraph child { start -> one -> check; check [shape=diamond];
      check -> one [condition="context.one.said!=3"]; check -> two [condition="context.one.said=3"];
      two -> exit }"""
    worker = Telling(two=1)
    flow = square(INNER, backend=worker, children={"child": child})
    assert host.run(flow, run_id="r").status == "failed"
    assert worker.calls == ["one", "one", "one", "two"]
    assert host.resume("r", flow).status == "completed"
    assert worker.calls == ["one", "one", "one", "two", "two"]


def test_an_inner_pipeline_that_fails_again_after_a_resume_is_no_success(host: Host) -> None:
    worker = Telling(two=2)
    flow = square(INNER, backend=worker, children={"child": CHILD})
    assert host.run(flow, run_id="r").status == "failed"
    again = host.resume("r", flow)
    assert again.status == "failed" and again.error is not None and "two broke" in again.error.message
    done = host.resume("r", flow)
    assert done.status == "completed" and worker.calls == ["one", "two", "two", "two"]
    assert context(host, done)["two.said"] == 3, "what it left is there"


def test_a_fork_that_fails_again_after_a_resume_says_why(host: Host) -> None:
    body = "start -> fork; fork [shape=component]; fork -> {a b} -> exit"
    flow = square(body, backend=Worker(a=2, b=2))
    for result in (host.run(flow, run_id="r"), host.resume("r", flow)):
        assert result.error is not None and "a broke; b: b broke" in result.error.message
    assert host.resume("r", flow).status == "completed"


@pytest.mark.parametrize(
    ("body", "fails", "first", "again", "starts"),
    [
        (FORK, {"a": 1, "b": 1}, ["a", "b"], ["a", "b"], ["p/fork@2/a/a", "p/fork@2/b/b"]),
        (RACE, {"a": 1}, ["a", "b"], ["a"], ["p/fork@2/a/a", "p/fork@2/b/b"]),
        (INNER, {"two": 1}, ["one", "two"], ["two"], ["p/mgr@2/start"]),
        (
            'start -> work; work -> fix [condition="outcome=fail"]; work -> exit',
            {"work": 1, "fix": 1},
            ["fix", "work"],
            ["work"],
            ["p/work"],
        ),
        (
            'start -> work -> exit; work -> exit [condition="outcome=fail"]; work [goal_gate=true]',
            {"work": 1},
            ["work"],
            ["work"],
            ["p/work"],
        ),
    ],
    ids=["a fork", "a race", "an inner pipeline", "a dead end", "a missed goal"],
)
def test_a_pipeline_inside_a_flow_that_failed_goes_on_where_something_can_change(
    host: Host, body: str, fails: dict[str, int], first: list[str], again: list[str], starts: list[str]
) -> None:
    worker = Worker(**fails)

    def flow() -> Flow:
        return Flow("around", [nested(body, worker)])

    assert (host.run(flow(), run_id="r").status, sorted(worker.calls)) == ("failed", first)
    worker.calls.clear()
    worker.fails = {}
    told = host.explain("r", flow())
    assert [step.path for step in told.starts] == starts
    assert host.resume("r", flow()).status == "completed"
    assert sorted(worker.calls) == again


def nested(body: str, worker: Worker, **options: Any) -> Any:
    return square(body, backend=worker, children={"child": CHILD}, **options).as_node(name="p")


def test_a_pipeline_inside_that_fails_again_and_again_calls_only_what_fails(host: Host) -> None:
    worker = Worker(a=3)
    flow = Flow("around", [Flow("middle", [nested(RACE, worker)]).as_node()])
    result = host.run(flow, run_id="r")
    for _ in range(3):
        assert result.status == "failed"
        assert [step.path for step in host.explain("r", flow).may_repeat] == [
            f"middle/p/fork@{worker.calls.count('a') + 1}/a/a"
        ]
        result = host.resume("r", flow)
    assert result.status == "completed"
    assert sorted(worker.calls) == ["a"] * 4 + ["b"]


def test_explain_says_of_a_pipeline_inside_too_that_a_stage_only_lacks_an_edge(host: Host) -> None:
    worker = Worker()
    flow = Flow("around", [nested("start -> work; work -> exit [condition=x]", worker)])
    assert host.run(flow, run_id="r").status == "failed"
    told = host.explain("r", flow)
    assert [(step.path, step.only_chooses) for step in told.starts] == [("p/work", True)]
    assert host.resume("r", flow).status == "failed"
    assert worker.calls == ["work"]


def test_what_else_is_under_way_stays_when_a_pipeline_inside_begins_again(host: Host) -> None:
    calls: list[str] = []
    ended = threading.Event()

    @node(output="read")
    def read() -> int:
        calls.append("read")
        return 1

    @node(output="sent")
    def send(read: int) -> int:
        calls.append("send")
        if len(calls) == 2:
            ended.set()
            raise ValueError("out of reach")
        return read

    class Late(Worker):
        def __call__(self, stage: Stage) -> Outcome:
            assert ended.wait(30)
            return super().__call__(stage)

    worker = Late(a=1)
    side = Flow("side", [read, send]).as_node(name="side")
    flow = Flow("around", [nested(RACE, worker), side])
    result = host.run(flow, run_id="r")
    assert result.status == "failed"
    for _ in range(3):  # which of the two fails the run first is not said, and the other may do so later
        result = host.resume("r", flow) if result.status == "failed" else result
    assert result.status == "completed"
    assert calls == ["read", "send", "send"]
    assert sorted(worker.calls) == ["a", "a", "b"]


def test_each_item_that_failed_begins_again_where_something_can_change(host: Host) -> None:
    @node(output="kept")
    def keep(x: int) -> int:
        return x

    worker = Worker(a=2)
    each = Flow("each", [nested(RACE, worker), keep]).as_node()
    flow = Flow("around", [each.map_over("x", on_error="finish")])
    assert host.run(flow, {"x": [1, 2]}, run_id="r").status == "failed"
    assert sorted(worker.calls) == ["a", "a", "b", "b"]
    told = host.explain("r", flow)
    assert sorted(step.path for step in told.may_repeat) == ["each#0/p/fork@2/a/a", "each#1/p/fork@2/a/a"]
    result = host.resume("r", flow)
    assert (result.status, result["kept"]) == ("completed", [1, 2])
    assert sorted(worker.calls) == ["a"] * 4 + ["b"] * 2


def test_rounds_that_were_not_enough_are_gone_through_as_a_whole(host: Host) -> None:
    body = INNER.replace(
        "child]", 'child, "manager.stop_condition"="context.two.said=4", "manager.max_cycles"=2]'
    )
    worker = Telling()
    flow = square(body, backend=worker, children={"child": CHILD})
    assert host.run(flow, run_id="r").status == "failed"
    assert worker.calls == ["one", "two"] * 2
    assert host.resume("r", flow).status == "completed"
    assert worker.calls == ["one", "two"] * 4


def test_a_missed_goal_is_kept_and_gone_for_again_as_often_as_before(host: Host) -> None:
    worker = Worker(work=99)
    flow = square(
        'start -> work -> exit; work -> exit [condition="outcome=fail"]; '
        "work [goal_gate=true, retry_target=work, max_redirects=2]",
        backend=worker,
    )
    for tries in (3, 6):
        result = host.run(flow, run_id="r") if tries == 3 else host.resume("r", flow)
        assert result.status == "failed" and len(worker.calls) == tries
        assert context(host, result)["stages.exit"]["failure_reason"] == "the goal gate 'work' is fail"


def test_a_goal_that_nothing_leads_back_to_is_gone_for_again_by_a_resume(host: Host) -> None:
    worker = Worker(work=1)
    body = 'start -> work -> exit; work -> exit [condition="outcome=fail"]; work [goal_gate=true]'
    flow = square(body, backend=worker)
    result = host.run(flow, run_id="r")
    assert result.error is not None and "resume the run: it goes back to that gate" in result.error.message
    assert host.resume("r", flow).status == "completed"
    assert worker.calls == ["work", "work"]


def test_a_goal_missed_in_a_branch_is_gone_for_again_by_a_resume(host: Host) -> None:
    worker = Worker(a=1)
    flow = square(f"{FORK}; a [goal_gate=true]", backend=worker)
    assert host.run(flow, run_id="r").status == "failed"
    assert host.resume("r", flow).status == "completed"
    assert worker.calls.count("a") == 2


# -- what is told of it -----------------------------------------------------------------------------------


def folder_of(
    host: Host, run_id: str, place: Path
) -> tuple[dict[str, dict[str, Any]], list[tuple[str, Any]]]:
    """Return the checkpoints in a run's folder by file, and what is told of its nodes and people."""
    root = host.transfer.write_run_folder(run_id, place)
    files = {path.name: json.loads(path.read_text()) for path in sorted((root / "checkpoints").iterdir())}
    events = [json.loads(line) for line in (root / "events.jsonl").read_text().splitlines()]
    told = [(f"{e['type']} {e['node_id']}", e["data"].get("status")) for e in events if e["node_id"]]
    return files, [(kind, status) for kind, status in told if kind.startswith(("node.", "human."))]


def test_the_run_folder_has_what_a_failing_tool_printed(host: Host, tmp_path: Path) -> None:
    body = 'start -> make -> exit; make [shape=parallelogram, tool_command="echo FAILED test_login; exit 1"]'
    host.run(square(body, tools=Tools()), run_id="r")
    root = host.transfer.write_run_folder("r", tmp_path)
    assert (root / "nodes/make/response.md").read_text() == "FAILED test_login\n"
    last = json.loads((root / "checkpoints/003_make.json").read_text())
    assert last["outcome"]["response"] == last["context"]["tool.output"] == "FAILED test_login\n"
    assert last["node_history"][-1] == ["make", {"status": "fail"}]


def test_the_run_folder_names_stages_and_not_the_gates_behind_them(host: Host, tmp_path: Path) -> None:
    asks = square("start -> work -> ask -> exit; ask [shape=hexagon, timeout=1h]")
    host.run(asks, run_id="late")
    assert isinstance(host.clock, ManualClock)
    host.clock.advance(timedelta(hours=2))
    assert host.resume("late", asks).status == "failed"
    files, told = folder_of(host, "late", tmp_path)
    assert list(files) == [
        *("001_admission.json", "002_start.json", "003_work.json", "004_ask.json", "005_ask.json"),
        "006_ask.json",
    ]
    assert files["001_admission.json"]["goal_gate_status"] == {}
    assert [files[f"00{n}_ask.json"]["outcome"]["status"] for n in (4, 5, 6)] == [
        "waiting",
        "answered",
        "fail",
    ]
    assert told[-4:] == [
        ("human.waiting ask", None),
        ("human.timeout ask", None),
        ("node.started ask", None),
        ("node.completed ask", "fail"),
    ]
    body = 'start -> mgr -> exit; mgr [shape=house, "stack.child_dotfile"=child]'
    host.run(square(body, backend=Worker(two=1), children={"child": CHILD}), run_id="inner")
    files, told = folder_of(host, "inner", tmp_path)
    assert list(files)[-1] == "006_mgr.json"
    assert [event for event in told if event[0].endswith(" mgr")] == [
        ("node.started mgr", None),
        ("node.completed mgr", "fail"),
    ]


def test_what_a_stage_was_told_of_before_is_kept(host: Host, tmp_path: Path) -> None:
    told: list[str] = []

    def work(stage: Stage) -> str:
        told.append(stage.preamble)
        assert stage.preamble == told[-1]
        return "done"

    flow = square(
        'start -> a -> b -> exit; b [shape=parallelogram, fidelity="summary:low", tool_command=x]',
        backend=work,
        tools=work,
    )
    host.run(flow, run_id="r")
    files, _ = folder_of(host, "r", tmp_path)
    assert files["004_b.json"]["fidelity_state"] == {"mode": "summary:low", "summaries": {"b": told[1]}}
    assert "a: success" in told[1]
    assert (next(tmp_path.iterdir()) / "nodes/b/preamble.md").read_text() == told[1]


def test_the_result_of_a_pipeline_is_its_context_and_shows_the_channel(host: Host) -> None:
    result = host.run(square("start -> work -> exit", backend=Worker()), {"context": {"topic": "tea"}})
    assert (result["last_response"], result["topic"], result["outcome"]) == ("work did it", "tea", "success")
    assert "stages.work" not in result and result.channel["stages.work"]["status"] == "success"
    assert set(result) >= {"last_response", "topic"} and len(result) == len(list(result))
    failed = host.run(square("start -> work -> exit", backend=Worker(work=1)))
    assert failed["work.tried"] == 1


# -- goal gates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ["", "allow_partial=true,"])
@pytest.mark.parametrize("restart", ["", "[loop_restart=true]"])
def test_a_goal_that_is_only_met_in_part_is_gone_for_so_often_and_no_more(
    host: Host, more: str, restart: str
) -> None:
    calls: list[str] = []

    def work(stage: Stage) -> dict[str, Any]:
        calls.append(stage.node)
        return {"status": "fail" if more else "partial"}

    body = f"begin -> plan -> work {restart}; work -> done; plan [simulate=success];"
    flow = round_(
        f"{body} work [goal_gate=true, {more} retry_target=plan, max_redirects=2]",
        handlers={"work": work, "plan": lambda stage: None},
    )
    result = host.run(flow, run_id="r")
    assert (result.status, len(calls)) == ("failed", 3)
    assert (
        result.error is not None and "'work' is partial_success, after 2 more tries" in result.error.message
    )
    told = host.transfer.checkpoint_as("r", "pipeline")
    assert told["goal_gate_status"] == {"work": "pending"}


def test_in_the_square_dialect_a_goal_met_in_part_is_met(host: Host) -> None:
    flow = square(
        "start -> work -> exit; work [goal_gate=true, retry_target=work]",
        backend=Simulation({"work": {"status": "partial_success"}}),
    )
    result = host.run(flow, run_id="r")
    assert result.status == "completed"
    assert host.transfer.checkpoint_as("r", "pipeline")["goal_gate_status"] == {"work": "satisfied"}


# -- no edge ----------------------------------------------------------------------------------------------

NO_EDGE = """start -> work; work -> a [condition="context.kind=a"]; work -> b [condition="context.kind=b"];
  a -> exit; b -> exit"""


def no_edge(calls: list[str], more: str = "", **options: Any) -> Flow:
    def work(stage: Stage) -> dict[str, Any]:
        calls.append(stage.node)
        return {"response": "done", "context_updates": {"made": True}, "preferred_label": "on"}

    return square(f"{NO_EDGE}; {more}", handlers={"work": work}, **options)


def test_a_stage_that_succeeded_is_not_called_again_because_no_edge_held(host: Host) -> None:
    calls: list[str] = []
    result = host.run(no_edge(calls), run_id="r")
    for _ in range(3):
        assert result.error is not None and result.error.code == "pipeline.no_edge"
        assert "context.kind=a; context.kind=b" in result.error.message
        assert context(host, result)["stages.work"]["status"] == "success"
        assert host.transfer.checkpoint_as("r", "pipeline")["node_history"][-1] == [
            "work",
            {"status": "success"},
        ]
        result = host.resume("r", no_edge(calls))
    assert calls == ["work"]
    changed = no_edge(calls, "work -> exit [label=on]", migrations=[accept("work")])
    assert host.resume("r", changed).status == "completed"
    assert calls == ["work"]
    kept = context(host, host.run(changed, run_id="r"))
    assert kept["stages.work"]["edge"]["to"] == "exit" and "unrouted" not in kept["stages.work"]
    assert [name for name, _ in host.transfer.checkpoint_as("r", "pipeline")["node_history"]] == [
        *("start", "work", "exit")
    ]


def test_explain_does_not_say_of_a_stage_that_only_lacks_an_edge_that_it_may_repeat(host: Host) -> None:
    calls: list[str] = []
    host.run(no_edge(calls), run_id="r")
    told = host.explain("r", no_edge(calls))
    assert [(step.path, step.only_chooses) for step in told.starts] == [("work", True)]
    assert told.may_repeat == ()
    host.resume("r", no_edge(calls))
    assert calls == ["work"]
    fails = square("start -> work -> exit", backend=Worker(work=1))
    host.run(fails, run_id="f")
    assert [step.path for step in host.explain("f", fails).may_repeat] == ["work"], (
        "a stage that failed is called"
    )


def test_its_edge_is_chosen_again_in_a_fork_with_another_context(host: Host) -> None:
    calls: list[str] = []
    host.run(no_edge(calls), run_id="r")
    fork = host.fork("r", channel={"kind": "b"})
    assert trace(host, host.resume(fork.run_id, no_edge(calls)))[-2:] == ["b", "exit"]
    assert calls == ["work"]


def test_a_resume_at_that_stage_calls_it_again(host: Host) -> None:
    calls: list[str] = []
    host.run(no_edge(calls), run_id="r")
    assert host.resume("r", no_edge(calls), start="work").status == "failed"
    assert calls == ["work", "work"]
    assert host.resume("r", no_edge(calls)).status == "failed"
    assert calls == ["work", "work"]


def test_an_answer_and_what_an_inner_pipeline_did_are_not_lost_because_no_edge_held(host: Host) -> None:
    worker = Worker()
    inner = 'start -> mgr; mgr [shape=house, "stack.child_dotfile"=child]; mgr -> exit [condition=x]'
    flow = square(inner, backend=worker, children={"child": CHILD})
    assert host.run(flow, run_id="m").status == host.resume("m", flow).status == "failed"
    assert worker.calls == ["one", "two"]
    fork = host.fork("m", channel={"x": True})
    assert host.resume(fork.run_id, flow).status == "completed"
    assert worker.calls == ["one", "two"]

    asks = square("start -> ask; ask [shape=hexagon]; ask -> exit [condition=x]")
    halted = host.run(asks, run_id="h")
    host.answer(halted.waits[0].id, "hello")
    for _ in range(2):
        result = host.resume("h", asks)
        assert result.error is not None and result.error.code == "pipeline.no_edge", "no one is asked again"


def test_in_a_branch_a_success_without_an_edge_ends_the_branch_and_stays_a_success(host: Host) -> None:
    body = FORK.replace("fork -> {a b} -> join", "fork -> {a b}; b -> join; a -> join [condition=x]")
    result = host.run(square(body))
    found = context(host, result)
    assert found["stages.fork/a/a"]["status"] == "success"
    assert [r["status"] for r in found["parallel.results"]] == ["fail", "success"]
    assert found["parallel.results"][0]["failure_reason"] == "no edge leads on from a after success"


def test_an_exit_that_a_branch_comes_to_by_a_failure_does_not_make_it_a_success(host: Host) -> None:
    body = FORK + '; a -> exit [condition="outcome=fail"]'
    result = host.run(square(body, backend=Worker(a=1)))
    assert [r["status"] for r in context(host, result)["parallel.results"]] == ["fail", "success"]


def test_an_inner_pipeline_that_never_meets_its_stop_condition_has_failed(host: Host) -> None:
    body = """start -> mgr -> exit; mgr [shape=house, "stack.child_dotfile"=child, "manager.max_cycles"=3,
      "manager.stop_condition"="context.done=yes"]"""
    worker = Worker()
    result = host.run(square(body, backend=worker, children={"child": CHILD}), run_id="r")
    assert result.error is not None and len(worker.calls) == 6
    assert "stop_condition was not met in 3 rounds: context.done=yes" in result.error.message
    routed = square(
        body + '; mgr -> late [condition="outcome=fail"]; late -> exit',
        backend=Simulation(),
        children={"child": CHILD},
    )
    assert trace(host, host.run(routed))[-3:] == ["mgr:fail", "late", "exit"]


@pytest.mark.parametrize(
    ("condition", "status"),
    [("outcome == success", "completed"), ("success == status", "completed"), ("outcome == fail", "failed")],
)
def test_a_status_may_stand_without_quotes_in_either_grammar(host: Host, condition: str, status: str) -> None:
    assert host.run(square(f'start -> work; work -> exit [condition="{condition}"]')).status == status


@pytest.mark.parametrize("said", ["@timeout", "@skipped"])
def test_whatever_a_person_writes_is_their_answer(host: Host, said: str) -> None:
    flow = square("start -> ask -> exit; ask [shape=hexagon, timeout=1h]")
    halted = host.run(flow, run_id="r")
    host.answer(halted.waits[0].id, said)
    assert host.resume("r", flow).status == "completed"
    assert context(host, halted)["human.response"] == said


# -- killed -----------------------------------------------------------------------------------------------


def killed_anywhere(build: Callable[[list[str]], Flow]) -> None:
    """Kill the run at every write; it must end as an undisturbed one, and again after a resume."""

    def ended(host: Host, result: RunResult) -> Any:
        assert result.error is not None
        kept = context(host, result)
        for record in kept.values():
            if isinstance(record, dict):
                record.pop("fidelity", None)
        return result.error.message, {k: v for k, v in kept.items() if k != "internal.resumed"}

    whole, calls = Killer(), list[str]()
    with World().host(whole) as host:
        expected = ended(host, host.run(build(calls), run_id="r"))
    points = [point for point in whole.points if "put" in point]
    assert len(points) > 4
    for point in points:
        world, seen = World(), list[str]()
        world.crash_at(build(seen), point)
        with world.host() as host:
            assert ended(host, host.run(build(seen), run_id="r")) == expected, f"killed {point}"
        assert len(seen) <= len(calls) + 1, "only what was under way is called again"


def test_a_pipeline_that_fails_and_is_killed_anywhere_keeps_the_same() -> None:
    def build(calls: list[str]) -> Flow:
        def work(stage: Stage) -> dict[str, Any]:
            calls.append(stage.node)
            return {"status": "fail", "response": "printed", "notes": "n", "context_updates": {"k": 1}}

        return square("start -> work -> exit; work [max_retries=1]", handlers={"work": work})

    killed_anywhere(build)


def test_a_pipeline_without_an_edge_that_is_killed_anywhere_keeps_the_same() -> None:
    killed_anywhere(no_edge)
