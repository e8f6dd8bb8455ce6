"""How much of a flow survives a crash, in numbers and in pictures."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from everstep import Durability, Flow, Host, chain, ifelse, node, parallel, report, wait
from everstep.cli.commands.author.report import rails
from everstep.cli.main import cli
from everstep.errors import FlowError, NotCheckpointable
from everstep.graph.draw.drawing import to_dot, to_mermaid, to_svg
from everstep.graph.draw.layers import layered
from everstep.model.durability import DurabilityMode
from everstep.results import DurabilityReport, Segment
from tests.unit.graph.diagnosed import NAP, NONE, feed, first, loop, of, second, send_once


@node(output="c")
def third(rates: int, a: int) -> int:
    return a


@node(output="d")
def fourth(b: int, rates: int) -> int:
    return b


def shop(durability: DurabilityMode = "partial") -> Flow:
    ask = wait.approval("ok", context="d")
    return Flow("shop", [first, second, feed, fourth, ask], durability=durability)


def test_coverage_is_the_checkpointable_part_of_all_nodes() -> None:
    found = report(shop())
    assert (found.coverage, found.percent) == (0.8, 80)
    assert found.incompatible_nodes == ("feed",)
    assert found.reasons == {"feed": "holds open websocket"}
    assert found.halt_nodes == ("ok",)


def test_a_segment_ends_where_a_node_cannot_be_checkpointed() -> None:
    @node(output="e")
    def after(rates: int) -> int:
        return rates

    flow = Flow("f", [first, second, feed.with_inputs(x="b"), after], durability="strong")
    with Host("memory:") as host, pytest.raises(NotCheckpointable, match="websocket"):
        host.run(flow, {"x": 1})
    found = report(flow)
    assert found.resumable_segments == (
        Segment(("first", "second"), ("first", "second")),
        Segment(("after",), ("after",)),
    )
    assert found.segment_of == {"first": 1, "second": 1, "after": 2}


def test_under_partial_a_run_goes_on_behind_halts_and_effects() -> None:
    [segment] = report(Flow("f", [first, second, send_once, NAP])).resumable_segments[:1]
    assert segment == Segment(("first", "second", "send_once"), ("send_once",))


def test_before_effects_only_what_is_not_pure_is_certainly_written() -> None:
    pure = of(first.fn, name="pure", output="a", effects="pure")
    flow = Flow("f", [pure, second], durability=Durability("strong", flush="before_effects"))
    assert report(flow).points == {"second"}
    assert report(Flow("f", [pure, second], durability=Durability("strong", interval=5))).points == set()


def test_off_and_hosts_without_a_store_have_no_segments() -> None:
    assert report(shop("off")).resumable_segments == ()
    found = report(shop("strong"), NONE)
    assert (found.mode, found.resumable_segments, found.coverage) == ("off", (), 0.8)
    with Host("none:") as host:
        assert report(shop("strong"), host) == found


def test_inner_flows_are_laid_open_and_atomic_ones_are_one_node() -> None:
    inner = Flow("inner", [first, feed])
    assert report(Flow("f", [inner.as_node()])).nodes == ("inner/first", "inner/feed")
    assert report(Flow("f", [inner.as_node()])).incompatible_nodes == ("inner/feed",)
    atomic = report(Flow("f", [inner.as_node(durability="atomic")]))
    assert (atomic.nodes, atomic.incompatible_nodes) == (("inner",), ("inner",))
    assert atomic.reasons == {"inner": "feed: holds open websocket"}


def test_where_branches_meet_is_not_counted() -> None:
    a, b, c = (of(lambda: 1, name=n) for n in "abc")
    found = report(Flow("f", parallel(a, b) >> c, durability="strong"))
    assert sorted(found.nodes) == ["a", "b", "c"]
    assert len(found.resumable_segments) == 1


def test_a_hundred_percent_means_all() -> None:
    nodes = [of(lambda: 1, name=f"n{i}", output=f"v{i}") for i in range(400)]
    assert report(Flow("f", nodes)).percent == 100
    assert report(Flow("f", [*nodes, feed])).percent == 99


def test_a_flow_that_cannot_be_built_has_no_report() -> None:
    with pytest.raises(FlowError):
        report(Flow.draft("f", []))


def test_the_report_is_plain_data_and_text() -> None:
    found = report(shop("strong"))
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["coverage"] == 0.8
    assert plain["resumable_segments"][0]["nodes"] == ["first", "second", "fourth", "ok"]
    assert str(found).splitlines()[:2] == [
        "shop  strong  80% durable (4 of 5 nodes)",
        "  not checkpointable: feed: holds open websocket",
    ]


# -- pictures ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["partial", "off"])
def drawn(request: pytest.FixtureRequest) -> DurabilityReport:
    return report(shop(request.param))


def test_the_picture_has_every_node_edge_and_reason(drawn: DurabilityReport) -> None:
    root = ET.fromstring(to_svg(drawn))
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert {"first", "second", "feed", "fourth", "ok", drawn.headline} <= set(texts)
    assert "feed: holds open websocket" in titles


def test_no_two_boxes_of_a_picture_overlap(drawn: DurabilityReport) -> None:
    root = ET.fromstring(to_svg(drawn))
    boxes = [
        [float(r.attrib[k]) for k in ("x", "y", "width", "height")]
        for g in root.iter("{http://www.w3.org/2000/svg}g")
        for r in g.iter("{http://www.w3.org/2000/svg}rect")
    ]
    wide, high = float(root.attrib["width"]), float(root.attrib["height"])
    assert len(boxes) == 5
    for k, (x, y, w, h) in enumerate(boxes):
        assert 0 <= x < x + w <= wide
        assert 0 <= y < y + h <= high
        for x2, y2, w2, h2 in boxes[:k]:
            assert x + w < x2 or x2 + w2 < x or y + h < y2 or y2 + h2 < y


def test_who_stands_alone_stands_beside_the_others() -> None:
    alone = [of(lambda: 1, name=f"n{i}") for i in range(6)]
    root = ET.fromstring(to_svg(report(Flow("f", [*alone[:3], first, second, *alone[3:]]))))
    boxes = [r for g in root.iter("{http://www.w3.org/2000/svg}g") for r in g if r.tag.endswith("rect")]
    top = sorted(float(r.attrib["x"]) for r in boxes if r.attrib["y"] == "74.0")
    assert [round(b - a) for a, b in itertools.pairwise(top)] == [90] * 6


def test_all_that_is_written_in_a_picture_is_in_its_frame() -> None:
    a, b, c = (of(lambda: 1, name=n) for n in "abc")
    race = chain(parallel(a, b, policy="first_success", name="race"), c)
    for flow in (Flow("f", [first, feed, NAP, race]), Flow("f", [of(lambda: 1, name="n" * 100)])):
        root = ET.fromstring(to_svg(report(flow)))
        assert float(root.attrib["width"]) < 900
        for text in root.iter("{http://www.w3.org/2000/svg}text"):
            room = 5.6 * len(text.text or "")
            begin = float(text.attrib["x"]) - (room / 2 if "text-anchor" in text.attrib else 0)
            assert begin >= 0
            assert begin + room <= float(root.attrib["width"])


def test_names_are_escaped_in_pictures() -> None:
    found = report(Flow("f", [of(lambda: 1, name="n", checkpointable=False, reason='<b> & "c"')]))
    ET.fromstring(to_svg(found))
    assert '\\"c\\"' in to_dot(found)


@pytest.mark.parametrize("reason", ["a\x1b[31mred", "\x00", "one\ntwo", "\ud800", "\ufffe", "\\"])
def test_what_no_document_may_have_is_left_out_of_pictures(reason: str) -> None:
    found = report(Flow("f", [of(lambda: 1, name="n", checkpointable=False, reason=reason)]))
    ET.fromstring(to_svg(found).encode())
    [line] = [line for line in to_dot(found).splitlines() if line.startswith("  n [")]
    assert line.endswith("];")
    assert line.isprintable()
    assert to_mermaid(found).replace("\n", "").isprintable()


@pytest.mark.parametrize("command", ["report", "validate"])
def test_a_terminal_is_told_nothing_that_it_would_obey(command: str, tmp_path: Path) -> None:
    file = tmp_path / f"obeyed_{command}.py"
    file.write_text("""
from everstep import Flow, node
from everstep.results import Diagnostic

@node(checkpointable=False, reason="a\\x1b]0;owned\\x07\\nb")
def n(): ...

def rule(flow, host):
    yield Diagnostic("house.\\x1b]0;", "warning", "n", message="a\\x1b]0;owned\\x07", fix="\\x1b]0;")

flow = Flow("f", [n], rules=[rule])
""")
    done = CliRunner().invoke(cli, [command, str(file)], color=True)
    assert done.exit_code == 0
    assert "owned" in done.output
    assert "\x1b]" not in done.output
    assert "\x07" not in done.output


def test_graphviz_and_mermaid_get_segments_colours_and_edges(drawn: DurabilityReport) -> None:
    dot, mermaid = to_dot(drawn), to_mermaid(drawn)
    assert dot.count("->") == mermaid.count("-->") == len(list(drawn.leaves.edges())) == 4
    assert ("cluster_1" in dot) is ("subgraph s1" in mermaid) is (drawn.mode == "partial")
    assert "#ffe3e3" in dot
    assert "class n2 incompatible" in mermaid


def test_every_layer_lies_below_those_that_lead_to_it() -> None:
    after = [[1, 2, 3], [3], [3], [0]]
    found = layered(after)
    row = {n: k for k, members in enumerate(found.rows) for n in members}
    assert found.back == [(3, 0)]
    assert all(row[u] + 1 == row[v] for u, v in found.links)
    assert (row[0], row[1], row[2], row[3]) == (0, 1, 1, 2)


def lines(after: list[list[int]]) -> list[str]:
    return [
        f"{r.left}{'' if r.node is None else f'{r.node}{r.right[1:]}'}".rstrip() for r in rails(after).rows
    ]


def test_the_graph_is_drawn_with_lines() -> None:
    assert lines([[1], [2], []]) == ["0", "1", "2"]
    assert lines([[1, 2], [3], [3], []]) == ["0", "├─┐", "1 │", "│ 2", "├─┘", "3"]
    assert lines([[], []]) == ["0", "1"]


def test_a_loop_is_drawn_once_and_its_way_back_is_told() -> None:
    flow = Flow("f", loop("more", "@end"), entry="more")
    drawn = rails([list(after) for after in report(flow).leaves.after])
    assert [r.node for r in drawn.rows if r.node is not None] == [0, 1]
    assert (1, 0) in drawn.back


def test_a_graph_that_is_too_wide_is_listed_without_lines() -> None:
    after = [list(range(1, 40)), *([40] for _ in range(39)), []]
    assert {r.left for r in rails(after).rows} == {""}
    assert len(rails(after).rows) == 41


def test_gates_lead_to_what_they_choose() -> None:
    @ifelse(when_true="second", when_false="third")
    def big(a: int) -> bool:
        return True

    flow = Flow("f", [first, big, second, third, feed])
    paths = [leaf.path for leaf in report(flow).leaves.nodes]
    edges = {(paths[u], paths[v]) for u, v in report(flow).leaves.edges()}
    assert {("big", "second"), ("big", "third"), ("first", "big")} <= edges
