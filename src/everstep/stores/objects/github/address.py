"""Where a repository is, as its URL says, and who asks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from everstep.errors import BadRequest

API = "https://api.github.com"
TOKENS = ("EVERSTEP_GITHUB_TOKEN", "GITHUB_TOKEN")
"""Variables of the environment that may hold the token; the first one that is set counts."""
TIMEOUT = 30.0
"""Seconds that one answer may take."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PART = re.compile(r"[A-Za-z0-9_~=-][A-Za-z0-9._~=-]*")
_BRANCH = re.compile(r"(?!.*(\.\.|//|@\{))[A-Za-z0-9][A-Za-z0-9._/@-]{0,200}")
_LOCAL = ("localhost", "127.0.0.1", "::1")


class GithubAddress(NamedTuple):
    """A folder in a branch of a repository."""

    owner: str
    repo: str
    path: str
    """The folder, without slashes around it; empty for the whole repository."""
    api: str
    branch: str | None
    """None for the repository's default branch."""
    timeout: float
    token: str

    def __repr__(self) -> str:
        return f"<{self.shown}>"

    @property
    def shown(self) -> str:
        """The URL as it may be shown. The token is never part of it."""
        options = [f"api={self.api}"] if self.api != API else []
        options += [f"branch={self.branch}"] if self.branch else []
        tail = f"?{'&'.join(options)}" if options else ""
        return f"github://{'/'.join(filter(None, (self.owner, self.repo, self.path)))}{tail}"


def read_address(url: str, environment: Mapping[str, str]) -> GithubAddress:
    """Read `github://owner/repo/path[?api=...][&branch=...]`; the token comes from the environment."""
    try:
        parts = urlsplit(url)
        owner, port = parts.hostname and parts.netloc, parts.port
    except ValueError:
        raise _refused("cannot be read") from None
    if "@" in parts.netloc:
        raise BadRequest(
            "the URL of the repository holds a login.",
            fix=f"Put the token into {TOKENS[0]}, and write github://owner/repo/path.",
        )
    repo, *folders = (unquote(part) for part in parts.path.strip("/").split("/"))
    if not owner or port or parts.fragment or not _NAME.fullmatch(owner) or not _NAME.fullmatch(repo):
        raise _refused("names no owner and repository")
    if repo in (".", "..") or not all(map(_PART.fullmatch, folders)):
        raise _refused("names a folder with other than letters, digits, '.', '_', '~', '=' and '-'")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    api, branch = options.pop("api", API).rstrip("/"), options.pop("branch", None)
    timeout = _seconds(options.pop("timeout", str(TIMEOUT)))
    if options:
        # Only names are shown: a value may be a token that was put into the wrong place.
        raise BadRequest(
            f"unknown option {', '.join(options)} in the URL of a repository.",
            fix=f"Known are api, branch and timeout; the token comes from {TOKENS[0]}.",
        )
    if branch is not None and not _BRANCH.fullmatch(branch):
        raise _refused("names a branch that cannot be one")
    _check_api(api)
    return GithubAddress(owner, repo, "/".join(folders), api, branch, timeout, _token(environment))


def _check_api(api: str) -> None:
    try:
        parts = urlsplit(api)
        host, is_plain = parts.hostname, parts.port is None or parts.port > 0
    except ValueError:
        raise _refused("names an api that is no URL") from None
    if parts.scheme not in ("http", "https") or not host or not is_plain or "@" in parts.netloc:
        raise _refused("names an api that is no URL")
    if parts.query or parts.fragment:
        raise _refused("names an api with options of its own")
    if parts.scheme == "http" and host not in _LOCAL:
        raise BadRequest(
            f"api={api} would send the token unencrypted.", fix="Use https:; http: is for this machine only."
        )


def _token(environment: Mapping[str, str]) -> str:
    token = next((found for name in TOKENS if (found := environment.get(name, "").strip())), "")
    if not token:
        raise BadRequest(
            "no token for GitHub is set.",
            fix=f"Set {TOKENS[0]} (or {TOKENS[1]}) to one that may read and write the repository's contents.",
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadRequest("the token for GitHub is not one word.", fix=f"Look at {' and '.join(TOKENS)}.")
    return token


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise BadRequest(f"timeout must be 0–3600 seconds, and is {text}.", fix="Write it as ?timeout=30.")
    return seconds


def _refused(why: str) -> BadRequest:
    return BadRequest(
        f"the URL of the repository {why}.",
        fix="Write github://owner/repo/path, and for another server ?api=https://host/api/v3",
    )
