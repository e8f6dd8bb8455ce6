"""Values as steps wrote them are found from the end of a run, however far back they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everstep import END, Flow, Host, node, route
from everstep.results import Unreadable

ROUNDS = 12


@node(output="out")
def each(item: int, n: int) -> int:
    return item * n


@node(output="sums")
def grow(outs: list[int]) -> list[int]:
    return [*outs, sum(outs)]


mapped = each.map_over("item", max_concurrency=1).with_inputs(item="items").with_outputs("outs")
inner = Flow("inner", [mapped, grow])


@node(output="n")
def count_up(n: int) -> int:
    return n + 1


@node(output="seen")
def note(n: int, seen: list[int]) -> list[int]:
    return [*seen, n]


@route("count_up", END)
def again(seen: list[int]) -> str:
    return END if len(seen) >= ROUNDS else "count_up"


FLOW = Flow(
    "f",
    [inner.as_node().with_inputs(n="factor").lift("sums"), count_up >> note >> again],
    entry="count_up",
    durability="strong",
)
INPUTS: dict[str, Any] = {"n": 0, "seen": [], "items": [1, 2, 3], "factor": 2}


def test_a_value_is_found_alike_alone_and_among_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        host.run(FLOW, INPUTS, run_id="A")
        fork = host.fork("A", at=9, state={"n": 5}).run_id
        host.resume(fork, FLOW)
        for run_id in ("A", fork):
            versions = {
                (step.whole_name(write.name), write.version)
                for record in host.history(run_id)
                for step in record.steps
                for write in step.writes
            }
            together = host.debug.recall(run_id, versions)
            assert len(versions) > 2 * ROUNDS
            assert not any(isinstance(value, Unreadable) for value in together.values())
            assert together["seen", 4] == list(range(1, 4)) or run_id == fork
            monkeypatch.setattr("everstep.runtime.travel.recall._FEW", 2)
            assert {
                version: host.debug.recall(run_id, [version])[version] for version in versions
            } == together
            monkeypatch.undo()
        missing = host.debug.recall("A", [("n", 99), ("n", 1)])
        assert (missing["n", 1], type(missing["n", 99])) == (0, Unreadable)
