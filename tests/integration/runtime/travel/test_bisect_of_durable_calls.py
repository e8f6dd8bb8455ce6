"""Bisect runs whose nodes make durable calls: what no two runs have alike is no divergence by itself."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import Context, Flow, Host, Retry, node, wait

pytestmark = pytest.mark.stores("memory", "sqlite")
TURNS: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def turns() -> None:
    TURNS.clear()


def say(what: Any) -> Any:
    return TURNS.get("says", "alike")


@node(output="said")
def agent(ctx: Context) -> Any:
    stamps = [ctx.now(), ctx.uuid(), ctx.random()]
    said = ctx.step("say", say, str(stamps) if TURNS.get("hands_over") else "rain")
    return stamps if TURNS.get("returns") else said


flow = Flow("f", [agent], durability="strong")


def pair(host: Host, **turned: Any) -> Any:
    """Run the flow twice, the second time with something turned, and bisect."""
    host.run(flow, run_id="good")
    TURNS.update(turned)
    host.run(flow, run_id="bad")
    return host.debug.bisect("good", "bad")


def test_the_time_an_id_and_chance_are_no_divergence(host: Host) -> None:
    assert pair(host) is None
    assert not host.debug.diff("good", "bad")


def test_what_comes_after_them_is_found(host: Host) -> None:
    found = pair(host, says="another")
    assert (found.path, found.is_culprit, found.has_other_arguments) == ("agent/$say", True, False)
    assert [p.name for p in found.by_chance] == ["$now@1", "$uuid@1", "$random@1"]


def test_arguments_that_differ_are_told(host: Host) -> None:
    found = pair(host, says="another", hands_over=True)
    assert (found.path, found.is_culprit, found.has_other_arguments) == ("agent/$say", False, True)


def test_what_differs_because_of_them_is_found_and_they_are_named(host: Host) -> None:
    TURNS["returns"] = True
    found = pair(host)
    assert (found.path, found.visit) == ("agent", 1)
    assert [p.name for p in found.by_chance] == ["$now@1", "$uuid@1", "$random@1"]
    assert all(p.changes for p in found.by_chance)


def test_when_an_answer_came_is_no_divergence_and_what_it_says_is(host: Host) -> None:
    @node(output="said", halts=True)
    def asks(ctx: Context) -> bool:
        approved: bool = ctx.wait(wait.approval("ok")).approved
        return approved

    asking = Flow("asking", [asks], durability="strong")
    for run_id, approved in (("one", True), ("two", True), ("other", False)):
        [asked] = host.run(asking, run_id=run_id).waits
        host.answer(asked.token, {"approved": approved})
        host.resume(run_id, asking)
    assert host.debug.bisect("one", "two") is None
    found = host.debug.bisect("one", "other")
    assert found is not None
    assert found.path == "asks/$ok"


def test_calls_of_an_attempt_that_was_tried_again_do_not_count(host: Host) -> None:
    def fetch() -> str:
        if TURNS.pop("fails", False):
            raise ConnectionError("try again")
        return "page"

    @node(output="page", retry=Retry(1, first=0))
    def read(ctx: Context) -> str:
        if TURNS.get("fails"):
            return str(ctx.step("mirror", fetch))
        return str(ctx.step("fetch", fetch))

    reading = Flow("reading", [read], durability="strong")
    host.run(reading, run_id="good")
    TURNS["fails"] = True
    host.run(reading, run_id="bad")
    assert host.debug.bisect("good", "bad") is None
