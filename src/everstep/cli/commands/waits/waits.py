"""`everstep waits`."""

from __future__ import annotations

from datetime import datetime

import click

from everstep import Host
from everstep.cli.args.options import (
    DEFAULT_FILE,
    command_line,
    find_run,
    host_options,
    json_option,
    open_host,
    store_option,
    tokens_option,
)
from everstep.cli.view.table import Cell, layout, screen_width, wide
from everstep.cli.view.text import full, moment, one_line, preview, printable, write_json
from everstep.cli.view.waits import (
    ago,
    asked,
    due_in,
    find_wait,
    how_to_answer,
    kind_of,
    settled,
    short,
    status_of,
    token_lines,
    votes_said,
    wait_json,
)
from everstep.cli.view.waits import present as present_time
from everstep.client.views import WaitInfo
from everstep.errors import BadRequest
from everstep.graph.author.wait_options import IN_ROW, is_unsaid
from everstep.model.waits import VotingInfo, WaitStatus

STATUSES = {status.value: status for status in WaitStatus}
_TOLD = ("prompt", "options", "context", "spellings")
"""Arguments of a wait that have words of their own, or are only for those who type an answer."""
_COLOURS = {WaitStatus.OPEN: "yellow", WaitStatus.SETTLED: "cyan", WaitStatus.CLOSED: None}


@click.command()
@click.argument("run", metavar="[RUN[/PATH]]", required=False)
@click.option("--flow", metavar="NAME", help="Only waits of runs of this flow.")
@click.option("--kind", metavar="KIND", help="Only timer, approval, callback, choice, yes_no, text, ...")
@click.option(
    "--status", type=click.Choice([*STATUSES, "all"]), default="open", show_default=True, help="Only these."
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.option("--after", metavar="WAIT", help="Continue a listing after this one.")
@click.option("--show", "wanted", metavar="WAIT", help="Show one wait whole.")
@tokens_option
@host_options
@store_option
@json_option
def waits(
    run: str | None,
    flow: str | None,
    kind: str | None,
    status: str,
    limit: int,
    after: str | None,
    wanted: str | None,
    tokens: bool,
    key_file: str | None,
    base_url: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List what runs wait for, the oldest first; with PATH, inside that flow or item.

    WAIT is the id of a wait, six or more characters that it begins with, its token, a run that waits for one
    thing only, or RUN/NODE. Tokens are secrets: --tokens shows them, as far as the key in EVERSTEP_KEY or
    --key-file made them.

    \b
    Examples:
      everstep waits
      everstep waits A17 --status all
      everstep waits --kind approval --json | jq '.waits[].context'
      everstep waits --show 8e75d88e
    """
    if not store and not DEFAULT_FILE.exists() and wanted is None and run is None:
        _write([], store, status=status, tokens=tokens, as_json=as_json)
        return
    with open_host(store, create=False, key_file=key_file, base_url=base_url) as host:
        if wanted is not None:
            if run is not None:
                raise BadRequest("--show shows one wait.", fix=f"Leave out {run}.")
            _show(find_wait(host, wanted), store, tokens=tokens, as_json=as_json)
            return
        found = host.waits(
            find_run(host, run) if run is not None else None,
            flow=flow,
            kind=kind,
            status=STATUSES.get(status),
            limit=limit,
            after=_place(host, after),
        )
        _write(found, store, status=status, tokens=tokens, as_json=as_json)
    if len(found) == limit and not as_json:
        again = command_line("waits", "--after", short(found[-1].id), store=store)
        click.secho(f"there may be more: {again}, or --limit N", err=True, dim=True)


def _place(host: Host, after: str | None) -> str | None:
    return None if after is None else find_wait(host, after).id


def _write(found: list[WaitInfo], store: str | None, *, status: str, tokens: bool, as_json: bool) -> None:
    if as_json:
        write_json({"waits": [wait_json(wait, with_token=tokens) for wait in found]})
        return
    if not found:
        click.echo({"open": "nothing is waited for", "all": "no waits"}.get(status, f"no {status} waits"))
        return
    now, is_mixed = present_time(), status != "open"
    head = ["wait", "run", "node", "kind", "since", "status" if is_mixed else "due", "asks"]
    rows = [_row(wait, now, is_mixed=is_mixed) for wait in found]
    lines = layout([[Cell(title, dim=True) for title in head], *rows], screen_width())
    click.echo(lines[0])
    for line, wait in zip(lines[1:], found, strict=True):
        click.echo(line)
        for text in token_lines(wait, store, "  ") if tokens else ():
            click.echo(text)


def _row(wait: WaitInfo, now: datetime, *, is_mixed: bool) -> list[Cell]:
    is_cut = screen_width() is not None
    due = due_in(wait.due_at, now)
    came, colour = due or "–", "red" if due.startswith("overdue") else None
    if is_mixed:
        came, colour = status_of(wait, now), _COLOURS[wait.status]
    return [
        Cell(short(wait.id) if is_cut else wait.id),
        Cell(short(wait.run_id) if is_cut else wait.run_id),
        Cell(wait.node if wait.visit <= 1 else f"{wait.node}@{wait.visit}", "cyan"),
        Cell(wait.kind),
        Cell(ago(wait.opened_at, now), dim=True),
        Cell(came, colour),
        Cell(asked(wait)),
    ]


def _show(wait: WaitInfo, store: str | None, *, tokens: bool, as_json: bool) -> None:
    if as_json:
        write_json(wait_json(wait, with_token=tokens))
        return
    status = click.style(wait.status.value, fg=_COLOURS[wait.status], bold=True)
    click.echo(f"{click.style(wait.id, bold=True)}  {status}")
    for name, text in facts(wait).items():
        click.echo(f"  {click.style(name.ljust(9), dim=True)} {text}")
    for text in token_lines(wait, store, "  ") if tokens else ():
        click.echo(text)
    if wait.status is WaitStatus.OPEN:
        command, other = how_to_answer(wait, store)
        click.echo(f"answer with: {command}" + (f"  {other}" if other else ""), err=True)


_MORE = tuple(name for name in IN_ROW if name in WaitInfo.__struct_fields__ and name not in _TOLD)


def _decided_by(voting: VotingInfo) -> str:
    """Say who may decide."""
    names = ", ".join(map(one_line, voting.approvers)) if voting.approvers else "anyone with a name"
    apart = f", not by {', '.join(map(one_line, voting.not_by))}" if voting.not_by else ""
    return f"{voting.quorum} of {names}{apart}"


def facts(wait: WaitInfo) -> dict[str, str]:
    """Return what there is to know of a wait, each in words."""
    now, width = present_time(), wide()
    visit = f", visit {wait.visit}" if wait.visit > 1 else ""
    found = {
        "run": f"{wait.run_id} of {wait.flow}",
        "node": f"{wait.node}{visit}",
        "kind": printable(wait.kind),
        "since": f"{moment(wait.opened_at)}, {ago(wait.opened_at, now)}",
    }
    if wait.due_at is not None:
        is_open = wait.status is WaitStatus.OPEN
        found["due"] = moment(wait.due_at) + (f", {due_in(wait.due_at, now)}" if is_open else "")
    if wait.listens_for:
        found["for"] = f"{wait.kind} {printable(wait.listens_for)}"
    if wait.scheduler:
        found["scheduler"] = wait.scheduler
    if wait.prompt:
        found["asks"] = printable(wait.prompt)
    if wait.voting is not None:
        found["decided by"] = _decided_by(wait.voting)
        found["votes"] = votes_said(wait.voting)
        for vote in wait.voting.votes:
            verdict = "approved" if vote.approved else "rejected"
            about = f": {printable(vote.comment)}" if vote.comment else ""
            found[one_line(vote.by)] = f"{verdict} {moment(vote.at)}, {vote.how.value}{about}"
    if wait.options:
        found["options"] = ", ".join(printable(str(option)) for option in wait.options)
    if wait.context is not None:
        text = wait.context if isinstance(wait.context, str) else None
        found["context"] = printable(text) if text is not None else full(wait.context, width, 12)
    for name in _MORE:
        if not is_unsaid(name, getattr(wait, name)):
            found[name.replace("_", " ")] = preview(getattr(wait, name), width)
    if wait.schema is not None and kind_of(wait.kind).needs_schema:
        found["schema"] = preview(wait.schema, width)
    if wait.notified_at is not None:
        found["told"] = moment(wait.notified_at)
    if wait.settled_at is not None:
        found["settled"] = f"{moment(wait.settled_at)}, {ago(wait.settled_at, now)}"
    if settled(wait):
        found["became"] = settled(wait)
    return found
