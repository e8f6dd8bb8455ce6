"""`everstep checkpoints` and `everstep clean-up`."""

from __future__ import annotations

import click

from everstep.cli.args.options import find_run, json_option, open_host, split_run, store_option
from everstep.cli.view.lookup import PAGE
from everstep.cli.view.outline import gathered
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import STATUS_COLOURS, clock_time, count, preview, size, write_json
from everstep.codec.wire import wire
from everstep.errors import BadRequest
from everstep.results import CheckpointInfo

SHOWN_NODES = 4


@click.command()
@click.argument("run", metavar="RUN[/PATH]")
@click.option("--last", metavar="N", type=click.IntRange(min=1), help="Only the last N.")
@click.option("--all", "everything", is_flag=True, help=f"Every checkpoint, not only the last {PAGE}.")
@store_option
@json_option
def checkpoints(run: str, last: int | None, everything: bool, store: str | None, as_json: bool) -> None:
    """List the checkpoints of a run, without the values they hold.

    With PATH, those that hold steps inside that flow or item. Of a long run the last ones are listed, unless
    all are asked for.

    \b
    Examples:
      everstep checkpoints A17
      everstep checkpoints A17/rag --last 5
    """
    if last is not None and everything:
        raise BadRequest("--last and --all exclude each other.", fix="Leave one of them out.")
    with open_host(store, create=False) as host:
        address = find_run(host, run)
        run_id, path = split_run(address)
        newest = last if everything or as_json else last or PAGE
        # The steps of a part may lie anywhere in its run.
        first = 1 if newest is None or path else max(1, host.info(run_id).checkpoints - newest + 1)
        found = host.checkpoints(address, first=first)
    if newest is not None:
        found = found[-newest:]
    if as_json:
        told = {"run_id": run_id, **({"path": path} if path else {})}
        write_json({**told, "checkpoints": [wire(info) for info in found]})
        return
    if last is None and first > 1:
        said = f"… {count(first - 1, 'checkpoint')} before these: everstep checkpoints {address} --all"
        click.secho(said, dim=True)
    write_table(["#", "time", "trigger", "steps", "size", ""], [_row(info, run_id) for info in found])


def _row(info: CheckpointInfo, run_id: str) -> list[Cell]:
    if info.trigger is None or info.created_at is None or info.status is None:
        return [Cell(str(info.sequence)), Cell(""), Cell("removed", dim=True)]
    notes = [
        "keyframe" if info.keyframe else "",
        f"shared with {info.run_id}" if info.run_id != run_id else "",
        preview(info.metadata) if info.metadata else "",
    ]
    return [
        Cell(str(info.sequence)),
        Cell(clock_time(info.created_at), dim=True),
        Cell(info.trigger.value, STATUS_COLOURS[info.status] if info.status.is_final else None),
        Cell(nodes_of(info), "cyan"),
        Cell(size(info.size)),
        Cell(", ".join(note for note in notes if note), dim=True),
    ]


def nodes_of(info: CheckpointInfo) -> str:
    """Name the nodes whose steps a checkpoint holds."""
    names = [name.removeprefix("@") for name in gathered(info.nodes)]
    more = f", … ({len(names) - SHOWN_NODES:,} more)" if len(names) > SHOWN_NODES else ""
    return ", ".join(names[:SHOWN_NODES]) + more


@click.command("clean-up")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--keep", metavar="N", type=click.IntRange(min=1), default=5, show_default=True, help="Keep the last N."
)
@store_option
@json_option
def clean_up(run_id: str, keep: int, store: str | None, as_json: bool) -> None:
    """Remove old checkpoints of a run. Of each, its place in the chain and its digest stay.

    What lies before the newest keyframe that covers the last N goes, except what a fork needs. A short run
    has no keyframe and stays whole.

    \b
    Example:
      everstep clean-up A17 --keep 10
    """
    with open_host(store, create=False) as host:
        run_id = find_run(host, run_id)
        removed = host.retention.clean_up(run_id, keep=keep)
        info = host.info(run_id)
    if as_json:
        write_json({"run_id": run_id, "removed": removed, "trimmed_before": info.trimmed_before})
    elif removed:
        left = f"the oldest one still there is {info.trimmed_before}"
        click.echo(f"removed {count(removed, 'checkpoint')} of run {run_id}; {left}")
    else:
        click.echo(f"nothing to remove: run {run_id} has no keyframe before its last {keep} checkpoints")
