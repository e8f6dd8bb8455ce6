"""Random bodies of async nodes: durable calls in a row, at once, in tasks, behind queues and locks.

What a body does next depends on the order in which its calls came back, and on which failed. Each such choice
is a durable call whose key says what was chosen, so a body that goes another way after a crash asks for other
calls than those that are recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from everstep import AsyncContext, Flow, Retry, node
from everstep.graph.author.node import Node

SECONDS = (0.0, 0.0, 0.0, 0.001, 0.01, 0.01, 0.02, 0.05, 0.3, 2.0)
ERRORS = (None, None, None, None, ValueError, KeyError, OSError)


class Part(NamedTuple):
    """A part of a body: one call, or what is done with several parts."""

    kind: str
    number: int
    parts: tuple[Part, ...] = ()
    seconds: float = 0.0
    error: type[Exception] | None = None
    retries: int = 0
    is_sync: bool = False
    is_pure: bool = False


class Parts:
    """Draws the parts of a body, as they follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._count = 0

    def draw(self, depth: int = 3) -> Part:
        chance = self._chance
        kind = chance.choice(("call", "call", *(WAYS if depth else ())))
        self._count += 1
        number = self._count
        if kind != "call":
            parts = [self.draw(depth - 1) for _ in range(chance.randint(2, 4))]
            return Part(kind, number, tuple(parts))
        return Part(
            kind,
            number,
            seconds=chance.choice(SECONDS),
            error=chance.choice(ERRORS),
            retries=chance.choice((0, 0, 1)),
            is_sync=chance.random() < 0.3,
            is_pure=chance.random() < 0.3,
        )


class Body:
    """One life of a body."""

    def __init__(self, ctx: AsyncContext) -> None:
        self.ctx = ctx

    async def do(self, part: Part) -> Any:
        if part.kind == "call":
            return await self._call(part)
        return await WAYS[part.kind](self, part)

    async def outcome(self, part: Part) -> str:
        """Do a part, and say what came of it."""
        try:
            return str(await self.do(part))
        except Exception as error:
            return type(error).__name__

    async def choose(self, part: Part, what: object) -> None:
        """Note durably which way is gone."""
        await self.ctx.step("chose", str, what, key=f"{part.number} {what}")

    async def _call(self, part: Part) -> str:
        def sync(what: str) -> str:
            if part.error is not None:
                raise part.error(what)
            return what

        async def soon(what: str) -> str:
            if part.seconds:
                await asyncio.sleep(part.seconds)
            return sync(what)

        called: Callable[..., Any] = sync if part.is_sync else soon
        retry = Retry(part.retries, first=0.01, jitter=0)
        effects = "pure" if part.is_pure else "effectful"
        return str(await self.ctx.step(f"c{part.number}", called, "x", retry=retry, effects=effects))


async def in_turn(body: Body, part: Part) -> Any:
    return [await body.outcome(one) for one in part.parts]


async def together(body: Body, part: Part) -> Any:
    try:
        return await asyncio.gather(*map(body.do, part.parts))
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


WAYS: dict[str, Callable[[Body, Part], Awaitable[Any]]] = {
    way.__name__: way
    for way in (
        *(in_turn, together, in_a_group, as_they_come, first_of_them, in_the_order_of_ends),
        *(by_workers, behind_a_lock, by_a_queue, after_an_event),
    )
}


def kinds_of(part: Part) -> Iterator[str]:
    """Yield what is in a body."""
    yield part.kind
    for inner in part.parts:
        yield from kinds_of(inner)


def random_body(seed: int) -> Part:
    """Return a body, as it follows from a seed."""
    parts = Parts(seed)
    return Part("in_turn", 0, (parts.draw(), parts.draw()))


def node_of(part: Part) -> Node:
    """Return a node that has a body."""

    @node(output="came_to")
    async def agent(x: int, ctx: AsyncContext) -> str:
        return str(await Body(ctx).do(part))

    return agent


def flow_of(part: Part) -> Flow:
    return Flow("agents", [node_of(part)])
