"""`everstep diff`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import click

from everstep import Status
from everstep.cli.args.options import (
    find_place,
    json_option,
    load_option,
    looking_at,
    store_option,
)
from everstep.cli.view.changes import ChangeWriter
from everstep.cli.view.table import Cell, layout, screen_width
from everstep.cli.view.text import count, one_line, write_json
from everstep.client.diff import Moment, NodeChange
from everstep.codec.wire import wire
from everstep.model.address import item_of, map_of
from everstep.results import Change, Diff

MANY_ITEMS = 3
"""Changes inside more items of a map than this are counted rather than listed."""
_INSIDE = re.compile(r"[.\[{]")


@click.command()
@click.argument("run_id", metavar="RUN[@N][/PATH]")
@click.argument("other", metavar="[OTHER[@M][/PATH]]", required=False)
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

    Without checkpoints, two runs are compared as they are now, and one run with its beginning. With PATH,
    what lies inside that flow or item, named from there. Exits with 0 if nothing differs, with 1 if something
    does.

    \b
    Examples:
      everstep diff A17 B20
      everstep diff A17 --from 3 --to 5
      everstep diff A17@3 B20@5 --json | jq '.values[].path'
      everstep diff A17/check#7 A17/check#8
    """
    with looking_at(store, modules, as_json=as_json) as host:
        run_id, first = find_place(host, run_id, start)
        target, last = find_place(host, other or run_id, end)
        found = host.debug.diff(run_id, target if other is not None else None, start=first, end=last)
        if as_json:
            write_json(wire(found))
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
    listed, folded = (found.values, {}) if whole else apart(found.values)
    writer.write(listed)
    for where, changes in folded.items():
        kinds = Counter(change.kind for change in changes)
        told = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
        click.secho(f"~ {where}: {told}", fg="yellow")
    nodes, gathered = (found.nodes, {}) if whole else apart(found.nodes)
    rows = [[Cell("  " + change.path), Cell(_went(change.visits, change.status))] for change in nodes]
    rows += [
        [Cell(f"  {where}"), Cell(f"{count(len(group), 'item')} elsewhere")]
        for where, group in gathered.items()
    ]
    if rows:
        click.secho("nodes", dim=True)
    for line in layout(rows, screen_width()):
        click.echo(line)
    if writer.has_cut or folded or gathered:
        click.secho("Something is cut; --full or --json shows all of it.", err=True, dim=True)


T = TypeVar("T", Change, NodeChange)


def apart(changes: Sequence[T]) -> tuple[list[T], dict[str, list[T]]]:
    """Tell what is to be listed from what is inside too many items of a map, gathered by where it is."""
    groups: dict[str, list[T]] = {}
    for change in changes:
        groups.setdefault(_in_items(change.path), []).append(change)
    folded = {
        where: group
        for where, group in groups.items()
        if where and len({item_of(change.path) for change in group}) > MANY_ITEMS
    }
    return [change for change in changes if _in_items(change.path) not in folded], folded


def _in_items(path: str) -> str:
    """Write a path inside a map as it is for every item: `check#…/cleaned`; empty for any other."""
    item = item_of(_INSIDE.split(path, maxsplit=1)[0]) if path[0] != "@" else None
    if item is None:
        return ""
    rest = _INSIDE.split(path[len(item) :], maxsplit=1)[0]
    return f"{map_of(item)}#…{rest}"


def _named(moment: Moment) -> str:
    where = f"/{moment.part.base}" if moment.part is not None else ""
    return f"run {moment.run_id}{where} at checkpoint {moment.sequence}"


def _went(visits: tuple[int, int], status: tuple[Status | None, Status | None]) -> str:
    was, became = (s.value if s is not None else "not run" for s in status)
    parts = [f"{was} → {became}"] if was != became else [became]
    if visits[0] != visits[1] and max(visits) > 1:
        parts.append(f"×{visits[0]} → ×{visits[1]}")
    return ", ".join(parts)
