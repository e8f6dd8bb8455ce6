"""`everstep undo`."""

from __future__ import annotations

import click

from everstep import Status
from everstep.cli.args.options import (
    command_line,
    find_run,
    json_option,
    open_host,
    store_option,
    who,
    who_options,
)
from everstep.cli.view.text import write_json


@click.command()
@click.argument("run_id", metavar="RUN")
@who_options
@store_option
@json_option
def undo(run_id: str, store: str | None, as_json: bool) -> None:
    """Undo what a run did, the last step first: a saga, with the undo= of its nodes.

    An unfinished run is cancelled with that, whatever its flow says; one that failed or was cancelled undoes
    what is left. Who has its code does it: its owner, a worker, or `everstep resume`. A completed run is
    refused. What would be undone is shown by `everstep explain`.

    \b
    Example:
      everstep undo A17 --comment "the order was withdrawn"
    """
    with open_host(store, create=False) as host:
        run_id = find_run(host, run_id)
        status = host.undo(run_id, **who())
        info = host.info(run_id)
    if as_json:
        write_json({"run_id": run_id, "status": status.value, "undoing": info.undoing})
    elif status is Status.CANCELLED and info.undoing is None:
        click.echo(f"run {run_id} is cancelled; it had done nothing that could be undone")
    else:
        again = command_line("resume", run_id, store=store)
        goes_on = "" if info.is_driven else f" by a worker, or: {again}"
        click.echo(f"what run {run_id} did is being undone{goes_on}")
