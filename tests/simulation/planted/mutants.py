"""Mutations of the code that drives runs, drawn by a seed, and whether the general trials find one.

Run as a program it makes one mutation while its module is imported, tries, and prints what was found. Left
out are the rooms that no run is driven by: what reads, checks, moves and removes runs that are at rest.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.abc
import importlib.machinery
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import msgspec

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src"
ROOMS = (
    *("engine", "runtime", "runtime/drive", "runtime/drive/units", "runtime/guards", "runtime/outage"),
    *("runtime/waits", "runtime/workers", "stores/memory", "stores/objects"),
)
PATIENCE = 60
"""Seconds of a processor after which a mutation that goes round and round counts as found."""
LONGEST = 900
"""Seconds of anyone's time: a busy machine gives it few of those."""
_OTHER = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_PLAIN = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)


class Mutation(NamedTuple):
    """One change of one function."""

    module: str
    function: str
    kind: str
    number: int
    """Which place of its kind in the function."""
    line: str
    """What stands there."""

    def __str__(self) -> str:
        return f"{self.module} {self.function} {self.kind} {self.number}"


class Verdict(msgspec.Struct, frozen=True):
    """What the trials said of a mutation."""

    trial: str | None = None
    invariant: str | None = None
    """Which promise it broke; none if it was not found."""
    decisions: int = 0
    """How many it takes in the shortest schedule that was found."""


# -- drawing ----------------------------------------------------------------------------------------------


def drawn(seed: int, count: int) -> list[Mutation]:
    """Return so many mutations. A change of one function moves no mutation of another."""
    found = [mutation for path in _modules() for mutation in _of_module(path)]
    found.sort(key=lambda mutation: hashlib.sha256(f"{seed} {mutation}".encode()).digest())
    return found[:count]


def _modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((SOURCE / "everstep" / room).glob("*.py"))


def _of_module(path: Path) -> Iterator[Mutation]:
    module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    if path.name in ("__init__.py", "live.py"):  # what is emitted is no record, and is not simulated
        return
    for name, function in _functions(ast.parse(path.read_text())):
        counts: dict[str, int] = {}
        for kind, node in _places(function):
            counts[kind] = counts.get(kind, 0) + 1
            yield Mutation(module, name, kind, counts[kind], _shown(kind, node))


def _shown(kind: str, node: Any) -> str:
    if kind == "swapped statements":
        body, k = node
        return f"{ast.unparse(body[k])}; {ast.unparse(body[k + 1])}"[:160]
    shown = node.test if kind == "inverted condition" else node
    return ast.unparse(shown)[:160]


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield f"{node.name}.{inner.name}", inner


def _places(function: ast.AST) -> Iterator[tuple[str, Any]]:
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not isinstance(node.test, ast.Constant):
            yield "inverted condition", node
        if isinstance(node, (ast.Expr, ast.Assign, ast.Return)) and isinstance(node.value, ast.Await):
            yield "dropped await", node
        if isinstance(node, ast.Call) and len(node.args) > 1:
            first, second = node.args[:2]
            if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
                yield "swapped arguments", node
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER:
            yield "off by one", node
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list):
                yield from _neighbours(body)


def _neighbours(body: list[ast.stmt]) -> Iterator[tuple[str, Any]]:
    for k, (one, other) in enumerate(pairwise(body)):
        is_text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        if isinstance(one, _PLAIN) and isinstance(other, _PLAIN) and not is_text:
            is_told = isinstance(other, ast.Expr) and isinstance(other.value, ast.Constant)
            if not is_told:
                yield "swapped statements", (body, k)


# -- making -----------------------------------------------------------------------------------------------


def mutated(source: str, mutation: Mutation) -> ast.Module:
    """Return the module with that one change."""
    tree = ast.parse(source)
    function = dict(_functions(tree))[mutation.function]
    places = [node for kind, node in _places(function) if kind == mutation.kind]
    _change(mutation.kind, places[mutation.number - 1])
    return ast.fix_missing_locations(tree)


def _change(kind: str, node: Any) -> None:
    if kind == "inverted condition":
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif kind == "dropped await":
        node.value = node.value.value
    elif kind == "swapped arguments":
        node.args[:2] = node.args[1::-1]
    elif kind == "off by one":
        node.ops[0] = _OTHER[type(node.ops[0])]()
    else:
        body, k = node
        body[k : k + 2] = body[k + 1], body[k]


class _Mutating(importlib.machinery.SourceFileLoader):
    """Loads a module with one change."""

    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        return compile(mutated(source, self._mutation), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._mutation.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _Mutating(fullname, spec.origin, self._mutation)
        return spec


# -- trying -----------------------------------------------------------------------------------------------


class Order(msgspec.Struct, frozen=True):
    """What a process that makes a mutation is asked for."""

    mutation: Mutation
    trials: Sequence[str]
    single: int
    drawn: int


def tried(mutation: Mutation, trials: Sequence[str], single: int, drawn: int) -> Verdict:
    """Make a mutation in a process of its own, and return what the trials say of it."""
    order = msgspec.json.encode(Order(mutation, trials, single, drawn))
    command = [sys.executable, "-m", "tests.simulation.planted.mutants"]
    try:
        done = subprocess.run(command, input=order, cwd=ROOT, capture_output=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return Verdict("?", "progress")
    if done.returncode == -signal.SIGXCPU:
        return Verdict("?", "progress")
    if done.returncode:
        return Verdict("import", done.stderr.decode()[-300:])
    return msgspec.json.decode(done.stdout, type=Verdict)


def _try(order: Order) -> Verdict:
    from tests.simulation.planted.hunt import Effort, hunt  # once the mutation lies in wait
    from tests.simulation.planted.trials import TRIALS

    for name in order.trials:
        for is_remote in TRIALS[name].stores:
            try:
                found = hunt(name, Effort(order.single, order.drawn), is_remote=is_remote)
            except Exception as error:
                return Verdict(name, f"raises {type(error).__name__}")
            if found is not None:
                return Verdict(name, found.broken[0].invariant, len(found.taken))
    return Verdict()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, 2 * PATIENCE))
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.meta_path.insert(0, _Finder(asked.mutation))
    sys.stdout.buffer.write(msgspec.json.encode(_try(asked)))
