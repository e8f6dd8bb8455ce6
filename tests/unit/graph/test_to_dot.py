"""Any flow as a digraph that Graphviz and the reader of pipelines both accept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pygraphviz  # type: ignore[import-untyped]  # it has no stubs
import pytest
from hypothesis import HealthCheck, given, settings

from everstep import END, Flow, report, route, wait
from everstep.errors import FlowError
from everstep.frontends.dot.resolve import Digraph, read
from everstep.frontends.pipelines.reading import read_pipeline
from everstep.graph.compile.leaves import Leaves
from everstep.graph.draw import drawing
from tests.unit.frontends.pipelines.pipelines_diagnosed import HUMAN, PARALLEL, ROUND, SQUARE
from tests.unit.graph.diagnosed import feed, first, loop, second
from tests.unit.properties.flows import Built, Case, Log, cases


def agreed(text: str) -> tuple[set[str], Counter[tuple[str, str]]]:
    """Return nodes and edges, which Graphviz sees too."""
    ours, theirs = read(text), pygraphviz.AGraph(string=text)
    edges = Counter((edge.tail, edge.head) for edge in ours.edges)
    assert ours.nodes.keys() == set(map(str, theirs.nodes()))
    assert edges == Counter((str(tail), str(head)) for tail, head in theirs.edges())
    return set(ours.nodes), edges


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_a_random_flow_has_its_steps_and_edges_in_either_picture(case: Case) -> None:
    flow = Built(case, Log()).flow
    leaves = Leaves(flow.plan)
    names = [leaf.path for leaf in leaves.nodes]
    expected = set(names), Counter((names[u], names[v]) for u, v in leaves.edges())
    assert agreed(flow.to_dot()) == expected
    assert agreed(drawing.to_dot(report(flow))) == expected


def test_what_a_step_is_can_be_seen() -> None:
    asks = wait.approval("ask")
    gate = route("one", "two", END, name="gate", inputs=["ask"])(lambda ask: END)
    inner = Flow("inner", [first, second]).as_node()
    flow = Flow("f", [asks, gate, first.with_name("one"), inner.with_name("two").with_outputs(a="c", b="d")])
    assert flow.to_dot() == (
        "digraph f {\n"
        "  node [shape=box];\n"
        "  ask [shape=house];\n"
        "  gate [shape=diamond];\n"
        "  one;\n"
        '  "two/first";\n'
        '  "two/second";\n'
        "  subgraph cluster_1 {\n"
        "    label=two;\n"
        '    "two/first";\n'
        '    "two/second";\n'
        "  }\n"
        "  ask -> gate;\n"
        "  gate -> one;\n"
        '  gate -> "two/first";\n'
        '  "two/first" -> "two/second";\n'
        "}\n"
    )


def test_a_loop_and_a_flow_that_is_not_durable_are_drawn_too() -> None:
    nodes, edges = agreed(Flow("f", [*loop("more", END), feed], entry="more").to_dot())
    assert nodes == {"more", "gate", "feed"}
    assert edges["gate", "more"] == 1


def test_a_draft_with_problems_is_not_drawn() -> None:
    with pytest.raises(FlowError, match=r"flow\.empty"):
        Flow.draft("f", []).to_dot()


CLASSES = """
  digraph = x; model_stylesheet="* { llm_model: small; } .loop-a { llm_model: large; }";
  node [timeout=15m, prompt="Say \\"hi\\"\\nto C:\\\\x"]; edge [weight=2];
  start [shape=Mdiamond]; exit [shape=Msquare];
  subgraph cluster_a { label="Loop A"; a; subgraph inner { label=Deep; b [class="fast, code"] } }
  start -> a -> b -> exit [label="[Y] Yes", condition="outcome=success"]; b -> a [key=1, loop_restart=true];
"""


@pytest.mark.parametrize(
    "body",
    [
        *(SQUARE, ROUND, PARALLEL, CLASSES.replace("digraph = x;", "retry_target=a;")),
        HUMAN + ' ask [shape=hexagon]; ask -> exit [label="[A] Approve"]; ask -> work [label="R) Reject"];',
    ],
)
def test_a_pipeline_reads_back_as_it_was(body: str) -> None:
    text = f"digraph p {{{body}}}"
    flow = Flow.from_dot(text)
    again = Flow.from_dot(flow.to_dot())
    assert meaning(read(flow.to_dot())) == meaning(read(text))
    assert again.plan.hash == flow.plan.hash
    assert again.to_dot() == flow.to_dot()
    agreed(flow.to_dot())


def meaning(digraph: Digraph) -> object:
    pipeline = read_pipeline(digraph)
    nodes = [(node.id, node.attributes.plain(), node.classes) for node in digraph.nodes.values()]
    edges = [(edge.tail, edge.head, edge.attributes.plain()) for edge in digraph.edges]
    return digraph.name, digraph.attributes.plain(), nodes, edges, pipeline.dialect, dict(pipeline.kinds)


def test_a_pipeline_that_calls_others_names_them_still(tmp_path: Path) -> None:
    (tmp_path / "inner.dot").write_text(f"digraph inner {{{SQUARE}}}", encoding="utf-8")
    body = SQUARE + ' child [shape=house, "stack.child_dotfile"="inner.dot"]; work -> child -> exit;'
    flow = Flow.from_dot(f"digraph p {{{body}}}", file=str(tmp_path / "p.dot"))
    assert '"stack.child_dotfile"="inner.dot"' in flow.to_dot()
    assert Flow.from_dot(flow.to_dot(), file=str(tmp_path / "q.dot")).plan.hash == flow.plan.hash
