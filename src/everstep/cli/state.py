"""`everstep state`."""

from __future__ import annotations

from typing import Any

import click

from everstep import RunState
from everstep.cli.options import find_place, json_option, load_option, looking_at, store_option
from everstep.cli.outline import split_pending
from everstep.cli.plain import Unreadable, count, is_cut, preview, write_json
from everstep.cli.plain import full as whole
from everstep.cli.table import wide
from everstep.errors import BadRequest


@click.command()
@click.argument("run_id", metavar="RUN[@N]")
@click.argument("checkpoint", metavar="[N]", required=False)
@click.option("--at", metavar="N", help="The checkpoint, by sequence or id. [default: the newest]")
@click.option("--full", is_flag=True, help="Show long values whole.")
@load_option
@store_option
@json_option
def state(
    run_id: str,
    checkpoint: str | None,
    at: str | None,
    full: bool,
    modules: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Show the values of a run as they were at one checkpoint, inputs included.

    \b
    Example:
      everstep state A17 3
      everstep state A17@3
    """
    if at is not None and checkpoint is not None:
        raise BadRequest("the checkpoint is given twice.", fix=f"Write: everstep state {run_id} {checkpoint}")
    at = at or checkpoint
    with looking_at(store, modules, as_json=as_json) as host:
        run_id, place = find_place(host, run_id, at)
        found = host.state(run_id, at=place)
        values = {name: read(found, name) for name in found}
        write(found, values, full=full, as_json=as_json)


def write(found: RunState, values: dict[str, Any], *, full: bool, as_json: bool) -> None:
    """Write what a run knew, and what came next."""
    coming, waiting = split_pending(found.plan, found.frontier.pending)
    if as_json:
        write_json(
            {
                "run_id": found.run_id,
                "checkpoint": found.sequence,
                "status": found.status.value,
                "values": values,
                "versions": found.versions,
                "pending": list(found.frontier.pending),
                "next": coming,
                "steps": found.counters.steps,
            }
        )
        return
    steps = count(found.counters.steps, "step")
    click.secho(f"run {found.run_id} at checkpoint {found.sequence}: {found.status.value}, {steps}", dim=True)
    for name, value in values.items():
        version = found.versions.get(name, 1)
        mark = click.style(f" (version {version})", dim=True) if version > 1 else ""
        shown = whole(value, wide(), 2) if full else preview(value, wide())
        click.echo(f"{name}{mark} ={shown}" if shown.startswith("\n") else f"{name} = {shown}{mark}")
    for label, names in (("next", coming), ("waiting", waiting)):
        if names:
            click.secho(f"{label}: {', '.join(names)}", dim=True)
    if not full and any(is_cut(value, wide()) for value in values.values()):
        click.secho("Some values are cut; --full or --json shows all of them.", err=True, dim=True)


def read(found: RunState, name: str) -> Any:
    """Return a value, or an `Unreadable` that says why not."""
    try:
        return found[name]
    except Exception as error:
        return Unreadable(error)
