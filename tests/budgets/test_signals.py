"""To send a signal, and to take one, costs the same however many there are and were in the run.

Counted are lines of Python, instructions of SQLite, rows that PostgreSQL reads, commands of Redis, and
bytes that a store of objects writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import psycopg
import pytest
from redis import Redis

from benchmarks import sizes
from everstep.model.enums import Status
from everstep.registry import Opened, open_store
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.stores.objects.store import ObjectStore
from everstep.stores.postgres import connections
from everstep.testing import ManualClock
from everstep.testing.conformance.inbox import inbox_of, listening, send
from everstep.testing.conformance.kit import Chain, Client, StoreKit
from everstep.testing.dict_bucket import DictBucket, DictObjects
from tests.budgets.lines import Count
from tests.servers.postgres import PostgresServer
from tests.servers.running import private
from tests.servers.valkey import ValkeyServer

SMALL = 40
"""So many signals of each sort, and eight times as many."""
MOST = 0.35
"""How large an exponent may be: a tree of eight times as many keys is a page deeper."""

FEW = 8
"""What is less is not told apart: PostgreSQL passes over a row or two that are no more."""

Costs = Callable[[Callable[[], Any]], float]


class Counted(NamedTuple):
    """A client of a store, and what tells how much some work does there."""

    client: Client
    costs: Costs
    settles: Callable[[], None] = lambda: None
    """Is called before anything is counted."""


def counted(opened: Callable[[Any], Opened], costs: Costs) -> Counted:
    clock = ManualClock()
    return Counted(Client(StoreKit(lambda: opened(clock), clock, None)), costs)  # type: ignore[arg-type]  # not looked at


@pytest.fixture
def memory() -> Iterator[Counted]:
    data = MemoryData()

    def opened(clock: Any) -> Opened:
        store = MemoryStore(clock, data)
        return Opened(store, store.artifacts)

    yield counted(opened, Count().of)


@pytest.fixture
def objects() -> Iterator[Counted]:
    yield counted(in_objects(DictObjects()), Count().of)


@pytest.fixture
def bytes_of_objects() -> Iterator[Counted]:
    there = DictObjects()

    def size(work: Callable[[], Any]) -> float:
        before = sum(len(data) for data, *_ in there.kept.values())
        work()
        return sum(len(data) for data, *_ in there.kept.values()) - before

    yield counted(in_objects(there), size)


def in_objects(there: DictObjects) -> Callable[[Any], Opened]:
    def opened(clock: Any) -> Opened:
        store = ObjectStore(DictBucket(there), clock)
        return Opened(store, store.artifacts)

    return opened


@pytest.fixture
def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    count = Count()

    def follow(connection: apsw.Connection) -> None:
        connection.set_progress_handler(count.instruction, 1)

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, follow])
    yield counted(lambda clock: open_store(f"sqlite:///{tmp_path}/runs.db?synchronous=off", clock), count.of)


@pytest.fixture
def own_postgres() -> Iterator[str]:
    """The URL of a server that nothing else uses, and that looks at no table by itself.

    One that it looks at while a few rows are in it is read whole by statements that were prepared then, until
    it looks again: within a minute, once so many rows were written that they count.
    """
    with private(PostgresServer) as server:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute("alter system set autovacuum = off")
            db.execute("select pg_reload_conf()")
        yield server.url


@pytest.fixture
def postgres(own_postgres: str, monkeypatch: pytest.MonkeyPatch) -> Counted:
    plans: list[str] = []
    really_connect = connections.connect

    def connect(at: Any) -> connections.Connection:
        connection = really_connect(at)
        connection.execute("load 'auto_explain'")
        for option in ("log_min_duration = 0", "log_analyze = on", "log_nested_statements = on"):
            connection.execute(f"set auto_explain.{option}")
        connection.execute("set auto_explain.log_level = notice")
        connection.add_notice_handler(lambda said: plans.append(str(said.message_primary)))
        return connection

    def read(work: Callable[[], Any]) -> float:
        """Return how many rows all statements read, those that a filter dropped, too.

        Tallies are folded by chance, about once in a thousand changes.
        """
        plans.clear()
        work()
        there = "\n".join(plan for plan in plans if "WITH folded AS" not in plan)
        found = [float(a) * int(b) for a, b in re.findall(r"rows=([\d.]+) loops=(\d+)", there)]
        return sum(found) + sum(map(int, re.findall(r"Rows Removed by [\w ]+: (\d+)", there)))

    monkeypatch.setattr(connections, "connect", connect)
    return counted(lambda clock: open_store(own_postgres, clock), read)


@pytest.fixture
def known_postgres(postgres: Counted, own_postgres: str) -> Counted:
    """The same, but that it has looked at all tables when the work is counted."""

    def look() -> None:
        with psycopg.connect(own_postgres, autocommit=True) as db:
            db.execute("vacuum analyze")

    return postgres._replace(settles=look)


@pytest.fixture
def redis() -> Iterator[Counted]:
    with private(ValkeyServer) as server, Redis.from_url(server.url) as admin:

        def commands(work: Callable[[], Any]) -> float:
            """Return how many commands the server did, those of scripts too."""
            admin.config_resetstat()
            work()
            told: dict[str, dict[str, float]] = admin.info("commandstats")
            return sum(of["calls"] for of in told.values())

        yield counted(lambda clock: open_store(server.url, clock), commands)


class Talk:
    """A run that is sent signals, and takes one turn after the other."""

    def __init__(self, client: Client, run_id: str) -> None:
        self.client = client
        self.chain: Chain = client.admit(run_id)
        self.turns = 0

    def aside(self) -> None:
        """Send what nothing takes."""
        self.turns += 1
        send(self.client, self.chain.run_id, f"aside-{self.turns}", "aside")

    def send(self) -> None:
        """Send what settles the wait that is open."""
        self.turns += 1
        send(self.client, self.chain.run_id, f"id-{self.turns}", "message")

    def open(self) -> None:
        wait = listening(self.chain, f"{self.chain.run_id}-{self.turns + 1}", "message")
        self.client.accept(self.chain, self.chain.following(status=Status.HALTED, waits=(wait,), pairs=True))

    def claim(self) -> None:
        self.chain.epoch = self.client.claim(self.chain.run_id).epoch

    def take(self) -> None:
        wait_id = f"{self.chain.run_id}-{self.turns}"
        assert self.client.wait(wait_id).status == "settled"
        taken = (f"id-{self.turns}",)
        commit = self.chain.following(closed=(wait_id,), taken=taken, pairs=True, status=Status.RUNNING)
        self.client.accept(self.chain, commit)

    def turn(self) -> None:
        self.open()
        self.send()
        self.claim()
        self.take()


STORES = ["memory", "objects", "bytes_of_objects", "sqlite", "postgres", "known_postgres", "redis"]


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_send_and_a_turn_cost_the_same_however_many_there_were(
    store: str, request: pytest.FixtureRequest
) -> None:
    client, costs, settles = request.getfixturevalue(store)
    found: dict[str, dict[int, float]] = {}
    for n in (SMALL, 8 * SMALL):
        talk = Talk(client, f"run-{n}")
        for _ in range(n):
            talk.turn()
            talk.aside()
        settles()
        cost = {name: costs(getattr(talk, name)) for name in ("aside", "open", "send", "claim", "take")}
        client.halt(talk.chain, talk.chain.wait(f"{n}"))
        cost["same"] = costs(lambda: send(client, talk.chain.run_id, "aside-2", "aside"))  # noqa: B023  # called at once
        cost["look"] = costs(lambda: inbox_of(client, talk.chain.run_id, name="message", limit=5))  # noqa: B023
        for name, figure in cost.items():
            found.setdefault(name, {})[n] = max(figure, FEW)
    client.close()
    assert {name: by for name, by in found.items() if sizes.exponent(by) > MOST} == {}, found
