"""A fork may edit what lies inside a flow that is open at its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep import Flow, Host, ifelse, node
from everstep.errors import BadRequest
from everstep.model.enums import Mode

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


def test_edit_that_makes_a_gate_choose_again_gives_up_the_flow_it_chose_that_read_the_same() -> None:
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
        called.clear()
        same = host.resume(host.fork("r", at=at, inputs={"text": "z"}).run_id, flow)
        other = host.resume(host.fork("r", at=at, inputs={"text": "z!"}).run_id, flow)
    assert (same["words"], same["count"]) == (["z"], 1)
    assert dict(other) == {"rejected": "z!"}
    assert called == ["split", "count"]


def test_edit_that_makes_a_gate_choose_again_lets_the_flow_it_chose_end_if_that_read_something_else() -> None:
    @ifelse(when_true="measure", when_false="reject")
    def is_fit(limit: int) -> bool:
        return limit > 1

    @node(output="rejected")
    def reject(limit: int) -> int:
        return limit

    flow = Flow("essay", [is_fit, Flow("measure", [split, count]).as_node(), reject], durability="strong")
    with Host("memory:") as host:
        host.run(flow, {"text": "a b c", "limit": 2}, run_id="r")
        at = next(c.sequence for c in host.checkpoints("r") if "measure/split" in c.nodes)
        called.clear()
        other = host.resume(host.fork("r", at=at, inputs={"limit": 0}).run_id, flow)
    assert (other["words"], other["count"], other["rejected"]) == (["a", "b", "c"], 3, 0)
    assert called == ["count"]


@node(output="square")
def square(x: int) -> int:
    called.append(f"square {x}")
    if x == 13:
        raise ValueError("unlucky")
    return x * x


@node(output="xs")
def spread(seed: int) -> list[int]:
    return [seed, 2]


@node(output="total")
def add_up(squares: list[int]) -> int:
    return sum(squares)


EACH = square.map_over("x").with_inputs(x="xs").with_outputs(square="squares")


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
@pytest.mark.parametrize("mode", [Mode.STRONG, Mode.PARTIAL])
def test_failed_map_whose_list_is_edited_goes_over_the_new_list(
    store: str, mode: Mode, tmp_path: Path
) -> None:
    flow = Flow("squares", [EACH, add_up], durability=mode)
    url = store if store == "memory:" else f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        assert host.run(flow, {"xs": [1, 13, 3]}, run_id="r").status == "failed"
        fork = host.fork("r", inputs={"xs": [4, 2]})
        called.clear()
        result = host.resume(fork.run_id, flow)
        assert (result["squares"], result["total"], called) == ([16, 4], 20, ["square 4", "square 2"])
        assert all(verified.is_sound for verified in host.storage.verify())
        assert host.debug.nodes(fork.run_id).nodes[0].visits == 2
        again = host.fork(fork.run_id, inputs={"xs": []})
        assert host.resume(again.run_id, flow)["total"] == 0
        with Host(url) as other:  # what is stored says the same
            if store != "memory:":
                assert dict(other.state(fork.run_id)) | dict(result) == dict(other.state(fork.run_id))
                assert not [name for name in other.state(fork.run_id) if "#" in name]


def test_failed_map_behind_an_edited_node_begins_anew_too() -> None:
    flow = Flow("squares", [spread, EACH, add_up], durability="strong")
    with Host("memory:") as host:
        host.run(flow, {"seed": 13}, run_id="r")
        called.clear()
        assert host.resume(host.fork("r", inputs={"seed": 3}).run_id, flow)["total"] == 13
    assert called == ["square 3", "square 2"]


def test_failed_flow_inside_which_a_map_failed_begins_anew_as_a_whole() -> None:
    inner = Flow("inner", [EACH, add_up]).as_node()
    flow = Flow("outer", [inner.with_inputs(xs="numbers")], durability="strong")
    with Host("memory:") as host:
        host.run(flow, {"numbers": [1, 13]}, run_id="r")
        called.clear()
        assert host.resume(host.fork("r", inputs={"numbers": [5]}).run_id, flow)["total"] == 25
        assert called == ["square 5"]
        called.clear()
        deep = host.fork("r", state={"inner/xs": [6]})
        assert host.resume(deep.run_id, flow)["total"] == 36
        assert called == ["square 6"]
        with pytest.raises(BadRequest, match="'inner/xs' cannot be edited"):
            host.fork("r", inputs={"numbers": [7]}, state={"inner/xs": [6]})


def test_map_that_a_gate_chose_is_not_forgotten_when_its_list_is_edited() -> None:
    @ifelse(when_true="square", when_false="reject")
    def is_wanted(wanted: bool) -> bool:
        return wanted

    @node(output="rejected")
    def reject(wanted: bool) -> bool:
        return wanted

    flow = Flow("squares", [is_wanted, EACH, reject], durability="strong")
    with Host("memory:") as host:
        host.run(flow, {"wanted": True, "xs": [13]}, run_id="r")
        result = host.resume(host.fork("r", inputs={"xs": [3]}).run_id, flow)
    assert dict(result) == {"squares": [9]}


def test_map_that_failed_goes_on_where_it_was_if_its_list_is_not_edited() -> None:
    @node(output="square")
    def scaled(x: int, factor: int) -> int:
        called.append(f"scaled {x}")
        if x * factor == 13:
            raise ValueError("unlucky")
        return x * factor

    each = scaled.map_over("x").with_inputs(x="xs").with_outputs(square="squares")

    @node(output="end")
    def end(squares: list[int], word: str) -> str:
        return f"{word} {squares}"

    flow = Flow("squares", [each, end], durability="strong")
    with Host("memory:") as host:
        host.run(flow, {"xs": [13, 2], "factor": 1, "word": "a"}, run_id="r")
        called.clear()
        result = host.resume(host.fork("r", inputs={"word": "b"}).run_id, flow)
        assert (result.status, called) == ("failed", ["scaled 13"])
        called.clear()
        result = host.resume(host.fork("r", inputs={"factor": 2}).run_id, flow)
        assert (result["end"], called) == ("a [26, 4]", ["scaled 13", "scaled 2"])
