"""The short way of a plain step and the way of all others write the same chain."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from everstep import END, Flow, Host, Node, ifelse, node
from everstep.graph.author.context import Context
from everstep.runtime.drive.loop import Drive
from everstep.testing import ManualClock

SEEDS = range(2000 if os.environ.get("EVERSTEP_SOAK") == "1" else 40)
BIG = 200_000
RETURNS: list[Any] = [1, "text", None, [1, 2], {"k": [1]}, b"x" * BIG, "y" * BIG, (1, 2), object()]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"retry": 2},
    {"effects": "effectful", "idempotency_key": "auto"},
]


@pytest.fixture(autouse=True)
def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have loaded what marks which node runs: then no step is plain."""
    monkeypatch.setattr(Context, "marks", None)


def random_chain(chance: Random) -> Flow:
    """Return nodes in a row, each after the one before: of any output, with a gate that may go round."""

    def member(k: int) -> Node:
        returned, shape = chance.choice(RETURNS), chance.choice(["one", "one", "one", "two", "none"])
        calls: list[int] = []

        def work(**_: Any) -> Any:
            calls.append(k)
            if chance_of_failure and len(calls) == 1:
                raise ConnectionError("the first attempt")
            return {f"v{k}": returned, f"w{k}": returned} if shape == "two" else returned

        options = dict(chance.choice(OPTIONS))
        chance_of_failure = "retry" in options
        if shape != "none":
            options["output"] = [f"v{k}", f"w{k}"] if shape == "two" else f"v{k}"
        inputs = ["x"] + ([f"v{k - 1}"] if k and k - 1 in written else [])
        if shape != "none":
            written.add(k)
        return node(name=f"n{k}", inputs=inputs, **options)(work)

    written: set[int] = set()
    members = [member(k) for k in range(chance.randint(2, 6))]
    wired: Any = members[0]
    rounds: list[int] = []

    @ifelse(when_true="n0", when_false=END)
    def again() -> bool:
        rounds.append(1)
        return len(rounds) < 3

    for other in members[1:]:
        wired = wired >> other
    if chance.random() < 0.5:
        wired = wired >> again
    return Flow("chain", wired, entry="n0", durability=chance.choice(["strong", "partial"]))


def steps_of(seed: int) -> list[Any]:
    """Run the flow of a seed and return its steps as recorded, without times: luck picks some."""
    flow = random_chain(Random(seed))
    with Host("memory:", clock=ManualClock(auto=True)) as host:
        host.run(flow, {"x": 1}, run_id="r")
        steps = [step for record in host.history("r") for step in record.steps]
    return [msgspec.structs.replace(s, retry_at=None, started_at=None, ended_at=None) for s in steps]


def test_both_ways_of_a_step_record_the_same() -> None:
    short = Drive._take_plain
    taken: Counter[bool] = Counter()

    def counted(self: Drive, call: Any) -> bool:
        is_taken = short(self, call)
        taken[is_taken] += 1
        return is_taken

    for seed in SEEDS:
        with patch.object(Drive, "_take_plain", counted):
            by_short_way = steps_of(seed)
        with patch.object(Drive, "_take_plain", lambda self, call: False):
            assert steps_of(seed) == by_short_way, f"seed {seed}"
    assert taken[True] > taken[False] > 0
