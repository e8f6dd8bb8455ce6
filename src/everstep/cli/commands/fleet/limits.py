"""`everstep limits`."""

from __future__ import annotations

import click

from everstep.cli.args.options import json_option, open_host, store_option
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import moment, one_line, write_json
from everstep.codec.wire import wire
from everstep.results import LimitInfo


@click.command()
@click.option("--flow", metavar="NAME", help="Only the limits of this flow.")
@store_option
@json_option
def limits(flow: str | None, store: str | None, as_json: bool) -> None:
    """List what limits hold back: how many of each key run, have started and wait, and why.

    Of a flow, the limits are those that live workers have.

    \b
    Examples:
      everstep limits
      everstep limits --flow mail --json
    """
    with open_host(store, create=False) as host:
        found = [one for one in host.fleet.limits() if flow in (None, one.flow)]
        is_alone = not host.fleet.workers()
    if as_json:
        write_json({"limits": [wire(one) for one in found]})
    elif found:
        write_table(["limit", "flow", "key", "running", "started", "waiting", "why"], [*map(_row, found)])
    else:
        click.echo("no limit is in use")
    if is_alone and not as_json:
        click.secho("limits of flows are those that live workers have: none is alive", fg="yellow", err=True)


def _row(one: LimitInfo) -> list[Cell]:
    until = f" until {moment(one.until)}" if one.until is not None else ""
    return [
        Cell(one.limit),
        Cell(one.flow or "calls", dim=one.flow is None),
        Cell(one_line(one.key)),
        Cell(f"{one.running}" if one.most is None else f"{one.running} of {one.most}"),
        Cell(f"{one.started}" if one.rate is None else f"{one.started} of {one.rate}"),
        Cell(f"{one.waiting or ''}"),
        Cell(one_line(one.why + until)),
    ]
