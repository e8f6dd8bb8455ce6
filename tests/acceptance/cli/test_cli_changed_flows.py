"""Changed flows as a shell sees them: `compat`, `migrate`, `explain`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.servers import warm

FIRST = """
from everstep import Flow, node, wait

@node(output="total")
def add(items: list):
    return sum(items)

@node(output="receipt", effects="effectful", idempotency_key="auto")
def ship(total: int, approve: wait.ApprovalOutput):
    return f"{total} EUR"

flow = Flow("order", [add, wait.approval("approve"), ship], durability="strong")
"""
CHANGED = FIRST.replace("def add(items: list)", "def price(items: list)").replace("[add,", "[price,")
RULES = "from everstep import migrate\n\nRULES = [migrate.rename_node('add', 'price')]\n"
SECOND = RULES + CHANGED.replace("durability=", 'version="2", migrations=RULES, durability=')
GONE = """
from everstep import Flow, node

@node(output="total")
def add(items: list):
    return sum(items)

flow = Flow("order", [add], durability="strong")
"""

Everstep = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def everstep(tmp_path: Path) -> Everstep:
    for name, text in (("first", FIRST), ("changed", CHANGED), ("second", SECOND), ("gone", GONE)):
        (tmp_path / f"{name}.py").write_text(text)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(
            [sys.executable, "-m", "everstep", *words],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    for run in ("A17", "A18"):
        assert call("run", "first.py", "--input", "items=[1, 2]", "--run-id", run).returncode == 3
    return call


def test_compat_fails_a_deploy_that_strands_runs(everstep: Everstep) -> None:
    done = everstep("compat", "changed.py")
    assert done.returncode == 1
    assert "2 unfinished runs of flow order" in done.stdout
    assert "2 need migration  version 1: A18, A17" in done.stdout
    assert "'add' is finished, and is gone from the flow." in done.stdout
    assert "rename_node('add', ...)" in done.stdout


def test_compat_lets_a_deploy_with_rules_pass(everstep: Everstep) -> None:
    for file in ("first.py", "second.py"):
        done = everstep("compat", file)
        assert (done.returncode, "2 continue" in done.stdout) == (0, True), done.stdout
    told = json.loads(everstep("compat", "second.py", "--json").stdout)
    assert told["runs"] == {"continues": 2, "needs_migration": 0, "refused": 0}
    assert told["groups"][0]["migrations"] == ["rename_node('add', 'price')"]
    assert sorted(told["groups"][0]["runs"]) == ["A17", "A18"]
    few = json.loads(everstep("compat", "second.py", "--json", "--limit", "1").stdout)
    assert few["runs"]["continues"] == 1


def test_a_refused_run_says_what_to_do(everstep: Everstep) -> None:
    done = everstep("compat", "gone.py", "--json")
    assert done.returncode == 1
    [group] = json.loads(done.stdout)["groups"]
    assert (group["verdict"], group["nodes"]) == ("refused", ["approve"])
    assert "finish the run with its own code" in group["fix"]
    resumed = everstep("resume", "A17", "gone.py")
    assert resumed.returncode == 2
    assert "run.flow_changed" in resumed.stderr and "'approve' waits for an answer" in resumed.stderr
    migrated = everstep("migrate", "A17", "gone.py")
    assert migrated.returncode == 1 and "refused" in migrated.stdout


def test_a_run_is_begun_by_one_version_and_finished_by_the_next(everstep: Everstep) -> None:
    dry = everstep("migrate", "A17", "second.py", "--dry-run")
    assert (dry.returncode, "would go by version 2" in dry.stdout) == (0, True)
    assert "migration" not in everstep("log", "A17").stdout
    assert "goes by version 2" in everstep("migrate", "A17", "second.py").stdout
    assert "already" in everstep("migrate", "A17", "second.py").stdout
    assert everstep("answer", "A17", "--approve").returncode == 0
    done = everstep("resume", "A17", "second.py", "--json")
    assert json.loads(done.stdout)["values"]["receipt"] == "3 EUR"
    log = everstep("log", "A17")
    assert log.returncode == 0 and "migration" in log.stdout
    assert "version 1 → 2: rename_node('add', 'price')" in log.stdout
    nodes = json.loads(everstep("show", "A17", "--json").stdout)["nodes"]
    shown = {n["node"]: (n["status"], n["visits"]) for n in nodes}
    assert shown == dict.fromkeys(("price", "approve", "ship"), ("completed", 1))
    for command in (("show", "A17"), ("state", "A17@2"), ("show", "A17", "add"), ("show", "A17", "ship")):
        assert everstep(*command).returncode == 0, command


def test_a_migrated_run_goes_on_without_naming_the_new_file(everstep: Everstep) -> None:
    assert everstep("migrate", "A17", "second.py").returncode == 0
    fork = json.loads(everstep("fork", "A17", "--at", "1", "--json").stdout)["run_id"]
    late = json.loads(everstep("fork", "A17", "--json").stdout)["run_id"]
    for run in ("A17", late, fork, "A18"):
        assert json.loads(everstep("explain", run, "--json").stdout)["compat"]["is_same"], run
    old = everstep("resume", "A17", "first.py")
    assert old.returncode == 2
    assert "second.py" in old.stderr
    assert "rename_node" not in old.stderr
    assert everstep("resume", "A17").returncode == 3


def test_explain_says_what_a_resume_would_do(everstep: Everstep) -> None:
    done = everstep("explain", "A17")
    assert done.returncode == 0
    assert "skipped, as their outputs are recorded\n    add  total" in done.stdout
    assert "approve  approval, open" in done.stdout
    told = json.loads(everstep("explain", "A17", "second.py", "--json").stdout)
    assert [step["path"] for step in told["recorded"]] == ["price"]
    assert told["compat"]["migrations"] == ["rename_node('add', 'price')"]
    assert told["starts"] == [] and told["waits"][0]["path"] == "approve"
    refused = everstep("explain", "A17", "gone.py")
    assert refused.returncode == 1 and "refused: 'approve' waits for an answer" in refused.stdout
