"""Forks and checkpoints as a shell sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.servers import warm

LOOP = """
from everstep import END, Flow, ifelse, node

@node(output="n")
def step(n: int = 0):
    return n + 1

@ifelse(when_true="step", when_false="finish")
def more(n: int, limit: int):
    return n < limit

@node(output="done")
def finish(n: int, name: str):
    return name * n

flow = Flow("loop", [step, more, finish], entry="step", durability="strong")
"""

BOOK = """
from everstep import END, Flow, ifelse, node

@node(output=("page", "round"))
def write_page(round: int):
    return "x" * 9000, round + 1

@ifelse(when_true="write_page", when_false=END)
def again(round: int):
    return round < 20

flow = Flow("book", [write_page, again], entry="write_page", durability="strong")
"""

Everstep = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def everstep(tmp_path: Path) -> Everstep:
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "book.py").write_text(BOOK)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(
            [sys.executable, "-m", "everstep", *words],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            timeout=30,
        )

    return call


@pytest.fixture
def looped(everstep: Everstep) -> Everstep:
    done = everstep("run", "loop.py", "-i", "limit=2", "-i", "name=7", "--run-id", "A17")
    assert done.returncode == 0, done.stderr
    return everstep


def test_a_fork_is_made_and_resumed_as_it_says(looped: Everstep) -> None:
    made = looped("fork", "A17@2", "--input", "limit=3", "--set", "name=8", "--as", "B")
    assert (made.returncode, made.stdout) == (0, "B\n")
    assert "forked from A17@2; continue with: everstep resume B\n" in made.stderr
    done = looped("resume", "B", "-q")
    assert done.stdout == "done = '888'\n"
    assert looped("resume", "A17", "-q").stdout == "done = '77'\n"


def test_a_fork_in_json_says_where_it_comes_from(looped: Everstep) -> None:
    made = json.loads(looped("fork", "A17", "--at", "3", "--json").stdout)
    assert (made["parent_run_id"], made["forked_at"], made["checkpoints"]) == ("A17", 3, 4)
    assert made["resume"] == f"everstep resume {made['run_id']}"


def test_text_stays_text_and_the_rest_is_json(looped: Everstep) -> None:
    looped("fork", "A17@1", "--set", "name=[1]", "--set", "limit=[1]", "--channel", "k=1", "--as", "B")
    found = json.loads(looped("state", "B", "--json").stdout)
    assert found["values"] == {"name": "[1]", "limit": [1]}
    assert found["channel"] == {"k": 1}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fork", "A17", "--set", "limt=1"], "Did you mean 'limit'?"),
        (["fork", "A17", "--set", "limit"], "not NAME=VALUE"),
        (["fork", "A17", "--set", "n=1", "--set", "n=2"], "given twice"),
        (["fork", "A17@9"], "has no checkpoint 9"),
        (["fork", "A17@2", "--at", "3"], "given twice"),
        (["fork", "A17@x"], "A17@3"),
        (["fork", "A17", "--as", "A17"], "already"),
        (["state", "A17@9"], "has no checkpoint 9"),
        (["branch", "A17"], "Did you mean 'fork'?"),
        (["clean-up", "A17", "--keep", "0"], "0 is not in the range"),
        (["log", "A17", "--graph", "--last", "2"], "Leave out --last"),
    ],
)
def test_what_cannot_be_meant_is_refused_plainly(looped: Everstep, words: list[str], says: str) -> None:
    refused = looped(*words)
    assert refused.returncode == 2
    assert says in refused.stderr
    assert "Traceback" not in refused.stderr


def test_runs_say_what_they_were_forked_from(looped: Everstep) -> None:
    assert "forked from" not in looped("runs").stdout
    looped("fork", "A17@2", "--as", "B")
    listed = looped("runs").stdout.splitlines()
    assert listed[0].split()[:4] == ["run", "forked", "from", "flow"]
    assert listed[1].split()[:3] == ["B", "A17@2", "loop"]
    assert listed[2].split()[:2] == ["A17", "loop"]
    [fork, original] = json.loads(looped("runs", "--json").stdout)["runs"]
    assert (fork["parent_run_id"], fork["forked_at"]) == ("A17", 2)
    assert (original["parent_run_id"], original["forked_at"]) == (None, None)


def test_the_log_of_a_fork_marks_what_is_shared(looped: Everstep) -> None:
    looped("fork", "A17@2", "--set", "n=5", "--as", "B", "--by", "ann")
    lines = looped("log", "B").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["#", "1", "2", "↑", "3"]
    assert lines[3].endswith("↑ shared with A17")
    assert lines[4].endswith("n = 5; by ann")
    found = json.loads(looped("log", "B", "--json").stdout)["checkpoints"]
    assert [c["run_id"] for c in found] == ["A17", "A17", "B"]
    assert "from A17@2" in looped("show", "B").stdout
    assert "n (version 2) = 5" in looped("show", "B", "fork").stdout
    assert "n (version 2) = 5" in looped("state", "B").stdout.replace(
        "n = 5 (version 2)", "n (version 2) = 5"
    )


def test_the_graph_shows_the_whole_family(looped: Everstep) -> None:
    looped("fork", "A17@2", "--as", "B")
    shown = looped("log", "--graph", "B").stdout.splitlines()
    assert shown[-5:] == [
        "* 3  step  more",
        "| * 3  fork  (B, running (no live worker))",
        "|/",
        "* 2  step",
        "* 1  admission  inputs",
    ]
    family = json.loads(looped("log", "--graph", "B", "--json").stdout)["runs"]
    assert [(run["run_id"], run["parent_run_id"], run["forked_at"]) for run in family] == [
        ("A17", None, None),
        ("B", "A17", 2),
    ]


def test_checkpoints_are_listed_and_cleaned_up(everstep: Everstep) -> None:
    everstep("run", "book.py", "-i", "round=0", "--run-id", "book", "-q")
    found = json.loads(everstep("checkpoints", "book", "--json").stdout)["checkpoints"]
    keyframes = [c["sequence"] for c in found if c["keyframe"]]
    assert len(keyframes) >= 2
    assert everstep("checkpoints", "book").stdout.count("keyframe") == len(keyframes)
    cleaned = everstep("clean-up", "book", "--keep", "1")
    oldest = keyframes[-1]
    assert cleaned.stdout == (
        f"removed {oldest - 1} checkpoints of run book; the oldest one still there is {oldest}\n"
    )
    again = json.loads(everstep("clean-up", "book", "--keep", "1", "--json").stdout)
    assert again == {"run_id": "book", "removed": 0, "trimmed_before": oldest}
    assert everstep("checkpoints", "book").stdout.count("removed") == oldest - 1
    assert everstep("log", "book").stdout.splitlines()[1].split()[0] == str(oldest)
    assert everstep("show", "book", str(oldest)).returncode == 0
    gone = everstep("show", "book", "1")
    assert gone.returncode == 2
    assert f"{oldest} to {found[-1]['sequence']}" in gone.stderr
    assert f"oldest one still there is {oldest}" in everstep("fork", "book@1").stderr
    assert "nothing to remove" in everstep("clean-up", "book").stdout
