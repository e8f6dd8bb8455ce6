"""What the shell refuses rather than guesses."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from everstep import Flow, Host, wait
from everstep.cli.commands.runs.cancel import cancel
from everstep.cli.commands.waits.answer import answer
from everstep.errors import BadRequest

FLOW = Flow("f", [wait.approval("ok"), wait.question("sure"), wait.timer("nap", duration="3d")])


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/runs.db"
    with Host(found) as host:
        assert host.run(FLOW, run_id="A").status == "halted"
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("A/ok", "--approve", "--reject"),
        ("A/sure", "--yes", "--no"),
        ("A/nap", "ok"),
        ("A/nap", "--yes"),
    ],
)
def test_two_answers_at_once_and_an_answer_to_a_timer_are_refused(url: str, words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(answer, [*words, "--store", url])
    assert isinstance(done.exception, BadRequest)
    with Host(url) as host:
        assert len(host.waits("A")) == 3


def test_the_same_flag_twice_is_said_once(url: str) -> None:
    done = CliRunner().invoke(answer, ["A/ok", "--approve", "--approve", "--store", url])
    assert done.exit_code == 0, done.output
    with Host(url) as host:
        assert [w.node for w in host.waits("A", status="settled")] == ["ok"]


def test_a_run_is_cancelled_once(url: str) -> None:
    shell = CliRunner()
    first = shell.invoke(cancel, ["A", "--store", url], standalone_mode=False)
    second = shell.invoke(cancel, ["A", "--store", url], standalone_mode=False)
    assert (first.return_value, second.return_value) == (0, 1)
    assert "was cancelled before" in second.output
