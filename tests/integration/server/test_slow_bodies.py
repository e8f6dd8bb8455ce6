"""A body that does not come in holds no other up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everstep.server import bodies
from everstep.server.app import Application
from tests.integration.server.serving import NO_SUCH_TOKEN, TOKEN, Serving, ask_text, serving

Receive = Callable[[], Any]


async def post(app: Application, path: str, receive: Receive) -> tuple[int, dict[bytes, bytes]]:
    """Send a request whose body comes as `receive` wants, and return status and headers."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {TOKEN}".encode())],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    async with asyncio.timeout(10):
        await app(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"])


async def silence() -> Any:
    await asyncio.Event().wait()


async def drip() -> Any:
    await asyncio.sleep(0.01)
    return {"type": "http.request", "body": b" ", "more_body": True}


async def path_of(s: Serving, kind: str) -> str:
    waiting = await s.halted(ask_text)
    return {"answers": f"/answers/{waiting.token}", "w": f"/w/{waiting.token}", "resume": "/resume"}[kind]


@pytest.mark.parametrize("kind", ["answers", "w", "resume"])
@pytest.mark.parametrize(("receive", "limit"), [(silence, "PATIENCE"), (drip, "LONGEST")])
def test_a_body_that_does_not_come_in_is_given_up(
    monkeypatch: pytest.MonkeyPatch, kind: str, receive: Receive, limit: str
) -> None:
    monkeypatch.setattr(bodies, limit, 0.1)

    async def run() -> None:
        async with serving() as s:
            path = await path_of(s, kind)
            status, headers = await post(s.app, path, receive)
            assert status == 408
            assert headers[b"connection"] == b"close"
            assert [w.status for w in await s.host.waits()] == ["open"]

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/answers/", "/w/"])
def test_the_body_of_a_caller_that_has_no_token_is_not_read(path: str) -> None:
    async def run() -> None:
        async with serving() as s:
            status, _ = await post(s.app, path + NO_SUCH_TOKEN, silence)
            assert status == 401

    asyncio.run(run())
