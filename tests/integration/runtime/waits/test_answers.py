"""Answers: given once, checked first, by token or by id."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Any
from uuid import UUID

import pytest

from everstep import Context, Flow, Host, node, wait
from everstep.errors import (
    AnswerInvalid,
    AnswerTooLate,
    BadRequest,
    EverstepError,
    TokenExpired,
    TokenInvalid,
    TokenUsed,
    WaitClosed,
    WaitNotFound,
    WaitSettled,
)
from everstep.testing.clock import ManualClock

pytestmark = pytest.mark.servers

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
KEY = "a key of sixteen characters"
YES, NO = {"approved": True}, {"approved": False}
FLOW = Flow("f", [wait.approval("ok")])


@dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str


class Color(Enum):
    RED = "red"


def halted(host: Host, flow: Flow = FLOW, run_id: str = "r") -> Any:
    """Run a flow until it waits for one thing, and return that."""
    [opened] = host.run(flow, run_id=run_id).waits
    return opened


def test_an_answer_settles_a_wait_and_the_run_goes_on_with_it(host: Host) -> None:
    opened = halted(host)
    settled = host.answer(opened.token, YES)
    assert (settled.status, settled.settled_by, settled.answer) == ("settled", "answer", YES)
    assert host.info("r").status == "halted"
    assert host.resume("r", FLOW)["ok"].approved
    assert host.wait(opened.id).status == "closed"


def test_a_second_answer_is_refused_before_and_after_the_run_went_on(host: Host) -> None:
    opened = halted(host)
    host.answer(opened.token, YES)
    for _ in range(2):
        with pytest.raises(TokenUsed):
            host.answer(opened.token, NO)
        with pytest.raises(WaitSettled):
            host.answer(opened.id, NO)
        with pytest.raises(WaitSettled):
            host.waiting.fire(opened.id)
        assert host.resume("r", FLOW)["ok"].approved


@pytest.mark.parametrize(
    "asking", [wait.approval("w"), wait.callback("w"), wait.question("w", kind="text")], ids=lambda n: n.kind
)
def test_a_wait_without_a_time_cannot_be_over(host: Host, asking: Any) -> None:
    flow = Flow("f", [asking])
    opened = halted(host, flow)
    with pytest.raises(BadRequest, match="has no time that could be over"):
        host.waiting.fire(opened.id)
    with pytest.raises(BadRequest, match="has no time that could be over"):
        host.deliver({"wait_id": opened.id}, [flow])
    assert host.wait(opened.id).status == "open"


def test_a_wait_with_a_time_may_be_ended_before_it_is_over(host: Host) -> None:
    flow = Flow("f", [wait.callback("paid", timeout="1h")])
    opened = halted(host, flow)
    assert host.waiting.fire(opened.id).settled_by == "clock"
    assert host.resume("r", flow).status == "failed"


WRAPPED: list[tuple[Any, Any, Any]] = [
    (wait.question("w"), {"answer": True}, True),
    (wait.question("w", kind="text", answer_type=dict), {"answer": {"a": 1}}, {"answer": {"a": 1}}),
    (wait.question("w", kind="text", answer_type=dict[str, int]), {"answer": 1}, {"answer": 1}),
    (wait.question("w", kind="text", answer_type=dict[str, int]), {"answer": {"a": 1}}, {"a": 1}),
    (wait.question("w", kind="text", answer_type=Any), {"answer": 1}, {"answer": 1}),
    (wait.question("w", kind="choice", options=[{"answer": 1}, 1]), {"answer": 1}, {"answer": 1}),
    (wait.question("w", kind="choice", options=["a"]), {"answer": "a"}, "a"),
]


@pytest.mark.parametrize(("asking", "given", "taken"), WRAPPED)
def test_an_answer_is_unwrapped_only_if_it_does_not_fit_as_it_is(
    host: Host, asking: Any, given: Any, taken: Any
) -> None:
    flow = Flow("f", [asking])
    host.answer(halted(host, flow).id, given)
    assert host.resume("r", flow)["w"] == taken


def test_an_answer_that_comes_too_late_is_refused(host: Host, clock: ManualClock) -> None:
    flow = Flow("f", [wait.approval("ok", timeout="1h")])
    opened = halted(host, flow)
    clock.advance(3600)
    assert not host.resume("r", flow)["ok"].approved
    for name in (opened.token, opened.id):
        with pytest.raises(AnswerTooLate, match="clock"):
            host.answer(name, YES)


@pytest.mark.parametrize("late", [0, 1e-6, 7200])
@pytest.mark.parametrize("by_token", [True, False])
@pytest.mark.parametrize("single_use", [True, False])
def test_an_approval_given_after_its_timeout_is_refused_though_no_worker_came_by(
    host: Host, clock: ManualClock, late: float, by_token: bool, single_use: bool
) -> None:
    flow = Flow("f", [wait.approval("ok", timeout="1h", single_use=single_use)])
    opened = halted(host, flow)
    clock.advance(3600 + late)
    for _ in range(2):
        with pytest.raises(AnswerTooLate, match="clock") as caught:
            host.answer(opened.token if by_token else opened.id, YES)
        assert (caught.value.code, caught.value.http_status) == ("answer.too_late", 409)
    assert host.wait(opened.id).settled_by == "clock"
    decided = host.resume("r", flow)["ok"]
    assert (decided.approved, decided.comment) == (False, "timed out")


def test_an_approval_given_just_before_its_timeout_counts_whenever_the_run_goes_on(
    host: Host, clock: ManualClock
) -> None:
    flow = Flow("f", [wait.approval("ok", timeout="1h")])
    opened = halted(host, flow)
    clock.advance(timedelta(hours=1) - timedelta(microseconds=1))
    host.answer(opened.token, YES)
    clock.advance(7200)
    assert host.resume("r", flow)["ok"].approved


def test_a_time_that_another_scheduler_keeps_is_over_when_it_is_due(url: str, clock: ManualClock) -> None:
    """The scheduler is late: it has not called yet, and the answer is late all the same."""

    class Slow:
        async def schedule_at(self, handle: Any, at: Any) -> str:
            return "job"

        async def schedule_after(self, handle: Any, delay: Any) -> str:
            return "job"

        async def cancel(self, schedule_id: str) -> None: ...

        async def status(self, schedule_id: str) -> Any: ...

    flow = Flow("f", [wait.question("ask", kind="text", timeout="1h", default="none", scheduler="slow")])
    with Host(url, clock=clock, schedulers={"slow": Slow()}) as other:
        [opened] = other.run(flow, run_id="r").waits
        clock.advance(3600)
        with pytest.raises(AnswerTooLate):
            other.answer(opened.token, "me")
        assert other.resume("r", flow)["ask"] == "none"


WRONG: list[tuple[Any, list[Any]]] = [
    (
        wait.approval("w"),
        [None, True, "yes", [], {}, {"approved": "yes"}, {"approved": True, "x": 1}, {"approver": "A"}],
    ),
    (wait.question("w"), [None, 1, "yes", {"answer": 1}, {"answer": True, "more": 1}]),
    (
        wait.question("w", kind="choice", options=["red", "blue"]),
        ["green", None, {"answer": "green"}, ["red"]],
    ),
    (wait.question("w", kind="text"), [1, None, {"text": "x"}, ["x"]]),
    (wait.callback("w", answer_type=dict[str, int]), [1, {"a": "x"}, None]),
]


@pytest.mark.parametrize(("asked", "answers"), WRONG, ids=[asked.kind for asked, _ in WRONG])
def test_an_answer_of_the_wrong_shape_uses_nothing_up(host: Host, asked: Any, answers: list[Any]) -> None:
    flow = Flow("f", [asked])
    opened = halted(host, flow)
    for answer in answers:
        for name in (opened.token, opened.id):
            with pytest.raises(AnswerInvalid):
                host.answer(name, answer)
    assert host.wait(opened.token).status == "open"
    right = {"approval": YES, "yes_no": True, "choice": "red", "text": "x", "callback": {"a": 1}}
    assert host.answer(opened.token, right[asked.kind]).status == "settled"


def test_what_is_not_json_is_no_answer(host: Host) -> None:
    opened = halted(host, Flow("f", [wait.callback("w")]))
    loop: list[Any] = []
    loop.append(loop)
    for answer in (object(), loop, {"x": {1: object()}}, "x" * 2_000_000, math.nan, [{"x": -math.inf}]):
        with pytest.raises(AnswerInvalid):
            host.answer(opened.token, answer)
    assert host.wait(opened.id).status == "open"


CHANGED: list[Any] = [
    *(b"x", {1: 2}, {"a": {2: 1}}, Decimal("1.10"), (1, 2), {1}, date(2030, 1, 1), UUID(int=1)),
    *({"a": [b"x"]}, [{"when": datetime(2030, 1, 1, tzinfo=UTC)}], timedelta(1), Money(Decimal(1), "EUR")),
]


@pytest.mark.parametrize("answer", CHANGED, ids=repr)
def test_an_answer_that_json_would_change_is_refused_and_uses_nothing_up(host: Host, answer: Any) -> None:
    opened = halted(host, Flow("f", [wait.callback("w")]))
    with pytest.raises(AnswerInvalid, match="which JSON would change"):
        host.answer(opened.token, answer)
    host.answer(opened.token, {"fine": [1, 2.5, None, True, "x"]})


@pytest.mark.parametrize("answer", [b"x", Decimal("1.10"), date(2030, 1, 1)], ids=repr)
def test_a_question_for_text_takes_nothing_that_would_become_text(host: Host, answer: Any) -> None:
    opened = halted(host, Flow("f", [wait.question("w", kind="text")]))
    with pytest.raises(AnswerInvalid, match="which JSON would change"):
        host.answer(opened.token, answer)


ASKED: list[tuple[Any, Any]] = [
    *((bytes, b"x"), (Decimal, Decimal("1.10")), (date, date(2030, 1, 1)), (dict[int, int], {1: 2})),
    *((UUID, UUID(int=1)), (list[Decimal], [Decimal("1.10"), Decimal("2")]), (tuple[int, str], (1, "x"))),
    *((Money, Money(Decimal("1.10"), "EUR")), (dict[str, Money], {"a": Money(Decimal(1), "EUR")})),
    *((set[int], {1, 2}), (Decimal | None, Decimal("3")), (Color, Color.RED)),
]


@pytest.mark.parametrize(("kind", "answer"), ASKED, ids=lambda it: repr(it)[:30])
def test_an_answer_of_the_type_that_is_asked_for_is_kept(host: Host, kind: Any, answer: Any) -> None:
    flow = Flow("f", [wait.callback("w", answer_type=kind)])
    host.answer(halted(host, flow).token, answer)
    assert host.resume("r", flow)["w"].payload == answer


def test_no_answer_at_all_uses_no_token_up(host: Host) -> None:
    flow = Flow("f", [wait.callback("w")])
    opened = halted(host, flow)
    with pytest.raises(AnswerInvalid, match="no answer"):
        host.deliver({"token": opened.token}, [flow])
    with pytest.raises(AnswerInvalid, match="no answer"):
        host.answer(opened.token)
    assert host.wait(opened.token).status == "open"
    result = host.deliver({"token": opened.token, "answer": None}, [flow]).result
    assert result is not None and result["w"].payload is None


@pytest.mark.parametrize("name", ["", "nothing", "et_", "et_" + "A" * 43, "run-1", None, 7])
def test_no_one_answers_a_wait_that_is_not_there(host: Host, name: Any) -> None:
    halted(host)
    with pytest.raises((WaitNotFound, TokenInvalid)):
        host.answer(name, YES)
    assert len(host.waits()) == 1


def test_looking_at_a_wait_uses_nothing_up(host: Host) -> None:
    opened = halted(host)
    assert host.wait(opened.token).id == host.wait(opened.id).id == opened.id
    host.answer(opened.token, YES)


def test_a_revoked_token_is_worthless_and_the_wait_stays_open(host: Host) -> None:
    opened = halted(host)
    host.waiting.revoke(opened.token)
    with pytest.raises(TokenInvalid):
        host.answer(opened.token, YES)
    assert host.wait(opened.id).status == "open"
    host.answer(opened.id, YES)
    assert host.resume("r", FLOW)["ok"].approved


def test_a_token_issued_anew_kills_the_old_one(host: Host) -> None:
    opened = halted(host)
    renewed = host.waiting.reissue(opened.id)
    assert renewed.token not in (None, opened.token)
    with pytest.raises(TokenInvalid):
        host.answer(opened.token, YES)
    assert renewed.token is not None
    host.answer(renewed.token, YES)
    with pytest.raises(WaitSettled):
        host.waiting.reissue(opened.id)
    assert host.resume("r", FLOW)["ok"].approved


def test_a_token_lives_as_long_as_it_was_given(host: Host, clock: ManualClock) -> None:
    opened = halted(host, Flow("f", [wait.approval("ok", token_ttl="1h")]))
    clock.advance(3600)
    with pytest.raises(TokenExpired):
        host.answer(opened.token, YES)
    renewed = host.waiting.reissue(opened.id, ttl="5m")
    assert renewed.token is not None
    clock.advance(299)
    assert host.wait(renewed.token).id == opened.id
    clock.advance(1)
    with pytest.raises(TokenExpired):
        host.answer(renewed.token, YES)
    assert host.wait(opened.id).status == "open"


def test_a_token_for_more_than_one_use_is_told_the_first_answer(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok", single_use=False)])
    opened = halted(host, flow)
    first = host.answer(opened.token, YES)
    again = host.answer(opened.token, NO)
    assert (again.answer, again.settled_at) == (first.answer, first.settled_at)
    assert host.resume("r", flow)["ok"].approved
    assert host.answer(opened.token, NO).answer == YES


def test_a_host_with_a_key_shows_the_same_token_again_and_one_without_shows_none(
    tmp_path: Any, clock: ManualClock
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url, clock=clock, key=KEY) as host:
        opened = halted(host)
    with Host(url, clock=clock, key=KEY) as host:
        [listed] = host.waits()
        assert listed.token == opened.token
        assert halted(host).token == opened.token
    with Host(url, clock=clock) as host:
        [listed] = host.waits()
        assert listed.token is None
        host.answer(opened.token, YES)


def test_tokens_are_in_no_record_and_no_row(tmp_path: Any) -> None:
    with Host(f"sqlite:///{tmp_path}/runs.db", key=KEY) as host:
        opened = halted(host)
        host.answer(opened.token, YES)
        host.resume("r", FLOW)
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert opened.id.encode() in kept
    assert opened.token.encode() not in kept
    assert opened.token.removeprefix("et_").encode() not in kept


def test_of_many_answers_at_once_one_counts(url: str) -> None:
    with Host(url) as host:
        opened = halted(host, Flow("f", [wait.callback("w", single_use=True)]))
        won: list[int] = []
        lost: list[type[EverstepError]] = []
        start = threading.Barrier(8)

        def answer(k: int) -> None:
            start.wait(10)
            try:
                host.answer(opened.token if k % 2 else opened.id, k)
                won.append(k)
            except EverstepError as error:
                lost.append(type(error))

        threads = [threading.Thread(target=answer, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(won) == 1
        assert set(lost) <= {TokenUsed, WaitSettled}
        assert len(lost) == 7
        flow = Flow("f", [wait.callback("w", single_use=True)])
        assert host.resume("r", flow)["w"].payload == won[0]


def test_a_cancelled_run_wants_no_answer(host: Host) -> None:
    opened = halted(host)
    assert host.cancel("r") == "cancelled"
    assert host.waits("r") == []
    assert host.wait(opened.id).status == "closed"
    for name in (opened.id, opened.token):
        with pytest.raises(WaitClosed):
            host.answer(name, YES)
    with pytest.raises(WaitClosed):
        host.waiting.reissue(opened.id)
    assert host.resume("r", FLOW).status == "cancelled"


def test_a_host_answers_waits_of_flows_it_does_not_know(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        token = halted(host).token
    with Host(url) as other:
        other.answer(token, YES)
    with Host(url) as host:
        assert host.resume("r", FLOW)["ok"].approved


def test_waits_are_listed_by_run_flow_kind_and_status(host: Host) -> None:
    both = Flow("both", [wait.approval("a"), wait.timer("t", duration="1h")])
    host.run(both, run_id="one")
    host.run(FLOW, run_id="two")
    assert [(w.run_id, w.node) for w in host.waits()] == [("one", "a"), ("one", "t"), ("two", "ok")]
    assert [w.node for w in host.waits("one")] == ["a", "t"]
    assert [w.node for w in host.waits(flow="f")] == ["ok"]
    assert [w.node for w in host.waits(kind="timer")] == ["t"]
    host.answer(host.waits("two")[0].id, YES)
    assert host.waits("two") == []
    assert [w.node for w in host.waits(status="settled")] == ["ok"]
    first = host.waits(limit=1)
    assert [w.node for w in host.waits(after=first[0].id)] == ["t"]
    assert len(host.waits(status=None)) == 3


@pytest.mark.parametrize("has_context", [False, True])
def test_nodes_with_and_without_a_context_follow_a_wait(host: Host, has_context: bool) -> None:
    plain: Callable[..., str] = lambda ok: f"{ok.approved}"  # noqa: E731

    def with_context(ok: wait.ApprovalOutput, ctx: Context) -> str:
        return f"{ok.approved} {ctx.visit} {ctx.attempt}"

    after = node(output="said")(with_context) if has_context else node(name="after", output="said")(plain)
    flow = Flow("f", [wait.approval("ok"), after])
    host.answer(halted(host, flow).token, YES)
    assert host.resume("r", flow)["said"] == ("True 1 1" if has_context else "True")


def test_resuming_a_halted_run_many_times_is_no_sign_of_trouble(host: Host, clock: ManualClock) -> None:
    opened = halted(host)
    checkpoints = host.info("r").checkpoints
    for _ in range(25):
        clock.advance(timedelta(minutes=5))
        [again] = host.resume("r", FLOW).waits
        assert again.id == opened.id
    assert host.info("r").checkpoints == checkpoints
    assert not host.info("r").is_driven


MOMENTS = [-1800, -2, -1, -1e-6, 0, 1e-6, 1, 1800]
"""Seconds from the due time on."""


@pytest.mark.parametrize("seed", range(200 if IS_SOAK else 5))
def test_an_approval_is_decided_by_its_due_time_whichever_worker_comes_by_when(url: str, seed: int) -> None:
    rng, clock = Random(seed), ManualClock()
    flow = Flow("f", [wait.approval("ok", timeout="1h")])
    with Host(url, clock=clock) as one, Host(url, clock=clock) as two:
        hosts = [one, one if url == "memory:" else two]
        [opened] = one.run(flow, run_id="r").waits
        due, expected = clock.now() + timedelta(hours=1), None
        for after in sorted(rng.choices(MOMENTS, k=rng.randint(1, 6))):
            clock.advance(due + timedelta(seconds=after) - clock.now())
            host = rng.choice(hosts)
            if rng.random() < 0.4:
                host.work([flow], until_idle=True)
                continue
            said = rng.random() < 0.5
            with suppress(WaitSettled, TokenUsed):
                host.answer(rng.choice([opened.token, opened.id]), {"approved": said})
            if expected is None and after < 0:
                expected = (said, None)
        clock.advance(max(timedelta(0), due - clock.now()))
        rng.choice(hosts).work([flow], until_idle=True)
        decided = one.run(flow, run_id="r")["ok"]
        assert (decided.approved, decided.comment) == (expected or (False, "timed out"))


@pytest.mark.soak
def test_an_approval_settled_from_all_sides_at_its_due_time_is_decided_by_when_it_was_settled(
    tmp_path: Any,
) -> None:
    """By the clock of the machine, with two hosts that answer and a worker that sees the time is over."""
    url, flow = f"sqlite:///{tmp_path}/runs.db", Flow("f", [wait.approval("ok", timeout="150ms")])
    told: list[bool] = []

    def answering(by: Any, last: datetime) -> None:
        with Host(url) as host:
            while datetime.now(UTC) < last - timedelta(milliseconds=by):
                time.sleep(0.001)
            try:
                host.answer(opened.id, YES)
                told.append(True)
            except WaitSettled:
                told.append(False)

    with Host(url) as host:
        for round_number in range(20):
            [opened] = host.run(flow, run_id=f"r{round_number}").waits
            assert opened.due_at is not None
            told.clear()
            sides = [threading.Thread(target=answering, args=(by, opened.due_at)) for by in (2, 0)]
            for side in sides:
                side.start()
            while not host.work([flow], until_idle=True).completed:
                time.sleep(0.001)
            for side in sides:
                side.join()
            settled = host.wait(opened.id)
            assert settled.settled_at is not None
            assert (settled.settled_by == "answer") == (settled.settled_at < opened.due_at) == any(told)
            assert host.run(flow, run_id=f"r{round_number}")["ok"].approved == any(told)
