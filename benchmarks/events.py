"""How long one event takes that lets many runs go on, beside the least that a store must do for it.

    python -m benchmarks.events [--waits 1000] [--rounds 3] [--json] URL...

Without URLs: memory, SQLite, a folder, and PostgreSQL, Redis, S3 from the servers of the tests. The publisher
is a client of its own, which has not seen the runs before. Raw is one write of 300 bytes for each wait, as
the store does it best: one transaction, one pipeline, sixteen requests at once, or sixteen files being
synced. Given are the fastest round of each, and the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import redis

from everstep import AsyncHost, Flow, wait
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.stores.objects.cloud.address import read_address
from everstep.stores.objects.cloud.bucket import Cloud
from tests.servers.parts import within
from tests.servers.postgres import PostgresServer, fresh_schema
from tests.servers.running import shared
from tests.servers.seaweed import SeaweedServer, key_in_the_environment
from tests.servers.valkey import ValkeyServer, fresh_prefix

ROW = b"x" * 300
AT_ONCE = 16
waiting = Flow("waiting", [wait.event("paid", match={"order": "order"})])
Raw = Callable[[int], float]
"""Writes so many rows, and returns the seconds that took."""


class Times(NamedTuple):
    """Seconds of one round."""

    ours: float
    raw: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("urls", nargs="*")
    parser.add_argument("--waits", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        for name, url in places(given.urls, stack):
            times = [asyncio.run(one_round(url, given.waits)) for _ in range(given.rounds)]
            found[name] = {
                "ours": min(it.ours for it in times),
                "raw": min(it.raw for it in times),
                "ratio": median(it.ours / it.raw for it in times),
            }
            if not given.json:
                ours, raw, ratio = found[name].values()
                print(f"{name:>10}  {ours:7.3f} s  raw {raw:7.3f} s  {ratio:6.1f} x", flush=True)
    if given.json:
        print(json.dumps(found, indent=2))


def places(urls: list[str], stack: ExitStack) -> Iterator[tuple[str, str]]:
    """Yield where it is tried, each with a name."""
    if urls:
        yield from ((url.partition(":")[0], url) for url in urls)
        return
    yield "memory", "memory:"
    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd()))
    yield "sqlite", f"sqlite:///{folder}/runs.db"
    yield "file", f"file://{folder}/runs"
    session = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    session.chmod(0o755)  # a server that may not be root has a folder in it
    postgres = stack.enter_context(shared(PostgresServer, session))
    yield "postgres", stack.enter_context(fresh_schema(postgres))
    valkey = stack.enter_context(shared(ValkeyServer, session))
    client = stack.enter_context(redis.Redis.from_url(valkey))
    yield "redis", stack.enter_context(fresh_prefix(valkey, client))
    seaweed = stack.enter_context(shared(SeaweedServer, session))
    stack.enter_context(key_in_the_environment())
    yield "s3", within(seaweed, "bench")


async def one_round(url: str, many: int) -> Times:
    """Let so many runs wait, and publish what they wait for."""
    order = str(uuid4())
    with raw_store(url) as raw:
        if url == "memory:":
            opened = open_store(url, SystemClock())
            async with AsyncHost(opened) as host:
                await halt(host, order, many)
                return Times(await publish(host, order, many), raw(many))
        async with AsyncHost(url) as host:
            await halt(host, order, many)
        async with AsyncHost(url) as host:
            return Times(await publish(host, order, many), raw(many))


async def halt(host: AsyncHost, order: str, many: int) -> None:
    room = asyncio.Semaphore(64)

    async def one() -> None:
        async with room:
            await host.run(waiting, {"order": order})

    await asyncio.gather(*(one() for _ in range(many)))


async def publish(host: AsyncHost, order: str, many: int) -> float:
    await host.publish("warm", {})
    began = perf_counter()
    done = await host.publish("paid", {"order": order, "amount": 12})
    took = perf_counter() - began
    assert done.settled == many, done
    return took


@contextmanager
def raw_store(url: str) -> Iterator[Raw]:
    kind = url.partition(":")[0]
    made = {"sqlite": in_sqlite, "file": in_files, "postgresql": on_postgres, "redis": on_redis, "s3": on_s3}
    with made.get(kind, in_memory)(url) as raw:
        yield raw


def timed(work: Callable[[], Any]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


@contextmanager
def in_memory(url: str) -> Iterator[Raw]:
    yield lambda many: timed(lambda: dict.fromkeys(range(many), ROW))


@contextmanager
def in_sqlite(url: str) -> Iterator[Raw]:
    with tempfile.TemporaryDirectory(dir=Path(url.removeprefix("sqlite:///")).parent) as folder:
        db = sqlite3.connect(f"{folder}/raw.db", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE raw(n INTEGER PRIMARY KEY, value BLOB)")

        def write(many: int) -> None:
            db.execute("BEGIN")
            db.executemany("INSERT INTO raw(value) VALUES (?)", ((ROW,) for _ in range(many)))
            db.execute("COMMIT")

        yield lambda many: timed(lambda: write(many))
        db.close()


@contextmanager
def in_files(url: str) -> Iterator[Raw]:
    with tempfile.TemporaryDirectory(dir=Path(url.removeprefix("file://")).parent) as folder:

        def one(number: int) -> None:
            file = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(file, ROW)
            os.fsync(file)
            os.close(file)

        yield lambda many: timed(lambda: at_once(one, many))


def at_once(one: Callable[[int], object], many: int) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(many)))


@contextmanager
def on_postgres(url: str) -> Iterator[Raw]:
    table = f"raw_{uuid4().hex}"
    with psycopg.connect(url.partition("schema=")[0].rstrip("?&"), autocommit=True) as db:
        db.execute(f"CREATE TABLE {table}(n bigint PRIMARY KEY, value bytea)")
        write = f"INSERT INTO {table} SELECT n, %s FROM generate_series(1, %s) AS n"
        yield lambda many: timed(lambda: db.execute(write, (ROW, many)))
        db.execute(f"DROP TABLE {table}")


@contextmanager
def on_redis(url: str) -> Iterator[Raw]:
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        key = f"raw:{uuid4()}"

        def write(many: int) -> None:
            line = client.pipeline()
            for number in range(many):
                line.hset(f"{key}:{number}", "value", ROW)
            line.execute()

        yield lambda many: timed(lambda: write(many))


@contextmanager
def on_s3(url: str) -> Iterator[Raw]:
    bucket, part = Cloud(read_address(url), SystemClock()), uuid4()
    yield lambda many: timed(lambda: at_once(lambda n: bucket.create(f"raw/{part}/{n}", ROW), many))
    bucket.close()


if __name__ == "__main__":
    main()
