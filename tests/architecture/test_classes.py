"""A class is in one place: none is put together from parts that are nothing by themselves."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.architecture.sources import ROOT, Source, everstep_sources

Class = tuple[str, str]
"""The module of a class, and its name."""


class Classes:
    """The classes of some sources: what each is made of, and how often each is used as more than a part."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.bases: dict[Class, list[Class]] = {}
        self.uses: Counter[Class] = Counter()
        for source in sources:
            self._read(source)

    def _read(self, source: Source) -> None:
        module = module_of(source)
        names: dict[str, Class] = {}
        for node in source.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
            elif isinstance(node, ast.ClassDef):
                names[node.name] = (module, node.name)
        parts: set[int] = set()
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                parts |= {id(base) for base in node.bases}
                bases = [ast.unparse(base) for base in node.bases]
                self.bases[module, node.name] = [names.get(base, ("", base)) for base in bases]
        for node in source.nodes:
            if isinstance(node, ast.Name) and id(node) not in parts and node.id in names:
                self.uses[names[node.id]] += 1

    def parts(self) -> set[Class]:
        """Return the classes that have no base: what is made of one of them is nothing else."""
        return {name for name, bases in self.bases.items() if not bases}

    def is_own(self, name: Class) -> bool:
        """True if a class is made of nothing but classes of these sources."""
        return name in self.bases and all(map(self.is_own, self.bases[name]))


def module_of(source: Source) -> str:
    return "everstep." + source.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def shards(classes: Classes, is_used: Callable[[Class], bool]) -> Iterator[str]:
    """A class that is named only where another one is made of it is a part of that one."""
    made_of: dict[Class, list[Class]] = defaultdict(list)
    for name, bases in classes.bases.items():
        for base in bases:
            made_of[base].append(name)
    for part in sorted(classes.parts()):
        whole = made_of[part]
        if len(whole) == 1 and not classes.uses[part] and not is_used(part):
            yield f"{'.'.join(part)} is a part of {whole[0][1]} and nothing else; put it there"


SUITES = "everstep.testing.conformance"
"""A suite of tests inherits others, because pytest collects what a class has."""


def mixtures(classes: Classes) -> Iterator[str]:
    """A class that is made of several is several classes; let it have them instead."""
    for name, bases in sorted(classes.bases.items()):
        mixed = [base for base in bases if classes.is_own(base)]
        if len(mixed) > 1 and name[0] != SUITES:
            yield f"{'.'.join(name)} is made of {', '.join(base for _, base in mixed)}; let it have them"


def in_tests(part: Class) -> bool:
    """True if a test makes such an object: then it is a class by itself."""
    call = re.compile(rf"\b{part[1]}\(")
    return any(call.search(path.read_text()) for path in (ROOT / "tests").rglob("test_*.py"))


def nowhere(part: Class) -> bool:
    return False


def test_no_class_is_spread_over_parts_or_mixed_from_several() -> None:
    classes = Classes(everstep_sources())
    assert [*shards(classes, in_tests), *mixtures(classes)] == []


TWO_OF_ONE = "class Base: pass\nclass A(Base): pass\nclass B(Base): pass\nclass Both(A, B): pass"
CONFORMANCE = "testing/conformance/__init__.py"
STORE = "from everstep.a import Calls\n\nclass Store(Calls):\n    def f(self): return self.g()\n"
PART = "class Calls:\n    db: object\n    def g(self): return self.db\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.py": PART, "b.py": STORE}, "everstep.a.Calls is a part of Store and nothing else; put it there"),
        (
            {"a.py": PART + "class More:\n    pass\nx = Calls(), More()\nclass C(Calls, More): pass"},
            "everstep.a.C is made of Calls, More; let it have them",
        ),
        (
            {"a.py": TWO_OF_ONE},
            "everstep.a.Both is made of A, B; let it have them",
        ),
    ],
)
def test_the_check_finds_a_class_in_parts(files: dict[str, str], said: str) -> None:
    classes = Classes(Source(path, text) for path, text in files.items())
    assert [*shards(classes, nowhere), *mixtures(classes)] == [said]


@pytest.mark.parametrize(
    "files",
    [
        {"a.py": PART, "b.py": STORE, "c.py": "from everstep.a import Calls\nx = Calls()"},
        {"a.py": PART, "b.py": STORE + "\nclass Other(Calls): pass"},
        {"a.py": "class P(Protocol):\n    pass\nclass Q(Protocol):\n    pass\nclass C(P, Q): pass"},
        {CONFORMANCE: TWO_OF_ONE},
    ],
)
def test_a_base_that_is_a_class_by_itself_is_no_part(files: dict[str, str]) -> None:
    classes = Classes(Source(path, text) for path, text in files.items())
    assert [*shards(classes, nowhere), *mixtures(classes)] == []
