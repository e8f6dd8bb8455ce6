"""Listening: one socket, uvicorn, and a worker beside it, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import NamedTuple, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from everstep.errors import BadRequest
from everstep.server.app import Application
from everstep.server.guards import is_loopback

GRACE = 10
"""Seconds that requests under way have to finish after a stop."""
HEADERS_WITHIN = 10.0
"""Seconds within which the headers of a request must have come; a connection without is closed."""
MOST_CONNECTIONS = 1000
"""How many connections are open at once, streams included; one more is closed at once."""
_OWN_FILES = 128
"""Of what a process may have open, so much is kept for the store, its logs and its nodes."""
_AT_ONCE = 128
"""How many connections are accepted in one go: they are open before any can be refused."""

log = logging.getLogger("everstep.server")


class Limits(NamedTuple):
    """What clients are allowed, and how long they have."""

    connections: int = MOST_CONNECTIONS
    headers_within: float = HEADERS_WITHIN
    grace: float = GRACE


class SparseLog(logging.Filter):
    """Lets one line of each kind through in a second, so that no client can fill the disk."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, kind = self._now(), str(record.msg)[:80]
        if now - self._said.get(kind, float("-inf")) < 1:
            return False
        if len(self._said) > 100:
            self._said.clear()
        self._said[kind] = now
        return True


class _Connection(H11Protocol):
    """A connection of uvicorn that is not kept open for those who send nothing."""

    limits = Limits()
    _headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = _most_connections(self.limits.connections)
        if len(self.connections) > most:
            log.warning("more than %d connections: others are closed", most)
            transport.abort()
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._headers_came()
        elif self.timeout_keep_alive_task is None:
            self._expect_headers()

    def _expect_headers(self) -> None:
        """Start the time once: a byte now and then does not win more."""
        if self._headers_due is None and not self.transport.is_closing():
            self._headers_due = self.loop.call_later(self.limits.headers_within, self.transport.abort)

    def _headers_came(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None


def _most_connections(wanted: int) -> int:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if allowed < 0 else max(1, min(wanted, max(8, allowed - _OWN_FILES)))


def config_of(app: ASGIApp, limits: Limits = Limits()) -> uvicorn.Config:  # noqa: B008  an immutable tuple
    """Return how uvicorn is to serve the application."""
    return uvicorn.Config(
        app,
        http=type("_Limited", (_Connection,), {"limits": limits}),
        lifespan="off",
        access_log=False,  # ours cuts tokens out
        log_config=None,
        server_header=False,
        proxy_headers=False,
        ws="none",
        backlog=_AT_ONCE,
        timeout_graceful_shutdown=ceil(limits.grace),
    )


def listen(host: str, port: int, *, has_token: bool) -> socket.socket:
    """Open the socket to listen at. Without a token, only where no other machine can connect."""
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
    limits: Limits = Limits(),  # noqa: B008  an immutable tuple
) -> None:
    """Answer requests until SIGTERM or SIGINT; with a worker, drive runs meanwhile.

    What is under way gets a little time to finish. A worker that fails takes the service down with it.
    """
    server = _Server(config_of(app, limits))
    sparse = SparseLog()
    for name in ("asyncio", "uvicorn.error", log.name):
        logging.getLogger(name).addFilter(sparse)

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
        for name in ("asyncio", "uvicorn.error", log.name):
            logging.getLogger(name).removeFilter(sparse)
        if work is not None:
            work.cancel()
