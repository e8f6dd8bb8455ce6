"""Playing a flow that waits: given answers, and time that passes by itself. Apart from the clock that it
moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from everstep.client.sync import Host
from everstep.client.views import RunResult, WaitInfo
from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.graph.compile.plan import Plan
from everstep.model.address import plain_of, unvisited
from everstep.model.enums import Status
from everstep.model.waits import EVENT_KIND, WaitStatus
from everstep.ports.system import Clock
from everstep.testing.clock import ManualClock


class _Unanswered:
    def __repr__(self) -> str:
        return "UNANSWERED"


UNANSWERED: Final = _Unanswered()
"""Stands among answers for one that is not given: the time of that wait passes instead."""


def play(
    host: Host,
    flow: Flow,
    inputs: Mapping[str, Any] | None = None,
    *,
    answers: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    channel: Mapping[str, Any] | None = None,
) -> RunResult:
    """Run a flow to its end, answering what it asks; where no answer is given, the next due time comes.

    `answers` has an answer for each node that waits, by its name or its path: a list gives one after the
    other, a function is given the `WaitInfo`. An approval that counts votes is answered until it is decided,
    in the name of the next who may vote where an answer has no name; to a node that waits for a signal or an
    event, the answer is sent or published. Time passes at once: a `ManualClock` is
    moved, another clock is not waited for. A run that waits for ever is returned as it halted.
    """
    if not isinstance(host, Host):
        raise BadRequest(
            f"play needs a Host, and got {type(host).__name__}.",
            fix="Open a Host on the same store; it runs async nodes, too.",
        )
    script = _Script(flow, answers or {})
    with _passing(host.clock):
        result = host.run(flow, inputs, run_id=run_id, channel=channel)
    while result.status is Status.HALTED:
        waits = [wait for wait in result.waits if wait.status is WaitStatus.OPEN]
        given = [(wait, script.answer_to(wait)) for wait in waits]
        answered = [(wait, answer) for wait, answer in given if answer is not UNANSWERED]
        for wait, answer in answered:
            script.vote(host, wait, answer)
        if not answered and waits and not _let_time_pass(host, waits):
            break
        with _passing(host.clock):
            result = host.resume(result.run_id, flow)
    return result


@contextmanager
def _passing(clock: Clock) -> Iterator[None]:
    """Let pauses pass at once, such as those before retries."""
    if not isinstance(clock, ManualClock):
        yield
        return
    was_auto, clock.auto = clock.auto, True
    try:
        yield
    finally:
        clock.auto = was_auto


class _Script:
    """What is answered to whom."""

    def __init__(self, flow: Flow, answers: Mapping[str, Any]) -> None:
        known = set(_halting(flow.plan))
        for name in answers:
            if plain_of(name).rpartition("/")[2] not in known:
                raise BadRequest(
                    f"no node {name!r} of flow {flow.name!r} waits.",
                    fix=f"There is {', '.join(sorted(known)) or 'none that does'}.",
                )
        self._answers = {name: list(a) if isinstance(a, list) else a for name, a in answers.items()}
        self._heard: set[str] = set()

    def answer_to(self, wait: WaitInfo) -> Any:
        """Return the next answer to this node; a wait that was not answered once is not asked again."""
        if wait.id in self._heard:
            return UNANSWERED
        self._heard.add(wait.id)
        place = plain_of(wait.node)
        for name in (wait.node, unvisited(wait.node), place, place.rpartition("/")[2]):
            if name in self._answers:
                answer = self._answers[name]
                if isinstance(answer, list):
                    answer = answer.pop(0) if answer else UNANSWERED
                return answer(wait) if callable(answer) else answer
        return UNANSWERED

    def vote(self, host: Host, wait: WaitInfo, answer: Any) -> None:
        """Answer a wait; one that keeps count of who says what is answered until it is decided."""
        while True:
            now = say(host, wait, answer)
            if now is None or now.status is not WaitStatus.OPEN:
                return
            self._heard.discard(wait.id)
            following = self.answer_to(now)
            is_said = following is answer and isinstance(answer, Mapping) and answer.get("approver")
            if following is UNANSWERED or is_said:
                return
            wait, answer = now, following


def say(host: Host, wait: WaitInfo, answer: Any) -> WaitInfo | None:
    """Answer a wait, or send or publish what it listens for; twice is as good as once."""
    if not wait.listens_for:
        return host.answer(wait.id, answer, by=voter_of(wait, answer))
    said = f"{wait.run_id} {wait.node} {wait.visit}"
    if wait.kind == EVENT_KIND:
        host.publish(wait.listens_for, answer, id=said)
    else:
        host.send(wait.run_id, wait.listens_for, answer, id=said)
    return None


def voter_of(wait: WaitInfo, answer: Any) -> str | None:
    """Return in whose name an answer is given that says none, to an approval that keeps count of names."""
    if wait.voting is None or (isinstance(answer, Mapping) and answer.get("approver")):
        return None
    if wait.voting.left is None:
        return f"voter {len(wait.voting.votes) + 1}"
    return next(iter(wait.voting.left), None)


def _halting(plan: Plan) -> Iterator[str]:
    """Yield the names of all nodes that may wait, those of inner flows too."""
    for i, node in enumerate(plan.nodes):
        if node.halts:
            yield plan.paths[i]
        child = plan.children.get(i)
        if child is not None:
            yield from _halting(child.plan)


def _let_time_pass(host: Host, waits: list[WaitInfo]) -> bool:
    """Let the next due time come; false if there is none."""
    timed = [(wait.due_at, wait.id) for wait in waits if wait.due_at is not None]
    if not timed:
        return False
    due_at, wait_id = min(timed)
    clock = host.clock
    if isinstance(clock, ManualClock):
        clock.advance(max(due_at - clock.now(), timedelta(0)))
    host.waiting.fire(wait_id)
    return True
