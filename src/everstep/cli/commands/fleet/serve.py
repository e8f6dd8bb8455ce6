"""`everstep serve`."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from everstep import AsyncHost, Flow
from everstep.cli.args.loading import WaitServices, load_several
from everstep.cli.args.logs import begin_logs, finish, log_options
from everstep.cli.args.options import (
    channel_url,
    encryption_option,
    host_options,
    is_new,
    queue_url,
    read_key,
    store_option,
    url_of,
)
from everstep.cli.args.pipelines import pipeline_options
from everstep.cli.commands.fleet.opening import opened, patience_of, patience_option
from everstep.client.surroundings import keys_here
from everstep.errors import BadRequest
from everstep.model.durations import seconds_of
from everstep.server.access.proxy import ProxyUsers, proxy_users

TOKEN_VARIABLE = "EVERSTEP_HTTP_TOKEN"


@click.command()
@pipeline_options
@store_option
@host_options
@encryption_option
@click.option(
    "--flow",
    "flows",
    metavar="FILE.py[:FLOW]|FILE.dot",
    multiple=True,
    help="A flow to serve, or all of a file: they can be started, and their runs are driven. Repeatable.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one."
)
@click.option(
    "--token-file",
    metavar="FILE",
    help=f"A file with the bearer token that clients must send. [default: {TOKEN_VARIABLE}]",
)
@click.option(
    "--tokens",
    metavar="FILE",
    help="A file with names, their roles and the hashes of their tokens; read again when it changes.",
)
@click.option(
    "--user-header",
    metavar="HEADER",
    help="The header in which an authenticating proxy names its user, such as X-Forwarded-User.",
)
@click.option(
    "--user-from",
    metavar="ADDRESSES",
    multiple=True,
    help="From where that header counts: 10.0.0.5,10.1.0.0/16. Repeatable.",
)
@click.option("--user-role", metavar="ROLE", help="The role of users whom the file does not name.")
@click.option("--no-auth", is_flag=True, help="Ask for no token. Only at an address of this machine alone.")
@click.option(
    "--max-body",
    metavar="BYTES",
    default=1 << 20,
    show_default=True,
    type=click.IntRange(1),
    help="The largest body it takes.",
)
@click.option(
    "--max-connections",
    metavar="N",
    default=1000,
    show_default=True,
    type=click.IntRange(1),
    help="So many connections at once, streams included; one more is closed.",
)
@click.option(
    "--headers-within",
    metavar="SPAN",
    default="10s",
    show_default=True,
    help="How long a request may take to send its headers.",
)
@patience_option
@click.option(
    "--grace",
    metavar="SPAN",
    default="10s",
    show_default=True,
    help="So long requests and runs may go on after the first signal.",
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=32, show_default=True, help="So many runs at once."
)
@click.option("--work/--no-work", default=True, help="Drive runs that are due, or leave that to workers.")
@click.option("-q", "--quiet", is_flag=True, help="Do not log requests.")
@log_options
def serve(
    store: str | None,
    key_file: str | None,
    base_url: str | None,
    encrypt_required: bool | None,
    flows: tuple[str, ...],
    host: str,
    port: int,
    token_file: str | None,
    tokens: str | None,
    user_header: str | None,
    user_from: tuple[str, ...],
    user_role: str | None,
    no_auth: bool,
    max_body: int,
    max_connections: int,
    headers_within: str,
    give_up_after: str | None,
    grace: str,
    concurrency: int,
    work: bool,
    quiet: bool,
) -> NoReturn:
    """Serve runs, waits and answers over HTTP, and drive runs that are due.

    The first Ctrl-C or SIGTERM gives requests and runs as long as --grace says and hands the others back; the
    second hands them back at once.

    \b
    Example:
      everstep serve --flow expenses.py --no-auth
      everstep serve --flow expenses.py --host 0.0.0.0 --token-file token --base-url https://flows.example.com
      everstep serve --flow expenses.py --tokens tokens.toml
    """
    service, guards, serving = server_modules("serve")
    limits = serving.Limits(
        max_connections, seconds_of(headers_within, "--headers-within"), seconds_of(grace, "--grace", least=0)
    )
    users = _proxy_users(user_header, user_from, user_role)
    about = _credentials(guards, token_file, tokens, users, no_auth=no_auth)
    loaded, wired = load_several(flows)
    _check(loaded, base_url)
    key, keys = read_key(key_file), keys_here(encrypt_required)
    made = store if is_new(store) else None
    listener = serving.listen(host, port, has_token=any(about.values()))
    base_url = (base_url or serving.address_of(listener)).rstrip("/")
    about |= {"max_body": max_body, "base_url": base_url, "works": work}
    begin_logs_of(quiet=quiet)

    ready = partial(_say_ready, serving.address_of(listener), loaded, has_key=key is not None, made=made)
    make = partial(host_at, store, wired, key=key, base_url=base_url, encrypt=keys)

    async def main(opening: AsyncHost) -> None:
        async with opening as async_host:
            app = service.create_app(async_host, loaded, **about)
            hand = partial(async_host.worker, loaded, grace=limits.grace, concurrency=concurrency)
            worker = hand() if work and loaded else None
            await serving.serve(app, listener, worker=worker, on_ready=ready, limits=limits)

    with listener:
        asyncio.run(main(opened(make, patience_of(give_up_after))))
    stop_now()


def host_at(store: str | None, wired: WaitServices, **about: Any) -> AsyncHost:
    """Open the host of a service."""
    return AsyncHost(
        url_of(store) if store else None,
        notifiers=wired.notifiers,
        schedulers=wired.schedulers,
        channel=channel_url(),
        queue=queue_url(),
        metrics=True,
        **about,
    )


def server_modules(command: str) -> tuple[Any, Any, Any]:
    """Return the modules of the service, which needs what is not installed everywhere."""
    try:
        from everstep.server import app, guards, serving
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise BadRequest(
            f"{command} needs the package {package}, which is not installed.",
            fix="Install it with: pip install 'everstep[web]'",
        ) from error
    return app, guards, serving


def begin_logs_of(*, quiet: bool) -> None:
    """Write log lines as the options say; quietly, none of requests."""
    begin_logs(output=("stdout", "stderr"), is_service=True)
    if quiet:
        logging.getLogger("everstep.access").setLevel(logging.WARNING)


def stop_now() -> NoReturn:
    """End the process: a node's thread may never end, and its run was handed back."""
    click.echo("stopped", err=True)
    finish()
    os._exit(0)


def _say_ready(address: str, loaded: list[Flow], *, has_key: bool, made: str | None) -> None:
    names = ", ".join(flow.name for flow in loaded) or "none"
    click.echo(f"listening at {address}, flows: {names}", err=True)
    if loaded and not has_key and not os.environ.get("EVERSTEP_KEY"):
        hint = "no key: links are shown once, to notifiers; POST /waits/ID/reissue makes one"
        click.secho(hint, err=True, dim=True)
    if made is not None:
        click.secho(f"there was no store at {made}: a new one was made", err=True, fg="yellow")


def _proxy_users(header: str | None, addresses: tuple[str, ...], role: str | None) -> ProxyUsers | None:
    """Return which proxy may name users, and how."""
    if header is None:
        if addresses or role is not None:
            raise BadRequest(
                "--user-from and --user-role are for users of a proxy.", fix="Give --user-header, too."
            )
        return None
    listed = [address for text in addresses for address in text.split(",")]
    return proxy_users(header, listed, role, where="--user-header")


def _credentials(
    guards: Any, token_file: str | None, tokens: str | None, users: ProxyUsers | None, *, no_auth: bool
) -> dict[str, Any]:
    """Return what clients are let in by, as the service takes it; nothing if that is really meant."""
    _check_fits(tokens, users, no_auth=no_auth)
    token = _read_token(token_file, no_auth=no_auth, is_needed=tokens is None and users is None)
    token = None if token is None else guards.check_token(token, token_file or TOKEN_VARIABLE)
    return {"token": token, "tokens": tokens, "users": users}


def _check_fits(tokens: str | None, users: ProxyUsers | None, *, no_auth: bool) -> None:
    given = [name for name, what in (("--tokens", tokens), ("--user-header", users)) if what is not None]
    if no_auth and given:
        raise BadRequest(f"{given[0]} and --no-auth are both given.", fix="Give one of them.")
    if users is not None and users.role is None and tokens is None:
        raise BadRequest(
            "--user-header is given, and its users have no role.",
            fix="Give --user-role, or name users in the file of --tokens.",
        )


def _read_token(file: str | None, *, no_auth: bool, is_needed: bool) -> str | None:
    """Return the bearer token, or none if that is really meant or others count."""
    given = os.environ.get(TOKEN_VARIABLE)
    if no_auth:
        if file is not None:
            raise BadRequest("--token-file and --no-auth are both given.", fix="Give one of them.")
        return None
    if file is not None:
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BadRequest(
                f"--token-file {file} cannot be read: {reason}.", fix="Check the path."
            ) from error
    if given:
        return given
    if not is_needed:
        return None
    raise BadRequest(
        "there is no token for clients to send.",
        fix=f"Give one with --token-file or {TOKEN_VARIABLE}, or several with --tokens; "
        "--no-auth does without, on this machine alone.",
    )


def _check(flows: list[Flow], url: str | None) -> None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise BadRequest(f"--base-url {url} is not a URL.", fix="Write https://flows.example.com.")
    names = [flow.name for flow in flows]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadRequest(f"two flows are called {', '.join(twice)}.", fix="Serve one of each name.")
