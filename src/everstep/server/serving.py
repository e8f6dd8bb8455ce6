"""Listening: one socket, uvicorn, and a worker beside it, until somebody says stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import uvicorn

from everstep.errors import BadRequest
from everstep.server.app import Application
from everstep.server.guards import is_loopback

GRACE = 10
"""Seconds that requests under way have to finish after a stop."""


def listen(host: str, port: int, *, has_token: bool) -> socket.socket:
    """Open the socket to listen at. Without a token, only where nobody but this machine can connect."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BadRequest(f"there is no address {host!r}: {error}.", fix="Use --host 127.0.0.1.") from error
    family, _, _, _, address = found[0]
    if not has_token and not is_loopback(str(address[0])):
        raise BadRequest(
            f"{host} can be reached from other machines, and there is no token.",
            fix="Give one with --token-file or EVERSTEP_HTTP_TOKEN, or listen at 127.0.0.1.",
        )
    try:
        listener = socket.create_server(address, family=family, backlog=2048)
        # asyncio sends small answers at once (TCP_NODELAY) only where the socket names its protocol.
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())
    except OSError as error:
        reason = error.strerror or error
        raise BadRequest(
            f"cannot listen at {host} port {port}: {reason}.", fix="Use another --port."
        ) from error


def address_of(listener: socket.socket) -> str:
    """Return the URL of a socket as a browser on this machine would write it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn, stopped by us: it would raise the signal again and so end without giving runs back."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Works(Protocol):
    """What drives runs beside the service."""

    async def run(self) -> object: ...

    def stop(self) -> None: ...


async def serve(
    app: Application,
    listener: socket.socket,
    *,
    worker: Works | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until SIGTERM or SIGINT; with a worker, drive runs meanwhile.

    What is under way gets a little time to finish. A worker that fails takes the service down with it.
    """
    config = uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,  # ours cuts tokens out
        log_config=None,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(config)

    work = asyncio.ensure_future(worker.run()) if worker is not None else None

    def stop() -> None:
        if server.should_exit:
            server.force_exit = True
            if work is not None:
                work.cancel()
        app.service.stopping.set()
        server.should_exit = True
        if worker is not None:
            worker.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if work is not None:
        work.add_done_callback(lambda _: None if server.should_exit else stop())
    on_ready()
    try:
        await server.serve(sockets=[listener])
        if work is not None:
            await asyncio.wait([work])
            if not work.cancelled():
                work.result()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        if work is not None:
            work.cancel()
