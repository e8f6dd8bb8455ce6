"""The ratchet bites: a call, an import or a statement that is added is found, and named."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import everstep
from tests.budgets import counting
from tests.budgets.loads import LOADED
from tests.budgets.ratchet import Budget, Budgets, Costs, Trouble, check, figure_of, moved, told

PACKAGE = Path(everstep.__file__).parent
STORE = "stores/sqlite/store.py"
PUT = "SqliteStore.put_blocking"


class Copy:
    """The package as it is, in another folder, with modules that may be changed."""

    def __init__(self, folder: Path) -> None:
        self._package = folder / "everstep"
        for at, folders, files in os.walk(PACKAGE):
            folders[:] = [name for name in folders if name != "__pycache__"]
            here = self._package / Path(at).relative_to(PACKAGE)
            here.mkdir()
            for name in files:
                (here / name).symlink_to(Path(at) / name)
        self.path = os.pathsep.join([str(folder), str(counting.ROOT)])

    def append(self, module: str, text: str) -> None:
        """Add something to the end of a module."""
        self._replace(module, f"{self._read(module)}\n\n{text}\n")

    def begin(self, module: str, function: str, line: str) -> None:
        """Add a line to the beginning of a function, or of a method."""
        lines = self._read(module).splitlines()
        body = _found(ast.parse("\n".join(lines)), *function.split(".")).body
        first = body[1] if isinstance(body[0], ast.Expr) and len(body) > 1 else body[0]
        lines.insert(first.lineno - 1, " " * first.col_offset + line)
        self._replace(module, "\n".join(lines) + "\n")

    def _read(self, module: str) -> str:
        return (self._package / module).read_text(encoding="utf-8")

    def _replace(self, module: str, text: str) -> None:
        file = self._package / module
        file.unlink()
        file.write_text(text, encoding="utf-8")


def _found(
    inside: ast.Module | ast.ClassDef, name: str, *deeper: str
) -> ast.FunctionDef | ast.AsyncFunctionDef:
    kinds = ast.ClassDef if deeper else (ast.FunctionDef, ast.AsyncFunctionDef)
    [found] = [each for each in inside.body if isinstance(each, kinds) and each.name == name]
    return _found(found, *deeper) if isinstance(found, ast.ClassDef) else found


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.fixture(scope="module")
def as_it_is(tmp_path_factory: pytest.TempPathFactory) -> Costs:
    """What the package costs without a change."""
    work = counting.costs_on("sqlite", "sqlite:", ["w1"])
    return work | counting.loads_of("import everstep", tmp_path_factory.mktemp("loads"))


def troubles(changed: Costs, as_it_is: Costs) -> dict[str, Trouble]:
    """Return by its kind what is above a budget that is what the package costs without the change."""
    exact, _ = moved(as_it_is, Budgets("3.11", {}), {}, dict.fromkeys(as_it_is, "unit"), "")
    return {trouble.kind: trouble for trouble in check(changed, exact, as_it_is) if trouble.is_above}


def test_a_call_that_is_added_to_the_way_of_a_step_is_named(copy: Copy, as_it_is: Costs) -> None:
    copy.begin(STORE, PUT, "_added()")
    copy.append(STORE, "def _added() -> None:\n    pass")
    found = troubles(counting.costs_on("sqlite", "sqlite:", ["w1"], PYTHONPATH=copy.path), as_it_is)
    assert set(found) == {"calls"}
    assert found["calls"].added == {f"{STORE}:_added": 1}
    [said] = told(found.values())
    assert f"+1 {STORE}:_added" in said


def test_a_statement_that_is_added_to_a_put_is_named(copy: Copy, as_it_is: Costs) -> None:
    copy.begin(STORE, PUT, "self._db.execute('SELECT 42')")
    found = troubles(counting.costs_on("sqlite", "sqlite:", ["w1"], PYTHONPATH=copy.path), as_it_is)
    assert found["statements"].added == {"SELECT 42": 1}
    assert found["calls"].added["apsw.Connection.execute"] == 1


DRIVE = "runtime/drive/"
PLACES = {
    "subflows.py:Inner._enter": {"map": 1, "inner": 1},
    "prepare.py:Preparer._find_key": {"effect": 1, "retry": 2, "announced": 1},
    "prepare.py:Preparer.announce": {"announced": 1},
    "finish.py:can_retry": {"retry": 1},
}
"""Where only some nodes come by, and how often one unit of a work does."""


def test_a_call_that_is_added_to_the_way_of_only_some_nodes_is_counted(copy: Copy) -> None:
    for number, place in enumerate(PLACES):
        module, function = place.split(":")
        copy.begin(DRIVE + module, function, f"_added_{number}()")
        copy.append(DRIVE + module, f"def _added_{number}() -> None:\n    pass")
    works = sorted({work for often in PLACES.values() for work in often})
    found = counting.costs_on("sqlite", "sqlite:", works, PYTHONPATH=copy.path)
    for number, (place, often) in enumerate(PLACES.items()):
        added = f"{DRIVE}{place.split(':')[0]}:_added_{number}"
        calls = {work: found[f"{work} on sqlite"]["calls"].get(added, 0) for work in works}
        assert {work: many for work, many in calls.items() if many} == often, place


@pytest.mark.parametrize("module", ["wave", "json"])
def test_an_import_that_is_added_to_the_core_is_named(
    module: str, copy: Copy, as_it_is: Costs, tmp_path: Path
) -> None:
    copy.append("model/enums.py", f"import {module}")
    found = troubles(counting.loads_of("import everstep", tmp_path, PYTHONPATH=copy.path), as_it_is)
    assert set(found) == {"modules"}
    assert found["modules"].added[module] == 1


def test_to_tell_what_is_loaded_loads_nothing() -> None:
    begun = "import sys; begun = set(sys.modules)"
    code = f"{begun}{LOADED}\nassert set(sys.modules) == begun, set(sys.modules) - begun"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def costs(calls: float, name: str = "w1 on sqlite", what: str = "a.py:f") -> Costs:
    return {name: {"calls": {what: calls}}}


def budgets(figure: float, tolerance: str = "0.5", why: str = "") -> Budgets:
    return Budgets("3.11", {"w1 on sqlite": {"calls": Budget(figure, "step", tolerance, why)}})


def test_a_figure_within_its_tolerance_is_no_trouble() -> None:
    assert check(costs(100.5), budgets(100), costs(100)) == []
    assert check(costs(99.0), budgets(100), costs(100)) == []
    assert check(costs(101), budgets(100, "1 %"), costs(100)) == []


def test_a_figure_that_is_clearly_below_its_budget_asks_to_lower_it() -> None:
    [trouble] = check(costs(98), budgets(100), costs(100))
    assert not trouble.is_above
    [said] = told([trouble])
    assert said.startswith("w1 on sqlite: 98 calls per step; 100 is its budget")
    assert said.endswith(".venv/bin/python -m tests.budgets --write")


def test_what_was_added_to_several_works_is_told_once() -> None:
    known = costs(100) | costs(500, "w3 on sqlite") | costs(100, "w5 on sqlite")
    grown = costs(101) | costs(505, "w3 on sqlite") | costs(102, "w5 on sqlite", "b.py:g")
    exact, _ = moved(known, Budgets("3.11", {}), {}, dict.fromkeys(known, "unit"), "")
    together, alone = told(check(grown, exact, known))
    assert together.splitlines()[:2] == [
        "w1 on sqlite: 101 calls per unit; 100 is its budget, with a tolerance of 0.5.",
        "w3 on sqlite: 505 calls per unit; 500 is its budget, with a tolerance of 0.5.",
    ]
    assert together.splitlines()[2] == "  +1 to +5 a.py:f"
    assert "+102 b.py:g" in alone


def test_a_budget_falls_by_itself_and_rises_only_with_a_reason() -> None:
    def after(figure: float, old: Budgets, why: str = "") -> Budgets:
        new, risen = moved(costs(figure), old, costs(100), {"w1 on sqlite": "step"}, why)
        assert [trouble.added for trouble in risen] == ([{"a.py:f": figure - 100}] if figure > 100 else [])
        return new

    assert after(98, budgets(100, why="old")) == budgets(98, why="old")
    assert after(102, budgets(100)) == budgets(100)
    assert after(102, budgets(100), "It signs.") == budgets(102, why="It signs.")


def test_a_reason_stays_when_another_comes_before_it() -> None:
    old = budgets(100, why="It signs.")
    assert old.of["w1 on sqlite"]["calls"].raised(102, "It seals.").why == "It seals. Before: It signs."
    assert old.of["w1 on sqlite"]["calls"].raised(102, "It signs.").why == "It signs."
    same, _ = moved(costs(100), old, costs(100), {"w1 on sqlite": "step"}, "It seals.")
    assert same == old


def test_what_is_added_to_every_fourth_put_needs_a_reason_too() -> None:
    known: Costs = {"w1 on sqlite": {"statements": {"put": 1.0}, "calls": {"f": 1.0}}}
    grown: Costs = {"w1 on sqlite": {"statements": {"put": 1.0, "more": 0.25}, "calls": {"f": 1.0}}}
    old, _ = moved(known, Budgets("3.11", {}), {}, {"w1 on sqlite": "step"}, "")
    _, risen = moved(grown, old, known, {"w1 on sqlite": "step"}, "")
    assert [trouble.added for trouble in risen] == [{"more": 0.25}]


def test_budgets_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = budgets(133.73, "1 %", 'a "reason" – with ünicode')
    written.write(tmp_path / "budgets.toml")
    assert Budgets.read(tmp_path / "budgets.toml") == written


def test_what_happens_now_and_then_is_not_of_each_step() -> None:
    assert figure_of("syncs", {"log": 6.1, "fdatasync": 0.05}) == 6
    assert figure_of("statements", {"SELECT 1": 0.5}) == 0.5
    assert figure_of("calls", {"f": 6.1}) == 6.1


@pytest.mark.parametrize("kind", ["statements", "syncs", "round trips"])
def test_what_is_added_to_every_fourth_put_is_found_all_the_same(kind: str) -> None:
    calls = {"calls": {"f": 1.0}}
    known: Costs = {"w1 on sqlite": {kind: {"log": 1.0, "room": 0.1}, **calls}}
    exact = Budgets("3.11", {"w1 on sqlite": {kind: Budget(1, "step", "0", "")}})
    assert check({"w1 on sqlite": {kind: {"log": 1.0, "room": 0.2}, **calls}}, exact, known) == []
    for more in ({"log": 1.25, "room": 0.1}, {"log": 1.0, "room": 0.1, "another": 0.25}):
        [trouble] = check({"w1 on sqlite": {kind: more, **calls}}, exact, known)
        assert trouble.is_above
        assert list(trouble.added.values()) == [0.25]
