"""Tags and attributes of runs: who sets them, who has them after a fork, a crash or a move."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from everstep import Context, Flow, Host, KeyRing, node
from everstep.errors import BadRequest, EverstepError, InputsDiffer, NodeFailed
from everstep.runtime.drive.attributes import attributes_in

pytestmark = pytest.mark.stores("sqlite", "memory")
AT = datetime(2026, 1, 31, 9, tzinfo=UTC)


@node(output="found")
def look_up(order: str, ctx: Context) -> str:
    ctx.set_attribute("customer", f"c-{order}")
    ctx.set_attribute("tries", ctx.attempt)
    return order


@node(output="said")
def say(found: str, ctx: Context) -> str:
    if found == "broken":
        ctx.set_attribute("customer", "unknown")
        raise LookupError("no such order")
    ctx.set_attribute("said", True)
    return found


orders = Flow("orders", [look_up, say])


def attributes_of(host: Host, run_id: str) -> dict[str, Any]:
    """Return what the row says, once it is sure that the chain says the same."""
    shown = host.info(run_id).attributes
    assert shown is not None
    folded = host._lanes.call(lambda at: at._runs.reader.look_back(run_id, None))
    assert {one.name for one in attributes_in(folded.space)} == set(shown)
    return shown


def test_a_run_has_what_it_was_given_and_what_its_nodes_set(host: Host) -> None:
    given: dict[str, Any] = {"total": 12.5, "count": 3, "at": AT, "customer": "?"}
    host.run(orders, {"order": "A17"}, run_id="A17", tags=["vip"], attributes=given)
    assert attributes_of(host, "A17") == given | {"customer": "c-A17", "tries": 1, "said": True}
    assert host.info("A17").tags == {"vip": ""}
    assert host.runs()[0].tags is None


def test_a_failed_attempt_sets_nothing(host: Host) -> None:
    host.run(orders, {"order": "broken"}, run_id="B")
    assert attributes_of(host, "B") == {"customer": "c-broken", "tries": 1}


def test_a_run_that_is_started_again_must_be_given_the_same(host: Host) -> None:
    host.run(orders, {"order": "A"}, run_id="A", attributes={"n": 1})
    host.run(orders, {"order": "A"}, run_id="A", attributes={"n": 1}, tags=["ignored"])
    assert host.info("A").tags == {}
    with pytest.raises(InputsDiffer):
        host.run(orders, {"order": "A"}, run_id="A", attributes={"n": 2})


def test_tags_are_changed_and_refused_by_name(host: Host) -> None:
    host.run(orders, {"order": "A"}, run_id="A", tags={"team": "blue"})
    assert host.fleet.tag("A", {"team": "red", "vip": ""}, remove=["none"]).tags == {"team": "red", "vip": ""}
    with pytest.raises(BadRequest, match="more than 20 tags"):
        host.fleet.tag("A", [f"t{k}" for k in range(19)])
    with pytest.raises(BadRequest, match="tag name 'a b'"):
        host.fleet.tag("A", ["a b"])
    with pytest.raises(EverstepError, match="no run 'unknown'"):
        host.fleet.tag("unknown", ["a"])


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"a b": 1}, "attribute name 'a b'"),
        ({"a": None}, "attribute 'a' is NoneType"),
        ({"a": float("nan")}, "attribute 'a' is nan"),
        ({"a": 2**60}, "attribute 'a' is 1152921504606846976"),
        ({"a": "x" * 257}, "attribute 'a' has more than 256 bytes"),
        ({"a": "x\0"}, "attribute 'a' has characters"),
        ({"a": datetime(2026, 1, 1)}, "attribute 'a' is datetime"),
        ({f"a{k}": k for k in range(21)}, "there are 21 attributes"),
    ],
)
def test_what_cannot_be_an_attribute_is_refused_before_the_run_begins(
    host: Host, attributes: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadRequest, match=said):
        host.run(orders, {"order": "A"}, run_id="A", attributes=attributes)
    assert host.runs() == []


def test_a_node_that_sets_too_many_fails_by_name(host: Host) -> None:
    @node(output="out")
    def many(ctx: Context) -> int:
        for k in range(21):
            ctx.set_attribute(f"a{k}", k)
        return 1

    with pytest.raises(NodeFailed, match="there are 21 attributes"):
        host.run(Flow("many", [many]), run_id="M").raise_for_status()
    assert host.info("M").attributes == {}


def test_a_node_in_an_atomic_flow_sets_none(host: Host) -> None:
    inner = Flow("inner", [look_up]).as_node(durability="atomic").lift("found")
    with pytest.raises(NodeFailed, match="set an attribute"):
        host.run(Flow("outer", [inner, say]), {"order": "A"}).raise_for_status()


def test_a_fork_has_the_labels_of_its_parent_as_they_are_now(host: Host) -> None:
    host.run(orders, {"order": "A"}, run_id="A", tags=["old"], attributes={"n": 1})
    host.fleet.tag("A", ["new"], remove=["old"])
    host.fork("A", at=1, fork_id="F")
    assert host.info("F").tags == {"new": ""}
    assert attributes_of(host, "F") == attributes_of(host, "A")
    host.resume("F", orders)
    host.fork("F", fork_id="G")
    assert attributes_of(host, "G") == attributes_of(host, "F") == attributes_of(host, "A")
    assert [run.run_id for run in host.runs(attribute={"n": 1})] == ["G", "F", "A"]


def test_only_declared_attributes_are_readable_beside_encrypted_values(tmp_path: Path) -> None:
    ring = KeyRing({"k": b"0" * 32}, active="k")
    flow = Flow("orders", [look_up, say], plain_attributes=["customer", "tries"])
    with Host(f"sqlite:///{tmp_path}/runs.db", encrypt=ring) as host:
        with pytest.raises(BadRequest, match="attribute 'total' would be readable"):
            host.run(flow, {"order": "A"}, run_id="A", attributes={"total": 1})
        result = host.run(flow, {"order": "A"}, run_id="A", attributes={"customer": "7"})
        assert result.error is not None and "attribute 'said' would be readable" in result.error.message
        assert attributes_of(host, "A") == {"customer": "c-A", "tries": 1}


def test_a_bundle_and_a_copy_carry_labels(tmp_path: Path) -> None:
    with Host(f"sqlite:///{tmp_path}/here.db") as host:
        host.run(orders, {"order": "A"}, run_id="A", tags={"team": "blue"}, attributes={"password": "x"})
        host.transfer.export("A", tmp_path / "all.bundle")
        there = f"sqlite:///{tmp_path}/there.db"
        host.transfer.copy(there, ["A"])
        wanted = host.info("A")
    with Host(there) as other:
        assert (other.info("A").tags, attributes_of(other, "A")) == (wanted.tags, wanted.attributes)
    with Host(f"sqlite:///{tmp_path}/third.db") as third:
        third.transfer.import_(tmp_path / "all.bundle")
        assert third.info("A").tags == {"team": "blue"}


def test_runs_are_counted_by_what_they_have(host: Host) -> None:
    for k in range(4):
        host.run(orders, {"order": f"{k}"}, tags={"team": "ab"[k % 2]}, attributes={"odd": bool(k % 2)})
    assert host.fleet.count().runs == {"completed": 4}
    assert host.fleet.count("tag.team").runs == {"a": 2, "b": 2}
    assert host.fleet.count("odd", where="tag.team = a").runs == {"false": 2}
    assert host.fleet.count("group").runs == {"": 4}
    with pytest.raises(BadRequest, match="not counted by 'started'"):
        host.fleet.count("started")
