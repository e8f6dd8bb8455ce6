"""Times of runs as a table."""

from __future__ import annotations

from everstep.cli.commands.fleet.durations import HEAD, SPARE, rows_of
from everstep.cli.view.table import Cell, layout, narrowed
from everstep.results import FlowDurations, NodeDurations, Spread

LONG = Spread(p50=0.05, p90=65.4, p99=7_400.0, max=123_456.0)
ORDERS = FlowDurations(
    flow="orders",
    runs=200,
    total=LONG,
    running=LONG,
    waiting=None,
    nodes=[NodeDurations(node="outer/check#", visits=12_345, failures=0, retries=0, seconds=LONG)],
)


def test_a_narrow_terminal_shows_what_matters_in_80_columns() -> None:
    table = [[Cell(title) for title in HEAD], *rows_of(ORDERS)]
    assert layout(narrowed(table, 80, SPARE), 80) == [
        "              visits  failed  retries  p50    p90         p99",
        "a run                                  50 ms  1 min 05 s  2 h 03 min",
        "- running                              50 ms  1 min 05 s  2 h 03 min",
        "- waiting",
        "outer/check#  12,345  0       0        50 ms  1 min 05 s  2 h 03 min",
    ]
