"""The rooms: how large a folder may be, how a package opens, which modules stand apart, and no circles."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import pytest

from tests.architecture.sources import ROOT, Source, everstep_sources
from tests.architecture.test_layers import BETWEEN_ROOMS, MAY_IMPORT, imported_names

MOST_MODULES = 20
"""How many modules a folder may show."""
MOST_ROOMS = 13
"""How many folders a folder may show."""

APART = re.compile(r"\bApart\b")
"""How a module with one importer begins to say why it is not a part of that."""
EACH = re.compile(r"\ba module each\b|\b[Oo]ne module for each\b")
"""How a package says that its modules are entries of one table."""

READ = re.compile(r"\b(?:[Rr]ead|Begin with)\b[^.`]*`([\w./]+)`")
MAY = re.compile(r"\bMay import ([^.]*(?:\.\w[^.]*)*)")
NAME = re.compile(r"`([\w.]+)`")

KNOTS: list[set[str]] = []
"""Modules that import each other in a circle, imports for types included. None may be added."""


def module_of(source: Source) -> str:
    """Return the dotted name of a module below the package; of a package itself, that of its folder."""
    return source.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def crowded(paths: Iterable[str]) -> Iterator[str]:
    """Name each folder that shows more modules or more folders than one can take in."""
    modules: dict[str, set[str]] = defaultdict(set)
    rooms: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name != "__init__.py":
            modules[folder].add(name)
        while folder:
            outer, _, room = folder.rpartition("/")
            rooms[outer].add(room)
            folder = outer
    for folder in sorted(modules.keys() | rooms.keys()):
        if len(modules[folder]) > MOST_MODULES:
            yield f"{folder} shows {len(modules[folder])} modules; find the rooms in it"
        if len(rooms[folder]) > MOST_ROOMS:
            yield f"{folder} shows {len(rooms[folder])} folders; find the rooms in it"


def unopened(paths: Iterable[str]) -> Iterator[str]:
    """Name each folder with modules that is no package: no table and no check knows it as a room."""
    listed = set(paths)
    for folder in sorted({path.rpartition("/")[0] for path in listed} - {""}):
        if f"{folder}/__init__.py" not in listed:
            yield f"{folder} has no __init__.py; let it open with what is in it"


def silent(sources: Iterable[Source]) -> Iterator[str]:
    """Name each package that does not open with what is in it, what to read first, and what it may import.

    The package itself has a page for that: ARCHITECTURE.md.
    """
    listed = list(sources)
    known = {module_of(source) for source in listed}
    for source in listed:
        if source.path == "__init__.py" or not source.path.endswith("__init__.py"):
            continue
        room, text = module_of(source), " ".join((ast.get_docstring(source.tree) or "").split())
        if not re.match(r"[A-Z`].*\.", text):
            yield f"{source.at(1)}: say what is in this package"
        first = [name.replace("/", ".") for name in READ.findall(text)[:1]]
        if not any(f"{room}.{name}" in known or name in known for name in first):
            yield f"{source.at(1)}: say which of its modules to read first: Read `store` first."
        if (said := MAY.search(text)) is None or (
            "." in room and set(NAME.findall(said[1])) != rooms_of(room)
        ):
            yield f"{source.at(1)}: say what it may import: May import what `stores` may, and of its rooms …"
        elif "." not in room and (wrong := named_layers(said[1]) - layers_of(room)):
            yield f"{source.at(1)}: it may not import {', '.join(sorted(wrong))}"


def named_layers(said: str) -> set[str]:
    """Return the layers that a sentence says may be imported; what is reached through another is not."""
    direct = re.sub(r"\w+ only through.*", "", said)
    return set(re.findall(r"\w+", direct)) & MAY_IMPORT.keys()


def layers_of(layer: str) -> set[str]:
    """Return the layers that a layer may import something of."""
    return {entry.split(".")[0] for entry in MAY_IMPORT.get(layer, ())}


def rooms_of(room: str) -> set[str]:
    """Return what a room inside a layer has to name: its layer, and the rooms there that it may import."""
    return {room.split(".")[0], *BETWEEN_ROOMS.get(room, "").split()}


def imports(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Map each module to those of the package that it imports, for types or for use."""
    listed = list(sources)
    known = {module_of(source) for source in listed}
    found: dict[str, set[str]] = {module: set() for module in known}
    for source in listed:
        for _, name in imported_names(source):
            target = name.removeprefix("everstep.")
            while target and target not in known:
                target = target.rpartition(".")[0]
            if target and name.startswith("everstep.") and target != module_of(source):
                found[module_of(source)].add(target)
    return found


def shards(sources: Iterable[Source]) -> Iterator[str]:
    """Name each module that only one other of its layer imports, and that does not say why it is apart."""
    listed = {module_of(source): source for source in sources}
    importers: dict[str, set[str]] = defaultdict(set)
    for module, imported in imports(listed.values()).items():
        for target in imported:
            importers[target].add(module)
    for module, source in sorted(listed.items()):
        if len(importers[module]) != 1 or source.path.endswith("__init__.py"):
            continue
        [importer] = importers[module]
        is_of_other_layer = importer.split(".")[0] != source.layer
        if not (is_of_other_layer or APART.search(opening(source)) or is_one_of_many(module, listed)):
            yield f"{source.at(1)}: only {importer} imports this; merge them, or open with why it is apart"


def unused(sources: Iterable[Source]) -> Iterator[str]:
    """Name each module that no other imports or loads by its name.

    Users import those at the top, and those of `agents` and `testing`.
    """
    listed = {module_of(source): source for source in sources}
    imported = set().union(*imports(listed.values()).values())
    said = {
        node.value
        for source in listed.values()
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for module, source in sorted(listed.items()):
        is_for_users = "." not in module or source.layer in ("agents", "testing")
        if is_for_users or module in imported or source.path.endswith("__init__.py"):
            continue
        inner = module.partition(".")[2]  # as a table of its layer names it
        if not said & {f"everstep.{module}", *([inner] if "." in inner else [])}:
            yield f"{source.at(1)}: no module imports this; remove it"


def opening(source: Source) -> str:
    """Return the first paragraph of a module."""
    return (ast.get_docstring(source.tree) or "").partition("\n\n")[0]


def is_one_of_many(module: str, listed: Mapping[str, Source]) -> bool:
    """True if a package around a module says that it has a module for each of many things."""
    parts = module.split(".")
    around = [listed.get(".".join(parts[:k])) for k in range(1, len(parts))]
    return any(
        EACH.search(ast.get_docstring(package.tree) or "") for package in around if package is not None
    )


def knots(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that lead to each other."""
    reached = {module: _reachable(graph, module) for module in graph}
    found: list[set[str]] = []
    for module in sorted(graph):
        knot = {other for other in reached[module] if module in reached[other]}
        if knot and not any(module in known for known in found):
            found.append(knot | {module})
    return found


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = list(graph[start])
    while todo:
        module = todo.pop()
        if module not in found:
            found.add(module)
            todo += graph[module]
    return found


def test_no_folder_shows_more_modules_than_one_can_take_in() -> None:
    assert list(crowded(source.path for source in everstep_sources())) == []


def test_every_folder_with_modules_is_a_package() -> None:
    assert list(unopened(source.path for source in everstep_sources())) == []


def test_a_folder_that_is_no_package_is_found() -> None:
    room = ["runtime/__init__.py", "runtime/attic/one.py", "runtime/attic/two.py"]
    assert list(unopened(room)) == ["runtime/attic has no __init__.py; let it open with what is in it"]
    assert list(unopened([*room, "runtime/attic/__init__.py", "errors.py"])) == []


def test_no_folder_of_tests_shows_more_modules_than_one_can_take_in() -> None:
    tests = ROOT / "tests"
    assert list(crowded(path.relative_to(ROOT).as_posix() for path in tests.rglob("*.py"))) == []


def test_every_package_says_what_is_in_it_what_to_read_first_and_what_it_may_import() -> None:
    assert list(silent(everstep_sources())) == []


def test_a_module_with_one_importer_opens_with_why_it_is_apart() -> None:
    assert list(shards(everstep_sources())) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""The loop."""', 1),
        ('"""The loop.\n\nApart from the others.\n"""', 1),
        ('"""The loop. Apart from what it calls."""', 0),
        ("", 1),
    ],
)
def test_a_shard_is_found(text: str, found: int) -> None:
    importer = Source("stores/b.py", "from everstep.stores.a import x")
    assert len(list(shards([Source("stores/a.py", text), importer]))) == found


def test_what_two_import_or_another_layer_or_is_one_of_many_is_no_shard() -> None:
    silent_one = Source("stores/a.py", "")
    users = [
        Source(f"{name}.py", "from everstep.stores.a import x") for name in ("stores/b", "stores/c", "d")
    ]
    table = Source("stores/__init__.py", '"""Stores, a module each."""')
    assert list(shards([silent_one, *users[:2]])) == []
    assert list(shards([silent_one, users[2]])) == []
    assert list(shards([silent_one, users[0], table])) == []


def test_every_module_is_used() -> None:
    assert list(unused(everstep_sources())) == []


def test_a_module_that_no_other_imports_is_found() -> None:
    dead = Source("runtime/travel/a.py", "")
    assert list(unused([dead])) == [f"{dead.at(1)}: no module imports this; remove it"]
    users = ["from everstep.runtime.travel.a import x", "from . import a", "TABLE = ['travel.a']"]
    users += ["command = ['-m', 'everstep.runtime.travel.a']"]
    for text in users:
        assert list(unused([dead, Source("runtime/travel/__init__.py", text)])) == []
    assert list(unused([Source("results.py", ""), Source("testing/a.py", "")])) == []


def test_no_modules_import_each_other_in_a_circle_but_the_knots_that_are_known() -> None:
    found = knots(imports(everstep_sources()))
    new = [sorted(knot) for knot in found if not any(knot <= known for known in KNOTS)]
    assert new == []


def test_a_knot_that_was_untied_is_taken_off_the_list() -> None:
    found = knots(imports(everstep_sources()))
    assert [sorted(known) for known in KNOTS if known not in found] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from everstep.b import x", [{"a", "b"}]),
        ("if TYPE_CHECKING:\n    from everstep.b import X", [{"a", "b"}]),
        ("from everstep import c", []),
    ],
)
def test_a_circle_is_found(text: str, names: list[set[str]]) -> None:
    sources = [Source("a.py", text), Source("b.py", "from everstep.a import y"), Source("c.py", "")]
    assert knots(imports(sources)) == names


def test_a_crowded_folder_is_found() -> None:
    many = [f"store/m{k}.py" for k in range(MOST_MODULES + 1)]
    assert list(crowded(many)) == [f"store shows {MOST_MODULES + 1} modules; find the rooms in it"]
    assert list(crowded(many[:-1])) == []
    rooms = [f"store/r{k}/one.py" for k in range(MOST_ROOMS + 1)]
    assert list(crowded(rooms)) == [f"store shows {MOST_ROOMS + 1} folders; find the rooms in it"]
    assert list(crowded(rooms[:-1])) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("import os\n", ["what is in", "which of its modules", "what it may import"]),
        ('"""Runs in one file."""', ["which of its modules", "what it may import"]),
        (
            '"""Runs in one file. Read `gone` first. May import what `stores` may."""',
            ["which of its modules"],
        ),
        ('"""Runs in one file. Read `store` first."""', ["what it may import"]),
        (
            '"""Runs. Read `store` first. May import what `stores` may, and of its rooms `redis`."""',
            ["what it may import"],
        ),
        ('"""Runs. Read `store` first. May import what `stores` may, and no other room of it."""', []),
    ],
)
def test_a_silent_package_is_found(text: str, missing: list[str]) -> None:
    found = list(silent([Source("stores/sqlite/__init__.py", text), Source("stores/sqlite/store.py", "")]))
    assert [finding.startswith("src/everstep/stores/sqlite/__init__.py:1: say ") for finding in found] == [
        True for _ in missing
    ]
    assert all(part in finding for part, finding in zip(missing, found, strict=True))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("nothing but `cli`", 1),
        ("errors, graph and model", 1),
        ("errors, model and ports; a client only through a host", 0),
        ("errors, and cli only through the registry", 0),
    ],
)
def test_a_layer_that_says_it_may_import_what_it_may_not_is_found(said: str, found: int) -> None:
    text = f'"""Stores. Read `a` first. May import {said}."""'
    listed = [Source("stores/__init__.py", text), Source("stores/a.py", "")]
    assert len(list(silent(listed))) == found
