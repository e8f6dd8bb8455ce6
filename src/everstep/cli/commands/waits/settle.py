"""`everstep settle`."""

from __future__ import annotations

import json

import click

from everstep.cli.args.options import (
    command_line,
    find_run,
    json_option,
    open_host,
    split_run,
    store_option,
    who,
    who_options,
)
from everstep.cli.view.pauses import held_back, pause_of
from everstep.cli.view.text import write_json
from everstep.cli.view.waits import wait_json
from everstep.errors import BadRequest


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("step")
@click.option("--done", metavar="VALUE", help="It happened: JSON that the node would have returned.")
@click.option("--rerun", is_flag=True, help="It did not happen: call the node again, with the same key.")
@click.option("--skip", metavar="WHY", help="Of an undo that failed: leave what it was to undo as it is.")
@who_options
@store_option
@json_option
def settle(
    run_id: str,
    step: str,
    done: str | None,
    rerun: bool,
    skip: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Say what became of an effect that was begun and never reported, or of an undo that failed.

    A node with on_unknown="stop" halts its run if a process died while it was at work: as soon as a worker or
    `everstep resume` takes the run up again. STEP is the path of
    the node, as `everstep waits RUN` shows it. The run goes on when a worker or `everstep resume` drives it.
    An undo that fails for good asks likewise: it is tried again, was done by hand (--done null), or is
    skipped with a reason.

    \b
    Examples:
      everstep settle A17 charge --done '"receipt-17"'
      everstep settle A17 charge --rerun
      everstep settle A17 'charge/!undo' --skip "the card has expired; credited by hand next month"
    """
    if (done is not None) + rerun + (skip is not None) != 1:
        raise BadRequest(
            "an effect has happened, or it is made again; an undo may be skipped.",
            fix="Give one of --done VALUE, --rerun and --skip WHY.",
        )
    with open_host(store, create=False) as host:
        run_id, path = split_run(find_run(host, run_id))
        step = f"{path}/{step}" if path else step
        if skip is not None:
            found = host.waiting.settle(run_id, step, skip=skip, **who())
        elif done is None:
            found = host.waiting.settle(run_id, step, rerun=True, **who())
        else:
            found = host.waiting.settle(run_id, step, done=_value(done), **who())
        pause = None if as_json else pause_of(host, host.info(run_id))
    if as_json:
        write_json(wait_json(found))
    else:
        what = "will be called again" if rerun else "counts as done" if done is not None else "is skipped"
        again = command_line("resume", run_id, store=store)
        goes_on = f"; a worker goes on with it, or: {again}" if pause is None else ""
        click.echo(f"{step} of run {run_id} {what}{goes_on}")
        if pause is not None:
            click.echo(held_back(run_id, pause, store), err=True)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise BadRequest(
            f"{text!r:.60} is not JSON.", fix="Put text in quotes of its own: --done '\"receipt-17\"'."
        ) from None
