"""`everstep notices`."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.args.options import (
    DEFAULT_FILE,
    json_option,
    open_host,
    query_options,
    store_option,
    who,
    who_options,
)
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import moment, one_line, write_json
from everstep.client.queries import NoticesQuery, parameters_of
from everstep.client.views import NoticeInfo
from everstep.codec.wire import wire
from everstep.errors import BadRequest

SPARE = ("at", "tries")
"""What a narrow terminal does not show, the first to go first."""
_COLOURS = {"sent": "green", "dead": "red", "pending": "yellow"}


@click.command()
@click.argument("run", required=False)
@query_options([one for one in parameters_of(NoticesQuery) if one.name != "run_id"], limit=50)
@click.option("--again", metavar="NOTICE", multiple=True, help="Have this notice sent once more; repeatable.")
@click.option("--again-all", is_flag=True, help="Have all dead letters sent once more.")
@who_options
@store_option
@json_option
def notices(
    run: str | None,
    again: tuple[str, ...],
    again_all: bool,
    store: str | None,
    as_json: bool,
    before: str | None,
    **asked: Any,
) -> None:
    """List what people and systems are told of runs, the newest first, and whether it was sent.

    One that failed too often is a dead letter. Workers that have its notifier send it once more on request,
    with the same id.

    \b
    Examples:
      everstep notices --state dead
      everstep notices A17
      everstep notices --again A17-3
      everstep notices --again-all
    """
    if again_all and (again or run):
        raise BadRequest("--again-all is for every dead letter.", fix="Use --again for some.")
    found: list[NoticeInfo] = []
    many = 0
    if again or again_all or store or DEFAULT_FILE.exists():
        with open_host(store, create=False) as host:
            many = host.notices.again_all(**who()) if again_all else 0
            found = [host.notices.again(one, **who()) for one in again]
            if not again:
                found = host.notices.find(run_id=run, before=None if before is None else int(before), **asked)
    if as_json:
        is_full = not again and len(found) == asked["limit"]
        told = {"notices": [wire(info) for info in found], "next": found[-1].number if is_full else None}
        write_json({**told, **({"again": many} if again_all else {})})
        return
    if again_all:
        click.echo(f"{many:,} dead letter{'' if many == 1 else 's'} to be sent again")
    elif found:
        write_table(
            ["notice", "of", "to", "state", "tries", "at", "why"], [_row(one) for one in found], SPARE
        )
    else:
        click.echo("no notices")


def _row(info: NoticeInfo) -> list[Cell]:
    when = info.sent_at or info.due_at or info.at
    state = info.state.value
    return [
        Cell(info.id),
        Cell(info.occasion.replace("_", " ")),
        Cell(one_line(info.notifier)),
        Cell(state, _COLOURS[state]),
        Cell(str(info.tries) if info.tries else ""),
        Cell(moment(when) if when is not None else "", dim=True),
        Cell(one_line(info.error)),
    ]
