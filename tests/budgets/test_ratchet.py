"""The ratchet bites: a call, an import or a statement that is added is found, and named."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import everstep
from tests.budgets import counting
from tests.budgets.ratchet import Budget, Budgets, Costs, Trouble, check, figure_of, moved

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
        """Add a line to the beginning of a method."""
        lines = self._read(module).splitlines()
        body = _method(ast.parse("\n".join(lines)), *function.split(".")).body
        first = body[1] if isinstance(body[0], ast.Expr) and len(body) > 1 else body[0]
        lines.insert(first.lineno - 1, " " * first.col_offset + line)
        self._replace(module, "\n".join(lines) + "\n")

    def _read(self, module: str) -> str:
        return (self._package / module).read_text(encoding="utf-8")

    def _replace(self, module: str, text: str) -> None:
        file = self._package / module
        file.unlink()
        file.write_text(text, encoding="utf-8")


def _method(module: ast.Module, owner: str, name: str) -> ast.FunctionDef:
    [kind] = [each for each in module.body if isinstance(each, ast.ClassDef) and each.name == owner]
    [method] = [each for each in kind.body if isinstance(each, ast.FunctionDef) and each.name == name]
    return method


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.fixture(scope="module")
def as_it_is(tmp_path_factory: pytest.TempPathFactory) -> Costs:
    """What the package costs without a change."""
    work = counting.costs_on("sqlite", "sqlite:", "w1")
    return work | counting.loads_of("import everstep", tmp_path_factory.mktemp("loads"))


def troubles(changed: Costs, as_it_is: Costs) -> dict[str, Trouble]:
    """Return by its kind what is above a budget that is what the package costs without the change."""
    exact, _ = moved(as_it_is, Budgets("3.11", {}), dict.fromkeys(as_it_is, "unit"), "")
    return {trouble.kind: trouble for trouble in check(changed, exact, as_it_is) if trouble.is_above}


def test_a_call_that_is_added_to_the_way_of_a_step_is_named(copy: Copy, as_it_is: Costs) -> None:
    copy.begin(STORE, PUT, "_added()")
    copy.append(STORE, "def _added() -> None:\n    pass")
    found = troubles(counting.costs_on("sqlite", "sqlite:", "w1", PYTHONPATH=copy.path), as_it_is)
    assert set(found) == {"calls"}
    assert f"+1 {STORE}:_added" in found["calls"].added
    assert f"+1 {STORE}:_added" in str(found["calls"])


def test_a_statement_that_is_added_to_a_put_is_named(copy: Copy, as_it_is: Costs) -> None:
    copy.begin(STORE, PUT, "self._db.execute('SELECT 42')")
    found = troubles(counting.costs_on("sqlite", "sqlite:", "w1", PYTHONPATH=copy.path), as_it_is)
    assert found["statements"].added == ["+1 SELECT 42"]
    assert "+1 apsw.Connection.execute" in found["calls"].added


def test_an_import_that_is_added_to_the_core_is_named(copy: Copy, as_it_is: Costs, tmp_path: Path) -> None:
    copy.append("model/enums.py", "import wave")
    found = troubles(counting.loads_of("import everstep", tmp_path, PYTHONPATH=copy.path), as_it_is)
    assert set(found) == {"modules"}
    assert "+1 wave" in found["modules"].added


def costs(calls: float) -> Costs:
    return {"w1 on sqlite": {"calls": {"a.py:f": calls}}}


def budgets(figure: float, tolerance: str = "0.5", why: str = "") -> Budgets:
    return Budgets("3.11", {"w1 on sqlite": {"calls": Budget(figure, "step", tolerance, why)}})


def test_a_figure_within_its_tolerance_is_no_trouble() -> None:
    assert check(costs(100.5), budgets(100), costs(100)) == []
    assert check(costs(99.0), budgets(100), costs(100)) == []
    assert check(costs(101), budgets(100, "1 %"), costs(100)) == []


def test_a_figure_that_is_clearly_below_its_budget_asks_to_lower_it() -> None:
    [trouble] = check(costs(98), budgets(100), costs(100))
    assert not trouble.is_above
    assert "Lower it to 98: python -m tests.budgets --write" in str(trouble)


def test_a_budget_falls_by_itself_and_rises_only_with_a_reason() -> None:
    units = {"w1 on sqlite": "step"}
    assert moved(costs(98), budgets(100, why="old"), units, "") == (budgets(98, why="old"), set())
    assert moved(costs(102), budgets(100), units, "") == (budgets(100), {"w1 on sqlite"})
    assert moved(costs(102), budgets(100), units, "it signs") == (budgets(102, why="it signs"), set())


def test_budgets_are_read_as_they_were_written(tmp_path: Path) -> None:
    told = budgets(133.73, "1 %", 'a "reason" – with ünicode')
    told.write(tmp_path / "budgets.toml")
    assert Budgets.read(tmp_path / "budgets.toml") == told


def test_what_happens_now_and_then_is_not_of_each_step() -> None:
    assert figure_of("syncs", {"log": 6.1, "fdatasync": 0.05}) == 6
    assert figure_of("statements", {"SELECT 1": 0.5}) == 0.5
    assert figure_of("calls", {"f": 6.1}) == 6.1


@pytest.mark.parametrize("kind", ["statements", "syncs", "round trips"])
def test_what_is_added_to_every_fourth_put_is_found_all_the_same(kind: str) -> None:
    calls = {"calls": {"f": 1.0}}
    known: Costs = {"w1 on sqlite": {kind: {"log": 1.0, "room": 0.1}, **calls}}
    told = Budgets("3.11", {"w1 on sqlite": {kind: Budget(1, "step", "0", "")}})
    assert check({"w1 on sqlite": {kind: {"log": 1.0, "room": 0.2}, **calls}}, told, known) == []
    for more in ({"log": 1.25, "room": 0.1}, {"log": 1.0, "room": 0.1, "another": 0.25}):
        [trouble] = check({"w1 on sqlite": {kind: more, **calls}}, told, known)
        assert trouble.is_above
        assert "+0.25" in str(trouble)
