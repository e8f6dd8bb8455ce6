"""What is kept of limits. Apart, as most files have nothing of it. The caller holds the connection."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import apsw

from everstep.engine.limits.keys import KeyRoom
from everstep.engine.limits.rates import micros_at
from everstep.model.leases import KeyState, Quota
from everstep.ports.limits import LimitChange
from everstep.stores.sqlite.database import rows
from everstep.stores.sqlite.side_tables import SideTables


class SqliteLimits:
    """The states of the keys of limits, and which of them this client knows to be full."""

    def __init__(self, db: apsw.Connection, sql: dict[str, str], side: SideTables) -> None:
        self._db = db
        self._sql = sql
        self._side = side
        self.full: dict[str, int] = {}

    def read(self, key: str) -> KeyState:
        """Return the state of a key."""
        found = rows(self._db, self._sql["limit_state"], (key,)) if self._side.are_there() else []
        return KeyState.of(bytes(found[0][0]) if found else None)

    def room(
        self, quotas: Mapping[str, Quota], live: Mapping[tuple[str, str], int], now: datetime
    ) -> KeyRoom:
        """Return what limits leave room for."""
        return KeyRoom(quotas, live, self.read, micros_at(now), self.full, self._is_under_way)

    def _is_under_way(self, run_id: str) -> bool:
        return bool(rows(self._db, self._sql["is_under_way"], (run_id,)))

    def keep(self, changed: Mapping[str, KeyState]) -> None:
        """Keep states; the caller has begun a transaction."""
        for key, state in changed.items():
            self._write(key, state.body())

    def _write(self, key: str, body: bytes | None) -> None:
        self._side.need()
        if body is None:
            self._db.execute(self._sql["drop_limit_state"], (key,))
        else:
            self._db.execute(self._sql["keep_limit_state"], (key, body))

    def change(self, key: str, change: LimitChange, now: datetime) -> Any:
        """Change what is kept under a key; in a transaction of its own."""
        found = rows(self._db, self._sql["limit_state"], (key,)) if self._side.are_there() else []
        was = bytes(found[0][0]) if found else None
        body, said = change(was, now)
        if body != was:
            self._write(key, body)
        return said

    def states(self, prefix: str, limit: int, after: str) -> dict[str, bytes]:
        """Return what is kept under keys that begin with a text, and come behind another."""
        if not self._side.are_there():
            return {}
        found = rows(self._db, self._sql["limit_states"], (prefix, prefix + "\U0010ffff", limit, after))
        return {key: bytes(state) for key, state in found}
