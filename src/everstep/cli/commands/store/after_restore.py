"""`everstep after-restore`."""

from __future__ import annotations

import sys

import click

from everstep.cli.args.options import json_option, open_host, store_option
from everstep.cli.view.text import count, moment, write_json
from everstep.codec.wire import wire
from everstep.results import AfterRestore

SHOWN = 20


@click.command()
@click.option("--yes", is_flag=True, help="Do it. Without, it is only said what would be done.")
@click.option("--again", is_flag=True, help="Do it though it was done, and the store was used since.")
@store_option
@json_option
def after_restore(*, yes: bool, again: bool, store: str | None, as_json: bool) -> None:
    """Make a store safe that was itself put back from a backup, before workers and services start again.

    Every owner from before is fenced, and every token of an open wait dies; notifiers are told of another one
    by the next worker. Runs that were under way at the backup are named: what they did since may happen a
    second time. Without --yes nothing is written. It may be cut off and called again. Once it was done and
    the store was used since, it takes --again: tokens that were told since die.

    \b
    Examples:
      everstep after-restore --store runs.db
      everstep after-restore --store runs.db --yes --json
    """
    with open_host(store, create=False) as host:
        say = _say if sys.stderr.isatty() and not as_json else None
        found = host.storage.after_restore(dry_run=not yes, again=again, on_progress=say)
    if as_json:
        write_json(wire(found))
    else:
        _write(found)


def _say(text: str) -> None:
    click.secho(text, err=True, dim=True)


def _write(found: AfterRestore) -> None:
    would = "would be " if found.dry_run else ""
    if found.workers:
        are = "are" if found.workers > 1 else "is"
        click.secho(f"{count(found.workers, 'worker')} {are} alive: stop all before you go on", fg="red")
    if found.known_until is not None:
        click.echo(f"the newest known here is of {moment(found.known_until)}; what came later is lost")
    click.echo(f"{count(found.fenced, 'run')} {would}fenced against owners from before")
    told = f", {found.told_again:,} of them told again to notifiers" if found.told_again else ""
    click.echo(f"{count(found.tokens, 'token')} of open waits {would}revoked{told}")
    if found.rescheduled:
        click.echo(f"{count(found.rescheduled, 'wait')} {would}given to their schedulers again")
    if found.running_count:
        under_way = f"{count(found.running_count, 'run')} under way at the backup"
        click.secho(f"{under_way}: what was done since may happen again", fg="yellow")
        for run_id in found.running[:SHOWN]:
            click.echo(f"  everstep explain {run_id}")
        if found.running_count > SHOWN:
            click.echo(f"  … and {found.running_count - SHOWN:,} more")
    if found.halted_count:
        waited = count(found.halted_count, "run")
        click.echo(f"{waited} waited at the backup; whether one was answered since is not known here")
    if found.dry_run:
        if found.done_at is not None:
            since = f"it was done {moment(found.done_at)}, and the store was used since"
            click.secho(f"{since}: tokens that were told since would die", fg="red")
        again = " --again, if the store was put back once more" if found.done_at is not None else ""
        click.echo(f"nothing was written; to do it: --yes{again}")
