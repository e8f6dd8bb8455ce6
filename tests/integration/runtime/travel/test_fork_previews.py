"""What a fork would do is said as it then does it, and nothing is written to find out."""

from __future__ import annotations

import pytest

from everstep import END, Flow, Host, ifelse, node, wait
from everstep.errors import BadRequest, InputError
from everstep.results import ForkPreview

pytestmark = pytest.mark.stores("sqlite")
CALLS: list[str] = []


@node(output="rough")
def draft(topic: str) -> str:
    CALLS.append("draft")
    return f"about {topic}"


@node(output="score")
def judge(rough: str) -> int:
    CALLS.append("judge")
    return len(rough)


@node(output="sent", idempotency_key="auto")
def send(rough: str, score: int) -> str:
    CALLS.append("send")
    return f"{rough}: {score}"


@node(output="other")
def apart(topic: str) -> str:
    CALLS.append("apart")
    return topic


flow = Flow("letter", [draft, judge, send, apart])


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def said(told: ForkPreview) -> tuple[list[str], list[str]]:
    return [*told.starts], [one.path for one in told.again]


@pytest.mark.parametrize("edited", ["topic", "rough", "score"])
def test_what_is_said_to_run_again_is_what_runs(host: Host, edited: str) -> None:
    host.run(flow, {"topic": "tea"}, run_id="A1")
    before = len(host.history("A1"))
    of_inputs = ["topic"] if edited == "topic" else []
    of_state = [] if of_inputs else [edited]
    told = host.debug.preview_fork("A1", inputs=of_inputs, state=of_state)
    assert len(host.history("A1")) == before
    assert len(host.runs()) == 1, "nothing was made"
    CALLS.clear()
    values: dict[str, object] = {"topic": "cake", "rough": "about cake", "score": 7}
    edits = {name: values[name] for name in (edited,)}
    fork = host.fork("A1", inputs=edits if of_inputs else None, state=None if of_inputs else edits)
    host.resume(fork.run_id, flow)
    starts, again = said(told)
    assert {*again} == {*CALLS}
    assert CALLS[0] in starts
    assert told.kept == 4 - len({*CALLS})
    assert {one.path for one in told.again if one.had_key} == {"send"} & {*CALLS}


def test_a_fork_without_edits_runs_nothing_of_what_has_ended(host: Host) -> None:
    host.run(flow, {"topic": "tea"}, run_id="A1")
    assert said(host.debug.preview_fork("A1")) == ([], [])


def test_a_fork_from_the_middle_starts_what_was_due_there(host: Host) -> None:
    host.run(Flow("letter", [draft, judge, send]), {"topic": "tea"}, run_id="A1")
    at = next(one.sequence for one in host.history("A1") if any(step.path == "judge" for step in one.steps))
    assert said(host.debug.preview_fork("A1", at=at)) == (["send"], [])
    assert said(host.debug.preview_fork(f"A1@{at}")) == (["send"], [])


def test_a_wait_that_was_open_is_asked_once_more(host: Host) -> None:
    asking = Flow("asking", [wait.question("sure", kind="yes_no")])
    host.run(asking, {}, run_id="A1")
    told = host.debug.preview_fork("A1")
    assert (told.asks, told.starts) == (("sure",), ("sure",))


def test_values_inside_a_flow_under_way_are_named_as_in_a_fork(host: Host) -> None:
    inner = Flow("inner", [draft, wait.question("sure", kind="yes_no"), judge])
    host.run(Flow("outer", [inner.as_node(name="rag")]), {"topic": "tea"}, run_id="A1")
    told = host.debug.preview_fork("A1/rag", state=["rough"])
    assert told == host.debug.preview_fork("A1", state=["rag/rough"])
    assert "rag/sure" in told.starts


def test_gates_whose_choice_is_still_to_be_acted_on_choose_again(host: Host) -> None:
    @ifelse(when_true="send_back", when_false=END)
    def is_poor(score: int) -> bool:
        return score < 100

    @node
    def send_back(rough: str) -> None: ...

    choosing = Flow("choosing", [draft, judge, is_poor, send_back], durability="strong")
    host.run(choosing, {"topic": "tea"}, run_id="A1")
    at = next(one.sequence for one in host.history("A1") if any(step.path == "is_poor" for step in one.steps))
    assert said(host.debug.preview_fork("A1", at=at)) == (["send_back"], [])
    assert said(host.debug.preview_fork("A1", at=at, choose_again=True)) == (["is_poor"], ["is_poor"])


def test_what_the_flow_does_not_have_is_refused_as_in_a_fork(host: Host) -> None:
    host.run(flow, {"topic": "tea"}, run_id="A1")
    with pytest.raises(InputError, match="Did you mean 'topic'"):
        host.debug.preview_fork("A1", inputs=["topics"])
    with pytest.raises(BadRequest, match="no value 'nothing'"):
        host.debug.preview_fork("A1", state=["nothing"])
