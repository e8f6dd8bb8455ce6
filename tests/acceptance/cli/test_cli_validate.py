"""`validate` and `report` as a shell sees them."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.acceptance.cli.test_cli import Everstep, parsed
from tests.acceptance.cli.test_cli import everstep as everstep  # the fixture

DRAFT = """
from everstep import Flow, node

@node(output="a")
def one(x): ...

inner = Flow("inner", [one])
flow = Flow.draft("draft", [one], entry="two", profiles={"two": {"replayable": True}})
told = Flow("told", [inner.as_node()], profiles={"inner/one": {"effects": "pure"}})
"""
GOOD = """
from everstep import Flow, node, wait

@node(output="a", determinism="nondeterministic", skip_on_resume=False)
def first(x: int) -> int:
    return x

@node(output="rates", checkpointable=False, reason="holds open websocket")
def feed(a: int) -> int:
    return a

flow = Flow("good", [first, feed, wait.approval("ok", notify="mail")])
notifiers = {"mail": print}
"""
BAD = """
from everstep import Flow, node

@node(output="sent", effects="effectful")
def send(x: int) -> int:
    return x

one = Flow("one", [send], durability="strong")
two = Flow("two", [send])
"""
BROKEN = """
from everstep import Flow, node, wait

@node
def a(x): ...

@node
def b(x): ...

@node(output="sent", effects="effectful")
def send(c): ...

told = wait.approval("ok", notify="mail")
flow = Flow("broken", [a, b.with_name("a"), send, told], entry="b", durability="strong")
notifiers = {"mail": print}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    for name, text in (("good", GOOD), ("bad", BAD), ("broken", BROKEN), ("drafts", DRAFT)):
        (tmp_path / f"{name}.py").write_text(text)


def failing(done: subprocess.CompletedProcess[str], code: int) -> subprocess.CompletedProcess[str]:
    assert done.returncode == code, done.stderr
    return done


def test_a_flow_with_warnings_passes_unless_they_count(everstep: Everstep) -> None:
    done = everstep("validate", "good.py")
    assert "good: 0 errors, 1 warning" in done.stdout
    assert "flow.unmade_choice" in done.stdout
    assert done.returncode == 0
    failing(everstep("validate", "good.py", "--strict"), 1)


def test_a_flow_with_errors_fails_and_every_flow_of_a_file_is_looked_at(everstep: Everstep) -> None:
    found = parsed(failing(everstep("validate", "bad.py", "--json"), 1))
    assert (found["valid"], [f["flow"] for f in found["flows"]]) == (False, ["one", "two"])
    assert [[d["code"] for d in f["diagnostics"]] for f in found["flows"]] == [
        ["DAG-CKPT-004"],
        ["flow.unkeyed_effect"],
    ]
    assert parsed(everstep("validate", "bad.py:two", "--json"))["valid"] is True
    failing(everstep("validate", "bad.py:two", "--strict"), 1)


def test_a_file_whose_flow_cannot_be_built_is_told_everything(everstep: Everstep) -> None:
    done = failing(everstep("validate", "broken.py"), 1)
    assert "broken: 3 errors" in done.stdout
    assert "DAG-CKPT-004" in done.stdout
    assert "flow.duplicate_name" in done.stdout
    assert "flow.unknown_entry" in done.stdout


def test_a_draft_with_problems_is_looked_at_like_any_flow(everstep: Everstep) -> None:
    found = parsed(failing(everstep("validate", "drafts.py", "--json"), 1))
    codes = {f["flow"]: [d["code"] for d in f["diagnostics"]] for f in found["flows"]}
    assert codes == {"draft": ["flow.unknown_profile", "flow.unknown_entry"], "told": []}
    for command in ("report", "ir", "run"):
        assert "flow.unknown_entry" in failing(everstep(command, "drafts.py:flow"), 2).stderr


def test_a_flow_is_held_against_the_host_that_is_named(everstep: Everstep) -> None:
    done = failing(everstep("validate", "good.py", "--store", "none:"), 1)
    assert "durability::checkpoint_store" in done.stdout


def test_the_report_draws_the_flow(everstep: Everstep, tmp_path: Path) -> None:
    drawn = everstep("report", "good.py").stdout
    assert "good  partial  67% durable (2 of 3 nodes)" in drawn
    assert "○ feed  holds open websocket" in drawn
    assert parsed(everstep("report", "good.py", "--json"))["incompatible_nodes"] == ["feed"]
    assert everstep("report", "good.py", "--dot").stdout.startswith("digraph good {")
    assert everstep("report", "good.py", "--mermaid").stdout.startswith("flowchart TD")
    everstep("report", "good.py", "--svg", "good.svg")
    assert ET.parse(tmp_path / "good.svg").getroot().tag.endswith("svg")
    ET.fromstring(everstep("report", "good.py", "--svg", "-").stdout)


def test_the_report_says_if_the_flow_cannot_start(everstep: Everstep) -> None:
    assert (
        "it cannot start: 1 error; see: everstep validate bad.py:one"
        in everstep("report", "bad.py:one").stderr
    )
    assert everstep("report", "bad.py:two").stderr == ""


def test_one_form_is_asked_for_at_a_time(everstep: Everstep) -> None:
    assert "one of" in failing(everstep("report", "good.py", "--dot", "--mermaid"), 2).stderr


def test_nothing_is_written_by_looking(everstep: Everstep, tmp_path: Path) -> None:
    everstep("validate", "good.py")
    everstep("report", "good.py")
    assert not (tmp_path / ".everstep").exists()


@pytest.mark.parametrize("store", ["new.db", "file:new"])
def test_a_flow_can_be_looked_at_before_its_store_is_made(
    everstep: Everstep, tmp_path: Path, store: str
) -> None:
    done = everstep("validate", "good.py", "--store", store)
    assert "there is no store" in done.stderr
    assert parsed(everstep("validate", "good.py", "--store", store, "--json"))["valid"]
    assert "67% durable" in everstep("report", "good.py", "--store", store).stdout
    assert not (tmp_path / "new.db").exists() and not (tmp_path / "new").exists()
