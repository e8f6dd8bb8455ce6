"""Callers with names and roles, and a service that knows them by a file of tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everstep.server.access.roles import Role
from everstep.server.access.token_file import PREFIX, digest_of
from tests.integration.server.serving import Serving, serving


def token_of(name: str) -> str:
    """Return the token of a name, which looks as those do that the command makes."""
    return PREFIX + f"{name}-{'T0k3n' * 9}"[:43]


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(name)}"}


def entry(
    name: str,
    role: str,
    *,
    flows: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
    expires: str = "",
    token: str = "",
) -> str:
    """Return what stands in the file for a name with one token."""
    lines = [f'[tokens."{name}"]', f'role = "{role}"']
    lines += [f"flows = [{', '.join(repr(flow) for flow in flows)}]"] if flows else []
    lines += [f"tags = [{', '.join(repr(tag) for tag in tags)}]"] if tags else []
    lines += [f'[[tokens."{name}".hashes]]', f'sha256 = "{digest_of(token or token_of(name))}"']
    return "\n".join([*lines, *([f"expires = {expires}"] if expires else []), ""])


ALL_ROLES = "\n".join(entry(role.value, role.value) for role in Role)
"""A name for each role, called like it."""


@asynccontextmanager
async def named(
    folder: Path, text: str = ALL_ROLES, url: str = "memory:", **options: Any
) -> AsyncIterator[Serving]:
    """Open a service that lets in whom a file names; its client sends no credential by itself."""
    file = folder / "tokens.toml"
    file.write_text(text)
    about: Mapping[str, Any] = {"token": None, "headers": {}, "tokens": file, **options}
    async with serving(url, **about) as s:
        yield s
