"""Two runs side by side: what they share, what differs, and the first step that does; bounded and cut."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Flow, Host, node
from everstep.client.looking import comparison

pytestmark = pytest.mark.stores("sqlite")


@node(output="rough")
def draft(topic: str) -> dict[str, Any]:
    return {"about": topic, "lines": ["one", "two"]}


@node(output="score")
def judge(rough: dict[str, Any], luck: int = 0) -> int:
    return len(rough["about"]) + luck


@node(output="sent")
def send(score: int) -> str:
    return f"sent {score}"


flow = Flow("letter", [draft, judge, send], durability="strong")


def sequence_of(host: Host, run_id: str, path: str) -> int:
    return next(c.sequence for c in host.checkpoints(run_id) if path in c.nodes)


def test_a_fork_shares_what_it_had_when_it_was_made_and_differs_from_its_edit_on(host: Host) -> None:
    host.run(flow, {"topic": "tea"}, run_id="A1")
    at = sequence_of(host, "A1", "judge")
    host.fork("A1", at=at, state={"score": 9}, fork_id="A2")
    host.resume("A2", flow)
    told = host.debug.compare("A1", "A2")
    assert (told.before.run_id, told.after.run_id, told.shared_until) == ("A1", "A2", at)
    assert {one.name for one in told.values} == {"score", "sent"}
    assert {one.path: one.values for one in told.nodes} == {"judge": ["score"], "send": ["sent"]}
    first = told.first_difference
    assert first is not None and told.is_searched
    assert (first.path, first.what) == ("send", "other_inputs")
    assert first.checkpoint == sequence_of(host, "A2", "send")


def test_two_forks_share_what_the_older_one_was_made_from(host: Host) -> None:
    host.run(flow, {"topic": "tea"}, run_id="A1")
    host.fork("A1", at=2, fork_id="A2")
    host.fork("A1", at=3, fork_id="A3")
    host.resume("A2", flow)
    host.fork("A2", fork_id="A4")
    assert host.debug.compare("A2", "A3").shared_until == 2
    assert host.debug.compare("A4", "A3").shared_until == 2
    assert host.debug.compare("A4", "A2").shared_until == host.info("A2").checkpoints
    assert host.debug.compare("A1@1", "A4").shared_until == 1
    other = host.run(flow, {"topic": "tea"}, run_id="B1")
    assert other.status == "completed"
    assert host.debug.compare("A1", "B1").shared_until is None


def test_runs_that_are_alike_have_no_difference(host: Host) -> None:
    for run_id in ("A1", "B1"):
        host.run(flow, {"topic": "tea"}, run_id=run_id)
    told = host.debug.compare("A1", "B1")
    assert (told.values, told.nodes, told.first_difference, told.is_searched) == ([], [], None, True)


def test_a_step_that_comes_out_differently_of_itself_is_told_from_one_with_other_inputs(host: Host) -> None:
    host.run(flow, {"topic": "tea"}, run_id="A1")
    host.run(flow, {"topic": "cake"}, run_id="B1")
    first = host.debug.compare("A1", "B1").first_difference
    assert first is not None and (first.path, first.what) == ("draft", "other_inputs")

    @node(output="score")
    def judge(rough: dict[str, Any]) -> int:
        return 77

    host.run(Flow("letter", [draft, judge, send]), {"topic": "tea"}, run_id="C1")
    first = host.debug.compare("A1", "C1").first_difference
    assert first is not None and (first.path, first.what) == ("judge", "other_outcome")


def test_two_moments_of_a_run_are_compared_by_their_addresses(host: Host) -> None:
    host.run(flow, {"topic": "tea"}, run_id="A1")
    told = host.debug.compare("A1@2", "A1")
    assert told.shared_until == 2
    assert [(one.path, one.kind) for one in told.nodes] == [("judge", "added"), ("send", "added")]
    assert (told.first_difference, told.before.checkpoint) == (None, 2)


def test_values_are_cut_and_what_is_too_many_is_left_out(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    @node(output="long")
    def write(x: int) -> list[str]:
        return [f"{x}"] * 400 + ["y" * 5000 * x]

    long = Flow("long", [write])
    for x in (1, 2):
        host.run(long, {"x": x}, run_id=f"L{x}")
    told = host.debug.compare("L1", "L2")
    [end] = [one for one in told.values if one.path == "long[400]"]
    assert end.before is not None and end.before.is_cut and len(end.before.text) == 2000
    assert not told.is_cut
    monkeypatch.setattr(comparison, "MOST", 20)
    told = host.debug.compare("L1", "L2")
    assert (len(told.values), told.is_cut) == (20, True)
    monkeypatch.setattr(comparison, "LARGEST", 1000)
    [one] = [one for one in host.debug.compare("L1", "L2").values if one.name == "long"]
    assert one.after is not None and "too much to be compared" in one.after.text


def test_long_runs_are_not_searched_beyond_what_they_share(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run(flow, {"topic": "tea"}, run_id="A1")
    host.run(flow, {"topic": "cake"}, run_id="B1")
    monkeypatch.setattr("everstep.client.groups.debug.SEARCHED", 2)
    told = host.debug.compare("A1", "B1")
    assert (told.first_difference, told.is_searched) == (None, False)
    assert told.values
