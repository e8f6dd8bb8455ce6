"""The metrics of a worker over HTTP, on a thread of its own: nodes may hold up the loop of the worker.

It answers `/metrics`, `/healthz` and `/readyz`. Apart from the service, which has all of these and more.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from everstep.client.host import AsyncHost
from everstep.errors import BadRequest, EverstepError, Forbidden, MethodNotAllowed, NoSuchPath, Unauthorized
from everstep.runtime.metrics.exposition import CONTENT_TYPE
from everstep.server.guards import is_loopback
from everstep.server.probe import Probe
from everstep.server.serving import config_of
from everstep.server.shapes import Health, Readiness
from everstep.server.wire import HEADERS, answer, failure


def place_of(text: str) -> tuple[str, int]:
    """Read `[HOST:]PORT`; without a host it is this machine alone."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (host.startswith("[") != host.endswith("]")):
        raise BadRequest(f"--metrics {text!r} is not [HOST:]PORT.", fix="Write --metrics 9464.")
    return host.strip("[]") or "127.0.0.1", int(port)


class Scrapes:
    """The application: metrics of a host for those who have the token, whether it lives and works for all."""

    def __init__(self, host: AsyncHost, *, token: str | None, is_stopping: Callable[[], bool]) -> None:
        self._host = host
        self._token = token
        self._is_stopping = is_stopping
        self._probe = Probe()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except EverstepError as error:
            response = failure(error)
        if request.method == "HEAD":
            body, response = response, Response(status_code=response.status_code)
            response.raw_headers = body.raw_headers
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        if path not in ("/metrics", "/healthz", "/readyz"):
            raise NoSuchPath("there is nothing here.", fix="There is /metrics, /healthz and /readyz.")
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed("this path takes GET, HEAD only.", fix="Use one of those.")
        if path == "/healthz":
            return answer(Health())
        if path == "/readyz":
            return await self._ready()
        self._check(request)
        return Response(await self._host.fleet.metrics(), headers={**HEADERS, "Content-Type": CONTENT_TYPE})

    async def _ready(self) -> Response:
        reason = "stopping" if self._is_stopping() else await self._probe.what_is_wrong(self._host)
        if reason is None:
            return answer(Readiness(status="ready"))
        return answer(Readiness(status="not ready", reason=reason), 503, {"Retry-After": "1"})

    def _check(self, request: Request) -> None:
        """Raise unless the request has the token; without one, unless it comes from this machine's user."""
        if self._token is None:
            self._check_local(request)
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        digests = [_digest(text) for text in (given.strip(), self._token)]
        if scheme.lower() != "bearer" or not hmac.compare_digest(*digests):
            raise Unauthorized(
                "this needs the bearer token of the worker.", fix="Send Authorization: Bearer TOKEN."
            )

    def _check_local(self, request: Request) -> None:
        named = f"//{request.headers.get('host', '')}"
        if not is_loopback(_host_in(named)) or "origin" in request.headers:
            raise Forbidden(
                "this worker has no token, and takes requests for localhost only.",
                fix="Call it as localhost and not from a web page, or give it a token.",
            )


def _digest(text: str) -> bytes:
    """Hash a token, so that the time of a comparison tells nothing of its length."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _host_in(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class _Server(uvicorn.Server):
    """uvicorn without signals: those are the worker's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def scraped(app: Scrapes, listener: socket.socket) -> Iterator[None]:
    """Answer on a thread for as long as this lasts."""
    server = _Server(config_of(app))
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listener])), name="everstep-scrapes", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        thread.join(2.0)
