"""Random digraphs, linted and built: what is not refused can be run, and nothing else is raised."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep import Flow
from everstep.dot.resolve import read
from everstep.errors import FlowError
from everstep.graph.pipelines.kinds import kinds_of
from everstep.graph.pipelines.lint import lint
from tests.unit.dot_texts import digraphs

SHAPES = (
    *("box", "diamond", "hexagon", "house", "component", "invhouse", "tripleoctagon", "Mdiamond", "Msquare"),
    *("ellipse", "circle", ""),
)
ATTRIBUTES = (
    *("goal_gate=true", "max_retries=2", "retry_target=a", "fallback_retry_target=zz", "timeout=5m", "k=1"),
    *(
        "join_policy=first_success",
        'prompt="Do $goal"',
        "label=x",
        "fidelity=full",
        "class=c",
        "max_retries=x",
    ),
    *("type=task", '"human.default_choice"=b', "timeout_action=skip", "allow_partial=true", "weight=1"),
)
CONDITIONS = (
    "outcome=fail",
    "outcome=success",
    "status == 'SUCCESS'",
    "context.x=1",
    "NOT a == b",
    "outcome=oops",
    "(",
)
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
        shape = draw(st.sampled_from(SHAPES))
        lines.append(f'"{name}" [{", ".join([f"shape={shape}"] * bool(shape) + said)}];')
    ends = st.sampled_from(names)
    for tail, head in draw(st.lists(st.tuples(ends, ends | st.just("exit")), max_size=12)):
        said = draw(st.sampled_from(["", "", "[label=fail]", '[label="[A] Yes"]', "[loop_restart=true]"]))
        if draw(st.booleans()) and not said:
            said = f'[condition="{draw(st.sampled_from(CONDITIONS))}"]'
        lines.append(f'"{tail}" -> "{head}" {said};')
    lines.append(f'"{names[-1]}" -> exit;')
    return "digraph p {\n" + "\n".join(lines) + "\n}"


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines())
def test_a_pipeline_is_refused_with_reasons_or_can_be_built_and_written_again(text: str) -> None:
    digraph = read(text, "p.dot")
    found = lint(digraph, kinds_of(digraph))
    errors = [d for d in found if d.severity == "error"]
    lines = text.splitlines()
    assert all(1 <= d.column <= len(lines[d.line - 1]) + 1 and d.message and d.fix for d in found)
    assert all(d.node in (*digraph.nodes, "") for d in found)
    try:
        flow = Flow.from_dot(text, file="p.dot")
    except FlowError as error:
        assert errors, str(error)
        return
    assert errors == []
    assert Flow.from_dot(flow.to_dot()).plan.hash == flow.plan.hash


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(digraphs())
def test_any_digraph_can_be_linted(text: str) -> None:
    digraph = read(text)
    found = lint(digraph, kinds_of(digraph), handlers=["x"], has_tools=True)
    assert any(
        d.code in ("pipeline.single_start", "pipeline.single_exit", "pipeline.exit_unreachable")
        for d in found
    )
