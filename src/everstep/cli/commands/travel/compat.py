"""`everstep compat` and `everstep migrate`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from everstep import Flow, Host
from everstep.cli.args.loading import load_flow, stdout_kept_clean
from everstep.cli.args.options import find_run, json_option, open_host, store_option, who, who_options
from everstep.cli.args.pipelines import pipeline_options
from everstep.cli.view.text import count, one_line, write_json
from everstep.codec.wire import wire
from everstep.errors import BadRequest, IncompatibleVersion, StateCorrupted, ValueUnreadable
from everstep.model.compat import CompatDocument
from everstep.results import Compat, Compatibility, RunInfo

PAGE = 500
SHOWN = 3
COLOURS = {"continues": "green", "needs_migration": "yellow", "refused": "red"}
LABELS = {"continues": "continue", "needs_migration": "need migration", "refused": "refused"}
OF_ONE = {"continues": "continues", "needs_migration": "needs migration", "refused": "is refused"}
Groups = dict[tuple[str, Compat], list[str]]
"""Runs that fare alike, by their version and the verdict."""


@click.command()
@click.argument("flow", metavar="FILE.py[:FLOW]|FILE.dot")
@click.option("--limit", type=int, default=None, metavar="N", help="Look at no more runs, newest first.")
@pipeline_options
@store_option
@json_option
def compat(flow: str, limit: int | None, store: str | None, as_json: bool) -> int:
    """Say for every unfinished run of a flow whether it can go on with the flow as it is now.

    Run it before a deploy, against the store that the runs are in: it exits with 1 if a run needs a rule that
    the flow does not have, or is refused, and says which nodes and values stand in its way. Nothing is
    written.

    \b
    Examples:
      everstep compat orders.py --store runs.db
      everstep compat orders.py:refund --json | jq .groups
    """
    if limit is not None and limit < 1:
        raise BadRequest(f"--limit is {limit}.", fix="Give at least 1.")
    with open_host(store, create=False) as host, stdout_kept_clean(as_json):
        definition = load_flow(flow, runs=False)
        groups = judged(host, definition, limit, quiet=as_json)
    if as_json:
        write_json(wire(CompatDocument.of(definition.name, definition.version, groups)))
    else:
        write_groups(definition, groups)
    return 0 if all(told.verdict is Compatibility.CONTINUES for _, told in groups) else 1


def judged(host: Host, flow: Flow, limit: int | None, *, quiet: bool) -> Groups:
    """Judge the unfinished runs of a flow, and put those that fare alike together."""
    groups: Groups = {}
    shows = sys.stderr.isatty() and not quiet
    for number, info in enumerate(unfinished(host, flow.name), 1):
        if limit is not None and number > limit:
            break
        groups.setdefault((info.flow_version, _told(host, info.run_id, flow)), []).append(info.run_id)
        if shows and number % 100 == 0:
            click.echo(f"\r{number:,} runs", err=True, nl=False)
    if shows:
        click.echo("\r" + " " * 20 + "\r", err=True, nl=False)
    return groups


def _told(host: Host, run_id: str, flow: Flow) -> Compat:
    """Judge a run; one that is damaged cannot go on either, and keeps no other from being judged."""
    try:
        return host.versions.compat(run_id, flow)
    except (StateCorrupted, IncompatibleVersion, ValueUnreadable) as error:
        return Compat(
            verdict=Compatibility.REFUSED, reason=error.message, fix=error.fix, code=type(error).code
        )


def unfinished(host: Host, flow: str) -> Iterator[RunInfo]:
    """Yield the runs of a flow that have not ended, newest first."""
    for status in ("running", "halted"):
        last: str | None = None
        while True:
            page = host.runs(flow=flow, status=status, limit=PAGE, before=last)
            yield from page
            if len(page) < PAGE:
                break
            last = page[-1].run_id


def write_groups(flow: Flow, groups: Groups) -> None:
    """Write what becomes of the runs, the worst last, where a terminal ends."""
    total = sum(map(len, groups.values()))
    click.echo(f"{count(total, 'unfinished run')} of flow {click.style(flow.name, bold=True)}")
    order = list(COLOURS)
    for (version, told), runs in sorted(groups.items(), key=lambda g: order.index(g[0][1].verdict)):
        some = ", ".join(runs[:SHOWN]) + (", …" if len(runs) > SHOWN else "")
        verdict = told.verdict.value
        label = click.style(LABELS[verdict], fg=COLOURS[verdict])
        click.echo(f"  {len(runs):>6,} {label}  {click.style(f'version {version}: {some}', dim=True)}")
        for rule in told.migrations:
            click.secho(f"         by {rule}", dim=True)
        if told.starts:
            click.secho(f"         starts {', '.join(told.starts)}", dim=True)
        for text in filter(None, (told.reason, told.fix)):
            click.echo(f"         {one_line(text)}")
        for text in warned(told):
            click.secho(f"         {text}", fg="yellow")


def warned(told: Compat) -> Iterator[str]:
    """Yield what may go wrong though a run goes on, and what helps."""
    yield from map(one_line, told.warnings)
    if told.warnings:
        yield "To make it fit: another version=, and migrations=[migrate.upcast(NAME, function)]."


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("flow", metavar="FILE.py[:FLOW]|FILE.dot")
@click.option("--dry-run", is_flag=True, help="Try it on a copy, and write nothing.")
@pipeline_options
@who_options
@store_option
@json_option
def migrate(run_id: str, flow: str, dry_run: bool, store: str | None, as_json: bool) -> int:
    """Take a run over to this version of its flow, without driving it.

    A resume, or a worker with the new version, does the same by itself. Exits with 1 if the run cannot go on.

    \b
    Examples:
      everstep migrate A17 orders.py --dry-run
    """
    with open_host(store, create=False) as host:
        run_id = find_run(host, run_id)
        with stdout_kept_clean(as_json):
            definition = load_flow(flow, runs=False)
            told = host.versions.compat(run_id, definition)
            if told.verdict is Compatibility.CONTINUES:
                told = host.versions.migrate(run_id, definition, dry_run=dry_run, **who())
    if as_json:
        write_json({"run_id": run_id, "dry_run": dry_run, **wire(told)})
    else:
        write_migration(run_id, definition, told, dry_run=dry_run)
    return 0 if told.verdict is Compatibility.CONTINUES else 1


def write_migration(run_id: str, flow: Flow, told: Compat, *, dry_run: bool) -> None:
    """Write what a migration did, or would do."""
    verdict = told.verdict.value
    if told.verdict is not Compatibility.CONTINUES:
        click.echo(
            f"run {run_id} {click.style(OF_ONE[verdict], fg=COLOURS[verdict])}: {one_line(told.reason)}"
        )
        click.echo(f"  {one_line(told.fix)}")
        return
    for text in warned(told):
        click.secho(text, fg="yellow", err=True)
    if told.is_same:
        click.echo(f"run {run_id} goes by this version of flow {flow.name} already")
        return
    would = "would go" if dry_run else "goes"
    click.echo(f"run {run_id} {would} by version {flow.version} of flow {flow.name} from here on")
    for rule in told.migrations:
        click.echo(f"  {rule}")
    for name in told.starts:
        click.echo(f"  starts {name}")
