"""`everstep pin`, `everstep unpin`, `everstep ack` and `everstep erase`."""

from __future__ import annotations

import sys

import click

from everstep.cli.args.options import find_run, json_option, open_host, store_option, who, who_options
from everstep.cli.view.text import count, moment, write_json
from everstep.codec.plain_json import Wire
from everstep.codec.wire import wire
from everstep.errors import BadRequest


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("reason", metavar="[REASON]", default="pinned on request")
@who_options
@store_option
@json_option
def pin(run_id: str, reason: str, store: str | None, as_json: bool) -> None:
    """Keep a run whole until it is unpinned, whatever retention says.

    \b
    Example:
      everstep pin A17 "the outage of May"
    """
    with open_host(store, create=False) as host:
        info = host.retention.pin(find_run(host, run_id), reason, **who())
    if as_json:
        write_json({"run_id": info.run_id, "pinned": info.pinned, "pinned_by": wire(info.pinned_by)})
    else:
        click.echo(f"run {info.run_id} is pinned: {info.pinned}")


@click.command()
@click.argument("run_id", metavar="RUN")
@who_options
@store_option
@json_option
def unpin(run_id: str, store: str | None, as_json: bool) -> None:
    """Let retention apply to a run again.

    \b
    Example:
      everstep unpin A17
    """
    with open_host(store, create=False) as host:
        info = host.retention.unpin(find_run(host, run_id), **who())
    if as_json:
        write_json({"run_id": info.run_id, "pinned": info.pinned})
    else:
        click.echo(f"run {info.run_id} is not pinned any more")


@click.command()
@click.argument("run_id", metavar="RUN")
@who_options
@store_option
@json_option
def ack(run_id: str, store: str | None, as_json: bool) -> None:
    """Note that the result of a run that has ended was taken: retention counts its days from then on.

    \b
    Example:
      everstep ack A17
    """
    with open_host(store, create=False) as host:
        info = host.retention.ack(find_run(host, run_id), **who())
    assert info.acked_at is not None
    if as_json:
        write_json({"run_id": info.run_id, "acked_at": info.acked_at.isoformat()})
    else:
        click.echo(f"the result of run {info.run_id} was acknowledged {moment(info.acked_at)}")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@who_options
@store_option
@json_option
def erase(run_id: str, yes: bool, dry_run: bool, store: str | None, as_json: bool) -> int:
    """Remove a run for good: its checkpoints, its waits, and the artifacts that no other run names.

    It must have ended, and nothing may go on from it. Its id stays taken. In a terminal you are asked first;
    elsewhere say --yes.

    \b
    Examples:
      everstep erase A17
      everstep erase A17 --yes --json
    """
    with open_host(store, create=False) as host:
        run_id = find_run(host, run_id)
        found = host.retention.erase(run_id, dry_run=True)
        if not dry_run:
            if not yes and not _agrees(run_id, found.checkpoints):
                return 1
            found = host.retention.erase(run_id, **who())
    if as_json:
        write_json(Wire(dry_run=dry_run, **wire(found)))
        return 0
    what = f"run {run_id} with {count(found.checkpoints, 'checkpoint')}"
    if dry_run:
        named = f" and {count(found.artifacts, 'artifact')}, if no other run names them"
        click.echo(f"would be removed: {what}{named if found.artifacts else ''}")
        return 0
    along = f" and {count(found.artifacts, 'artifact')}" if found.artifacts else ""
    click.echo(f"removed: {what}{along}")
    if found.artifacts_left:
        left = count(found.artifacts_left, "artifact")
        click.secho(f"{left} of it may be about to be named by others; everstep gc removes them", fg="yellow")
    return 0


def _agrees(run_id: str, checkpoints: int) -> bool:
    if not sys.stdin.isatty():
        raise BadRequest(f"run {run_id!r} would be removed for good.", fix="Say --yes.")
    return click.confirm(f"Remove run {run_id} and its {count(checkpoints, 'checkpoint')} for good?")
