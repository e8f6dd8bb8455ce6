"""What is paused. Apart from the store, as most files have nothing of it. The caller holds the connection."""

from __future__ import annotations

from collections.abc import Collection

import apsw
import msgspec

from everstep.model.leases import Held, LanePause
from everstep.stores.columns import EPOCH, to_int, to_time
from everstep.stores.sqlite.database import rows
from everstep.stores.sqlite.side_tables import SideTables


def pause_lane(db: apsw.Connection, sql: dict[str, str], side: SideTables, lane: LanePause) -> bool:
    """Pause a flow or a group; in a transaction of its own."""
    side.need()
    db.execute(sql["pause_lane"], (lane.flow_id, lane.group, to_int(lane.since), lane.note))
    return db.changes() == 1


def unpause_lane(
    db: apsw.Connection, sql: dict[str, str], side: SideTables, flow_id: str, group: str
) -> bool:
    """Let a flow or a group go on."""
    if not side.are_there():
        return False
    db.execute(sql["unpause_lane"], (flow_id, group))
    return db.changes() == 1


def held(db: apsw.Connection, sql: dict[str, str], side: SideTables, run_ids: Collection[str]) -> Held:
    """Say which of these runs are paused, and which flows and groups."""
    found = rows(db, sql["paused_lanes"]) if side.are_there() else []
    lanes = [
        LanePause(flow_id=flow_id, group=group, since=to_time(since) or EPOCH, note=note)
        for flow_id, group, since, note in found
    ]
    asked = (msgspec.json.encode(list(run_ids)).decode(),)
    return Held(dict(rows(db, sql["paused_runs"], asked)) if run_ids else {}, tuple(lanes))
