"""Runs as folders of plain files: what is in them, while the run goes on, afterwards, and elsewhere."""

from __future__ import annotations

import asyncio
import filecmp
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import END, AsyncHost, Context, Flow, Host, Retention, Retry, node, route
from everstep.backends import Simulation
from everstep.cli.commands.store.export import export
from everstep.cli.main import cli
from everstep.errors import BadRequest, RunNotFound, StoreError
from everstep.frontends.dot.resolve import read
from everstep.frontends.pipelines.outcome import Outcome
from everstep.frontends.pipelines.stage import Stage
from tests.architecture.sources import PACKAGE
from tests.servers import warm

REVIEW = """digraph review {
  graph [goal="Ship it"]
  start [shape=Mdiamond]; exit [shape=Msquare]
  plan [prompt="Plan: $goal"]
  fan [shape=component]; a [prompt="A"]; b [prompt="B"]; meet [shape=tripleoctagon]
  check [goal_gate=true, simulate="fail,success", retry_target=plan, prompt="Check"]
  ask [shape=hexagon, label="Ok?"]
  start -> plan -> fan; fan -> a; fan -> b; a -> meet; b -> meet; meet -> check
  check -> ask [condition="outcome=success"]
  ask -> exit [label="[Y] Yes"]; ask -> plan [label="[N] No"]
}
"""
SHORT = """digraph short {
  start [shape=Mdiamond]; exit [shape=Msquare]; make [prompt="W"]
  start -> make -> exit
}"""
NINE = {
    *("run_id", "pipeline_name", "current_node", "context", "outcome", "node_history"),
    *("goal_gate_status", "timestamp", "fidelity_state"),
}
EVENTS = {
    *("pipeline.started", "pipeline.completed", "pipeline.failed", "pipeline.resumed"),
    *("node.started", "node.completed", "node.retrying", "edge.selected"),
    *("checkpoint.saved", "checkpoint.loaded"),
    *("parallel.fork", "parallel.branch_completed", "parallel.join"),
    *("human.waiting", "human.responded", "human.timeout"),
}


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def events_in(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def files_in(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def assert_same(one: Path, other: Path) -> None:
    assert files_in(one) == files_in(other)
    _, differing, failed = filecmp.cmpfiles(one, other, sorted(files_in(one)), shallow=False)
    assert (differing, failed) == ([], [])


@pytest.fixture(params=["memory", "sqlite", "file"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    urls = {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path}/runs.db",
        "file": f"file://{tmp_path}/store",
    }
    with Host(urls[request.param]) as opened:
        yield opened


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Host]:
    with Host(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


def review(host: Host, flow: Flow, run_id: str = "A17") -> None:
    [wait] = host.run(flow, run_id=run_id).waits
    host.answer(wait.id, "yes")
    assert host.resume(run_id, flow).status == "completed"


class TestPipelines:
    def test_folder_holds_the_pipeline_its_checkpoints_events_and_nodes(
        self, host: Host, tmp_path: Path
    ) -> None:
        review(host, Flow.from_dot(REVIEW))
        folder = host.transfer.write_run_folder("A17", tmp_path / "runs", pipeline=REVIEW)
        created = host.info("A17").created_at
        assert folder == tmp_path / "runs" / f"{created:%Y%m%dT%H%M%SZ}_review_A17"
        assert (folder / "pipeline.dot").read_text() == REVIEW
        assert load(folder / "manifest.json")["run_id"] == "A17"
        status = load(folder / "status.json")
        assert (status["status"], status["current_node"], status["error"]) == ("completed", "exit", None)
        assert (folder / "nodes/plan/prompt.md").read_text() == "Plan: Ship it"
        assert (folder / "nodes/plan/response.md").read_text().startswith("[simulated] plan: ")
        assert load(folder / "nodes/ask/outcome.json")["edge"] == {
            "to": "exit",
            "reason": "answer",
            "label": "[Y] Yes",
        }
        assert load(folder / "nodes/ask/status.json")["suggested_next_ids"] == ["exit"]
        assert load(folder / "nodes/check/visits/1/outcome.json")["status"] == "fail"
        assert load(folder / "nodes/check/outcome.json")["status"] == "success"
        assert load(folder / "nodes/fan+a+a/outcome.json")["status"] == "success"

    def test_every_checkpoint_has_the_nine_fields_as_the_host_tells_them(
        self, kept: Host, tmp_path: Path
    ) -> None:
        review(kept, Flow.from_dot(REVIEW))
        folder = kept.transfer.write_run_folder("A17", tmp_path)
        found = sorted((folder / "checkpoints").iterdir())
        assert [int(path.name[:3]) for path in found] == [c.sequence for c in kept.checkpoints("A17")]
        assert (found[0].name, found[1].name, found[-1].name) == (
            "001_admission.json",
            "002_start.json",
            "016_exit.json",
        )
        for number, path in enumerate(found, 1):
            form = load(path)
            assert set(form) == NINE
            assert form == kept.transfer.checkpoint_as("A17", "pipeline", at=number)
        assert set(load(folder / "checkpoint.json")) == {
            *("timestamp", "current_node", "completed_nodes", "node_retries", "context", "logs"),
        }

    def test_context_is_what_the_stages_saw_and_nothing_else(self, kept: Host, tmp_path: Path) -> None:
        review(kept, Flow.from_dot(REVIEW))
        form = kept.transfer.checkpoint_as("A17", "pipeline")
        assert form["context"]["graph.goal"] == "Ship it"
        assert form["context"]["human.response"] == "Yes"
        assert not [key for key in form["context"] if key.startswith(("stages.", "gates.", "internal.", "~"))]
        assert form["goal_gate_status"] == {"check": "satisfied"}
        names = [name for name, _ in form["node_history"]]
        assert names[:2] == ["start", "plan"] and names[-3:] == ["check", "ask", "exit"]
        assert [o["status"] for n, o in form["node_history"] if n == "check"] == ["fail", "success"]

    def test_gate_that_failed_is_pending(self, kept: Host) -> None:
        kept.run(Flow.from_dot(REVIEW), run_id="A17")
        forms = [
            kept.transfer.checkpoint_as("A17", "pipeline", at=c.sequence) for c in kept.checkpoints("A17")
        ]
        told = [form["goal_gate_status"].get("check") for form in forms if form["current_node"] == "check"]
        assert told == ["pending", "satisfied"]

    def test_gate_that_was_not_reached_is_pending_and_so_is_every_gate_after_a_restart(
        self, kept: Host
    ) -> None:
        text = """digraph gated { start [shape=Mdiamond]; exit [shape=Msquare]
          plan [prompt="Plan", goal_gate=true]; make [prompt="Make", goal_gate=true, retry_target=plan]
          start -> plan -> make
          make -> exit [condition="preferred_label=done"]
          make -> plan [label=again, loop_restart=true] }"""
        script = [{"preferred_label": "again"}, {"preferred_label": "done"}]
        kept.run(Flow.from_dot(text, backend=Simulation({"make": script})), run_id="A17")
        forms = [kept.transfer.checkpoint_as("A17", "pipeline", at=n) for n in range(2, 7)]
        told = [(f["current_node"], *f["goal_gate_status"].values()) for f in forms]
        assert told == [
            ("start", "pending", "pending"),
            ("plan", "satisfied", "pending"),
            ("make", "pending", "pending"),
            ("plan", "satisfied", "pending"),
            ("make", "satisfied", "satisfied"),
        ]

    def test_waiting_for_a_person_is_where_the_pipeline_stands(self, kept: Host) -> None:
        kept.run(Flow.from_dot(REVIEW), run_id="A17")
        form = kept.transfer.checkpoint_as("A17", "pipeline")
        assert (form["current_node"], form["outcome"]) == ("ask", {"status": "waiting"})

    def test_events_have_five_fields_and_known_names_in_order(self, kept: Host, tmp_path: Path) -> None:
        review(kept, Flow.from_dot(REVIEW))
        events = events_in(kept.transfer.write_run_folder("A17", tmp_path))
        assert {frozenset(event) for event in events} == {
            frozenset({"type", "run_id", "timestamp", "node_id", "data"})
        }
        kinds = [event["type"] for event in events]
        assert set(kinds) <= EVENTS
        assert (kinds[0], kinds[-1]) == ("pipeline.started", "pipeline.completed")
        for once in ("human.waiting", "human.responded"):
            assert kinds.count(once) == 1
        for twice in ("parallel.fork", "parallel.join"):
            assert kinds.count(twice) == 2
        assert kinds.count("parallel.branch_completed") == 4
        assert kinds.count("checkpoint.saved") == len(kept.checkpoints("A17"))
        chosen = [e["data"]["reason"] for e in events if e["type"] == "edge.selected"]
        assert "retry_target" in chosen and "condition" in chosen and "answer" in chosen

    def test_restart_begins_a_folder_of_its_own_inside(self, kept: Host, tmp_path: Path) -> None:
        text = """digraph again { start [shape=Mdiamond]; exit [shape=Msquare]
          plan [prompt="Plan"]; make [prompt="Work"]
          start -> plan -> make
          make -> exit [condition="preferred_label=done"]
          make -> plan [label=again, loop_restart=true] }"""
        script = [{"preferred_label": "again"}, {"preferred_label": "done"}]
        kept.run(Flow.from_dot(text, backend=Simulation({"make": script})), run_id="A17")
        folder = kept.transfer.write_run_folder("A17", tmp_path)
        assert load(folder / "status.json")["restarts"] == 1
        assert load(folder / "nodes/make/outcome.json")["preferred_label"] == "again"
        assert load(folder / "restart-2/nodes/make/outcome.json")["preferred_label"] == "done"
        assert events_in(folder / "restart-2")[-1]["type"] == "pipeline.completed"
        assert load(folder / "restart-2/checkpoint.json")["current_node"] == "exit"
        numbers = [int(p.name[:3]) for p in sorted((folder / "restart-2/checkpoints").iterdir())]
        assert numbers == list(range(numbers[0], len(kept.checkpoints("A17")) + 1)) and numbers[0] > 1

    def test_failed_pipeline_says_why(self, kept: Host, tmp_path: Path) -> None:
        text = SHORT.replace("prompt", "simulate=fail, prompt")
        kept.run(Flow.from_dot(text), run_id="A17")
        folder = kept.transfer.write_run_folder("A17", tmp_path)
        assert "[simulated] make: fail" in load(folder / "status.json")["error"]["message"]
        assert load(folder / "nodes/make/outcome.json")["status"] == "fail"
        assert events_in(folder)[-1]["type"] == "pipeline.failed"
        form = kept.transfer.checkpoint_as("A17", "pipeline")
        assert form["current_node"] == "make" and form["outcome"]["status"] == "fail"

    def test_run_that_failed_and_was_resumed_says_both(self, kept: Host, tmp_path: Path) -> None:
        is_fixed: list[bool] = []

        def work(stage: Stage) -> Outcome:
            return Outcome(response="done") if is_fixed else Outcome.fail("not yet")

        flow = Flow.from_dot(SHORT, backend=work)
        assert kept.run(flow, run_id="A17").status == "failed"
        is_fixed.append(True)
        assert kept.resume("A17", flow).status == "completed"
        folder = kept.transfer.write_run_folder("A17", tmp_path)
        told = [e["type"] for e in events_in(folder) if e["type"].startswith(("pipeline.", "checkpoint.l"))]
        assert told == [
            *("pipeline.started", "pipeline.failed", "checkpoint.loaded"),
            *("pipeline.resumed", "pipeline.completed"),
        ]
        assert (folder / "nodes/make/response.md").read_text() == "done"
        assert load(folder / "status.json")["error"] is None

    def test_attempts_are_told(self, kept: Host, tmp_path: Path) -> None:
        text = """digraph flaky { start [shape=Mdiamond]; exit [shape=Msquare]
          make [simulate="retry/success", max_retries=2, prompt="W"]; start -> make -> exit }"""
        assert kept.run(Flow.from_dot(text), run_id="A17").status == "completed"
        events = events_in(kept.transfer.write_run_folder("A17", tmp_path))
        told = [event["type"] for event in events if event["node_id"] == "make"]
        assert told == ["node.retrying", "node.started", "node.completed", "edge.selected"]

    def test_leave_to_spend_more_is_an_answer_too(self, kept: Host, tmp_path: Path) -> None:
        def make(stage: Stage) -> str:
            assert stage.ctx is not None
            if stage.visit == 1 and stage.node == "plan":
                stage.ctx.spend(tokens=12)
            return "done"

        text = SHORT.replace("start ->", 'plan [prompt="P"]; "budget.tokens"="10"; start -> plan ->')
        flow = Flow.from_dot(text, backend=make)
        [wait] = kept.run(flow, run_id="A17").waits
        kept.answer(wait.id, {"approved": True})
        assert kept.resume("A17", flow).status == "completed"
        events = events_in(kept.transfer.write_run_folder("A17", tmp_path))
        told = [event["type"] for event in events if event["node_id"] == "make"]
        assert told == ["human.waiting", "human.responded", "node.started", "node.completed", "edge.selected"]

    def test_files_that_a_stage_names_are_not_copied(self, kept: Host, tmp_path: Path) -> None:
        made = Outcome(artifacts=("/etc/passwd",))
        kept.run(Flow.from_dot(SHORT, backend=Simulation({"make": made})), run_id="A17")
        folder = kept.transfer.write_run_folder("A17", tmp_path)
        assert load(folder / "nodes/make/artifacts/references.json") == ["/etc/passwd"]
        assert not [name for name in files_in(folder) if "passwd" in name]


@node(output="a")
def first(seed: int) -> int:
    return seed + 1


@node(output="b")
def second(a: int, ctx: Context) -> int:
    ctx.channel.set("note", "seen")
    return a + 1


@route(["third", END])
def again(b: int) -> str:
    return "third"


@node(output="c", retry=Retry(1, first=0.001))
def third(b: int, ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ValueError("once")
    return b + 1


PLAIN = Flow("plain", [first, second, again, third])


class TestAnyFlow:
    def test_nodes_without_stages_have_their_outcome(self, host: Host, tmp_path: Path) -> None:
        host.run(PLAIN, {"seed": 1}, run_id="P1")
        folder = host.transfer.write_run_folder("P1", tmp_path)
        assert load(folder / "nodes/first/outcome.json") == {"status": "success"}
        assert load(folder / "nodes/third/outcome.json") == {"status": "success", "retries": 1}
        assert not (folder / "nodes/first/prompt.md").exists()
        events = events_in(folder)
        assert {event["type"] for event in events} <= EVENTS
        selected = [e["data"] for e in events if e["type"] == "edge.selected"]
        assert selected == [{"to": "third", "reason": "decision"}]
        last = load(max((folder / "checkpoints").iterdir()))
        assert last["context"]["c"] == 4 and last["context"]["note"] == "seen"

    def test_structure_is_drawn_where_there_is_no_text(self, kept: Host, tmp_path: Path) -> None:
        kept.run(PLAIN, {"seed": 1}, run_id="P1")
        drawn = read((kept.transfer.write_run_folder("P1", tmp_path) / "pipeline.dot").read_text(), "")
        assert [n.attributes.text("label", "") for n in drawn.nodes.values()] == [
            "first",
            "second",
            "again",
            "third",
        ]
        assert {(e.tail, e.head) for e in drawn.edges} >= {("n0", "n1"), ("n2", "n3")}

    def test_maps_and_inner_flows_have_nodes_of_their_own(self, kept: Host, tmp_path: Path) -> None:
        @node(output="twice")
        def double(item: int) -> int:
            return item * 2

        flow = Flow("maps", [double.map_over("item")])
        kept.run(flow, {"item": [1, 2, 3]}, run_id="M1")
        folder = kept.transfer.write_run_folder("M1", tmp_path)
        assert {"double#0", "double#1", "double#2", "double"} == {
            p.name for p in (folder / "nodes").iterdir()
        }


class TestWriting:
    def test_done_again_it_is_the_same(self, kept: Host, tmp_path: Path) -> None:
        review(kept, Flow.from_dot(REVIEW))
        one = kept.transfer.write_run_folder("A17", tmp_path / "one")
        before = {name: (one / name).read_bytes() for name in files_in(one)}
        assert kept.transfer.write_run_folder("A17", tmp_path / "one") == one
        assert {name: (one / name).read_bytes() for name in files_in(one)} == before

    def test_text_of_the_pipeline_stays_when_it_is_not_given_again(self, kept: Host, tmp_path: Path) -> None:
        review(kept, Flow.from_dot(REVIEW))
        folder = kept.transfer.write_run_folder("A17", tmp_path, pipeline=REVIEW)
        kept.transfer.write_run_folder("A17", tmp_path)
        assert (folder / "pipeline.dot").read_text() == REVIEW

    def test_written_step_by_step_it_is_the_same_as_afterwards(self, host: Host, tmp_path: Path) -> None:
        flow = Flow.from_dot(REVIEW)
        host.start(flow, run_id="A17")
        is_over = threading.Event()
        made: list[Path] = []

        def follow() -> None:
            made.append(host.transfer.write_run_folder("A17", tmp_path / "live", until=is_over.is_set))

        thread = threading.Thread(target=follow)
        thread.start()
        [wait] = host.resume("A17", flow).waits
        until_there(tmp_path / "live", "checkpoints/013_ask.json")
        host.answer(wait.id, "yes")
        host.resume("A17", flow)
        is_over.set()
        thread.join(10)
        assert_same(made[0], host.transfer.write_run_folder("A17", tmp_path / "after"))

    def test_half_a_run_is_gone_on_with_elsewhere(self, kept: Host, tmp_path: Path) -> None:
        flow = Flow.from_dot(REVIEW)
        [wait] = kept.run(flow, run_id="A17").waits
        kept.transfer.write_run_folder("A17", tmp_path / "here")
        kept.answer(wait.id, "no")
        kept.transfer.copy(f"file://{tmp_path}/there", ["A17"], move=True)
        with Host(f"file://{tmp_path}/there") as there:
            [wait] = there.resume("A17", flow).waits
            there.answer(wait.id, "yes")
            there.resume("A17", flow)
            one = there.transfer.write_run_folder("A17", tmp_path / "here")
            assert_same(one, there.transfer.write_run_folder("A17", tmp_path / "anew"))
            assert load(one / "nodes/ask/visits/1/outcome.json")["preferred_label"] == "No"

    def test_fork_tells_what_it_shares(self, kept: Host, tmp_path: Path) -> None:
        flow = Flow.from_dot(REVIEW)
        review(kept, flow)
        kept.fork("A17", at=5, fork_id="F1")
        kept.resume("F1", flow)
        folder = kept.transfer.write_run_folder("F1", tmp_path)
        assert load(folder / "manifest.json")["parent_run_id"] == "A17"
        assert (folder / "checkpoints/002_start.json").exists()

    def test_run_whose_first_checkpoints_are_gone_begins_with_what_is_left(
        self, kept: Host, tmp_path: Path
    ) -> None:
        review(kept, Flow.from_dot(REVIEW))
        review(kept, Flow.from_dot(REVIEW), "B18")
        kept.retention.gc(retention=Retention.tiers(whole=1, last_checkpoint=2))
        left = [c.sequence for c in kept.checkpoints("A17") if c.trigger]
        folder = kept.transfer.write_run_folder("A17", tmp_path)
        assert len(list((folder / "checkpoints").iterdir())) == len(left) == 1
        assert load(folder / "status.json")["status"] == "completed"

    def test_two_may_not_write_one_folder(self, kept: Host, tmp_path: Path) -> None:
        kept.run(PLAIN, {"seed": 1}, run_id="P1")
        is_over, refused = threading.Event(), []
        thread = threading.Thread(
            target=lambda: kept.transfer.write_run_folder("P1", tmp_path / "out", until=is_over.is_set)
        )
        thread.start()
        until_there(tmp_path / "out", "status.json")
        try:
            kept.transfer.write_run_folder("P1", tmp_path / "out")
        except BadRequest as error:
            refused.append(str(error))
        is_over.set()
        thread.join(10)
        assert refused and "another process" in refused[0]

    def test_folder_that_cannot_be_written_is_said_so(self, kept: Host, tmp_path: Path) -> None:
        kept.run(PLAIN, {"seed": 1}, run_id="P1")
        (tmp_path / "taken").write_text("")
        with pytest.raises(StoreError, match="cannot be written"):
            kept.transfer.write_run_folder("P1", tmp_path / "taken")

    def test_run_that_is_not_there_makes_no_folder(self, kept: Host, tmp_path: Path) -> None:
        with pytest.raises(RunNotFound):
            kept.transfer.write_run_folder("unknown", tmp_path / "out")
        with pytest.raises(BadRequest):
            kept.transfer.write_run_folder("../../etc", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_following_can_be_cancelled(self, tmp_path: Path) -> None:
        async def follow() -> None:
            async with AsyncHost(f"sqlite:///{tmp_path}/runs.db") as host:
                await host.run(PLAIN, {"seed": 1}, run_id="P1")
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await host.transfer.write_run_folder("P1", tmp_path / "out", until=lambda: False)
                await host.transfer.write_run_folder("P1", tmp_path / "out")

        asyncio.run(follow())


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.01)


def until_there(folder: Path, name: str) -> None:
    until(lambda: any(folder.glob(f"*/{name}")))


def calls() -> list[str]:
    return Path("calls").read_text().splitlines()


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_names_from_a_pipeline_lead_nowhere_else(kept: Host, tmp_path: Path) -> None:
    odd = ["A", "a", "con", "x" * 100, "x" * 101, "nodes", "_", "a.b", "a-b"]
    ids = " ".join(f'"{name}" [prompt="p"];' for name in odd)
    chain = " -> ".join(f'"{name}"' for name in odd)
    text = f"digraph odd {{ start [shape=Mdiamond]; exit [shape=Msquare]; {ids} start -> {chain} -> exit }}"
    asked: list[str] = []

    def answer(stage: Stage) -> str:
        asked.append(stage.node)
        return stage.node

    assert kept.run(Flow.from_dot(text, backend=answer), run_id="A17").status == "completed"
    folder = kept.transfer.write_run_folder("A17", tmp_path / "out")
    found = [path for path in (folder / "nodes").iterdir() if (path / "response.md").exists()]
    assert sorted((path / "response.md").read_text() for path in found) == sorted(asked)
    assert len({path.name.lower() for path in found}) == len(odd)
    assert {path.name for path in tmp_path.iterdir()} <= {
        "out",
        "runs.db",
        "runs.db-wal",
        "runs.db-shm",
        "runs.db.lock",
    }
    assert [path.name for path in (tmp_path / "out").iterdir()] == [folder.name]


class TestCommandLine:
    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("review.dot").write_text(REVIEW)

    def said(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli, [*words], catch_exceptions=False, standalone_mode=False)
        assert (done.return_value or 0) == code, done.output
        return done.output

    def test_run_and_resume_write_the_folder(self, tmp_path: Path) -> None:
        text = self.said(
            "run", "review.dot", "--run-id", "A17", "--run-dir", "runs", "--store", "r.db", code=3
        )
        [folder] = Path("runs").iterdir()
        assert f"run folder {folder}" in text
        assert (folder / "pipeline.dot").read_text() == REVIEW
        assert load(folder / "status.json")["status"] == "halted"
        with Host(f"sqlite:///{tmp_path}/r.db") as host:
            [wait] = host.waits(run_id="A17")
            host.answer(wait.id, "yes")
        told = self.said("resume", "A17", "--run-dir", "runs", "--store", "r.db", "--json", "--quiet")
        assert json.loads(told)["run_folder"] == str(folder)
        assert load(folder / "status.json")["status"] == "completed"
        self.said("export", "A17", "other", "--form", "folder", "--flow", "review.dot", "--store", "r.db")
        assert_same(folder, next(Path("other").iterdir()))

    def test_completed_run_is_written_though_nothing_is_run(self) -> None:
        words = ("run", "review.dot", "--auto-approve", "--run-id", "A17", "--store", "r.db", "--quiet")
        self.said(*words)
        self.said(*words, "--run-dir", "runs")
        assert load(next(Path("runs").iterdir()) / "status.json")["status"] == "completed"

    def test_export_says_where_it_is(self) -> None:
        self.said("run", "review.dot", "--auto-approve", "--run-id", "A17", "--store", "r.db", "--quiet")
        done = CliRunner().invoke(
            export, ["A17", "--form", "folder", "--store", "r.db", "--json"], standalone_mode=False
        )
        assert Path(json.loads(done.stdout)["path"]).parent == Path("runs")

    def test_folder_that_cannot_be_written_harms_no_run(self) -> None:
        Path("taken").write_text("")
        text = self.said(
            "run", "review.dot", "--auto-approve", "--run-id", "A17", "--run-dir", "taken", "--store", "r.db"
        )
        assert "the run folder was not written: " in text and "A17 completed" in text

    def test_run_that_is_only_accepted_has_no_folder(self) -> None:
        with pytest.raises(BadRequest, match="drives nothing"):
            self.said("run", "review.dot", "--start", "--run-dir", "runs", "--store", "r.db")

    @pytest.mark.parametrize("kills", [True, False])
    def test_killed_or_interrupted_run_leaves_no_command_and_its_folder_is_gone_on_with(
        self, kills: bool
    ) -> None:
        Path("work.sh").write_text(
            'echo "$$ $EVERSTEP_NODE $EVERSTEP_IDEMPOTENCY_KEY" >> calls\n'
            '[ "$EVERSTEP_NODE" != a ] || [ -e go ] || sleep 60; echo done\n'
        )
        env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
        words = ["--backend", "shell:sh work.sh", "--auto-approve", "--run-dir", "runs", "--store", "r.db"]
        command = [sys.executable, "-m", "everstep", "run", "review.dot", "--run-id", "A17", *words]
        driver = warm.Process(command, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until_there(Path("runs"), "nodes/plan/response.md")
        until(lambda: " a " in Path("calls").read_text())
        os.kill(driver.pid, signal.SIGKILL if kills else signal.SIGINT)
        assert driver.wait(10) == (-signal.SIGKILL if kills else 130)
        until(lambda: not any(map(is_alive, [int(call.split()[0]) for call in calls()])))
        Path("go").touch()
        Path("review.dot").write_text(REVIEW)
        self.said("resume", "A17", "--quiet", *words)
        [folder] = Path("runs").iterdir()
        self.said("export", "A17", "other", "--form", "folder", "--flow", "review.dot", "--store", "r.db")
        assert_same(folder, next(Path("other").iterdir()))
        repeated = [call.split()[2] for call in calls() if " a " in call][:2]
        assert repeated[0] == repeated[1], "the key of a visit stays, also after a crash"
