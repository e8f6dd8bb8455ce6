"""`everstep resume` by a run, a checkpoint or a token, here or left to workers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everstep import Host
from everstep.cli.args.loading import load_flow
from everstep.cli.main import cli
from everstep.errors import LeaseConflict, RunNotFound, TokenInvalid

FLOWS = """
from pathlib import Path

from everstep import Flow, node, wait


@node(output="done")
def use(name):
    if Path("broken").exists():
        raise ValueError("broken")
    return name


greet = Flow("greet", [wait.question("name", kind="text"), use])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "greeting", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))  # puts back what loading the file changes
    (tmp_path / "greeting.py").write_text(FLOWS)
    return tmp_path


def shell(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--store", "runs.db"], standalone_mode=False)


def begun(run_id: str) -> tuple[str, str]:
    """Begin a run, answer it, and return its newest checkpoint and its token."""
    with Host("sqlite:///runs.db") as host:
        token = host.run(load_flow("greeting.py:greet"), run_id=run_id).waits[0].token
        assert token is not None
        host.answer(token, "Ann")
        return host.latest(run_id).checkpoint_id, token


def test_a_run_is_resumed_at_a_shell_by_its_checkpoint_or_a_token() -> None:
    head, _ = begun("A")
    _, token = begun("B")
    by_checkpoint = shell("resume", head, "greeting.py:greet")
    by_token = shell("resume", token, "greeting.py:greet", "--json")
    assert by_checkpoint.return_value == by_token.return_value == 0, by_token.output
    assert "done = 'Ann'" in by_checkpoint.stdout
    assert json.loads(by_token.stdout)["run_id"] == "B"
    assert token not in by_token.output


def test_a_checkpoint_that_a_run_has_left_behind_points_to_a_fork() -> None:
    head, _ = begun("A")
    assert shell("resume", "A", "greeting.py:greet").return_value == 0
    refused = shell("resume", head, "greeting.py:greet")
    assert isinstance(refused.exception, LeaseConflict)
    assert "everstep fork A@" in refused.exception.fix


def test_a_token_that_leads_nowhere_is_not_shown() -> None:
    begun("A")
    for text in ("et_" + "A" * 43, "et_" + "A" * 20):
        refused = shell("resume", text, "greeting.py:greet")
        assert isinstance(refused.exception, (TokenInvalid, RunNotFound))
        assert "AAAA" not in f"{refused.exception}{refused.exception.fix}{refused.output}"


def test_a_failed_run_is_reopened_for_workers(folder: Path) -> None:
    begun("A")
    (folder / "broken").touch()
    assert shell("resume", "A", "greeting.py:greet").return_value == 1
    (folder / "broken").unlink()
    left = shell("resume", "A", "greeting.py:greet", "--for-workers", "--as", "ann", "--json")
    told = json.loads(left.stdout)
    assert (left.return_value, told["status"], told["is_driven"]) == (0, "running", False)
    with Host("sqlite:///runs.db") as host:
        assert host.work([load_flow("greeting.py:greet")], until_idle=True).completed == 1
        assert [r.act.by for r in host.history("A") if r.act is not None][-1] == "ann"
    over = shell("resume", "A", "greeting.py:greet", "--for-workers")
    assert "run A is completed; it has ended" in over.stderr


def test_a_run_is_left_to_workers_or_stayed_with() -> None:
    begun("A")
    refused = shell("resume", "A", "greeting.py:greet", "--for-workers", "--wait")
    assert "--for-workers and --wait are both given" in str(refused.exception)
