"""Threads for a store whose calls wait for the network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """A pool that is made when it is first wanted, and anew in a forked child, where no thread lives on."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._pid = os.getpid()

    async def run(self, work: Callable[[], T]) -> T:
        """Do some work on a thread."""
        if self._pool is None or self._pid != os.getpid():
            self._pool, self._pid = ThreadPoolExecutor(self._most, thread_name_prefix=self._name), os.getpid()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self, *, wait: bool) -> None:
        if self._pool is not None and self._pid == os.getpid():
            self._pool.shutdown(wait=wait)
