"""What those who call a service from outside learn of it, and what they cannot do to it."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from everstep.server.serving import listen
from tests.integration.server.serving import ask_text, code_of, serving


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
