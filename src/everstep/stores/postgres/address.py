"""What a `postgresql://` URL says: whom to connect to, and which schema to use."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from everstep.errors import BadRequest

OPTIONS = ("schema", "pool", "prepare")
"""What is ours in the query of a URL."""
DEFAULT_SCHEMA = "everstep"
DEFAULT_POOL = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class PostgresAddress(NamedTuple):
    """Where the tables are."""

    url: str
    """What the driver gets. It may hold a password, so it is never shown."""
    schema: str
    shown: str
    """The same for people."""
    pool: int = DEFAULT_POOL
    """How many connections may be open at once, besides one for leases and one that listens."""
    prepares: bool = True
    """False if no statement may be prepared, not even where no pooler seems to stand before the server."""

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @property
    def quoted_schema(self) -> str:
        return f'"{self.schema}"'


def read_address(url: str) -> PostgresAddress:
    """Take our own options out of a URL; the rest is the driver's."""
    try:
        parts = urlsplit(url)
        host, port, user = parts.hostname or "", parts.port, parts.username
    except ValueError:
        raise BadRequest("the URL of the database cannot be read.", fix=_FORM) from None
    options = [part for part in parts.query.split("&") if part]
    if "@" in parts.path or parts.fragment or any("=" not in part for part in options):
        # What looks like a path or an option may be the end of a password.
        raise BadRequest(
            "the URL of the database cannot be read.",
            fix=f"{_FORM}; in a password / is written as %2F, # as %23, ? as %3F.",
        )
    ours = {name: unquote(value) for name, _, value in (part.partition("=") for part in options)}
    # As they were written: to the driver a plus is no space.
    theirs = "&".join(part for part in options if part.partition("=")[0] not in OPTIONS)
    schema = ours.get("schema", DEFAULT_SCHEMA)
    if not _NAME.fullmatch(schema):
        raise BadRequest(
            f"{schema!r} is not the name of a schema.", fix="Use letters, digits and underscores, at most 63."
        )
    pool = ours.get("pool", str(DEFAULT_POOL))
    if not pool.isdecimal() or not 1 <= int(pool) <= 1000:
        raise BadRequest(f"pool={pool} is no number of connections.", fix="Use ?pool=8.")
    prepare = ours.get("prepare", "auto")
    if prepare not in ("auto", "off"):
        raise BadRequest(f"prepare={prepare} means nothing.", fix="Use ?prepare=auto or ?prepare=off.")
    driver = urlunsplit(("postgresql", parts.netloc, parts.path, theirs, ""))
    who = f"{user}@" if user else ""
    where = f"{who}{host}{f':{port}' if port else ''}{parts.path}"
    return PostgresAddress(
        driver, schema, f"postgresql://{where}?schema={schema}", int(pool), prepare == "auto"
    )


_FORM = "Write postgresql://user@host:5432/database?schema=everstep"
