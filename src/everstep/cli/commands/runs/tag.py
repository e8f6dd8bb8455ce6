"""`everstep tag` and `everstep count`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from everstep.cli.args.labels import given_tags
from everstep.cli.args.options import (
    find_run,
    json_option,
    open_host,
    query_options,
    store_option,
    who,
    who_options,
)
from everstep.cli.view.labels import tags_said
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import write_json
from everstep.client.queries import CountQuery, parameters_of
from everstep.codec.wire import wire

if TYPE_CHECKING:
    from everstep import Host
    from everstep.results import RunCount

_PATIENCE = 5.0
"""Seconds for which counting goes on by itself."""


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("add", metavar="[NAME[=VALUE]]...", nargs=-1)
@click.option("--remove", multiple=True, metavar="NAME", help="Take this tag away; repeat for more.")
@who_options
@store_option
@json_option
def tag(run_id: str, add: tuple[str, ...], remove: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Tag a run, also one that has ended, so that it is found by that; or take tags away.

    \b
    Examples:
      everstep tag A17 vip team=blue
      everstep tag A17 --remove vip
    """
    with open_host(store, create=False) as host:
        info = host.fleet.tag(find_run(host, run_id), given_tags(add), remove=remove, **who())
    if as_json:
        write_json({"run_id": info.run_id, "tags": info.tags or {}})
    else:
        click.echo(f"run {info.run_id} has the tags: {tags_said(info) or 'none'}")


@click.command()
@query_options(parameters_of(CountQuery), by="status")
@store_option
@json_option
def count(store: str | None, as_json: bool, **asked: Any) -> None:
    """Count runs by their status, or by another field of queries.

    \b
    Examples:
      everstep count
      everstep count --by tag.team --where "status = failed and started > -2d"
    """
    with open_host(store, create=False) as host:
        found = _counted(host, asked)
    if as_json:
        write_json(wire(found))
        return
    if not found.runs:
        click.echo("no runs")
    else:
        write_table(
            [found.by, "runs"],
            [[Cell(name or "(none)"), Cell(f"{many:,}")] for name, many in found.runs.items()],
        )
    if found.next is not None:
        click.echo(f"not all runs were looked at; count on with --before {found.next}", err=True)


def _counted(host: Host, asked: Mapping[str, Any]) -> RunCount:
    """Count, call after call for a while: each looks at so many runs."""
    found, ends = host.fleet.count(**asked), time.monotonic() + _PATIENCE
    runs = Counter(found.runs)
    while found.next is not None and time.monotonic() < ends:
        found = host.fleet.count(**{**asked, "before": found.next})
        runs.update(found.runs)
    ranked = sorted(runs.items(), key=lambda item: (-item[1], item[0]))
    return type(found)(by=found.by, runs=dict(ranked), next=found.next)
