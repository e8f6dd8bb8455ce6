"""The part of the store that is about waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import apsw

from everstep.model.waits import SettledBy, WaitChange, WaitRow, WaitStatus
from everstep.ports.store import WaitFilter
from everstep.ports.system import Clock
from everstep.stores.sqlite.database import plainly, transact
from everstep.stores.sqlite.waits import WaitTable

T = TypeVar("T")


class WaitCalls:
    """Lets one caller at a time use the table of waits."""

    path: Path
    _clock: Clock
    _lock: threading.Lock
    _db: apsw.Connection
    _waits: WaitTable

    def _in_transaction(self, work: Callable[[], T]) -> T:
        return transact(self._db, work)

    async def waits(self, wanted: WaitFilter) -> list[WaitRow]:
        with self._lock, plainly(self.path):
            return self._waits.list(wanted)

    async def wait(self, wait_id: str) -> WaitRow | None:
        with self._lock, plainly(self.path):
            return self._waits.get(wait_id)

    async def wait_of_token(self, token_hash: bytes) -> WaitRow | None:
        with self._lock, plainly(self.path):
            return self._waits.of_token(token_hash)

    async def settle(
        self,
        wait_id: str,
        *,
        by: SettledBy,
        answer: bytes | None,
        token_hash: bytes | None = None,
        at: datetime | None = None,
        details: bytes | None = None,
    ) -> tuple[bool, WaitRow | None]:
        with self._lock, plainly(self.path):
            now = at or self._clock.now()
            given = (wait_id, by, answer, token_hash, now, details)
            done = self._in_transaction(lambda: self._waits.settle(*given))
            return done, self._waits.get(wait_id)

    async def fire(self, run_id: str) -> list[WaitRow]:
        with self._lock, plainly(self.path):
            now = self._clock.now()
            if self._waits.has_due(run_id, now):
                self._waits.settle_due(run_id, now)
            return self._waits.list(WaitFilter(run_id=run_id, status=WaitStatus.SETTLED, limit=-1))

    async def change_wait(self, wait_id: str, change: WaitChange) -> WaitRow | None:
        with self._lock, plainly(self.path):
            return self._in_transaction(lambda: self._waits.change(wait_id, change))

    async def next_due(self, *, after: datetime | None = None) -> datetime | None:
        with self._lock, plainly(self.path):
            return self._waits.next_due(after)
