"""`everstep validate`: what is wrong with flows, before they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from everstep import Host, validate
from everstep.cli.args.loading import UNWIRED, WaitServices, load_all
from everstep.cli.args.options import json_option, store_option, url_of
from everstep.cli.args.pipelines import pipeline_options
from everstep.cli.view.text import count, one_line, write_json
from everstep.errors import FlowError, StoreMissing, UnknownNotifier, UnknownScheduler
from everstep.graph.check.diagnostics import Severity
from everstep.results import Diagnostic, Diagnostics

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}


@click.command("validate")
@click.argument("flow", metavar="FILE.py[:FLOW]|FILE.dot")
@click.option("--strict", is_flag=True, help="Fail for warnings, too.")
@pipeline_options
@store_option
@json_option
@click.pass_context
def command(context: click.Context, flow: str, strict: bool, store: str | None, as_json: bool) -> None:
    """Say everything that is wrong or odd about a flow, or about all flows of a file. Nothing runs.

    With --store the flow is also held against what that host has; without, against a host on a SQLite file
    with the notifiers and schedulers that the file defines. The store need not be made yet.

    \b
    Examples:
      everstep validate orders.py
      everstep validate orders.py:flow --strict --json

    Exit codes: 0 it can start, 1 it has errors, 2 wrong usage.
    """
    found = list(_examine(flow, store))
    fails = any(d.errors or (strict and d.warnings) for d in found)
    if as_json:
        write_json({"valid": not fails, "flows": [d.to_json() for d in found]})
    else:
        for diagnostics in found:
            _write(diagnostics)
    context.exit(1 if fails else 0)


def _examine(text: str, store: str | None) -> Iterator[Diagnostics]:
    try:
        flows, wired = load_all(text)
    except FlowError as error:
        if "problems" not in error.details:
            raise
        if error.draft is None:
            yield Diagnostics.of(error, str(error.details.get("flow", text)))
            return
        with host_for(store) as host:
            found = validate(error.draft, host)
        # The file was not read to its end, so it is unknown which nodes it wires.
        known = (d for d in found if d.code not in (UnknownNotifier.code, UnknownScheduler.code))
        yield Diagnostics(found.flow, known)
        return
    with host_for(store, wired) as host:
        for flow in flows:
            yield validate(flow, host)


@contextmanager
def host_for(store: str | None, wired: WaitServices = UNWIRED) -> Iterator[Host]:
    """Open the host that a flow is held against; nothing is created.

    A store that is not made yet will have what one in memory has.
    """
    with _host(url_of(store) if store else "memory:", wired) as host:
        yield host


def _host(url: str, wired: WaitServices) -> Host:
    try:
        return Host(url, create=False, notifiers=wired.notifiers, schedulers=wired.schedulers)
    except StoreMissing as error:
        click.secho(f"there is no store yet: {error.message}", err=True, fg="yellow")
        return Host("memory:", notifiers=wired.notifiers, schedulers=wired.schedulers)


def _write(diagnostics: Diagnostics) -> None:
    bad, odd = len(diagnostics.errors), len(diagnostics.warnings)
    verdict = f"{count(bad, 'error')}, {count(odd, 'warning')}" if bad or odd else "nothing wrong"
    click.echo(f"{diagnostics.flow}: {verdict}")
    for d in diagnostics:
        click.echo(_line(d))
        if d.fix:
            click.echo(click.style(f"      {one_line(d.fix)}", dim=True))


def _line(d: Diagnostic) -> str:
    severity = Severity(d.severity)
    where = d.place or (" -> ".join(d.edge) if d.edge is not None else d.node)
    place = f"{where}: " if where and repr(where) not in d.message else ""
    said = one_line(f"{place}{d.message}")
    return f"  {click.style(severity.value, fg=COLOURS[severity])} {one_line(d.code)}  {said}"
