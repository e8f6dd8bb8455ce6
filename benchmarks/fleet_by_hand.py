"""The least that a durable fleet can do, by hand: admit, claim, write steps, finish. See `fleet_limit.py`.

What it must do is what any durable queue must, or its figures would compare with nothing:

- A run has an id of its caller, which is taken once; a row or a hash with its flow, status, times, owner,
  epoch and the end of its lease; and records: its input, its steps, its outcome, each as long as everstep's
  are, with a digest over itself and the record before.
- What is accepted is on the disk before the caller hears of it, as far as the server syncs.
- A claim takes waiting runs and those whose lease ran out, gives them an owner, an epoch and a lease, and
  reads how far they are. Two workers never get the same run.
- A worker that lost a run cannot write to it: every write names its epoch and the record that it follows,
  and is refused otherwise.

It batches as everstep does: a worker claims as many runs as it has free places, in one round trip; whatever
its runs have to write when the writer is free goes into one transaction, in one statement a kind. It has no
steps in parallel, no waits, retries, renewals, forks, quotas or priorities, no listing by status and no
clean-up.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import psycopg
import redis

SCHEMA = "by_hand"
FLOW, HASH = "flow", "0" * 32
TTL = 30
FIRST, STEP, LAST = 234, 165, 182
"""How long everstep's records are: of an admission, of a step, of the last step."""


class Claimed(NamedTuple):
    """A run that a worker may drive, and where it stands."""

    key: Any
    epoch: int
    sequence: int
    record_id: str
    digest: bytes


class Write(NamedTuple):
    """A record of a run that a worker has claimed."""

    key: Any
    epoch: int
    base: str
    sequence: int
    record_id: str
    body: bytes
    is_end: bool


class Queue(Protocol):
    """A place where runs are kept; each call is one round trip that returns when the server has synced."""

    def admit(self, runs: Sequence[tuple[str, str, bytes]]) -> None: ...

    def claim(self, owner: str, most: int) -> list[Claimed]: ...

    def write(self, batch: Sequence[Write]) -> None: ...

    def close(self) -> None: ...


def record(value: Any, before: bytes, size: int) -> bytes:
    """Return a record of this size: a digest over the one before and the value, and the value."""
    body = json.dumps({"value": value, "at": time.time()}).encode().ljust(size - 32)
    return hashlib.sha256(before + body).digest() + body


class OnPostgres:
    """Two tables, with the indexes that a claim needs."""

    TABLES = f"""
    DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA};
    CREATE TABLE {SCHEMA}.runs (
        run_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text COLLATE "C" NOT NULL UNIQUE,
        flow text COLLATE "C" NOT NULL, flow_hash text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL,
        created_at bigint NOT NULL, ended_at bigint, epoch bigint NOT NULL, owner text COLLATE "C",
        expires_at bigint);
    CREATE INDEX ON {SCHEMA}.runs (flow, flow_hash, run_key) WHERE status = 'running' AND expires_at IS NULL;
    CREATE INDEX ON {SCHEMA}.runs (flow, flow_hash, expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE {SCHEMA}.records (run_key bigint, sequence bigint, record_id text COLLATE "C" NOT NULL,
                                   body bytea NOT NULL, PRIMARY KEY (run_key, sequence));
    """
    ADMIT = f"""
    WITH given AS (
             SELECT * FROM unnest(%s::text[], %s::text[], %s::bytea[]) AS given (run_id, record_id, body)),
         admitted AS (
             INSERT INTO {SCHEMA}.runs (run_id, flow, flow_hash, status, created_at, epoch)
             SELECT run_id, '{FLOW}', '{HASH}', 'running', (extract(epoch FROM now()) * 1000000)::bigint, 0
             FROM given ON CONFLICT DO NOTHING RETURNING run_key, run_id)
    INSERT INTO {SCHEMA}.records
    SELECT run_key, 1, record_id, body FROM admitted JOIN given USING (run_id)
    """
    CLAIM = f"""
    WITH expired AS (
        SELECT run_key FROM {SCHEMA}.runs
        WHERE flow = '{FLOW}' AND flow_hash = '{HASH}'
          AND expires_at <= (extract(epoch FROM now()) * 1000000)::bigint
        ORDER BY expires_at LIMIT %(most)s FOR UPDATE SKIP LOCKED),
    waiting AS (
        SELECT run_key FROM {SCHEMA}.runs
        WHERE flow = '{FLOW}' AND flow_hash = '{HASH}' AND status = 'running' AND expires_at IS NULL
        ORDER BY run_key LIMIT %(most)s - (SELECT count(*) FROM expired) FOR UPDATE SKIP LOCKED),
    claimed AS (
        UPDATE {SCHEMA}.runs SET owner = %(owner)s, epoch = epoch + 1,
            expires_at = (extract(epoch FROM now()) * 1000000)::bigint + {TTL * 1_000_000}
        WHERE run_key IN (TABLE expired UNION ALL TABLE waiting) RETURNING run_key, epoch)
    SELECT run_key, epoch, newest.* FROM claimed, LATERAL (
        SELECT sequence, record_id, body FROM {SCHEMA}.records WHERE records.run_key = claimed.run_key
        ORDER BY sequence DESC LIMIT 1) AS newest
    """
    WRITE = f"""
    INSERT INTO {SCHEMA}.records
    SELECT given.run_key, given.sequence, given.record_id, given.body
    FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::bytea[])
             AS given (run_key, epoch, base, sequence, record_id, body)
         JOIN {SCHEMA}.runs ON runs.run_key = given.run_key AND runs.epoch = given.epoch
         JOIN {SCHEMA}.records AS before ON before.run_key = given.run_key
              AND before.sequence = given.sequence - 1 AND before.record_id = given.base
    """
    FINISH = f"""
    UPDATE {SCHEMA}.runs SET status = 'completed', ended_at = (extract(epoch FROM now()) * 1000000)::bigint,
        owner = NULL, expires_at = NULL
    FROM unnest(%s::bigint[], %s::bigint[]) AS ended (run_key, epoch)
    WHERE runs.run_key = ended.run_key AND runs.epoch = ended.epoch
    """

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True, prepare_threshold=2)

    @classmethod
    def prepare(cls, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(cls.TABLES)

    def admit(self, runs: Sequence[tuple[str, str, bytes]]) -> None:
        done = self._db.execute(self.ADMIT, [list(column) for column in zip(*runs, strict=True)])
        assert done.rowcount == len(runs)

    def claim(self, owner: str, most: int) -> list[Claimed]:
        found = self._db.execute(self.CLAIM, {"owner": owner, "most": most}).fetchall()
        return [Claimed(*row[:-1], row[-1][:32]) for row in found]

    def write(self, batch: Sequence[Write]) -> None:
        ended = [(one.key, one.epoch) for one in batch if one.is_end]
        with self._db.pipeline(), self._db.transaction():
            written = self._db.execute(self.WRITE, [list(column) for column in zip(*batch, strict=True)][:-1])
            if ended:
                self._db.execute(self.FINISH, [list(column) for column in zip(*ended, strict=True)])
        assert written.rowcount == len(batch)

    def close(self) -> None:
        self._db.close()


class OnRedis:
    """A hash and a list for each run, a list of those that wait, and leases by their end."""

    ADMIT = """
    local admitted = 0
    for k = 1, #ARGV, 3 do
        local run = KEYS[1] .. 'run:' .. ARGV[k]
        if redis.call('HSETNX', run, 'status', 'running') == 1 then
            redis.call('HSET', run, 'flow', 'flow', 'flow_hash', string.rep('0', 32),
                       'created_at', redis.call('TIME')[1], 'epoch', 0, 'newest', ARGV[k + 1])
            redis.call('RPUSH', run .. ':records', ARGV[k + 1] .. ARGV[k + 2])
            redis.call('RPUSH', KEYS[1] .. 'waiting', ARGV[k])
            admitted = admitted + 1
        end
    end
    return admitted
    """
    CLAIM = """
    local now = tonumber(redis.call('TIME')[1])
    local due = redis.call('ZRANGEBYSCORE', KEYS[1] .. 'leases', '-inf', now, 'LIMIT', 0, ARGV[2])
    if #due < tonumber(ARGV[2]) then
        local waiting = redis.call('LPOP', KEYS[1] .. 'waiting', tonumber(ARGV[2]) - #due)
        for _, run_id in ipairs(waiting or {}) do due[#due + 1] = run_id end
    end
    local found = {}
    for _, run_id in ipairs(due) do
        local run = KEYS[1] .. 'run:' .. run_id
        local epoch = redis.call('HINCRBY', run, 'epoch', 1)
        redis.call('HSET', run, 'owner', ARGV[1], 'expires_at', now + ARGV[3])
        redis.call('ZADD', KEYS[1] .. 'leases', now + ARGV[3], run_id)
        local records = run .. ':records'
        found[#found + 1] = {run_id, epoch, redis.call('LLEN', records), redis.call('LINDEX', records, -1)}
    end
    return found
    """
    WRITE = """
    local written = 0
    for k = 1, #ARGV, 6 do
        local run = KEYS[1] .. 'run:' .. ARGV[k]
        local seen = redis.call('HMGET', run, 'epoch', 'newest')
        if seen[1] == ARGV[k + 1] and seen[2] == ARGV[k + 2] then
            redis.call('RPUSH', run .. ':records', ARGV[k + 3] .. ARGV[k + 4])
            if ARGV[k + 5] == '1' then
                redis.call('HSET', run, 'newest', ARGV[k + 3], 'status', 'completed',
                           'ended_at', redis.call('TIME')[1])
                redis.call('HDEL', run, 'owner', 'expires_at')
                redis.call('ZREM', KEYS[1] .. 'leases', ARGV[k])
            else
                redis.call('HSET', run, 'newest', ARGV[k + 3])
            end
            written = written + 1
        end
    end
    return written
    """
    PREFIX = "{by_hand}:"

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._admit, self._claim, self._write = map(
            self._client.register_script, (self.ADMIT, self.CLAIM, self.WRITE)
        )

    @classmethod
    def prepare(cls, url: str) -> None:
        redis.Redis.from_url(url).flushdb()

    def admit(self, runs: Sequence[tuple[str, str, bytes]]) -> None:
        assert self._admit([self.PREFIX], [part for run in runs for part in run]) == len(runs)

    def claim(self, owner: str, most: int) -> list[Claimed]:
        found = self._claim([self.PREFIX], [owner, most, TTL])
        return [
            Claimed(run_id, epoch, sequence, record[:36].decode(), record[36:68])
            for run_id, epoch, sequence, record in found
        ]

    def write(self, batch: Sequence[Write]) -> None:
        told = [
            part
            for one in batch
            for part in (one.key, one.epoch, one.base, one.record_id, one.body, int(one.is_end))
        ]
        assert self._write([self.PREFIX], told) == len(batch)

    def close(self) -> None:
        self._client.close()


def kind_of(url: str) -> type[OnPostgres] | type[OnRedis]:
    return OnPostgres if url.startswith("postgres") else OnRedis


class Writer:
    """Writes on a thread what has come together by the time it is free."""

    def __init__(self, queue: Queue) -> None:
        self._target = queue
        self._queue: list[tuple[Write, asyncio.Future[None]]] = []
        self._is_writing = False

    async def write(self, what: Write) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._queue.append((what, done))
        if not self._is_writing:
            self._is_writing = True
            loop.call_soon(self._begin, loop)
        await done

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._queue = self._queue, []
        future = loop.run_in_executor(None, self._target.write, [what for what, _ in batch])
        future.add_done_callback(lambda written: self._ended(loop, written, [done for _, done in batch]))

    def _ended(
        self,
        loop: asyncio.AbstractEventLoop,
        written: asyncio.Future[None],
        batch: Sequence[asyncio.Future[None]],
    ) -> None:
        for done in batch:
            error = written.exception()
            done.set_result(None) if error is None else done.set_exception(error)
        self._is_writing = bool(self._queue)
        if self._queue:
            self._begin(loop)


async def admit(url: str, runs: int, at_once: int) -> None:
    """Accept so many runs, as many in a transaction as there are callers at once."""
    queue: Queue = kind_of(url)(url)
    for first in range(0, runs, at_once):
        count = min(at_once, runs - first)
        batch = [(str(uuid4()), str(uuid4()), record({"v0": 0}, b"", FIRST)) for _ in range(count)]
        await asyncio.to_thread(queue.admit, batch)
    queue.close()


async def work(url: str, steps: int, concurrency: int) -> int:
    """Drive whatever is there, and return how many runs that were."""
    claims: Queue = kind_of(url)(url)
    writes: Queue = kind_of(url)(url)
    writer, owner = Writer(writes), f"{os.getpid()}-{uuid4()}"
    driving: set[asyncio.Task[None]] = set()
    claimed = 0

    async def drive(run: Claimed) -> None:
        base, digest, last = run.record_id, run.digest, max(steps, 1)
        for k in range(1, last + 1):
            body = record(1, digest, LAST if k == last else STEP)
            write = Write(run.key, run.epoch, base, run.sequence + k, str(uuid4()), body, k == last)
            await writer.write(write)
            base, digest = write.record_id, body[:32]

    while True:
        found = await asyncio.to_thread(claims.claim, owner, concurrency - len(driving))
        claimed += len(found)
        driving |= {asyncio.ensure_future(drive(run)) for run in found}
        if not driving:
            break
        ended, driving = await asyncio.wait(driving, return_when=asyncio.FIRST_COMPLETED)
        for one in ended:
            one.result()
    claims.close()
    writes.close()
    return claimed
