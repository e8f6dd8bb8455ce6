"""`everstep drain`."""

from __future__ import annotations

import click

from everstep.cli.args.options import json_option, open_host, store_option
from everstep.cli.view.text import count, write_json
from everstep.codec.wire import wire


@click.command()
@store_option
@json_option
def drain(store: str | None, as_json: bool) -> None:
    """Write checkpoints that wait on this machine to the store.

    A flow with on_store_failure="best_effort" goes on while its store is out of reach, and keeps its
    checkpoints in a folder: EVERSTEP_SPOOL, by default beside a SQLite file (runs.db.spool), for other stores
    under ~/.local/state/everstep. Workers write them too, and so does a resume of the run on this machine.
    If the run has gone on without them, they become a fork of it.

    \b
    Example:
      everstep drain --store sqlite:///runs.db
    """
    with open_host(store, create=False) as host:
        drained, folder = host.storage.drain(), host.storage.spool
    if as_json:
        write_json({"spool": str(folder), "runs": [wire(one) for one in drained]})
        return
    if not drained:
        click.echo(f"nothing waits in {folder}")
    for one in drained:
        where = "" if one.fork is None else f", as run {one.fork}: the run had gone on without them"
        click.echo(f"run {one.run_id}: {count(one.checkpoints, 'checkpoint')} written{where}")
