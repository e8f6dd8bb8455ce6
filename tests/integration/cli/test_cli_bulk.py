"""`everstep bulk`: it asks first, follows what is done, and says how it goes on after Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import Flow, Host, node
from everstep.cli.commands.fleet import bulk as module
from everstep.cli.commands.fleet.bulk import INTERRUPTED, bulk
from everstep.errors import BadRequest


@node
def fails(x: int) -> None:
    raise ValueError("no")


FAILING = Flow("failing", [fails])
WHERE = ("--where", "status = failed")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Host(f"sqlite:///{tmp_path}/runs.db") as opened:
        for x in range(3):
            opened.run(FAILING, {"x": x}, run_id=f"r{x}")
        yield opened


def called(host: Host, *words: str, typed: str | None = None) -> Any:
    return CliRunner().invoke(bulk, [*words, "--store", host.url], input=typed, standalone_mode=False)


def test_it_asks_on_a_terminal_and_does_nothing_elsewhere_without_yes(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = called(host, "retry", *WHERE)
    assert isinstance(refused.exception, BadRequest) and "--yes" in refused.exception.message
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    asked = called(host, "retry", *WHERE, typed="n\n")
    assert asked.return_value == 1 and "Retry 3 runs?" in asked.output
    assert len(host.runs(status="failed")) == 3
    assert called(host, "retry", *WHERE, typed="y\n").return_value == 0
    assert len(host.runs(status="running")) == 3


def test_what_was_refused_is_counted_and_the_command_fails(host: Host) -> None:
    host.retention.pin("r1")
    done = called(host, "erase", *WHERE, "--yes", "--json")
    told = json.loads(done.stdout)
    assert done.return_value == 1 and (told["done"], told["refused"]) == (2, {"run.pinned": 1})
    assert called(host, "retry", *WHERE, "--yes").output.splitlines()[-1] == "retry: 1 done"


def test_ctrl_c_says_how_it_goes_on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module._Watch, "__enter__", interrupted)
    stopped = called(host, "retry", *WHERE, "--yes")
    [order] = host.runs(flow="everstep.bulk")
    assert stopped.return_value == INTERRUPTED
    assert f"everstep bulk --follow {order.run_id}" in stopped.output
    assert f"everstep cancel {order.run_id}" in stopped.output
    monkeypatch.undo()
    followed = called(host, "--follow", order.run_id)
    assert (followed.return_value, followed.output.splitlines()[-1]) == (0, "retry: 3 done")


def test_what_was_only_started_is_left_to_workers(host: Host) -> None:
    started = called(host, "retry", *WHERE, "--yes", "--start", "--json")
    told = json.loads(started.stdout)
    assert told["status"] == "running" and len(host.runs(status="failed")) == 3
    [untaken] = host.fleet.untaken(told["run_id"])
    assert untaken.fix.endswith(f"everstep bulk --follow {told['run_id']}")
    for words in (("--follow", told["run_id"], *WHERE), ("retry",), ()):
        assert isinstance(called(host, *words).exception, BadRequest)
