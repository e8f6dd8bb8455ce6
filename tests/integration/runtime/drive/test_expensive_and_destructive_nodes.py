"""Nodes that are expensive or destructive: a checkpoint behind the one, before the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everstep import Durability, Flow, Host, Status, node, report
from everstep.errors import BadRequest
from everstep.model.durability import DurabilityMode
from everstep.model.enums import Trigger

pytestmark = pytest.mark.stores("sqlite")

MODES = (
    Durability("partial"),
    Durability("strong"),
    Durability("strong", flush="before_effects"),
    Durability("strong", interval=100),
)


@node(output="a", effects="pure")
def begin(n: int) -> int:
    return n + 1


@node(output="model", effects="pure", expensive=True)
def train(a: int) -> int:
    return a * 10


@node(output="gone", destructive=True)
def wipe(model: int) -> str:
    return f"wiped {model}"


@node(output="end", effects="pure")
def finish(gone: str) -> str:
    return gone.upper()


def flow(durability: Durability | DurabilityMode = "partial") -> Flow:
    return Flow("house", [begin, train, wipe, finish], durability=durability)


def triggers(host: Host, run: str) -> list[Trigger]:
    return [record.trigger for record in host.history(run)]


@pytest.mark.parametrize("durability", MODES)
def test_one_checkpoint_follows_the_expensive_node_and_one_precedes_the_destructive_one(
    host: Host, durability: Durability
) -> None:
    result = host.run(flow(durability), {"n": 1}, run_id="r")
    assert result["end"] == "WIPED 20"
    records = host.history("r")
    expensive = [r for r in records if r.trigger is Trigger.EXPENSIVE_OP]
    dangerous = [r for r in records if r.trigger is Trigger.DESTRUCTIVE_OP]
    assert [r.steps[-1].path for r in expensive] == ["train"]
    assert [(r.metadata or {})["node"] for r in expensive + dangerous] == ["train", "wipe"]
    assert len(dangerous) == 1 and expensive[0].sequence < dangerous[0].sequence
    done = host.state("r", at=dangerous[0].sequence)
    assert done["model"] == 20 and "gone" not in done


def test_nothing_is_written_for_them_where_nothing_is_kept(host: Host) -> None:
    assert host.run(flow("off"), {"n": 1})["end"] == "WIPED 20"
    assert host.runs() == []


def test_an_expensive_node_at_the_end_has_a_checkpoint_of_its_own(host: Host) -> None:
    host.run(Flow("short", [begin, train]), {"n": 1}, run_id="r")
    assert triggers(host, "r")[-2:] == [Trigger.EXPENSIVE_OP, Trigger.COMPLETED]


def test_a_fork_from_before_a_destructive_node_is_the_way_back(host: Host) -> None:
    host.run(flow(), {"n": 1}, run_id="r")
    at = next(r.sequence for r in host.history("r") if r.trigger is Trigger.DESTRUCTIVE_OP)
    fork = host.fork("r", at=at, state={"model": 7}, fork_id="back")
    assert host.resume(fork.run_id, flow())["gone"] == "wiped 7"
    assert host.state("r")["gone"] == "wiped 20"


def test_each_attempt_at_a_destructive_node_has_its_checkpoint(host: Host) -> None:
    left = [2]

    @node(output="gone", destructive=True, retry=3)
    def clumsy(model: int) -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError("busy")
        return "gone"

    host.run(Flow("house", [begin, train, clumsy]), {"n": 1}, run_id="r")
    assert triggers(host, "r").count(Trigger.DESTRUCTIVE_OP) == 3


def test_a_destructive_node_that_kills_its_process_again_and_again_is_abandoned(tmp_path: Path) -> None:
    """Its checkpoint counts as progress once, so that the run cannot be taken over for ever."""

    class Killed(BaseException):
        pass

    @node(output="gone", destructive=True)
    def deadly(a: int) -> str:
        raise Killed

    doomed = Flow("house", [begin, deadly])
    with Host(f"sqlite:///{tmp_path / 'runs.db'}") as host:
        with pytest.raises(Killed):
            host.run(doomed, {"n": 1}, run_id="r")
        written = len(host.history("r"))
        with pytest.raises(Killed):
            host.resume("r", doomed)
        assert len(host.history("r")) == written


def test_maps_and_inner_flows_have_them_too(host: Host) -> None:
    inner = Flow("inner", [train, wipe])
    lists = Flow("lists", [train.map_over("a")])
    host.run(lists, {"a": [1, 2, 3]}, run_id="m")
    assert triggers(host, "m").count(Trigger.EXPENSIVE_OP) == 3
    host.run(Flow("outer", [begin, inner.as_node()]), {"n": 1}, run_id="i")
    about = [(r.trigger, (r.metadata or {})["node"]) for r in host.history("i") if r.metadata]
    assert (Trigger.EXPENSIVE_OP, "inner/train") in about and (Trigger.DESTRUCTIVE_OP, "inner/wipe") in about


@pytest.mark.parametrize(
    "options", [{"expensive": "yes"}, {"destructive": 1}, {"destructive": True, "effects": "pure"}]
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        node(output="x", **options)(lambda: 1)


def test_the_report_and_the_ir_name_them() -> None:
    found = report(flow())
    assert (found.expensive_nodes, found.destructive_nodes) == (("train",), ("wipe",))
    assert "checkpoint before: wipe" in str(found)
    again = Flow.from_ir(flow().to_ir(), flow().functions())
    assert [n.name for n in again.nodes if n.expensive or n.destructive] == ["train", "wipe"]
    assert host_free(again) is Status.COMPLETED


def host_free(flow: Flow) -> Status:
    with Host("memory:") as host:
        return host.run(flow, {"n": 1}).status
