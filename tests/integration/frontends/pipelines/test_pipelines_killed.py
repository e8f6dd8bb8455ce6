"""Every example pipeline: what it does, and that a crash at any point changes nothing of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from everstep import Flow, Host, validate
from everstep.testing.killing import Crashed, Killer, crash
from tests.integration.frontends.pipelines.pipeline_lives import FOLDER, Ended, World

EXPECTED = {
    "backlog": "start pick fix left~ pick fix left~ pick fix left exit",
    "code_review": "start plan implement test! implement test review approve approve.next merge exit",
    "market_study": (
        "start split/demand split/demand/demand split/prices split/prices/prices split/prices/taxes "
        "split/rivals split/rivals/rivals split split.join join answer exit"
    ),
    "press_release": "begin draft check! judge! rewrite check judge editor editor.next publish",
    "release": (
        "start freeze checks/start checks/build checks/measure~ checks/report checks/build checks/measure "
        "checks/exit checks checks.next tag exit"
    ),
    "release_checks": "start build measure~ report build measure exit",
}
"""The steps in their order, those of branches by name; `!` marks a failure, `~` a partial success."""


def test_every_example_is_here() -> None:
    assert {file.stem for file in FOLDER.glob("*.dot")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_out_of_the_box(name: str) -> None:
    ended = World(name).live(Killer())
    assert ended.status == "completed"
    assert ended.trace == EXPECTED[name].split()


@pytest.mark.parametrize("name", EXPECTED)
def test_nothing_is_odd_about_an_example(name: str) -> None:
    file = FOLDER / f"{name}.dot"
    flow = Flow.from_dot(file.read_text(encoding="utf-8"), file=str(file))
    with Host("memory:") as host:
        found = validate(flow, host)
    assert {d.code for d in found} <= {"pipeline.no_failure_route"}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_that_is_killed_anywhere_ends_as_if_nothing_had_happened(name: str) -> None:
    whole = Killer()
    expected = World(name).live(whole)
    killed = 0
    for point in whole.points:
        world = World(name)
        try:
            world.live(Killer(point, act=crash))
        except Crashed:
            killed += 1
        assert world.live(Killer()) == expected, f"killed {point}"
    assert killed > len(whole.points) * 0.9


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_whose_process_dies_after_every_second_write_still_ends_the_same(name: str) -> None:
    expected = World(name).live(Killer())
    world, lives = World(name), 0
    while True:
        lives += 1
        try:
            ended = world.live(Killer("after put 2", act=crash))
        except Crashed:
            assert lives < 50
            continue
        break
    assert ended == expected
    assert lives > 3


def test_a_process_that_is_killed_at_any_write_leaves_a_run_that_ends_the_same(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.integration.frontends.pipelines.pipeline_lives",
        "code_review",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lives = {point: Ended(*told) for point, told in json.loads(done.stdout).items()}
    expected = lives.pop("")
    assert expected.trace == EXPECTED["code_review"].split()
    assert len(lives) > 15
    assert {point: ended for point, ended in lives.items() if ended != expected} == {}
