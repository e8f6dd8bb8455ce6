"""A flow as a picture: its nodes, the frames of flows inside it, and what leads where."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from everstep import END, Flow, ifelse, node, parallel, route, wait
from everstep.graph.compile.blueprint import plan_of
from everstep.graph.compile.plan import Plan, deep_nodes
from everstep.graph.draw.outline import outline
from everstep.graph.draw.picture import (
    FOLDED_FROM,
    MOST_SHOWN,
    NEAR,
    DrawnEdge,
    DrawnGroup,
    DrawnNode,
    Picture,
    picture_of,
)
from tests.unit.properties.flows import Built, Case, Log, cases


@node(output="docs")
def fetch(q: str) -> list[str]:
    return [q]


@node(output="hits")
def rank(docs: list[str], q: str) -> list[str]:
    return docs


@node(output="q")
def ask(topic: str) -> str:
    return topic


@node(output="answer")
def answer(hits: list[str], topic: str) -> str:
    return topic


@ifelse(when_true="send", when_false=END)
def good(answer: str) -> bool:
    return True


@node(output="sent")
def send(answer: str) -> str:
    return answer


rag = Flow("rag", [fetch, rank])
nested = Flow("nested", [ask, rag.as_node(), answer, good, send])


def drawn(picture: Picture) -> dict[str, DrawnNode | DrawnGroup]:
    boxes: list[DrawnNode | DrawnGroup] = [*picture.nodes, *picture.groups]
    return {one.path: one for one in boxes}


def edges(picture: Picture) -> dict[tuple[str, str], DrawnEdge]:
    return {(edge.source, edge.target): edge for edge in picture.edges}


def lie_over(a: DrawnNode | DrawnGroup, b: DrawnNode | DrawnGroup) -> bool:
    is_beside = a.x + a.width <= b.x or b.x + b.width <= a.x
    return not (is_beside or a.y + a.height <= b.y or b.y + b.height <= a.y)


def check(picture: Picture) -> None:
    """Nodes lie in their frames and over nothing else, and edges end at what they lead to."""
    found = drawn(picture)
    assert len(found) == len(picture.nodes) + len(picture.groups)
    assert len(edges(picture)) == len(picture.edges)
    for a, b in combinations(found.values(), 2):
        if a.around == b.around:
            assert not lie_over(a, b), (a, b)
    for one in found.values():
        frame = found[one.around] if one.around else None
        assert frame is None or one.y >= frame.y + 30, "it would lie over the name of the frame"
        left, top, wide, high = (
            (0, 0, picture.width, picture.height)
            if frame is None
            else (frame.x, frame.y, frame.width, frame.height)
        )
        assert left <= one.x and one.x + one.width <= left + wide + 1, (one, frame)
        assert top <= one.y and one.y + one.height <= top + high + 1, (one, frame)
    for edge in picture.edges:
        for path, (x, y) in ((edge.source, edge.points[0]), (edge.target, edge.points[-1])):
            box = found[path]
            assert box.x - 1 <= x <= box.x + box.width + 1, edge
            assert box.y - 1 <= y <= box.y + box.height + 1, edge
            sides = (x - box.x, box.x + box.width - x, y - box.y, box.y + box.height - y)
            assert min(map(abs, sides)) <= 1, edge


def test_an_inner_flow_is_a_frame_around_its_nodes() -> None:
    picture = picture_of(nested.plan)
    check(picture)
    [group] = picture.groups
    assert (group.path, group.kind, group.inside) == ("rag", "subflow", 2)
    assert {one.path for one in picture.nodes if one.around == "rag"} == {"rag/fetch", "rag/rank"}
    assert (picture.total, picture.shown, picture.is_cut) == (7, 7, False)


def test_a_folded_flow_is_one_node_that_says_how_many_are_inside() -> None:
    picture = picture_of(nested.plan, opened=())
    check(picture)
    assert picture.groups == []
    folded = drawn(picture)["rag"]
    assert isinstance(folded, DrawnNode) and folded.is_folded and folded.inside == 2
    assert (picture.total, picture.shown) == (7, 5)
    assert picture_of(nested.plan, opened=["rag"]) == picture_of(nested.plan)
    assert picture_of(nested.plan, opened=["no/such"]) == picture


def test_order_is_that_of_the_outline_whatever_is_open() -> None:
    order = [place.name for place in outline(nested.plan)]
    shown = drawn(picture_of(nested.plan))
    assert sorted(order, key=lambda path: shown[path].order) == order
    for path, one in drawn(picture_of(nested.plan, opened=())).items():
        assert one.order == shown[path].order


def test_edges_say_what_they_carry() -> None:
    found = edges(picture_of(nested.plan))
    assert (found["ask", "rag"].kind, found["ask", "rag"].label) == ("value", "q")
    assert (found["rag/fetch", "rag/rank"].kind, found["rag/fetch", "rag/rank"].label) == ("value", "docs")
    assert (found["good", "send"].kind, found["good", "send"].label) == ("choice", "true")
    assert (found["good", "@end"].kind, found["good", "@end"].label) == ("choice", "false")
    assert found["@inputs", "ask"].label == "topic"
    assert ("@inputs", "answer") not in found


def test_a_loop_leads_back_to_where_it_begins() -> None:
    @node(output="draft")
    def write(topic: str, notes: str = "") -> str:
        return topic

    @node(output="notes")
    def review(draft: str) -> str:
        return draft

    @route("write", "publish")
    def decide(notes: str) -> str:
        return "publish"

    @node(output="url")
    def publish(draft: str) -> str:
        return draft

    picture = picture_of(Flow("loop", [write, review, decide, publish]).plan)
    check(picture)
    found, boxes = edges(picture), drawn(picture)
    assert {ends for ends, edge in found.items() if edge.is_back} == {
        ("decide", "write"),
        ("review", "write"),
    }
    assert boxes["write"].y < boxes["review"].y < boxes["decide"].y < boxes["publish"].y
    assert max(x for x, _ in found["decide", "write"].points) > boxes["write"].x + boxes["write"].width


def test_kinds_of_nodes_are_told_apart() -> None:
    @node(output="price")
    def price(sku: str) -> int:
        return 1

    each = price.map_over("sku").with_inputs(sku="skus").with_outputs(price="prices")
    sure = wait.approval("sure")

    @node(output="l")
    def left() -> int:
        return 1

    @node(output="r")
    def right() -> int:
        return 2

    both = parallel(left, right, policy="best_effort", name="both")
    inner = rag.as_node()
    flow = Flow("kinds", [each, inner, good, send, answer, both >> sure])
    kinds = {path: one.kind for path, one in drawn(picture_of(flow.plan, opened=())).items()}
    assert kinds["price"] == "map"
    assert kinds["rag"] == "subflow"
    assert kinds["good"] == "gate"
    assert kinds["both"] == "join"
    assert kinds["sure"] == "wait"
    assert kinds["send"] == "node"
    assert kinds["@inputs"] == "input"
    assert kinds["@end"] == "end"
    check(picture_of(flow.plan))


def test_a_map_over_a_flow_is_folded_until_it_is_opened() -> None:
    flow = Flow("each", [rag.as_node().map_over("q").with_inputs(q="qs").with_outputs(hits="all_hits")])
    folded = drawn(picture_of(flow.plan))["rag"]
    assert (folded.kind, folded.inside) == ("map", 2)
    opened = picture_of(flow.plan, opened=["rag"])
    check(opened)
    assert "rag/fetch" in drawn(opened)
    assert picture_of(flow.plan, all_open=True) == opened


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_a_random_flow_is_drawn_whole_and_from_its_structure_alone(case: Case) -> None:
    plan = Built(case, Log()).flow.plan
    picture = picture_of(plan, all_open=True)
    check(picture)
    marks = {one.path for one in picture.nodes if one.kind in ("input", "end")}
    assert set(drawn(picture)) - marks == {path for path, _ in deep_nodes(plan)}
    assert picture.shown == picture.total == len(drawn(picture)) - len(marks)
    assert picture_of(plan_of(plan.blueprint), all_open=True) == picture
    folded = picture_of(plan, opened=())
    check(folded)
    assert {one.path for one in folded.nodes} - marks <= set(plan.paths)


def test_another_process_draws_the_same() -> None:
    program = (
        "import msgspec, sys; from everstep.graph.compile.blueprint import plan_of\n"
        "from everstep.graph.draw.picture import picture_of\n"
        "sys.stdout.buffer.write(msgspec.json.encode(picture_of(plan_of(sys.stdin.buffer.read()))))"
    )
    expected = msgspec.json.encode(picture_of(nested.plan))
    for seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", program],
            input=nested.plan.blueprint,
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        )
        assert told.stdout == expected


def a_node(name: str, inputs: list[str], outputs: list[str], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "node",
        "inputs": [[read, True] for read in inputs],
        "outputs": outputs,
        **more,
    }


def a_plan(nodes: list[dict[str, Any]]) -> Plan:
    return plan_of(msgspec.json.encode({"entry": [], "nodes": nodes}))


def a_chain(count: int) -> Plan:
    return a_plan([a_node(f"s{n}", [f"v{n - 1}"] if n else ["x"], [f"v{n}"]) for n in range(count)])


def groups_of(groups: int, each: int) -> Plan:
    """Return flows one after the other, each a chain."""
    nodes = []
    for g in range(groups):
        first, last = f"y{g - 1}" if g else "x", f"y{g}"
        inner = [
            a_node(f"s{n}", [f"v{n - 1}"] if n else [first], [f"v{n}" if n < each - 1 else last])
            for n in range(each)
        ]
        flow = {"entry": [], "nodes": inner}
        nodes.append(
            a_node(f"g{g}", [first], [last], flow=flow, params=[first], exports={last: last}, select=[last])
        )
    return a_plan(nodes)


def test_flows_inside_a_large_one_start_folded() -> None:
    small, large = groups_of(10, 29), groups_of(10, 30)
    assert (picture_of(small).total, picture_of(large).total) == (FOLDED_FROM, FOLDED_FROM + 10)
    assert picture_of(small).shown == FOLDED_FROM
    assert picture_of(large).shown == 10
    assert picture_of(large, opened=["g3"]).shown == 40
    assert picture_of(large, all_open=True).shown == FOLDED_FROM + 10


def test_two_thousand_nodes_are_all_drawn_and_of_more_those_near_one() -> None:
    whole = picture_of(a_chain(MOST_SHOWN))
    assert (whole.shown, whole.is_cut, whole.centre) == (MOST_SHOWN, False, None)
    cut = picture_of(a_chain(MOST_SHOWN + 1), around="s1000")
    assert (cut.total, cut.shown, cut.is_cut, cut.centre) == (MOST_SHOWN + 1, NEAR, True, "s1000")
    check(cut)
    shown = sorted(one.order for one in cut.nodes)
    assert shown == list(range(shown[0], shown[0] + NEAR)) and 1000 in shown
    assert {one.path for one in cut.nodes if one.left_out} == {f"s{shown[0]}", f"s{shown[-1]}"}
    assert picture_of(a_chain(MOST_SHOWN + 1)).centre == "s0"
    assert picture_of(a_chain(MOST_SHOWN + 1), around="gone").centre == "s0"


def test_what_is_near_a_node_lies_in_other_flows_too() -> None:
    plan = groups_of(30, 99)
    cut = picture_of(plan, all_open=True, around="g7/s50")
    check(cut)
    assert (cut.total, cut.shown, cut.centre) == (3000, NEAR, "g7/s50")
    shown = set(drawn(cut))
    assert {"g7", "g7/s50", "g7/s51", "g6", "g8"} <= shown
    assert all(one.around in shown or not one.around for one in drawn(cut).values())


@pytest.mark.slow
def test_twenty_thousand_nodes_answer_too() -> None:
    picture = picture_of(groups_of(200, 99), all_open=True, around="g150/s4")
    check(picture)
    assert (picture.total, picture.shown, picture.centre) == (20_000, NEAR, "g150/s4")
