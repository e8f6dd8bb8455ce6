"""What is kept of limits. Apart from the store, as few stores have anything of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from everstep.engine.claims import Room
from everstep.engine.limits.keys import KeyRoom
from everstep.model.leases import KeyLimit, KeyState, Lease, Quota
from everstep.ports.limits import LimitChange
from everstep.ports.store import RunRow
from everstep.stores.columns import EPOCH, to_time
from everstep.stores.postgres.columns import array, read_text, text
from everstep.stores.postgres.connections import Connection, rows

_LOCK = 0x65766C69


class PostgresLimits:
    """The states of the keys of limits, and which of them this client knows to be full."""

    def __init__(self, sql: dict[str, str], schema: str) -> None:
        self._sql = sql
        self._schema = schema
        self.full: dict[str, int] = {}
        self.lock = threading.Lock()
        """Held by who claims: one claim at a time knows what is below."""
        self._known: dict[str, KeyState] = {}
        """States that were read for the claim that is being made."""
        self._under_way: dict[str, bool] = {}
        """Whether runs that have a key alone have ended, as far as it was looked up for that claim."""
        self._keys: KeyRoom | None = None
        self._now = 0

    def _keys_of(
        self, db: Connection, quotas: Mapping[str, Quota], live: Mapping[tuple[str, str], int], now: int
    ) -> KeyRoom:
        def read(key: str) -> KeyState:
            if key not in self._known:
                self._read(db, [key])
            return self._known[key]

        self._known = {}
        self._under_way = {}
        self._now = now
        is_under_way = partial(self._is_under_way, db)
        self._keys = KeyRoom(quotas, live, read, now, self.full, is_under_way)
        return self._keys

    def room(
        self,
        db: Connection,
        quotas: Mapping[str, Quota],
        live: Mapping[tuple[str, str], int],
        now: int | None,
    ) -> Room:
        """Return what quotas and limits leave room for."""
        [[at]] = rows(db, self._sql["limit_now"], (now,))
        return Room(quotas, live, self._keys_of(db, quotas, live, at))

    def read_all(self, db: Connection, groups: Iterable[tuple[str, str]]) -> None:
        """Read what a claim may ask for, in one go."""
        assert self._keys is not None
        wanted = {key for flow_id, group in groups for key in self._keys.rated(flow_id, group)}
        if wanted := {key for key in wanted - self._known.keys() if self.full.get(key, 0) <= self._now}:
            self._read(db, sorted(wanted))

    def _read(self, db: Connection, keys: Sequence[str]) -> None:
        found = rows(db, self._sql["limit_states"], (array([text(key) for key in keys]),))
        kept = {read_text(key): KeyState.of(bytes(state)) for key, state in found}
        self._known |= {key: kept.get(key, KeyState()) for key in keys}
        self._look_up(db, {run_id for key in keys for run_id in self._known[key].holders})

    def _look_up(self, db: Connection, run_ids: Iterable[str]) -> None:
        if asked := sorted(set(run_ids) - self._under_way.keys()):
            found = rows(db, self._sql["under_way"], (array([text(run_id) for run_id in asked]),))
            under_way = {read_text(run_id) for (run_id,) in found}
            self._under_way |= {run_id: run_id in under_way for run_id in asked}

    def _is_under_way(self, db: Connection, run_id: str) -> bool:
        self._look_up(db, [run_id])
        return self._under_way[run_id]

    def holders(self) -> list[str]:
        """Return the runs that keep others from starting, as far as it was asked."""
        assert self._keys is not None
        return [run_id for held in self._keys.holders.values() for run_id in held]

    def full_groups(self, flow_id: str) -> list[str]:
        """Return groups of which the rate is known to be full."""
        start = f"run {flow_id} "
        return [
            key.removeprefix(start)
            for key, until in self.full.items()
            if until > self._now and key.startswith(start)
        ]

    def check(
        self,
        db: Connection,
        row: RunRow,
        limits: Sequence[KeyLimit],
        live: Mapping[tuple[str, str], int],
        now: int,
        *,
        starts: bool,
    ) -> None:
        """Raise `NoRoom` if a run may not be driven now."""
        keys = self._keys_of(db, {row.flow_id: Quota(limits=tuple(limits))}, live, now)
        if not keys.has(row.flow_id, row.group or "", starts=starts, run_id=row.run_id):
            raise keys.refusal(row.run_id, row.flow_id, row.group or "", starts=starts)

    def keep_starts(self, db: Connection, claimed: Iterable[tuple[RunRow, Lease]]) -> None:
        """Keep which runs began, and which have a key alone; in the transaction that gives them a lease."""
        assert self._keys is not None
        for row, lease in claimed:
            self._keys.started(row.flow_id, row.group or "", row.run_id, starts=lease.epoch == 1)
        self._keep(db, {key: state.body() for key, state in self._keys.changed.items()})

    def _keep(self, db: Connection, states: Mapping[str, bytes | None]) -> None:
        kept = {text(key): state for key, state in states.items() if state is not None}
        gone = [text(key) for key, state in states.items() if state is None]
        if kept:
            db.execute(self._sql["keep_limit_states"], (array(list(kept)), list(kept.values())))
        if gone:
            db.execute(self._sql["drop_limit_states"], (array(gone),))

    def change(self, db: Connection, key: str, change: LimitChange, now: int | None) -> Any:
        """Change what is kept under a key: who changes it does so alone."""
        with db.transaction():
            db.execute(self._sql["lock_quota"], (_LOCK, [f"{self._schema} {key}"]))
            [[at]] = rows(db, self._sql["limit_now"], (now,))
            found = rows(db, self._sql["limit_states"], (array([text(key)]),))
            was = bytes(found[0][1]) if found else None
            body, said = change(was, to_time(at) or EPOCH)
            if body != was:
                self._keep(db, {key: body})
            return said

    def states(self, db: Connection, prefix: str, limit: int, after: str) -> dict[str, bytes]:
        """Return what is kept under keys that begin with a text, and come behind another."""
        found = rows(db, self._sql["limit_states_from"], (text(prefix), limit, text(after)))
        return {read_text(key): bytes(state) for key, state in found}
