"""`everstep.testing.play`: a flow with given answers, and time that passes by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from everstep import END, AsyncHost, Flow, Host, Retry, ifelse, node, wait
from everstep.client.views import WaitInfo
from everstep.errors import AnswerInvalid, BadRequest, RunHalted
from everstep.testing import UNANSWERED, ManualClock, play

DAY = 86_400


def verdict_of(*, timeout: str | None = "3d") -> Flow:
    @node(output="verdict")
    def tell(approve: wait.ApprovalOutput, cool_down: wait.TimerOutput) -> str:
        return f"{approve.approved} {approve.comment} {cool_down.drift_ms}"

    asks = wait.approval("approve", context="amount", timeout=timeout)
    return Flow("expense", [asks, wait.timer("cool_down", duration="30d"), tell])


def test_given_answers_are_given_and_time_passes(url: str) -> None:
    clock = ManualClock()
    with Host(url, clock=clock) as host:
        result = play(host, verdict_of(), {"amount": 5}, answers={"approve": {"approved": True}})
        assert (result.status, result["verdict"]) == ("completed", "True None 0")
        assert clock.monotonic() == 30 * DAY


def test_where_no_answer_comes_the_time_is_over() -> None:
    clock = ManualClock()
    with Host("memory:", clock=clock) as host:
        result = play(host, verdict_of(), {"amount": 5})
        assert result["verdict"] == "False timed out 0"
        assert result["approve"].decided_at == clock.now() - timedelta(days=27)


def test_another_clock_is_not_waited_for() -> None:
    with Host("memory:") as host:
        assert play(host, verdict_of(), {"amount": 5})["verdict"] == "False timed out 0"


def test_a_run_that_waits_for_ever_is_returned_as_it_halted() -> None:
    with Host("memory:", clock=ManualClock()) as host:
        result = play(host, verdict_of(timeout=None), {"amount": 5}, run_id="A")
        assert (result.status, [w.node for w in result.waits]) == ("halted", ["approve"])
        with pytest.raises(RunHalted):
            result.raise_for_status()
        again = play(host, verdict_of(timeout=None), run_id="A", answers={"approve": {"approved": True}})
        assert again["verdict"] == "True None 0"


def asked_until_yes() -> Flow:
    @ifelse(when_true=END, when_false="sure")
    def enough(sure: bool) -> bool:
        return sure

    asks = wait.question("sure", timeout="1d", default=False)
    return Flow("asked", [asks, enough], entry="sure")


def test_a_list_gives_one_answer_after_the_other() -> None:
    clock = ManualClock()
    with Host("memory:", clock=clock) as host:
        result = play(host, asked_until_yes(), answers={"sure": [False, UNANSWERED, True]}, run_id="A")
        assert (result.status, result["sure"], result.steps) == ("completed", True, 6)
        assert clock.monotonic() == DAY
        assert [w.settled_by for w in host.waits("A", status=None)] == ["answer", "clock", "answer"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"approved": True}, ["ann", "bob"]),
        ([{"approved": True, "approver": "cleo"}, {"approved": True}], ["cleo", "ann"]),
        (lambda asked: {"approved": not asked.voting.votes}, ["ann", "bob"]),
        ({"approved": True, "approver": "bob"}, ["bob"]),
    ],
)
def test_an_approval_that_counts_votes_is_answered_until_it_is_decided(answer: Any, said: list[str]) -> None:
    flow = Flow("f", [wait.approval("ok", approvers=["ann", "bob", "cleo"], quorum=2, timeout="1d")])
    with Host("memory:", clock=ManualClock()) as host:
        out = play(host, flow, answers={"ok": answer})["ok"]
        assert [vote.by for vote in out.votes] == said


def test_a_function_is_given_the_wait() -> None:
    seen: list[Any] = []

    def decide(asked: WaitInfo) -> dict[str, bool]:
        seen.append(asked.context)
        return {"approved": asked.context < 100}

    with Host("memory:", clock=ManualClock()) as host:
        assert (
            play(host, verdict_of(), {"amount": 500}, answers={"approve": decide})["verdict"][:5] == "False"
        )
        assert seen == [500]


def test_items_and_inner_flows_are_answered_by_name_or_by_path() -> None:
    @node(output="text")
    def say(sure: bool, who: str) -> str:
        return f"{who}: {sure}"

    inner = Flow("review", [wait.question("sure", prompt="Sure?"), say])
    each = inner.as_node().map_over("who").with_inputs(who="people").with_outputs(text="texts")
    flow = Flow("reviews", [each])
    with Host("memory:", clock=ManualClock()) as host:
        answers = {"sure": True, "review#1/sure": False}
        result = play(host, flow, {"people": ["ann", "bob", "cy"]}, answers=answers)
        assert result["texts"] == ["ann: True", "bob: False", "cy: True"]
        by_place = play(host, flow, {"people": ["ann"]}, answers={"review/sure": False})
        assert by_place["texts"] == ["ann: False"]


def test_an_answer_for_a_node_that_does_not_wait_is_refused_before_anything_runs() -> None:
    with Host("memory:") as host:
        with pytest.raises(BadRequest, match="no node 'tell' of flow 'expense' waits"):
            play(host, verdict_of(), {"amount": 5}, answers={"tell": 1})
        assert host.runs() == []


def test_an_answer_of_the_wrong_shape_is_refused_as_anywhere() -> None:
    with Host("memory:") as host, pytest.raises(AnswerInvalid):
        play(host, verdict_of(), {"amount": 5}, answers={"approve": "yes"})


def test_a_pause_before_a_retry_passes_too() -> None:
    tries: list[int] = []

    @node(output="letter", retry=Retry(2, first="1h", jitter=0))
    def flaky(ok: wait.ApprovalOutput) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("down")
        return "sent"

    clock = ManualClock()
    with Host("memory:", clock=clock) as host:
        result = play(host, Flow("f", [wait.approval("ok"), flaky]), answers={"ok": {"approved": True}})
        assert (result["letter"], len(tries)) == ("sent", 3)
        assert clock.monotonic() >= 3600 and not clock.auto


@pytest.mark.parametrize("auto", [True, False])
def test_a_timer_that_lost_a_race_moves_no_clock(auto: bool) -> None:
    clock = ManualClock(auto=auto)
    race = wait.callback("paid") | wait.timer("too_late", duration="1d")
    flow = Flow("f", race.with_join("first_success"))
    with Host("memory:", clock=clock) as host:
        result = play(host, flow, answers={"paid": {"receipt": 7}})
        assert (result.status, "too_late" in result, clock.monotonic()) == ("completed", False, 0)


def test_a_host_that_is_awaited_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match="AsyncHost"):
        play(AsyncHost("memory:"), asked_until_yes())  # type: ignore[arg-type]


def test_a_signal_is_sent_and_an_event_published_as_an_answer_is_given(url: str) -> None:
    @node(output="told")
    def tell(paid: dict[str, int], note: str) -> str:
        return f"{paid['amount']} {note}"

    flow = Flow("shop", [wait.event("paid", match={"order": "order"}) >> wait.signal("note"), tell])
    with Host(url, clock=ManualClock()) as host:
        answers: dict[str, Any] = {"paid": {"order": 7, "amount": 12}, "note": "thanks"}
        assert play(host, flow, {"order": 7}, answers=answers)["told"] == "12 thanks"
        other = play(host, flow, {"order": 8}, answers=answers)
        assert (other.status, [w.node for w in other.waits]) == ("halted", ["paid"])
