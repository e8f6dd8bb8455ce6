"""Which edges a run took: by what was read and chosen, in the newest round of each loop or before."""

from __future__ import annotations

import pytest

from everstep import END, Context, Flow, Host, ifelse, migrate, node, parallel, route
from everstep.graph.draw.picture import picture_of
from everstep.results import RunEdges

pytestmark = pytest.mark.stores("memory", "sqlite")


@node(output="draft")
def write(topic: str, notes: str = "") -> str:
    return topic + notes


@node(output="notes")
def review(draft: str) -> str:
    return draft + "!"


@route("write", "publish")
def decide(draft: str, notes: str) -> str:
    return "write" if len(draft) < 8 else "publish"


@node(output="url")
def publish(draft: str) -> str:
    return draft


LOOP = Flow("loop", [write, review, decide, publish], entry=["write"], durability="strong")
"""Three rounds, for `topic="abc"`: the checkpoints 2 to 4, 5 to 7 and 8 to 10, then 11."""


def times(told: RunEdges) -> dict[tuple[str, str], int]:
    return {(edge.source, edge.target): edge.times for edge in told.edges}


def newest(told: RunEdges) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in told.edges if edge.is_newest}


def test_edges_of_a_loop_are_counted_by_round(host: Host) -> None:
    host.run(LOOP, {"topic": "abc"}, run_id="A1")
    told = host.debug.edges("A1")
    assert times(told) == {
        ("@inputs", "write"): 3,
        ("write", "review"): 3,
        ("review", "decide"): 3,
        ("write", "decide"): 3,
        ("decide", "write"): 2,
        ("review", "write"): 2,
        ("decide", "publish"): 1,
        ("write", "publish"): 1,
    }
    assert newest(told) == set(times(told))
    assert [(loop.node, loop.rounds, loop.began) for loop in told.loops] == [("write", 3, [2, 5, 8])]
    assert (told.sequence, told.left_out) == (11, 0)


def test_an_edge_into_a_node_that_spends_is_taken(host: Host) -> None:
    @node(output="verdict")
    def costly(draft: str, ctx: Context) -> str:
        ctx.spend(usd="0.50")
        return draft + "!"

    flow = Flow("spending", [write, costly], durability="strong")
    host.run(flow, {"topic": "abc"}, run_id="A1")
    assert times(host.debug.edges("A1")) == {("@inputs", "write"): 1, ("write", "costly"): 1}


def test_what_the_newest_round_has_not_come_to_is_of_an_older_one(host: Host) -> None:
    host.run(LOOP, {"topic": "abc"}, run_id="A1")
    told = host.debug.edges("A1", 5)
    assert newest(told) == {("@inputs", "write"), ("review", "write"), ("decide", "write")}
    assert {(e.source, e.target): e.round for e in told.edges}["write", "review"] == 1
    chosen = host.debug.edges("A1@4")
    assert ("decide", "write") in newest(chosen) and ("write", "review") in newest(chosen)
    assert ("decide", "publish") not in times(chosen)


def test_only_the_newest_checkpoints_are_read_and_those_before_are_estimated(host: Host) -> None:
    host.run(LOOP, {"topic": "abc"}, run_id="A1")
    whole, cut = host.debug.edges("A1"), host.debug.edges("A1", newest=2)
    assert (cut.left_out, cut.sequence) == (9, 11)
    assert times(cut) == times(whole)
    assert newest(cut) == newest(whole)
    assert cut.loops[0].rounds == 3 and cut.loops[0].began == []


def test_edges_of_inner_flows_groups_and_ends_are_told(host: Host) -> None:
    @node(output="docs")
    def fetch(q: str) -> list[str]:
        return [q]

    @node(output="hits")
    def rank(docs: list[str], q: str) -> list[str]:
        return docs

    @node
    def left(hits: list[str]) -> None: ...

    @node
    def wrong() -> None:
        raise ValueError

    @node
    def right() -> None: ...

    @node(output="done")
    def after() -> bool:
        return False

    @ifelse(when_true="after", when_false=END)
    def more(done: bool) -> bool:
        return False

    group = parallel(wrong, right, policy="best_effort", name="both")
    flow = Flow("f", [Flow("rag", [fetch, rank]).as_node(), left >> group >> after, more], entry=["after"])
    host.run(flow, {"q": "x"}, run_id="A1")
    told = times(host.debug.edges("A1"))
    assert told["@inputs", "rag"] == told["rag/fetch", "rag/rank"] == told["rag", "left"] == 1
    assert told["left", "wrong"] == told["wrong", "both"] == told["right", "both"] == 1
    assert told["more", "@end"] == 1 and ("more", "after") not in told
    drawn = {(edge.source, edge.target) for edge in host.debug.drawing("A1").edges}
    assert set(told) <= drawn


def test_a_round_of_the_loop_around_an_inner_flow_makes_what_is_in_it_older(host: Host) -> None:
    @node(output="b")
    def first(a: int) -> int:
        return a

    @node(output="c")
    def second(b: int) -> int:
        return b

    inner = Flow("inner", [first, second]).as_node()

    @node(output="a")
    def up(start: int, c: int = 0) -> int:
        return start + c + 1

    @ifelse(when_true="up", when_false=END)
    def again(c: int) -> bool:
        return c < 3

    flow = Flow("outer", [up, inner, again], entry=["up"], durability="strong")
    host.run(flow, {"start": 0}, run_id="A1")
    last = host.debug.edges("A1")
    assert times(last)["inner/first", "inner/second"] == 3
    assert ("inner/first", "inner/second") in newest(last)
    began = last.loops[0].began[1]
    assert ("inner/first", "inner/second") not in newest(host.debug.edges("A1", began))


def test_a_renamed_node_keeps_the_edges_that_it_took(host: Host) -> None:
    @node(output="x")
    def one(seed: int) -> int:
        return seed

    @node(output="y")
    def two(x: int) -> int:
        raise ValueError

    host.run(Flow("f", [one, two], durability="strong"), {"seed": 1}, run_id="A1")
    renamed = one.with_name("uno")

    @node(output="y", name="two")
    def better(x: int) -> int:
        return x

    rules = [migrate.rename_node("one", "uno")]
    flow = Flow("f", [renamed, better], version="2", durability="strong", migrations=rules)
    host.resume("A1", flow)
    assert times(host.debug.edges("A1"))["uno", "two"] == 1


def test_nodes_of_a_long_run_are_told_from_its_newest_checkpoints(host: Host) -> None:
    host.run(LOOP, {"topic": "abc"}, run_id="A1")
    whole, cut = host.debug.nodes("A1"), host.debug.nodes("A1", newest=3)
    assert (whole.left_out, cut.left_out, cut.sequence) == (0, 8, 11)
    assert {n.node: (n.visits, n.status) for n in cut.nodes} == {
        n.node: (n.visits, n.status) for n in whole.nodes
    }
    attempts = {n.node: n.attempts for n in cut.nodes}
    assert attempts == {"write": 0, "review": 1, "decide": 1, "publish": 1}
    assert host.debug.nodes("A1", newest=100) == whole


def test_the_drawing_of_a_run_is_that_of_its_flow(host: Host) -> None:
    host.run(LOOP, {"topic": "abc"}, run_id="A1")
    told = host.debug.drawing("A1")
    assert (told.run_id, told.flow, told.flow_version) == ("A1", "loop", "1")
    assert told.flow_hash == LOOP.plan.hash
    assert (told.nodes, told.edges) == (picture_of(LOOP.plan).nodes, picture_of(LOOP.plan).edges)
    assert host.debug.drawing("A1@3") == told
