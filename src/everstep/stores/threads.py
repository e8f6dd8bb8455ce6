"""Threads for a store whose calls wait for the network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from everstep.errors import StoreError, StoreUnavailable

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Threads:
    """A pool that is made when it is first wanted, and anew in a forked child, where no thread lives on."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0
        """Of the process that made it."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do some work on a thread."""
        if self._pool is None or self._pid != os.getpid():
            self._pool, self._pid = ThreadPoolExecutor(self._most, thread_name_prefix=self._name), os.getpid()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self, *, wait: bool) -> None:
        if self._pool is not None and self._pid == os.getpid():
            self._pool.shutdown(wait=wait)


class Gathered(Generic[K, T]):
    """Questions that are asked in one turn of the event loop, put to the store as one."""

    def __init__(self, ask: Callable[[list[K]], Awaitable[Mapping[K, T]]]) -> None:
        self._ask = ask
        self._waiting: dict[asyncio.AbstractEventLoop, dict[K, asyncio.Future[T]]] = {}
        """By loop, as each thread of a host has its own."""
        self._asking: set[asyncio.Task[None]] = set()

    async def get(self, key: K) -> T:
        """Return the answer to one question."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.setdefault(loop, {})
        if not waiting:
            loop.call_soon(self._begin, loop)
        if key not in waiting:
            waiting[key] = loop.create_future()
        return await asyncio.shield(waiting[key])

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        task = loop.create_task(self._answer(self._waiting.pop(loop)))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _answer(self, waiting: dict[K, asyncio.Future[T]]) -> None:
        try:
            found = await self._ask(list(waiting))
            answers = [found[key] for key in waiting]
        except BaseException as error:
            if len(waiting) > 1 and isinstance(error, StoreError) and not isinstance(error, StoreUnavailable):
                # One of them cannot be asked; the others must not suffer for it.
                for key, future in waiting.items():
                    await self._answer({key: future})
                return
            for future in waiting.values():
                future.set_exception(error)
                future.exception()  # taken note of, also if its caller was cancelled
        else:
            for future, answer in zip(waiting.values(), answers, strict=True):
                future.set_result(answer)
