"""Durable calls that are under way at the same time: a node goes the same way after a crash."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from everstep import AsyncContext, Context, Flow, Host, Retry, node, wait
from everstep.errors import BadRequest
from everstep.runtime.drive.units.calls import Units
from everstep.testing import ManualClock
from tests.integration.runtime.drive.durable_calls import calls_of, die, error_of
from tests.keyframes import space_keyframes

pytestmark = pytest.mark.stores("sqlite")
FAST, SLOW = 0.01, 0.05
Say = Callable[[str], Awaitable[None]]


class Callee:
    """What is called: it takes some time, and may fail, for good or the first time."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failed: set[str] = set()

    async def look(self, name: str, seconds: float, fails: type[Exception] | None = None) -> str:
        self.calls.append(name)
        await asyncio.sleep(seconds)
        if fails is OSError and name in self.failed:
            return name
        self.failed.add(name)
        if fails is not None:
            raise fails(name)
        return name

    async def write(self, what: str) -> str:
        self.calls.append(what)
        return f"wrote {what}"


async def first_error(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """Go on with whichever fails first, and let the other end, too."""
    one = asyncio.ensure_future(ctx.step("slow", callee.look, "slow", SLOW, ValueError))
    other = asyncio.ensure_future(ctx.step("fast", callee.look, "fast", FAST, KeyError))
    try:
        await asyncio.gather(one, other)
    except Exception as error:
        await say(type(error).__name__)
    await asyncio.wait([one, other])


async def first_error_after_retries(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """One fails soon, and again late; meanwhile another is done."""

    async def twice(name: str) -> None:
        await callee.look(name, SLOW if "again" in callee.calls else 0)
        callee.calls.append("again")
        raise ValueError(name)

    one = asyncio.ensure_future(ctx.step("slow", twice, "slow", retry=Retry(1, first=0)))
    other = asyncio.ensure_future(ctx.step("fast", callee.look, "fast", FAST, KeyError))
    try:
        await asyncio.gather(one, other)
    except Exception as error:
        await say(type(error).__name__)
    await asyncio.wait([one, other])


async def as_they_come(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """See to each result as it comes."""
    asked = {"a": SLOW, "b": FAST, "c": 0.03}
    for found in asyncio.as_completed([ctx.step("look", callee.look, n, s, key=n) for n, s in asked.items()]):
        await say(await found)


async def those_that_are_done(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """See to what is done so far: of two that end in one moment, one is done first."""

    async def both(name: str) -> str:
        return await ctx.step("look", callee.look, name, FAST, key=name) + await ctx.step(
            "look", callee.look, f"{name}2", 0, key=f"{name}2"
        )

    tasks = [asyncio.ensure_future(both(name)) for name in "abc"]
    left = set(tasks)
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        await say("+".join(sorted(task.result() for task in done)))


async def those_that_are_done_together(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """See to what is done first, though another ends in the next moment."""
    first_is_back = asyncio.Event()

    async def second() -> str:
        await first_is_back.wait()
        return await callee.look("second", 0)

    async def one() -> str:
        found = await ctx.step("first", callee.look, "first", FAST)
        first_is_back.set()
        return found

    tasks = [asyncio.ensure_future(one()), asyncio.ensure_future(ctx.step("second", second))]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await say("+".join(sorted(task.result() for task in done)))
    await asyncio.wait(left or tasks)


async def first_error_after_a_pause(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """Between two calls lies something that takes its time, and is not recorded."""

    async def paced() -> None:
        await ctx.step("a", callee.look, "a", 0)
        await asyncio.sleep(FAST)
        await ctx.step("b", callee.look, "b", 0, ValueError)

    tasks = [
        asyncio.ensure_future(paced()),
        asyncio.ensure_future(ctx.step("slow", callee.look, "slow", SLOW, KeyError)),
    ]
    for task in asyncio.as_completed(tasks):
        try:
            await task
        except Exception as error:
            await say(type(error).__name__)


async def a_call_that_was_cut_off(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """Ask again for a call that was cut off as another failed, beside other work."""

    async def fallback() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step("bad", callee.look, "bad", 0, ValueError))
                group.create_task(ctx.step("page", callee.look, "page", SLOW, key="page"))
        except* ValueError:
            pass
        return await ctx.step("page", callee.look, "page", SLOW, key="page")

    await say("+".join(await asyncio.gather(fallback(), ctx.step("other", callee.look, "other", FAST))))


async def deep_inside_others(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """What waits for a call in the innermost of many tasks goes on before the next call comes back."""

    async def inside(depth: int) -> str:
        if not depth:
            return await ctx.step("a", callee.look, "a", FAST)
        [found] = await asyncio.gather(inside(depth - 1))
        return found

    said: list[str] = []

    async def deep() -> None:
        said.append(await inside(6))

    async def flat() -> None:
        said.append(await ctx.step("b", callee.look, "b", SLOW))

    await asyncio.gather(deep(), flat())
    await say("+".join(said))


async def from_a_queue(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """Workers take what is to be done as they come to it."""
    await workers(ctx, callee, say)


async def from_a_queue_after_a_pause(ctx: AsyncContext, callee: Callee, say: Say) -> None:
    """One of them does something else before it calls."""
    await workers(ctx, callee, say, pauses=True)


async def workers(ctx: AsyncContext, callee: Callee, say: Say, *, pauses: bool = False) -> None:
    queue = list("abcde")

    async def worker(number: int) -> None:
        while queue:
            what = queue.pop(0)
            if number and pauses:
                await asyncio.sleep(SLOW)
            await ctx.step("look", callee.look, what, SLOW if what == "b" else FAST, key=what)
            await ctx.step("did", callee.look, f"{number} did {what}", 0, key=f"{number} {what}")

    await asyncio.gather(worker(0), worker(1))
    await say("done")


WAYS = [
    *(deep_inside_others, from_a_queue, from_a_queue_after_a_pause),
    *(first_error, first_error_after_retries, as_they_come, those_that_are_done),
    *(those_that_are_done_together, first_error_after_a_pause, a_call_that_was_cut_off),
]


@pytest.mark.parametrize("way", WAYS)
def test_a_node_goes_the_same_way_whatever_came_first(
    host: Host, way: Callable[[AsyncContext, Callee, Say], Awaitable[None]]
) -> None:
    callee, lives = Callee(), [0]
    said: list[str] = []

    @node(output="said")
    async def agent(ctx: AsyncContext) -> list[str]:
        said.clear()

        async def say(what: str) -> None:
            assert await ctx.step("write", callee.write, what) == f"wrote {what}"
            said.append(what)

        await way(ctx, callee, say)
        lives[0] += 1
        if lives[0] == 1:
            raise KeyboardInterrupt
        return list(said)

    flow = Flow("agents", [agent])
    die(host, flow)
    first, called = list(said), list(callee.calls)
    assert host.resume("r", flow)["said"] == first
    assert callee.calls == called


def test_signals_that_are_taken_beside_calls_come_at_the_same_place_again(host: Host) -> None:
    callee, lives = Callee(), [0]
    seen: list[list[str]] = []

    @node(output="said")
    async def agent(ctx: AsyncContext) -> list[str]:
        lives[0] += 1
        order: list[str] = []

        async def take() -> None:
            for _ in range(10):  # by then the call has ended, and what waits for it has not heard
                await asyncio.sleep(0)
            order.extend(await ctx.inbox("notes"))

        async def call(depth: int) -> None:
            if depth:
                await asyncio.gather(call(depth - 1))
            else:
                await ctx.step("look", callee.look, "look", 0, effects="pure")

        async def called() -> None:
            await call(5)
            order.append("looked")

        await asyncio.gather(called(), take())
        seen.append(order)
        await ctx.step("write", callee.write, " ".join(order))
        if lives[0] == 1:
            raise KeyboardInterrupt
        return order

    flow = Flow("agents", [agent])
    host.start(flow, run_id="r")
    host.send("r", "notes", "note")
    with pytest.raises(KeyboardInterrupt):
        host.resume("r", flow)
    assert host.resume("r", flow)["said"] == seen[0]


def test_what_is_asked_for_no_more_is_not_waited_for(host: Host) -> None:
    callee, names = Callee(), ["a", "b", "c"]

    @node(output="found")
    async def agent(ctx: AsyncContext) -> list[str]:
        found = await asyncio.gather(*(ctx.step("look", callee.look, n, 0, key=n) for n in names))
        if "a" in names:
            raise KeyboardInterrupt
        return found

    flow = Flow("agents", [agent])
    die(host, flow)
    names[:] = ["c", "b", "d"]
    assert host.resume("r", flow)["found"] == ["c", "b", "d"]
    assert sorted(callee.calls) == ["a", "b", "c", "d"]


def test_one_that_was_beside_others_and_is_asked_for_no_more_is_waited_for_a_moment(host: Host) -> None:
    callee, names = Callee(), ["gone", "stays"]

    @node(output="found")
    async def agent(ctx: AsyncContext) -> list[str]:
        asked = (ctx.step("look", callee.look, n, FAST * i, key=n) for i, n in enumerate(names))
        found = await asyncio.gather(*asked)
        if "gone" in names:
            raise KeyboardInterrupt
        return found

    flow = Flow("agents", [agent])
    die(host, flow)
    names[:] = ["stays", "new"]
    began = time.monotonic()
    assert host.resume("r", flow)["found"] == ["stays", "new"]
    assert time.monotonic() - began < 20
    assert sorted(callee.calls) == ["gone", "new", "stays"]


def test_a_call_that_is_quicker_in_a_later_life_does_not_come_before_what_was_first(host: Host) -> None:
    callee, lives = Callee(), [0]

    @node(output="said")
    async def agent(ctx: AsyncContext) -> list[str]:
        lives[0] += 1
        said = []

        async def paced() -> str:
            await ctx.step("a", callee.look, "a", 0)
            await asyncio.sleep(SLOW)
            return await ctx.step("b", callee.look, "b", 0)

        async def slow() -> str:
            await asyncio.sleep(60 if lives[0] == 1 else 0)
            return await callee.look("slow", 0)

        for found in asyncio.as_completed([paced(), ctx.step("slow", slow)]):
            said.append(await ctx.step("write", callee.write, await found))
            if lives[0] == 1:
                raise KeyboardInterrupt
        return said

    flow = Flow("agents", [agent])
    die(host, flow)
    assert host.resume("r", flow)["said"] == ["wrote b", "wrote slow"]
    assert callee.calls == ["a", "b", "b", "slow", "slow"]


def test_a_node_that_is_left_for_a_wait_does_not_wait_for_what_is_asked_for_no_more(url: str) -> None:
    callee, lives, clock = Callee(), [0], ManualClock()

    @node(output="said", halts=True)
    async def agent(ctx: AsyncContext) -> Any:
        lives[0] += 1
        is_there = asyncio.Event()

        async def first() -> None:
            await ctx.step("a", callee.look, "a", 0)
            if lives[0] == 1:
                clock.advance(timedelta(hours=1))
                await ctx.step("gone", callee.look, "gone", 0)
            else:
                await is_there.wait()
                await ctx.wait(wait.signal("go"))

        async def slow() -> None:
            if lives[0] == 1:
                await asyncio.sleep(60)
            is_there.set()

        other = asyncio.ensure_future(ctx.step("slow", slow))
        await first()
        if lives[0] == 1:
            raise KeyboardInterrupt
        await other

    flow = Flow("agents", [agent])
    with Host(url, clock=clock) as host:
        die(host, flow)
        began = time.monotonic()
        assert host.resume("r", flow).status == "halted"
        assert time.monotonic() - began < 20


def test_an_attempt_does_not_wait_long_for_what_an_earlier_one_asked_for(url: str) -> None:
    callee, clock = Callee(), ManualClock(auto=True)

    @node(output="said", retry=1)
    async def agent(ctx: AsyncContext) -> Any:
        found: list[Any] = await asyncio.gather(
            ctx.step("one", callee.look, "one", 0, OSError),
            ctx.step("other", callee.look, "other", 0),
            return_exceptions=True,
        )
        if isinstance(found[0], OSError):
            clock.advance(timedelta(hours=1))
            await ctx.step("instead", callee.look, "instead", 0)
            raise ValueError
        return found[0]

    began = time.monotonic()
    with Host(url, clock=clock) as host:
        assert host.run(Flow("agents", [agent]))["said"] == "one"
    assert time.monotonic() - began < 20
    assert callee.calls == ["one", "other", "instead", "one"]


@pytest.mark.parametrize("cut_off", ["cancel", "group"])
def test_a_call_whose_task_never_came_to_it_may_be_asked_for_again(host: Host, cut_off: str) -> None:
    callee = Callee()

    @node(output="found")
    async def agent(ctx: AsyncContext) -> list[str]:
        if cut_off == "cancel":
            for key in (1, None):
                asyncio.ensure_future(ctx.step("a", callee.look, "a", 0, key=key)).cancel()
            await asyncio.sleep(0)
        else:
            with pytest.raises(BaseExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(ctx.step("a", callee.look, "a", 0, key=1))
                    group.create_task(ctx.step("a", callee.look, "a", 0))
                    raise ValueError
        return [
            await ctx.step("a", callee.look, "keyed", 0, key=1),
            await ctx.step("a", callee.look, "plain", 0),
        ]

    assert host.run(Flow("agents", [agent]), run_id="r")["found"] == ["keyed", "plain"]
    assert callee.calls == ["keyed", "plain"]


@pytest.mark.parametrize("is_async", [True, False])
def test_what_a_failed_attempt_has_begun_is_recorded_before_the_next_one(host: Host, is_async: bool) -> None:
    made: list[str] = []
    began = threading.Event()

    def pay(idempotency_key: str) -> str:
        began.set()
        time.sleep(SLOW)
        made.append(idempotency_key)
        return "paid"

    async def fail() -> None:
        while not began.is_set():
            await asyncio.sleep(0)
        raise OSError

    @node(name="agent", output="paid", retry=Retry(1, first=0))
    async def with_tasks(ctx: AsyncContext) -> str:
        paid, _ = await asyncio.gather(ctx.step("pay", pay), fail() if ctx.attempt == 1 else asyncio.sleep(0))
        return str(paid)

    @node(name="agent", output="paid", retry=Retry(1, first=0))
    def with_threads(ctx: Context) -> str:
        if ctx.attempt == 1:
            threading.Thread(target=ctx.step, args=("pay", pay)).start()
            began.wait()
            raise OSError
        return ctx.step("pay", pay)

    flow = Flow("agents", [with_tasks if is_async else with_threads])
    assert host.run(flow, run_id="r")["paid"] == "paid"
    assert len(made) == 1


def test_threads_of_a_node_that_is_left_for_a_wait_record_their_calls_first(host: Host) -> None:
    made: list[str] = []
    began = threading.Event()

    def pay() -> str:
        began.set()
        time.sleep(SLOW)
        made.append("paid")
        return "paid"

    @node(output="said", halts=True)
    def agent(ctx: Context) -> str:
        paying = threading.Thread(target=ctx.step, args=("pay", pay))
        paying.start()
        began.wait()
        ctx.wait(wait.approval("ok"))
        paying.join()
        return ctx.step("done", "done".upper)

    flow = Flow("agents", [agent])
    [asked] = host.run(flow, run_id="r").waits
    assert [s.path for record in host.history("r") for s in record.steps][-2:] == ["agent/$pay", "agent"]
    host.answer(asked.id, {"approved": True})
    assert host.resume("r", flow)["said"] == "DONE"
    assert made == ["paid"]


def test_a_wait_is_opened_though_another_call_pauses_before_a_retry(host: Host) -> None:
    @node(output="found", halts=True)
    async def agent(ctx: AsyncContext) -> list[Any]:
        flaky: Any = ctx.step("flaky", failing, retry=Retry(1, first="1h"))
        return list(await asyncio.gather(flaky, ask(ctx)))

    failed = asyncio.Event()

    async def failing() -> None:
        failed.set()
        raise OSError

    async def ask(ctx: AsyncContext) -> Any:
        await failed.wait()
        return await ctx.wait(wait.approval("ok"))

    [asked] = host.run(Flow("agents", [agent]), run_id="r").waits
    assert asked.node == "agent/$ok"


def test_a_function_on_a_thread_that_ends_an_iteration_fails_the_call(host: Host) -> None:
    lives = [0]

    @node(output="said")
    async def agent(ctx: AsyncContext) -> str:
        try:
            return await ctx.step("first", next, iter(()))
        except RuntimeError as error:
            lives[0] += 1
            if lives[0] == 1:
                raise KeyboardInterrupt from None
            return f"{error}"

    flow = Flow("agents", [agent])
    die(host, flow)
    assert host.resume("r", flow)["said"] == "coroutine raised StopIteration"


def test_calls_with_a_time_limit_need_no_thread_of_those_that_nodes_wait_on(host: Host) -> None:
    calls: list[int] = []
    many = 100  # more than there are threads of nodes

    def look(number: int) -> int:
        calls.append(number)
        return number

    @node(output="found")
    def agent(number: int, ctx: Context) -> int:
        time.sleep(0.02)
        return ctx.step("look", look, number, timeout=20)

    mapped = agent.map_over("number", max_concurrency=many).with_inputs(number="numbers")
    began = time.monotonic()
    found = host.run(Flow("agents", [mapped]), {"numbers": list(range(many))})
    assert found.status == "completed"
    assert sorted(calls) == list(range(many))
    assert time.monotonic() - began < 20


def test_threads_that_ask_for_one_name_at_once_need_keys(host: Host) -> None:
    large = ["x" * 100] * 20_000
    """Takes a moment to be looked through."""
    ready, refused = threading.Barrier(4), threading.Semaphore(0)

    def look(_: Any) -> None:
        for _ in range(3):
            refused.acquire(timeout=5)

    @node(output="found")
    def agent(ctx: Context) -> int:
        def ask() -> None:
            ready.wait()
            try:
                ctx.step("look", look, large)
            except BadRequest:
                refused.release()
                raise

        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(ask) for _ in range(4)]
        for one in asked:
            one.result()
        return len(asked)

    said = error_of(host.run(Flow("agents", [agent]), run_id="r"))
    assert "while it is under way" in said
    assert len(calls_of(host)) == 1


def test_threads_and_the_node_itself_may_record_at_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    space_keyframes(monkeypatch, lambda: 1)

    @node(output="found")
    def agent(ctx: Context) -> int:
        def ask(thread: int) -> None:
            for number in range(40):
                ctx.step("look", str, number, key=[thread, number])

        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(ask, thread) for thread in range(4)]
            while not all(one.done() for one in asked):
                ctx.now()
                time.sleep(0)
        for one in asked:
            one.result()
        return len(asked)

    host.run(Flow("agents", [agent]), run_id="r")
    [found] = host.storage.verify("r")
    assert found.flaws == ()


def test_threads_that_ask_first_and_at_once_are_all_known_to_have_asked(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, opened = threading.Barrier(4), Units.__init__

    def slowly(*given: Any) -> None:
        time.sleep(FAST)
        opened(*given)

    monkeypatch.setattr(Units, "__init__", slowly)

    @node(output="found", retry=Retry(1, first=0))
    def agent(ctx: Context) -> int:
        def ask(thread: int) -> None:
            ready.wait()
            ctx.step("look", str, thread, key=thread)

        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(ask, thread) for thread in range(4)]
        for one in asked:
            one.result()
        if ctx.attempt == 1:
            raise OSError
        return len(asked)

    assert host.run(Flow("agents", [agent]), run_id="r").status == "completed"
    [*_, last] = [s for record in host.history("r") for s in record.steps if s.path == "agent"]
    assert last.unit is None or not last.unit.unasked
