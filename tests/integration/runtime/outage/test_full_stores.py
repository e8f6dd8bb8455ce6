"""A store that takes no writes for a while: what was done is kept, and no effect is repeated."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import redis

from everstep import Context, Durability, Flow, Host, node
from everstep.client.host import AsyncHost
from everstep.errors import StoreNotWritable, ValueNotStorable
from everstep.runtime.workers import backpressure
from everstep.stores.artifacts import ArtifactFolder
from everstep.stores.os_errors import explain as explain_os
from everstep.stores.sqlite.database import explain as explain_sqlite
from everstep.testing import ManualClock
from tests.servers.running import private
from tests.servers.valkey import ValkeyServer


class Switch:
    """Makes a store full, and gives it room again."""

    def __init__(self, fill: Callable[[], None], empty: Callable[[], None], says: str) -> None:
        self.fill = fill
        self.empty = empty
        self.says = says


def drive_through(url: str, switch_of: Callable[[AsyncHost], Switch], text: str) -> tuple[Counter[str], str]:
    """Let a worker drive an effect whose record a full store cannot take; returns calls and what was said."""
    calls: Counter[str] = Counter()
    switch: list[Switch] = []

    @node(output="paid", effects="effectful", idempotency_key="auto")
    async def charge(amount: int, ctx: Context) -> str:
        calls["charge"] += 1
        switch[0].fill()
        return text

    @node(output="mail")
    async def tell(paid: str) -> int:
        calls["tell"] += 1
        return len(paid)

    flow = Flow("billing", [charge, tell], durability=Durability("strong"))
    said: list[str] = []

    async def work() -> None:
        async with AsyncHost(url) as host:
            switch.append(switch_of(host))
            await host.start(flow, {"amount": 1}, run_id="r")
            worker = host.worker([flow])
            working = asyncio.ensure_future(worker.run())
            async with asyncio.timeout(30):
                while host._services.weather.error is None:
                    assert not worker.stats.handed_back, "the finished step was thrown away"
                    await asyncio.sleep(0.01)
                said.append(str(host._services.weather.error))
                switch[0].empty()
                while not worker.stats.completed:
                    await asyncio.sleep(0.01)
            worker.stop()
            await working

    asyncio.run(work())
    assert switch[0].says in said[0]
    return calls, said[0]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "LONGEST", 0.2)


def test_a_full_disk_under_sqlite_repeats_no_effect(tmp_path: Path) -> None:
    def switch_of(host: AsyncHost) -> Switch:
        store: Any = host.durability.checkpoint_store

        def limit(pages: int) -> None:
            store._db.execute(f"PRAGMA max_page_count = {pages}")

        return Switch(lambda: limit(1), lambda: limit(1_000_000), "is full")

    calls, _ = drive_through(f"sqlite:///{tmp_path}/runs.db", switch_of, "x" * 60_000)
    assert calls == {"charge": 1, "tell": 1}


NO_ROOM = """
create function {schema}.no_room() returns trigger language plpgsql as $$
begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
create trigger full_disk before insert on {schema}.{table} for each row execute function {schema}.no_room();
"""


@pytest.mark.parametrize(("table", "size"), [("checkpoints", 10), ("artifacts", 2_000_000)])
def test_a_full_disk_under_postgresql_repeats_no_effect(
    postgres_server: str, new_postgres_url: str, table: str, size: int
) -> None:
    schema = new_postgres_url.partition("schema=")[2]
    with psycopg.connect(postgres_server, autocommit=True) as connection:

        def switch_of(_: AsyncHost) -> Switch:
            fill = NO_ROOM.format(schema=schema, table=table)
            empty = f"drop trigger full_disk on {schema}.{table}"
            return Switch(lambda: run(fill), lambda: run(empty), "is full")

        def run(statement: str) -> None:
            connection.execute(statement.encode())

        calls, _ = drive_through(new_postgres_url, switch_of, "x" * size)
    assert calls == {"charge": 1, "tell": 1}


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with private(ValkeyServer) as running:
        assert isinstance(running, ValkeyServer)
        yield running


@pytest.mark.parametrize("size", [10, 2_000_000], ids=["record", "artifact"])
def test_a_redis_without_memory_repeats_no_effect(valkey: ValkeyServer, size: int) -> None:
    with redis.Redis(port=valkey.port) as admin:

        def switch_of(_: AsyncHost) -> Switch:
            admin.flushall()
            full = lambda: admin.config_set("maxmemory", "1mb")  # noqa: E731
            return Switch(full, lambda: admin.config_set("maxmemory", "0"), "maxmemory")

        calls, _ = drive_through(valkey.url, switch_of, "x" * size)
    assert calls == {"charge": 1, "tell": 1}


def test_a_redis_that_is_read_only_for_a_while_repeats_no_effect(valkey: ValkeyServer) -> None:
    with redis.Redis(port=valkey.port) as admin:

        def switch_of(_: AsyncHost) -> Switch:
            admin.flushall()
            return Switch(
                lambda: admin.replicaof("127.0.0.1", "1"), lambda: admin.replicaof("NO", "ONE"), "read-only"
            )

        calls, _ = drive_through(valkey.url, switch_of, "x")
    assert calls == {"charge": 1, "tell": 1}


def test_a_full_disk_under_the_artifacts_repeats_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = [False]
    write = ArtifactFolder._write

    def full(self: ArtifactFolder, *given: Any) -> str:
        if is_full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, *given)

    monkeypatch.setattr(ArtifactFolder, "_write", full)

    def switch_of(_: AsyncHost) -> Switch:
        fill, empty = (lambda: is_full.__setitem__(0, True)), (lambda: is_full.__setitem__(0, False))
        return Switch(fill, empty, "No space left")

    calls, _ = drive_through(f"sqlite:///{tmp_path}/runs.db", switch_of, "x" * 2_000_000)
    assert calls == {"charge": 1, "tell": 1}


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_value_larger_than_a_server_keeps_fails_its_node_at_once(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent all the same makes the server hang up, as if it were out of reach."""
    monkeypatch.setattr(f"everstep.stores.{kind}.{'artifacts' if kind == 'postgres' else 'blobs'}.MOST", 1000)
    url = request.getfixturevalue(f"{kind}_url")
    calls: Counter[str] = Counter()

    @node(output="b", effects="effectful", idempotency_key="auto")
    def film(a: int) -> bytes:
        calls["film"] += 1
        return bytes(a)

    flow = Flow("film", [film], durability=Durability("strong", blob_threshold=500))
    with Host(url, clock=ManualClock()) as host:
        assert host.run(flow, {"a": 900}).status == "completed"
        host.start(flow, {"a": 2000}, run_id="large")
        assert host.work([flow], until_idle=True).failed == 1
        failed = host.run(flow, run_id="large")
        assert failed.error is not None and failed.error.code == "value.not_storable"
        assert "at most" in failed.error.message and "blobs=" in failed.error.message
        with pytest.raises(ValueNotStorable):
            host.start(Flow("given", [give]), {"text": "x" * 2_000_000})
    assert calls == {"film": 2}


@node(output="b")
def give(text: str) -> int:
    return len(text)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_folder_without_room_is_not_writable_for_now(number: int) -> None:
    error = explain_os(OSError(number, os.strerror(number)), "write there")
    assert type(error) is StoreNotWritable and error.fix


@pytest.mark.parametrize("error", [apsw.FullError("full"), apsw.ReadOnlyError("no")])
def test_a_file_without_room_is_not_writable_for_now(error: apsw.Error) -> None:
    assert type(explain_sqlite(error, Path("runs.db"))) is StoreNotWritable


def test_a_call_that_has_done_nothing_yet_does_not_wait_for_room(tmp_path: Path) -> None:
    """A run that cannot be accepted is refused at once: nothing of it could be lost."""
    clock = ManualClock()  # a caller that slept on it would never wake

    @node(output="b")
    def same(a: str) -> str:
        return a

    async def work() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
            store: Any = host.durability.checkpoint_store
            store._db.execute("PRAGMA max_page_count = 1")
            with pytest.raises(StoreNotWritable):
                await host.start(Flow("f", [same]), {"a": "x" * 60_000})

    asyncio.run(work())


def test_a_run_that_is_driven_by_its_caller_waits_a_while_for_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    clock, calls = ManualClock(), Counter[str]()

    async def work() -> None:
        async with AsyncHost(f"sqlite:///{tmp_path}/runs.db", clock=clock) as host:
            store: Any = host.durability.checkpoint_store

            @node(output="paid", effects="effectful", idempotency_key="auto")
            async def charge(amount: int) -> str:
                calls["charge"] += 1
                store._db.execute("PRAGMA max_page_count = 1")
                return "x" * 60_000

            running = asyncio.ensure_future(host.run(Flow("f", [charge]), {"amount": 1}))
            await asyncio.to_thread(clock.wait_for_sleepers)
            store._db.execute("PRAGMA max_page_count = 1000000")
            clock.advance(1)
            assert (await running).status == "completed"

    asyncio.run(work())
    assert calls == {"charge": 1}
