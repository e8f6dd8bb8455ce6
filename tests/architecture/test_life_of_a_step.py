"""From "its node returned" to durable is a short way, and the docs draw it as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everstep.graph.author.context import Context
from tests.architecture.sources import ROOT
from tests.architecture.way_of_a_step import Called, usual_way

PAGE = ROOT / "docs" / "explanation" / "life-of-a-step.md"
MOST_CALLS, MOST_FILES, LONGEST = 15, 6, 60


@pytest.fixture(autouse=True)
def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have loaded what marks which node runs: then no step is plain."""
    monkeypatch.setattr(Context, "marks", None)


def too_much(way: tuple[Called, ...]) -> list[str]:
    """Say what makes a way too long to be followed."""
    files = {called.file for called in way}
    found = [f"{len(way)} calls"] if len(way) > MOST_CALLS else []
    found += [f"{len(files)} files"] if len(files) > MOST_FILES else []
    found += [f"{called.function} has {called.lines} lines" for called in way if called.lines > LONGEST]
    return found + [f"{called.function} has a closure over {called.cells}" for called in way if called.cells]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_from_its_node_to_the_store_a_step_takes_few_calls_over_few_files(store: str, tmp_path: Path) -> None:
    way = usual_way("memory:" if store == "memory" else f"sqlite:///{tmp_path}/runs.db")
    assert too_much(way) == []


def test_the_docs_draw_the_way_as_it_is() -> None:
    drawn = re.findall(r"^\| (\S+\.py) \| `(\S+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert drawn == [(called.file, called.function) for called in usual_way("memory:")]


def test_a_way_that_grows_is_found() -> None:
    call = Called("a.py", "f", 3)
    assert too_much((call,) * MOST_CALLS) == []
    assert too_much((call,) * (MOST_CALLS + 1)) == [f"{MOST_CALLS + 1} calls"]
    assert too_much(tuple(Called(f"{k}.py", "f", 3) for k in range(MOST_FILES + 1))) == [
        f"{MOST_FILES + 1} files"
    ]
    assert too_much((Called("a.py", "f", LONGEST + 1),)) == [f"f has {LONGEST + 1} lines"]
    assert too_much((Called("a.py", "f", 3, ("self",)),)) == ["f has a closure over ('self',)"]
