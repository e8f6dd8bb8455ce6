"""`everstep pause`, `unpause` and `pauses`."""

from __future__ import annotations

import click

from everstep import Host, Status
from everstep.cli.args.options import (
    command_line,
    find_run,
    json_option,
    open_host,
    store_option,
    who,
    who_options,
)
from everstep.cli.view.pauses import held_back, pause_of, paused_name, why_paused
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import moment, one_line, write_json
from everstep.cli.view.waits import waits_of
from everstep.codec.wire import wire
from everstep.model.acts import Act
from everstep.model.waits import WaitStatus

flow_option = click.option("--flow", metavar="NAME", help="All runs of this flow.")
group_option = click.option(
    "--group", metavar="NAME", help="All runs of this group, of the flow or of every one."
)


def _named(host: Host, run_id: str | None, flow: str | None, group: str | None) -> str | None:
    if run_id is None and flow is None and group is None:
        raise click.UsageError("Name a run, or --flow, or --group.")
    return None if run_id is None else find_run(host, run_id)


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@flow_option
@group_option
@who_options
@store_option
@json_option
def pause(run_id: str | None, flow: str | None, group: str | None, store: str | None, as_json: bool) -> None:
    """Pause a run, a flow or a group: nothing of it starts until it is let go on.

    Owners record what is under way and give their runs back. Waits take answers, and their times run.

    \b
    Examples:
      everstep pause A17 --comment "looking into it"
      everstep pause --flow orders
      everstep pause --group acme
    """
    with open_host(store, create=False) as host:
        info = host.fleet.pause(_named(host, run_id, flow, group), flow=flow, group=group, **who())
        is_known = as_json or run_id is not None or flow is None or bool(host.runs(flow=flow, limit=1))
    if as_json:
        write_json(wire(info))
        return
    click.echo(f"{paused_name(info)} is paused {why_paused(info)}")
    if not is_known:
        click.echo(f"no run is of flow {one_line(flow or '')} yet; it counts for those to come", err=True)


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@flow_option
@group_option
@who_options
@store_option
@json_option
def unpause(run_id: str | None, flow: str | None, group: str | None, store: str | None, as_json: bool) -> int:
    """Let a run, a flow or a group go on that was paused by that name; what is due of it is so at once.

    Exits with 1 if it was not paused.

    \b
    Examples:
      everstep unpause A17
      everstep unpause --flow orders
    """
    with open_host(store, create=False) as host:
        name = _named(host, run_id, flow, group)
        is_done = host.fleet.unpause(name, flow=flow, group=group, **who())
        left = None if as_json or name is None else _left(host, name, store)
    if as_json:
        write_json({"unpaused": is_done})
    else:
        parts = (("run", name), ("group", group), ("flow", flow))
        named = " of ".join(f"{what} {one_line(given)}" for what, given in parts if given is not None)
        click.echo(f"{named} is paused no more" if is_done else f"{named} is not paused by that name")
        if left is not None:
            click.echo(left, err=True)
    return 0 if is_done else 1


def _left(host: Host, run_id: str, store: str | None) -> str | None:
    """Say what still keeps a run from going on, or who goes on with it."""
    info = host.info(run_id)
    pause = pause_of(host, info)
    if pause is not None:
        return held_back(run_id, pause, store)
    is_due = info.status is Status.RUNNING or any(
        wait.status is WaitStatus.SETTLED for wait in waits_of(host, run_id)
    )
    if info.is_driven or not is_due:
        return None
    return f"a worker goes on with it, or: {command_line('resume', run_id, store=store)}"


@click.command()
@store_option
@json_option
def pauses(store: str | None, as_json: bool) -> None:
    """List what is paused: flows and groups first, then runs, the newest first."""
    with open_host(store, create=False) as host:
        found = host.fleet.pauses()
    if as_json:
        write_json({"pauses": [wire(info) for info in found]})
    elif not found:
        click.echo("nothing is paused")
    else:
        rows = [
            [Cell(paused_name(one)), Cell(moment(one.since)), Cell(_who(one.by)), Cell(_why(one.by))]
            for one in found
        ]
        write_table(["paused", "since", "who", "comment"], rows)


def _who(act: Act | None) -> str:
    return "" if act is None else one_line(act.by or "")


def _why(act: Act | None) -> str:
    return "" if act is None else one_line(act.comment or "")
