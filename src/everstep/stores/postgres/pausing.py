"""What is paused. Apart from the store, as few stores have anything of it."""

from __future__ import annotations

from collections.abc import Collection

from everstep.model.leases import Held, LanePause
from everstep.stores.columns import EPOCH, to_int, to_time
from everstep.stores.postgres.address import PostgresAddress
from everstep.stores.postgres.columns import array, read_text, some_text, text
from everstep.stores.postgres.connections import Connection, rows
from everstep.stores.postgres.schema import read_queries


class PostgresPauses:
    """Marks of runs that are paused, and the flows and groups that are."""

    def __init__(self, at: PostgresAddress, channel: str) -> None:
        self._sql = read_queries(at, "pausing.sql")
        self._channel = channel

    def mark(self, db: Connection, run_id: str, was: str | None, new: str | None) -> bool:
        """Replace the mark of a run, if that is still what was read."""
        given = (text(run_id), some_text(was), some_text(new), self._channel)
        return bool(rows(db, self._sql["mark"], given))

    def pause(self, db: Connection, lane: LanePause) -> bool:
        """Pause a flow or a group."""
        given = (text(lane.flow_id), text(lane.group), to_int(lane.since), lane.note, self._channel)
        return bool(rows(db, self._sql["pause_lane"], given))

    def unpause(self, db: Connection, flow_id: str, group: str) -> bool:
        """Let a flow or a group go on."""
        return bool(rows(db, self._sql["unpause_lane"], (text(flow_id), text(group), self._channel)))

    def held(self, db: Connection, run_ids: Collection[str]) -> Held:
        """Say which of these runs are paused, and which flows and groups."""
        runs: dict[str, str] = {}
        lanes: list[LanePause] = []
        asked = (array([text(run_id) for run_id in run_ids]),)
        for run_id, first, group, since, note in rows(db, self._sql["held"], asked):
            if run_id is not None:
                runs[read_text(run_id)] = read_text(first)
            else:
                kept = None if note is None else bytes(note)
                at = to_time(since) or EPOCH
                lanes.append(LanePause(flow_id=read_text(first), group=read_text(group), since=at, note=kept))
        return Held(runs, tuple(lanes))
