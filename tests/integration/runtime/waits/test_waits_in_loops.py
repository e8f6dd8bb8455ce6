"""Loops of waits that are over, or answered, the moment they are opened."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from everstep import END, Flow, Host, node, route, wait
from everstep.codec.values import Values
from everstep.errors import ValueNotStorable
from everstep.testing.clock import ManualClock

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
ROUNDS = {"memory": 10_000, "sqlite": 10_000, "postgres": 10_000, "redis": 10_000, "s3": 300, "file": 300}
"""How often such loops go round where there is time for it."""


@node(output="count")
def plan(count: int) -> int:
    return count + 1


def loop(asked: Any, rounds: int) -> Flow:
    @route("plan", END)
    def more(count: int) -> str:
        return "plan" if count < rounds else END

    return Flow("f", [plan >> asked >> more], entry="plan", max_steps=10**6, max_visits=10**6)


@pytest.fixture(params=["sqlite", "memory", "file", "postgres", "redis", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, int]:
    """A store, and how many rounds a loop makes there: by far more than the stack of Python would take."""
    name = request.param
    if not IS_SOAK and name != "memory":
        pytest.skip("only with EVERSTEP_SOAK=1")
    urls = {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path}/runs.db",
        "file": f"file://{tmp_path}/runs",
    }
    url = urls.get(name) or str(request.getfixturevalue(f"{name}_url"))
    return url, ROUNDS[name] if IS_SOAK else 350


def test_a_loop_of_timers_that_are_due_goes_round_as_often_as_it_has_to(place: tuple[str, int]) -> None:
    url, rounds = place
    flow = loop(wait.timer("tick", until="2020-01-01T00:00:00Z"), rounds)
    with Host(url) as host:
        result = host.run(flow, {"count": 0}, run_id="r")
        assert (result.status, result["count"]) == ("completed", rounds)


def test_a_loop_of_questions_that_a_notifier_answers_at_once_goes_round_as_often(
    place: tuple[str, int],
) -> None:
    url, rounds = place
    flow = loop(wait.question("ask", kind="text", notify="me"), rounds)

    def answer(notice: Any) -> None:
        host.answer(notice.wait_id, "yes")

    with Host(url, notifiers={"me": answer}) as host:
        result = host.run(flow, {"count": 0}, run_id="r")
        assert (result.status, result["count"], result.waits) == ("completed", rounds, [])


def test_a_worker_drives_such_a_loop_too() -> None:
    flow = loop(wait.timer("tick", until="2020-01-01T00:00:00Z"), 350)
    with Host("memory:", clock=ManualClock()) as host:
        host.start(flow, {"count": 0}, run_id="r")
        assert host.work([flow], until_idle=True).completed == 1
        assert host.run(flow, run_id="r")["count"] == 350


def test_a_full_stack_is_not_told_as_a_value_that_refers_to_itself() -> None:
    told: list[str] = []
    values, value = Values(), (((((((((({1, 2},),),),),),),),),),)

    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
        else:
            values.encode(value, "tick")

    used = len(_frames())
    for left in range(sys.getrecursionlimit() - used - 1, sys.getrecursionlimit() - used - 80, -1):
        try:
            deeper(left)
        except ValueNotStorable as refused:
            told.append(refused.message)
        except RecursionError:
            pass  # before there was anything to say
    assert told, "the stack was never just full enough"
    assert all("stack" in message and "itself" not in message for message in told)


def _frames() -> list[Any]:
    frame, found = sys._getframe(), []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return found
