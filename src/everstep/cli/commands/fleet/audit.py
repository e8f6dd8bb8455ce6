"""`everstep audit`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from everstep.cli.args.options import DEFAULT_FILE, json_option, open_host, query_options, store_option
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import moment, one_line, write_json
from everstep.client.audit import AuditInfo, AuditQuery, check_times
from everstep.client.queries import parameters_of
from everstep.codec.wire import wire
from everstep.model.acts import AuditOutcome

SPARE = ("comment", "about")
"""What a narrow terminal does not show, the first to go first."""


@click.command()
@click.argument("run", required=False)
@query_options([one for one in parameters_of(AuditQuery) if one.name != "run_id"], limit=50)
@store_option
@json_option
def audit(run: str | None, store: str | None, as_json: bool, after: str | None, **asked: Any) -> None:
    """Say who did what, the newest last: of all runs, or of one.

    Whatever is done to runs under a name is there, from any program and over HTTP, and so is what was
    refused. It stays when runs are removed; gc --audit-older-than removes it.

    \b
    Examples:
      everstep audit A17
      everstep audit --by ada --act cancel --since -7d
      everstep audit --after 0 --limit 1000 --json
    """
    found: list[AuditInfo] = []
    check_times(asked, datetime.now(UTC))  # also where there is no store yet
    if store or DEFAULT_FILE.exists():
        with open_host(store, create=False) as host:
            found = host.fleet.audit(run, after=None if after is None else int(after), **asked)
    if as_json:
        following = found[-1].number if len(found) == asked["limit"] else None
        write_json({"audit": [wire(info) for info in found], "next": following})
    elif found:
        head = ["when", "who", "act", "run", "about", "outcome", "comment"]
        write_table(head, [_row(info) for info in found], SPARE)
    else:
        click.echo("no such act by anyone with a name")


def _row(info: AuditInfo) -> list[Cell]:
    is_refused = info.outcome is AuditOutcome.REFUSED
    outcome = f"refused {info.code}".rstrip() if is_refused else info.outcome.value
    return [
        Cell(moment(info.at), dim=True),
        Cell(one_line(info.by)),
        Cell(info.act),
        Cell(info.run_id or ""),
        Cell(one_line(info.about)),
        Cell(outcome, "red" if is_refused else None),
        Cell(one_line(info.comment)),
    ]
