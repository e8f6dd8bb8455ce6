"""Everything that can be wrong with a pipeline is said before it runs, with its place."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from everstep import Flow
from everstep.cli.main import cli
from everstep.errors import FlowError
from everstep.frontends.dot.resolve import Digraph, read
from everstep.frontends.pipelines.kinds import kinds_of
from everstep.frontends.pipelines.lint.rules import lint
from everstep.results import Diagnostics
from tests.architecture.sources import PACKAGE, ROOT
from tests.unit.frontends.pipelines.pipelines_diagnosed import (
    FAULTS,
    HUMAN,
    PARALLEL,
    ROUND,
    SQUARE,
    linted,
    marked_place,
)


def codes(body: str, *, has_tools: bool = False) -> list[str]:
    return [d.code for d in linted(body, has_tools=has_tools)]


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_is_found_at_its_place_and_nothing_else_is(code: str) -> None:
    bad = FAULTS[code].bad
    [found] = linted(bad.replace("¶", ""))
    assert found.code == code
    assert (found.file, found.line, found.column) == ("p.dot", *marked_place(bad))
    assert found.message.endswith((".", "?"))
    assert found.fix


@pytest.mark.parametrize("body", [SQUARE, ROUND, PARALLEL])
def test_a_pipeline_without_a_fault_has_none(body: str) -> None:
    assert codes(body) == []


def test_every_code_that_the_rules_can_give_is_in_the_table() -> None:
    folder = PACKAGE / "frontends/pipelines"
    text = "".join(path.read_text() for path in (folder / "kinds.py", *(folder / "lint").glob("*.py")))
    assert set(re.findall(r'"(pipeline\.[a-z_]+)"', text)) == FAULTS.keys()


RULES = """
    single-start single-exit reachability exit-reachable valid-conditions unique-names known-handlers
    orphan-edges unused-variables missing-goal high-retry-count
    start_node terminal_node edge_target_exists start_no_incoming exit_no_outgoing condition_syntax
    stylesheet_syntax type_known fidelity_valid retry_target_exists goal_gate_has_retry prompt_on_llm_nodes
"""


def test_every_rule_of_both_dialects_has_a_code_in_the_docs() -> None:
    page = (ROOT / "docs/reference/diagnostics.md").read_text(encoding="utf-8")
    table = page.split("| rule | here |")[1].split("\n\n")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    assert {name for rules, _ in rows for name in re.findall(r"`([\w-]+)`", rules)} == set(RULES.split())
    assert {code for _, found in rows for code in re.findall(r"`([\w.]+)`", found)} <= FAULTS.keys()


# -- ends and names ---------------------------------------------------------------------------------------


def test_a_pipeline_needs_both_ends() -> None:
    found = linted("retry_target=work; work [prompt=x];")
    assert [(d.code, d.line, d.column) for d in found] == [
        ("pipeline.single_start", 1, 1),
        ("pipeline.single_exit", 1, 1),
    ]


def test_an_empty_digraph_needs_both_ends_too() -> None:
    assert codes("") == ["pipeline.single_start", "pipeline.single_exit"]


def test_a_retry_target_is_a_way_to_a_node() -> None:
    body = SQUARE + " fix [prompt=x]; fix -> work;"
    assert codes(body) == ["pipeline.unreachable"]
    assert codes(body + " work [fallback_retry_target=fix];") == []
    assert codes(body + " fallback=fix;") == []


def test_a_typo_in_an_edge_is_told_which_node_was_meant() -> None:
    [found] = linted(SQUARE + " work -> wrok -> exit;")
    assert "Did you mean 'work'?" in found.fix


def test_a_typo_in_a_type_is_told_which_was_meant() -> None:
    [found] = linted(SQUARE + ' work [type="wait.humen"];')
    assert "Did you mean 'wait.human'?" in found.fix


def test_a_node_mentioned_again_in_a_subgraph_is_not_declared_twice() -> None:
    assert codes(SQUARE + ' subgraph cluster_a { label=Loop; work; work [prompt="Do $goal"] }') == []


# -- conditions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("NOT x == 'a'", ["pipeline.not_first"]),
        ("(NOT x == 'a')", ["pipeline.not_first"]),
        ("NOT (x) == 'a'", ["pipeline.not_first"]),
        ("(NOT x) == 'a'", []),
        ("NOT (x == 'a')", []),
        ("NOT x AND y == ')'", []),
        ("status IN ['SUCCESS', 'PARTIALLY']", ["pipeline.unknown_status"]),
        ("'done' == outcome", ["pipeline.unknown_status"]),
        ("outcome=", ["pipeline.condition"]),
        ("preferred_label=Yes && context.x!=1", []),
        ("", []),
    ],
)
def test_a_condition_is_read_in_either_grammar(condition: str, expected: list[str]) -> None:
    assert codes(SQUARE + f' work -> exit [condition="{condition}"];') == expected


def test_the_place_of_a_fault_in_a_condition_counts_lines_in_its_string() -> None:
    [found] = linted(SQUARE + ' work -> exit [condition="outcome=success\n  && outcome=oops"];')
    assert found.place == "p.dot:7:14"
    assert found.edge == ("work", "exit")


def test_the_condition_that_stops_an_inner_pipeline_is_read_too() -> None:
    child = '[shape=house, "stack.child_dotfile"="c.dot", "manager.stop_condition"="{}"]'
    body = SQUARE + " work -> child -> exit; child "
    assert codes(body + child.format("context.done=yes")) == []
    assert codes(body + child.format("context.done=")) == ["pipeline.condition"]


# -- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attribute",
    [
        *("max_retries=many", "max_retries=1.5", 'max_retries="-1"', "timeout=soon", "timeout=0s", "k=0"),
        *("goal_gate=perhaps", "retry_jitter=2", "join_policy=some", "timeout_action=wait"),
        *("retry_backoff=fast", "temperature=hot", "max_parallel=0", '"manager.poll_interval"=often'),
        *('simulate="success,fial"', 'simulate="retry/,success"'),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error(attribute: str) -> None:
    assert codes(SQUARE + f" work [{attribute}];") == ["pipeline.value"]


@pytest.mark.parametrize(
    "attribute",
    [
        *("max_retries=2", 'timeout="15m"', "timeout=900", "goal_gate=TRUE", "retry_jitter=0.1"),
        *("join_policy=quorum", "timeout_action=skip", "retry_backoff=patient", "allow_partial=false"),
        *('simulate="FAILURE, retry/success"', 'simulate=""'),
    ],
)
def test_a_value_that_is_right_passes(attribute: str) -> None:
    assert codes(SQUARE + f" work [{attribute}];") == []


def test_a_wrong_default_is_said_once() -> None:
    body = "node [max_retries=many, fidelity=tiny, max_retires=1];" + PARALLEL
    assert sorted(codes(body)) == ["pipeline.fidelity", "pipeline.unknown_attribute", "pipeline.value"]


def test_edges_and_the_graph_have_values_too() -> None:
    assert codes(SQUARE + " default_max_retries=x; work -> exit [weight=heavy, loop_restart=x, lable=x]") == [
        *("pipeline.value", "pipeline.value", "pipeline.value", "pipeline.unknown_attribute")
    ]


def test_what_only_graphviz_reads_is_not_taken_for_a_typo() -> None:
    body = SQUARE + '"budget.usd"="5.00";' + " rankdir=LR;"
    body += " work [URL=x, tooltip=y, labelloc=t, weigth=3]; work -> exit [headlabel=x]"
    assert codes(body) == []


# -- nodes ------------------------------------------------------------------------------------------------


def test_commands_are_allowed_by_saying_so() -> None:
    body = SQUARE + " ls [shape=parallelogram, tool_command=ls]; work -> ls -> exit;"
    [found] = linted(body)
    assert "--allow-tools" in found.fix
    assert codes(body, has_tools=True) == []


def test_a_join_of_some_branches_says_of_how_many() -> None:
    assert codes(PARALLEL + " both [join_policy=k_of_n];") == ["pipeline.join"]


@pytest.mark.parametrize(
    ("one", "other", "is_clear"),
    [
        ("Approve", "Abort", True),
        ("Y) Approve", "n - Approve again", True),
        ("Y) Approve", "[y] No", False),
        ("[Y] Approve", "[N] approve", False),
        ("", "", True),
    ],
)
def test_each_choice_has_a_key_and_a_label_of_its_own(one: str, other: str, is_clear: bool) -> None:
    edges = f'ask -> exit [label="{one}"]; ask -> work [label="{other}"];'
    assert codes(f"{HUMAN} ask [shape=hexagon]; {edges}") == ([] if is_clear else ["pipeline.accelerators"])


def test_a_failure_with_no_way_is_said_once_for_all() -> None:
    body = SQUARE.replace("retry_target=work;", "") + " more [prompt=x]; work -> more -> exit;"
    [found] = linted(body)
    assert (found.code, found.severity) == ("pipeline.no_failure_route", "info")
    assert "'work', 'more'" in found.message


@pytest.mark.parametrize(
    "edge",
    [
        *('[condition="outcome=fail"]', '[condition="outcome!=success"]', '[label="on failure"]'),
        *(
            "[condition=\"status == 'FAILURE'\"]",
            '[condition="context.x=1"]',
            "; work -> judge; judge [shape=diamond]; judge -> exit",
        ),
    ],
)
def test_an_edge_that_a_failure_can_take_is_a_way(edge: str) -> None:
    assert codes(SQUARE.replace("retry_target=work;", "") + f" work -> exit {edge};") == []


def test_an_edge_for_success_is_no_way_for_a_failure() -> None:
    body = SQUARE.replace("retry_target=work;", "") + ' work -> exit [condition="outcome=success"];'
    assert codes(body) == ["pipeline.no_failure_route"]


# -- branches ---------------------------------------------------------------------------------------------

NESTED = """
  retry_target=a; start [shape=Mdiamond]; exit [shape=Msquare]; node [prompt=x];
  p [shape=component]; q [shape=component]; j [shape=tripleoctagon]; k [shape=tripleoctagon];
  a; b; c; d;
  start -> p -> {a q}; q -> {b c} -> k -> d -> j; a -> j -> exit;
"""


def test_a_parallel_node_inside_a_branch_is_passed_behind_its_own_fan_in() -> None:
    assert codes(NESTED) == []
    assert codes(NESTED + " d -> d;") == []
    assert codes(NESTED + " d -> exit;") == ["pipeline.leaves_branch"]
    assert codes(NESTED + " e [shape=Msquare]; q -> e;") == ["pipeline.branches_never_meet"]


def test_one_after_the_other_each_has_a_fan_in_of_its_own() -> None:
    nodes = " r [shape=component]; m [shape=tripleoctagon]; e [prompt=x]; f [prompt=x];"
    second = f"{nodes} j -> r -> {{e f}} -> m -> exit;"
    assert codes(PARALLEL.replace("join -> exit", "join").replace("join", "j") + second) == []


def test_one_branch_alone_needs_a_fan_in() -> None:
    body = SQUARE + " fork [shape=component]; work -> fork -> exit;"
    assert codes(body) == ["pipeline.branches_never_meet"]


def test_a_branch_that_ends_alone_never_meets_the_others() -> None:
    assert "pipeline.branches_never_meet" in codes(PARALLEL + " c [prompt=x]; both -> c;")


def test_a_branch_that_leads_back_to_before_its_fork_is_refused() -> None:
    body = PARALLEL.replace("start -> both", "start -> plan -> both") + " plan [prompt=x]; "
    assert codes(body + 'a -> plan [condition="outcome=fail"];') == ["pipeline.branch_returns"]
    assert codes(body + 'join -> plan [condition="outcome=fail"];') == []


# -- size -------------------------------------------------------------------------------------------------


def large(count: int) -> Digraph:
    lines = ['start [shape=Mdiamond]; exit [shape=Msquare]; retry_target=t0; node [prompt="Do $goal"]']
    for n in range(count):
        lines.append(
            f"p{n} [shape=component]; j{n} [shape=tripleoctagon]; t{n} -> p{n} -> {{a{n} b{n}}} -> j{n};"
        )
        lines.append(
            f't{n} [max_retires=9]; hub -> t{n} [condition="outcome=sucess"]; j{n} -> exit; start -> hub;'
        )
    return read("digraph big {" + "\n".join(lines) + "}")


def taken(digraph: Digraph) -> float:
    begun = time.process_time()  # others may keep the processor busy
    lint(digraph, kinds_of(digraph))
    return time.process_time() - begun


def test_twice_the_pipeline_takes_about_twice_the_time() -> None:
    small, big = large(150), large(600)
    ratio = min(taken(big) for _ in range(5)) / min(taken(small) for _ in range(5))
    assert ratio < 9, f"4 times the nodes took {ratio:.1f} times as long"


# -- building ---------------------------------------------------------------------------------------------


def test_a_pipeline_that_is_refused_says_everything_with_the_errors_first() -> None:
    body = SQUARE + " work [max_retries=many]; work -> wrok -> exit;"
    with pytest.raises(FlowError, match=r"pipeline\.value") as raised:
        Flow.from_dot(f"digraph p {{{body}}}", file="p.dot")
    assert "undeclared" not in str(raised.value)
    found = Diagnostics.of(raised.value)
    assert [d.code for d in found] == ["pipeline.value", "pipeline.undeclared_node"]
    assert found[0].place == "p.dot:6:20"


def test_the_command_line_validates_a_file_and_allows_tools(tmp_path: Path) -> None:
    file = tmp_path / "p.dot"
    body = SQUARE + " ls [shape=parallelogram, tool_command=ls]; work -> ls -> exit;"
    file.write_text(f"digraph p {{{body}}}", encoding="utf-8")
    refused = CliRunner().invoke(cli, ["validate", str(file), "--json"])
    assert refused.exit_code == 1
    [flow] = json.loads(refused.stdout)["flows"]
    [found] = flow["diagnostics"]
    assert (found["code"], found["node"], found["line"]) == ("pipeline.tools", "ls", 6)
    assert CliRunner().invoke(cli, ["validate", str(file), "--allow-tools"]).exit_code == 0


def test_a_budget_that_is_no_amount_is_said_with_its_place() -> None:
    digraph = read(f'digraph p {{ {SQUARE} "budget.usd"="five"; "budget.tokens"=100; }}', "p.dot")
    [found] = lint(digraph, kinds_of(digraph))
    assert found.code == "pipeline.value" and "'five'" in found.message and found.line > 1
