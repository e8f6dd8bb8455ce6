"""For every code of pipelines: the smallest text that has the fault, and the nearest one that has not.

In a text with a fault `¶` stands before the place that is named; it is taken out before the text is read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from everstep.frontends.dot.resolve import read
from everstep.frontends.dot.source import Source
from everstep.frontends.pipelines.kinds import kinds_of
from everstep.frontends.pipelines.lint.rules import lint
from everstep.frontends.pipelines.lint.values import LONGEST_PROMPT
from everstep.results import Diagnostics
from tests.unit.graph.diagnosed import Case

SQUARE: Final = """
  goal="Ship it"; retry_target=work;
  start [shape=Mdiamond]; exit [shape=Msquare];
  work [prompt="Do $goal"];
  start -> work -> exit;
"""
ROUND: Final = """
  fallback=work;
  begin [shape=ellipse]; done [shape=ellipse];
  work [goal="Do it"];
  begin -> work -> done;
"""
PARALLEL: Final = """
  retry_target=a; start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt=A]; b [prompt=B];
  both [shape=component]; join [shape=tripleoctagon];
  start -> both -> {a b} -> join -> exit;
"""
HUMAN: Final = """
  retry_target=work; start [shape=Mdiamond]; exit [shape=Msquare]; work [prompt=W];
  start -> work -> ask;
"""


ROUTED = """
  start [shape=Mdiamond]; exit [shape=Msquare]; work [prompt=W];
  start -> work -> pick; work -> exit [condition="outcome=fail"];
"""


def ladder(count: int) -> str:
    """Return forks behind each other that only meet at the very end, so that each doubles those behind it."""
    body = "retry_target=l1; start [shape=Mdiamond]; exit [shape=Msquare]; start -> p1;"
    body += " join [shape=tripleoctagon];"
    for n in range(1, count + 1):
        last = f"p{n + 1}" if n < count else "join"
        body += f" p{n} [shape=component]; l{n} [prompt=x]; r{n} [prompt=x]; p{n} -> {{l{n} r{n}}} -> {last};"
    return body + " join -> exit;"


class Fault(NamedTuple):
    """Two bodies of digraphs."""

    bad: str
    good: str


def linted(body: str, *, has_tools: bool = False) -> Diagnostics:
    """Return what is said of a digraph with this body; the handler `known` is registered."""
    digraph = read(f"digraph p {{{body}}}", "p.dot")
    return Diagnostics("p", lint(digraph, kinds_of(digraph), handlers=["known"], has_tools=has_tools))


def marked_place(body: str) -> tuple[int, int]:
    """Return the line and the column of the mark."""
    text = f"digraph p {{{body}}}"
    return Source(text).place(text.index("¶"))


FAULTS: Final[dict[str, Fault]] = {
    "pipeline.single_start": Fault(
        SQUARE + " twin [¶shape=Mdiamond]; twin -> work;", SQUARE + " twin [prompt=x]; work -> twin -> work;"
    ),
    "pipeline.single_exit": Fault(
        ROUND + " out [¶shape=ellipse]; work -> out;", SQUARE + " out [shape=Msquare]; work -> out;"
    ),
    "pipeline.unreachable": Fault(
        SQUARE + " ¶lost [prompt=x]; lost -> exit;", SQUARE + " lost [prompt=x]; work -> lost -> exit;"
    ),
    "pipeline.exit_unreachable": Fault(
        SQUARE.replace("start [", "¶start [").replace("-> exit", "-> work"),
        SQUARE,
    ),
    "pipeline.dead_end": Fault(
        SQUARE + " stuck [prompt=x]; work ¶-> stuck;", SQUARE + " stuck [prompt=x]; work -> stuck -> exit;"
    ),
    "pipeline.start_incoming": Fault(SQUARE + " work ¶-> start;", SQUARE + " work -> work;"),
    "pipeline.exit_outgoing": Fault(SQUARE + " exit ¶-> work;", SQUARE + " work -> exit;"),
    "pipeline.bad_id": Fault(
        SQUARE + ' ¶"a b" [prompt=x]; work -> "a b" -> exit;',
        SQUARE + ' "a.b" [prompt=x]; work -> "a.b" -> exit;',
    ),
    "pipeline.undeclared_node": Fault(
        SQUARE + " work -> ¶wrok -> exit;", SQUARE + " wrok [prompt=x]; work -> wrok -> exit;"
    ),
    "pipeline.duplicate_node": Fault(
        SQUARE.replace("work [", "¶work [") + ' work [prompt="Something else"];',
        SQUARE + " work [color=red];",
    ),
    "pipeline.unknown_handler": Fault(SQUARE + " work [¶type=knwon];", SQUARE + " work [type=known];"),
    "pipeline.condition": Fault(
        SQUARE + ' work -> exit [condition="outcome=success ¶|| outcome=fail"];',
        SQUARE + " work -> exit [condition=\"status == 'success' OR status == 'fail'\"];",
    ),
    "pipeline.not_first": Fault(
        SQUARE + " work -> exit [condition=\"done AND ¶NOT tests == 'failed'\"];",
        SQUARE + " work -> exit [condition=\"NOT (tests == 'failed') OR (NOT tests) == 'a'\"];",
    ),
    "pipeline.unknown_status": Fault(
        SQUARE + ' work -> exit [condition="outcome=¶sucess"];',
        SQUARE + ' work -> exit [condition="outcome=SUCCESS"];',
    ),
    "pipeline.stylesheet": Fault(
        'model_stylesheet="* { llm_model: small; } ¶{ }";' + SQUARE,
        'model_stylesheet="* { llm_model: small; }";' + SQUARE,
    ),
    "pipeline.style_property": Fault(
        'model_stylesheet="* { ¶llm_modell: small; }";' + SQUARE,
        'model_stylesheet="* { llm_model: small; }";' + SQUARE,
    ),
    "pipeline.fidelity": Fault(
        SQUARE + ' work [¶fidelity="summary:huge"];', SQUARE + ' work [fidelity="summary:high"];'
    ),
    "pipeline.retry_target": Fault(
        SQUARE + " work [¶fallback_retry_target=wrok];", SQUARE + " work [fallback_retry_target=start];"
    ),
    "pipeline.gate_retry": Fault(
        "start [shape=Mdiamond]; exit [shape=Msquare]; start -> gate -> exit; gate -> gate [label=fail];"
        " gate [prompt=x, ¶goal_gate=true];",
        "start [shape=ellipse]; exit [shape=ellipse]; start -> gate -> exit; gate -> gate [label=fail];"
        " gate [goal=x, goal_gate=true];",
    ),
    "pipeline.missing_prompt": Fault(
        SQUARE + " ¶idle [color=red]; work -> idle -> exit;",
        SQUARE + " idle [label=Rest]; work -> idle -> exit;",
    ),
    "pipeline.missing_goal": Fault(
        SQUARE.replace('goal="Ship it";', "").replace("[prompt", "[¶prompt"),
        SQUARE.replace('goal="Ship it";', "").replace("$goal", "it"),
    ),
    "pipeline.unused_variable": Fault(
        '¶audience="experts";' + SQUARE,
        'audience="experts";' + SQUARE.replace("$goal", "$goal for $audience"),
    ),
    "pipeline.high_retry_count": Fault(SQUARE + " work [¶max_retries=6];", SQUARE + " work [max_retries=5];"),
    "pipeline.value": Fault(SQUARE + " work [max_retries=¶many];", SQUARE + " work [max_retries=0];"),
    "pipeline.unknown_attribute": Fault(
        SQUARE + " work [¶max_retires=3];", SQUARE + " work [max_retries=3, fillcolor=red, anything=x];"
    ),
    "pipeline.tools": Fault(
        SQUARE + " ls [shape=parallelogram, ¶tool_command=ls]; work -> ls -> exit;",
        SQUARE + " ls [type=known, tool_command=ls]; work -> ls -> exit;",
    ),
    "pipeline.no_command": Fault(
        SQUARE + " ¶ls [shape=parallelogram]; work -> ls -> exit;",
        SQUARE + " ls [type=known]; work -> ls -> exit;",
    ),
    "pipeline.no_child": Fault(
        SQUARE + " ¶child [shape=house]; work -> child -> exit;",
        SQUARE + ' child [shape=house, "stack.child_dotfile"="c.dot"]; work -> child -> exit;',
    ),
    "pipeline.join": Fault(
        PARALLEL + " both [join_policy=k_of_n, ¶k=3];", PARALLEL + " both [join_policy=k_of_n, k=2];"
    ),
    "pipeline.no_branches": Fault(
        SQUARE + ' fork [¶shape=component]; work -> fork; fork -> exit [condition="outcome=success"];',
        SQUARE + " fork [shape=component]; join [shape=tripleoctagon]; work -> fork -> join -> exit;",
    ),
    "pipeline.branches_never_meet": Fault(
        PARALLEL.replace(" both [", " ¶both [") + " c [prompt=C]; out [shape=Msquare]; both -> c -> out;",
        PARALLEL + " c [prompt=C]; both -> c -> exit;",
    ),
    "pipeline.leaves_branch": Fault(
        PARALLEL.replace(" a [", " ¶a [") + " a -> exit;", PARALLEL + " a -> join;"
    ),
    "pipeline.branch_returns": Fault(
        PARALLEL.replace(" both [", " ¶both [") + " a -> both [condition=again];",
        PARALLEL + " join -> both [condition=again];",
    ),
    "pipeline.too_many_branches": Fault(ladder(16).replace(" p1 [", " ¶p1 ["), ladder(6)),
    "pipeline.unused_fan_in": Fault(SQUARE + " all [¶shape=tripleoctagon]; work -> all -> exit;", PARALLEL),
    "pipeline.no_failure_route": Fault(
        SQUARE.replace("retry_target=work;", "").replace("work [", "¶work ["),
        SQUARE.replace("retry_target=work;", "") + ' work -> work [condition="outcome=fail"];',
    ),
    "pipeline.no_edge": Fault(
        ROUTED + ' ¶pick [prompt=P]; pick -> exit [condition="context.x=1"]; pick -> work [condition=y];',
        ROUTED + ' pick [prompt=P]; pick -> exit [condition="context.x=1"]; pick -> work [condition="x!=1"];',
    ),
    "pipeline.bare_word": Fault(
        SQUARE + ' work -> exit [condition="kind == ¶bug"];',
        SQUARE + " work -> exit [condition=\"kind == 'bug'\"];",
    ),
    "pipeline.accelerators": Fault(
        HUMAN + ' ask [shape=hexagon]; ask -> exit [label="[A] Approve"]; ask -> work [¶label="A) Again"];',
        HUMAN + ' ask [shape=hexagon]; ask -> exit [label="[A] Approve"]; ask -> work [label="[M] Again"];',
    ),
    "pipeline.default_choice": Fault(
        HUMAN
        + ' ask [shape=hexagon, ¶"human.default_choice"=wrok]; ask -> exit [label=Y]; ask -> work [label=N]',
        HUMAN
        + ' ask [shape=hexagon, "human.default_choice"=work]; ask -> exit [label=Y]; ask -> work [label=N]',
    ),
    "pipeline.prompt_size": Fault(
        SQUARE + f' big [¶prompt="{"é" * (LONGEST_PROMPT // 2 + 1)}"]; work -> big -> exit;',
        SQUARE + f' big [prompt="{"é" * (LONGEST_PROMPT // 2)}"]; work -> big -> exit;',
    ),
    "pipeline.dialect": Fault("¶dialect=oval;" + SQUARE, "dialect=square;" + SQUARE),
    "pipeline.mixed_dialects": Fault(
        ROUND.replace("begin [shape=ellipse]", "begin [shape=Mdiamond]").replace("done [", "done [¶"), ROUND
    ),
    "pipeline.unclear_shape": Fault(
        ROUND.replace("begin [shape=ellipse]", "begin [shape=Mdiamond]")
        + " fork [¶shape=house]; work -> fork -> done;",
        ROUND + " fork [shape=house]; work -> fork -> done;",
    ),
    "pipeline.unclear_end": Fault(
        ROUND + " mid [¶shape=ellipse, goal=x]; work -> mid -> work;",
        ROUND + " mid [goal=x]; work -> mid -> work;",
    ),
}

CASES: Final[dict[str, Case]] = {
    code: Case(
        lambda fault=fault: linted(fault.bad.replace("¶", "")),  # type: ignore[misc]
        lambda fault=fault: linted(fault.good),  # type: ignore[misc]
    )
    for code, fault in FAULTS.items()
}
