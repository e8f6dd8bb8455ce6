"""A saga of more than ten steps, and a world that remembers what was done to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from everstep import Context, Flow, Host, Retry, Status, ifelse, node
from everstep.registry import Opened
from everstep.results import RunResult
from everstep.stores.memory.store import MemoryData, MemoryStore
from everstep.testing import ManualClock, killing
from everstep.testing.killing import Crashed, Killer, crash

RUN = "run"
AT_ONCE = Retry(2, first=0, jitter=0)


class Effect(NamedTuple):
    name: str
    given: tuple[Any, ...]
    key: str


class Outside:
    """What lasts of a run outside its store, whichever processes die."""

    def __init__(self) -> None:
        self.done: dict[str, Effect] = {}
        """By key, as what is called knows an effect again; in the order in which they came first."""
        self.undone: dict[str, Effect] = {}
        self.calls: list[Effect] = []
        self.failures = 0
        """How often the undo has failed that fails twice."""

    def do(self, name: str, key: str, *given: Any) -> None:
        self._keep(self.done, Effect(name, given, key))

    def undo(self, name: str, key: str, *given: Any) -> None:
        self._keep(self.undone, Effect(name, given, key))

    def _keep(self, kept: dict[str, Effect], effect: Effect) -> None:
        self.calls.append(effect)
        known = kept.setdefault(effect.key, effect)
        assert known == effect, f"the key of {known} came with {effect}"

    def shown(self, effects: dict[str, Effect]) -> list[tuple[Any, ...]]:
        return [(effect.name, *effect.given) for effect in effects.values()]


def saga(outside: Outside, *, fails: bool = True) -> Flow:
    """Return a flow with a loop, two maps, two subflows and an undo that fails twice."""
    done, undone = outside.do, outside.undo

    def cancel_order(order: str, number: int, idempotency_key: str) -> None:
        undone("order", idempotency_key, order, number)

    @node(output="number", undo=cancel_order)
    def take_order(order: str, ctx: Context) -> int:
        done("order", ctx.idempotency_key, order, 7)
        return 7

    def unbook(n: int, booked: int, idempotency_key: str) -> None:
        undone("book", idempotency_key, n, booked)

    @node(output="booked", undo=unbook)
    def book(n: int, number: int, ctx: Context) -> int:
        done("book", ctx.idempotency_key, n, n * 10)
        return n * 10

    @node(output="n")
    def count(booked: int) -> int:
        return booked // 10 + 1

    @ifelse(when_true="book", when_false="list_parts")
    def is_more(n: int) -> bool:
        return n < 4

    @node(output="parts")
    def list_parts(n: int) -> list[str]:
        return ["a", "b", "c"]

    @node(retry=AT_ONCE)
    def unpack(part: str, box: str, idempotency_key: str) -> None:
        if part == "b" and outside.failures < 2:
            outside.failures += 1
            raise ConnectionError("the packers are at lunch")
        undone("pack", idempotency_key, part, box)

    @node(output="box", undo=unpack)
    def pack(part: str, ctx: Context) -> str:
        done("pack", ctx.idempotency_key, part, f"box of {part}")
        return f"box of {part}"

    def unlabel(label: str, idempotency_key: str) -> None:
        undone("label", idempotency_key, label)

    @node(output="label", undo=unlabel)
    def print_label(number: int, ctx: Context) -> str:
        done("label", ctx.idempotency_key, f"label {number}")
        return f"label {number}"

    async def call_back(label: str, truck: str, idempotency_key: str) -> None:
        undone("send", idempotency_key, label, truck)

    @node(output="truck", undo=call_back)
    async def send(label: str, ctx: Context) -> str:
        done("send", ctx.idempotency_key, label, "truck 3")
        return "truck 3"

    def cancel_policy(number: int, policy: str, idempotency_key: str) -> None:
        undone("insure", idempotency_key, number, policy)

    def uncover(policy: str) -> None:
        raise AssertionError("its flow is undone in its place")

    @node(output="policy", undo=uncover)
    def cover(number: int, ctx: Context) -> str:
        done("insure", ctx.idempotency_key, number, f"policy {number}")
        return f"policy {number}"

    def unring(guest: str, bell: str, idempotency_key: str) -> None:
        undone("ring", idempotency_key, guest, bell)

    @node(output="bell", undo=unring)
    def ring(guest: str, ctx: Context) -> str:
        done("ring", ctx.idempotency_key, guest, f"ding {guest}")
        return f"ding {guest}"

    @node(output="greeting")
    def greet(bell: str) -> str:
        if bell.endswith("rude"):
            raise ValueError("not at home")
        return f"hello {bell}"

    @node(output="thanks")
    def thank(truck: str, policy: str, greeting: list[Any], box: list[str]) -> str:
        if fails:
            raise RuntimeError("the printer is out of paper")
        return "thanks"

    visit = Flow("visit", [ring, greet]).as_node().map_over("guest", on_error="collect", max_concurrency=1)
    return Flow(
        "saga",
        [
            take_order,
            book,
            count,
            is_more,
            list_parts,
            pack.with_inputs(part="parts").map_over("part", max_concurrency=1),
            Flow("delivery", [print_label, send]).as_node().lift("truck"),
            Flow("insurance", [cover]).as_node(undo=cancel_policy),
            visit.with_inputs(guest="guests"),
            thank,
        ],
        entry="book",
        max_concurrency=1,
    )


INPUTS = {"order": "chairs", "n": 1, "guests": ["kind", "rude"]}


class Life:
    """A run in one process after the other, over a store that outlives them."""

    def __init__(self, flow: Callable[[Outside], Flow] = saga) -> None:
        self.outside = Outside()
        self.flow = flow(self.outside)
        self.data, self.clock = MemoryData(), ManualClock(auto=True)

    def host(self, killer: Killer | None = None) -> Host:
        store = Opened(MemoryStore(self.clock, self.data), None, "memory:")
        return Host(store if killer is None else killing(store, by=killer), clock=self.clock)

    def live(self, killer: Killer | None = None) -> RunResult | None:
        """Begin the run, or go on with it, until it ends or waits; none if the process died."""
        try:
            with self.host(killer) as host:
                return host.run(self.flow, INPUTS, run_id=RUN)
        except Crashed:
            self.clock.advance(timedelta(minutes=5))  # the lease of the dead
            return None

    def expected(self) -> list[str]:
        """Return the keys of what is to be undone, in reverse order of the chain."""
        with self.host() as host:
            steps = [step for record in host.history(RUN) for step in record.steps]
        completed = [step for step in steps if step.undo is not None and step.status is Status.COMPLETED]
        by_name = {effect.name: key for key, effect in self.outside.done.items()}
        keys = [by_name["insure"] if step.path == "insurance" else step.key for step in completed]
        inside = {step.key for step in completed if step.path.startswith("insurance/")}
        if any(step.path == "insurance" for step in completed):
            last = {key: k for k, key in enumerate(keys)}
            keys = [key for k, key in enumerate(keys) if last[key] == k or key not in inside]
        return [key for key in reversed(keys) if key is not None]

    def check(self, result: RunResult, status: Status = Status.FAILED) -> None:
        """Raise unless all that was done is undone, once by key and in reverse."""
        outside = self.outside
        assert result.status is status
        effects = [outside.done[key] for key in self.expected()]
        assert [(e.name, e.given) for e in outside.undone.values()] == [(e.name, e.given) for e in effects]
        assert len(effects) == len(outside.done)
        with self.host() as host:
            assert all(found.is_sound for found in host.storage.verify(RUN))
            last = host.history(RUN)[-1]
        assert not effects or (last.metadata is not None and last.metadata["undo"] == "complete")


__all__ = ["INPUTS", "RUN", "Crashed", "Killer", "Life", "Outside", "crash", "saga"]
