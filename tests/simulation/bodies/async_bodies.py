"""Random bodies of async nodes: durable calls in a row, at once, in tasks, behind queues and locks, cut off.

What a body does next depends on the order in which its calls came back, and on which failed. Each such choice
is a durable call whose key says what was chosen, so a body that goes another way after a crash asks for other
calls than those that are recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from everstep import AsyncContext, Flow, node
from everstep.steps import step
from tests.simulation.bodies.parts import AGAIN, NOTES, Calls, Part, Tripped, let_pass


class Body:
    """One life of a body."""

    def __init__(self, ctx: AsyncContext, wrong: list[str]) -> None:
        self.ctx = ctx
        self._calls = Calls(ctx, wrong)

    async def do(self, part: Part) -> Any:
        if part.parts:
            return await WAYS[part.kind](self, part)
        leaf: Callable[[Part], Awaitable[Any]] = getattr(self, f"_{part.kind}")
        return await leaf(part)

    async def outcome(self, part: Part) -> str:
        """Do a part, and say what came of it."""
        try:
            return str(await self.do(part))
        except Tripped:
            raise
        except Exception as error:
            return type(error).__name__

    async def choose(self, part: Part, what: object) -> None:
        """Note durably which way is gone."""
        await self.ctx.step("chose", str, f"{what}", key=f"{part.number} {what}")

    async def _call(self, part: Part) -> str:
        def fail(what: str) -> str:
            if part.error is not None:
                raise part.error(what)
            return what

        def sync(what: str) -> str:
            let_pass(part.seconds)
            return fail(what)

        async def soon(what: str) -> str:
            if part.seconds:
                await asyncio.sleep(part.seconds)
            return fail(what)

        called: Callable[[str], Any] = sync if part.is_sync else soon
        return self._calls.own(part, await self._calls.ask(part, called))

    async def _helper(self, part: Part) -> str:
        @step(name=f"h{part.number}")
        async def helper(what: str) -> str:
            await asyncio.sleep(part.seconds)
            return what

        return self._calls.own(part, await helper(f"{part.number}"))

    async def _chance(self, part: Part) -> None:
        await self.ctx.step(f"u{part.number}", list, self._calls.drawn())

    async def _ask(self, part: Part) -> str:
        return self._calls.own(part, await self._calls.wait(part))

    _signal = _ask

    async def _sleep(self, part: Part) -> str:
        return self._calls.own(part, await self.ctx.sleep(2))

    async def _inbox(self, part: Part) -> str:
        return self._calls.noted(await self.ctx.inbox(NOTES))

    async def _trip(self, part: Part) -> None:
        self._calls.trip()


async def in_turn(body: Body, part: Part) -> Any:
    return [await body.outcome(one) for one in part.parts]


async def together(body: Body, part: Part) -> Any:
    try:
        return await asyncio.gather(*map(body.do, part.parts))
    except Tripped:
        raise
    except Exception as error:
        await body.choose(part, type(error).__name__)
        raise


async def in_a_group(body: Body, part: Part) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(body.outcome(one)) for one in part.parts]
    return [task.result() for task in tasks]


async def as_they_come(body: Body, part: Part) -> Any:
    tasks = [asyncio.ensure_future(body.outcome(one)) for one in part.parts]
    order = []
    for found in asyncio.as_completed(tasks):
        order.append(await found)
        await body.choose(part, order)
    return order


async def first_of_them(body: Body, part: Part) -> Any:
    tasks = [asyncio.ensure_future(body.outcome(one)) for one in part.parts]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await body.choose(part, sorted(map(tasks.index, done)))
    if left:
        await asyncio.wait(left)
    return len(done)


async def in_the_order_of_ends(body: Body, part: Part) -> Any:
    order: list[int] = []

    async def one(inner: Part) -> None:
        await body.outcome(inner)
        order.append(inner.number)
        await body.choose(part, order)

    await asyncio.gather(*map(one, part.parts))
    return order


async def by_workers(body: Body, part: Part) -> Any:
    left = list(part.parts)

    async def worker(number: int) -> None:
        while left:
            inner = left.pop(0)
            await body.choose(part, f"{number} did {inner.number}: {await body.outcome(inner)}")

    await asyncio.gather(worker(0), worker(1))


async def behind_a_lock(body: Body, part: Part) -> Any:
    lock, order = asyncio.Lock(), []

    async def one(inner: Part) -> None:
        async with lock:
            order.append(await body.outcome(inner))
            await body.choose(part, order)

    await asyncio.gather(*map(one, part.parts))
    return order


async def by_a_queue(body: Body, part: Part) -> Any:
    queue: asyncio.Queue[str | None] = asyncio.Queue(1)
    order = []

    async def make() -> None:
        for inner in part.parts:
            await queue.put(await body.outcome(inner))
        await queue.put(None)

    async def take() -> None:
        while (made := await queue.get()) is not None:
            order.append(made)
            await body.choose(part, order)

    await asyncio.gather(make(), take())
    return order


async def after_an_event(body: Body, part: Part) -> Any:
    event, order = asyncio.Event(), []

    async def wait(number: int) -> None:
        await event.wait()
        order.append(number)
        await body.choose(part, order)

    async def begin() -> None:
        await body.outcome(part.parts[0])
        event.set()
        await body.outcome(part.parts[1])
        await body.choose(part, f"behind {order}")

    await asyncio.gather(wait(1), begin(), wait(2))


async def cut_off(body: Body, part: Part) -> Any:
    """Do some parts, and end what is under way beside them when these are done."""
    first, *others = part.parts
    task = asyncio.ensure_future(body.outcome(first))
    found = [await body.outcome(one) for one in others]
    task.cancel()
    with suppress(asyncio.CancelledError):
        found.append(await task)
    await body.choose(part, len(found))
    return found


async def in_limited_time(body: Body, part: Part) -> Any:
    """Cut parts off when a time is over. What became of that is noted: no record has it."""
    try:
        async with asyncio.timeout(0.015):
            came = str([await body.outcome(one) for one in part.parts])
    except TimeoutError:
        came = "cut off"
    return await body.ctx.step(f"came{part.number}", lambda: came)


WAYS: dict[str, Callable[[Body, Part], Awaitable[Any]]] = {
    way.__name__: way
    for way in (
        *(in_turn, together, in_a_group, as_they_come, first_of_them, in_the_order_of_ends),
        *(by_workers, behind_a_lock, by_a_queue, after_an_event, cut_off, in_limited_time),
    )
}
CHANCY = frozenset({"in_limited_time"})
"""Ways of which the way that is gone may be another one after a crash, as the page says."""


def flow_of(part: Part, wrong: list[str]) -> Flow:
    @node(output="came_to", halts=True, retry=AGAIN)
    async def agent(x: int, ctx: AsyncContext) -> str:
        return str(await Body(ctx, wrong).do(part))

    return Flow("agents", [agent])
