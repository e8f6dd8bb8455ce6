"""The table of workers that are alive."""

from __future__ import annotations

from datetime import datetime, timedelta

import apsw
import msgspec

from everstep.errors import StateCorrupted
from everstep.model.fleet import WorkerRow
from everstep.stores.columns import to_int, to_time


def report(
    db: apsw.Connection, sql: dict[str, str], worker: WorkerRow, now: datetime, ttl: timedelta
) -> None:
    """Keep what a worker says of itself, and forget those that said nothing for too long."""
    details = msgspec.json.encode(worker)
    times = (to_int(worker.started_at), to_int(now), to_int(now + ttl))
    db.execute(sql["bury_workers"], (to_int(now),))
    db.execute(sql["report"], (worker.worker_id, *times, details))


def worker_row(details: bytes, seen_at: int) -> WorkerRow:
    """Read what a worker said of itself."""
    try:
        worker = msgspec.json.decode(details, type=WorkerRow)
        return msgspec.structs.replace(worker, seen_at=to_time(seen_at))
    except (msgspec.DecodeError, TypeError, OverflowError) as error:
        raise StateCorrupted(f"the row of a worker was altered: {error}.") from error
