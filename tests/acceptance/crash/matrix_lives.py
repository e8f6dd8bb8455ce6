"""The process that dies in the middle of a cell of the durability matrix, and the one that goes on.

`python -m tests.acceptance.crash.matrix_lives CELL FOLDER die` is killed while the node after the cell's
runs; without `die` it resumes. Each call of a node leaves a line in `calls`.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from everstep import Durability, Flow, Host, Node, node

HEAVY = 4096
"""More than goes into a record of these flows."""
SHARED = {"effects": "pure"}


class Cell(NamedTuple):
    """A node as a cell of the matrix declares it."""

    options: dict[str, Any]
    value: Callable[[int], Any]
    """What it returns on its first, second, ... call."""


class Socket:
    """Something that cannot be kept."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __int__(self) -> int:
        return self.port


def light(call: int) -> int:
    return 7


def fresh(call: int) -> int:
    return call


def heavy(call: int) -> list[int]:
    return list(range(HEAVY))


def fresh_heavy(call: int) -> list[int]:
    return list(range(call, call + HEAVY))


STEADY = {"determinism": "strict"}
CHANCE = {"determinism": "nondeterministic"}
SKIP = {"skip_on_resume": True}
RERUN = {"skip_on_resume": False}

CELLS = {
    "skip-steady-light": Cell(SKIP | STEADY, light),
    "skip-steady-heavy": Cell(SKIP | STEADY, heavy),
    "skip-chance-light": Cell(SKIP | CHANCE, fresh),
    "skip-chance-heavy": Cell(SKIP | CHANCE, fresh_heavy),
    "rerun-steady-light": Cell(RERUN | STEADY, light),
    "rerun-steady-light-unkept": Cell(RERUN | STEADY | {"persist": "no"}, light),
    "rerun-steady-heavy": Cell(RERUN | STEADY, heavy),
    "rerun-steady-heavy-unkept": Cell(RERUN | STEADY | {"persist": "no"}, heavy),
    "rerun-chance-light-unmade": Cell(RERUN | CHANCE, fresh),
    "rerun-chance-light-stable": Cell(RERUN | CHANCE | {"persist": "inline"}, fresh),
    "rerun-chance-light-fresh": Cell(RERUN | CHANCE | {"persist": "no"}, fresh),
    "rerun-chance-heavy": Cell(RERUN | CHANCE | {"persist": "ref"}, fresh_heavy),
    "rerun-chance-heavy-fresh": Cell(RERUN | CHANCE | {"persist": "no"}, fresh_heavy),
    "marked-light": Cell(SKIP | STEADY | {"persist": "ref"}, light),
    "marked-inline": Cell(SKIP | STEADY | {"persist": "inline"}, heavy),
    "unstorable-transient": Cell(RERUN | {"persist": "no"}, Socket),
    "unstorable-kept": Cell(SKIP, Socket),
    "unstorable-registered": Cell(SKIP | {"output": "registered"}, Socket),
}


def flow_of(name: str, folder: Path, *, dies: bool) -> Flow:
    cell = CELLS[name]

    def called(who: str) -> int:
        with (folder / "calls").open("a") as calls:
            calls.write(f"{who}\n")
        return (folder / "calls").read_text().split().count(who)

    def value() -> Any:
        return cell.value(called("make"))

    make = Node(value, **{"name": "make", "output": "value", **cell.options})

    @node(output="seen")
    def use(value: Any) -> int:
        called("use")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return int(value[0] if isinstance(value, list) else value)

    reader: Node = use
    if make.outputs != ("value",):
        reader = use.with_inputs(value=make.outputs[0])
    return Flow(name, [make, reader], durability=Durability("strong", blob_threshold=1024))


def host_of(name: str, folder: Path) -> Host:
    host = Host(f"sqlite:///{folder}/runs.db")
    if name == "unstorable-registered":
        host.values.register(Socket, name="socket", encode=int, decode=Socket)
    return host


def main(name: str, folder: str, dies: str = "") -> None:
    where = Path(folder)
    with host_of(name, where) as host:
        host.run(flow_of(name, where, dies=bool(dies)), run_id="r")


if __name__ == "__main__":
    main(*itertools.islice(sys.argv, 1, None))
