"""The ASGI application: the route table, with a guard, a log line and named errors around every handler."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everstep.client.audit import cutting, note_unnamed, unnamed
from everstep.client.host import AsyncHost
from everstep.client.looking.opened import keep_opened
from everstep.client.surroundings import new_request_id
from everstep.client.tracing import tracer_in
from everstep.errors import EverstepError, MethodNotAllowed, NoSuchPath
from everstep.graph.author.flow import Flow
from everstep.runtime.live.at_work import REQUEST
from everstep.server.access.admission import Access
from everstep.server.access.proxy import ProxyUsers
from everstep.server.access.roles import Role
from everstep.server.access.sessions import ACTS, LOOKS, Sessions
from everstep.server.access.withheld import without_reasons
from everstep.server.checks import SLASH, check_query
from everstep.server.endpoint import MAX_BODY, REFUSED, Endpoint, Service, caller_of
from everstep.server.guards import check, note_refusal, unnamed_caller
from everstep.server.lean import lean
from everstep.server.openapi import document
from everstep.server.redaction import redacted
from everstep.server.routes import ENDPOINTS
from everstep.server.wire import failure, for_viewer, internal

__all__ = ["ACTS", "LOOKS", "Application", "create_app", "flows_by_name"]

log = logging.getLogger("everstep.server")
access = logging.getLogger("everstep.access")

ROUTE = "everstep.route"
"""Where the scope of a request says which line of the table it met."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")

GONE = 499
"""What the log and the metrics say of a client that did not wait for its answer."""


def flows_by_name(flows: Iterable[Flow]) -> dict[str, Flow]:
    """Return flows by their name."""
    return {flow.name: flow for flow in flows}


def create_app(
    host: AsyncHost,
    flows: Iterable[Flow],
    *,
    token: str | None,
    tokens: str | Path | None = None,
    users: ProxyUsers | None = None,
    max_body: int = MAX_BODY,
    base_url: str = "",
    keep_alive: float = 15.0,
    works: bool = True,
    secret: str | None = None,
    acts_as: str = "",
) -> Application:
    """Return the service as an ASGI application. `token` is that of an admin without a name.

    `tokens` is a file of names and roles, and `users` says which proxy may name users. Without any of the
    three all requests of this machine are let in, so there must be no way for another to connect. A service
    that does not work drives no run: what is to go on is left to workers. With a token or a `secret`,
    browsers that have logged in to the console stay so when the service begins anew; `acts_as` is who acts
    there, if no name is known better.
    """
    file = None if tokens is None else Path(tokens)
    known = token if token is not None else secret
    sessions = Sessions(host.clock.now, None if known is None else known.encode(), place=base_url)
    access = Access(host.clock, token=token, tokens=file, users=users, sessions=sessions)
    service = Service(
        host=host,
        flows=flows_by_name(flows),
        access=access,
        base_url=base_url,
        max_body=max_body,
        keep_alive=keep_alive,
        works=works,
        acts_as=acts_as,
        document=document(
            ENDPOINTS,
            base_url=base_url,
            has_token=access.takes_tokens,
            user_header=None if users is None else users.header,
        ),
    )
    return Application(service)


class Application:
    """The service as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._tracer = tracer_in(service.host)
        note_unnamed(service.host)
        keep_opened(service.host)
        self._router: ASGIApp = Router(_routes(service), default=_nowhere, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        began = time.monotonic()
        status = GONE
        request_id = _request_id(scope, self.service.access.without_tokens)
        around = REQUEST.set(request_id)
        if b"%2f" in scope.get("raw_path", b"").lower():
            scope = {**scope, "path": _path_of(scope["raw_path"])}

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                said = (b"x-request-id", request_id.encode())
                message = {**message, "headers": [*message.get("headers", ()), said]}
            await send(message)

        tracing = self._tracer
        try:
            if tracing is None:
                await self._router(scope, receive, watched)
            else:
                with tracing.request(_known_method(scope["method"]), _header(scope, b"traceparent")) as span:
                    await self._router(scope, receive, watched)
                    span.answered(scope.get(ROUTE, "none"), status, request_id)
        finally:
            seconds = time.monotonic() - began
            method = _known_method(scope["method"])
            self.service.metrics.observe(method, scope.get(ROUTE, "none"), status, seconds)
            path = redacted(self.service.access.without_tokens(scope["path"]))
            access.info("%s %s %d %.1f ms", method, path, status, seconds * 1000)
            REQUEST.reset(around)


def _header(scope: Scope, name: bytes) -> str | None:
    """Return a header of a request that came once; none if it did not."""
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else None


def _request_id(scope: Scope, cut: Callable[[str], str]) -> str:
    """Return the id that the client gave its request, if it is one and no token is in it, else a new one."""
    given = _header(scope, b"x-request-id")
    is_one = given is not None and _REQUEST_ID.fullmatch(given) and cut(given) == given
    return given if is_one and given is not None else new_request_id()


def _path_of(raw: bytes) -> str:
    """Return the path of a request decoded, but for slashes that stand for no end of a segment."""
    parts = re.split(b"%2[fF]", raw.partition(b"?")[0])
    return SLASH.join(unquote(part.decode("ascii", "replace")) for part in parts)


def _known_method(method: str) -> str:
    """Return the method, or a word for those that a client made up: each would be a metric of its own."""
    return method if method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} else "OTHER"


def _routes(service: Service) -> list[Route]:
    by_path = groupby(sorted(ENDPOINTS, key=lambda e: e.path), key=lambda e: e.path)
    return [Route(path, _Resource(service, path, {e.method: e for e in group})) for path, group in by_path]


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    error = NoSuchPath("there is nothing here.", fix="See /openapi.json for what there is.")
    await failure(error)(scope, receive, send)


class _Resource:
    """The endpoints under one path."""

    def __init__(self, service: Service, path: str, endpoints: Mapping[str, Endpoint]) -> None:
        self._service = service
        self._path = path
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ROUTE] = self._path
        request = Request(scope, receive)
        method = request.method
        endpoint = self._endpoints.get("GET" if method == "HEAD" else method)
        response = self._not_that_way() if endpoint is None else await self._answer(endpoint, request)
        if method in ("GET", "HEAD"):
            response = await lean(request, response)
        if method == "HEAD":
            body, response = response, Response(status_code=response.status_code)
            response.raw_headers = body.raw_headers
        await response(scope, receive, send)

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        with cutting(self._service.access.without_tokens):
            return await self._answered(endpoint, request)

    async def _answered(self, endpoint: Endpoint, request: Request) -> Response:
        try:
            await check(self._service, endpoint, request)
            if endpoint.errors_in == "application/json":  # a link may gain parameters on its way to a person
                check_query(request, endpoint.query)
            with unnamed(unnamed_caller(self._service, endpoint, request)):
                response = await endpoint.handler(self._service, request)
            if (error := request.scope.get(REFUSED)) is not None:
                await note_refusal(self._service, endpoint, request, error)
            caller = caller_of(request)
            if caller is None or caller.role is not Role.VIEWER:
                return response
            return for_viewer(response, endpoint)
        except EverstepError as error:
            if error.http_status >= 500:
                text = self._service.access.without_tokens(str(error))
                log.error("%s %s: [%s] %s", request.method, self._path, error.code, text)
            elif endpoint.act:
                await note_refusal(self._service, endpoint, request, error)
            caller = caller_of(request)
            if caller is not None and (caller.role is Role.VIEWER or caller.is_restricted):
                error = without_reasons(error)
            return failure(error)
        except ClientDisconnect:
            return Response(status_code=GONE)
        except Exception:
            log.exception("%s %s failed", request.method, self._path)
            return internal()

    def _not_that_way(self) -> Response:
        allowed = sorted({*self._endpoints, *(["HEAD"] if "GET" in self._endpoints else [])})
        error = MethodNotAllowed(f"this path takes {', '.join(allowed)} only.", fix="Use one of those.")
        return failure(error, headers={"Allow": ", ".join(allowed)})
