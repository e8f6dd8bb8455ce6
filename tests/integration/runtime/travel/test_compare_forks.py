"""Forks compared with where they come from, and steps replayed in a past that is shared or partly gone."""

from __future__ import annotations

import pytest

from everstep import END, Context, Flow, Host, ifelse, node
from everstep.errors import ValueUnreadable
from tests.integration.noise import noise

pytestmark = pytest.mark.stores("memory", "sqlite")


@node(output="a")
def first(x: int) -> int:
    return x + 1


@node(output="b")
def second(a: int, ctx: Context) -> list[str]:
    return [str(a), ctx.idempotency_key]


@node(output="c")
def third(b: list[str]) -> str:
    return b[0] * 2


FLOW = Flow("chain", [first, second, third], durability="strong")


def test_a_fork_that_was_not_touched_goes_as_the_run_it_comes_from(host: Host) -> None:
    host.run(FLOW, {"x": 1}, run_id="r")
    host.fork("r", at=3, fork_id="f")
    host.resume("f", FLOW)
    assert host.debug.bisect("r", "f") is None
    assert host.debug.diff("r", "f").values == ()


def test_an_edit_shows_in_the_first_step_that_read_it(host: Host) -> None:
    host.run(FLOW, {"x": 1}, run_id="r")
    host.fork("r", at=2, state={"a": 40}, fork_id="f", keep_keys=True)
    host.resume("f", FLOW)
    paths = [c.path for c in host.debug.diff("r", "f").values]
    assert paths == ["a", "b[0]", "c"]
    found = host.debug.bisect("r", "f")
    assert found is not None
    assert (found.path, found.is_culprit) == ("second", False)
    assert [(p.name, p.before, p.after) for p in found.reads] == [("a", 2, 40)]


def test_a_fork_replays_the_shared_past_and_its_own_steps(host: Host) -> None:
    host.run(FLOW, {"x": 1}, run_id="r")
    host.fork("r", at=2, state={"a": 40}, fork_id="f")
    host.resume("f", FLOW)
    for run_id in ("r", "f"):
        for path in ("first", "second", "third"):
            again = host.debug.replay(run_id, path, FLOW)
            assert again.is_equal is True, (run_id, path, again)
    assert host.debug.replay("f", "first", FLOW).inputs == {"x": 1}
    assert host.debug.replay("f", "second", FLOW).inputs == {"a": 40}


def test_what_was_removed_cannot_be_compared_and_the_rest_can(host: Host) -> None:
    @node(output=("pages", "scratch"))
    def write(pages: list[str]) -> tuple[list[str], str]:
        return [*pages, "p"], noise(len(pages), 40_000)

    @ifelse(when_true="write", when_false=END)
    def more(pages: list[str]) -> bool:
        return len(pages) < 12

    flow = Flow("book", [write, more], entry="write", durability="strong")
    host.run(flow, {"pages": []}, run_id="r")
    host.run(flow, {"pages": []}, run_id="whole")
    assert host.retention.clean_up("r", keep=6) > 0
    assert host.debug.bisect("whole", "r") is None
    assert host.debug.diff("whole", "r").values == ()
    oldest, *later = host.history("r")
    assert "write" in {step.path for record in later for step in record.steps}
    for step in (step for record in later for step in record.steps):
        assert host.debug.replay("r", f"{step.path}@{step.visit}", flow).is_equal is True
    gone = next(step for step in oldest.steps if step.path == "write")
    with pytest.raises(ValueUnreadable, match="cannot be replayed"):  # what it read went with the one before
        host.debug.replay("r", f"write@{gone.visit}", flow)
