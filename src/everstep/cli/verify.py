"""`everstep verify`."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.options import command_line, find_run, json_option, open_host, store_option
from everstep.cli.plain import count, one_line, write_json
from everstep.client.views import Verified


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@store_option
@json_option
def verify(run_id: str | None, store: str | None, as_json: bool) -> int:
    """Check that what is kept of a run, or of every run, is as it was written.

    Each checkpoint is hashed onto the one before it, so one bit that changed is found, and so is one that is
    missing. Of a run that is damaged the newest checkpoint that is valid is named: a fork can go on from it.
    Checkpoints that wait on this machine are checked too. Exits with 1 if anything is damaged.

    \b
    Examples:
      everstep verify
      everstep verify A17 --json
    """
    with open_host(store, create=False) as host:
        found = host.verify(find_run(host, run_id) if run_id is not None else None)
    if as_json:
        write_json({"is_sound": all(one.is_sound for one in found), "runs": [_json(one) for one in found]})
    else:
        _write(found, store)
    return 0 if all(one.is_sound for one in found) else 1


def _write(found: list[Verified], store: str | None) -> None:
    for one in found:
        if one.spooled:
            waiting = count(one.spooled, "checkpoint")
            click.secho(f"run {one.run_id}: {waiting} on this machine, not yet in the store", fg="yellow")
        if one.problem:
            click.secho(f"run {one.run_id} is damaged: {one_line(one.problem)}", fg="red")
            if one.newest_valid is not None:
                again = command_line("fork", one.run_id, "--at", str(one.newest_valid), store=store)
                click.echo(f"  checkpoint {one.newest_valid} is valid; go on from it: {again}")
        if one.spool_problem:
            said = f"run {one.run_id}: what waits on this machine is damaged: {one_line(one.spool_problem)}"
            click.secho(said, fg="red")
    damaged = sum(not one.is_sound for one in found)
    checked = f"{count(len(found), 'run')}, {count(sum(one.checkpoints for one in found), 'checkpoint')}"
    removed = sum(one.removed for one in found)
    rest = f" ({removed:,} of them removed)" if removed else ""
    verdict = click.style(f"{damaged:,} damaged", fg="red") if damaged else click.style("sound", fg="green")
    click.echo(f"{checked}{rest}: {verdict}")


def _json(one: Verified) -> dict[str, Any]:
    return {
        "run_id": one.run_id,
        "is_sound": one.is_sound,
        "checkpoints": one.checkpoints,
        "removed": one.removed,
        "newest_valid": one.newest_valid,
        "problem": one.problem or None,
        "spooled": one.spooled,
        "spool_problem": one.spool_problem or None,
    }
