"""What `log`, `show` and `state` say of checkpoints that wait on this machine."""

from __future__ import annotations

from collections.abc import Sequence

import click

from everstep import Host
from everstep.cli.args.options import command_line
from everstep.cli.view.table import Cell
from everstep.cli.view.text import clock_time, count
from everstep.client.documents import Spooled
from everstep.client.projection import name_of
from everstep.errors import EverstepError
from everstep.model.records import CheckpointRecord


def waiting_rows(host: Host, run_id: str) -> list[list[Cell]]:
    """Return the rows of the checkpoints of a run that the store does not have yet."""
    rows: list[list[Cell]] = []
    waiting = host.storage.spooled(run_id)
    note = "on this machine only" + (", becomes a fork" if _goes_astray(host, run_id, waiting) else "")
    for record in waiting:
        heads = [str(record.sequence), clock_time(record.created_at), record.trigger.value]
        for step in record.steps or (None,):
            name = Cell(name_of(step) if step is not None else "", "cyan")
            rows.append([*map(Cell, heads), name, Cell(""), Cell(note, "yellow")])
            heads = [""] * 3
    return rows


def say_waiting(host: Host, run_id: str, store: str | None) -> None:
    """Say how checkpoints that wait on this machine get into the store."""
    waiting = host.storage.spooled(run_id)
    if waiting:
        later = command_line("drain", store=store)
        said = f"{count(len(waiting), 'checkpoint')} on this machine, not yet in the store: {later}"
        if _goes_astray(host, run_id, waiting):
            said += " (the run has gone on without them: they become a fork of it)"
        elif waiting[-1].status.is_final:
            said += f" (there the run is {waiting[-1].status.value})"
        click.secho(said, err=True, fg="yellow")


def _goes_astray(host: Host, run_id: str, waiting: Sequence[CheckpointRecord]) -> bool:
    """True if the run has gone on without what waits."""
    if not waiting or waiting[0].sequence > host.info(run_id).checkpoints:
        return False
    [there] = host.checkpoints(run_id, first=waiting[0].sequence, last=waiting[0].sequence)
    return there.checkpoint_id != waiting[0].checkpoint_id


def waiting(host: Host, run_id: str) -> Spooled:
    """Return the checkpoints of a run that the store does not have yet, as JSON shows them."""
    try:
        return Spooled.of(host.storage.spooled(run_id))
    except EverstepError as error:
        return Spooled(spooled=[], spool_problem=str(error))
