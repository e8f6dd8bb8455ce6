"""Claiming runs: one that is named, or those that somebody should drive."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import msgspec

from everstep.engine import leases
from everstep.model.leases import Lease, Process
from everstep.ports.store import RunRow
from everstep.stores.columns import EPOCH, process_text, to_int, to_time
from everstep.stores.postgres.columns import run_row, some_text, text
from everstep.stores.postgres.connections import Connection, rows
from everstep.stores.postgres.waits import WaitTable

Claims = list[tuple[RunRow, Lease]]
Row = tuple[Any, ...]
_EPOCH_AT, _OWNER, _EXPIRES, _CLAIMED_AT, _NOW = 9, 10, 11, 14, 21
"""Where these stand in a row of runs that the store's time follows."""
SPARE = 32
"""How many more runs are looked at than are wanted: other workers may be about to take the first ones."""


def judge(row: Row, owner: str, ttl: timedelta, process: Process | None, void_epoch: int | None) -> Lease:
    """Return the lease that a claimant gets, or raise `LeaseConflict`."""
    run = run_row(row)
    return leases.claim(
        run.lease,
        run_id=run.run_id,
        owner=owner,
        process=process,
        now=to_time(row[_NOW]) or EPOCH,
        ttl=ttl,
        newest_epoch=row[_EPOCH_AT],
        has_progressed=run.checkpoints > row[_CLAIMED_AT],
        void_epoch=void_epoch,
    )


def claim_values(row: Row, granted: Lease) -> Row:
    """Return what the query `claim` takes to grant a lease on the run as it was judged."""
    key, head = row[0], row[20]
    lease = (granted.epoch, text(granted.owner), to_int(granted.expires_at), process_text(granted.process))
    return (key, *lease, granted.takeovers, head, row[_EPOCH_AT], row[_OWNER], row[_EXPIRES])


class DueRuns:
    """The runs that somebody should drive."""

    def __init__(self, sql: dict[str, str], waits: WaitTable) -> None:
        self._sql = sql
        self._waits = waits

    def claim(
        self,
        db: Connection,
        now: int | None,
        flows: Collection[tuple[str, str]],
        new_owner: Callable[[], str],
        ttl: timedelta,
        process: Process | None,
        limit: int,
        apart_from: Collection[str],
    ) -> Claims:
        """Claim up to so many, the longest due first; those that others are about to take are passed over."""
        if limit <= 0 or not flows:
            return []
        looked = limit + SPARE
        names = [text(name) for name, _ in flows]
        hashes = [text(flow_hash) for _, flow_hash in flows]
        wanted = (now, names, hashes, [text(run_id) for run_id in apart_from], looked, 4 * looked)
        # Looking locks nothing, so workers with nothing to do disturb nobody.
        keys = [key for (key,) in rows(db, self._sql["due"], wanted)]
        if not keys:
            return []
        with db.transaction():
            found = rows(db, self._sql["lock_due"], (now, keys, limit))
            claimed = [(row, judge(row, new_owner(), ttl, process, None)) for row in found]
            if claimed:
                self._grant(db, claimed, process)
                self._waits.settle_due(db, [lease.run_id for _, lease in claimed], now)
        return [(msgspec.structs.replace(run_row(row), lease=lease), lease) for row, lease in claimed]

    def _grant(self, db: Connection, claimed: list[tuple[Row, Lease]], process: Process | None) -> None:
        db.execute(
            self._sql["claim_many"],
            (
                [row[0] for row, _ in claimed],
                [lease.epoch for _, lease in claimed],
                [text(lease.owner) for _, lease in claimed],
                [to_int(lease.expires_at) for _, lease in claimed],
                [lease.takeovers for _, lease in claimed],
                some_text(process_text(process)),
                [row[20] for row, _ in claimed],
            ),
        )
