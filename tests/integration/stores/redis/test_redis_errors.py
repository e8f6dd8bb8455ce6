"""What goes wrong with a Redis: each a clear error that says what to do, and nothing is lost."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from everstep import Durability, Flow, Host, Status, node, wait
from everstep.errors import (
    BadRequest,
    EverstepError,
    IncompatibleVersion,
    StoreError,
    StoreUnavailable,
    WaitSettled,
)
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.stores.redis.address import read_address
from everstep.stores.redis.link import Links, script
from tests.servers.proxy import Proxy, once, proxy_to
from tests.servers.running import free_port, private
from tests.servers.valkey import ValkeyServer

SECRET = "s3cret-w0rd"


@pytest.fixture(scope="module")
def private_server() -> Iterator[ValkeyServer]:
    with private(ValkeyServer) as running:
        assert isinstance(running, ValkeyServer)
        yield running


@pytest.fixture
def server(private_server: ValkeyServer) -> ValkeyServer:
    """A server of this file's own, as it was when it was started, and empty."""
    private_server.kill()
    private_server.start()
    with redis.Redis(port=private_server.port) as client:
        client.flushall()
    return private_server


@pytest.fixture
def admin(server: ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        yield client


@pytest.fixture
def proxy(redis_server: str) -> Iterator[Proxy]:
    at = urlsplit(redis_server)
    with proxy_to(at.hostname or "", at.port or 6379) as running:
        yield running


def proxied(proxy: Proxy, url: str) -> str:
    """Return the URL of a store as it is reached through a proxy."""
    at = urlsplit(url)
    return at._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()


class Work:
    """Three steps that are counted, one of them an effect."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

        @node(output="a")
        def first(start: int) -> int:
            self.calls["first"] += 1
            return start + 1

        @node(output="b", effects="effectful", idempotency_key="auto")
        def second(a: int) -> int:
            self.calls["second"] += 1
            return a * 10

        @node(output="c")
        def third(b: int) -> int:
            self.calls["third"] += 1
            return b + 1

        self.flow = Flow("work", [first, second, third], durability=Durability("strong"))

    def done(self) -> bool:
        return dict(self.calls) == {"first": 1, "second": 1, "third": 1}


def refusal(url: str, **options: Any) -> EverstepError:
    """Return the error of opening a store; no word of it, nor of what caused it, tells a password."""
    with pytest.raises(EverstepError) as caught:
        open_store(url, SystemClock(), **options)
    told: BaseException | None = caught.value
    while told is not None:
        assert SECRET not in str(told) + repr(told)
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"redis://me:{SECRET}@", "names no server"),
        (f"redis://me:{SECRET}@[::1/0", "cannot be read"),
        (f"redis://me:12?{SECRET}@localhost/0", "written as %3F"),
        (f"redis://me:{SECRET}@host:port/0", "whole number as its port"),
        (f"redis://me:{SECRET}@host/first", "number of a database"),
        (f"redis://me:{SECRET}@host/0?prefix=a b", "cannot be the prefix"),
        (f"redis://me:{SECRET}@host/0?prefix=", "cannot be the prefix"),
        (f"redis://me:{SECRET}@host/0?colour=red", "unknown option colour"),
        (f"redis://me:{SECRET}@host/0?timeout=soon", "timeout must be 0–3600 seconds"),
        (f"reds://me:{SECRET}@host/0", "is not a store"),
    ],
)
def test_a_wrong_url_is_refused_before_anything_is_asked(url: str, says: str) -> None:
    error = refusal(url)
    assert isinstance(error, BadRequest)
    assert says in error.message


def test_nothing_that_is_shown_of_an_address_tells_its_password() -> None:
    address = read_address(f"rediss://me:{SECRET}@host:6380/2?prefix=shop&timeout=3")
    assert SECRET not in f"{address} {address!r} {address.url} {address.shown} {Links(address)!r}"
    assert address.url == "rediss://me@host:6380/2?prefix=shop"
    assert (address.password, address.is_tls, address.keys) == (SECRET, True, "{shop}:")


def test_a_forked_child_talks_and_listens_on_connections_of_its_own(redis_url: str) -> None:
    program = """
import asyncio, os, signal, sys, threading
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
signal.alarm(60)
store = open_store(sys.argv[1], SystemClock()).store
store.changes()
assert asyncio.run(store.run("unknown")) is None
pid = os.fork()
for _ in range(50):
    store._call("probe")
    store.changes()
    assert store._call("run", "unknown")[1] == []
    assert asyncio.run(store.run("unknown")) is None
if pid == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program, redis_url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_server_that_is_not_there_is_out_of_reach() -> None:
    error = refusal(f"redis://me:{SECRET}@127.0.0.1:{free_port()}/0")
    assert isinstance(error, StoreUnavailable)
    assert "out of reach" in error.message
    assert isinstance(refusal(f"redis://:{SECRET}@no-such-host.invalid/0"), StoreUnavailable)


def test_what_does_not_speak_redis_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            client, _ = other.accept()
            with client:
                client.recv(1000)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        error = refusal(f"redis://127.0.0.1:{other.getsockname()[1]}/0")
    assert "does not speak Redis" in error.message


def test_a_server_that_never_answers_is_waited_for_only_so_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = refusal(f"redis://:{SECRET}@127.0.0.1:{mute.getsockname()[1]}/0?timeout=0.1")
    assert isinstance(error, StoreUnavailable)
    assert "did not answer in time" in error.message


def test_a_refused_login_is_told_without_the_password(server: ValkeyServer, admin: redis.Redis) -> None:
    admin.config_set("requirepass", "another")
    try:
        for url in (f"redis://:{SECRET}@127.0.0.1:{server.port}/0", server.url):
            assert "refused the login" in refusal(url).message
        right = server.url.replace("//", f"//:{'another'}@")
        opened = open_store(right, SystemClock())
        assert "another" not in opened.url and "another" not in repr(opened.store)
    finally:
        redis.Redis(port=server.port, password="another").config_set("requirepass", "")


def test_a_user_without_the_right_is_told_what_to_allow(server: ValkeyServer, admin: redis.Redis) -> None:
    admin.acl_setuser("poor", enabled=True, passwords=[f"+{SECRET}"], keys=["other:*"], categories=["+@all"])
    error = refusal(f"redis://poor:{SECRET}@127.0.0.1:{server.port}/0")
    assert "may not do this" in error.message and "~{everstep}:*" in error.fix
    admin.acl_setuser(
        "rich",
        enabled=True,
        passwords=[f"+{SECRET}"],
        keys=["{everstep}:*"],
        channels=["{everstep}:*"],
        categories=["+@all", "-@dangerous"],
        commands=["+info"],
    )
    work = Work()
    with Host(f"redis://rich:{SECRET}@127.0.0.1:{server.port}/0") as host:
        assert host.run(work.flow, {"start": 1}, run_id="A").status is Status.COMPLETED
        assert SECRET not in host.url
        assert host.storage.doctor().can_write


def test_a_database_number_that_is_not_there_is_named(server: ValkeyServer) -> None:
    assert "no database of this number" in refusal(f"{server.url[:-1]}999").message


def test_a_store_that_is_not_there_is_not_made_by_looking(server: ValkeyServer, admin: redis.Redis) -> None:
    error = refusal(server.url, create=False)
    assert "nothing under the prefix 'everstep'" in error.message
    assert admin.keys() == []


def test_what_a_newer_everstep_wrote_is_left_alone(server: ValkeyServer, admin: redis.Redis) -> None:
    admin.set("{everstep}:format", "2")
    assert isinstance(refusal(server.url), IncompatibleVersion)


def test_keys_of_another_program_are_not_taken_for_ours(server: ValkeyServer, admin: redis.Redis) -> None:
    admin.rpush("{everstep}:format", "theirs")
    error = refusal(server.url)
    assert "another program" in error.message and "?prefix=" in error.fix


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("everstep.stores.redis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    error = refusal("redis://localhost/0")
    assert "everstep[redis]" in error.fix


def interrupted(host: Host, work: Work, run_id: str) -> StoreError:
    """Run until the store fails, and return how."""
    with pytest.raises(StoreError) as caught:
        host.run(work.flow, {"start": 1}, run_id=run_id)
    return caught.value


def test_a_read_only_replica_takes_nothing_and_the_run_goes_on_elsewhere(
    server: ValkeyServer, admin: redis.Redis
) -> None:
    work = Work()
    with Host(server.url) as host:
        host.start(work.flow, {"start": 1}, run_id="A")
        admin.replicaof("127.0.0.1", "1")
        error = interrupted(host, work, "B")
        assert "read-only replica" in error.message and "primary" in error.fix
        with pytest.raises(StoreError, match="read-only replica"):
            host.resume("A", work.flow)
        assert host.info("A").status is Status.RUNNING
        admin.replicaof("NO", "ONE")
        assert host.resume("A", work.flow)["c"] == 21
    assert work.done()


def test_full_memory_takes_nothing_and_the_run_goes_on_with_more(
    server: ValkeyServer, admin: redis.Redis
) -> None:
    work = Work()
    with Host(server.url) as host:
        host.start(work.flow, {"start": 1}, run_id="A")
        before = {key: admin.dump(key) for key in admin.keys()}  # noqa: SIM118 - a command of Redis
        admin.config_set("maxmemory", "1mb")
        error = interrupted(host, work, "B")
        assert "maxmemory" in error.message and "nothing was written" in error.message
        with pytest.raises(StoreError, match="maxmemory"):
            host.resume("A", work.flow)
        admin.config_set("maxmemory", "0")
        assert {key: admin.dump(key) for key in admin.keys()} == before  # noqa: SIM118
        assert host.resume("A", work.flow)["c"] == 21
    assert work.done()


def test_scripts_that_the_server_forgot_are_sent_again(server: ValkeyServer, admin: redis.Redis) -> None:
    work = Work()
    with Host(server.url) as host:
        for run_id in "AB":
            admin.script_flush()
            assert host.run(work.flow, {"start": 1}, run_id=run_id)["c"] == 21
    assert admin.script_exists(script("put").sha) == [True]


def test_a_server_that_dies_and_returns_loses_nothing_and_repeats_nothing(server: ValkeyServer) -> None:
    calls: Counter[str] = Counter()

    @node(output="a")
    def first(start: int) -> int:
        calls["first"] += 1
        return start + 1

    @node(output="b")
    def second(a: int) -> int:
        calls["second"] += 1
        server.kill()
        threading.Timer(0.1, server.start).start()
        return a + 1

    @node(output="c")
    def third(b: int) -> int:
        calls["third"] += 1
        return b + 1

    flow = Flow("restarted", [first, second, third], durability="strong")
    with Host(server.url) as host:
        result = host.run(flow, {"start": 1}, run_id="A")
        assert (result.status, result["c"]) == (Status.COMPLETED, 4)
        assert [s.path for r in host.history("A") for s in r.steps] == ["@inputs", "first", "second", "third"]
    assert calls == {"first": 1, "second": 1, "third": 1}


def test_a_server_that_stays_away_stops_the_run_which_is_resumed_when_it_is_back(
    server: ValkeyServer,
) -> None:
    work = Work()
    with Host(server.url) as host:
        host.start(work.flow, {"start": 1}, run_id="A")
        server.kill()
        with pytest.raises(StoreUnavailable, match="out of reach"):
            host.resume("A", work.flow)
        server.start()
        assert host.resume("A", work.flow)["c"] == 21
    assert work.done()


@pytest.mark.parametrize("sequence", [1, 2, 3, 4])
@pytest.mark.parametrize("cut", ["reply", "request"])
def test_a_put_whose_connection_is_cut_is_there_once(
    proxy: Proxy, redis_url: str, cut: str, sequence: int
) -> None:
    work = Work()
    chosen = cut_at_put(sequence)
    with Host(proxied(proxy, redis_url)) as host:
        if cut == "reply":
            proxy.cuts_reply = chosen
        else:
            proxy.cuts_request = chosen
        result = host.run(work.flow, {"start": 1}, run_id="A")
        assert proxy.cut == 1
        assert (result.status, result["c"]) == (Status.COMPLETED, 21)
        assert [record.sequence for record in host.history("A")] == [1, 2, 3, 4]
    assert work.done()


def cut_at_put(number: int) -> Any:
    """Pick the n-th put among the requests."""
    names, seen = [script(name).sha.encode() for name in ("put", "step")], [0]

    def is_chosen(request: bytes) -> bool:
        is_put = any(name in request for name in names)
        seen[0] += is_put
        return is_put and seen[0] == number

    return is_chosen


def test_an_answer_whose_reply_is_lost_is_given_once(proxy: Proxy, redis_url: str) -> None:
    flow = Flow("asks", [wait.question("ask", prompt="?", output="said")], durability="strong")
    with Host(proxied(proxy, redis_url)) as host:
        first, second = (host.run(flow, run_id=run_id).waits[0] for run_id in "AB")
        host.answer(first.id, True)  # from now on the server knows the script
        proxy.cuts_reply = once(script("settle").sha.encode())
        assert host.answer(second.id, True).status == "settled"
        assert proxy.cut == 1
        with pytest.raises(WaitSettled):
            host.answer(second.id, True)
        assert host.resume("B", flow)["said"] is True


def test_a_worker_finds_out_that_its_wire_was_cut_and_listens_again(proxy: Proxy, redis_url: str) -> None:
    work = Work()
    reached = proxied(proxy, redis_url)
    store = open_store(reached, SystemClock()).store
    before = store.changes()
    proxy.is_down = True
    with Host(redis_url) as host:
        host.start(work.flow, {"start": 1}, run_id="A")
    pause = threading.Event()
    proxy.is_down = False
    for _ in range(300):
        if store.changes() != before:
            break
        pause.wait(0.01)
    assert store.changes() != before
    asyncio.run(store.close())
