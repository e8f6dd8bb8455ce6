"""Random digraphs, linted and built: what is not refused can be run, and nothing else is raised."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep import Flow
from everstep.errors import FlowError
from everstep.frontends.dot.resolve import read
from everstep.frontends.pipelines.kinds import kinds_of
from everstep.frontends.pipelines.lint.rules import lint
from tests.unit.codec.fuzzing import IS_SOAK
from tests.unit.frontends.dot.dot_texts import digraphs

SHAPES = (
    *("box", "", "circle", "diamond", "hexagon", "house", "component", "invhouse", "tripleoctagon"),
    *("component", "tripleoctagon"),
)
ATTRIBUTES = (
    *(
        "goal_gate=true",
        "max_retries=2",
        "retry_target=a",
        "fallback_retry_target=b",
        "timeout=5m",
        "label=x",
    ),
    *("join_policy=first_success", 'prompt="Do $goal"', "fidelity=full", "class=c", "join_policy=quorum"),
    *("type=task", "timeout_action=skip", "allow_partial=true", "weight=1", "stack.child_dotfile=child"),
)
WRONG = (
    "k=9",
    "max_retries=x",
    '"human.default_choice"=b',
    "shape=Mdiamond",
    "shape=ellipse",
    "type=unknown",
)
CONDITIONS = ("outcome=fail", "outcome=success", "status == 'SUCCESS'", "context.x=1", "NOT a == b", "x")
CHILD = "digraph child { start -> only -> exit }"
NAMES = ("a", "b", "c", "d", "e", "a.next", "start2")


@st.composite
def pipelines(draw: st.DrawFn) -> str:
    """A digraph with two ends and whatever else in between."""
    lines = ["start [shape=Mdiamond]; exit [shape=Msquare]; start -> a;"]
    if draw(st.booleans()):
        lines.append("dialect=round;")
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    for name in names:
        said = draw(st.lists(st.sampled_from(ATTRIBUTES), max_size=3))
        if draw(st.integers(0, 30)) == 30:
            said.append(draw(st.sampled_from(WRONG)))
        shape = draw(st.sampled_from(SHAPES))
        lines.append(f'"{name}" [{", ".join([f"shape={shape}"] * bool(shape) + said)}];')
    edges = [*zip(names, [*names[1:], "exit"], strict=True)]
    numbers = st.integers(0, len(names))
    for one, other in draw(st.lists(st.tuples(numbers, numbers), max_size=8)):
        is_back = draw(st.integers(0, 4)) == 4
        tail, head = (max(one, other), min(one, other)) if is_back else (min(one, other), max(one, other))
        if tail < len(names):
            edges.append((names[tail], [*names, "exit"][head]))
    for tail_name, head_name in edges:
        said_of = draw(st.sampled_from(["", "", "[label=fail]", '[label="[A] Yes"]', "[loop_restart=true]"]))
        if not said_of and draw(st.booleans()):
            said_of = f'[condition="{draw(st.sampled_from(CONDITIONS))}"]'
        lines.append(f'"{tail_name}" -> "{head_name}" {said_of};')
    return "digraph p {\n" + "\n".join(lines) + "\n}"


@settings(max_examples=300 if IS_SOAK else 100, deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines())
def test_a_pipeline_is_refused_with_reasons_or_can_be_built_and_written_again(text: str) -> None:
    digraph = read(text, "p.dot")
    found = lint(digraph, kinds_of(digraph))
    errors = [d for d in found if d.severity == "error"]
    lines = text.splitlines()
    assert all(1 <= d.column <= len(lines[d.line - 1]) + 1 and d.message and d.fix for d in found)
    assert all(d.node in (*digraph.nodes, "") for d in found)
    try:
        flow = Flow.from_dot(text, children={"child": CHILD}, file="p.dot")
    except FlowError as error:
        assert errors, str(error)
        return
    assert errors == []
    assert Flow.from_dot(flow.to_dot(), children={"child": CHILD}).plan.hash == flow.plan.hash


@settings(max_examples=100 if IS_SOAK else 33, deadline=None, suppress_health_check=list(HealthCheck))
@given(digraphs())
def test_any_digraph_can_be_linted(text: str) -> None:
    digraph = read(text)
    kinds = kinds_of(digraph)
    found = {d.code for d in lint(digraph, kinds, handlers=["x"], has_tools=True)}
    assert kinds.keys() == digraph.nodes.keys()
    assert ("pipeline.single_start" in found) is (len(kinds.starts) != 1)
