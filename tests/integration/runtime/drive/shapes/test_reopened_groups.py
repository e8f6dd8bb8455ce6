"""A run that failed because a group did is reopened at the members that failed."""

from __future__ import annotations

from everstep import Flow, Host, at_least, node, parallel
from everstep.graph.author.wiring import Wired
from everstep.results import RunResult

broken: set[str] = set()
called: list[str] = []


def member(name: str) -> Wired:
    @node(name=name)
    def work() -> str:
        called.append(name)
        if name in broken:
            raise ValueError(name)
        return name

    return work


def fail_then_resume(group: Wired) -> RunResult:
    @node
    def after() -> str:
        return "done"

    flow = Flow("f", group >> after, durability="strong")
    broken.update({"b", "d"})
    called.clear()
    with Host("memory:") as host:
        failed = host.run(flow, run_id="r")
        assert failed.error is not None and failed.error.code == "group.failed"
        broken.clear()
        called.clear()
        resumed = host.resume("r", flow)
        recorded = host.run(flow, run_id="r")
    assert (recorded.steps, recorded.status) == (resumed.steps, resumed.status)
    return resumed


def test_resume_runs_the_failed_members_of_a_group_again_and_no_others() -> None:
    group = parallel(member("a"), member("b"), member("c"), policy=at_least(3))
    result = fail_then_resume(group)
    assert (result.status, result["after.__result__"]) == ("completed", "done")
    assert called == ["b"]
    assert result.steps == 5


def test_resume_goes_on_behind_the_failed_member_of_a_branch() -> None:
    group = parallel(member("a"), member("b") >> member("c"), policy=at_least(2))
    assert fail_then_resume(group).status == "completed"
    assert called == ["b", "c"]


def test_resume_reaches_into_a_group_within_a_group() -> None:
    inner = parallel(member("b"), member("d"), policy="best_effort", name="inner")
    assert fail_then_resume(parallel(member("a"), inner, policy=at_least(2))).status == "completed"
    assert sorted(called) == ["b", "d"]
