"""Which runs of a store change, told to all who look on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from typing import NamedTuple

import pytest

from everstep import AsyncHost, Flow, node, wait
from everstep.client.looking import changes as changes_of
from everstep.client.looking.changes import Changes
from everstep.errors import BadRequest

pytestmark = pytest.mark.stores("memory", "sqlite", "folder", "postgres", "redis")
PATIENCE = 15.0


@node(output="total")
def add(x: int) -> int:
    return x + 1


adding = Flow("adding", [add])
asking = Flow("asking", [wait.question("sure", kind="yes_no")])


class Two(NamedTuple):
    """A host that looks on, and one that acts: two clients of a store, where it can have two."""

    here: AsyncHost
    there: AsyncHost


def played(url: str, play: Callable[[Two], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(AsyncHost(url))
            is_alone = url == "memory:"
            await play(Two(here, here if is_alone else await stack.enter_async_context(AsyncHost(url))))

    asyncio.run(main())


async def until(source: AsyncGenerator[Changes, None], run_id: str, status: str) -> list[Changes]:
    """Return what is told up to the message that a run has come to a status."""
    seen: list[Changes] = []
    async with asyncio.timeout(PATIENCE):
        async for one in source:
            seen.append(one)
            if any((run.run_id, run.status) == (run_id, status) for run in one.runs):
                return seen
    raise AssertionError(f"the stream ended: {seen}")


@contextmanager
def few(window: int) -> Iterator[None]:
    """Look at so few of the newest runs, and of the newest that wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes_of, "WINDOW", window)
        yield


def named(told: list[Changes]) -> set[str]:
    return {run.run_id for one in told for run in one.runs}


def test_runs_of_another_client_are_told_of(url: str) -> None:
    async def play(two: Two) -> None:
        await two.there.run(adding, {"x": 1}, run_id="A0")
        async with aclosing(two.here.changes()) as changes:
            assert (await anext(changes)).kind == "ready"
            await two.there.run(adding, {"x": 1}, run_id="A1")
            told = await until(changes, "A1", "completed")
            [run] = told[-1].runs
            assert (run.flow, run.sequence, run.is_gone) == ("adding", 2, False)
            assert named(told) == {"A1"}, "A0 has not changed"

    played(url, play)


def test_a_run_that_waited_is_told_of_when_it_goes_on_however_many_are_newer(url: str) -> None:
    async def play(two: Two) -> None:
        await two.there.run(asking, {}, run_id="A0")
        for k in range(3):
            await two.there.run(adding, {"x": k}, run_id=f"B{k}")
        with few(2):
            async with aclosing(two.here.changes()) as changes:
                await anext(changes)
                [waiting] = await two.there.waits("A0")
                await two.there.answer(waiting.id, True)
                await two.there.resume("A0", asking)
                assert named(await until(changes, "A0", "completed")) == {"A0"}

    played(url, play)


def test_more_new_runs_than_are_looked_at_are_a_gap(url: str) -> None:
    async def play(two: Two) -> None:
        with few(2):
            await two.there.run(adding, {"x": 0}, run_id="A0")
            async with aclosing(two.here.changes()) as changes:
                first = await anext(changes)
                for k in range(4):
                    await two.there.start(adding, {"x": k}, run_id=f"B{k}")
                async with aclosing(two.here.changes(after=first.id, live=False)) as now:
                    assert (await anext(now)).kind == "refetch"

    played(url, play)


def test_a_run_that_was_erased_is_told_to_be_gone(url: str) -> None:
    async def play(two: Two) -> None:
        for k in range(3):
            await two.there.run(adding, {"x": k}, run_id=f"A{k}")
        async with aclosing(two.here.changes()) as changes:
            await anext(changes)
            await two.there.retention.erase("A1")
            told = await until(changes, "A1", "completed")
            assert [(run.run_id, run.is_gone) for run in told[-1].runs] == [("A1", True)]
            assert (await two.there.info("A0")).status == "completed"

    played(url, play)


def test_one_who_names_runs_is_told_of_those_alone_and_of_their_waits(url: str) -> None:
    async def play(two: Two) -> None:
        await two.there.run(asking, {}, run_id="A1")
        async with aclosing(two.here.changes("A1")) as changes:
            assert (await anext(changes)).kind == "ready"
            await two.there.run(adding, {"x": 1}, run_id="B1")
            [waiting] = await two.there.waits("A1")
            await two.there.answer(waiting.id, True)  # its run is not written to yet
            told = await until(changes, "A1", "halted")
            assert named(told) == {"A1"}
            await two.there.resume("A1", asking)
            assert named(await until(changes, "A1", "completed")) == {"A1"}

    played(url, play)


def test_what_happened_while_one_was_away_is_told_in_one_message(url: str) -> None:
    async def play(two: Two) -> None:
        async with aclosing(two.here.changes()) as changes:
            first = await anext(changes)
        for k in range(3):
            await two.there.run(adding, {"x": k}, run_id=f"A{k}")
        async with aclosing(two.here.changes(after=first.id)) as changes:
            told = await anext(changes)
            if told.kind == "ready":  # it goes on behind what it was told, and the rest comes
                told = (await until(changes, "A2", "completed"))[-1]
            assert told.kind == "runs" and named([told]) == {"A0", "A1", "A2"}
        async with aclosing(two.here.changes(after=told.id, live=False)) as now:
            assert (await anext(now)).runs == []
        for unknown in ("00000000.0", f"{told.id[:8]}.99999"):
            async with aclosing(two.here.changes(after=unknown)) as changes:
                assert (await anext(changes)).kind == "refetch"
        with pytest.raises(BadRequest):
            await anext(two.here.changes(after="nonsense"))

    played(url, play)
