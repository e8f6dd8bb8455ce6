"""Random bodies of sync nodes: durable calls in a row, again, and on threads of the node's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from everstep import Context, Flow, node
from everstep.graph.author.context import Leave
from everstep.steps import step
from everstep.testing.simulation.hub import current_thread
from everstep.testing.simulation.process import SimProcess
from tests.simulation.bodies.parts import AGAIN, NOTES, Calls, Part, Tripped, let_pass


class Body:
    """One life of a body."""

    def __init__(self, ctx: Context, wrong: list[str]) -> None:
        self.ctx = ctx
        self._calls = Calls(ctx, wrong)
        self.threads = 0
        """Of its own, that are under way."""

    def do(self, part: Part) -> Any:
        if part.parts:
            return WAYS[part.kind](self, part)
        leaf: Callable[[Part], Any] = getattr(self, f"_{part.kind}")
        return leaf(part)

    def outcome(self, part: Part) -> str:
        """Do a part, and say what came of it."""
        try:
            return str(self.do(part))
        except Tripped:
            raise
        except Exception as error:
            return type(error).__name__

    def choose(self, part: Part, what: object) -> None:
        """Note durably which way is gone."""
        self.ctx.step(f"chose{part.number}", str, f"{what}", key=f"{what}")

    def _call(self, part: Part) -> str:
        def call(what: str) -> str:
            let_pass(part.seconds)
            if part.error is not None:
                raise part.error(what)
            return what

        return self._calls.own(part, self._calls.ask(part, call))

    def _helper(self, part: Part) -> str:
        @step(name=f"h{part.number}")
        def helper(what: str) -> str:
            return what

        return self._calls.own(part, helper(f"{part.number}"))

    def _chance(self, part: Part) -> None:
        if self.threads:  # two that ask at once have no order that stays
            return
        self.ctx.step(f"u{part.number}", list, self._calls.drawn())

    def _ask(self, part: Part) -> str:
        return self._calls.own(part, self._calls.wait(part))

    _signal = _ask

    def _sleep(self, part: Part) -> str:
        return self._calls.own(part, self.ctx.sleep(2))

    def _inbox(self, part: Part) -> str:
        return self._calls.noted(self.ctx.inbox(NOTES))

    def _trip(self, part: Part) -> None:
        self._calls.trip()


def in_turn(body: Body, part: Part) -> Any:
    return [body.outcome(one) for one in part.parts]


def until_one_fails(body: Body, part: Part) -> Any:
    try:
        return [body.do(one) for one in part.parts]
    except Tripped:
        raise
    except Exception as error:
        body.choose(part, type(error).__name__)
        raise


def in_rounds(body: Body, part: Part) -> Any:
    found = []
    for number in range(2):
        found.append([body.outcome(one) for one in part.parts])
        body.choose(part, number)
    return found


def on_threads(body: Body, part: Part) -> Any:
    """Do parts at once. Threads have no order that stays, so nothing follows from it."""
    thread = current_thread()
    assert thread is not None and isinstance(thread.owner, SimProcess)
    found: dict[int, str] = {}
    raised: list[BaseException] = []

    def work(inner: Part) -> None:
        try:
            found[inner.number] = body.outcome(inner)
        except (Leave, Exception) as error:
            raised.append(error)

    threads = [
        thread.owner.system.spawn(partial(work, inner), f"part-{inner.number}") for inner in part.parts
    ]
    body.threads += len(threads)
    for one in threads:
        one.join()
    body.threads -= len(threads)
    if raised:
        raise raised[0]
    body.choose(part, sorted(found.items()))
    return sorted(found.items())


WAYS: dict[str, Callable[[Body, Part], Any]] = {
    way.__name__: way for way in (in_turn, until_one_fails, in_rounds, on_threads)
}


def flow_of(part: Part, wrong: list[str]) -> Flow:
    @node(output="came_to", halts=True, retry=AGAIN)
    def agent(x: int, ctx: Context) -> str:
        return str(Body(ctx, wrong).do(part))

    return Flow("agents", [agent])
