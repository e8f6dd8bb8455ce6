"""What a drive needs from its host."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from copy import copy

from everstep.codec.values import Values
from everstep.ports.store import BlockingStore, CheckpointBlobStore, CheckpointStore
from everstep.ports.system import Clock, Ids, Processes
from everstep.runtime.committer import Committer
from everstep.runtime.events import Listener


class Services:
    """The store, the clock and the rest, shared by all runs of a host."""

    def __init__(
        self,
        *,
        store: CheckpointStore,
        blobs: CheckpointBlobStore | None,
        clock: Clock,
        ids: Ids,
        processes: Processes,
        values: Values,
        listener: Listener | None,
        owns_loop: bool,
        max_threads: int,
    ) -> None:
        self.store = store
        self.blocking = store if isinstance(store, BlockingStore) else None
        """The store, if its put is a short local call."""
        self.blobs = blobs
        self.clock = clock
        self.ids = ids
        self.processes = processes
        self.values = values
        self.listener = listener
        self.owns_loop = owns_loop
        """True if nobody else's code runs on the loop, so that a sync node may be called on it."""
        self.committer = Committer(store, self.blocking, clock)
        self.max_threads = max_threads
        self._threads = _Threads(max_threads)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Count a run among those under way, and let the others that are about to start be counted too."""
        self.committer.drives += 1
        try:
            if not self.owns_loop:
                await asyncio.sleep(0)
            yield
        finally:
            self.committer.drives -= 1

    def twin(self) -> Services:
        """Return the same services for another event loop, with commits of its own."""
        twin = copy(self)
        twin.committer = Committer(self.store, self.blocking, self.clock)
        return twin

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Threads for sync nodes that run beside others."""
        return self._threads.pool()

    def close(self) -> None:
        self.committer.close()
        self._threads.close()


class _Threads:
    """A pool that is made when it is first wanted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="everstep-node")
            return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
