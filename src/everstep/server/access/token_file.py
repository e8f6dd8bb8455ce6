"""The file of tokens: names, roles and SHA-256 hashes, read again when it changes. Never a token itself."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import msgspec

from everstep.errors import BadRequest
from everstep.graph.labels import tag as tag_of
from everstep.model.acts import act_of, likeness
from everstep.model.shapes import understood
from everstep.server.access.roles import Role

PREFIX = "everstep_"
"""What tokens begin with that `everstep token new` makes: scanners for secrets, and our logs, find it."""
LARGEST = 1 << 20
"""How many bytes of a file are read."""
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_SPEAKING = {"token", "tokens", "secret", "password", "key", "bearer", "value"}
"""Fields in which people put a token itself."""
_HOW = "Make one with: everstep token new NAME --role ROLE"


class Hash(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One token of a name, as its hash."""

    sha256: str
    """64 hex digits."""
    expires: Any = None
    """The moment, or the day in UTC, from which on the token is refused."""


class Named(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name with tokens: several while one takes the place of another."""

    role: Role
    flows: list[str] | None = None
    tags: list[str] | None = None
    hashes: list[Hash]


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user whom a proxy knows."""

    role: Role
    flows: list[str] | None = None
    tags: list[str] | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens: dict[str, Named] = {}
    users: dict[str, User] = {}


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token that the file knows."""

    name: str
    role: Role
    flows: frozenset[str] | None
    tags: frozenset[str] | None
    digest: str
    expires: datetime | None

    def has_expired(self, now: datetime) -> bool:
        """True from the moment on at which it is refused."""
        return self.expires is not None and now >= self.expires


@dataclass(frozen=True, kw_only=True)
class Entries:
    """What a file says."""

    tokens: Mapping[str, Token] = field(default_factory=dict)
    """By digest."""
    users: Mapping[str, User] = field(default_factory=dict)
    alike: Mapping[str, str] = field(default_factory=dict)
    """The users by what their names have in common with those that people take for the same."""


def digest_of(token: str) -> str:
    """Return the hash of a token, as the file has it."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def read_entries(text: bytes, where: str) -> Entries:
    """Return what the bytes of a file say, in TOML or JSON, or raise with nothing of a value repeated."""
    found = _parsed(text, where)
    for name, entry in (found.get("tokens") or {}).items() if isinstance(found, dict) else ():
        _check_keeps_no_token(where, name, entry)
    try:
        file = msgspec.convert(found, understood(_File))
    except msgspec.ValidationError as error:
        raise _wrong(where, _without_value(error), _SHAPE) from None
    tokens: dict[str, Token] = {}
    for name, named in file.tokens.items():
        _check_entry(where, name, named)
        if not named.hashes:
            raise _wrong(where, f"{name!r} has no hashes", _HOW)
        for one in named.hashes:
            token = _token(where, name, named, one)
            if token.digest in tokens:
                raise _wrong(where, f"{name!r} has a hash that is there twice", "Leave one of them out.")
            tokens[token.digest] = token
    alike: dict[str, str] = {}
    for name, user in file.users.items():
        _check_entry(where, name, user)
        other = alike.setdefault(likeness(name), name)
        if other != name:
            raise _wrong(where, f"{other!r} and {name!r} are one name to the eye", "Leave one of them out.")
    if not tokens and not file.users:
        raise _wrong(where, "it names no token and no user", _HOW)
    return Entries(tokens=tokens, users=file.users, alike=alike)


_SHAPE = (
    'Write [tokens.NAME] with role = "operator", and below it [[tokens.NAME.hashes]] with sha256 = "...".'
)


def _wrong(where: str, what: str, fix: str) -> BadRequest:
    return BadRequest(f"{where} cannot be used: {what}.", fix=fix)


def _parsed(text: bytes, where: str) -> Any:
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError:
        raise _wrong(where, "it is not UTF-8", _SHAPE) from None
    try:
        if decoded.lstrip().startswith("{"):
            return json.loads(decoded)
        return tomllib.loads(decoded)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at (line \d+, column \d+|end of document)\)", str(error))
        at = found[1] if found else "some place"  # the rest of what it says may repeat a value
    except (RecursionError, ValueError):
        at = "some place"
    fix = f"{_SHAPE} A file that holds one token is for --token-file."
    raise _wrong(where, f"it is neither TOML nor JSON at {at}", fix)


def _check_keeps_no_token(where: str, name: str, entry: Any) -> None:
    """Refuse a token itself by name, before anything else is said of the file."""
    fix = f"Keep its hash instead. {_HOW}"
    if name.startswith(PREFIX):
        raise _wrong(where, "it has a token as a name", fix)
    if not isinstance(entry, dict):
        return
    hashes = entry.get("hashes")
    for part in [entry, *(hashes if isinstance(hashes, list) else [])]:
        if isinstance(part, str) or (isinstance(part, dict) and _SPEAKING & {str(k).lower() for k in part}):
            raise _wrong(where, f"{name!r} seems to hold a token itself", fix)
        said = part.get("sha256") if isinstance(part, dict) else None
        if isinstance(said, str) and not _HASH.fullmatch(said):
            what = f"sha256 of {name!r} is not the 64 hex digits of a hash, and may be a token itself"
            raise _wrong(where, what, fix)


def _without_value(error: msgspec.ValidationError) -> str:
    """Say what does not fit and where, without repeating a value."""
    text = str(error)
    if "Invalid enum value" in text:
        return f"a role is none of {', '.join(Role)}"
    place = re.search(r" - at `[^`]*`$", text)
    if "unknown field" in text:
        return f"it has a field that is not known{place[0] if place else ''}"
    return text


def _check_entry(where: str, name: str, entry: Named | User) -> None:
    try:
        act = act_of(name, None)
    except BadRequest as error:
        raise _wrong(where, f"a name cannot be one: {error.message}", "Use another name.") from None
    if act is None or act.by != name:
        raise _wrong(where, "a name is empty, or begins or ends with spaces", "Use another name.")
    for what, said in ("flow", entry.flows), ("tag", entry.tags):
        if said is not None and not said:
            raise _wrong(
                where, f"{name!r} has {what}s = [], which is no {what} at all", "Name some, or leave it out."
            )
    for one in entry.tags or ():
        tag, _, value = one.partition("=")
        try:
            tag_of(tag, value)
        except BadRequest:
            fix = 'Write tags = ["vip", "team=blue"].'
            raise _wrong(where, f"{name!r} has a tag that no run can have", fix) from None


def _token(where: str, name: str, named: Named, one: Hash) -> Token:
    return Token(
        name=name,
        role=named.role,
        flows=None if named.flows is None else frozenset(named.flows),
        tags=None if named.tags is None else frozenset(named.tags),
        digest=one.sha256.lower(),
        expires=_moment(where, name, one.expires),
    )


def _moment(where: str, name: str, said: Any) -> datetime | None:
    """Read when a token ends; a day ends it as it begins, and what has no offset is UTC."""
    if isinstance(said, str):
        try:
            said = datetime.fromisoformat(said.strip())
        except ValueError:
            said = ...
    match said:
        case None:
            return None
        case datetime():
            return said.astimezone(UTC) if said.tzinfo is not None else said.replace(tzinfo=UTC)
        case date():
            return datetime.combine(said, time(), UTC)
    raise _wrong(where, f"`expires` of {name!r} is no time", "Write 2027-01-31T09:00:00Z or 2027-01-31.")


def changed_at(path: Path) -> float:
    """Return when a file was written last, in seconds since 1970."""
    try:
        return path.stat().st_mtime
    except OSError as error:
        raise _wrong(str(path), f"{error.strerror or error}", "Check the path.") from None


def read_file(path: Path) -> bytes:
    """Return the bytes of a file of tokens, or raise if others could have written them."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise _wrong(str(path), f"{error.strerror or error}", "Check the path.") from None
    if mode & stat.S_IWOTH:
        raise _wrong(str(path), "every user of this machine may write it", f"Run: chmod o-w {path}")
    if len(text) > LARGEST:
        raise _wrong(str(path), f"it has more than {LARGEST} bytes", "Check the path.")
    return text


def is_written_by_group(path: Path) -> bool:
    """Say whether others than its owner may write a file."""
    return bool(path.stat().st_mode & stat.S_IWGRP)
