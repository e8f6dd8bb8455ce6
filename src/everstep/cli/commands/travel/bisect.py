"""`everstep bisect`."""

from __future__ import annotations

import click

from everstep import Status
from everstep.cli.args.options import (
    command_line,
    find_run,
    json_option,
    load_option,
    looking_at,
    store_option,
)
from everstep.cli.commands.runs.step import write_error
from everstep.cli.view.changes import ChangeWriter
from everstep.cli.view.text import STATUS_COLOURS, chosen_of, write_json
from everstep.codec.wire import wire
from everstep.model.address import Address
from everstep.model.records import unit_of
from everstep.results import Divergence, Visited


@click.command()
@click.argument("good", metavar="GOOD")
@click.argument("bad", metavar="BAD")
@click.option("--full", is_flag=True, help="Show long values whole.")
@load_option
@store_option
@json_option
def bisect(
    good: str, bad: str, full: bool, modules: tuple[str, ...], store: str | None, as_json: bool
) -> int:
    """Find the first step of the run BAD that the run GOOD lacks, or that came out differently there.

    Shows what the step read and wrote in both. If it read equal values, the step itself is to blame; if not,
    the runs began with other inputs, or one was edited. Exits with 0 if no step differs, with 1 if one does.

    \b
    Example:
      everstep bisect A17 B20
    """
    with looking_at(store, modules, as_json=as_json) as host:
        good, bad = find_run(host, good), find_run(host, bad)
        found = host.debug.bisect(good, bad)
        if as_json:
            write_json({"good": good, "bad": bad, "divergence": wire(found) if found else None})
        elif found is None:
            click.echo(f"every finished step of run {bad} is the same in run {good}")
        else:
            write(found, store, whole=full)
    return 0 if found is None else 1


def write(found: Divergence, store: str | None, *, whole: bool) -> None:
    """Write which step it is, what it read and wrote, and what follows from that."""
    name = str(Address.of(found.path, found.visit))
    what = "is the first that differs" if found.good is not None else "is the first that the good run lacks"
    click.echo(f"{click.style(name, bold=True)} {what}")
    if found.good is not None:
        _write_side("good", found.good)
    _write_side("bad", found.bad)
    writer = ChangeWriter(whole=whole, indent="    ")
    for label, pairs in (("read", found.reads), ("wrote", found.outputs)):
        if pairs:
            click.echo(f"  {click.style(label, dim=True)}")
        for pair in pairs:
            if found.good is None:
                writer.write_value(pair.name, pair.after)
            else:
                writer.write_pair(pair)
    if found.by_chance:
        click.echo(f"  {click.style('was given before that', dim=True)}")
    for pair in found.by_chance:
        writer.write_pair(pair)
    error = found.bad.error
    if error is not None:
        write_error(error.code, f"{error.type}: {error.message}", error.traceback)
    click.echo(_conclusion(found))
    call = unit_of(found.path)
    if call is not None:
        name = str(Address.of(call[0], call[1]))
        click.echo(f"  → Run its node alone: {command_line('replay', found.bad.run_id, name, store=store)}")
    elif found.bad.status in (Status.COMPLETED, Status.FAILED) and found.bad.step.wait is None:
        click.echo(f"  → Run it alone: {command_line('replay', found.bad.run_id, name, store=store)}")
    if writer.has_cut:
        click.secho("Something is cut; --full or --json shows all of it.", err=True, dim=True)


def _write_side(label: str, visited: Visited) -> None:
    status = click.style(visited.status.value, fg=STATUS_COLOURS[visited.status])
    chose = f", chose {chosen_of(visited.decision)}" if visited.decision is not None else ""
    place = f"run {visited.run_id}, checkpoint {visited.sequence}"
    click.echo(f"  {click.style(label.ljust(5), dim=True)} {place}: {status}{chose}")


def _conclusion(found: Divergence) -> str:
    said = _conclusion_alone(found)
    if not found.by_chance:
        return said
    names = ", ".join(pair.name for pair in found.by_chance)
    return f"{said} Or it is the time or chance: {names} differs, too."


def _conclusion_alone(found: Divergence) -> str:
    if found.good is None:
        return "The runs agree up to there; the good run ended, or went another way, before it."
    if found.is_culprit and found.bad.step.wait is not None:
        return f"It asked the same, so the difference is what {found.path} was told, or when."
    if found.is_culprit:
        return f"It read equal values, so the difference comes from {found.path} itself."
    if found.has_other_arguments:
        return "It was called with other arguments, so the difference comes from the node that it is in."
    return "It read other values, though every step before it agrees: the inputs differ, or a run was edited."
