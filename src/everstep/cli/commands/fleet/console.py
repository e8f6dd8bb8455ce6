"""`everstep console`."""

from __future__ import annotations

import asyncio
import secrets
import webbrowser
from functools import partial
from typing import NoReturn

import click

from everstep.cli.args.loading import load_several
from everstep.cli.args.logs import log_options
from everstep.cli.args.options import (
    encryption_option,
    is_new,
    login_name,
    said_who,
    store_option,
    who_option,
)
from everstep.cli.args.pipelines import pipeline_options
from everstep.cli.commands.fleet.opening import opened
from everstep.cli.commands.fleet.serve import begin_logs_of, host_at, server_modules, stop_now
from everstep.client.surroundings import keys_here


@click.command()
@pipeline_options
@store_option
@encryption_option
@click.argument("flows", nargs=-1, metavar="[FLOW.py ...]")
@click.option("--act", is_flag=True, help="Let the browser act, too: answer, cancel, retry, fork, erase.")
@who_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one."
)
@click.option("--browser/--no-browser", default=True, help="Open the browser, or only say where it is.")
@log_options
def console(
    store: str | None,
    encrypt_required: bool | None,
    flows: tuple[str, ...],
    act: bool,
    host: str,
    port: int,
    browser: bool,
) -> NoReturn:
    """Look at all runs of a store in a browser, live.

    It works on the store alone, and drives nothing. FLOW.py are files with flows, for what needs their code.
    The address that it prints lets one browser in, once, for twelve hours; without --act it only looks.

    \b
    Example:
      everstep console
      everstep console --act orders.py
      everstep console --store postgresql://localhost/flows --no-browser
    """
    service, _, serving = server_modules("console")
    loaded, wired = load_several(flows)
    made = store if is_new(store) else None
    listener = serving.listen(host, port, has_token=True)
    address = serving.address_of(listener)
    begin_logs_of(quiet=True)
    make = partial(host_at, store, wired, base_url=address, encrypt=keys_here(encrypt_required))
    acts_as = said_who()["by"] or login_name() or ""

    async def main() -> None:
        async with opened(make, None) as async_host:
            app = service.create_app(
                async_host,
                loaded,
                token=secrets.token_urlsafe(32),
                base_url=address,
                works=False,
                acts_as=acts_as,
            )
            code = app.service.access.sessions.code(service.ACTS if act else service.LOOKS)
            await serving.serve(
                app, listener, on_ready=partial(_say_ready, f"{address}/ui/login?code={code}", made, browser)
            )

    with listener:
        asyncio.run(main())
    stop_now()


def _say_ready(url: str, made: str | None, browser: bool) -> None:
    if made is not None:
        click.secho(f"there was no store at {made}: a new one was made", err=True, fg="yellow")
    is_open = browser and webbrowser.open(url)
    click.echo("the console is open in your browser; for another one:" if is_open else "open the console at")
    click.echo(f"  {url}")
    click.secho("Ctrl-C ends it; no run is touched by that.", err=True, dim=True)
