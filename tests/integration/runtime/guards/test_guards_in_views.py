"""A caller that looks at a run sees what it spent, what is left, and how its breakers stand."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Breaker, Budget, Context, Flow, Host, Retry, Status, chain, node, report
from everstep.cli.main import cli
from everstep.testing import ManualClock

FLOW = """
from everstep import Breaker, Budget, Context, Flow, Retry, chain, node


@node(output="draft")
def write(ctx: Context):
    ctx.spend(usd="4.50", calls=1)
    return "draft"


@node(output="sent", retry=Retry(9, first=0), expensive=True)
def send(draft: str):
    raise ConnectionError("down")


flow = Flow(
    "paper",
    [write, send],
    budgets=[Budget("usd", "5.00")],
    breakers=[Breaker("api", failures=2, nodes="send"), Breaker("mail", failures=2, shared=True)],
)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paper.py").write_text(FLOW)
    yield tmp_path
    sys.modules.pop("paper", None)


def say(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == code, done.output
    return done.output


def ran(*, code: int = 3) -> None:
    done = CliRunner().invoke(cli, ["run", "paper.py", "--run-id", "P1", "--store", "runs.db"])
    assert done.exit_code in (0, code), done.output


def told(*words: str) -> Any:
    return json.loads(say(*words, "--store", "runs.db", "--json"))


def test_show_and_log_tell_of_budgets_and_breakers(place: Path) -> None:
    ran()
    shown = say("show", "P1", "--store", "runs.db")
    assert "4.50 of 5.00 usd (90%)" in shown and "1 calls" in shown
    assert "api open" in shown and "2 calls in a row failed" in shown
    guards = told("show", "P1")["guards"]
    assert guards["budgets"]["usd"] == {"spent": "4.50", "limit": "5.00", "raised": "0", "left": "0.50"}
    assert guards["breakers"]["api"]["state"] == "open" and guards["spent"]["calls"] == "1"
    log = say("log", "P1", "--store", "runs.db")
    assert "spends 4.50 usd, 1 calls" in log and "breaker api opens" in log and "may spend 5.00 usd" in log
    steps = [step for record in told("log", "P1")["checkpoints"] for step in record["steps"]]
    assert [step["spent"] for step in steps if step["spent"]] == [{"usd": "4.50", "calls": "1"}]
    assert [s["guards"]["limits"] for s in steps if s["guards"] and s["guards"].get("limits")] == [
        {"usd": "5.00"}
    ]


def test_a_command_lists_shared_breakers_and_closes_one(place: Path) -> None:
    assert say("breakers") == "no shared breakers\n"
    ran()
    assert "mail" in say("breakers", "--store", "runs.db")
    assert told("breakers")["breakers"]["mail"]["state"] == "open"
    assert "closed" in say("breakers", "--reset", "mail", "--store", "runs.db")
    refused = CliRunner().invoke(cli, ["breakers", "--reset", "unknown", "--store", "runs.db"])
    assert "no shared breaker 'unknown'" in str(refused.exception)


def test_the_report_says_what_a_flow_declares(place: Path) -> None:
    said = say("report", "paper.py")
    assert "budgets: 5.00 usd" in said and "breaker: api (send): 2 failures in a row" in said
    assert "checkpoint after: send" in said
    found = json.loads(say("report", "paper.py", "--json"))
    assert found["budgets"] == [{"name": "usd", "limit": "5.00", "warn_at": 0.8}]
    assert [breaker["name"] for breaker in found["breakers"]] == ["api", "mail"]


def test_the_answer_of_a_budget_is_given_at_a_shell(tmp_path: Path) -> None:
    @node(output="a_out")
    def a(ctx: Context) -> int:
        ctx.spend(usd=5)
        return 1

    @node(output="b_out")
    def b(a_out: int) -> int:
        return a_out

    flow = Flow("paid", [a, b], budgets={"usd": 5})
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with Host(url) as host:
        wait = host.run(flow, run_id="r").waits[0]
    said = say("answer", wait.id, '{"approved": true, "raise_by": "0.50"}', "--store", url)
    assert "approved" in said
    with Host(url) as host:
        result = host.resume("r", flow)
        assert result.status is Status.COMPLETED
        assert str(result.guards.budgets["usd"].limit) == "5.50"
        assert host.fleet.counts().spent == {}, "this host has driven nothing that spent"


def test_the_ir_of_a_guarded_flow_reads_back_alike() -> None:
    @node(output="out")
    def work() -> int:
        return 1

    flow = Flow(
        "guarded",
        [work],
        budgets=[Budget("usd", "0.10", warn_at=None), Budget("seconds", "90s")],
        breakers=[
            Breaker("all", failures=2, error_rate=0.5, window=4, cost={"usd": "1.5"}, duration="2h"),
            Breaker("one", nodes=work, changed_decision=True, trips=1, cooldown="5m", manual=True),
            Breaker("two", failures=3, shared=True),
        ],
    )
    again = Flow.from_ir(json.loads(json.dumps(flow.to_ir())), flow.functions())
    assert (again.budgets, again.breakers) == (flow.budgets, flow.breakers)
    assert report(again).to_json() == report(flow).to_json()


def test_a_resume_tells_what_had_been_spent() -> None:
    heard: list[Any] = []
    clock = ManualClock()

    @node(output="a_out")
    def a(ctx: Context) -> int:
        ctx.spend(usd="1.10")
        return 1

    @node(output="b_out", retry=Retry(0))
    def b() -> int:
        raise OSError("down")

    flow = Flow("f", chain(a, b))
    with Host("memory:", on_event=heard.append, clock=clock) as host:
        host.run(flow, run_id="r")
        host.resume("r", flow)
        assert [e.data["resume"]["spent"] for e in heard if e.kind == "run_resumed"] == [{"usd": "1.10"}]
        form = host.transfer.checkpoint_as("r", "phases")
        assert form["state_snapshot"]["cost_accumulated"] == 1.1
        assert host.fleet.counts().spent == {"usd": flow_cost(host)}


def flow_cost(host: Host) -> Any:
    return host.state("r").guards.spent["usd"]
