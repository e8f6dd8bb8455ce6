"""What commands say of runs that undo what they did, or have."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from everstep import Host
from everstep.cli.main import cli

SHOP = """
from pathlib import Path

from everstep import Flow, node, wait

CLOSED = Path(__file__).with_name("closed")


def release(order: str) -> None: ...


@node(undo=release)
def reserve(order: str) -> None: ...


def refund(charge: str) -> None:
    if CLOSED.exists():
        raise ConnectionError("the bank is closed.")


@node(output="charge", undo=refund)
def pay(order: str) -> str:
    return f"{order} for 8"


def unpack(part: str, box: str) -> None: ...


@node(output="box", undo=unpack)
def pack(part: str) -> str:
    return f"box of {part}"


@node(output="parcel")
def send(charge: str, box: list[str]) -> str:
    raise ValueError("no truck")


@node(effects="effectful", idempotency_key="auto")
def advertise(charge: str) -> None: ...


PARTS = pack.with_inputs(part="parts").map_over("part", max_concurrency=1)
shop = Flow("shop", [reserve >> pay >> PARTS, send])
asks = Flow("asks", [reserve >> pay >> PARTS, send], undo="ask")
halting = Flow("halting", [reserve >> pay, wait.approval("ok")])
loud = Flow("loud", [reserve >> pay >> advertise >> PARTS, send])
"""
GIVEN = ("--input", "order=chairs", "--input", 'parts=["a", "b"]')


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop_of_undo.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_of_undo", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))  # puts back what loading the file changes
    monkeypatch.setenv("EVERSTEP_STORE", "runs.db")
    return tmp_path


@pytest.fixture
def say(shop: Path) -> Callable[..., Result]:
    def called(*words: str) -> Result:
        return CliRunner().invoke(cli, list(words), standalone_mode=False)

    return called


def test_after_a_run_was_undone_a_fork_is_suggested_and_no_resume(say: Callable[..., Result]) -> None:
    done = say("run", "shop_of_undo.py:shop", *GIVEN, "--run-id", "A")
    assert done.return_value == 1
    assert "run A failed, and what it did was undone: " in done.stderr
    assert "What it did was undone. Begin anew as another run: everstep fork A --at 1" in done.stderr
    assert "everstep resume" not in done.stderr
    again = say("run", "shop_of_undo.py:shop", "--run-id", "A")
    assert "Nothing was run." in again.stderr
    assert "everstep fork A --at 1" in again.stderr
    refused: Any = say("resume", "A", "shop_of_undo.py:shop").exception
    assert "everstep fork A --at 1" in refused.fix
    assert say("fork", "A", "--at", "1").return_value in (0, None)


def test_what_was_undone_is_told_step_by_step(say: Callable[..., Result]) -> None:
    say("run", "shop_of_undo.py:shop", *GIVEN, "--run-id", "A")
    log = say("log", "A").stdout
    assert "undoes what the run did: ValueError: no truck" in log
    assert log.index("pack@1 items") < log.index("pay@1/!undo") < log.index("reserve@1/!undo")
    assert "2 undone" in log
    full = say("log", "A", "--full").stdout
    assert full.index("pack@1#1/!undo") < full.index("pack@1#0/!undo") < full.index("pay@1/!undo")
    explained = say("explain", "A", "shop_of_undo.py:shop").stdout
    assert "what it did was undone; it goes forward no more" in explained
    assert "may cost" not in explained
    assert "undo      complete" in say("show", "A").stdout
    with Host("sqlite:///runs.db") as host:
        lanes = {lane.node: lane for lane in host.debug.timeline("A").lanes}
    assert lanes["pack"].items is not None
    assert lanes["pack"].items.completed == 2
    assert len(lanes["pack/!undo"].segments) == 2


def test_runs_are_found_by_what_they_undo(say: Callable[..., Result], shop: Path) -> None:
    say("run", "shop_of_undo.py:shop", *GIVEN, "--run-id", "A")
    (shop / "closed").touch()
    halted = say("run", "shop_of_undo.py:shop", *GIVEN, "--run-id", "B")
    assert halted.return_value == 3
    assert "pay cannot be undone: ConnectionError: the bank is closed. Try again" in halted.stdout
    say("run", "shop_of_undo.py:halting", "--input", "order=lamps", "--run-id", "C")
    for asked, expected in (
        (("--where", "undoing is set"), {"A", "B"}),
        (("--undoing", "undoing"), {"B"}),
        (("--where", "undoing = complete and status = failed"), {"A"}),
        (("--where", "undoing is not set"), {"C"}),
    ):
        found = json.loads(say("runs", *asked, "--json").stdout)
        assert {run["run_id"] for run in found["runs"]} == expected
    assert "halted (undoing)" in say("runs", "--undoing", "undoing").stdout
    waits = say("waits", "B").stdout
    assert "pay/!undo" in waits
    say("settle", "B", "pay/!undo", "--skip", "credited by hand")
    done = say("resume", "B", "shop_of_undo.py:shop")
    assert "What it did was undone (1 skipped)." in done.stderr
    assert "credited by hand" in say("log", "B").stdout


def test_explain_tells_what_is_undone_now_and_what_would_be(say: Callable[..., Result]) -> None:
    say("run", "shop_of_undo.py:halting", "--input", "order=lamps", "--run-id", "C")
    before = say("explain", "C", "shop_of_undo.py:halting").stdout
    assert "undone if it failed now\n    pay\n    reserve\n" in before
    assert "who has its code undoes first what it did" in say("cancel", "C").stdout
    asked = say("explain", "C", "shop_of_undo.py:halting").stdout
    assert "it was cancelled; a resume undoes what it did, and then ends it" in asked
    assert "still to be undone, the first one first\n    pay\n    reserve\n" in asked
    assert say("resume", "C", "shop_of_undo.py:halting").return_value == 1
    assert "nothing is left to do" in say("explain", "C", "shop_of_undo.py:halting").stdout


def test_a_no_of_a_person_is_told_and_may_be_taken_back(say: Callable[..., Result]) -> None:
    asked = say("run", "shop_of_undo.py:asks", *GIVEN, "--run-id", "D")
    assert "Undo what the run has done? 4 steps can be undone." in asked.stdout
    with Host("sqlite:///runs.db") as host:
        host.answer(host.waits("D")[0].id, {"approved": False})
    done = say("resume", "D", "shop_of_undo.py:asks")
    assert "A person said not to undo it. Undo it after all: everstep undo D" in done.stderr
    say("undo", "D")
    assert "undoing" in say("show", "D").stdout
    assert "What it did was undone." in say("resume", "D", "shop_of_undo.py:asks").stderr


def test_an_effect_without_an_undo_is_warned_of_where_others_have_one(say: Callable[..., Result]) -> None:
    assert "flow.not_undone" in say("validate", "shop_of_undo.py:loud").stdout
    assert "flow.not_undone" not in say("validate", "shop_of_undo.py:shop").stdout
    told = say("report", "shop_of_undo.py:loud").stdout
    assert "undone if a run fails or is cancelled: reserve, pay, pack" in told
