"""`everstep migrate-store`."""

from __future__ import annotations

import click

from everstep.cli.args.options import DEFAULT_FILE, json_option, store_option, url_of
from everstep.cli.view.text import count, write_json
from everstep.codec.wire import wire
from everstep.migrate import upgrade_store
from everstep.results import StoreUpgrade


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done, and how long others would wait.")
@store_option
@json_option
def migrate_store(*, dry_run: bool, store: str | None, as_json: bool) -> None:
    """Bring the tables of a store up to date, beside workers of this and of the last version at work.

    The first client of a newer everstep does what it needs by itself. This does it when you want it, and the
    rest too, such as indexes on large tables. It may be cut off and called again.

    \b
    Examples:
      everstep migrate-store --store postgresql://owner@db/flows --dry-run
      everstep migrate-store --store postgresql://owner@db/flows --json
    """
    say = _say if not as_json and not dry_run else None
    found = upgrade_store(url_of(store or str(DEFAULT_FILE)), dry_run=dry_run, on_progress=say)
    if as_json:
        write_json(wire(found))
    else:
        _write(found)


def _say(text: str) -> None:
    click.secho(text, err=True, dim=True)


def _write(found: StoreUpgrade) -> None:
    version = f", version {found.version} of {found.newest}" if found.version is not None else ""
    runs = f", about {count(found.runs, 'run')}" if found.runs is not None else ""
    click.echo(f"{click.style(found.url, bold=True)}: {found.kind}{version}{runs}")
    for step in found.steps:
        click.echo(f"  {step.name}: {step.what}")
        click.secho(f"    others wait {step.locks}", dim=True)
    if found.roles:
        click.echo(f"  what is added may be used by {', '.join(found.roles)}, as the runs may")
    if found.note:
        click.echo(f"  {found.note}")
    elif found.is_current:
        click.echo("  it is up to date")
    else:
        click.echo("  nothing was done: this is a dry run" if found.dry_run else "  done")
