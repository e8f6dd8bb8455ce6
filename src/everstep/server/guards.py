"""Who may call what."""

from __future__ import annotations

import ipaddress
import logging
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request

from everstep.errors import BadRequest, EverstepError, Forbidden, RunNotFound, Unauthorized, WaitNotFound
from everstep.server.access.admission import Claims
from everstep.server.access.roles import ANYONE, Principal, Reach, Role
from everstep.server.callers import check_run_seen, check_wait_seen
from everstep.server.checks import run_id_of, wait_id_of
from everstep.server.endpoint import PRINCIPAL, Endpoint, Guard, Service, caller_of
from everstep.server.redaction import without_tokens

SHORTEST_TOKEN = 16
_LOOKS = ("GET", "HEAD")

log = logging.getLogger("everstep.server")


async def check(service: Service, endpoint: Endpoint, request: Request) -> None:
    """Raise unless whom a request comes from may do what it asks for, to what it names.

    What is refused is told to `note_refusal`, here and nowhere else.
    """
    if endpoint.guard is not Guard.BEARER:
        return
    try:
        request.scope[PRINCIPAL] = caller = _admitted(service, request)
        _check_role(caller, endpoint)
        if caller.is_restricted:
            await _check_reach(service, caller, endpoint, request)
    except (Unauthorized, Forbidden, RunNotFound, WaitNotFound) as error:
        note_refusal(Refusal.of(endpoint, request, error))
        raise


class Refusal(NamedTuple):
    """A request that was refused."""

    caller: Principal | None
    """None if it is not known from whom it came."""
    operation: str
    """What it asked for: the name of the endpoint."""
    about: str
    """The run, the wait or what else its path names; empty if it names nothing."""
    reason: str
    """The code of the error."""

    @classmethod
    def of(cls, endpoint: Endpoint, request: Request, error: EverstepError) -> Refusal:
        """Describe a request that an error refused."""
        about = "/".join(str(part) for part in request.path_params.values())
        return cls(caller_of(request), endpoint.name, without_tokens(about), error.code)


def note_refusal(refusal: Refusal) -> None:
    """Say in the log that a request was refused: the one place where all refusals by role come by."""
    who = "a caller without a name" if refusal.caller is None else repr(refusal.caller.name)
    level = logging.INFO if refusal.caller is None else logging.WARNING
    log.log(level, "%s was refused %s of %.200r: %s", who, refusal.operation, refusal.about, refusal.reason)


def _admitted(service: Service, request: Request) -> Principal:
    """Return who a request comes from; without any credentials in use, this machine's user.

    Without a token anybody on the machine may call. A web page that this person happens to look at may not:
    a browser says where a page comes from, and by which name it reached us.
    """
    if service.access.is_open:
        _check_local(request)
        return ANYONE
    headers = request.headers
    peer = None if request.client is None else request.client.host
    claims = Claims(authorization=headers.getlist("authorization"), users=headers.getlist, peer=peer)
    caller = service.access.admit(claims)
    if caller.by_proxy and request.method not in _LOOKS:
        _check_own_page(service, request)
    return caller


def _check_role(caller: Principal, endpoint: Endpoint) -> None:
    least = endpoint.role or Role.ADMIN
    if not caller.role.includes(least):
        raise Forbidden(
            f"this takes the role {least}, and {caller.name} has the role {caller.role}.",
            fix="Ask someone who has it.",
        )


async def _check_reach(service: Service, caller: Principal, endpoint: Endpoint, request: Request) -> None:
    match endpoint.reach:
        case Reach.RUN:
            await check_run_seen(service, caller, run_id_of(request))
        case Reach.WAIT:
            await check_wait_seen(service, caller, wait_id_of(request))
        case Reach.STORE:
            raise Forbidden(
                f"this is about runs of all flows, and {caller.name} may see some only.",
                fix="Ask someone who sees all.",
            )


def _check_own_page(service: Service, request: Request) -> None:
    """Refuse what another web page has a browser send, which the proxy takes for its user's own request."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site in ("same-origin", "none") or (site is None and origin is None):
        return
    own = {request.headers.get("host", ""), urlsplit(service.base_url).netloc}
    if site in (None, "same-site") and origin is not None and _netloc_of(origin) in own - {""}:
        return
    raise Forbidden(
        "a browser sends this for a page of another site.",
        fix="Serve it with --base-url, and call it from there.",
    )


def _netloc_of(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _check_local(request: Request) -> None:
    origin = request.headers.get("origin")
    if not is_loopback(_host_of(f"//{request.headers.get('host', '')}")) or (
        origin is not None and not is_loopback(_host_of(origin))
    ):
        raise Forbidden(
            "this service has no token, and takes requests for localhost only.",
            fix="Call it as localhost and not from a web page, or give it a token.",
        )


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Say whether a host name or address means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(token: str, where: str) -> str:
    """Return a bearer token that is worth having, or raise."""
    token = token.strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise BadRequest(
            f"the token in {where} is not {SHORTEST_TOKEN} or more letters, digits and signs.",
            fix="Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return token
