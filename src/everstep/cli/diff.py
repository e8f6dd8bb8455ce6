"""`everstep diff`."""

from __future__ import annotations

from typing import Any

import click

from everstep import Diff, Status
from everstep.cli.changes import ChangeWriter, change_json
from everstep.cli.options import (
    find_place,
    json_option,
    load_option,
    looking_at,
    store_option,
)
from everstep.cli.plain import error_json, one_line, write_json
from everstep.cli.table import Cell, layout, screen_width
from everstep.client.diff import Moment


@click.command()
@click.argument("run_id", metavar="RUN[@N]")
@click.argument("other", metavar="[OTHER[@M]]", required=False)
@click.option("--from", "start", metavar="N", help="The checkpoint of RUN, by sequence or id.")
@click.option("--to", "end", metavar="M", help="The checkpoint of OTHER, or of RUN if there is no other.")
@click.option("--full", is_flag=True, help="Show every change, and long values whole.")
@load_option
@store_option
@json_option
def diff(
    run_id: str,
    other: str | None,
    start: str | None,
    end: str | None,
    full: bool,
    modules: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> int:
    """Compare two runs, or two checkpoints of one: values, nodes and status.

    Without checkpoints, two runs are compared as they are now, and one run with its beginning. Exits with 0
    if nothing differs, with 1 if something does.

    \b
    Examples:
      everstep diff A17 B20
      everstep diff A17 --from 3 --to 5
      everstep diff A17@3 B20@5 --json | jq '.values[].path'
    """
    with looking_at(store, modules, as_json=as_json) as host:
        run_id, first = find_place(host, run_id, start)
        target, last = find_place(host, other or run_id, end)
        found = host.diff(run_id, target if other is not None else None, start=first, end=last)
        if as_json:
            write_json(diff_json(found))
        else:
            write(found, whole=full)
    return 1 if found else 0


def write(found: Diff, *, whole: bool) -> None:
    """Write what differs, values first."""
    click.secho(f"{_named(found.before)} → {_named(found.after)}", dim=True)
    if not found:
        click.echo("nothing differs")
        return
    if found.before.status is not found.after.status:
        click.echo(f"status: {found.before.status.value} → {found.after.status.value}")
    for sign, colour, moment in (("-", "red", found.before), ("+", "green", found.after)):
        if moment.error is not None and found.before.error != found.after.error:
            click.secho(f"{sign} {moment.error.type}: {one_line(moment.error.message)}", fg=colour)
    writer = ChangeWriter(whole=whole)
    writer.write(found.values)
    rows = [[Cell("  " + change.path), Cell(_went(change.visits, change.status))] for change in found.nodes]
    if rows:
        click.secho("nodes", dim=True)
    for line in layout(rows, screen_width()):
        click.echo(line)
    if writer.has_cut:
        click.secho("Something is cut; --full or --json shows all of it.", err=True, dim=True)


def _named(moment: Moment) -> str:
    return f"run {moment.run_id} at checkpoint {moment.sequence}"


def _went(visits: tuple[int, int], status: tuple[Status | None, Status | None]) -> str:
    was, became = (s.value if s is not None else "not run" for s in status)
    parts = [f"{was} → {became}"] if was != became else [became]
    if visits[0] != visits[1] and max(visits) > 1:
        parts.append(f"×{visits[0]} → ×{visits[1]}")
    return ", ".join(parts)


def diff_json(found: Diff) -> dict[str, Any]:
    """Return a comparison as JSON shows it."""
    return {
        "is_equal": not found,
        "before": _moment_json(found.before),
        "after": _moment_json(found.after),
        "values": [change_json(change) for change in found.values],
        "nodes": [
            {"node": n.path, "visits": list(n.visits), "status": [s.value if s else None for s in n.status]}
            for n in found.nodes
        ],
    }


def _moment_json(moment: Moment) -> dict[str, Any]:
    return {
        "run_id": moment.run_id,
        "checkpoint": moment.sequence,
        "status": moment.status.value,
        "error": error_json(moment.error),
    }
