"""Users whom a proxy in front has authenticated: the header that names them, and who may send it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from everstep.errors import BadRequest, Unauthorized
from everstep.model.acts import Verified, act_of
from everstep.server.access.roles import Role

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_TAKEN = {"authorization", "host", "origin", "cookie", "everstep-by", "everstep-comment", "accept"}


@dataclass(frozen=True, kw_only=True)
class ProxyUsers:
    """A header with the name of a user, which counts from some addresses alone."""

    header: str
    networks: tuple[Network, ...]
    role: Role | None = None
    """That of users whom the file of tokens does not name; none refuses them."""

    def is_from_proxy(self, peer: str | None) -> bool:
        """Say whether a connection comes from one of the addresses."""
        try:
            address = ipaddress.ip_address(peer or "")
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.networks)


def proxy_users(
    header: str, addresses: Iterable[str], role: str | None = None, *, where: str = "user_header"
) -> ProxyUsers:
    """Return who may name users, and in which header; from an address too many anyone could be anyone."""
    if not _HEADER.fullmatch(header) or header.lower() in _TAKEN:
        raise BadRequest(
            f"{where} {header!r} cannot name users.", fix="Use a header such as X-Forwarded-User."
        )
    networks = tuple(_network(text.strip()) for text in addresses if text.strip())
    if not networks:
        raise BadRequest(
            f"{where} {header} counts from no address.",
            fix="Name those of the proxy, such as 10.0.0.5 or 10.0.0.0/8.",
        )
    try:
        found = None if role is None else Role(role)
    except ValueError:
        raise BadRequest(f"{role!r:.60} is no role.", fix=f"Use one of {', '.join(Role)}.") from None
    return ProxyUsers(header=header, networks=networks, role=found)


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise BadRequest(
            f"{text!r:.60} is no address: {error}.", fix="Write 10.0.0.5 or 10.0.0.0/8."
        ) from None
    if network.prefixlen == 0:
        raise BadRequest(f"{text} is every address there is.", fix="Name those of the proxy alone.")
    return network


def user_named(said: list[str]) -> Verified:
    """Return the name that a proxy sends, or raise: two of them may be one that a client has added."""
    if len(said) != 1:
        raise Unauthorized("the header with the user is there twice.", fix="Let the proxy set it once.")
    try:
        name = said[0].encode("latin-1").decode("utf-8")
        act = act_of(name, None)
    except (UnicodeError, BadRequest):
        act = None
    if act is None:
        raise Unauthorized(
            "the header with the user holds no name.", fix="Send 1 to 200 characters of UTF-8."
        )
    return Verified(act.by)
