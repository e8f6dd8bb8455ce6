"""`everstep workers`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import click

from everstep.cli.args.options import DEFAULT_FILE, command_line, json_option, open_host, store_option
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import count, write_json
from everstep.cli.view.waits import ago, present, rough
from everstep.client.views import WorkerInfo
from everstep.codec.wire import wire
from everstep.model.leases import SKEW

SPARE = ("seen", "up")
"""What a narrow terminal does not show of workers, the first to go first."""


@click.command()
@store_option
@json_option
def workers(store: str | None, as_json: bool) -> None:
    """List the workers that are alive, the longest serving first, and what they drive.

    A worker reports itself every ten seconds; one that has died is gone from the list within 35, on its own
    machine at once. Of each, the run is named that it has driven for the longest. Runs that workers leave
    alone, because they are damaged, are counted below.

    \b
    Examples:
      everstep workers
      everstep workers --json | jq '.workers[].longest[].run_id'
    """
    found: list[WorkerInfo] = []
    damaged: list[str] = []
    if store or DEFAULT_FILE.exists():
        with open_host(store, create=False) as host:
            found = host.fleet.workers()
            aside = host.runs(needs_repair=True, limit=1000)
            damaged = [info.run_id for info in aside if info.is_damaged]
    if as_json:
        write_json({"workers": [wire(info) for info in found], "needs_repair": damaged})
        return
    if found:
        now = present()
        head = ["worker", "machine", "pid", "everstep", "flows", "driving", "up", "seen", "longest"]
        write_table(head, [_row(info, now) for info in found], SPARE)
    else:
        click.echo("no workers")
    if damaged:
        are = "needs" if len(damaged) == 1 else "need"
        again = command_line("runs", "--needs-repair", store=store)
        click.secho(f"{count(len(damaged), 'run')} {are} repair: {again}", fg="red")


def _row(info: WorkerInfo, now: datetime) -> list[Cell]:
    return [
        Cell(info.id[:8]),
        _machine(info),
        Cell(str(info.pid)),
        Cell(info.release or "0.1"),
        Cell(_named(flows_of(info))),
        _driving(info),
        Cell(rough(now - info.started_at)),
        Cell(ago(info.seen_at, now)),
        Cell(_longest(info, now)),
    ]


def _machine(info: WorkerInfo) -> Cell:
    if abs(info.skew_seconds) <= SKEW:
        return Cell(info.host)
    which = "slow" if info.skew_seconds > 0 else "fast"
    return Cell(f"{info.host}, clock {rough(timedelta(seconds=abs(info.skew_seconds)))} {which}", "yellow")


def flows_of(info: WorkerInfo) -> list[str]:
    """Name flows with their versions, and how many older ones go over to them: `orders 2 (+1 older)`."""
    if not info.takes:
        return info.flows
    told = []
    for flow in info.flows:
        mine = [one for one in info.takes if one.flow_id == flow]
        versions = sorted({one.flow_version for one in mine} - {""})
        older = sum(not one.flow_version for one in mine)
        told.append(" ".join([flow, "/".join(versions), *([f"(+{older} older)"] if older else [])]))
    return told


def _named(flows: Sequence[str]) -> str:
    return ", ".join(flows[:3]) + (f" and {len(flows) - 3} more" if len(flows) > 3 else "")


def _driving(info: WorkerInfo) -> Cell:
    text = f"{info.driving} of {info.concurrency}"
    if info.is_stopping:
        return Cell(f"{text}, stopping", "yellow")
    if info.is_slowed:
        return Cell(f"{text}, slowed by the store", "yellow")
    return Cell(text, "cyan" if info.driving else None)


def _longest(info: WorkerInfo, now: datetime) -> str:
    if not info.longest:
        return ""
    first = info.longest[0]
    more = f", and {info.driving - 1} more" if info.driving > 1 else ""
    return f"{first.run_id} for {rough(now - first.since)}{more}"
