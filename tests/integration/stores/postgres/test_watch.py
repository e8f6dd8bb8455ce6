"""Workers hear of work at once, and of everything else a little later, also without a notification."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from everstep import AsyncHost, Flow, Status, node
from everstep.ports.store import StopRequest
from everstep.registry import open_store
from everstep.stores.postgres.address import read_address
from everstep.stores.postgres.schema import read_queries
from everstep.stores.postgres.watch import LOOK, PostgresWatch, channel_of
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import Client, StoreKit
from tests.servers.proxy import proxy_before


@pytest.fixture
def client(postgres_url: str) -> Iterator[Client]:
    clock = ManualClock()
    opened = Client(StoreKit(lambda: open_store(postgres_url, clock), clock, None))  # type: ignore[arg-type]  # not looked at
    yield opened
    opened.close()


@pytest.fixture
def watch(client: Client, postgres_url: str) -> Iterator[PostgresWatch]:
    address = read_address(postgres_url)
    watching = PostgresWatch(address, read_queries(address))
    yield watching
    watching.close()


def soon(is_so: Callable[[], bool]) -> bool:
    """Wait for other threads and processes: long enough for a machine that has much to do."""
    ends = time.monotonic() + 60.0
    while not is_so() and time.monotonic() < ends:
        time.sleep(0.005)
    return is_so()


def test_every_write_takes_a_number(client: Client, postgres_url: str) -> None:
    """The number is what is looked at for writes that are not announced."""
    address = read_address(postgres_url)
    query = read_queries(address)["written"]

    def written() -> int:
        with psycopg.connect(address.url) as connection:
            found = connection.execute(query).fetchone()
            assert found is not None
            return int(found[0])

    chain = client.admit("run")
    others = [client.admit(f"run-{k}") for k in range(4)]
    client.halted("halted", "w", due_in=1)
    client.halted("asked", "asked")
    client.clock.advance(2)
    writes: dict[str, Callable[[], object]] = {
        "admit": lambda: client.admit("another"),
        "put": lambda: client.extend(chain, [b"2"]),
        "end": lambda: client.accept(others[0], others[0].final()),
        "fire": lambda: client.fire("halted"),
        "settle": lambda: client.settle("asked"),
        "change": lambda: client.halted("third", "third") and client.change("third", generation=2),
        "claim": lambda: client.claim("run-1", others[1].owner),
        "claim due": lambda: client.due(),
        "release": lambda: client.release(others[2].lease()),
        "signal": lambda: client.call(client.store.request_stop("run-3", StopRequest.CANCEL)),
        "set aside": lambda: client.set_aside("run-3", 1),
    }
    for name, write in writes.items():
        before = written()
        write()
        assert written() > before, name


def test_work_is_heard_of_before_anybody_looks(
    client: Client, watch: PostgresWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.stores.postgres.watch.LOOK", 3600.0)
    numbers = itertools.count()

    def admit() -> None:
        client.admit(f"run-{next(numbers)}", has_lease=False)

    before = watch.count()

    def is_heard() -> bool:
        admit()  # again and again: on a busy machine the first one may come before it listens
        return watch.count() != before

    assert soon(is_heard)
    closing = threading.Thread(target=watch.close)
    closing.start()
    while closing.is_alive():  # it would look at whether it is closed in an hour, or when it hears of work
        admit()
        closing.join(0.02)


def test_a_step_is_seen_though_it_is_not_announced(client: Client, watch: PostgresWatch) -> None:
    chain = client.admit("run")
    for _ in range(3):
        assert soon(lambda: watch.count() == watch.count())
        time.sleep(3 * LOOK)
        before = watch.count()
        client.extend(chain, [b"step"])
        assert soon(lambda seen=before: watch.count() != seen)  # type: ignore[misc]  # a lambda with a default


def test_a_commit_that_takes_long_is_seen_once_it_is_there(
    client: Client, watch: PostgresWatch, postgres_url: str
) -> None:
    chain = client.admit("run")
    address = read_address(postgres_url)
    watch.count()
    with psycopg.connect(address.url) as slow:
        commit = chain.following()
        values = (commit.run_id, commit.sequence, commit.checkpoint_id, commit.base, 1, False, b"slow", False)
        slow.execute(f"select {address.quoted_schema}.put_step_1(%s, %s, %s, %s, %s, %s, %s, %s)", values)
        time.sleep(3 * LOOK)  # its number was seen, the step was not
        before = watch.count()
        time.sleep(2 * LOOK)
        assert watch.count() == before
        slow.commit()
        assert soon(lambda: watch.count() != before)
    assert len(client.get("run")) == 2


def test_a_client_that_lost_the_connection_listens_again(client: Client, postgres_url: str) -> None:
    with proxy_before(postgres_url) as (proxy, url):
        address = read_address(url)
        watch = PostgresWatch(address, read_queries(address))
        before = watch.count()
        proxy.drop_all()
        assert soon(lambda: watch.count() != before), "what was written meanwhile was not heard of"
        time.sleep(3 * LOOK)
        before = watch.count()
        client.admit("run", has_lease=False)
        assert soon(lambda: watch.count() != before)
        watch.close()


def test_a_store_that_is_out_of_reach_has_no_changes(postgres_url: str) -> None:
    with proxy_before(postgres_url) as (proxy, url):
        proxy.is_down = True
        address = read_address(url)
        watch = PostgresWatch(address, read_queries(address))
        assert isinstance(watch.count(), int)
        watch.close()


def test_the_name_of_a_channel_is_short_and_that_of_one_schema(postgres_url: str) -> None:
    address = read_address(postgres_url)
    assert len(channel_of(address._replace(schema="s" * 63))) < 64
    assert channel_of(address) != channel_of(address._replace(schema="other"))


def test_a_resting_worker_takes_a_run_without_looking_for_one(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.runtime.workers.worker.POLL", 3600.0)

    @node(output="b")
    def add(a: int) -> int:
        return a + 1

    flow = Flow("f", [add], durability="strong")

    async def work() -> None:
        async with AsyncHost(postgres_url) as host, AsyncHost(postgres_url) as elsewhere:
            working = asyncio.ensure_future(host.work([flow]))
            for run_id in ("first", "second"):  # once the first has ended, it rests
                await elsewhere.start(flow, {"a": 1}, run_id=run_id)
                async with asyncio.timeout(60):
                    while (await elsewhere.info(run_id)).status is not Status.COMPLETED:
                        await asyncio.sleep(0.01)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(work())


def test_a_watch_that_is_not_asked_listens_no_more_until_it_is(
    watch: PostgresWatch, client: Client, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told to a client that does not read it fills the server's queue, and then no one can tell."""
    monkeypatch.setattr("everstep.stores.postgres.watch.IDLE", LOOK)
    address = read_address(postgres_url)
    with psycopg.connect(address.url, autocommit=True) as other:
        pid = "select max(pid) from pg_stat_activity where query = 'UNLISTEN *' and state = 'idle'"
        before = watch.count()

        def is_quiet() -> bool:
            found = other.execute(pid).fetchone()
            return found is not None and found[0] is not None

        assert soon(is_quiet)
        client.admit("run", has_lease=False)
        assert soon(lambda: watch.count() > before)


def test_a_worker_is_woken_by_a_notification_until_it_ends(
    client: Client, watch: PostgresWatch, postgres_url: str
) -> None:
    woken, still_woken = threading.Event(), threading.Event()
    stop = watch.on_change(woken.set)
    watch.on_change(still_woken.set)
    watch.count()
    tell = f"NOTIFY {channel_of(read_address(postgres_url))}"
    with psycopg.connect(read_address(postgres_url).url, autocommit=True) as connection:
        connection.execute(tell.encode())
        assert woken.wait(60.0)
        stop()
        assert still_woken.wait(60.0)
        woken.clear()
        still_woken.clear()
        connection.execute(tell.encode())
        assert still_woken.wait(60.0)
    assert not woken.is_set()
