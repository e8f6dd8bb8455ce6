"""A PostgreSQL that restarts, dies, or loses a reply: no step is lost, and none runs twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from everstep import AsyncHost, Durability, Flow, Host, Status, node, wait
from everstep.errors import StoreUnavailable
from everstep.ports.store import Commit, Verdict
from everstep.registry import open_store
from everstep.runtime.outage.store_retry import OUTAGE
from everstep.stores.postgres.address import read_address
from everstep.stores.postgres.connections import Connection, Connections, rows
from everstep.stores.postgres.store import PostgresStore
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import Client, StoreKit
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Nth, Proxy, once, proxy_before
from tests.servers.running import Server, private

STEPS = 6
PUTS = STEPS + 1
"""What a run of the flow puts: its admission, and each step; the last brings its end."""
PUT = b"\0everstep_"
"""What only the request of a put contains: the name of its prepared statement, after that of no portal."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with private(PostgresServer) as running:
        yield running


@pytest.fixture
def url(server: Server, request: pytest.FixtureRequest) -> str:
    """A schema of the test's own on the server that it may stop."""
    return f"{server.url}?schema=t{zlib.crc32(request.node.name.encode())}"


@pytest.fixture
def wire(postgres_url: str) -> Iterator[tuple[Proxy, str]]:
    with proxy_before(postgres_url) as between:
        yield between


class Chain:
    """A flow of some steps that notes what ran, and lets the test do something inside a step."""

    def __init__(self, **inside: Callable[[], object]) -> None:
        self.ran: Counter[str] = Counter()
        nodes = [self._step(k, inside.get(f"s{k}")) for k in range(STEPS)]
        self.flow = Flow("chain", nodes, durability="strong")

    def _step(self, k: int, inside: Callable[[], object] | None) -> Any:
        def step(previous: int) -> int:
            self.ran[f"s{k}"] += 1
            if inside is not None:
                inside()
            return previous + 1

        return node(output="out", name=f"s{k}")(step).with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}")

    def check(self, result: Any) -> None:
        assert result.status is Status.COMPLETED, result.error
        assert result[f"v{STEPS}"] == STEPS
        assert self.ran == {f"s{k}": 1 for k in range(STEPS)}


def restart(server: Server, end: Callable[[], object] | None = None) -> None:
    (end or server.stop)()
    server.start()


def test_a_run_goes_on_through_a_restart_of_its_server(server: Server, url: str) -> None:
    chain = Chain(s2=partial(restart, server), s4=partial(restart, server, server.kill))
    with Host(url) as host:
        chain.check(host.run(chain.flow, {"v0": 0}, run_id="r"))
        assert [info.status for info in host.runs()] == [Status.COMPLETED]
        assert len(host.history("r")) == PUTS


def test_what_was_done_while_the_server_was_away_is_kept_when_it_returns(server: Server, url: str) -> None:
    back = threading.Timer(1.5, server.start)

    def go_away() -> None:
        server.kill()
        back.start()

    chain = Chain(s3=go_away)
    with Host(url) as host:
        chain.check(host.run(chain.flow, {"v0": 0}))
    back.join()


def test_a_run_whose_server_stays_away_stops_and_goes_on_later(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.runtime.outage.store_retry.OUTAGE", (timedelta(milliseconds=10),))
    once = [server.kill]
    chain = Chain(s3=lambda: once and once.pop()())
    with Host(url) as host:
        with pytest.raises(StoreUnavailable, match="out of reach"):
            host.run(chain.flow, {"v0": 0}, run_id="r")
        server.start()
        assert len(host.history("r")) == 4
        assert host.run(chain.flow, run_id="r").status is Status.COMPLETED
    assert chain.ran == {f"s{k}": 2 if k == 3 else 1 for k in range(STEPS)}, "only s3 was never recorded"


@pytest.mark.parametrize("nth", range(1, PUTS + 1))
def test_a_reply_to_a_commit_that_is_lost_costs_no_step(wire: tuple[Proxy, str], nth: int) -> None:
    chain, (proxy, url), puts = Chain(), wire, Nth(PUT, nth)
    with Host(url) as host:
        proxy.cuts_reply = puts
        chain.check(host.run(chain.flow, {"v0": 0}, run_id="r"))
        assert (proxy.cut, puts.seen) == (1, PUTS + 1)
        assert len(host.history("r")) == PUTS


def test_lost_replies_of_many_runs_at_once_cost_no_step(wire: tuple[Proxy, str]) -> None:
    chains, (proxy, url) = [Chain() for _ in range(20)], wire

    async def drive() -> list[Any]:
        async with AsyncHost(url) as host:
            proxy.cuts_reply = Nth(PUT + b"group", 4)
            return await asyncio.gather(
                *(host.run(chain.flow, {"v0": 0}, run_id=f"r{k}") for k, chain in enumerate(chains))
            )

    for chain, result in zip(chains, asyncio.run(drive()), strict=True):
        chain.check(result)
    assert proxy.cut == 1


def test_connections_that_broke_while_idle_are_replaced(wire: tuple[Proxy, str]) -> None:
    chain, (proxy, url) = Chain(), wire
    with Host(url) as host:
        chain.check(host.run(chain.flow, {"v0": 0}, run_id="r"))
        proxy.drop_all()
        assert host.info("r").status is Status.COMPLETED
        assert len(host.runs()) == 1


def test_a_worker_lives_through_an_outage(server: Server, url: str) -> None:
    chain = Chain()

    async def work() -> None:
        async with AsyncHost(url) as host:
            working = asyncio.ensure_future(host.work([chain.flow]))
            for k in range(6):
                await host.start(chain.flow, {"v0": 0}, run_id=f"r{k}")
                if k == 2:
                    await asyncio.to_thread(restart, server)
            async with asyncio.timeout(60):
                while any(info.status is not Status.COMPLETED for info in await host.runs()):
                    await asyncio.sleep(0.05)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(work())
    assert chain.ran == {f"s{k}": 6 for k in range(STEPS)}


def test_a_put_that_waits_for_the_network_stops_no_other_task(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    put = PostgresStore.put_blocking

    def noting(store: PostgresStore, commits: Sequence[Commit]) -> list[Verdict]:
        threads.add(threading.current_thread().name.partition("_")[0])
        return put(store, commits)

    monkeypatch.setattr(PostgresStore, "put_blocking", noting)
    chain = Chain()

    async def drive() -> Any:
        async with AsyncHost(postgres_url) as host:
            return await host.run(chain.flow, {"v0": 0})

    chain.check(asyncio.run(drive()))
    assert threads == {"everstep-writer"}


def test_patience_ends_before_a_lease_that_was_just_renewed() -> None:
    assert sum(OUTAGE, timedelta()) < Durability().lease_ttl


def test_a_claim_whose_reply_was_lost_is_not_made_a_second_time(wire: tuple[Proxy, str]) -> None:
    proxy, url = wire
    clock = ManualClock()
    client = Client(StoreKit(lambda: open_store(url, clock), clock, None))  # type: ignore[arg-type]  # not looked at
    for number in range(4):
        client.admit(f"run-{number}", has_lease=False)
    owners: list[str] = []

    def new_owner() -> str:
        owners.append(f"owner-{len(owners)}")
        return owners[-1]

    proxy.cuts_reply = once(b"claim_8(")
    with pytest.raises(StoreUnavailable):
        client.claim_due(2, new_owner=new_owner)
    assert proxy.cut == 1
    assert sorted(client.leased(owners)) == sorted(client.leased()) and len(client.leased()) == 2
    client.close()


def test_a_forked_child_talks_and_listens_on_connections_of_its_own(postgres_url: str) -> None:
    program = """
import asyncio, os, sys
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
store = open_store(sys.argv[1], SystemClock()).store
store.changes()
asyncio.run(store.run("unknown"))
pid = os.fork()
for _ in range(50):
    assert asyncio.run(store.run("unknown")) is None
    asyncio.run(store.write_probe())
    store.changes()
if pid == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert asyncio.run(store.run("unknown")) is None
asyncio.run(store.close())
"""
    command = [sys.executable, "-c", program, postgres_url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_an_answer_whose_reply_was_lost_is_not_refused_as_a_second_one(wire: tuple[Proxy, str]) -> None:
    proxy, url = wire
    with Host(url) as host:
        host.run(Flow("asks", [wait.callback("paid")], durability="strong"), run_id="A1")
        [asked] = host.waits()
        proxy.cuts_reply = once(b"SET status = 'settled'")
        assert host.answer(asked.id, {"receipt": 7}).answer == {"receipt": 7}
        assert proxy.cut == 1


def test_after_a_connection_broke_none_of_those_beside_it_is_tried(wire: tuple[Proxy, str]) -> None:
    proxy, url = wire
    connections = Connections(read_address(url), 4)
    all_at_once = threading.Barrier(4)

    def ask(db: Connection) -> list[Any]:
        return rows(db, "SELECT 1")

    def hold(db: Connection) -> None:
        all_at_once.wait(30)

    threads = [threading.Thread(target=connections.use, args=(hold,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    proxy.drop_all()
    with pytest.raises(StoreUnavailable):
        connections.use(ask, repeats=False)
    assert connections.use(ask, repeats=False) == [(1,)]
    connections.close()
