"""The service behind a real socket, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from everstep import AsyncHost
from everstep.server.app import create_app
from everstep.server.serving import Limits, address_of, config_of, listen
from tests.integration.server.serving import FLOWS, KEY, TOKEN

Prepare = Callable[[AsyncHost], Awaitable[None]]


@contextmanager
def listening(folder: Path, prepare: Prepare | None = None, limits: Limits | None = None) -> Iterator[str]:
    """Serve a real database over HTTP and yield the address; `prepare` fills the store first."""
    listener = listen("127.0.0.1", 0, has_token=True)
    address = address_of(listener)
    is_ready = threading.Event()
    server: uvicorn.Server | None = None

    async def main() -> None:
        nonlocal server
        async with AsyncHost(f"sqlite:///{folder}/runs.db", key=KEY, base_url=address) as host:
            if prepare is not None:
                await prepare(host)
            app = create_app(host, FLOWS, token=TOKEN, base_url=address)
            server = uvicorn.Server(config_of(app, limits or Limits()))
            is_ready.set()
            await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="service")
    thread.start()
    try:
        assert is_ready.wait(10)
        yield address
    finally:
        assert server is not None
        server.should_exit = True
        thread.join(10)
        listener.close()
