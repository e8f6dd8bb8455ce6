"""The backend that needs nothing: what it answers, and how it is told to answer otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep.backends import Simulation
from everstep.errors import BadRequest, OutputError
from everstep.frontends.pipelines.outcome import Outcome, StageStatus
from everstep.frontends.pipelines.stage import Stage


def ask(backend: Simulation, **fields: Any) -> Outcome:
    return asyncio.run(backend(Stage(**{"node": "plan", "kind": "task", **fields})))


def test_answer_is_made_of_the_first_words_of_the_prompt() -> None:
    assert ask(Simulation(), prompt="Write  a\nplan.").response == "[simulated] plan: Write a plan."
    assert ask(Simulation(), label="Plan").response == "[simulated] plan: Plan"
    long = ask(Simulation(), prompt="word " * 1_000_000).response
    assert long is not None and long.endswith("word …") and len(long) < 500


def test_it_answers_alike_every_time() -> None:
    assert ask(Simulation(), prompt="Again.") == ask(Simulation(), prompt="Again.")


def test_script_goes_by_visits_and_its_last_answer_stays() -> None:
    backend = Simulation({"plan": [Outcome.fail("no"), "yes", {"status": "retry"}]})
    answers = [ask(backend, visit=visit) for visit in (1, 2, 3, 4)]
    assert [a.status.value for a in answers] == ["fail", "success", "retry", "retry"]
    assert answers[1].response == "yes"
    assert str(ask(backend, node="other").response).startswith("[simulated]")


def test_list_inside_a_script_goes_by_attempts() -> None:
    backend = Simulation({"plan": [["first", "second"], "visit two"]})
    assert ask(backend, attempt=2).response == "second"
    assert ask(backend, visit=2, attempt=2).response == "visit two"


def test_one_answer_is_for_every_visit() -> None:
    assert ask(Simulation({"plan": "always"}), visit=9).response == "always"
    assert ask(Simulation({"plan": None}), visit=9) == Outcome()


@pytest.mark.parametrize("script", [[], [["a"], []]])
def test_empty_script_is_refused(script: Any) -> None:
    with pytest.raises(BadRequest, match="'plan' is empty"):
        Simulation({"plan": script})


def test_script_that_returns_what_is_no_outcome_is_found() -> None:
    with pytest.raises(OutputError, match="'plan'"):
        ask(Simulation({"plan": {"status": "great"}}))


def test_node_may_say_how_it_ends_by_visit_and_attempt() -> None:
    said = {"simulate": "fail, retry/success ,skipped"}
    ended = [
        ask(Simulation(), visit=v, attempt=a, attributes=said)
        for v, a in ((1, 1), (2, 1), (2, 2), (3, 1), (4, 1))
    ]
    assert [e.status.value for e in ended] == ["fail", "retry", "success", "skipped", "skipped"]
    assert ended[0].failure_reason == "[simulated] plan: fail"


def test_node_that_says_what_is_no_status_fails_for_good() -> None:
    ended = ask(Simulation(), attributes={"simulate": "explode"})
    assert ended.status is StageStatus.FAIL and "'explode' is no status" in ended.failure_reason
    assert ended.error is not None and ended.error.retryable is False
