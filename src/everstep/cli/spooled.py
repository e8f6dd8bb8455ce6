"""What `everstep log` says of checkpoints that wait on this machine."""

from __future__ import annotations

from typing import Any

import click

from everstep import Host
from everstep.cli.options import command_line
from everstep.cli.plain import clock_time, count
from everstep.cli.table import Cell
from everstep.cli.tree import name_of
from everstep.errors import EverstepError


def waiting_rows(host: Host, run_id: str) -> list[list[Cell]]:
    """Return the rows of the checkpoints of a run that the store does not have yet."""
    rows: list[list[Cell]] = []
    for record in host.spooled(run_id):
        heads = [str(record.sequence), clock_time(record.created_at), record.trigger.value]
        for step in record.steps or (None,):
            name = Cell(name_of(step) if step is not None else "", "cyan")
            rows.append([*map(Cell, heads), name, Cell(""), Cell("on this machine only", "yellow")])
            heads = [""] * 3
    return rows


def say_waiting(host: Host, run_id: str, store: str | None) -> None:
    """Say how checkpoints that wait on this machine get into the store."""
    waiting = len(host.spooled(run_id))
    if waiting:
        later = command_line("drain", store=store)
        said = f"{count(waiting, 'checkpoint')} on this machine, not yet in the store: {later}"
        click.secho(said, err=True, fg="yellow")


def waiting_json(host: Host, run_id: str) -> dict[str, Any]:
    """Return the checkpoints of a run that the store does not have yet, as JSON shows them."""
    try:
        found = host.spooled(run_id)
    except EverstepError as error:
        return {"spooled": [], "spool_problem": str(error)}
    spooled = [
        {
            "sequence": record.sequence,
            "checkpoint_id": record.checkpoint_id,
            "created_at": record.created_at.isoformat(),
            "trigger": record.trigger.value,
            "status": record.status.value,
            "digest": record.digest,
            "steps": [
                {"node": step.path, "visit": step.visit, "status": step.status.value} for step in record.steps
            ],
        }
        for record in found
    ]
    return {"spooled": spooled, "spool_problem": None}
