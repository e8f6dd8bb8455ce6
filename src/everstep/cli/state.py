"""`everstep state`."""

from __future__ import annotations

from typing import Any

import click

from everstep import RunState
from everstep.cli.loading import Spec, load_module
from everstep.cli.options import json_option, load_option, open_host, store_option
from everstep.cli.plain import Unreadable, count, preview, write_json
from everstep.cli.table import wide


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--at", metavar="N", help="The checkpoint, by sequence or id. [default: the newest]")
@load_option
@store_option
@json_option
def state(run_id: str, at: str | None, modules: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Show the values of a run as they were at one checkpoint, inputs included.

    \b
    Example:
      everstep state A17 --at 3
    """
    for module in modules:
        load_module(Spec(module, ""))
    with open_host(store, create=False) as host:
        found = host.state(run_id, at=int(at) if at is not None and at.isdecimal() else at)
        values = {name: read(found, name) for name in found}
    if as_json:
        write_json(
            {
                "run_id": run_id,
                "checkpoint": found.sequence,
                "status": found.status.value,
                "values": values,
                "versions": found.versions,
                "pending": list(found.frontier.pending),
                "steps": found.counters.steps,
            }
        )
        return
    steps = count(found.counters.steps, "step")
    click.secho(f"run {run_id} at checkpoint {found.sequence}: {found.status.value}, {steps}", dim=True)
    for name, value in values.items():
        version = found.versions.get(name, 1)
        mark = click.style(f" (version {version})", dim=True) if version > 1 else ""
        click.echo(f"{name} = {preview(value, wide())}{mark}")
    if found.frontier.pending:
        click.secho(f"next: {', '.join(found.frontier.pending)}", dim=True)


def read(found: RunState, name: str) -> Any:
    """Return a value, or an `Unreadable` that says why not."""
    try:
        return found[name]
    except Exception as error:
        return Unreadable(error)
