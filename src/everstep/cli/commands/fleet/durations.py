"""`everstep durations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everstep.cli.args.options import json_option, open_host, query_options, store_option
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import count, duration, moment, write_json
from everstep.client.queries import DurationsQuery, parameters_of
from everstep.codec.wire import wire

if TYPE_CHECKING:
    from everstep.results import FlowDurations, NodeDurations, Spread

HEAD = ("", "visits", "failed", "retries", "p50", "p90", "p99", "max")
SPARE = ("max", "retries")
"""What a narrow terminal does not show, the first to go first."""


@click.command()
@click.argument("flow", required=False)
@query_options([one for one in parameters_of(DurationsQuery) if one.name != "flow"])
@store_option
@json_option
def durations(flow: str | None, store: str | None, as_json: bool, **asked: Any) -> None:
    """Say how long the newest ended runs took, and the visits to their nodes.

    Half of them were no longer than p50, nine of ten no longer than p90. A run waits until its first step
    begins, and while it is halted or has failed.

    \b
    Examples:
      everstep durations orders
      everstep durations --where "started > -1d and status = completed" --newest 1000
    """
    with open_host(store, create=False) as host:
        found = host.fleet.durations(flow, **asked)
    if as_json:
        write_json(wire(found))
        return
    if not found.runs:
        click.echo("no run has ended")
        return
    for of in found.flows:
        click.echo(f"{of.flow}: {count(of.runs, 'run')}")
        write_table(HEAD, rows_of(of), SPARE)
    span = f"since {moment(found.began)}, the last ended {moment(found.ended)}"
    click.echo(f"of runs that started {span}", err=True)
    if found.cut:
        why = "have more checkpoints than were read, or some were removed"
        click.echo(f"{count(found.cut, 'run')} {why}", err=True)


def rows_of(of: FlowDurations) -> list[list[Cell]]:
    """Return what is shown of a flow."""
    parts = {"a run": of.total, "- running": of.running, "- waiting": of.waiting}
    rows = [[Cell(what), Cell(""), Cell(""), Cell(""), *_times(times)] for what, times in parts.items()]
    return rows + [_row(node) for node in of.nodes]


def _row(node: NodeDurations) -> list[Cell]:
    return [
        Cell(node.node),
        Cell(f"{node.visits:,}"),
        Cell(f"{node.failures:,}", "red" if node.failures else None),
        Cell(f"{node.retries:,}"),
        *_times(node.seconds),
    ]


def _times(times: Spread | None) -> list[Cell]:
    if times is None:
        return [Cell("")] * 4
    return [Cell(duration(seconds)) for seconds in (times.p50, times.p90, times.p99, times.max)]
