"""Drills of a fleet in operation (`benchmarks/drills`): the program works, and a page names each of them."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest

from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "explanation" / "operating-drills.md"
QUICK = "lease-ttl-as-text"
TAKE_LONG = {"crashing-neighbour", "dry-run-of-gc", "huge-value"}
NEED_ROOT = {"full-disk"}


@pytest.fixture(scope="module")
def drills() -> Any:
    return import_module("benchmarks.drills.__main__")


def test_a_drill_says_what_was_and_what_is_and_whether_it_holds(
    drills: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drills.main([QUICK]) == 0
    *_, row, last = capsys.readouterr().out.splitlines()
    name, before, now, holds = row.strip("| ").split(" | ")
    assert (name, holds, last) == (QUICK, "ok", "1 drills, 1 held")
    assert before and "6" in now
    with pytest.raises(SystemExit, match="0"):
        drills.main(["--help"])
    said = capsys.readouterr().out
    assert [name for name in drills.every() if name not in said] == []


def test_a_drill_that_breaks_off_has_not_held(drills: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def work(_: Any) -> Any:
        raise RuntimeError("no server")

    with drills.Servers(1) as servers:
        found = drills.tried(drills.Drill("broken", "", work), servers)
    assert (found.holds, "no server" in found.now) == (False, True)


def test_the_page_of_drills_has_a_line_for_each(drills: Any) -> None:
    lines = PAGE.read_text().partition("## What holds it")[0].splitlines()
    told = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert sorted(told) == sorted(drills.every())


def test_what_the_page_says_to_hold_a_drill_is_a_test(drills: Any) -> None:
    lines = PAGE.read_text().partition("## What holds it")[2].splitlines()
    for line in (line for line in lines if line.startswith("| `")):
        name, (file, sentence) = line.split("`")[1], line.split("| ")[2].strip(" |").split(": ")
        assert name in drills.every()
        text = (ROOT / file.strip("`")).read_text()
        assert f"def test_{sentence.replace(' ', '_')}(" in text, line


@pytest.mark.soak
def test_the_drills_hold_at_a_small_size(drills: Any, capsys: pytest.CaptureFixture[str]) -> None:
    left_out = TAKE_LONG | (NEED_ROOT if os.geteuid() != 0 else set())
    names = [name for name in drills.every() if name not in left_out]
    held = drills.main([*names, "--runs", "20000"])
    assert held == 0, capsys.readouterr().out
