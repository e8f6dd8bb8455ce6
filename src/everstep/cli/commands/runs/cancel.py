"""`everstep cancel`."""

from __future__ import annotations

import click

from everstep import Status
from everstep.cli.args.options import find_run, json_option, open_host, store_option, who, who_options
from everstep.cli.view.text import ended_before, write_json

SAYS = {
    Status.CANCELLED: "run {run} is cancelled",
    Status.RUNNING: "run {run} is being cancelled: its owner stops at its next write",
    Status.HALTED: "run {run} is being cancelled: who has its code undoes first what it did",
}


@click.command()
@click.argument("run_id", metavar="RUN")
@who_options
@store_option
@json_option
def cancel(run_id: str, store: str | None, as_json: bool) -> int:
    """Cancel a run. One that a live process drives stops at its next write.

    Exits with 1 if the run had ended already.

    \b
    Example:
      everstep cancel A17 --comment "the order was withdrawn"
    """
    with open_host(store, create=False) as host:
        run_id = find_run(host, run_id)
        is_over = host.info(run_id).status.is_final
        status = host.cancel(run_id, **who())
    if as_json:
        write_json({"run_id": run_id, "status": status.value})
    else:
        ended = f"run {{run}} {ended_before(status)}; there is nothing to cancel"
        click.echo((ended if is_over else SAYS.get(status, ended)).format(run=run_id))
    return 0 if status in SAYS and not is_over else 1
