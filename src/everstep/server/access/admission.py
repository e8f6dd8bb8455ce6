"""Whom a request comes from: the one place where tokens are compared and names are found."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from everstep.errors import BadRequest, Forbidden, Unauthorized
from everstep.server.access.proxy import ProxyUsers, user_named
from everstep.server.access.roles import ANYONE, Principal
from everstep.server.access.token_file import (
    Entries,
    digest_of,
    is_written_by_group,
    read_entries,
    read_file,
)

FRESH = 1.0
"""Seconds for which the file of tokens is not looked at again."""
TOKENS_STALE = "tokens.stale"
"""What is said of a service whose file of tokens cannot be used as it is now."""

log = logging.getLogger("everstep.server")


class Clock(Protocol):
    """The clock of the host."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class TokenFile:
    """The file of tokens as it was read last. One that cannot be used leaves what it said before standing."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._text = read_file(path)
        self._entries = read_entries(self._text, str(path))
        self._looked_at = clock.monotonic()
        self.problem: str | None = None
        """Why the file cannot be used as it is now; none if it can."""
        if is_written_by_group(path):
            log.warning("others than the owner of %s may write it, and so make anyone an admin", path)

    def entries(self) -> Entries:
        """Return what the file says, at most a second old."""
        now = self._clock.monotonic()
        if now - self._looked_at >= FRESH:
            self._looked_at = now
            self._look()
        return self._entries

    def _look(self) -> None:
        """Read the file, which is small, and take it in if it is another: times and sizes can be the same."""
        try:
            text = read_file(self._path)
            if text == self._text and self.problem is None:
                return
            entries = read_entries(text, str(self._path))
        except BadRequest as error:
            if str(error) != self.problem:
                log.error("%s Tokens are as they were before.", error)
            self.problem = str(error)
            return
        if text != self._text or self.problem is not None:
            log.warning("%s was read again: %d tokens", self._path, len(entries.tokens))
        self._text, self._entries, self.problem = text, entries, None


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What a request says of where it comes from."""

    authorization: list[str]
    users: Callable[[str], list[str]]
    """What a header of some name says."""
    peer: str | None
    """The address at the other end of the connection."""


class Access:
    """Knows whom to let in: by the token of the service, by the file of tokens, by the header of a proxy."""

    def __init__(
        self,
        clock: Clock,
        *,
        token: str | None = None,
        tokens: Path | None = None,
        users: ProxyUsers | None = None,
    ) -> None:
        self._clock = clock
        self._digest = None if token is None else digest_of(token)
        self.users = users
        self.file = None if tokens is None else TokenFile(tokens, clock)
        self.is_open = token is None and tokens is None and users is None
        """True if it asks for nothing: then only this machine's user may call."""
        self.takes_tokens = token is not None or tokens is not None

    def admit(self, claims: Claims) -> Principal:
        """Return who a request comes from, or raise."""
        if self.users is not None and (said := claims.users(self.users.header)):
            if self.users.is_from_proxy(claims.peer):
                return self._user(user_named(said), self.users)
            if not claims.authorization:
                raise Unauthorized(
                    "this address may not name users.", fix="Call through the proxy, or send a bearer token."
                )
        return self._bearer(claims.authorization)

    def _bearer(self, authorization: list[str]) -> Principal:
        scheme, _, given = (authorization[0] if len(authorization) == 1 else "").partition(" ")
        # Looked up by its hash, which a caller cannot steer: the time it takes tells nothing of other tokens.
        digest = digest_of(given.strip()) if scheme.lower() == "bearer" else ""
        if self._digest is not None and hmac.compare_digest(digest, self._digest):
            return ANYONE
        found = None if self.file is None else self.file.entries().tokens.get(digest)
        if found is None:
            fix = "Send Authorization: Bearer TOKEN." if self.takes_tokens else "Call through the proxy."
            raise Unauthorized("this needs the bearer token of the service.", fix=fix)
        if found.has_expired(self._clock.now()):
            raise Unauthorized("the time of this token is over.", fix="Ask for a new one.")
        return Principal(name=found.name, role=found.role, flows=found.flows, credential=digest)

    def _user(self, name: str, users: ProxyUsers) -> Principal:
        named = None if self.file is None else self.file.entries().users.get(name)
        if named is not None:
            flows = None if named.flows is None else frozenset(named.flows)
            return Principal(name=name, role=named.role, flows=flows, by_proxy=True)
        if users.role is None:
            raise Forbidden(
                "this user has no role here.", fix="Name it in the file of tokens, or serve with --user-role."
            )
        return Principal(name=name, role=users.role, by_proxy=True)

    def still_admits(self, principal: Principal) -> bool:
        """Say whether a principal that was let in has what it had: for answers that take long."""
        if principal.credential:
            assert self.file is not None
            found = self.file.entries().tokens.get(principal.credential)
            return (
                found is not None
                and not found.has_expired(self._clock.now())
                and (found.name, found.role, found.flows) == (principal.name, principal.role, principal.flows)
            )
        if principal.by_proxy and self.users is not None:
            try:
                return self._user(principal.name, self.users) == principal
            except Forbidden:
                return False
        return True

    @property
    def problem(self) -> str | None:
        """Return what is wrong with the file of tokens as it is now."""
        if self.file is None:
            return None
        self.file.entries()
        return None if self.file.problem is None else TOKENS_STALE
