"""Boxes and lines of any graph: nothing lies over anything else, and the same graph is placed alike."""

from __future__ import annotations

import cProfile
import pstats
import random
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.graph.draw.placing import MOST_BENDS, Line, Placed, Point, place

SIZES = st.tuples(st.sampled_from([48.0, 104.0, 131.0, 240.0, 700.0]), st.sampled_from([28.0, 44.0, 300.0]))
NEARLY = 0.001


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Point], list[Line]]:
    sizes = draw(st.lists(SIZES, min_size=1, max_size=24))
    box = st.integers(0, len(sizes) - 1)
    lines = st.builds(Line, box, box, st.booleans(), st.booleans())
    return sizes, draw(st.lists(lines, max_size=50))


def rectangles(sizes: Sequence[Point], placed: Placed) -> list[tuple[float, float, float, float]]:
    found = zip(sizes, placed.corners, strict=True)
    return [(x, y, x + width, y + height) for (width, height), (x, y) in found]


def lie_over(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] - NEARLY and b[0] < a[2] - NEARLY and a[1] < b[3] - NEARLY and b[1] < a[3] - NEARLY


def stretches(line: Sequence[Point]) -> Iterator[tuple[float, float, float, float]]:
    """Yield what is around each part of a line; a curve stays within its two ends."""
    for (x1, y1), (x2, y2) in pairwise(line):
        yield min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


def check(sizes: Sequence[Point], lines: Sequence[Line]) -> Placed:
    placed = place(sizes, lines)
    boxes = rectangles(sizes, placed)
    for a, b in combinations(range(len(boxes)), 2):
        assert not lie_over(boxes[a], boxes[b]), (a, b)
    for (left, top, right, bottom), name in zip(boxes, range(len(boxes)), strict=True):
        assert left >= -NEARLY and right <= placed.width + NEARLY, name
        assert top >= -NEARLY and bottom <= placed.height + NEARLY, name
    for line, points in zip(lines, placed.lines, strict=True):
        assert touches(boxes[line.source], points[0]), line
        assert touches(boxes[line.target], points[-1]), line
        for part in stretches(points):
            assert not any(lie_over(part, box) for box in boxes), (line, part)
        assert all(-NEARLY <= x <= placed.width + NEARLY for x, _ in points)
    return placed


def touches(box: tuple[float, float, float, float], point: Point) -> bool:
    left, top, right, bottom = box
    x, y = point
    within = left - NEARLY <= x <= right + NEARLY and top - NEARLY <= y <= bottom + NEARLY
    return within and min(abs(x - left), abs(x - right), abs(y - top), abs(y - bottom)) < NEARLY


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_nothing_lies_over_a_box_and_lines_end_at_their_boxes(
    graph: tuple[list[Point], list[Line]],
) -> None:
    check(*graph)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_a_graph_is_placed_alike_each_time(graph: tuple[list[Point], list[Line]]) -> None:
    sizes, lines = graph
    assert place(sizes, lines) == place(list(sizes), list(lines))


def test_what_leads_to_a_box_stands_above_it() -> None:
    rows = [corner[1] for corner in check(SAME * 4, [Line(0, 1), Line(1, 2), Line(0, 3), Line(2, 3)]).corners]
    assert rows[0] < rows[1] < rows[2] < rows[3]


def test_a_chain_is_straight() -> None:
    placed = check(SAME * 5, [Line(n, n + 1) for n in range(4)])
    assert len({x for x, _ in placed.corners}) == 1
    assert all(len(line) == 2 for line in placed.lines)


def test_a_loop_runs_at_the_right_of_what_is_in_it() -> None:
    lines = [Line(0, 1), Line(1, 2), Line(2, 3), Line(2, 0, leads_back=True)]
    placed = check(SAME * 4, lines)
    right = max(x for x, _ in placed.corners) + SAME[0][0]
    back = placed.lines[3]
    assert back[0][1] > back[-1][1]
    assert max(x for x, _ in back) > right


def test_a_circle_that_no_line_is_said_to_close_is_cut_where_it_begins() -> None:
    placed = check(SAME * 3, [Line(0, 1), Line(1, 2), Line(2, 0)])
    assert [y for _, y in placed.corners] == sorted(y for _, y in placed.corners)


def test_lines_of_one_box_share_a_trunk_and_choices_have_lines_of_their_own() -> None:
    chain = [Line(n, n + 1) for n in range(5)]
    shared = check(SAME * 6, [*chain, Line(0, 3), Line(0, 5)])
    apart = check(SAME * 6, [*chain, Line(0, 3, is_apart=True), Line(0, 5, is_apart=True)])
    assert shared.lines[5][2][0] == shared.lines[6][2][0]
    assert apart.lines[5][2][0] != apart.lines[6][2][0]


@pytest.mark.parametrize("count", [7, 20, 60])
def test_a_wide_layer_is_laid_out_in_columns(count: int) -> None:
    out = [Line(0, n) for n in range(1, count + 1)]
    back = [Line(n, count + 1) for n in range(1, count + 1)]
    placed = check(SAME * (count + 2), [*out, *back])
    assert placed.width < 1.5 * max(720, (count * 126 * 82) ** 0.5)
    between = placed.corners[1 : count + 1]
    assert placed.corners[0][1] < min(y for _, y in between)
    assert placed.corners[-1][1] > max(y for _, y in between)
    rows = {y for _, y in between}
    assert 1 < len(rows) < count
    assert max(sum(y == row for _, y in between) for row in rows) - count / len(rows) < 2


def test_a_tangled_graph_does_not_drift_aside() -> None:
    """Each part of ten leads to its left and, further down, to the part that follows it."""
    lines = []
    for part in range(10):
        first = 4 * part
        lines += [Line(first, first + 1), Line(first + 1, first + 2), Line(first + 1, first + 3)]
        lines += [Line(first + 2, first + 3), Line(first + 2, first + 4), Line(first + 1, first + 4)]
        lines += [Line(first, first + 2), Line(first, first + 4), Line(first + 3, first, leads_back=True)]
    placed = check(SAME * 41, lines)
    assert placed.width < 6 * SAME[0][0]


def test_few_graphs_have_lines_that_cross() -> None:
    """A tree and two chains beside each other need none."""
    tree = [Line((n - 1) // 2, n) for n in range(1, 15)]
    assert crossings(check(SAME * 15, tree)) == 0
    assert crossings(check(SAME * 6, [Line(0, 2), Line(2, 4), Line(1, 3), Line(3, 5)])) == 0
    assert crossings(check(SAME * 6, [Line(0, 3), Line(1, 4), Line(0, 5), Line(2, 4)])) == 0


def crossings(placed: Placed) -> int:
    """Count pairs of lines between two layers whose ends are the other way round."""
    found = 0
    for a, b in combinations(placed.lines, 2):
        if a[0][1] == b[0][1] and a[-1][1] == b[-1][1]:
            found += (a[0][0] - b[0][0]) * (a[-1][0] - b[-1][0]) < 0
    return found


def test_nothing_and_single_boxes_are_placed() -> None:
    assert place([], []) == Placed(0.0, 0.0, [], [])
    assert check([(100.0, 44.0)], []).corners == [(0.0, 0.0)]
    assert len(check(SAME, [Line(0, 0)]).lines[0]) > 2


SAME: list[Point] = [(104.0, 44.0)]


def a_graph_of(count: int) -> tuple[list[Point], list[Line]]:
    chance = random.Random(count)
    lines = [Line(max(0, n - 1 - chance.randrange(min(n, 30))), n) for n in range(1, count)]
    lines += [Line(max(0, n - 1 - chance.randrange(min(n, 30))), n) for n in range(1, count)]
    return SAME * count, list(dict.fromkeys(lines))


def calls_of(count: int) -> int:
    sizes, lines = a_graph_of(count)
    with cProfile.Profile() as profile:
        place(sizes, lines)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]  # typeshed leaves it out


def test_a_graph_four_times_as_large_costs_about_four_times_as_much() -> None:
    assert calls_of(2_000) < 5.5 * calls_of(500)
    assert calls_of(2_000) < 1_500_000


def test_a_graph_with_too_many_bends_is_placed_without_the_longest() -> None:
    """Each box leads to one far below it, by a line of its own."""
    count = 400
    lines = [Line(n, n + 1) for n in range(count - 1)]
    lines += [Line(n, n + 100, is_apart=True) for n in range(count - 100)]
    assert sum(line.target - line.source - 1 for line in lines) > MOST_BENDS
    placed = place(SAME * count, lines)
    boxes = rectangles(SAME * count, placed)
    assert not any(lie_over(a, b) for a, b in combinations(boxes, 2))
