"""What those who call a service from outside learn of it, and what they cannot do to it."""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from everstep.server import serving as serving_
from everstep.server.serving import listen
from tests.integration.server.listening import listening
from tests.integration.server.serving import ask_text, code_of, serving

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_small_answer_is_sent_at_once() -> None:
    """Without TCP_NODELAY each answer but the first of a connection comes 40 ms late."""

    async def run() -> int:
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            told.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen("127.0.0.1", 0, has_token=True) as listener:
            async with await asyncio.start_server(connected, sock=listener):
                _, writer = await asyncio.open_connection(*listener.getsockname())
                writer.close()
                return await told

    assert asyncio.run(run()) != 0


def test_a_store_that_fails_is_not_described_to_outsiders(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        file = tmp_path / "secret-place.db"
        async with serving(f"sqlite:///{file}") as s:
            waiting = await s.halted(ask_text)
            with closing(sqlite3.connect(file)) as other:
                other.execute("ALTER TABLE waits RENAME TO gone")
            for path in (f"/answers/{waiting.token}", f"/waits/{waiting.id}/answer"):
                refused = await s.client.post(path, json="Ann")
                assert code_of(refused) == (503, "store.failed")
                assert "secret-place" not in refused.text
                assert "log" in refused.json()["fix"]

    asyncio.run(run())
    assert "secret-place" in caplog.text


def connected(address: str) -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def is_closed(one: socket.socket) -> bool:
    """Wait until the other side closes; a limit of time is an error."""
    try:
        while one.recv(10_000):
            continue
        return True
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", HEALTH[:-2], HEALTH])
def test_headers_that_do_not_come_are_not_waited_for(tmp_path: Path, sent: bytes) -> None:
    limits = serving_.Limits(headers_within=0.3)
    with listening(tmp_path, limits=limits) as address, connected(address) as one:
        one.sendall(sent)
        if sent == HEALTH:
            assert b"200 OK" in one.recv(10_000)
            one.sendall(HEALTH[:9])
        assert is_closed(one)
        assert httpx.get(f"{address}/healthz").status_code == 200


def test_connections_beyond_a_limit_are_closed_and_the_service_can_be_reached_again(tmp_path: Path) -> None:
    # It is the limit that closes one here.
    with listening(tmp_path, limits=serving_.Limits(connections=8, headers_within=3600)) as address:
        held = [connected(address) for _ in range(8)]
        with connected(address) as one_more:
            assert is_closed(one_more)
        for one in held:
            one.close()
        for _ in range(400):  # until the service has seen that they are gone
            try:
                assert httpx.get(f"{address}/healthz").status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.05)
        else:
            pytest.fail("the service cannot be reached any more")


def test_what_is_logged_of_outsiders_is_one_line_a_second_of_each_kind() -> None:
    now = 0.0
    sparse = serving_.SparseLog(lambda: now)

    def passes(text: str) -> bool:
        return sparse.filter(logging.LogRecord("asyncio", logging.ERROR, "", 0, text, (), None))

    assert [passes("out of files"), passes("out of files"), passes("bad request")] == [True, False, True]
    now = 1.0
    assert passes("out of files")
