"""Whom a request comes from: the one place where tokens are compared and names are found."""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from everstep.errors import BadRequest, EverstepError, Forbidden, Unauthorized
from everstep.model.acts import likeness, without_tokens
from everstep.server.access.proxy import ProxyUsers, user_named
from everstep.server.access.roles import ANYONE, Principal
from everstep.server.access.sessions import ACTS, LOOKS, NAMED, Sessions
from everstep.server.access.token_file import (
    Entries,
    Token,
    changed_at,
    digest_of,
    is_written_by_group,
    read_entries,
    read_file,
)

FRESH = 1.0
"""Seconds for which the file of tokens is not looked at again."""
SETTLES = 1.0
"""Seconds for which a file must not have changed to be taken in: half of it may lack a restriction."""
TOKENS_STALE = "tokens.stale"
"""What is said of a service whose file of tokens cannot be used as it is now."""
_SHORTEST = 16
_WORD = re.compile(rf"[^\s\"']{{{_SHORTEST},}}")
"""What may be a token of a form of its own, or have one inside."""
_BETWEEN = re.compile(r"([/=,;:&?()<>{}\[\]|])")
"""What may stand between a token and what it was written with, and in a token, too."""
_MOST_PARTS = 49

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
        self._coming: tuple[bytes, float] | None = None
        """Another text that was seen, and when first."""
        self.problem: str | None = None
        """Why the file cannot be used as it is now; none if it can."""
        if is_written_by_group(path):
            log.warning("others than the owner of %s may write it, and so make anyone an admin", path)

    def entries(self) -> Entries:
        """Return what the file said two seconds ago, or says since."""
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
                self._coming = None
                return
            if not self._has_settled(text):
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

    def _has_settled(self, text: bytes) -> bool:
        """Say whether the file is not being written as far as its time tells, or two looks."""
        now = self._clock.monotonic()
        if self._coming is None or self._coming[0] != text:
            self._coming = text, now
        age = self._clock.now().timestamp() - changed_at(self._path)
        return age >= SETTLES or now - self._coming[1] >= SETTLES


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What a request says of where it comes from."""

    authorization: list[str]
    users: Callable[[str], list[str]]
    """What a header of some name says."""
    peer: str | None
    """The address at the other end of the connection."""
    cookies: Mapping[str, str] = field(default_factory=dict)
    """What a browser sends by itself."""


class Access:
    """Knows whom to let in: by the token of the service, by the file of tokens, by the header of a proxy."""

    def __init__(
        self,
        clock: Clock,
        *,
        token: str | None = None,
        tokens: Path | None = None,
        users: ProxyUsers | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self._clock = clock
        self.sessions = sessions or Sessions(clock.now, None if token is None else token.encode())
        """Browsers that have logged in."""
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
        if not claims.authorization and (cookie := claims.cookies.get(self.sessions.cookie)):
            return self._session(cookie)
        return self._bearer(claims.authorization)

    def log_in(self, token: str) -> str:
        """Return the cookie for a browser whose user has shown a token, or raise."""
        caller = self._bearer([f"Bearer {token}"])
        return self.sessions.begin(NAMED + caller.credential if caller.credential else ACTS)

    def _session(self, cookie: str) -> Principal:
        found = self.sessions.read(cookie)
        if found is None:
            raise Unauthorized("the time of this session is over.", fix="Log in again.")
        if found.holder in (ACTS, LOOKS):
            return replace(ANYONE, by_cookie=True, looks_only=found.holder == LOOKS, session=found)
        digest = found.holder.removeprefix(NAMED)
        entries = None if self.file is None else self.file.entries().tokens
        if entries is None or (named := entries.get(digest)) is None or named.has_expired(self._clock.now()):
            raise Unauthorized("the token of this session counts no more.", fix="Log in again.")
        return replace(self._named(named, digest), by_cookie=True, session=found)

    def _named(self, found: Token, digest: str) -> Principal:
        return Principal(
            name=found.name, role=found.role, flows=found.flows, tags=found.tags, credential=digest
        )

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
        return self._named(found, digest)

    def _user(self, name: str, users: ProxyUsers) -> Principal:
        named = None if self.file is None else self.file.entries().users.get(name)
        if named is not None:
            flows = None if named.flows is None else frozenset(named.flows)
            tags = None if named.tags is None else frozenset(named.tags)
            return Principal(name=name, role=named.role, flows=flows, tags=tags, by_proxy=True)
        written = None if self.file is None else self.file.entries().alike.get(likeness(name))
        if written is not None:
            # With the role of all it would be free of what the file keeps from it.
            raise Forbidden(
                f"this user is spelt otherwise than in the file of tokens: {written!r}.",
                fix="Let the proxy send names as the file has them, or change the file.",
            )
        if users.role is None:
            raise Forbidden(
                "this user has no role here.", fix="Name it in the file of tokens, or serve with --user-role."
            )
        return Principal(name=name, role=users.role, by_proxy=True)

    def named_by(self, claims: Claims) -> str:
        """Return the name behind credentials that were refused: a token whose time is over, a proxy's user.

        Empty if it is not known, such as of a token that is none.
        """
        if self.users is not None and (said := claims.users(self.users.header)):
            if not self.users.is_from_proxy(claims.peer):
                return ""
            try:
                return user_named(said)
            except EverstepError:
                return ""
        scheme, _, given = (claims.authorization[0] if len(claims.authorization) == 1 else "").partition(" ")
        if self.file is None or scheme.lower() != "bearer":
            return ""
        found = self.file.entries().tokens.get(digest_of(given.strip()))
        return "" if found is None else found.name

    def without_tokens(self, text: str) -> str:
        """Return a text without tokens, also those of any form that are known here."""
        text = without_tokens(text)
        return _WORD.sub(lambda found: self._without_known(found[0]), text) if self.takes_tokens else text

    def _without_known(self, word: str) -> str:
        """Return a word without the tokens that are known here: its parts are tried, each and joined."""
        parts = _BETWEEN.split(word)
        for size in range(len(parts), 0, -1) if len(parts) <= _MOST_PARTS else (len(parts), 1):
            for first in range(len(parts) - size + 1):
                part = "".join(parts[first : first + size])
                if len(part) >= _SHORTEST and self._knows(part):
                    before, after = "".join(parts[:first]), "".join(parts[first + size :])
                    return f"{self._without_known(before)}…{self._without_known(after)}"
        return word

    def _knows(self, word: str) -> bool:
        digest = digest_of(word)
        is_ours = self._digest is not None and hmac.compare_digest(digest, self._digest)
        return is_ours or (self.file is not None and digest in self.file.entries().tokens)

    def still_admits(self, principal: Principal) -> bool:
        """Say whether a principal that was let in has what it had: for answers that take long."""
        if principal.session is not None and not self.sessions.goes_on(principal.session):
            return False
        if principal.credential:
            assert self.file is not None
            found = self.file.entries().tokens.get(principal.credential)
            return (
                found is not None
                and not found.has_expired(self._clock.now())
                and (found.name, found.role) == (principal.name, principal.role)
                and (found.flows, found.tags) == (principal.flows, principal.tags)
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
