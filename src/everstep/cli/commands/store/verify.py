"""`everstep verify`."""

from __future__ import annotations

import sys

import click

from everstep.cli.args.options import command_line, json_option, open_host, store_option, whole_run
from everstep.cli.view.text import count, one_line, write_json
from everstep.codec.wire import wire
from everstep.results import FlawKind, Verified

_FEW = 500
"""A run with fewer checkpoints is checked before anybody asks how far it is."""


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--blobs/--no-blobs", default=True, help="Read artifacts, too, or not.  [default: read]")
@store_option
@json_option
def verify(run_ids: tuple[str, ...], blobs: bool, store: str | None, as_json: bool) -> int:
    """Check that what is kept of some runs, or of every run, is as it was written.

    Each checkpoint is hashed onto the one before it, so one bit that changed is found, and so is one that is
    missing, moved, there twice or cut short. Keyframes are compared with what they sum up, values and
    artifacts with the digests that name them, waits and the row of the run with its checkpoints. Of a run
    that is damaged the newest checkpoint that it can go on from is named.

    Without the key of an encrypted run its digests are checked, not its values, and that is said. Checkpoints
    that wait on this machine are checked too. Exits with 1 if anything is damaged.

    \b
    Examples:
      everstep verify
      everstep verify A17 B2 --json
      everstep verify --no-blobs
    """
    teller = _Teller(store, is_quiet=as_json)
    with open_host(store, create=False) as host:
        names = [whole_run(host, run_id) for run_id in run_ids] or None
        found = host.storage.verify(names, blobs=blobs, on_run=teller.tell, on_progress=teller.follow)
    if as_json:
        write_json({"is_sound": all(one.is_sound for one in found), "runs": [wire(one) for one in found]})
    else:
        _sum_up(found)
    return 0 if all(one.is_sound for one in found) else 1


class _Teller:
    """Says of each run what is wrong with it as soon as that is known, and meanwhile how far it is."""

    def __init__(self, store: str | None, *, is_quiet: bool) -> None:
        self._store = store
        self._is_quiet = is_quiet
        self._is_watched = sys.stderr.isatty()
        self._width = 0

    def follow(self, run_id: str, done: int, of: int) -> None:
        if self._is_watched and of >= _FEW:
            self._line(f"run {run_id}: {done:,} of {of:,} checkpoints")

    def _line(self, said: str) -> None:
        click.echo("\r" + said.ljust(self._width), err=True, nl=False)
        self._width = len(said)

    def tell(self, one: Verified) -> None:
        if self._width:
            self._line("")
            click.echo("\r", err=True, nl=False)
            self._width = 0
        if not self._is_quiet:
            _write(one, self._store)


def _write(one: Verified, store: str | None) -> None:
    if one.spooled:
        waiting = count(one.spooled, "checkpoint")
        click.secho(f"run {one.run_id}: {waiting} on this machine, not yet in the store", fg="yellow")
    if one.locked:
        keys = ", ".join(one.locked_by)
        said = f"the values of {count(one.locked, 'checkpoint')} were not checked, for want of the key {keys}"
        click.secho(f"run {one.run_id}: {said}", fg="yellow")
    if one.flaws:
        click.secho(f"run {one.run_id} is damaged:", fg="red")
        for flaw in one.flaws:
            click.secho(f"  {flaw.kind.value}: {one_line(flaw.message)}", fg="red")
        _say_where_to_go_on(one, store)
    if one.spool_problem:
        said = f"run {one.run_id}: what waits on this machine is damaged: {one_line(one.spool_problem)}"
        click.secho(said, fg="red")


def _say_where_to_go_on(one: Verified, store: str | None) -> None:
    if one.newest_valid is None:
        click.echo("  no checkpoint is left that it could go on from")
    elif one.newest_valid == one.checkpoints and all(flaw.kind is not FlawKind.ROW for flaw in one.flaws):
        if any(flaw.kind is FlawKind.BLUEPRINT for flaw in one.flaws):
            click.echo("  its checkpoints are valid; it can go on once the structure of its flow is back")
        else:
            click.echo("  what a resume reads is valid: it can go on as it is")
    else:
        again = command_line("resume", one.run_id, "--fallback", store=store)
        click.echo(f"  checkpoint {one.newest_valid} is valid; go on from it: {again}")


def _sum_up(found: list[Verified]) -> None:
    damaged = sum(not one.is_sound for one in found)
    checked = f"{count(len(found), 'run')}, {count(sum(one.checkpoints for one in found), 'checkpoint')}"
    removed = sum(one.removed for one in found)
    rest = f" ({removed:,} of them removed)" if removed else ""
    verdict = click.style(f"{damaged:,} damaged", fg="red") if damaged else click.style("sound", fg="green")
    click.echo(f"{checked}{rest}: {verdict}")
