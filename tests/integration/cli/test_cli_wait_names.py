"""How a wait may be named at the shell."""

from __future__ import annotations

import pytest

from everstep import Flow, Host, wait
from everstep.cli.view.waits import find_wait
from everstep.errors import BadRequest, WaitNotFound, WaitSettled


@pytest.fixture
def pages() -> Flow:
    review = Flow("review", [wait.question("fine", context="page")])
    each = review.as_node().map_over("page").with_inputs(page="pages").with_outputs(fine="verdicts")
    return Flow("pages", [each, wait.timer("nap", duration="1d")])


def test_a_node_of_a_run_that_waits_for_more_can_be_named(host: Host, pages: Flow) -> None:
    host.run(pages, {"pages": ["a", "b"]}, run_id="A")
    assert find_wait(host, "A/nap").kind == "timer"
    assert find_wait(host, "A/review#1/fine").context == "b"
    with pytest.raises(BadRequest, match="'A/review/fine' may mean 2 waits"):
        find_wait(host, "A/review/fine")
    with pytest.raises(BadRequest, match="'A' may mean 3 waits"):
        find_wait(host, "A")


def test_a_node_that_does_not_wait_is_said_with_those_that_there_are(host: Host, pages: Flow) -> None:
    host.run(pages, {"pages": []}, run_id="A")
    with pytest.raises(WaitNotFound, match="'A' does not wait for 'sleep'"):
        find_wait(host, "A/sleep")
    with pytest.raises(WaitNotFound, match="there is no wait 'B/nap'"):
        find_wait(host, "B/nap")


def test_a_node_that_was_answered_is_found_while_its_run_waits_for_more(host: Host, pages: Flow) -> None:
    host.run(pages, {"pages": ["a", "b"]}, run_id="A")
    host.answer(find_wait(host, "A/review#1/fine").id, True, by="ann")
    answered = find_wait(host, "A/review#1/fine")
    with pytest.raises(WaitSettled, match="was settled by an answer of 'ann' at") as caught:
        host.answer(answered.id, False)
    assert caught.value.fix.startswith("What came first counts.")
    assert find_wait(host, "A/review/fine").context == "a"


def test_an_answer_to_the_id_of_a_run_points_to_its_waits(host: Host) -> None:
    host.run(Flow("ask", [wait.approval("approve")]), run_id="A")
    with pytest.raises(WaitNotFound) as caught:
        host.answer("A", {"approved": True})
    assert caught.value.fix == "'A' is a run: answer one of host.waits('A'), by its id."


def test_a_run_that_waits_no_more_says_what_became_of_its_wait(host: Host) -> None:
    flow = Flow("ask", [wait.approval("approve")])
    host.run(flow, run_id="A")
    host.answer(find_wait(host, "A").id, {"approved": True}, by="ann", comment="fine")
    host.resume("A", flow)
    with pytest.raises(WaitNotFound) as caught:
        find_wait(host, "A")
    assert caught.value.message == (
        "run 'A' waits for nothing. Its newest wait, approve, is over: approved by ann: fine."
    )
    assert caught.value.fix == "See all it waited for with: everstep waits A --status all"
