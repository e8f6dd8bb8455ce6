"""`everstep token`: tokens with names and roles, for `everstep serve --tokens`."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from everstep.cli.args.options import json_option
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import moment, write_json
from everstep.errors import BadRequest
from everstep.model.durations import span_of
from everstep.server.access.roles import Role
from everstep.server.access.token_file import (
    PREFIX,
    Entries,
    Token,
    digest_of,
    is_written_by_group,
    read_entries,
    read_file,
)

_FILE = "tokens.toml"


@click.group()
def token() -> None:
    """Make tokens for everstep serve --tokens, and list those that a file knows.

    \b
    Examples:
      everstep token new ann --role operator --file tokens.toml
      everstep token new reports --role viewer --flow orders --expires 90d
      everstep token list tokens.toml
    """


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), help="What it may do.")
@click.option("--flow", "flows", metavar="FLOW", multiple=True, help="Only runs of this flow. Repeatable.")
@click.option(
    "--tag", "tags", metavar="TAG", multiple=True, help="Only runs with one of these tags. Repeatable."
)
@click.option("--expires", metavar="WHEN", help="Until when it works: 90d, 2027-01-31, 2027-01-31T09:00:00Z.")
@click.option("--file", metavar="FILE", help="Write its hash into this file, which is made if it is missing.")
@json_option
def new(
    name: str,
    role: str | None,
    flows: tuple[str, ...],
    tags: tuple[str, ...],
    expires: str | None,
    file: str | None,
    as_json: bool,
) -> None:
    """Make a token and show it, once: only its hash is kept.

    For a name that the file has already it is one more token with the same role, so that both work until the
    old hash is taken out.

    \b
    Examples:
      everstep token new ann --role operator --file tokens.toml
      everstep token new ann --expires 90d --file tokens.toml
    """
    path = None if file is None else Path(file)
    text = "" if path is None or not path.exists() else read_file(path).decode("utf-8", "replace")
    known = read_entries(text.encode(), str(path)) if text.strip() else Entries()
    named = next((one for one in known.tokens.values() if one.name == name), None)
    _check_same(name, named, role, flows, tags)
    made = PREFIX + secrets.token_urlsafe(32)
    only = {"flows": flows, "tags": tags}
    entry = _entry(name, digest_of(made), None if named is not None else role, only, _moment(expires))
    whole = f"{text.rstrip()}\n\n{entry}" if text.strip() else entry
    _check_entry(name, role if named is None else named.role.value, whole, path)
    if path is not None:
        _write(path, whole)
    if as_json:
        write_json({"name": name, "token": made, "sha256": digest_of(made), "entry": entry, "file": file})
        return
    click.echo(made)
    where = "Put this into the file of everstep serve --tokens:\n\n" + entry.rstrip()
    click.echo(f"\n{where if path is None else f'Its hash is in {path}.'}", err=True)
    click.secho("This is the only time that the token is shown.", err=True, dim=True)


@token.command("list")
@click.argument("file", default=_FILE)
@json_option
def list_(file: str, as_json: bool) -> None:
    """List the names in a file of tokens, with roles and times. No token can be shown: there are only hashes.

    \b
    Example:
      everstep token list tokens.toml
    """
    path = Path(file)
    found = read_entries(read_file(path), file)
    if is_written_by_group(path):
        click.secho(f"the group of {file} may write it, and so make anyone an admin", err=True, fg="yellow")
    now = datetime.now(UTC)
    if as_json:
        users = [
            {
                "name": name,
                "role": user.role.value,
                "flows": user.flows and sorted(user.flows),
                "tags": user.tags and sorted(user.tags),
            }
            for name, user in found.users.items()
        ]
        write_json({"tokens": [_told(one, now) for one in found.tokens.values()], "users": users})
        return
    rows = [_row(one, now) for one in found.tokens.values()]
    for name, user in found.users.items():
        only = _only(user.flows, user.tags)
        rows.append([Cell(name), Cell(user.role.value), *only, Cell("by a proxy", dim=True), Cell("")])
    write_table(["name", "role", "flows", "tags", "sha256", "expires"], rows)


def _only(flows: Collection[str] | None, tags: Collection[str] | None) -> list[Cell]:
    return [Cell("all" if said is None else ", ".join(sorted(said))) for said in (flows, tags)]


def _told(one: Token, now: datetime) -> dict[str, Any]:
    return {
        "name": one.name,
        "role": one.role.value,
        "flows": None if one.flows is None else sorted(one.flows),
        "tags": None if one.tags is None else sorted(one.tags),
        "sha256": one.digest,
        "expires": None if one.expires is None else one.expires.isoformat(),
        "has_expired": one.has_expired(now),
    }


def _row(one: Token, now: datetime) -> list[Cell]:
    ends = "never" if one.expires is None else moment(one.expires)
    is_over = one.has_expired(now)
    return [
        Cell(one.name),
        Cell(one.role.value),
        *_only(one.flows, one.tags),
        Cell(one.digest[:12], dim=True),
        Cell(f"{ends}, over" if is_over else ends, "red" if is_over else None),
    ]


def _check_same(
    name: str, named: Token | None, role: str | None, flows: tuple[str, ...], tags: tuple[str, ...]
) -> None:
    """A second token of a name has what the first one has: the file says that once."""
    if named is None:
        if role is None:
            raise BadRequest(f"{name!r} has no role.", fix=f"Give --role: {', '.join(Role)}.")
        return
    is_other = (flows and frozenset(flows) != named.flows) or (tags and frozenset(tags) != named.tags)
    if role not in (None, named.role) or is_other:
        raise BadRequest(
            f"{name!r} is {named.role} there already, and all its tokens are the same.",
            fix="Leave --role, --flow and --tag out, change them in the file, or use another name.",
        )


def _entry(
    name: str, digest: str, role: str | None, only: Mapping[str, tuple[str, ...]], ends: datetime | None
) -> str:
    """Return what stands in the file; of a name that it has, only one more hash."""
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
    lines = []
    if role is not None:
        lines += [f"[tokens.{key}]", f'role = "{role}"']
        lines += [f"{what} = {json.dumps(said, ensure_ascii=False)}" for what, said in only.items() if said]
        lines.append("")
    lines += [f"[[tokens.{key}.hashes]]", f'sha256 = "{digest}"']
    if ends is not None:
        lines.append(f"expires = {ends:%Y-%m-%dT%H:%M:%SZ}")
    return "\n".join([*lines, ""])


def _moment(said: str | None) -> datetime | None:
    if said is None:
        return None
    try:
        ends = datetime.fromisoformat(said)
    except ValueError:
        return datetime.now(UTC) + span_of(said, "--expires")
    return ends.astimezone(UTC) if ends.tzinfo is not None else ends.replace(tzinfo=UTC)


def _check_entry(name: str, role: str | None, whole: str, path: Path | None) -> None:
    """Read what would be written as the service does: a name or a flow may be none."""
    if whole.lstrip().startswith("{"):
        raise BadRequest(
            f"{path} is JSON, and entries are added to TOML.", fix="Leave --file out, and paste it."
        )
    try:
        read = read_entries(
            whole.encode("utf-8", "surrogatepass"), "the entry" if path is None else str(path)
        )
    except BadRequest as error:
        fix = "Leave --file out, and paste it where it fits."
        raise BadRequest(f"the entry cannot be added: {error.message}", fix=fix) from None
    assert any(one.name == name and one.role == role for one in read.tokens.values())


def _write(path: Path, text: str) -> None:
    """Replace the file in one go: a service may read it at any moment."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    try:
        made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise BadRequest(f"{path} cannot be written: {error.strerror}.", fix="Check the path.") from None
