"""What the command line asks for before it runs a pipeline, and what it says afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everstep.cli.main import cli
from everstep.errors import FlowError

Shell = Callable[..., Result]
TEXT = """
digraph build {
  start [shape=Mdiamond]; exit [shape=Msquare]
  make [shape=parallelogram, tool_command="echo made"]
  ask [shape=hexagon, label="Ship it?"]
  start -> make -> ask
  ask -> exit [label="[Y] Yes"]; ask -> make [label="[N] No"]
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "build.dot"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    def run(*command: str) -> Result:
        return CliRunner().invoke(cli, [*command, "--store", f"sqlite:///{tmp_path}/runs.db"])

    return run


def test_a_pipeline_with_commands_can_be_looked_at_without_leave_to_run_them(shell: Shell, file: str) -> None:
    assert isinstance(shell("run", file, "--run-id", "a").exception, FlowError)
    assert shell("run", file, "--run-id", "a", "--allow-tools").exception is None
    for command in (("report", file), ("explain", "a"), ("compat", file), ("migrate", "a", file)):
        found = shell(*command)
        assert found.exception is None, (command, found.output)
    assert CliRunner().invoke(cli, ["ir", file]).exception is None
    assert isinstance(shell("resume", "a").exception, FlowError)


def test_a_halted_pipeline_says_how_to_go_on_with_the_options_it_was_given(shell: Shell, file: str) -> None:
    said = shell("run", file, "--run-id", "a", "--allow-tools", "--backend", "shell:ask --key hush").output
    assert "everstep resume a --backend shell:… --allow-tools --store" in said.replace("'", "")
    assert "hush" not in said


def test_what_the_environment_says_of_pipelines_is_not_repeated(
    shell: Shell, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_ALLOW_TOOLS", "1")
    said = shell("run", file, "--run-id", "a", "--backend", "http://127.0.0.1:9/v1", "--model", "m").output
    assert "everstep resume a --backend http://127.0.0.1:9/v1 --model m --store" in said


def test_show_and_log_say_what_branches_left_once(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "fork.dot"
    path.write_text(
        "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; fork [shape=component];"
        "join [shape=tripleoctagon]; a [shape=hexagon]; b; start -> fork -> {a b} -> join -> exit }"
    )
    assert shell("run", str(path), "--run-id", "a", "--auto-approve").exception is None
    for command in ("show", "log"):
        (line,) = [line for line in shell(command, "a").output.splitlines() if "fork.join" in line]
        assert "human.response" in line and "~" not in line, line
