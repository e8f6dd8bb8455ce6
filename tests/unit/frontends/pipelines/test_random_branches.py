"""Where branches meet: what the linter says is what is built, on random digraphs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from everstep import Flow
from everstep.errors import FlowError
from everstep.frontends.dot.resolve import read
from everstep.frontends.pipelines.ends import JoinRunner
from everstep.frontends.pipelines.kinds import kinds_of
from everstep.frontends.pipelines.lint.branches import Nesting
from everstep.frontends.pipelines.lint.rules import lint
from everstep.frontends.pipelines.regions import Wiring

KINDS = ("box", "box", "box", "component", "component", "tripleoctagon", "tripleoctagon", "diamond")
EDGES = ("", "", "", "", "[label=fail]", '[condition="outcome=fail"]')


def digraph(chance: random.Random) -> str:
    """Return a digraph with forks and fan-ins whose edges lead mostly forward."""
    names = [f"n{k}" for k in range(chance.randint(3, 9))]
    lines = ["start [shape=Mdiamond]; exit [shape=Msquare]; node [prompt=x]; start -> n0;"]
    lines += [f"{name} [shape={chance.choice(KINDS)}];" for name in names]
    every = [*names, "exit"]
    for k, name in enumerate(names):
        lines.append(f"{name} -> {every[k + 1 + chance.randrange(len(every) - k - 1)]};")
        for _ in range(chance.choice((0, 1, 1, 2))):
            forward = chance.random() < 0.93
            to = every[k + 1 + chance.randrange(len(every) - k - 1)] if forward else chance.choice(names)
            lines.append(f"{name} -> {to} {chance.choice(EDGES)};")
    if chance.random() < 0.3:
        lines.append(f"retry_target={chance.choice(names)};")
    return "digraph p {\n" + "\n".join(lines) + "\n}"


def built(flow: Any) -> Iterator[tuple[str, str]]:
    """Yield each fork of a flow with the node where its branches meet, inner ones included."""
    for node in flow.nodes:
        for cell in getattr(getattr(node, "fn", None), "__closure__", None) or ():
            if isinstance(cell.cell_contents, JoinRunner):
                yield cell.cell_contents.spec.id, cell.cell_contents.meets_at
        if getattr(node, "flow", None) is not None:
            yield from built(node.flow)


def agree(seed: int) -> bool:
    """Check one digraph; returns whether it was built."""
    text = digraph(random.Random(seed))
    graph = read(text)
    kinds = kinds_of(graph)
    errors = [d for d in lint(graph, kinds) if d.severity == "error"]
    try:
        flow = Flow.from_dot(text)
    except FlowError:
        assert errors, text
        return False
    assert not errors, text
    said = Nesting(graph, Wiring(graph, kinds)).regions(kinds.starts[0])
    run = set(built(flow))
    assert {(r.node, r.meets_at) for r in said if r.node in dict(run)} == run, text
    return True


def test_the_linter_and_the_builder_agree_where_branches_meet() -> None:
    assert sum(agree(seed) for seed in range(300)) > 30


@pytest.mark.soak
def test_the_linter_and_the_builder_agree_on_ten_thousand_digraphs() -> None:
    assert sum(agree(seed) for seed in range(10_000)) > 800


def test_a_fork_inside_a_branch_meets_at_the_nearest_fan_in_for_both() -> None:
    text = """digraph p { start [shape=Mdiamond]; exit [shape=Msquare]; node [prompt=x]; n1;
      n0 [shape=component]; n2 [shape=component]; n3 [shape=tripleoctagon]; n4 [shape=tripleoctagon];
      start -> n0; n0 -> n1; n0 -> n2; n1 -> n2; n2 -> n3; n2 -> n4; n3 -> n4; n4 -> exit }"""
    graph = read(text)
    said = Nesting(graph, Wiring(graph, kinds_of(graph))).regions("start")
    assert {(region.node, region.meets_at) for region in said} == set(built(Flow.from_dot(text)))


def test_a_digraph_whose_branches_are_too_entangled_is_refused_in_time() -> None:
    count = 1_500
    lines = ["start [shape=Mdiamond]; exit [shape=Msquare]; start -> p0; node [prompt=x];"]
    for k in range(count):
        lines.append(f"p{k} [shape=component]; a{k} [prompt=x]; p{k} -> a{k}; p{k} -> p{k + 1};")
    graph = read("digraph p {" + "\n".join(lines) + f"p{count} -> exit }}")
    found = lint(graph, kinds_of(graph))
    assert "pipeline.too_many_branches" in {d.code for d in found if d.severity == "error"}
