"""`everstep send`: a signal, or a turn of a run."""

from __future__ import annotations

import click

from everstep import Host
from everstep.cli.args.loading import load, stdout_kept_clean
from everstep.cli.args.options import (
    command_line,
    find_run,
    host_options,
    json_option,
    open_host,
    store_option,
    who,
    who_options,
)
from everstep.cli.commands.runs.run import Opening, Work, execute, place_for, quiet_option, show_result
from everstep.cli.commands.waits.inbox import given_value
from everstep.cli.view.text import write_json
from everstep.codec.wire import wire
from everstep.errors import RunErased, RunNotFound
from everstep.results import SentSignal

REMEMBERED = "-"
"""Stands for the place of a flow that the store remembers."""


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("name", metavar="NAME")
@click.argument("words", metavar="[VALUE]", required=False)
@click.option("--text", metavar="TEXT", help="Send this text, as it is.")
@click.option("--json-file", "file", metavar="FILE", help="Send the JSON in this file, or - for stdin.")
@click.option("--id", "signal_id", metavar="ID", help="The same id is the same signal, however often sent.")
@click.option(
    "--drive",
    "flow",
    metavar="[FILE.py[:FLOW]]",
    is_flag=False,
    flag_value=REMEMBERED,
    help="Then drive the run to its next wait or its end. The file may be left out, as with resume.",
)
@who_options
@host_options
@store_option
@json_option
@quiet_option
def send(
    run_id: str,
    name: str,
    words: str | None,
    text: str | None,
    file: str | None,
    signal_id: str | None,
    flow: str | None,
    key_file: str | None,
    base_url: str | None,
    store: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Send a signal to a run that has not ended, whether or not it waits for one.

    VALUE is JSON if it parses, else text; without one it is null. It stays in the run's inbox until the run
    takes it.

    With --drive this is a turn: if NAME is the path of a wait, that is answered; then the run is driven until
    it waits again or ends, and what it came to is printed as `everstep run` does. If another process drives
    the run, that one is waited for.

    \b
    Examples:
      everstep send A17 message 'make it blue' --as ann
      everstep send A17 paid '{"amount": 12}' --id invoice-4711
      everstep send A17 message 'make it blue' --drive chat.py
      everstep send A17 review '{"approved": true}' --drive
    """
    value = given_value(words, text, file)
    about = {"id": signal_id, **who()}
    with open_host(store, create=False) as host:
        run_id = _found(host, run_id, flow, store)
        if flow is None:
            return _sent(host.send(run_id, name, value, **about), as_json=as_json)
        again = ["send", run_id, name, "--drive"]
        place = flow if flow != REMEMBERED else place_for(host, run_id, again, store)
    with stdout_kept_clean(as_json):
        definition, wired = load(place)
        opening = Opening(store, key_file, base_url, wired, create=False)
        work: Work = lambda host: host.send(  # noqa: E731  a name for its type
            run_id, name, value, drive=definition, **about
        )
        outcome = execute(definition, place, opening, work, run_id=run_id, quiet=quiet)
    return show_result(outcome, place, store, as_json=as_json, show_all=False, quiet=quiet, is_turn=True)


def _found(host: Host, run_id: str, flow: str | None, store: str | None) -> str:
    """Return the run that is meant, or say how one is begun that is not there yet."""
    try:
        return find_run(host, run_id)
    except RunErased:
        raise
    except RunNotFound as missing:
        if flow is None or flow == REMEMBERED:
            raise
        begin = command_line("run", flow, "--run-id", run_id, store=store)
        raise RunNotFound(missing.message, fix=f"Begin it: {begin}") from None


def _sent(sent: SentSignal, *, as_json: bool) -> int:
    if as_json:
        write_json(wire(sent))
    elif sent.is_new:
        click.echo(f"{sent.name} was sent to run {sent.run_id} as {sent.id}")
    else:
        click.echo(f"run {sent.run_id} has a signal {sent.id} already; nothing was sent")
    return 0
