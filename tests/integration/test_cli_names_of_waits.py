"""How a wait may be named at the shell."""

from __future__ import annotations

import pytest

from everstep import Flow, Host, wait
from everstep.cli.waiting import find_wait
from everstep.errors import BadRequest, WaitNotFound


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


def test_a_node_for_which_nobody_waits_is_said_with_those_that_there_are(host: Host, pages: Flow) -> None:
    host.run(pages, {"pages": []}, run_id="A")
    with pytest.raises(WaitNotFound, match="'A' does not wait for 'sleep'"):
        find_wait(host, "A/sleep")
    with pytest.raises(WaitNotFound, match="there is no wait 'B/nap'"):
        find_wait(host, "B/nap")
