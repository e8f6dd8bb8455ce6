"""`everstep doctor`."""

from __future__ import annotations

import click

from everstep.cli.args.options import json_option, open_host, path_in, store_option, url_of
from everstep.cli.view.text import write_json
from everstep.codec.wire import wire
from everstep.results import Diagnosis, Level

MARKS = {Level.FINE: ("✔", "green"), Level.WARNING: ("!", "yellow"), Level.PROBLEM: ("✘", "red")}


@click.command()
@click.argument("url", required=False)
@store_option
@json_option
def doctor(url: str | None, store: str | None, as_json: bool) -> int:
    """Say how a store is: can it be written to, how fast, and what can it lose as it is set up now.

    URL is a store such as redis://host/0, file:runs or runs.db, in place of --store. Something small is
    written and removed again. It exits with 1 if runs cannot be kept there as they should be.

    \b
    Examples:
      everstep doctor redis://localhost:6379/0
      everstep doctor --store runs.db --json
    """
    where = url or store
    is_file = where is None or path_in(url_of(where)) is not None
    with open_host(where, create=not is_file) as host:
        found = host.storage.doctor()
    if as_json:
        write_json(wire(found))
    else:
        _write(found)
    return 0 if found.is_well else 1


def _write(found: Diagnosis) -> None:
    click.secho(found.url, bold=True)
    keeps = "survives this process" if found.durable else "ends with this process"
    shares = "many workers may share it" if found.single_writer else "for one process at a time"
    lines = {"server": found.server, "keeps": f"what is written {keeps}; {shares}"}
    if found.write_ms is not None:
        lines["write"] = f"{found.write_ms:.2f} ms, at most {found.slowest_ms:.2f} ms"
    if found.size_bytes is not None:
        lines["size"] = f"{found.size_bytes / (1 << 20):,.1f} MiB"
    if found.skew_seconds is not None:
        which = "ahead" if found.skew_seconds >= 0 else "behind"
        lines["clock"] = f"{abs(found.skew_seconds) * 1000:.0f} ms {which}"
    for name, text in lines.items():
        click.echo(f"  {click.style(f'{name:<7}', dim=True)} {text}")
    for finding in found.findings:
        mark, colour = MARKS[finding.level]
        click.echo(f"  {click.style(mark, fg=colour)} {finding.text[0].upper()}{finding.text[1:]}")
        if finding.fix:
            click.echo(f"    {finding.fix}")
