"""`everstep gc`."""

from __future__ import annotations

import sys

import click

from everstep import Flow, Retention
from everstep.cli.args.loading import load_several
from everstep.cli.args.options import find_run, json_option, open_host, store_option, who, who_options
from everstep.cli.view.text import act_said, count, moment, size, write_json
from everstep.codec.wire import wire
from everstep.results import Collected, Removal

SHOWN = 50
"""How many runs of each kind are named in a terminal."""


@click.command("gc")
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--keep-for", metavar="SPAN", help="Remove runs that ended longer ago, such as 30d.")
@click.option(
    "--keep-last", metavar="N", type=click.IntRange(min=1), help="Keep the newest N runs of a flow."
)
@click.option(
    "--whole",
    metavar="N",
    type=click.IntRange(min=1),
    help="Of those, keep only the newest N whole; of the others the last checkpoint.",
)
@click.option("--tiers", is_flag=True, help="The same as --whole 10 --keep-last 50.")
@click.option(
    "--abandoned-for", metavar="SPAN", help="Remove unfinished runs without an owner for so long, such as 7d."
)
@click.option(
    "--tombstones-for", metavar="SPAN", help="Let go of the ids and summaries of runs removed longer ago."
)
@click.option("--audit-older-than", metavar="SPAN", help="Remove older rows of the audit log, such as 365d.")
@click.option(
    "--flows", metavar="FILE.py[:FLOW]", multiple=True, help="Keep runs of these flows by their own rules."
)
@click.option(
    "--shared",
    is_flag=True,
    help="Only this store keeps artifacts where EVERSTEP_BLOBS says: sweep there, too.",
)
@click.option("--log", "shows_log", is_flag=True, help="Only show what went before, the newest first.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many lines of it."
)
@who_options
@store_option
@json_option
def command(
    run_ids: tuple[str, ...],
    dry_run: bool,
    keep_for: str | None,
    keep_last: int | None,
    whole: int | None,
    tiers: bool,
    abandoned_for: str | None,
    tombstones_for: str | None,
    audit_older_than: str | None,
    flows: tuple[str, ...],
    shared: bool,
    shows_log: bool,
    limit: int,
    store: str | None,
    as_json: bool,
) -> int:
    """Remove what retention says, of every run or of some, and what no run needs any more.

    A run is kept by the rules of its flow, as they were when it began, or by those given here; without any,
    every run stays. Artifacts that no record names and that were not put for a day go in any case.
    Nothing that a live run, a fork, a pin or an open wait needs is removed. Exits with 1 if something could
    not be looked at.

    \b
    Examples:
      everstep gc --dry-run
      everstep gc --tiers --abandoned-for 7d
      everstep gc --keep-for 30d --json
      everstep gc --log
    """
    with open_host(store, create=False) as host:
        if shows_log:
            _write_log(host.retention.removals(limit=limit), as_json=as_json)
            return 0
        policy = Retention(
            keep_for=keep_for,
            keep_last=50 if tiers and keep_last is None else keep_last,
            whole=10 if tiers and whole is None else whole,
            abandoned_for=abandoned_for,
            tombstones_for=tombstones_for,
        )
        known: list[Flow] = load_several(flows)[0] if flows else []
        names = [find_run(host, run_id) for run_id in run_ids]
        watched = sys.stderr.isatty() and not as_json
        found = host.retention.gc(
            *names,
            retention=policy,
            flows=known,
            dry_run=dry_run,
            shared=shared,
            audit_older_than=audit_older_than,
            on_progress=_say if watched else None,
            **who(),
        )
    if as_json:
        write_json(wire(found))
    else:
        _write(found)
    return 1 if found.problems or found.artifacts.problem else 0


def _say(text: str) -> None:
    click.secho(text, err=True, dim=True)


def _write(found: Collected) -> None:
    would = "would be " if found.dry_run else ""
    for one in found.runs[:SHOWN]:
        what = "removed" if one.action == "erase" else "trimmed to its last checkpoint"
        click.echo(f"run {one.run_id} {would}{what}: {one.reason}")
    _more(len(found.runs))
    for spared in found.spared[:SHOWN]:
        click.secho(f"run {spared.run_id} stays: {spared.reason}", fg="yellow")
    _more(len(found.spared))
    for run_id in found.abandoned[:SHOWN]:
        click.secho(f"run {run_id} is abandoned: everstep show {run_id}", fg="yellow")
    _more(len(found.abandoned))
    for problem in found.problems:
        click.secho(problem, fg="red")
    if found.artifacts.problem:
        click.secho(f"no artifact was removed: {found.artifacts.problem}", fg="red")
    if found.artifacts.left_alone:
        why = f"artifacts were left alone: {found.artifacts.left_alone}"
        click.secho(f"{why} (if none does: --shared)", fg="yellow")
    click.echo(_sum(found, would))


def _more(many: int) -> None:
    if many > SHOWN:
        click.echo(f"… and {many - SHOWN:,} more")


def _sum(found: Collected, would: str) -> str:
    erased = sum(one.action == "erase" for one in found.runs)
    swept = found.artifacts
    trimmed = count(len(found.runs) - erased, "other run" if erased else "run")
    parts = [
        count(erased, "run"),
        f"the older checkpoints of {trimmed}",
        f"{count(swept.removed, 'artifact')} ({size(swept.size)})" if swept.removed else "",
        count(found.tombstones, "tombstone") if found.tombstones else "",
        count(found.leftovers, "leftover") if found.leftovers else "",
    ]
    if len(found.runs) == erased:
        parts[1] = ""
    if not found.has_removed:
        return f"nothing {would}removed" if would else "nothing to remove"
    listed = ", ".join(part for part in parts if part and not part.startswith("0 "))
    return f"{would}removed: {listed}"


def _write_log(lines: list[Removal], *, as_json: bool) -> None:
    if as_json:
        write_json({"removals": [wire(line) for line in lines]})
        return
    if not lines:
        click.echo("nothing was removed so far")
    for line in lines:
        of = f" of run {line.run_id}" if line.run_id is not None and line.what != "run" else ""
        what = f"run {line.run_id}" if line.what == "run" else count(line.count, line.what.removesuffix("s"))
        extent = f" ({size(line.size)})" if line.size else ""
        said = ", ".join(filter(None, (line.reason, act_said(line.act))))
        why = f": {said}" if said else ""
        click.echo(f"{moment(line.at)}  {what}{of}{extent}{why}")
