"""A long chain is verified a page at a time: memory grows with what the run holds, not with its length."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from everstep import END, Flow, Host, node, route

STEPS = 400
SIZE = 5_000
"""How many bytes each step writes."""


def counting(steps: int) -> Flow:
    @node(output=("n", "text"))
    def count(n: int) -> tuple[int, str]:
        return n + 1, "x" * SIZE

    @route("count", END)
    def more(n: int) -> object:
        return "count" if n < steps else END

    return Flow(
        "counting", [count, more], entry="count", durability="strong", max_steps=10**7, max_visits=10**7
    )


def peak_of_a_check(folder: Path, steps: int) -> int:
    """Run a loop, verify it, and return how many bytes the check held at most."""
    with Host(f"sqlite:///{folder}/{steps}.db?synchronous=off") as host:
        host.run(counting(steps), {"n": 0}, run_id="long")
        checkpoints = host.info("long").checkpoints
        assert checkpoints > steps
        tracemalloc.start()
        [found] = host.storage.verify("long")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.is_sound and found.newest_valid == found.checkpoints == checkpoints
    return peak


def test_a_chain_that_is_larger_is_checked_in_less_memory(tmp_path: Path) -> None:
    assert peak_of_a_check(tmp_path, STEPS) < STEPS * SIZE / 2


@pytest.mark.soak
def test_a_hundred_thousand_checkpoints_are_checked_in_a_few_megabytes(tmp_path: Path) -> None:
    assert peak_of_a_check(tmp_path, 100_000) < 20_000_000
