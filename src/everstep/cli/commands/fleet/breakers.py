"""`everstep breakers`."""

from __future__ import annotations

import click

from everstep.cli.args.options import DEFAULT_FILE, json_option, open_host, store_option, who, who_options
from everstep.cli.view.guards import COLOURS
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import moment, one_line, write_json
from everstep.client.guards import BreakerInfo
from everstep.codec.wire import wire


@click.command()
@click.option("--reset", metavar="NAME", help="Close this breaker first; what it has counted is forgotten.")
@who_options
@store_option
@json_option
def breakers(reset: str | None, store: str | None, as_json: bool) -> None:
    """List the breakers that runs of a store share: how each stands, since when, and why it opened.

    One is listed once something has happened to it. Runs that wait for its review still do after a reset.

    \b
    Examples:
      everstep breakers
      everstep breakers --reset payments
    """
    found: dict[str, BreakerInfo] = {}
    if reset is not None or store or DEFAULT_FILE.exists():
        with open_host(store, create=False) as host:
            if reset is not None:
                host.fleet.reset_breaker(reset, **who())
            found = host.fleet.breakers()
    if as_json:
        write_json({"breakers": {name: wire(info) for name, info in found.items()}})
    elif found:
        write_table(["breaker", "state", "since", "opened", "why"], [_row(info) for info in found.values()])
    else:
        click.echo("no shared breakers")


def _row(info: BreakerInfo) -> list[Cell]:
    return [
        Cell(info.name),
        Cell(info.state.value.replace("_", " "), COLOURS[info.state]),
        Cell(moment(info.since) if info.since is not None else "", dim=True),
        Cell(f"×{info.trips}" if info.trips else ""),
        Cell(one_line(info.reason)),
    ]
