"""The source files that the architecture tests read."""

from __future__ import annotations

import ast
import gc
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "everstep"


@dataclass(frozen=True)
class Source:
    """One module: where it is, seen from the package folder (`stores/sqlite.py`), and what it says."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree: most tests look at all of them."""
        return tuple(ast.walk(self.tree))

    @property
    def layer(self) -> str:
        """The first package or module below `everstep`: `stores`, `errors`, `__init__`."""
        return self.path.split("/")[0].removesuffix(".py")

    @property
    def package(self) -> list[str]:
        """The package that a relative import starts from."""
        return ["everstep", *self.path.split("/")[:-1]]

    def at(self, line: int) -> str:
        return f"src/everstep/{self.path}:{line}"


@cache
def everstep_sources() -> list[Source]:
    """Return every module of the package, read and parsed once for all tests of this folder.

    Meanwhile the garbage collector is off: it would walk over all these objects again and again, which took
    most of the time, and finds nothing. They are in no circles, so that they go without it as well.
    """
    files = sorted(PACKAGE.rglob("*.py"))
    sources = [Source(f.relative_to(PACKAGE).as_posix(), f.read_text(encoding="utf-8")) for f in files]
    gc.collect()
    gc.disable()
    for source in sources:
        assert source.nodes
    gc.freeze()
    gc.enable()
    return sources
