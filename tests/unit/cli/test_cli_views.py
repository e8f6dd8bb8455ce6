"""What the commands draw: the outline of a flow, the live tree, tables, and the values of steps."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from everstep import Flow, Host, ifelse, node
from everstep.cli.args.loading import load_flow
from everstep.cli.commands.runs.list import SPARE
from everstep.cli.commands.runs.step import Search, show_step
from everstep.cli.live.progress import describe
from everstep.cli.live.tree import LiveTree
from everstep.cli.view.lookup import Lookup
from everstep.cli.view.table import Cell, layout, narrowed
from everstep.cli.view.text import Unreadable
from everstep.client.outline import split_pending
from everstep.client.projection import fold
from everstep.errors import BadRequest, FlowError
from everstep.graph.draw.outline import outline
from everstep.model.durability import DurabilityMode
from everstep.runtime.events import Event


@node(output="draft")
def write(topic: str, draft: str = "") -> str:
    return draft + topic


@ifelse(when_true="write", when_false="publish")
def is_short(draft: str) -> bool:
    return len(draft) < 3


@node(output="page")
def publish(draft: str) -> str:
    return draft.upper()


@node(output="seen")
def read(topic: str) -> int:
    return len(topic)


@node(output="receipt", effects="effectful", idempotency_key="auto")
def pay(topic: str) -> str:
    return topic


def essay(durability: DurabilityMode = "strong") -> Flow:
    nodes = [publish, is_short, read, write]
    return Flow("essay", nodes, entry="write", durability=durability, max_concurrency=1)


def event(kind: Any, name: str = "", visit: int = 1, attempt: int = 1, **data: object) -> Event:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Event(kind=kind, run_id="r1", at=at, node=name, visit=visit, attempt=attempt, data=data)


def test_outline_is_upstream_first_and_nests_what_a_gate_leads_to() -> None:
    assert outline(essay().plan) == [("read", 0), ("write", 0), ("is_short", 0), ("publish", 1)]


def test_every_node_is_in_the_outline_once() -> None:
    plan = essay().plan
    assert sorted(place.name for place in outline(plan)) == sorted(plan.paths)


def drawn(tree: LiveTree) -> list[str]:
    console = Console(file=io.StringIO(), width=100, height=30)
    with console.capture() as capture:
        console.print(tree.draw())
    return capture.get().splitlines()


def test_live_tree_shows_state_visits_attempts_and_errors() -> None:
    tree = LiveTree(essay(), Console(file=io.StringIO(), width=100, height=30))
    tree(event("run_started", flow="essay"))
    tree(event("step_started", "read"))
    tree(event("step_completed", "read", seconds=0.25))
    tree(event("step_started", "write", visit=3))
    tree(event("step_started", "is_short", attempt=2))
    tree(event("step_retrying", "is_short", attempt=2, seconds=0.1, error="ValueError: a\nb"))
    head, *lines = drawn(tree)
    assert head == "essay  run r1"
    assert lines[0].startswith("├─ ✓ read")
    assert lines[0].endswith("250 ms")
    assert lines[1].startswith("├─ ▶ write")
    assert lines[1].endswith("×3")
    assert lines[2].startswith("├─ ↻ is_short")
    assert lines[2].endswith("attempt 2  ValueError: a b")
    tree(event("step_failed", "is_short", attempt=2, seconds=0.1, error="ValueError: a\nb"))
    assert drawn(tree)[3].endswith("attempt 2  ValueError")
    assert lines[3].startswith("└─   · publish")
    assert tree.run_id == "r1"
    tree.stop()


def test_a_stream_that_was_kept_and_a_call_to_be_made_again_are_no_failures() -> None:
    tree = LiveTree(essay(), Console(file=io.StringIO(), width=100, height=30))
    tree(event("run_started", flow="essay"))
    tree(event("step_started", "read"))
    tree(event("chunk", "read", chunk="a line"))
    tree(event("streamed", "read", chunks=3, cursor="3", seconds=0.1))
    tree(event("step_retrying", "write"))
    _, *lines = drawn(tree)
    assert lines[0].startswith("├─ ▶ read") and lines[0].endswith("a line")
    assert lines[1].startswith("├─ ↻ write") and lines[1].endswith("it is called again")
    assert describe(event("streamed", "read", chunks=3, cursor="3", seconds=0.1), in_full=True) == ""
    assert "will be called again" in describe(event("step_retrying", "write"), in_full=True)
    tree.stop()


def test_what_a_node_says_or_spends_is_no_failure_and_what_guards_say_is_told() -> None:
    tree = LiveTree(essay(), Console(file=io.StringIO(), width=100, height=30))
    tree(event("run_started", flow="essay"))
    tree(event("step_started", "read"))
    tree(event("emitted", "read", done="half"))
    tree(event("spent", "read", spent={"usd": "1.20"}))
    warned = event("budget_warned", budgets={"usd": {"spent": "4.10", "limit": "5.00"}})
    tree(warned)
    _, *lines = drawn(tree)
    assert lines[0].startswith("├─ ▶ read")
    assert lines[-1].strip() == "! 4.10 of 5.00 usd spent"
    assert describe(warned) == "  ! 4.10 of 5.00 usd spent"
    opened = event("breaker_opened", breakers={"api": {"reason": "2 calls in a row failed", "trips": 1}})
    assert describe(opened) == "  ! breaker api opens: 2 calls in a row failed"
    tree.stop()


def test_live_tree_of_a_resumed_run_shows_what_was_done_before(host: Host) -> None:
    host.run(essay(), {"topic": "a"}, run_id="r1")
    tree = LiveTree(essay(), Console(file=io.StringIO(), width=100, height=30))
    tree.recall(lambda: host.state("r1", at=5))
    tree(event("run_resumed", flow="essay", sequence=5, steps=4))
    head, *lines = drawn(tree)
    assert head == "essay  run r1 resumed at checkpoint 5, 4 steps were already done"
    assert [" ".join(line.split()) for line in lines] == [
        "├─ – read done before",
        "├─ – write done before ×2",
        "├─ – is_short done before",
        "└─ · publish",
    ]
    tree.stop()


def test_live_tree_draws_nothing_before_something_happens_and_each_step_at_once() -> None:
    out = io.StringIO()
    tree = LiveTree(essay(), Console(file=out, width=100, height=30, force_terminal=True))
    tree.stop()
    assert out.getvalue() == ""
    tree(event("step_started", "read"))
    tree(event("step_completed", "read", seconds=0.25))
    assert "250 ms" in out.getvalue()
    tree.stop()


def test_live_tree_draws_an_effect_before_it_is_attempted() -> None:
    out = io.StringIO()
    tree = LiveTree(Flow("pay", [pay]), Console(file=out, width=100, height=30, force_terminal=True))
    tree(event("run_started", flow="pay"))
    tree(event("step_started", "pay"))
    assert "▶" in out.getvalue()
    tree.stop()


def test_live_tree_of_a_flow_taller_than_the_screen_shows_what_is_under_way() -> None:
    nodes = [read.with_name(f"n{k}").with_outputs(f"o{k}") for k in range(100)]
    tree = LiveTree(Flow("tall", nodes), Console(file=io.StringIO(), width=80, height=20))
    tree(event("step_started", "n77"))
    lines = drawn(tree)
    tree.stop()
    assert len(lines) < 20
    assert any("▶ n77" in line for line in lines)
    assert lines[-1].endswith("86 more nodes")


def test_resumed_run_says_where_it_goes_on() -> None:
    said = describe(event("run_resumed", flow="essay", sequence=4, steps=3))
    assert said == "run r1 of essay resumed at checkpoint 4, 3 steps were already done"


def test_table_is_aligned_and_cut_at_the_edge_of_the_screen() -> None:
    rows = [[Cell("a"), Cell("long text here")], [Cell("bbb"), Cell("c")]]
    assert layout(rows, None) == ["a    long text here", "bbb  c"]
    assert layout(rows, 10) == ["a    long…", "bbb  c"]
    assert layout([], 10) == []


@node(output="squares")
def square(n: int) -> dict[str, int]:
    return {"number": n, "square": n * n}


def test_a_step_that_wrote_a_long_list_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    with Host("memory:") as host:
        numbers = list(range(2000))
        host.run(
            Flow("f", [square.map_over("n")]),
            {"n": numbers},
            run_id="r",
        )
        show_step(host, "r", "square", whole=False, as_json=False)
        short = capsys.readouterr().out
        show_step(host, "r", "square", whole=True, as_json=False)
        whole = capsys.readouterr().out
    assert len(short.splitlines()) < 80
    assert "of 2,000 items; --full shows all" in short
    assert str(1999 * 1999) in whole and "more line" not in whole


def test_a_narrow_terminal_shows_no_row_of_ellipses() -> None:
    def row(*texts: str) -> list[Cell]:
        return [Cell(text) for text in texts]

    head = row("run", "flow", "status", "started", "took", "checkpoints")
    run = row(
        "5f0c9e0a-7d0b-4a55-9f0e-2b1f6a1d3c77", "orders", "completed", "2030-01-01 10:00:00", "3 s", "4"
    )
    for width in (20, 40, 60, 80, 100):
        lines = layout(narrowed([head, run], width, SPARE), width)
        assert all(len(line) <= width and "…  …" not in line for line in lines)
    lines = layout(narrowed([head, run], 60, SPARE), 60)
    assert lines[1] == "5f0c9e0a-7d0b-4a55-9f0e-2b1f6a1d3c77  orders  completed"
    assert layout([run], 60)[0].startswith("5f0c9e0a-7d0b-…  orders")


def test_lookup_finds_every_version_of_a_rewritten_value(host: Host) -> None:
    host.run(essay(), {"topic": "a"}, run_id="r1")
    lookup = Lookup(host, "r1", [step for record in host.history("r1") for step in record.steps])
    assert [lookup.value("draft", version) for version in (1, 2, 3)] == ["a", "aa", "aaa"]
    assert lookup.value("topic", 1) == "a"


def test_lookup_finds_a_version_that_was_overwritten_within_its_checkpoint(host: Host) -> None:
    host.run(essay("partial"), {"topic": "a"}, run_id="r1")
    lookup = Lookup(host, "r1", [step for record in host.history("r1") for step in record.steps])
    assert [lookup.value("draft", version) for version in (1, 3)] == ["a", "aaa"]
    assert isinstance(lookup.value("draft", 9), Unreadable)


def test_step_is_found_by_checkpoint_node_and_visit(host: Host) -> None:
    host.run(essay(), {"topic": "a"}, run_id="r1")
    records = host.history("r1")

    def visits(wanted: str) -> list[tuple[str, int]]:
        return [(step.path, step.visit) for _, step in Search([records], wanted).steps([records])]

    assert visits("1") == [("@inputs", 1)]
    assert visits("write") == [("write", 3)]
    assert visits("write@2") == [("write", 2)]
    assert visits("inputs") == visits("@inputs") == [("@inputs", 1)]
    assert visits("write@9") == visits("write@x") == visits("unknown") == visits("99") == []


def test_what_comes_next_is_told_from_what_waits_for_it() -> None:
    plan = essay().plan
    assert split_pending(plan, ["publish", "write", "read"]) == (["write", "read"], ["publish"])
    assert split_pending(plan, ["is_short"]) == (["is_short"], [])
    assert split_pending(plan, []) == ([], [])


def test_nodes_are_folded_in_the_order_they_ran_with_the_pending_ones_last(host: Host) -> None:
    host.run(essay(), {"topic": "a"}, run_id="r1")
    lines = fold(host.history("r1"), ["later"])
    assert {line.name: line.visits for line in lines} == {
        "read": 1,
        "write": 3,
        "is_short": 3,
        "publish": 1,
        "later": 0,
    }
    assert lines[-1].name == "later"


@pytest.fixture
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


SOURCE = "from everstep import Flow, node\n@node(output='b')\ndef f(a): return a\n"


@pytest.mark.usefixtures("clean_imports")
def test_file_is_loaded_under_its_stem_with_its_folder_first(tmp_path: Path) -> None:
    (tmp_path / "cli_neighbour.py").write_text("name = 'mine'\n")
    file = tmp_path / "cli_loaded.py"
    file.write_text(SOURCE + "import cli_neighbour\nalias = flow = Flow(cli_neighbour.name, [f])\n")
    assert load_flow(str(file)).name == "mine"
    assert load_flow(f"{file}:mine") is load_flow(f"{file}:alias") is sys.modules["cli_loaded"].flow
    assert sys.path[0] == str(tmp_path)


@pytest.mark.usefixtures("clean_imports")
def test_file_that_would_hide_another_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(SOURCE + "flow = Flow('x', [f])\n")
    with pytest.raises(BadRequest, match="another module has that name"):
        load_flow(str(tmp_path / "json.py"))


@pytest.mark.usefixtures("clean_imports")
def test_file_that_raises_shows_only_its_own_frames(tmp_path: Path) -> None:
    file = tmp_path / "cli_raises.py"
    file.write_text("def inner():\n    return 1 / 0\ninner()\n")
    with pytest.raises(FlowError) as raised:
        load_flow(str(file))
    trace = str(raised.value.details["traceback"])
    assert trace.count("File ") == trace.count(str(file)) == 2
    assert trace.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("spec", ["x.py:", ":flow", "no_such_module_here:flow", "/no/such/file.py"])
def test_spec_that_leads_nowhere_is_refused(spec: str) -> None:
    with pytest.raises(BadRequest):
        load_flow(spec)
