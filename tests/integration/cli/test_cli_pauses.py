"""What a terminal says of runs that are paused, each by itself or with its flow or group."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everstep import Host
from everstep.cli.args.loading import load_flow
from everstep.cli.main import cli
from everstep.cli.view.pauses import pause_of
from everstep.errors import RunPaused

FLOWS = """
from everstep import Flow, Host, Retry, node, wait

@node(output="a")
def first(x: int) -> int:
    return x

@node(output="b", retry=Retry(1, first=3600))
def pausing(a: int) -> int:
    with Host("sqlite:///.everstep/runs.db") as host:
        host.fleet.pause("p1", by="bob", comment="a look")
    raise OSError("not now")

@node(effects="effectful", idempotency_key="auto", on_unknown="stop")
def charge(x: int) -> int:
    raise KeyboardInterrupt

orders = Flow("orders", [first])
self_paused = Flow("self_paused", [first, pausing])
asking = Flow("asking", [wait.approval("ok", prompt="Pay?")])
charging = Flow("charging", [charge])
"""
LOOK = "by bob: a look, since "


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "pausable", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))  # puts back what loading the file changes
    (tmp_path / "pausable.py").write_text(FLOWS)
    monkeypatch.setenv("EVERSTEP_AS", "ann")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(os, "_exit", sys.exit)
    with Host("sqlite:///.everstep/runs.db") as opened:
        yield opened


def shell(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words], standalone_mode=False)


def said(*words: str, code: int = 0) -> str:
    done = shell(*words)
    ended = done.return_value or done.exit_code
    assert ended == code, (done.output, done.exception)
    return done.output


def accept(*more: str, run_id: str = "o1") -> str:
    return said("run", "pausable.py:orders", "-i", "x=1", "--run-id", run_id, "--start", *more)


def test_a_run_that_is_let_go_of_says_who_paused_it_and_how_it_goes_on(host: Host) -> None:
    text = said("run", "pausable.py:self_paused", "-i", "x=1", "--run-id", "p1", code=3)
    assert "run p1 paused: 1 step in " in text and "running" not in text
    assert f"paused {LOOK}" in text and "Let it go on: everstep unpause p1\n" in text
    assert "then a worker goes on with it, or: everstep resume p1 pausable.py:self_paused\n" in text
    for command in ("show", "log"):
        shown = said(command, "p1")
        assert LOOK in shown and "Let it go on: everstep unpause p1\n" in shown
    assert "running (paused)" in said("runs") and "p1" in said("runs", "--paused")
    refused = shell("resume", "p1").exception
    assert isinstance(refused, RunPaused) and "everstep unpause p1" in refused.fix
    left = said("resume", "p1", "--for-workers")
    assert left.startswith(f"run p1 is paused {LOOK}") and "when a worker drives it" not in left
    lifted = said("unpause", "p1").splitlines()
    assert lifted == ["run p1 is paused no more", "a worker goes on with it, or: everstep resume p1"]


def test_a_run_of_a_paused_flow_is_shown_as_paused_with_it(host: Host) -> None:
    host.fleet.pause(flow="orders", by="bob", comment="a look")
    accepted = accept()
    assert "run o1 is accepted\n" in accepted and "a worker" not in accepted
    told = "with flow orders, by bob: a look, since "
    assert f"run o1 is paused {told}" in accepted
    assert "running (paused)" in said("runs")
    for command in ("show", "log"):
        assert told in said(command, "o1") and "everstep unpause --flow orders\n" in said(command, "o1")
    not_by_itself = said("unpause", "o1", code=1)
    assert "run o1 is not paused by that name\n" in not_by_itself and told in not_by_itself
    assert "flow orders is paused by bob: a look, since" in said("worker", "pausable.py:orders", "--once")
    assert said("unpause", "--flow", "orders") == "flow orders is paused no more\n"
    assert "paused" not in said("show", "o1")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--group", "acme"), "group acme"),
        (("--flow", "orders"), "flow orders"),
        (("--flow", "orders", "--group", "acme"), "group acme of flow orders"),
        (("--flow", "asking"), None),
        (("--group", "beta"), None),
    ],
)
def test_the_flow_or_group_that_holds_a_run_back_is_named(
    host: Host, words: tuple[str, ...], name: str | None
) -> None:
    accept("--group", "acme")
    said("pause", *words)
    shown = said("show", "o1")
    if name is None:
        assert "paused" not in shown
        return
    assert f"with {name}, by ann, since" in shown
    assert f"Let it go on: everstep unpause {' '.join(words)}\n" in shown
    assert pause_of(host, host.info("o1")) == host.fleet.pauses()[0]


def test_an_answer_to_a_paused_run_does_not_promise_that_it_goes_on(host: Host) -> None:
    said("run", "pausable.py:asking", "--run-id", "w1", code=3)
    said("pause", "w1", "--comment", "a look")
    answered = said("answer", "w1", "--approve")
    assert "a worker goes on" not in answered
    assert "run w1 is paused by ann: a look, since" in answered and "everstep unpause w1" in answered
    assert "a worker goes on with it, or: everstep resume w1" in said("unpause", "w1")


def test_a_run_that_waits_is_let_go_on_without_a_word_of_workers(host: Host) -> None:
    said("run", "pausable.py:asking", "--run-id", "w1", code=3)
    said("pause", "w1")
    assert said("unpause", "w1") == "run w1 is paused no more\n"


def test_a_settled_effect_of_a_paused_run_does_not_promise_that_it_goes_on(host: Host) -> None:
    charging = load_flow("pausable.py:charging")
    with pytest.raises(KeyboardInterrupt):
        host.run(charging, {"x": 1}, run_id="e1")
    host.resume("e1", charging)
    said("pause", "e1")
    settled = said("settle", "e1", "charge", "--rerun")
    assert "will be called again\n" in settled and "run e1 is paused by ann" in settled


def test_what_is_paused_is_listed_with_who_and_why(host: Host) -> None:
    accept()
    said("pause", "o1", "--comment", "a look")
    said("pause", "--group", "acme", "--by", "bob")
    head, lane, run = (line.split() for line in said("pauses").splitlines())
    assert head == ["paused", "since", "who", "comment"]
    assert lane[:2] == ["group", "acme"] and lane[-1] == "bob"
    assert run[:2] == ["run", "o1"] and run[-3:] == ["ann", "a", "look"]
    assert [one.run_id for one in host.fleet.pauses()] == [None, "o1"]
    assert [one.run_id for one in host.fleet.pauses(runs=False)] == [None]
    again = said("pause", "o1", "--by", "eve")
    assert again.startswith("run o1 is paused by ann: a look, since"), "the first pause counts"


def test_a_flow_without_runs_can_be_paused_and_that_is_told(host: Host) -> None:
    assert "no run is of flow ordres yet" in said("pause", "--flow", "ordres")
    accept()
    assert "no run is of flow" not in said("pause", "--flow", "orders")


def test_json_is_only_json(host: Host) -> None:
    accept()
    for words, keys in (
        (("pause", "o1"), {"run_id", "flow", "group", "since", "by"}),
        (("pause", "--flow", "other"), {"run_id", "flow", "group", "since", "by"}),
        (("pauses",), {"pauses"}),
        (("unpause", "o1"), {"unpaused"}),
    ):
        done = shell(*words, "--json")
        assert json.loads(done.stdout).keys() == keys and done.stderr == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_a_worker_tells_of_a_run_that_it_lets_go_of(host: Host, as_json: bool) -> None:
    said("run", "pausable.py:self_paused", "-i", "x=1", "--run-id", "p1", "--start")
    lines = said("worker", "pausable.py:self_paused", "--once", *["--json"][:as_json]).splitlines()
    if as_json:
        told = [json.loads(line) for line in lines if '"paused"' in line]
        assert [(one["event"], one.get("run_id")) for one in told] == [("paused", "p1"), ("stopped", None)]
        assert told[1]["paused"] == 1
    else:
        assert [line for line in lines if "paused     p1  self_paused" in line], lines
