"""Nothing grows faster with size than `benchmarks/sizes.py` says, by counts that no busy machine changes.

Counted are lines of Python and instructions of SQLite. A loop inside one operation of the interpreter, such
as a difference of sets, is not seen here; `python -m benchmarks.sizes --long` sees it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import apsw
import pytest

from benchmarks import many_runs, sizes
from tests.budgets.lines import Count

SMALL = {"steps": 250, "map": 250, "nodes": 50, "inputs": 50, "forks": 50, "runs": 2_000}
"""Each section is measured at this size and at eight times as much."""
MOST = {sizes.FLAT: 0.35, sizes.LINEAR: 1.2}
"""How large an exponent may be: how much lies behind the last keyframe makes what is flat wander."""
IN_BYTES = {"memory while it is driven", "bytes kept a step", "bytes kept an item"}
"""Figures that are no times; budgets hold the bytes of a step."""


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[Count]:
    counting = Count()

    def follow(connection: apsw.Connection) -> None:
        connection.set_progress_handler(counting.instruction, 1)

    def apart(work: Callable[..., Any], *arguments: Any) -> sizes.Apart:
        return sizes.Apart(0.0, counting.of(lambda: work(*arguments)))

    monkeypatch.setattr(sizes, "cpu", counting.of)
    monkeypatch.setattr(sizes, "apart", apart)
    monkeypatch.setattr(many_runs, "measure", counting.among)
    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, follow])
    threading.settrace(counting.enter_call)
    yield counting
    threading.settrace(None)


@pytest.mark.parametrize("name", SMALL)
def test_what_is_done_grows_no_faster_than_it_may(name: str, count: Count) -> None:
    section, n = sizes.SECTIONS[name], SMALL[name]
    found = sizes.measured(section, (n, 8 * n))
    too_fast = {
        figure: by_size
        for figure, by_size in found.items()
        if figure not in IN_BYTES and sizes.exponent(by_size) > MOST[section.figures[figure][1]]
    }
    assert not too_fast


def test_work_that_goes_over_everything_for_everything_is_found(count: Count) -> None:
    def squared(n: int) -> None:
        for _ in range(n):
            any(False for _ in range(n))

    by_size = {n: count.of(partial(squared, n)) for n in (50, 400)}
    assert sizes.exponent(by_size) > MOST[sizes.LINEAR]


def test_what_grows_where_it_should_not_is_found(count: Count) -> None:
    section = sizes.SECTIONS["runs"]
    by_size = sizes.measured(section, (2_000, 16_000))[many_runs.COUNTS]
    assert sizes.exponent(by_size) > MOST[sizes.FLAT]  # counting is linear there, and SQLite does it
