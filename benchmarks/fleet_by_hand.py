"""The least that a fleet can do on PostgreSQL: admit, claim and finish, written by hand. See `fleet.py`.

Batches as everstep does: a worker claims as many runs as it has free places, in one statement; whatever its
runs have to write when the writer is free goes into one transaction, in one statement a kind.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import psycopg

SCHEMA = "by_hand"
BODY = b"\x00" * 250
"""What a step keeps."""
TABLES = f"""
DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA};
CREATE TABLE {SCHEMA}.runs (run_id bigint PRIMARY KEY, flow text NOT NULL, status text NOT NULL, owner text,
                            expires_at timestamptz, input bytea NOT NULL, output bytea);
CREATE INDEX ON {SCHEMA}.runs (flow, run_id) WHERE status = 'waiting';
CREATE TABLE {SCHEMA}.steps (run_id bigint, sequence int, body bytea NOT NULL,
                             PRIMARY KEY (run_id, sequence));
"""
ADMIT = (
    f"INSERT INTO {SCHEMA}.runs SELECT *, 'flow', 'waiting', NULL, NULL, '\\x00' FROM unnest(%s::bigint[])"
)
CLAIM = f"""
UPDATE {SCHEMA}.runs SET status = 'running', owner = %s, expires_at = now() + interval '30 s'
WHERE run_id IN (SELECT run_id FROM {SCHEMA}.runs WHERE flow = 'flow' AND status = 'waiting'
                 ORDER BY run_id LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING run_id, input
"""
STEP = f"INSERT INTO {SCHEMA}.steps SELECT * FROM unnest(%s::bigint[], %s::int[], %s::bytea[])"
FINISH = f"""
UPDATE {SCHEMA}.runs SET status = 'completed', owner = NULL, expires_at = NULL, output = ended.output
FROM unnest(%s::bigint[], %s::bytea[]) AS ended (run_id, output) WHERE runs.run_id = ended.run_id
"""
Write = tuple[int, int, bool]
"""A run, which of its steps, and whether that is its end."""


class Writer:
    """Writes on a thread what has come together by the time it is free."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)
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
        future = loop.run_in_executor(None, self._put, [what for what, _ in batch])
        future.add_done_callback(lambda _: self._ended(loop, [done for _, done in batch]))

    def _ended(self, loop: asyncio.AbstractEventLoop, batch: Sequence[asyncio.Future[None]]) -> None:
        for done in batch:
            done.set_result(None)
        self._is_writing = bool(self._queue)
        if self._queue:
            self._begin(loop)

    def _put(self, batch: Sequence[Write]) -> None:
        ended = [run_id for run_id, _, is_end in batch if is_end]
        steps = [(run_id, sequence) for run_id, sequence, _ in batch if sequence]
        with self._db.pipeline(), self._db.transaction():
            if steps:
                values = ([run for run, _ in steps], [k for _, k in steps], [BODY] * len(steps))
                self._db.execute(STEP, values)
            if ended:
                self._db.execute(FINISH, (ended, [BODY] * len(ended)))

    def close(self) -> None:
        self._db.close()


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(TABLES)


async def admit(url: str, runs: int, at_once: int) -> None:
    """Accept so many runs, as many in a transaction as there are callers at once."""
    with psycopg.connect(url, autocommit=True) as db:
        for first in range(0, runs, at_once):
            batch = list(range(first, min(first + at_once, runs)))
            await asyncio.to_thread(db.execute, ADMIT, (batch,))


async def work(url: str, steps: int, concurrency: int) -> int:
    """Drive whatever is there, and return how many runs that were."""
    writer, owner = Writer(url), str(os.getpid())
    driving: set[asyncio.Task[None]] = set()
    claimed = 0

    async def drive(run_id: int) -> None:
        for sequence in range(1, steps + 1):
            await writer.write((run_id, sequence, sequence == steps))
        if not steps:
            await writer.write((run_id, 0, True))

    with psycopg.connect(url, autocommit=True) as claims:

        def claim(room: int) -> list[Any]:
            return claims.execute(CLAIM, (owner, room)).fetchall()

        while True:
            found = await asyncio.to_thread(claim, concurrency - len(driving))
            claimed += len(found)
            driving |= {asyncio.ensure_future(drive(run_id)) for run_id, _ in found}
            if not driving:
                break
            _, driving = await asyncio.wait(driving, return_when=asyncio.FIRST_COMPLETED)
    writer.close()
    return claimed
