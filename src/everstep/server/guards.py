"""Who may call what."""

from __future__ import annotations

import ipaddress
import logging
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request

from everstep.client.audit import note_refusal as audit_refusal
from everstep.client.audit import wait_of_token
from everstep.errors import BadRequest, EverstepError, Forbidden, RunNotFound, Unauthorized, WaitNotFound
from everstep.model.acts import (
    BY_LINK,
    BY_NOTHING,
    BY_SERVICE_TOKEN,
    LONGEST_NAME,
    Act,
    Known,
    Verified,
    act_of,
)
from everstep.server.access.admission import Claims
from everstep.server.access.roles import ANYONE, Principal, Reach, Role
from everstep.server.callers import check_run_seen, check_wait_seen
from everstep.server.checks import run_id_of, token_of, wait_id_of
from everstep.server.endpoint import PRINCIPAL, Endpoint, Guard, Service, caller_of

SHORTEST_TOKEN = 16
ACT_HEADER = "Everstep-Console"
"""Only a page of ours can send it: for another site's page a browser asks first, and is not answered."""
_LOOKS = ("GET", "HEAD")

log = logging.getLogger("everstep.server")


async def check(service: Service, endpoint: Endpoint, request: Request) -> None:
    """Raise unless whom a request comes from may do what it asks for, to what it names.

    The log has all that is refused here.
    """
    if endpoint.guard is not Guard.BEARER:
        return
    try:
        caller = _admitted(service, request)
        _check_role(caller, endpoint)
        if caller.is_restricted:
            await _check_reach(service, caller, endpoint, request)
    except (Unauthorized, Forbidden, RunNotFound, WaitNotFound) as error:
        refusal = Refusal.of(service, endpoint, request, error)
        who = repr(refusal.name) if refusal.name else "a caller without a name"
        level = logging.WARNING if refusal.name else logging.INFO
        what = (refusal.operation, refusal.about, refusal.reason)
        log.log(level, "%s was refused %s of %.200r: %s", who, *what)
        await note_refusal(service, endpoint, request, error)
        raise


class Refusal(NamedTuple):
    """A request that was refused."""

    name: str
    """Whom it came from, also if the credential counts no more; empty if that is not known."""
    operation: str
    """What it asked for: the name of the endpoint."""
    about: str
    """The run, the wait or what else its path names; empty if it names nothing."""
    reason: str
    """The code of the error."""

    @classmethod
    def of(cls, service: Service, endpoint: Endpoint, request: Request, error: EverstepError) -> Refusal:
        """Describe a request that an error refused."""
        caller = caller_of(request)
        name = caller.name if caller is not None else service.access.named_by(_claims(request))
        about = "/".join(str(part) for part in request.path_params.values())
        return cls(name, endpoint.name, service.access.without_tokens(about), error.code)


async def note_refusal(service: Service, endpoint: Endpoint, request: Request, error: EverstepError) -> None:
    """Keep in the audit log what would have been an act of who is known, by name or by what let them in.

    What a host has refused is there already; a flow that the caller does not see, a `by` that is not the
    caller or a body that cannot be read is refused before a host is asked.
    """
    refusal = Refusal.of(service, endpoint, request, error)
    word = unnamed_caller(service, endpoint, request)
    if not endpoint.act or error.is_audited or not (refusal.name or word):
        return
    by = act_of(Verified(refusal.name), None) if refusal.name else Act(word, how=Known.UNNAMED)
    run_id, about = await _named_in(service, request, refusal.about)
    if endpoint.guard is Guard.TOKEN and run_id is None:
        return  # anybody can make up a token that is none
    assert by is not None
    await audit_refusal(service.host, endpoint.act, by, error, run_id=run_id, about=about)


def unnamed_caller(service: Service, endpoint: Endpoint, request: Request) -> str:
    """Return what the audit log calls who was let in without a name; empty for all others."""
    if endpoint.guard is Guard.TOKEN:
        return BY_LINK
    caller = caller_of(request)
    if caller is None or caller.name or caller.looks_only:
        return ""
    return BY_NOTHING if service.access.is_open else BY_SERVICE_TOKEN


async def _named_in(service: Service, request: Request, named: str) -> tuple[str | None, str]:
    """Return the run that the path of a refused request is about, and what else it names."""
    try:
        if "run_id" in request.path_params:
            run_id = run_id_of(request)
            return (run_id, "") if service.access.without_tokens(run_id) == run_id else (None, "")
        if "wait_id" in request.path_params:
            wait_id = wait_id_of(request)
            return (await service.host.wait(wait_id)).run_id, wait_id
        if "token" in request.path_params:
            return await wait_of_token(service.host, token_of(request))
    except EverstepError:
        return None, ""  # there is no such thing
    return None, named[:LONGEST_NAME]


def _admitted(service: Service, request: Request) -> Principal:
    """Return who a request comes from; without any credentials in use, this machine's user.

    Without a token anybody on the machine may call. A web page that this person happens to look at may not:
    a browser says where a page comes from, and by which name it reached us.
    """
    if service.access.is_open:
        _check_local(request)
        request.scope[PRINCIPAL] = ANYONE
        return ANYONE
    # What is refused from here on is refused to someone who is known.
    request.scope[PRINCIPAL] = caller = service.access.admit(_claims(request))
    if caller.by_cookie:
        _check_host(service, request)
        _check_looks(caller, request)
    if (caller.by_proxy or caller.by_cookie) and request.method not in _LOOKS:
        _check_own_page(service, request)
    return caller


def _check_host(service: Service, request: Request) -> None:
    """Refuse a name by which we are not known: another site's page may have made it lead here."""
    host = _host_of(f"//{request.headers.get('host', '')}")
    if is_address(host) or host in ("localhost", _host_of(service.base_url)):
        return
    raise Forbidden("the service is not known by this name.", fix="Serve it with --base-url.")


def _check_looks(caller: Principal, request: Request) -> None:
    """Refuse what a browser sends that is not logged in to act, or that another page may have it send."""
    if request.method in _LOOKS:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forbidden("a browser asks this for a page of another site.", fix="Open the console itself.")
        return
    if caller.looks_only:
        raise Forbidden("this console only looks.", fix="Start it with: everstep console --act")
    if request.headers.get(ACT_HEADER) is None:
        raise Forbidden(
            "only the console's own pages may do this with a cookie.",
            fix=f"Send a bearer token, or the header {ACT_HEADER}.",
        )


def _claims(request: Request) -> Claims:
    """Return what a request says of where it comes from."""
    headers = request.headers
    peer = None if request.client is None else request.client.host
    return Claims(
        authorization=headers.getlist("authorization"),
        users=headers.getlist,
        peer=peer,
        cookies=request.cookies,
    )


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


def is_address(host: str) -> bool:
    """Say whether a host is written as an address, which no other site can make lead elsewhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def check_token(token: str, where: str) -> str:
    """Return a bearer token that is worth having, or raise."""
    token = token.strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise BadRequest(
            f"the token in {where} is not {SHORTEST_TOKEN} or more letters, digits and signs.",
            fix="Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return token
