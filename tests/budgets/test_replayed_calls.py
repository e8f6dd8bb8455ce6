"""A durable call that is recorded costs the same to replay however many a visit has, up to its limit; so does
a wait in the middle of a node.

Counted are lines of Python inside the node, from its first call that is replayed to the last.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep import Context, Flow, Host, node, wait
from tests.budgets.lines import Count

TEXT = "x" * 60
"""Arguments and results are smaller than 100 bytes."""
MOST = 140
"""Lines for a call: 6 µs on a quiet machine, where 20 are wanted."""
MOST_OF_A_WAIT = 380
"""Those for a wait: it is made anew before anyone knows that it is over."""


def look_up(n: int, text: str) -> str:
    return text


def lines_of_a_replay(url: str, count: int) -> float:
    """Return how many lines it takes to replay each of so many calls."""
    lines: list[float] = []

    @node(output="end")
    def agent(count: int, ctx: Context) -> int:
        def ask() -> None:
            for n in range(count):
                assert ctx.step("look", look_up, n, TEXT) == TEXT

        if not lines:
            ask()
            lines.append(0)
            raise KeyboardInterrupt
        lines.append(Count().of(ask))
        return count

    flow = Flow("agents", [agent])
    with Host(url) as host, pytest.raises(KeyboardInterrupt):
        host.run(flow, {"count": count}, run_id="A17")
    with Host(url) as host:
        assert host.resume("A17", flow)["end"] == count
    return lines[-1] / count


@pytest.mark.slow
def test_a_replayed_call_costs_the_same_among_ten_thousand(quick_folder: Path) -> None:
    few, many = (lines_of_a_replay(f"sqlite:///{quick_folder}/{n}.db", n) for n in (500, 10_000))
    assert many < few * 1.05, (few, many)
    assert few < MOST, few


def lines_of_a_replayed_wait(url: str, count: int) -> float:
    """Return how many lines it takes to come by each of so many waits that are over."""
    lines: list[float] = []

    @node(output="end", halts=True)
    def agent(count: int, ctx: Context) -> int:
        def listen() -> None:
            for n in range(count):
                assert ctx.wait(wait.signal("message")) == n

        lines.append(Count().of(listen))  # only where it does not leave the node
        return count

    flow = Flow("agents", [agent])
    with Host(url) as host:
        host.start(flow, {"count": count}, run_id="A17")
        for n in range(count):
            host.send("A17", "message", n)
        assert host.resume("A17", flow)["end"] == count
    [found] = lines
    return found / count


def test_a_replayed_wait_costs_the_same_however_many_there_are() -> None:
    few, many = (lines_of_a_replayed_wait("memory:", n) for n in (20, 80))
    assert many < few * 1.05, (few, many)
    assert few < MOST_OF_A_WAIT, few
