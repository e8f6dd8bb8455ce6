"""The work that has budgets: the flows of the benchmarks, on hosts whose clock stands still.

By that clock no put is slow and no lease is due, so a busy machine does what a quiet one does. A work is
given a URL and a size, and yields a call that does it; the call is made several times, and may end what is
being measured before it returns.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import apsw

from everstep import END, AsyncContext, AsyncHost, Context, Durability, Flow, Host, Node, Retry, ifelse, node
from everstep.steps import MARKS
from everstep.testing import ManualClock

BEFORE_EFFECTS = Durability("strong", flush="before_effects")
STEPS_A_RUN = 5
TIMES = 3
"""How often a work is done at most: once to warm up, and once for each meter that counts alone."""
DIED = 9
Stop = Callable[[], None]
Go = Callable[[Stop], object]


class Work(NamedTuple):
    """A piece of work, and what its cost is counted in."""

    begin: Callable[[str, int], AbstractContextManager[Go]]
    n: int
    """Its cost is the difference between the sizes 2n and n, over n; so what is paid once falls out."""
    unit: str
    is_whole: bool = False
    """True if it is counted as it is, at size n."""


@node(output="out")
def step(previous: Any) -> dict[str, Any]:
    return {"ok": True, "i": 1, "s": "hello"}


@node(output="out", name="step")
async def async_step(previous: Any) -> dict[str, Any]:
    return {"ok": True, "i": 1, "s": "hello"}


@node(output="out", effects="effectful", idempotency_key="auto", retry=3)
def effect(previous: Any, ctx: Context) -> str | None:
    return ctx.idempotency_key


@node(output="out", effects="effectful", idempotency_key="auto", retry=Retry(1, first=0))
def fails_once(previous: Any, ctx: Context) -> str | None:
    if ctx.attempt == 1:
        raise ConnectionError
    return ctx.idempotency_key


@node(output="out", effects="effectful", idempotency_key="auto", on_unknown="stop")
def announced(previous: Any) -> int:
    return 1


def look_up(n: int) -> dict[str, Any]:
    return {"ok": True, "i": n, "s": "hello"}


async def look_up_soon(n: int) -> dict[str, Any]:
    return look_up(n)


async def look_up_beside(n: int) -> dict[str, Any]:
    await asyncio.sleep(0)  # as all of them are under way then
    return look_up(n)


@node(output="out")
def agent(n: int, ctx: Context) -> int:
    for k in range(n):
        ctx.step("look", look_up, k)
    return n


@node(output="out", name="agent")
async def async_agent(n: int, ctx: AsyncContext) -> int:
    for k in range(n):
        await ctx.step("look", look_up_soon, k)
    return n


@node(output="out", name="agent")
async def agent_at_once(n: int, ctx: AsyncContext) -> int:
    await asyncio.gather(*(ctx.step("look", look_up_beside, k, key=k) for k in range(n)))
    return n


@contextmanager
def calls(url: str, n: int, of: Node = agent) -> Iterator[Go]:
    """Durable calls of one node, each committed; those that are made at once share commits."""
    flow = Flow("calls", [of], durability="strong")
    with Host(url, clock=ManualClock()) as host:
        yield lambda _: host.run(flow, {"n": n}).raise_for_status()


def ending(by: Stop, of: Node) -> Flow:
    """Return the same flow with a node that does something before it returns."""

    def sync(n: int, ctx: Context) -> int:
        found: int = of.fn(n, ctx)
        by()
        return found

    async def soon(n: int, ctx: AsyncContext) -> int:
        found: int = await of.fn(n, ctx)
        by()
        return found

    return Flow("calls", [node(output="out", name="agent")(soon if of.is_async else sync)])


@contextmanager
def replayed(url: str, n: int, of: Node = agent) -> Iterator[Go]:
    """From opening a store to the end of the calls of a node whose process died when it had made them."""
    runs = [f"run-{k}" for k in range(TIMES)]
    for run_id in runs:
        _in_a_process(partial(_make_and_die, url, n, run_id, of))
    left = iter(runs)

    def go(stop: Stop) -> None:
        with Host(url, clock=ManualClock()) as host:
            host.run(ending(stop, of), run_id=next(left)).raise_for_status()

    yield go


def _make_and_die(url: str, n: int, run_id: str, of: Node) -> None:
    with Host(url, clock=ManualClock()) as host:
        host.run(ending(partial(os._exit, DIED), of), {"n": n}, run_id=run_id)


def chain(n: int, each: Node = step) -> Flow:
    """Return n nodes in a row, each of which reads what the one before it wrote."""

    def link(k: int) -> Node:
        return each.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}")

    return Flow("chain", [link(k) for k in range(n)], durability="strong", max_steps=n + 10)


@contextmanager
def w1(url: str, n: int, each: Node = step) -> Iterator[Go]:
    """A chain, each step committed, in a flow that the host knows."""
    flow = chain(n, each)
    with Host(url, clock=ManualClock()) as host:
        yield lambda _: host.run(flow, {"v0": 0}).raise_for_status()


@contextmanager
def w1_with_helpers(url: str, n: int) -> Iterator[Go]:
    """The same in a program that has loaded `@step` and `current`, by nodes that use neither."""
    before, Context.marks = Context.marks, MARKS
    try:
        with w1(url, n) as go:
            yield go
    finally:
        Context.marks = before


@contextmanager
def w1_first(url: str, n: int) -> Iterator[Go]:
    """The same, each time in a flow that the host has not seen."""
    flows = iter([chain(n) for _ in range(TIMES)])
    with Host(url, clock=ManualClock()) as host:
        yield lambda _: host.run(next(flows), {"v0": 0}).raise_for_status()


@node(output=("messages", "i"))
def append(messages: list[Any], i: int) -> tuple[list[Any], int]:
    messages.append({"role": "user", "i": i, "content": f"{i:08d}" + "m" * 1000})
    return messages, i + 1


@ifelse(when_true="append", when_false=END, effects="pure")
def more(i: int, n: int) -> bool:
    return i < n


@contextmanager
def w2(url: str, n: int) -> Iterator[Go]:
    """A list that a message is appended to in each step; the gate's decision rides with the next."""
    flow = Flow("messages", [append, more], entry="append", durability=BEFORE_EFFECTS, max_steps=3 * n + 10)
    with Host(url, clock=ManualClock()) as host:
        yield lambda _: host.run(flow, {"messages": [], "i": 0, "n": n}).raise_for_status()


@contextmanager
def w3(url: str, n: int) -> Iterator[Go]:
    """Short runs, one after the other."""
    flow = chain(STEPS_A_RUN)
    with Host(url, clock=ManualClock()) as host:
        yield lambda _: [host.run(flow, {"v0": 0}).raise_for_status() for _ in range(n)]


@contextmanager
def driven(url: str, work: Callable[[AsyncHost], Any]) -> Iterator[Go]:
    """Open an async host on a loop of its own, and yield a call that does some work with it."""
    with asyncio.Runner() as runner:

        async def open_host() -> AsyncHost:
            return AsyncHost(url, clock=ManualClock())

        host = runner.run(open_host())
        try:
            yield lambda _: runner.run(work(host))
        finally:
            runner.run(host.close())


@contextmanager
def w3_at_once(url: str, n: int) -> Iterator[Go]:
    """Short runs, all at once."""
    flow = chain(STEPS_A_RUN, async_step)

    async def work(host: AsyncHost) -> None:
        for result in await asyncio.gather(*(host.run(flow, {"v0": 0}) for _ in range(n))):
            result.raise_for_status()

    with driven(url, work) as go:
        yield go


@contextmanager
def claimed(url: str, n: int) -> Iterator[Go]:
    """Runs of one step that were accepted, claimed one by one and driven by a worker."""
    flow = chain(1, async_step)

    async def work(host: AsyncHost) -> None:
        for _ in range(n):
            await host.start(flow, {"v0": 0})
        done = await host.work([flow], concurrency=1, until_idle=True)
        assert done.completed == n, done

    with driven(url, work) as go:
        yield go


@ifelse(when_true="count", when_false=END, name="more")
def goes_on(i: int, n: int) -> bool:
    return i < n


def counting(n: int, function: Callable[[int], int]) -> Flow:
    count = node(output="i", name="count")(function)
    return Flow("loop", [count, goes_on], entry="count", durability="strong", max_steps=3 * n + 10)


class Reached(BaseException):
    """A run has come to its first call."""


@contextmanager
def w4(url: str, n: int) -> Iterator[Go]:
    """From opening a store to the first call of a run whose process died inside its n-th step."""
    runs = iter([_left_by_a_dead_process(url, n, f"run-{k}") for k in range(TIMES)])

    def go(stop: Stop) -> None:
        def first(i: int) -> int:
            stop()
            assert i == n - 1
            raise Reached

        with Host(url, clock=ManualClock()) as host, suppress(Reached):
            host.run(counting(n, first), run_id=next(runs))

    yield go


def _left_by_a_dead_process(url: str, n: int, run_id: str) -> str:
    def dying(i: int) -> int:
        if i == n - 1:
            os._exit(DIED)
        return i + 1

    def drive() -> None:
        with Host(url, clock=ManualClock()) as host:
            host.run(counting(n, dying), {"i": 0, "n": n}, run_id=run_id)

    _in_a_process(drive)
    return run_id


def _in_a_process(work: Callable[[], object]) -> None:
    """Do what ends its process, in a fork of this one."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == DIED


@contextmanager
def w5(url: str, n: int) -> Iterator[Go]:
    """Branches side by side, and a join."""

    @node(output="out")
    async def branch(seed: int) -> dict[str, Any]:
        return {"ok": True, "i": seed, "s": "hello"}

    @node(output="total", inputs=[f"r{k}" for k in range(n)])
    def join(**results: Any) -> int:
        return len(results)

    branches = [branch.with_name(f"b{k}").with_outputs(f"r{k}") for k in range(n)]
    flow = Flow("fan", [*branches, join], durability="strong")
    with Host(url, clock=ManualClock()) as host:
        yield lambda _: host.run(flow, {"seed": 1}).raise_for_status()


@contextmanager
def mapped(url: str, n: int) -> Iterator[Go]:
    """Items of a map side by side, each of them a step of its own."""
    flow = Flow("map", [async_step.map_over("previous")], durability="strong", max_steps=n + 10)
    with Host(url, clock=ManualClock()) as host:
        yield lambda _: host.run(flow, {"previous": [0] * n}).raise_for_status()


@contextmanager
def inner(url: str, n: int) -> Iterator[Go]:
    """Visits to flows of one step inside a flow, one after the other."""
    inside = Flow("inside", [step]).as_node().lift("out")

    def link(k: int) -> Node:
        return inside.with_name(f"f{k}").with_inputs(previous=f"v{k}").with_outputs(out=f"v{k + 1}")

    flow = Flow("around", [link(k) for k in range(n)], durability="strong", max_steps=3 * n + 10)
    with Host(url, clock=ManualClock()) as host:
        yield lambda _: host.run(flow, {"v0": 0}).raise_for_status()


def bytes_of(folder: Path, flow: Flow, inputs: dict[str, Any], n: int) -> float:
    """Return how many bytes a SQLite file has for each of n steps of a run, all that is in it counted."""
    file = folder / f"{flow.name}-bytes.db"
    # By a clock that stands still some fields would be shorter.
    with Host(f"sqlite:///{quote(str(file))}?synchronous=off") as host:
        host.run(flow, inputs).raise_for_status()
    with closing(apsw.Connection(str(file))) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return file.stat().st_size / n


WORKS = {
    "w1": Work(w1, 200, "step"),
    "w1 with helpers": Work(w1_with_helpers, 200, "step"),
    "w1 first": Work(w1_first, 200, "step"),
    "w2": Work(w2, 100, "step"),
    "w3": Work(w3, 20, "run"),
    "w3 at once": Work(w3_at_once, 50, "run"),
    "w4": Work(w4, 301, "resume", is_whole=True),
    "w5": Work(w5, 100, "branch"),
    "claimed": Work(claimed, 10, "run"),
    "map": Work(mapped, 100, "item"),
    "inner": Work(inner, 50, "visit"),
    "effect": Work(partial(w1, each=effect), 50, "step"),
    "retry": Work(partial(w1, each=fails_once), 50, "step"),
    "announced": Work(partial(w1, each=announced), 50, "step"),
    "calls": Work(calls, 50, "call"),
    "async calls": Work(partial(calls, of=async_agent), 50, "call"),
    "calls at once": Work(partial(calls, of=agent_at_once), 50, "call"),
    "replayed calls": Work(replayed, 200, "call"),
    "replayed async calls": Work(partial(replayed, of=async_agent), 200, "call"),
}
