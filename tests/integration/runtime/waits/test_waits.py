"""What each kind of wait writes, when it is over, and what it may be told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from everstep import Flow, Host, Node, node, wait
from everstep.errors import BadRequest, InvalidDelay, TimerAmbiguous, TimerUnset
from everstep.testing.clock import START, ManualClock
from everstep.wait import ApprovalOutput, CallbackOutput, TimerOutput

pytestmark = pytest.mark.servers

DAY = timedelta(days=1)


def halted(host: Host, flow: Flow, inputs: dict[str, Any] | None = None, run_id: str = "r") -> Any:
    """Run a flow until it waits for one thing, and return that."""
    result = host.run(flow, inputs, run_id=run_id)
    assert result.status == "halted"
    [opened] = result.waits
    return opened


# -- timers -----------------------------------------------------------------------------------------------


def test_a_timer_writes_its_payload_when_it_went_on_and_how_late_it_was(
    host: Host, clock: ManualClock
) -> None:
    flow = Flow("f", [wait.timer("nap", duration="2d 4h", payload={"a": 1})])
    opened = halted(host, flow)
    assert (opened.node, opened.kind, opened.token) == ("nap", "timer", None)
    assert opened.due_at == START + timedelta(days=2, hours=4)
    clock.advance(timedelta(days=2, hours=4, milliseconds=1500))
    result = host.resume("r", flow)
    assert result.status == "completed"
    assert result["nap"] == TimerOutput({"a": 1}, clock.now(), 1500)
    assert result["nap"].resumed_at.tzinfo is UTC


def test_a_timer_that_is_not_due_halts_again(host: Host, clock: ManualClock) -> None:
    flow = Flow("f", [wait.timer("nap", duration="1h")])
    first = halted(host, flow)
    clock.advance(3599.999)
    again = halted(host, flow)
    assert again.id == first.id
    clock.advance(0.001)
    assert host.resume("r", flow)["nap"].drift_ms == 0


def test_a_timer_due_while_no_one_ran_fires_at_once_and_says_how_late(host: Host, clock: ManualClock) -> None:
    flow = Flow("f", [wait.timer("nap", duration="1h")])
    halted(host, flow)
    clock.advance(10 * DAY)
    assert host.resume("r", flow)["nap"].drift_ms == (10 * DAY - timedelta(hours=1)) / timedelta(
        milliseconds=1
    )


@pytest.mark.parametrize("payload", [None, 0, False, "", "text", [], {}, [1, {"x": None}], 1.5])
def test_a_timer_hands_any_payload_on(host: Host, payload: Any) -> None:
    flow = Flow("f", [wait.timer("nap", duration="0s", payload=wait.literal(payload))])
    assert host.run(flow)["nap"].payload == payload


def test_a_moment_in_the_past_fires_at_once(host: Host) -> None:
    flow = Flow("f", [wait.timer("nap", until=START - DAY)])
    result = host.run(flow)
    assert result.status == "completed"
    assert result["nap"] == TimerOutput(None, START, int(DAY / timedelta(milliseconds=1)))


def test_a_moment_may_be_of_any_time_zone_but_needs_one(host: Host, clock: ManualClock) -> None:
    noon = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    flow = Flow("f", [wait.timer("nap", until=noon)])
    assert halted(host, flow).due_at == datetime(2030, 1, 1, 6, 30, tzinfo=UTC)
    clock.advance(timedelta(hours=6, minutes=30))
    assert host.resume("r", flow)["nap"].drift_ms == 0
    text = Flow("g", [wait.timer("nap", until="2030-01-05T00:00:00-08:00")])
    assert halted(host, text, run_id="text").due_at == datetime(2030, 1, 5, 8, tzinfo=UTC)
    with pytest.raises(BadRequest, match="time zone"):
        wait.timer("nap", until=datetime(2030, 1, 1, 12))


def test_a_moment_without_a_time_zone_computed_by_a_node_fails_the_timer(host: Host) -> None:
    @node(output="moment")
    def choose() -> datetime:
        return datetime(2030, 1, 1, 12)

    result = host.run(Flow("f", [choose, wait.timer("nap", until="moment")]))
    assert result.status == "failed"
    assert result.error is not None
    assert "time zone" in result.error.message


def test_a_timer_needs_exactly_one_time_and_none_that_is_negative() -> None:
    with pytest.raises(TimerAmbiguous):
        wait.timer("nap", duration="1h", until=START)
    with pytest.raises(TimerUnset):
        wait.timer("nap")
    with pytest.raises(InvalidDelay):
        wait.timer("nap", duration=timedelta(seconds=-1))
    with pytest.raises(InvalidDelay):
        wait.approval("ok", timeout=timedelta(seconds=-1))


def test_a_negative_delay_computed_by_a_node_fails_the_timer_by_name(host: Host) -> None:
    flow = Flow("f", [wait.timer("nap", duration="delay")])
    result = host.run(flow, {"delay": timedelta(seconds=-1)})
    assert result.error is not None
    assert result.error.type == "InvalidDelay"


@pytest.mark.parametrize("hours", [-48, 48])
def test_a_clock_that_jumps_moves_a_timer_only_as_far_as_the_wall_clock_says(
    hours: int, url: str, clock: ManualClock
) -> None:
    """Another process, or this one after a correction, sees another time; the due moment stands."""
    flow = Flow("f", [wait.timer("nap", duration="1d")])
    with Host(url, clock=clock) as host:
        due = halted(host, flow).due_at
        clock._move_to(clock.now() + timedelta(hours=hours))
        if hours < 0:
            assert halted(host, flow).due_at == due
            clock.advance(timedelta(hours=71, minutes=59))
            assert host.resume("r", flow).status == "halted"
            clock.advance(60)
        result = host.resume("r", flow)
    assert result["nap"].resumed_at >= due
    assert result["nap"].drift_ms == (0 if hours < 0 else 24 * 3600 * 1000)


def test_a_timer_answered_by_hand_fires_early_without_drift(host: Host) -> None:
    flow = Flow("f", [wait.timer("nap", duration="1d", payload=7)])
    host.answer(halted(host, flow).id)
    assert host.resume("r", flow)["nap"] == TimerOutput(7, START, 0)


def test_staying_with_a_run_waits_for_its_timers(url: str) -> None:
    clock = ManualClock(auto=True)
    naps = [wait.timer(f"nap{k}", duration="30d") for k in range(3)]
    with Host(url, clock=clock) as host:
        result = host.run(Flow("f", [naps[0] >> naps[1] >> naps[2]]), wait=True)
    assert result.status == "completed"
    assert clock.now() == START + 90 * DAY


# -- approvals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"approved": True}, (True, None, None)),
        ({"approved": False, "approver": "Ada", "comment": "no"}, (False, "Ada", "no")),
        ({"approved": True, "approver": None, "comment": ""}, (True, None, "")),
    ],
)
def test_an_approval_writes_who_decided_what_and_when(
    host: Host, clock: ManualClock, answer: Any, expected: tuple[bool, str | None, str | None]
) -> None:
    flow = Flow("f", [wait.approval("ok", context={"amount": 5})])
    opened = halted(host, flow)
    assert opened.context == {"amount": 5}
    clock.advance(60)
    decided_at = clock.now()
    host.answer(opened.token or "", answer)
    clock.advance(60)
    assert host.resume("r", flow)["ok"] == ApprovalOutput(*expected, decided_at)


def test_an_approval_that_does_not_come_in_time_is_a_rejection(host: Host, clock: ManualClock) -> None:
    flow = Flow("f", [wait.approval("ok", timeout="3d")])
    halted(host, flow)
    clock.advance(4 * DAY)
    decided = host.resume("r", flow)["ok"]
    assert (decided.approved, decided.approver) == (False, None)
    assert decided.comment == "timed out"


# -- callbacks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [None, 0, False, "", "x", [], {}, {"answer": 1}, [1, "ä"]])
def test_a_callback_writes_what_was_sent_and_when(host: Host, clock: ManualClock, payload: Any) -> None:
    flow = Flow("f", [wait.callback("paid")])
    opened = halted(host, flow)
    clock.advance(5)
    host.answer(opened.token or "", payload)
    received_at = clock.now()
    clock.advance(5)
    assert host.resume("r", flow)["paid"] == CallbackOutput(payload, received_at)


def test_a_callback_that_never_comes_fails_by_name_and_a_resume_asks_again(
    host: Host, clock: ManualClock
) -> None:
    flow = Flow("f", [wait.callback("paid", timeout="1h")])
    first = halted(host, flow)
    clock.advance(3600)
    result = host.resume("r", flow)
    assert result.status == "failed"
    assert result.error is not None
    assert (result.error.type, result.error.code) == ("WaitTimeout", "wait.timeout")
    assert host.waits("r") == []
    again = host.resume("r", flow)
    [second] = again.waits
    assert second.id != first.id
    assert second.due_at == clock.now() + timedelta(hours=1)
    host.answer(second.token or "", "late but fine")
    assert host.resume("r", flow)["paid"].payload == "late but fine"


def test_a_callback_with_a_default_gives_that_when_its_time_is_over(host: Host, clock: ManualClock) -> None:
    flow = Flow("f", [wait.callback("paid", timeout="1h", default=None)])
    halted(host, flow)
    clock.advance(3600)
    assert host.resume("r", flow)["paid"] == CallbackOutput(None, clock.now())


# -- questions --------------------------------------------------------------------------------------------

ASKED: list[tuple[dict[str, Any], Any, Any]] = [
    ({"kind": "yes_no"}, {"answer": True}, True),
    ({"kind": "yes_no"}, False, False),
    ({"kind": "confirm"}, {"answer": True}, True),
    ({"kind": "text"}, {"answer": "blue"}, "blue"),
    ({"kind": "text"}, "", ""),
    ({"kind": "choice", "options": ["red", "blue"]}, "blue", "blue"),
    ({"kind": "choice", "options": [1, 2]}, {"answer": 2}, 2),
    ({"kind": "text", "answer_type": int}, 7, 7),
    ({"kind": "text", "answer_type": dict[str, int]}, {"answer": 3}, {"answer": 3}),
]


@pytest.mark.parametrize(("arguments", "answer", "expected"), ASKED)
def test_a_question_writes_the_bare_answer(
    host: Host, arguments: dict[str, Any], answer: Any, expected: Any
) -> None:
    flow = Flow("f", [wait.question("q", prompt="Which?", **arguments)])
    opened = halted(host, flow)
    assert opened.prompt == "Which?"
    assert opened.kind == arguments["kind"]
    host.answer(opened.token or "", answer)
    assert host.resume("r", flow)["q"] == expected


def test_a_question_without_an_answer_fails_by_name_or_gives_its_default(
    host: Host, clock: ManualClock
) -> None:
    plain = Flow("plain", [wait.question("q", timeout="1h")])
    kind = Flow("kind", [wait.question("q", timeout="1h", default=False)])
    halted(host, plain, run_id="plain")
    halted(host, kind, run_id="kind")
    clock.advance(3600)
    failed = host.resume("plain", plain)
    assert failed.error is not None
    assert failed.error.type == "WaitTimeout"
    assert host.resume("kind", kind)["q"] is False


# -- arguments --------------------------------------------------------------------------------------------


def test_arguments_name_values_computed_earlier(host: Host) -> None:
    @node(output=("summary", "patience", "colours"))
    def prepare(x: int) -> tuple[dict[str, int], str, list[str]]:
        return {"x": x}, "2h", ["red", "blue"]

    asked = wait.question("q", kind="choice", options="colours", timeout="patience", context="summary")
    flow = Flow("f", [prepare, asked])
    opened = halted(host, flow, {"x": 3})
    assert opened.context == {"x": 3}
    assert opened.options == ["red", "blue"]
    assert opened.due_at == START + timedelta(hours=2)
    host.answer(opened.token or "", "red")
    assert host.resume("r", flow)["q"] == "red"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "options are []"),
        (None, "options are None"),
        ("red", "options are 'red'"),
        (5, "options are 5"),
        (["red", "red"], "'red' is there twice"),
        (["blue"], "the default 'red' is no option"),
    ],
    ids=repr,
)
def test_computed_options_that_cannot_be_chosen_from_are_the_error_of_their_node(
    host: Host, options: Any, reason: str
) -> None:
    flow = Flow("f", [wait.question("q", kind="choice", options="colours", default="red", timeout="1h")])
    failed = host.run(flow, {"colours": options}, run_id="r")
    assert failed.status == "failed"
    assert failed.error is not None and reason in failed.error.message
    assert host.waits("r") == []


def test_options_that_differ_only_in_their_type_are_two(host: Host) -> None:
    flow = Flow("f", [wait.question("q", kind="choice", options=[1, True, "1"])])
    [opened] = host.run(flow, run_id="r").waits
    assert opened.options == [1, True, "1"]


@pytest.mark.parametrize("options", [["a", "a"], 5, {"a": 1}], ids=repr)
def test_options_that_cannot_be_chosen_from_are_refused_when_the_flow_is_written(options: Any) -> None:
    with pytest.raises(BadRequest, match="'q'"):
        wait.question("q", kind="choice", options=options)


@pytest.mark.parametrize("options", [[], "red", ["red", "red"]], ids=repr)
def test_the_options_of_a_halt_node_of_ones_own_are_checked_too(host: Host, options: Any) -> None:
    @node(halts=True, output="q")
    def ask() -> wait.Wait:
        return wait.Wait(options=options)

    failed = host.run(Flow("f", [ask]), run_id="r")
    assert failed.error is not None and "ask" in failed.error.message


def test_a_timer_takes_its_moment_and_its_payload_from_inputs(host: Host, clock: ManualClock) -> None:
    flow = Flow("f", [wait.timer("nap", until="deadline", payload="order")])
    halted(host, flow, {"deadline": START + DAY, "order": [1, 2]})
    clock.advance(DAY)
    assert host.resume("r", flow)["nap"] == TimerOutput([1, 2], clock.now(), 0)


def test_a_text_is_meant_as_it_is_where_it_names_nothing_or_is_called_literal(host: Host) -> None:
    flow = Flow("f", [wait.approval("ok", context=wait.literal("summary"))])
    assert halted(host, flow).context == "summary"
    phrase = Flow("g", [wait.approval("ok", context="a summary")])
    assert halted(host, phrase, run_id="g").context == "a summary"


def test_a_value_may_be_named_in_any_argument(host: Host, clock: ManualClock) -> None:
    asked = wait.question("q", kind="text", prompt=wait.value("text"), default=wait.value("x"), timeout="1h")
    flow = Flow("f", [asked])
    assert halted(host, flow, {"text": "How?", "x": "so"}).prompt == "How?"
    clock.advance(3600)
    assert host.resume("r", flow)["q"] == "so"


def test_an_output_may_have_another_name_than_its_node(host: Host) -> None:
    flow = Flow("f", [wait.callback("hook", output="payment")])
    host.answer(halted(host, flow).token or "", 1)
    result = host.resume("r", flow)
    assert result["payment"].payload == 1
    assert "hook" not in result


def test_the_registry_knows_the_halt_nodes_by_their_identifiers() -> None:
    made: list[Node] = [
        wait.timer("a", duration="1s"),
        wait.approval("b"),
        wait.callback("c"),
        wait.question("d"),
    ]
    names = ["std.timer.wait", "std.hitl.approval", "std.callback.wait", "std.question"]
    assert [n.identifier for n in made] == names


def test_the_state_of_a_run_lists_only_values_of_its_flow() -> None:
    with Host("memory:") as opened:
        opened.run(Flow("f", [wait.approval("ok")]), run_id="r")
        state = opened.state("r")
        assert dict(state) == {} and len(state) == 0
        [name] = [name for name in state.versions if name.startswith("@wait/")]
        assert name in state and "single_use" in state[name]  # by name it is there


def test_the_checkpoint_a_run_halts_with_says_when_the_first_of_its_waits_is_due(host: Host) -> None:
    pair = Flow("pair", [wait.timer("long", duration="2d"), wait.timer("short", duration="1h")])
    host.run(pair, run_id="pair")
    host.run(Flow("ask", [wait.question("reply", kind="text")]), run_id="ask")
    last = host.history("pair")[-1]
    assert (last.status, last.resume_after) == ("halted", START + timedelta(hours=1))
    assert host.history("ask")[-1].resume_after is None
    assert [event.data for event in host.events("pair", live=False) if event.kind == "run_halted"] == [
        {"resume_after": (START + timedelta(hours=1)).isoformat()}
    ]
    assert all(record.resume_after is None for record in host.history("pair")[:-1])
