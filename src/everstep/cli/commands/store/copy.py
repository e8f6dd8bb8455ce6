"""`everstep copy`."""

from __future__ import annotations

import click

from everstep.cli.args.options import (
    find_run,
    json_option,
    open_host,
    url_of,
    who,
    who_options,
    without_password,
)
from everstep.cli.live.counter import Meter
from everstep.cli.view.text import count, one_line, write_json
from everstep.codec.wire import wire
from everstep.errors import BadRequest
from everstep.results import Copied

_COLOURS = {"copied": "green", "moved": "green", "there": None, "failed": "red"}


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--from", "source", metavar="FILE|URL", help="Where they are. [default: as for --store]")
@click.option("--to", "target", metavar="FILE|URL", required=True, help="Where they go.")
@click.option("--to-blobs", metavar="URL", help="Where artifacts go, if not beside the runs.")
@click.option("--all", "wants_all", is_flag=True, help="Every run, or all that --flow and --status name.")
@click.option("--flow", metavar="NAME", help="With --all: only runs of this flow.")
@click.option("--status", metavar="STATUS", help="With --all: only runs that are completed, halted, ...")
@click.option("--move", is_flag=True, help="Erase each run where it was, once both are found to be the same.")
@who_options
@json_option
@click.pass_context
def copy(
    context: click.Context,
    run_ids: tuple[str, ...],
    source: str | None,
    target: str,
    to_blobs: str | None,
    wants_all: bool,
    flow: str | None,
    status: str | None,
    move: bool,
    as_json: bool,
) -> int:
    """Copy runs from one store to another as they are: records, artifacts, waits, tokens, digests.

    Runs that others were forked from come along. An unfinished run is claimed while it is read. Workers
    leave its copy alone until you resume it there, as the original goes on; with --move the run itself goes
    on there, and is erased where it was. Stopped anywhere, start it again: what has arrived is passed by. It
    exits with 1 if any run could not be copied.

    \b
    Examples:
      everstep copy --to postgresql://app@db/runs A17
      everstep copy --from runs.db --to s3://bucket/runs --all --status completed --move
      everstep copy --from runs.db --to archive.db --all --flow orders --json
    """
    if bool(run_ids) == wants_all:
        raise BadRequest("which runs?", fix="Name some, or say --all.")
    if (flow or status) and not wants_all:
        raise BadRequest("--flow and --status choose among all runs.", fix="Say --all, or leave them out.")
    source = source or context.find_root().params.get("store")
    with open_host(source, create=False) as host, Meter("copied", shows=not as_json) as meter:
        names = [find_run(host, name) for name in run_ids] if run_ids else None

        def say(one: Copied) -> None:
            meter.clear()
            if not as_json:
                _say(one)

        to, how = url_of(target), {"move": move, "blobs": to_blobs, **who()}
        found = host.transfer.copy(to, names, flow=flow, status=status, **how, on_run=say, on_progress=meter)
    failed = sum(one.outcome == "failed" for one in found)
    if as_json:
        write_json({"to": without_password(target), "move": move, "runs": [wire(one) for one in found]})
    else:
        there = sum(one.outcome == "there" for one in found)
        rest = (f", {there:,} already there" if there else "") + (f", {failed:,} failed" if failed else "")
        click.echo(f"{count(len(found) - there - failed, 'run')} {'moved' if move else 'copied'}{rest}")
    return 1 if failed else 0


def _say(one: Copied) -> None:
    outcome = click.style(
        "already there" if one.outcome == "there" else one.outcome, fg=_COLOURS[one.outcome]
    )
    what = f" ({count(one.checkpoints, 'checkpoint')}, {count(one.artifacts, 'artifact')})"
    text = f"run {one.run_id}: {outcome}{what if one.outcome != 'failed' else ''}"
    click.echo(text + (f": {one_line(one.problem)}" if one.problem else ""))
    if one.elsewhere:
        click.secho(f"  kept elsewhere, and not copied: {', '.join(one.elsewhere)}", fg="yellow")
