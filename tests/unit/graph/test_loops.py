"""Loops inside loops: how they are cut, and how many there may be."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from everstep.graph.compile.loops import Graph, _bodies, bits, order


def first(members: Sequence[int]) -> Sequence[int]:
    return members[:1]


def nested(count: int) -> Graph:
    """A chain in which every node may lead back to the first one, as after a failure."""
    return {i: {min(i + 1, count - 1), 0} if i else {1} for i in range(count)}


def test_a_thousand_loops_may_begin_at_one_node() -> None:
    found = order(nested(1_050), first)
    assert found.looping == set(range(1_050))
    assert found.blockers[1] == 0b1
    assert found.blockers[3] == 0b111


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=24), st.integers(0, 7))
def test_a_loop_is_all_that_leads_to_its_last_edge_without_its_head(
    edges: list[tuple[int, int]], head: int
) -> None:
    graph: Graph = {i: {head_ for tail, head_ in edges if tail == i} for i in range(8)}
    found = _bodies(graph, head)
    assert found.keys() == {tail for tail, to in edges if to == head}
    for tail, body in found.items():
        reached, todo = {head}, [tail]
        while todo:
            here = todo.pop()
            if here not in reached:
                reached.add(here)
                todo += [one for one, other in edges if other == here]
        assert set(bits(body)) == reached
