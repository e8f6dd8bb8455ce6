"""`everstep replay`."""

from __future__ import annotations

import click

from everstep.cli.args.loading import load_flow, stdout_kept_clean
from everstep.cli.args.options import find_run, json_option, open_host, split_run, store_option
from everstep.cli.args.pipelines import pipeline_options
from everstep.cli.commands.runs.run import place_for
from everstep.cli.commands.runs.step import write_error
from everstep.cli.view.changes import ChangeWriter
from everstep.cli.view.text import chosen_of, one_line, write_json
from everstep.codec.wire import wire
from everstep.model.address import Address
from everstep.model.records import ErrorInfo
from everstep.results import Replay


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("step", metavar="STEP")
@click.argument("flow", metavar="[FILE.py[:FLOW]]", required=False)
@click.option(
    "--effects",
    is_flag=True,
    help="Run it even if it, or a call it makes that is not recorded, is effectful.",
)
@click.option("--full", is_flag=True, help="Show long values whole.")
@pipeline_options
@store_option
@json_option
def replay(
    run_id: str, step: str, flow: str | None, effects: bool, full: bool, store: str | None, as_json: bool
) -> int:
    """Run one recorded step again, alone, on the values it read, and compare what it writes.

    Durable calls inside it give what is recorded of them.

    STEP is a node (its last finished visit), a visit such as draft@2, a node inside a flow such as rag/embed
    or rag@2/embed, or an item of a map such as embed#7 or check#7/score. The run is not touched. The file may
    be left out for a run that `everstep run` began. Exits with 0 if the step came out as recorded, with 1 if
    not.

    \b
    Examples:
      everstep replay A17 price
      everstep replay A17 draft@2 essay.py
    """
    with open_host(store, create=False) as host:
        run_id, path = split_run(find_run(host, run_id))
        step = f"{path}/{step}" if path else step
        with stdout_kept_clean(as_json):
            definition = load_flow(flow or place_for(host, run_id, ["replay", run_id, step], store))
            done = host.debug.replay(run_id, step, definition, allow_effects=effects)
    if as_json:
        write_json(wire(done))
    else:
        write(done, whole=full)
    return 1 if done.is_equal is False else 0


def write(done: Replay, *, whole: bool) -> None:
    """Write what a step read, what it wrote then and now, and whether that is the same."""
    click.echo(
        f"{click.style(str(Address.of(done.path, done.visit)), bold=True)} of run {done.run_id}, "
        f"checkpoint {done.sequence}, run again"
    )
    writer = ChangeWriter(whole=whole, indent="    ")
    if done.inputs:
        click.echo(f"  {click.style('read', dim=True)}")
    for name, value in done.inputs.items():
        writer.write_value(name, value)
    if done.outputs:
        click.echo(f"  {click.style('wrote (- as recorded, + now)', dim=True)}")
    for pair in done.outputs:
        writer.write_pair(pair)
    if done.decision is not None or done.recorded_decision is not None:
        _write_both("chose", _chosen(done.recorded_decision), _chosen(done.decision))
    for label, calls in (
        ("asked with other arguments for", done.changed),
        ("did not ask for", done.unasked),
        ("made, as it is not recorded,", done.made),
    ):
        if calls:
            click.echo(f"  {click.style(label, dim=True)} {', '.join(calls)}")
    if done.error is not None:
        write_error(done.error.code, _raised(done.error), done.error.traceback)
    if done.recorded_error is not None:
        click.echo(f"  {click.style('recorded', dim=True)} {one_line(_raised(done.recorded_error))}")
    verdict, colour = {
        True: ("It came out as recorded.", "green"),
        False: ("It came out differently.", "yellow"),
        None: ("Nothing is known to differ, but not every output can be read.", None),
    }[done.is_equal]
    click.secho(verdict, fg=colour)
    if writer.has_cut:
        click.secho("Something is cut; --full or --json shows all of it.", err=True, dim=True)


def _write_both(label: str, recorded: str, now: str) -> None:
    text = f"{now}  {click.style('(equal)', dim=True)}" if recorded == now else f"{recorded} → {now}"
    click.echo(f"  {click.style(label, dim=True)} {text}")


def _chosen(decision: tuple[str, ...] | None) -> str:
    return "nothing" if decision is None else chosen_of(decision)


def _raised(error: ErrorInfo) -> str:
    return f"{error.type}: {error.message}"
