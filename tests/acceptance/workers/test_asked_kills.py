"""A worker is killed while it answers about a flow: another answers, or who asks is told."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from everstep import Host
from everstep.errors import EverstepError
from everstep.model.commits import asking_about
from tests.acceptance.workers.asked_flow import DEATHS
from tests.architecture.sources import ROOT

PATIENCE = 60.0


@contextmanager
def worker(host: Host) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a worker alive, known to the store."""
    before = len(host.fleet.workers())
    command = [sys.executable, "-m", "tests.acceptance.workers.asked_flow", host.url]
    with subprocess.Popen(command, cwd=ROOT) as child:
        try:
            until = time.monotonic() + PATIENCE
            while len(host.fleet.workers()) == before:
                assert time.monotonic() < until and child.poll() is None
                time.sleep(0.05)
            yield child
        finally:
            child.kill()


def die(folder: Path, often: int) -> None:
    (folder / "deaths").write_text("die\n" * often)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv(DEATHS, str(tmp_path / "deaths"))
    with Host(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


@pytest.mark.slow
def test_another_worker_answers_what_killed_the_first(host: Host, tmp_path: Path) -> None:
    with ExitStack() as alive:
        children = [alive.enter_context(worker(host)) for _ in range(2)]
        die(tmp_path, 1)
        assert host.fleet.findings("orders", within=PATIENCE).errors == 0
        assert sorted(child.poll() is None for child in children) == [False, True]
    assert host.runs(flow=asking_about("orders")) == []


@pytest.mark.slow
def test_who_asks_a_worker_that_dies_is_told_and_no_later_one_answers(host: Host, tmp_path: Path) -> None:
    with worker(host) as child:
        die(tmp_path, 1)
        with pytest.raises(EverstepError) as told:
            host.fleet.findings("orders", within=3)
        assert child.wait(PATIENCE) < 0
    assert told.value.code in ("flow.not_loaded", "flow.no_answer")
    assert host.runs(flow=asking_about("orders")) == []
    die(tmp_path, 0)
    with worker(host):
        assert host.fleet.findings("orders", within=PATIENCE).errors == 0
