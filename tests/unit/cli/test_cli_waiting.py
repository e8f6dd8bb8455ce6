"""How the command line writes spans, waits and answers, and what it draws while a run halts."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from everstep import Flow, Host, node, wait
from everstep.cli.commands.waits.ask import GivenAnswer, answer_of
from everstep.cli.live.progress import Lines
from everstep.cli.live.tree import LiveTree
from everstep.cli.live.watching import Watcher
from everstep.cli.view.waits import ago, due_in, due_said, rough, short
from everstep.errors import BadRequest
from everstep.results import RunState
from everstep.runtime.events import Event

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=59.4), "59s"),
        (timedelta(seconds=61), "1m 1s"),
        (timedelta(minutes=3, seconds=20), "3m"),
        (timedelta(hours=2), "2h"),
        (timedelta(hours=2, minutes=5, seconds=9), "2h 5m"),
        (timedelta(days=2, hours=4, minutes=59), "2d 4h"),
        (timedelta(days=2, minutes=59), "2d"),
        (timedelta(days=400), "400d"),
    ],
)
def test_a_span_is_written_by_its_largest_units(span: timedelta, text: str) -> None:
    assert rough(span) == text


def test_a_due_time_is_written_from_now_on() -> None:
    assert due_in(None, NOW) == due_said(None, NOW) == ""
    assert due_in(NOW + timedelta(days=2, hours=4), NOW) == "in 2d 4h"
    assert (
        due_in(NOW - timedelta(minutes=3), NOW) == due_said(NOW - timedelta(minutes=3), NOW) == "overdue 3m"
    )
    assert due_said(NOW + timedelta(milliseconds=5), NOW) == "due now"
    assert ago(NOW - timedelta(minutes=3), NOW) == "3m ago"
    assert ago(NOW, NOW) == "just now"


def test_only_uuids_are_cut_short() -> None:
    assert short("8e75d88e-84fd-4d7d-9fa5-891ef6bd8922") == "8e75d88e"
    assert short("a-wait-of-my-own") == "a-wait-of-my-own"


def test_a_halt_node_of_your_own_takes_any_form_of_answer() -> None:
    @node(halts=True, output="said")
    def ask() -> wait.Wait:
        return wait.Wait(kind="poll", prompt="Well?")

    with Host("memory:") as host:
        [asked] = host.run(Flow("own", [ask])).waits
    assert answer_of(asked, GivenAnswer(words='{"a": 1}')) == {"a": 1}
    assert answer_of(asked, GivenAnswer(says_yes=False)) is False
    assert answer_of(asked, GivenAnswer(text="7")) == "7"
    with pytest.raises(BadRequest, match="waits for an answer"):
        answer_of(asked, GivenAnswer(approves=True))


ITEMS = Flow("item", [wait.approval("ok", context="x", timeout="2h")])


@node(output="start")
def begin() -> int:
    return 1


FLOW = Flow(
    "both",
    [
        begin,
        wait.approval("sign", context="start", timeout="3d"),
        ITEMS.as_node(name="each").map_over("x"),
    ],
)


def drive(watcher: Watcher, host_of: list[Host]) -> RunState:
    host = Host("memory:", on_event=watcher)
    host_of.append(host)
    host.run(FLOW, {"x": [1, 2, 3]}, run_id="A")
    return host.state("A")


def said_of(event: Event) -> str:
    return f"how to answer {event.node}"


def drawn(tree: LiveTree) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(tree.draw())
    return out.getvalue()


def test_the_tree_shows_what_is_waited_for_and_how_to_answer() -> None:
    tree = LiveTree(FLOW, Console(file=io.StringIO(), width=100, height=30), how=said_of)
    hosts: list[Host] = []
    drive(tree, hosts)
    tree.stop()
    shown = drawn(tree)
    assert tree.is_halted
    assert "‖ sign" in shown
    assert "waits for an approval, due in " in shown
    assert "0 of 3 items, 3 waiting" in shown
    assert "sign: how to answer sign" in shown
    assert "each#0/ok: how to answer each#0/ok" in shown
    [sign] = [w for w in hosts[0].waits("A") if w.node == "sign"]
    hosts[0].answer(sign.id, {"approved": True})
    hosts[0].resume("A", FLOW)
    tree.stop()
    after = drawn(tree)
    assert "✓ sign" in after
    assert "how to answer sign" not in after
    hosts[0].close()


def test_a_run_that_halted_before_is_recalled_as_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    hosts: list[Host] = []
    state = drive(Lines(FLOW), hosts)
    capsys.readouterr()
    tree = LiveTree(FLOW, Console(file=io.StringIO(), width=100, height=30))
    tree.recall(lambda: state)
    assert "waits for an approval, due in " in drawn(tree)
    assert "3 waiting" in drawn(tree)
    lines = Lines(FLOW, how=said_of)
    lines.recall(lambda: state)
    lines(Event(kind="run_halted", run_id="A", at=NOW, data={"waits": 4}))
    said = capsys.readouterr().err
    assert "‖ sign  waits for an approval until" in said
    assert "how to answer sign" in said
    assert lines.is_halted
    hosts[0].close()


def test_clocks_that_differ_make_no_negative_time() -> None:
    assert rough(timedelta(minutes=-30)) == "0s"
