"""The runs that `memory:` keeps."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime

import msgspec

from everstep.codec.records import digest_of
from everstep.model.enums import Status
from everstep.model.fleet import WorkerRow
from everstep.ports.restoring import Restored, WholeRun, judge_there
from everstep.ports.store import Recoded, RunRow, StoredRecord
from everstep.stores.memory_waits import MemoryWaits


class MemoryRun:
    """One run and its own records."""

    def __init__(self, row: RunRow, epoch: int) -> None:
        self.row = row
        self.epoch = epoch
        self.claimed_at_sequence = row.first
        self.records: list[StoredRecord] = []

    @classmethod
    def restored(cls, row: RunRow, records: Sequence[StoredRecord]) -> MemoryRun:
        """Return a run that comes whole from another store."""
        run = cls(row, 0)
        run.claimed_at_sequence = row.checkpoints
        run.records = list(records)
        return run

    def at(self, sequence: int) -> StoredRecord | None:
        """Return the run's own record at a sequence."""
        k = sequence - self.row.first
        return self.records[k] if 0 <= k < len(self.records) else None

    def id_at(self, sequence: int) -> str | None:
        """Return the id of the run's own record at a sequence."""
        there = self.at(sequence)
        return there.checkpoint_id if there is not None else None

    def recode(self, records: Sequence[Recoded]) -> int:
        """Give records other bytes with the same digest; returns how many were given some."""
        replaced = 0
        for new in records:
            old = self.at(new.sequence)
            if old is None or old.is_stub or old.checkpoint_id != new.checkpoint_id:
                continue
            if digest_of(old.body) == digest_of(new.body):
                self.records[new.sequence - self.row.first] = msgspec.structs.replace(old, body=new.body)
                replaced += 1
        return replaced


class MemoryData:
    """What several memory stores may share, as processes share a database."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runs: dict[str, MemoryRun] = {}
        self.blueprints: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.waits = MemoryWaits()
        self.running: dict[str, None] = {}
        """The runs that are running, in order of admission."""
        self.signalled: dict[str, None] = {}
        self.workers: dict[str, tuple[WorkerRow, datetime]] = {}
        """What they said of themselves, and until when that counts."""
        self.writes = 0

    def is_whole(self, run_id: str | None, sequence: int, checkpoint_id: str | None) -> bool:
        """True if a run has this record itself, and no stub of it."""
        run = self.runs.get(run_id or "")
        there = run.at(sequence) if run is not None else None
        return there is not None and there.checkpoint_id == checkpoint_id and not there.is_stub

    def restore(self, run: WholeRun) -> Restored:
        """Keep a run that comes whole from another store; whoever calls holds the lock."""
        row = msgspec.structs.replace(run.row, lease=None)
        there = self.runs.get(row.run_id)
        if there is not None:
            return judge_there(run, there.row.checkpoints, there.id_at)
        if row.forked_at is not None and not self.is_whole(row.parent_run_id, row.forked_at, run.base):
            return Restored.NO_BASE
        self.waits.restore(row.run_id, row.status, run.waits)
        for flow_hash, blueprint in run.blueprints:
            self.blueprints.setdefault(flow_hash, blueprint)
        self.runs[row.run_id] = MemoryRun.restored(row, run.records)
        if row.status is Status.RUNNING:
            self.running[row.run_id] = None
        if row.signal is not None:
            self.signalled[row.run_id] = None
        return Restored.RESTORED
