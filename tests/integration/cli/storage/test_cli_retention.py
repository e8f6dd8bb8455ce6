"""`everstep gc`, `pin`, `unpin` and `erase`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from everstep import Durability, Flow, Host, node
from everstep.cli.main import cli

FILE = """
from everstep import Flow, Retention, node

@node(output="doubled")
def double(count: int) -> int:
    return 2 * count

flow = Flow("steps", [double], retention=Retention())
"""


@node(output="doubled")
def double(count: int) -> int:
    return 2 * count


STEPS = Flow("steps", [double], durability=Durability("strong"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/runs.db?synchronous=off"
    with Host(url) as host:
        for number in range(5):
            host.run(STEPS, {"count": number}, run_id=f"run-{number}")
    return url


def said(url: str, *words: str) -> str:
    result = CliRunner().invoke(cli, [*words, "--store", url])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_gc_says_what_would_go_then_what_went_and_keeps_a_log(url: str) -> None:
    rules = ("--keep-last", "3", "--whole", "2")
    dry = said(url, "gc", *rules, "--dry-run")
    assert "run run-2 would be trimmed to its last checkpoint" in dry and "would be removed: 2 runs" in dry
    wet = json.loads(said(url, "gc", *rules, "--json"))
    assert [(one["run_id"], one["action"]) for one in wet["runs"]] == [
        ("run-2", "trim"),
        ("run-1", "erase"),
        ("run-0", "erase"),
    ]
    assert said(url, "gc", *rules) == "nothing to remove\n"
    log = said(url, "gc", "--log")
    assert log.count("\n") == 3 and "run run-0: of its flow the newest 3 are kept" in log
    assert len(json.loads(said(url, "gc", "--log", "--limit", "2", "--json"))["removals"]) == 2
    with pytest.raises(Exception, match="was removed on"):
        said(url, "show", "run-0")
    assert "its checkpoints were removed" in said(url, "show", "run-2")
    assert "doubled = 4" in said(url, "state", "run-2")
    assert "trim" in said(url, "log", "run-2") and "sound" in said(url, "verify")


def test_gc_takes_the_rules_of_a_flow_from_its_file(url: str, tmp_path: Path) -> None:
    file = tmp_path / "steps.py"
    file.write_text(FILE)
    assert said(url, "gc", "--keep-last", "1", "--flows", str(file)) == "nothing to remove\n"
    assert "removed: 4 runs" in said(url, "gc", "--keep-last", "1")


def test_gc_names_what_stays(url: str) -> None:
    with Host(url) as host:
        host.fork("run-0", fork_id="fork")
        host.retention.pin("run-1", "a lesson")
    out = said(url, "gc", "--keep-for", "0s")
    assert "run run-0 stays: a fork goes on from it" in out and "removed: 3 runs" in out
    with Host(url) as host:
        assert {run.run_id for run in host.runs()} == {"run-0", "run-1", "fork"}


def test_a_run_is_pinned_and_unpinned(url: str) -> None:
    assert said(url, "pin", "run-1", "the outage") == "run run-1 is pinned: the outage\n"
    assert "completed (pinned)" in said(url, "runs", "--pinned")
    assert json.loads(said(url, "runs", "--pinned", "--json"))["runs"][0]["pinned"] == "the outage"
    assert json.loads(said(url, "unpin", "run-1", "--json")) == {"run_id": "run-1", "pinned": None}
    assert said(url, "runs", "--pinned") == "no runs\n"


def test_erase_wants_a_yes(url: str) -> None:
    with pytest.raises(Exception, match="Say --yes"):
        said(url, "erase", "run-1")
    assert "would be removed: run run-1 with 2 checkpoints" in said(url, "erase", "run-1", "--dry-run")
    assert said(url, "erase", "run-1", "--yes") == "removed: run run-1 with 2 checkpoints\n"
    told = json.loads(said(url, "erase", "run-2", "--yes", "--json"))
    assert (told["run_id"], told["checkpoints"], told["dry_run"]) == ("run-2", 2, False)
    with Host(url) as host:
        assert {run.run_id for run in host.retention.removed()} == {"run-1", "run-2"}


def test_the_result_of_a_run_is_acknowledged(url: str) -> None:
    assert said(url, "ack", "run-1").startswith("the result of run run-1 was acknowledged ")
    acked = json.loads(said(url, "ack", "run-1", "--json"))
    assert acked["run_id"] == "run-1"
    runs = {run["run_id"]: run["acked_at"] for run in json.loads(said(url, "runs", "--json"))["runs"]}
    assert (runs["run-1"], runs["run-2"]) == (acked["acked_at"], None)
    assert "result taken" in said(url, "show", "run-1")
