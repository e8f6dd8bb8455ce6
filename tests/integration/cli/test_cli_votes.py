"""Votes at a shell: given with `answer` and `--ask`, shown by `waits`, `show` and `explain`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from everstep.cli.commands.fleet.audit import audit
from everstep.cli.commands.runs.run import run
from everstep.cli.commands.runs.show import show
from everstep.cli.commands.travel.explain import explain
from everstep.cli.commands.waits.answer import answer
from everstep.cli.commands.waits.waits import waits

FILE = """
from everstep import Flow, wait

signing = Flow(
    "signing", [wait.approval("sign", approvers=["ann", "bob", "cleo"], quorum=2, not_by_starter=True)]
)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("voted_flows.py").write_text(FILE)
    yield
    sys.modules.pop("voted_flows", None)


def call(command: Any, *words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_each_votes_by_name_until_it_is_decided() -> None:
    begun = call(run, "voted_flows.py", "--run-id", "A17", "--as", "cleo")
    assert "0 of 2, left: ann, bob" in begun.output
    first = call(answer, "A17", "--approve", "--as", "ann", "--comment", "fine")
    assert first.output.splitlines() == ["sign of run A17: 1 of 2 (ann ✓), left: bob"]
    assert "1 of 2 (ann ✓), left: bob" in call(waits).output
    assert "1 of 2 (ann ✓), left: bob" in call(show, "A17").output
    assert "1 of 2 (ann ✓), left: bob" in call(explain, "A17", "voted_flows.py").output
    shown = call(waits, "--show", _wait_id()).output
    assert "2 of ann, bob, cleo, not by cleo" in shown and "claimed: fine" in shown
    for name, code in (("ann", "vote.given"), ("cleo", "vote.refused")):
        refused = call(answer, "A17", "--approve", "--as", name)
        assert getattr(refused.exception, "code", None) == code
    last = call(answer, "A17", "--approve", "--as", "bob", "--json")
    told = json.loads(last.output)
    assert (told["status"], told["voting"]["left"]) == ("settled", [])
    assert [vote["by"] for vote in told["voting"]["votes"]] == ["ann", "bob"]
    assert "approved by bob, 2 of 2 (ann ✓, bob ✓)" in call(waits, "--status", "all").output


def _wait_id() -> str:
    found: str = json.loads(call(waits, "--json").output)["waits"][0]["id"]
    return found


def test_a_time_that_is_none_is_bad_input_also_without_a_store() -> None:
    for option in ("--since", "--until"):
        refused = call(audit, option, "NONSENSE")
        assert getattr(refused.exception, "code", None) == "request.invalid", refused.output
    assert call(audit, "--since", "-7d").exit_code == 0
