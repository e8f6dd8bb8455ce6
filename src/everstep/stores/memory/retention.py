"""Pinning and erasing the runs that `memory:` keeps, and its artifacts."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from everstep.engine.trimming import judge_erasure
from everstep.errors import StateCorrupted
from everstep.model.enums import Status
from everstep.model.fleet import WorkerRow
from everstep.model.records import ArtifactRef
from everstep.model.removal import Erasure, Removal, StoredBlob, Tombstone
from everstep.ports.restoring import Restored, WholeRun, judge_there
from everstep.ports.retention import TombstoneFilter
from everstep.ports.store import RunRow
from everstep.ports.system import Clock
from everstep.stores.memory.runs import MemoryRun
from everstep.stores.memory.waits import MemoryWaits


class MemoryData:
    """What several memory stores may share, as processes share a database."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runs: dict[str, MemoryRun] = {}
        self.admitted = 0
        """How many runs ever were, so that each has a number that only grows."""
        self.tombstones: dict[str, tuple[int, Tombstone]] = {}
        """In order of erasing, with the number that the run had."""
        self.removals: list[Removal] = []
        self.blueprints: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.touched: dict[str, datetime] = {}
        """When artifacts were put last."""
        self.waits = MemoryWaits()
        self.running: dict[str, None] = {}
        """The runs that are running, in order of admission."""
        self.signalled: dict[str, bytes | None] = {}
        """Runs with a signal, each with the note on who left it."""
        self.workers: dict[str, tuple[WorkerRow, datetime]] = {}
        """What they said of themselves, and until when that counts."""
        self.writes = 0

    def number_of(self, run_id: str) -> int | None:
        """Return a run's place in the order of admission, also of one that was erased."""
        if run_id in self.runs:
            return self.runs[run_id].number
        return self.tombstones[run_id][0] if run_id in self.tombstones else None

    def is_whole(self, run_id: str | None, sequence: int, checkpoint_id: str | None) -> bool:
        """True if a run has this record itself, and no stub of it."""
        run = self.runs.get(run_id or "")
        there = run.at(sequence) if run is not None else None
        return there is not None and there.checkpoint_id == checkpoint_id and not there.is_stub

    def restore(self, run: WholeRun) -> Restored:
        """Keep a run that comes whole from another store; the caller holds the lock."""
        row = msgspec.structs.replace(run.row, lease=None)
        there = self.runs.get(row.run_id)
        if there is not None:
            return judge_there(run, there.row.checkpoints, there.id_at)
        if row.forked_at is not None and not self.is_whole(row.parent_run_id, row.forked_at, run.base):
            return Restored.NO_BASE
        self.waits.restore(row.run_id, row.status, run.waits)
        for flow_hash, blueprint in run.blueprints:
            self.blueprints.setdefault(flow_hash, blueprint)
        self.admitted += 1
        self.tombstones.pop(row.run_id, None)
        self.runs[row.run_id] = MemoryRun.restored(row, run.records, self.admitted)
        if row.status is Status.RUNNING:
            self.running[row.run_id] = None
        if row.signal is not None:
            self.signalled[row.run_id] = None
        return Restored.RESTORED


class MemoryRetention:
    """What makes a memory store one whose runs can be removed."""

    _clock: Clock
    data: MemoryData

    async def erase(self, run_id: str, *, head: int, reason: str, summary: bytes | None = None) -> Erasure:
        data = self.data
        with data.lock:
            data.writes += 1
            run, now = data.runs.get(run_id), self._clock.now()
            verdict = judge_erasure(
                is_there=run is not None,
                checkpoints=run.row.checkpoints if run is not None else 0,
                head=head,
                lease=run.row.lease if run is not None else None,
                now=now,
                has_forks=any(other.row.parent_run_id == run_id for other in data.runs.values()),
                pinned=run.row.pinned if run is not None else None,
            )
            if run is not None and verdict is Erasure.ERASED:
                del data.runs[run_id]
                data.running.pop(run_id, None)
                data.signalled.pop(run_id, None)
                data.waits.erase(run_id)
                data.tombstones[run_id] = run.number, _tombstone(run.row, now, reason, summary)
            return verdict

    async def tombstone(self, run_id: str) -> Tombstone | None:
        with self.data.lock:
            found = self.data.tombstones.get(run_id)
            return found[1] if found is not None else None

    async def tombstones(self, wanted: TombstoneFilter) -> list[Tombstone]:
        with self.data.lock:
            found = [tombstone for _, tombstone in reversed(self.data.tombstones.values())]
        if wanted.before is not None:
            ids = [tombstone.run_id for tombstone in found]
            found = found[ids.index(wanted.before) + 1 :] if wanted.before in ids else []
        return [one for one in found if wanted.flow_id in (None, one.flow_id)][: wanted.limit]

    async def forget(self, run_ids: Sequence[str]) -> int:
        with self.data.lock:
            self.data.writes += 1
            return sum(self.data.tombstones.pop(run_id, None) is not None for run_id in run_ids)

    async def pin(self, run_id: str, reason: str | None) -> bool:
        with self.data.lock:
            self.data.writes += 1
            run = self.data.runs.get(run_id)
            if run is None:
                return False
            run.row = msgspec.structs.replace(run.row, pinned=reason)
            return True

    async def note(self, removal: Removal) -> None:
        with self.data.lock:
            self.data.writes += 1
            self.data.removals.append(removal)

    async def removals(self, *, limit: int = 100, before: int | None = None) -> list[tuple[int, Removal]]:
        with self.data.lock:
            numbered = list(enumerate(self.data.removals, 1))
        older = [one for one in numbered if before is None or one[0] < before]
        return older[::-1][:limit]

    async def tidy(self, *, limit: int = 1000) -> int:
        return 0

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        named = data if plain is None else plain
        digest = hashlib.sha256(named).hexdigest()
        with self.data.lock:
            self.data.blobs[digest] = header + data
            self.data.touched[digest] = self._clock.now()
        return ArtifactRef("memory", digest, len(named), content_type, digest)

    def restore_checkpoint_blob(self, ref: ArtifactRef, stored: bytes) -> None:
        with self.data.lock:
            self.data.blobs[ref.checksum] = stored
            self.data.touched[ref.checksum] = self._clock.now()

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        try:
            return self.data.blobs[ref.checksum]
        except KeyError:
            raise StateCorrupted(f"artifact {ref.key} is missing from memory.") from None

    def list_checkpoint_blobs(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        with self.data.lock:
            keys = sorted(key for key in self.data.blobs if key > after)[:limit]
            return [StoredBlob(key, len(self.data.blobs[key]), self._untouched_for(key)) for key in keys]

    def delete_checkpoint_blobs(self, keys: Sequence[str], *, untouched_for: timedelta) -> list[str]:
        with self.data.lock:
            old = [k for k in keys if k in self.data.blobs and self._untouched_for(k) >= untouched_for]
            for key in old:
                self.data.blobs.pop(key, None)
                self.data.touched.pop(key, None)
            return old

    def _untouched_for(self, key: str) -> timedelta:
        now = self._clock.now()
        return now - self.data.touched.get(key, now)


def _tombstone(row: RunRow, now: datetime, reason: str, summary: bytes | None) -> Tombstone:
    return Tombstone(
        run_id=row.run_id,
        flow_id=row.flow_id,
        created_at=row.created_at,
        erased_at=now,
        reason=reason,
        summary=summary,
    )
