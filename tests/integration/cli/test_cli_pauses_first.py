"""Paused flows at a shell: a command is a process of its own, and looks before it drives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everstep import Host
from everstep.cli.main import cli

FILE = """
from everstep import Flow, node

@node(output="a")
def only() -> int:
    return 1

orders = Flow("orders", [only])
"""
STORE = "sqlite:///runs.db"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("paused_flows.py").write_text(FILE)
    yield
    sys.modules.pop("paused_flows", None)


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--store", "runs.db"], standalone_mode=False)


def test_a_run_of_a_paused_flow_is_not_resumed_by_a_process_that_has_just_begun() -> None:
    assert call("run", "paused_flows.py", "--start", "--run-id", "A").return_value == 0
    assert call("pause", "--flow", "orders").return_value in (0, None)
    for words in (("resume", "A", "paused_flows.py"), ("run", "paused_flows.py", "--run-id", "A")):
        refused = call(*words)
        assert "flow 'orders' is paused" in str(refused.exception or refused.output), words
    new = call("run", "paused_flows.py", "--run-id", "B")
    assert new.return_value == 3 and "run B paused" in new.output + new.stderr
    with Host(STORE) as host:
        assert [str(host.info(run_id).status) for run_id in ("A", "B")] == ["running", "running"]
    assert call("unpause", "--flow", "orders").return_value in (0, None)
    assert call("resume", "A", "paused_flows.py").return_value == 0
    assert call("run", "paused_flows.py", "--run-id", "B").return_value == 0
