"""The table that `scripts/bench` prints: ratios within a round, and what moved since the committed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import table


def row(system: str, seconds: float, number: int, peer: str = "", line: str = "w5") -> dict[str, Any]:
    return {"line": line, "system": system, "peer": peer, "round": number, "seconds": seconds, "units": 500}


SLOW_ROUND = [
    row("raw", 0.25, 0),
    row("everstep", 0.5, 0),
    row("raw", 2.0, 1),
    row("everstep", 6.0, 1),
    row("raw", 0.25, 2),
    row("everstep", 0.625, 2),
]


def test_a_ratio_is_formed_within_a_round() -> None:
    side = table.table_of(SLOW_ROUND)["w5"]["everstep"]
    assert side.ratio == table.Ratio(2.5, 2.0, 3.0)
    assert str(side.ratio) == "2.50 (2.00 to 3.00)"
    assert str(side) == "625 ms"


def test_of_the_ways_of_a_peer_the_faster_one_is_shown() -> None:
    rows = [row("raw", 0.01, 0), row("langgraph", 0.09, 0), row("langgraph", 0.05, 0, "delta")]
    lines = list(table.shown(table.table_of(rows)))
    assert lines[2:] == ["| w5: 500 branches and a join | 10 ms | – | – | 5.0 | – | – |"]


def test_what_is_counted_for_one_step_is_divided_by_the_steps() -> None:
    rows = [row("raw", 0.1, 0, line="w1.full"), row("everstep", 0.15, 0, line="w1.full")]
    assert str(table.table_of(rows)["w1.full"]["everstep"]) == "300 µs a step"


def test_a_ratio_has_moved_when_it_leaves_the_range_of_the_committed_rounds() -> None:
    committed = table.table_of(SLOW_ROUND)
    same = table.table_of([row("raw", 0.01, 0), row("everstep", 0.0305, 0)])
    assert list(table.moved(same, committed)) == []
    faster = table.table_of([row("raw", 0.01, 0), row("everstep", 0.015, 0)])
    assert list(table.moved(faster, committed)) == [
        "w5: 500 branches and a join: 1.50 × raw, 2.50 (2.00 to 3.00) before (-40%)"
    ]


def test_a_committed_table_is_read_as_it_was_written_and_keeps_what_was_not_measured(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    first = table.table_of(SLOW_ROUND)
    table.write(first, {"python": "3.11.7"}, file)
    assert table.read(file) == first
    other = table.table_of([row("raw", 0.1, 0, line="w1.full"), row("everstep", 0.2, 0, line="w1.full")])
    table.write(other, {"python": "3.11.7"}, file)
    assert table.read(file) == first | other


def test_the_committed_table_can_be_read() -> None:
    committed = table.read()
    assert {"raw", "everstep"} <= set(committed["w1.full"])
