"""A fork may edit what lies inside a flow that is open at its checkpoint."""

from __future__ import annotations

from everstep import Flow, Host, ifelse, node

called: list[str] = []


@node(output="words")
def split(text: str) -> list[str]:
    called.append("split")
    return text.split()


@node(output="count")
def count(words: list[str]) -> int:
    called.append("count")
    return len(words)


@node(output="verdict")
def judge(count: int) -> str:
    return "long" if count > 2 else "short"


FLOW = Flow("essay", [Flow("measure", [split, count]).as_node(), judge], durability="strong")


def inside(host: Host) -> int:
    """Return the checkpoint after the first step inside."""
    host.run(FLOW, {"text": "a b c"}, run_id="r")
    return next(c.sequence for c in host.checkpoints("r") if "measure/split" in c.nodes)


def test_edit_inside_an_open_flow_is_read_by_what_follows_there() -> None:
    with Host("memory:") as host:
        fork = host.fork("r", at=inside(host), state={"measure/words": ["z"]})
        called.clear()
        result = host.resume(fork.run_id, FLOW)
        again = host.run(FLOW, run_id=fork.run_id)
    assert (result["verdict"], result["count"], result["words"]) == ("short", 1, ["z"])
    assert dict(result) == dict(again)
    assert called == ["count"]


def test_edited_input_of_an_open_flow_starts_its_readers_again() -> None:
    with Host("memory:") as host:
        fork = host.fork("r", at=inside(host), state={"measure/text": "z"})
        called.clear()
        assert host.resume(fork.run_id, FLOW)["count"] == 1
    assert called == ["split", "count"]


def test_edit_of_one_item_of_a_map_leaves_the_others() -> None:
    each = Flow("measure", [split, count]).as_node().map_over("text", max_concurrency=1)
    flow = Flow("essays", [each.with_inputs(text="texts")], durability="strong")
    with Host("memory:") as host:
        host.run(flow, {"texts": ["a b", "c"]}, run_id="r")
        at = next(c.sequence for c in host.checkpoints("r") if "measure#1/split" in c.nodes)
        fork = host.fork("r", at=at, state={"measure#1/words": ["x", "y", "z"]})
        assert host.resume(fork.run_id, flow)["count"] == [2, 3]


def test_edit_that_makes_a_gate_choose_again_lets_the_flow_it_chose_end_and_counts_the_new_choice() -> None:
    @ifelse(when_true="measure", when_false="reject")
    def is_fit(text: str) -> bool:
        return "!" not in text

    @node(output="rejected")
    def reject(text: str) -> str:
        return text

    flow = Flow("essay", [is_fit, Flow("measure", [split, count]).as_node(), reject], durability="strong")
    with Host("memory:") as host:
        host.run(flow, {"text": "a b c"}, run_id="r")
        at = next(c.sequence for c in host.checkpoints("r") if "measure/split" in c.nodes)
        same = host.resume(host.fork("r", at=at, inputs={"text": "z"}).run_id, flow)
        other = host.resume(host.fork("r", at=at, inputs={"text": "z!"}).run_id, flow)
    assert (same["words"], same["count"]) == (["z"], 1)
    assert (other["words"], other["count"], other["rejected"]) == (["a", "b", "c"], 3, "z!")
