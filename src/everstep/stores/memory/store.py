"""`memory:` keeps runs in this process: for tests and for trying things out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec

from everstep.codec.records import digest_of
from everstep.engine import leases
from everstep.engine.claims import Lane, Room, Turns, choose
from everstep.engine.commits import admitted, followed, judge, judge_admission, judge_base
from everstep.engine.trimming import check_trim
from everstep.errors import LeaseConflict, RunNotFound
from everstep.model.enums import Status
from everstep.model.fleet import Quota, WorkerRow
from everstep.model.leases import Lease, Process
from everstep.model.waits import SettledBy, WaitChange, WaitRow, WaitStatus
from everstep.ports.health import Finding, Health, Level
from everstep.ports.restoring import Restored, WholeRun
from everstep.ports.store import (
    Capabilities,
    Commit,
    Counts,
    Recoded,
    RecodedWait,
    RunFilter,
    RunRow,
    Signal,
    StoredRecord,
    Verdict,
    WaitFilter,
)
from everstep.ports.system import Clock
from everstep.stores.memory.retention import MemoryData, MemoryRetention
from everstep.stores.memory.runs import MemoryRun
from everstep.stores.memory.waits import EARLIEST

__all__ = ["MemoryData", "MemoryStore"]

Waits = list[WaitRow]
Hashes = list[str]
Runs = list[RunRow]
Workers = list[WorkerRow]


class MemoryStore(MemoryRetention):
    """A store that forgets everything when the process ends."""

    capabilities = Capabilities(durable=False, single_writer=True, recodes=True, retains=True, restores=True)

    def __init__(self, clock: Clock, data: MemoryData | None = None) -> None:
        self._clock = clock
        self.data = data or MemoryData()
        self._turns = Turns()

    async def put(self, commits: Sequence[Commit]) -> list[Verdict]:
        return self.put_blocking(commits)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self.data.lock:
            self.data.writes += 1
            yield

    def put_blocking(self, commits: Sequence[Commit]) -> list[Verdict]:
        with self._writing():
            return [self._put_one(commit) for commit in commits]

    def _put_one(self, commit: Commit) -> Verdict:
        run = self.data.runs.get(commit.run_id)
        if commit.admission is not None:
            first = run.records[0].checkpoint_id if run is not None else None
            verdict = judge_admission(commit, first=first, is_erased=commit.run_id in self.data.tombstones)
            if verdict is None and commit.admission.forked_at is not None:
                verdict = self._judge_base(commit, commit.admission.parent_run_id, commit.admission.forked_at)
        elif run is None:
            return Verdict.UNKNOWN_RUN
        else:
            verdict = judge(
                commit,
                epoch=run.epoch,
                signal=run.row.signal,
                before=run.id_at(commit.sequence - 1),
                here=run.id_at(commit.sequence),
            )
        if verdict is not None:
            return verdict
        self.data.waits.check(commit)
        if run is None:
            self.data.admitted += 1
            row = admitted(commit, self._clock.now())
            run = self.data.runs[commit.run_id] = MemoryRun(row, commit.epoch, self.data.admitted)
        else:
            run.row = followed(run.row, commit)
        run.records.append(StoredRecord(commit.sequence, commit.checkpoint_id, commit.keyframe, commit.body))
        self._follow(run.row, commit)
        return Verdict.ACCEPTED

    def _judge_base(self, commit: Commit, parent_id: str | None, at: int) -> Verdict | None:
        parent = self.data.runs.get(parent_id or "")
        is_whole = parent is not None and at >= parent.row.trimmed_before
        base = parent.id_at(at) if parent is not None and is_whole else None
        return judge_base(commit, has_parent=parent is not None, base=base)

    def _follow(self, row: RunRow, commit: Commit) -> None:
        data = self.data
        for brought in (commit.admission, commit.adopts):
            if brought is not None:
                data.blueprints.setdefault(brought.flow_hash, brought.blueprint)
        if commit.status is not None or commit.admission is not None:
            if row.status is Status.RUNNING:
                data.running.setdefault(row.run_id)
            else:
                data.running.pop(row.run_id, None)
            if row.signal is None:
                data.signalled.pop(row.run_id, None)
        data.waits.take(commit, row.status)

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        with self.data.lock:
            run = self.data.runs.get(run_id)
            records = run.records if run is not None else []
            return [r for r in records if r.sequence >= first and (last is None or r.sequence <= last)]

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        records = await self.get(run_id, last=at)
        starts = [k for k, r in enumerate(records) if r.keyframe]
        return records[starts[-1] :] if starts else records

    async def trim(self, run_id: str, *, before: int) -> int:
        with self._writing():
            run = self.data.runs.get(run_id)
            if run is None:
                raise _unknown(run_id)
            there = run.at(before)
            forks = [r.row.forked_at for r in self.data.runs.values() if r.row.parent_run_id == run_id]
            check_trim(
                run_id,
                before=before,
                is_keyframe=there is not None and there.keyframe,
                oldest_fork=min((at for at in forks if at is not None), default=None),
                pinned=run.row.pinned,
            )
            whole = [r for r in run.records if r.sequence < before and not r.is_stub]
            for r in whole:
                run.records[r.sequence - run.row.first] = StoredRecord(
                    r.sequence, r.checkpoint_id, False, b"", digest_of(r.body)
                )
            if whole:
                run.row = msgspec.structs.replace(run.row, trimmed_before=before)
            return len(whole)

    async def recode(self, run_id: str, records: Sequence[Recoded], waits: Sequence[RecodedWait] = ()) -> int:
        with self._writing():
            run = self.data.runs.get(run_id)
            if run is None:
                raise _unknown(run_id)
            return run.recode(records) + self.data.waits.recode(waits)

    async def restore(self, run: WholeRun) -> Restored:
        with self._writing():
            return self.data.restore(run)

    async def lease(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> Lease:
        with self._writing():
            run = self.data.runs.get(run_id)
            if run is None:
                raise _unknown(run_id)
            return self._claim(run, owner, ttl, process, void_epoch)

    def _claim(
        self,
        run: MemoryRun,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        void_epoch: int | None = None,
    ) -> Lease:
        granted = leases.claim(
            run.row.lease,
            run_id=run.row.run_id,
            owner=owner,
            process=process,
            now=self._clock.now(),
            ttl=ttl,
            newest_epoch=run.epoch,
            has_progressed=run.row.checkpoints > run.claimed_at_sequence,
            void_epoch=void_epoch,
        )
        run.epoch = granted.epoch
        run.claimed_at_sequence = run.row.checkpoints
        run.row = msgspec.structs.replace(run.row, lease=granted, needs_repair=None)
        return granted

    async def claim_due(
        self,
        *,
        flows: Collection[tuple[str, str]],
        new_owner: Callable[[], str],
        ttl: timedelta,
        process: Process | None,
        limit: int,
        apart_from: Collection[str] = (),
        quotas: Mapping[str, Quota] | None = None,
    ) -> list[tuple[RunRow, Lease]]:
        with self.data.lock:
            now = self._clock.now()
            since: dict[str, datetime] = {}
            for run_id, at in self._due(now):
                row = self.data.runs[run_id].row
                is_mine = (row.flow_id, row.flow_hash) in flows and run_id not in apart_from
                if is_mine and not _is_held(row, now) and row.needs_repair is None:
                    since[run_id] = min(at, since.get(run_id, at))
            claimed = []
            lanes, room = self._lanes(since), Room(quotas or {}, self._live(now) if quotas else {})
            for run_id, lane in list(choose(lanes, limit=limit, room=room, turns=self._turns)):
                self._turns.note(lane)
                run = self.data.runs[run_id]
                try:
                    lease = self._claim(run, new_owner(), ttl, process)
                except LeaseConflict:
                    continue  # only the time was set ahead
                self.data.waits.fire(run_id, now)
                claimed.append((run.row, lease))
            self.data.writes += bool(claimed)
            return claimed

    def _lanes(self, since: Mapping[str, datetime]) -> Iterator[Lane]:
        lanes: dict[tuple[int, str, str], list[str]] = {}
        for run_id in sorted(since, key=since.__getitem__):
            row = self.data.runs[run_id].row
            lanes.setdefault((row.priority, row.flow_id, row.group or ""), []).append(run_id)
        return (Lane(*key, run_ids) for key, run_ids in lanes.items())

    def _live(self, now: datetime) -> Counter[tuple[str, str]]:
        return Counter((row.flow_id, row.group or "") for row in self._held(now))

    def _held(self, now: datetime) -> Iterator[RunRow]:
        return (run.row for run in self.data.runs.values() if _is_held(run.row, now))

    def _due(self, now: datetime) -> Iterator[tuple[str, datetime]]:
        """Yield runs that are due unless they have an owner, and since when."""
        for run_id in self.data.signalled:
            yield run_id, EARLIEST
        yield from self.data.waits.due(now)
        for run_id in self.data.running:
            row = self.data.runs[run_id].row
            yield run_id, row.created_at if row.lease is None else row.lease.expires_at

    async def renew(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        return self.renew_blocking(held, ttl)

    def renew_blocking(self, held: Sequence[Lease], ttl: timedelta) -> list[Lease | Verdict]:
        with self._writing():
            return [self._renew_one(lease, ttl) for lease in held]

    def _renew_one(self, lease: Lease, ttl: timedelta) -> Lease | Verdict:
        run = self.data.runs.get(lease.run_id)
        longer = leases.renewed(run.row.lease if run else None, lease, now=self._clock.now(), ttl=ttl)
        if run is None or longer is None:
            return Verdict.FENCED
        if run.row.signal is not None:
            return Verdict.SIGNALLED
        run.row = msgspec.structs.replace(run.row, lease=longer)
        return longer

    async def release_lease(self, lease: Lease) -> None:
        self.release_blocking(lease)

    def release_blocking(self, lease: Lease) -> None:
        with self._writing():
            run = self.data.runs.get(lease.run_id)
            if run is not None and run.row.lease is not None and run.row.lease.epoch == lease.epoch:
                run.row = msgspec.structs.replace(run.row, lease=None)

    async def leased(self, owners: Collection[str] | None = None) -> Runs:
        with self.data.lock:
            rows = list(self._held(self._clock.now()))
        return [row for row in rows if owners is None or (row.lease and row.lease.owner in owners)]

    async def set_aside(self, run_id: str, *, epoch: int, reason: str) -> bool:
        with self._writing():
            run = self.data.runs.get(run_id)
            if run is None or run.epoch != epoch or run.row.status.is_final:
                return False
            run.row = msgspec.structs.replace(run.row, lease=None, needs_repair=reason)
            return True

    async def report(self, worker: WorkerRow, ttl: timedelta) -> None:
        self.report_blocking(worker, ttl)

    def report_blocking(self, worker: WorkerRow, ttl: timedelta) -> None:
        with self.data.lock:
            now, workers = self._clock.now(), self.data.workers
            for gone in [worker_id for worker_id, (_, until) in workers.items() if until <= now]:
                del workers[gone]
            workers[worker.worker_id] = (msgspec.structs.replace(worker, seen_at=now), now + ttl)

    async def leave(self, worker_id: str) -> None:
        with self.data.lock:
            self.data.workers.pop(worker_id, None)

    async def workers(self) -> Workers:
        with self.data.lock:
            now = self._clock.now()
            alive = [worker for worker, until in self.data.workers.values() if until > now]
        return sorted(alive, key=lambda worker: (worker.started_at, worker.worker_id))

    async def run(self, run_id: str) -> RunRow | None:
        with self.data.lock:
            run = self.data.runs.get(run_id)
            return run.row if run is not None else None

    async def list(self, wanted: RunFilter) -> list[RunRow]:
        with self.data.lock:
            newest = self.data.admitted + 1 if wanted.before is None else self.data.number_of(wanted.before)
            rows = [run.row for run in reversed(self.data.runs.values()) if run.number < (newest or 0)]
        return [row for row in rows if wanted.matches(row)][: wanted.limit]

    async def blueprint(self, flow_hash: str) -> bytes | None:
        return self.data.blueprints.get(flow_hash)

    async def introduce(self, flow_id: str, flow_hash: str, blueprint: bytes) -> Hashes:
        with self._writing():
            known = self.data.blueprints
            known.setdefault(flow_hash, blueprint)
            rows = [run.row for run in self.data.runs.values() if run.row.flow_id == flow_id]
            wanted = {row.flow_hash for row in rows if not row.status.is_final}
            older = list(known)[: list(known).index(flow_hash)]
            return [found for found in older if found in wanted]

    async def signal(self, run_id: str, signal: Signal, note: bytes | None = None) -> bool:
        with self._writing():
            run = self.data.runs.get(run_id)
            if run is None or run.row.status.is_final:
                return False
            run.row = msgspec.structs.replace(run.row, signal=signal)
            self.data.signalled[run_id] = note
            return True

    async def signal_note(self, run_id: str) -> bytes | None:
        with self.data.lock:
            return self.data.signalled.get(run_id)

    async def waits(self, wanted: WaitFilter) -> Waits:
        with self.data.lock:
            return self.data.waits.matching(wanted)

    async def wait(self, wait_id: str) -> WaitRow | None:
        with self.data.lock:
            return self.data.waits.rows.get(wait_id)

    async def wait_of_token(self, token_hash: bytes) -> WaitRow | None:
        with self.data.lock:
            return self.data.waits.of_token(token_hash)

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
        with self._writing():
            now = at or self._clock.now()
            done = self.data.waits.settle(wait_id, by, answer, token_hash, now, details)
            return done, self.data.waits.rows.get(wait_id)

    async def fire(self, run_id: str) -> Waits:
        with self._writing():
            self.data.waits.fire(run_id, self._clock.now())
            return self.data.waits.settled(run_id)

    async def change_wait(self, wait_id: str, change: WaitChange) -> WaitRow | None:
        with self._writing():
            return self.data.waits.change(wait_id, change)

    async def next_due(self, *, after: datetime | None = None) -> datetime | None:
        with self.data.lock:
            return self.data.waits.next_due(after or EARLIEST)

    def changes(self) -> int:
        return self.data.writes

    async def counts(self) -> Counts:
        with self.data.lock:
            return Counts(
                runs=Counter(run.row.status.value for run in self.data.runs.values()),
                waits=Counter(w.kind for w in self.data.waits.rows.values() if w.status is WaitStatus.OPEN),
            )

    async def run_at(self, checkpoint_id: str) -> str | None:
        over = (Status.COMPLETED, Status.CANCELLED)
        with self.data.lock:
            for run in self.data.runs.values():
                if run.records[-1].checkpoint_id == checkpoint_id and run.row.status not in over:
                    return run.row.run_id
        return None

    async def ack(self, run_id: str) -> None:
        with self._writing():
            run = self.data.runs.get(run_id)
            if run is not None and run.row.acked_at is None:
                run.row = msgspec.structs.replace(run.row, acked_at=self._clock.now())

    async def health(self) -> Health:
        text = "it keeps everything in this process: when that ends, every run is lost."
        return Health(server="memory", findings=(Finding(Level.WARNING, text, "Give a URL to keep runs."),))

    async def write_probe(self) -> None:
        with self._writing():
            return

    async def close(self) -> None:
        return


def _is_held(row: RunRow, now: datetime) -> bool:
    return row.lease is not None and row.lease.expires_at > now


def _unknown(run_id: str) -> RunNotFound:
    return RunNotFound(f"there is no run {run_id!r}.", fix="Look with: everstep runs")
