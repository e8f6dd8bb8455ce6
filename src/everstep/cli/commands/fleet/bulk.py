"""`everstep bulk`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import click

from everstep import Host
from everstep.cli.args.inputs import read_value
from everstep.cli.args.labels import given_tags
from everstep.cli.args.options import (
    command_line,
    find_run,
    json_option,
    open_host,
    store_option,
    who,
    who_options,
)
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import count, write_json
from everstep.codec.wire import wire
from everstep.errors import BadRequest, EverstepError
from everstep.results import BulkAct, BulkOutcome, BulkPreview, BulkProgress, BulkSample, WhyUntaken

LOOK = 0.5
"""Seconds between two looks at how far it has come."""
INTERRUPTED = 130
_ENDS = ("completed", "failed", "cancelled", "abandoned")


@click.command()
@click.argument("act", required=False, type=click.Choice([one.value for one in BulkAct]))
@click.option("--where", metavar="QUERY", help="Which runs: status = failed and flow = orders.")
@click.option("--dry-run", is_flag=True, help="Only count the runs, and say what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--at-most", type=int, metavar="N", help="Stop after so many runs.")
@click.option("--per-second", type=float, metavar="N", help="Act on no more runs a second.")
@click.option("--add", multiple=True, metavar="NAME[=VALUE]", help="tag: add this; repeat for more.")
@click.option("--remove", multiple=True, metavar="NAME", help="tag: take this away; repeat for more.")
@click.option("--reason", metavar="TEXT", help="pin: why the runs are kept.")
@click.option("--at", type=int, metavar="N", help="fork: at this checkpoint. [default: the newest of each]")
@click.option("--input", "-i", "inputs", multiple=True, metavar="NAME=VALUE", help="fork: edit an input.")
@click.option("--set", "state", multiple=True, metavar="NAME=VALUE", help="fork: edit a value.")
@click.option("--channel", multiple=True, metavar="KEY=VALUE", help="fork: edit an entry of the channel.")
@click.option("--keep-keys", is_flag=True, help="fork: use the idempotency keys of the original run again.")
@click.option("--start", "only_start", is_flag=True, help="Only start it; workers do it.")
@click.option("--follow", metavar="RUN", help="Go on with one that was started, or watch it.")
@who_options
@store_option
@json_option
def bulk(
    act: str | None,
    where: str | None,
    dry_run: bool,
    yes: bool,
    at_most: int | None,
    per_second: float | None,
    only_start: bool,
    follow: str | None,
    store: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Do something to all runs that a query asks for: as a run that any worker drives.

    It says what would be done and asks, unless it is told --yes. Without a live worker it is done by this
    command. If either is killed, the next worker goes on, and no run is acted on twice.

    \b
    cancel   cancel runs
    resume   let workers drive runs again that were set aside as damaged
    retry    reopen runs that failed or were abandoned; workers drive them
    fork     make a fork of each
    pause    let runs stand still; unpause lets them go on
    tag      --add and --remove tags
    pin      keep runs whatever retention says; unpin lets go of them
    erase    remove runs that have ended, for good

    Exits with 1 if an act was refused for some run. `everstep audit` has all of them.

    \b
    Examples:
      everstep bulk retry --where "status = failed and error contains 'timed out'" --dry-run
      everstep bulk tag --where "group = acme" --add customer=acme --yes
      everstep bulk cancel --where "flow = reports and status = halted" --per-second 20
      everstep bulk --follow RUN
    """
    if follow is not None:
        if act is not None or where is not None or dry_run:
            raise BadRequest("--follow goes on with what was ordered.", fix="Give the run alone.")
        with open_host(store, create=False) as host:
            return _follow(host, find_run(host, follow), store, as_json=as_json)
    if act is None or where is None:
        raise BadRequest("it is not said what is to be done to which runs.", fix="Give an act and --where.")
    options = {"at_most": at_most, "per_second": per_second, **_read(given)}
    with open_host(store, create=False) as host:
        if dry_run or not yes:
            if not (dry_run or sys.stdin.isatty()):
                raise BadRequest("nothing is done without --yes.", fix="Look with --dry-run, then say --yes.")
            found = host.fleet.bulk(act, where, dry_run=True, **options)
            if dry_run and as_json:
                write_json(wire(found))
                return 0
            _write(found, to_stderr=not dry_run)
            if dry_run or not _agrees(found):
                return 0 if dry_run else 1
        run_id = host.fleet.bulk(act, where, **options, **who())
        if not only_start:
            return _follow(host, run_id, store, as_json=as_json)
        told = host.fleet.bulk_progress(run_id)
    if as_json:
        write_json(wire(told))
    else:
        click.echo(run_id)
        click.echo(f"workers do it; watch it: {_again(run_id, store)}", err=True)
    return 0


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an act is given besides the runs; what was not said is left out."""
    found: dict[str, Any] = {
        "add": given_tags(given["add"]),
        **{name: given[name] for name in ("remove", "reason", "at", "keep_keys")},
        **{
            name: _pairs(option, given[name])
            for name, option in (("inputs", "--input"), ("state", "--set"), ("channel", "--channel"))
        },
    }
    return {name: value for name, value in found.items() if value or isinstance(value, int | str)}


def _pairs(option: str, pairs: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadRequest(f"{option} {pair!r:.80} is not NAME=VALUE.", fix=f"Write {option} count=3.")
        found[name] = read_value(name, text, [], option=option)
    return found


def _agrees(found: BulkPreview) -> bool:
    if not found.to_do:
        click.echo("there is nothing to do", err=True)
        return False
    return click.confirm(f"{found.act.capitalize()} {count(found.to_do, 'run')}?", err=True)


def _write(found: BulkPreview, *, to_stderr: bool) -> None:
    more = "" if found.is_whole else " or more"
    what = f"{count(found.runs, 'run')}{more} found, {found.act} would be done to {found.to_do:,}"
    click.echo(what, err=to_stderr)
    for name, many in (("status", found.by_status), ("flow", found.by_flow)):
        if many:
            click.echo(f"  by {name}: {_counted(many)}", err=to_stderr)
    for name, many in (("skipped", _why(found.skipped)), ("refused", found.refused)):
        if many:
            click.echo(f"  {name}: {_counted(many)}", err=to_stderr)
    if found.sample and not to_stderr:
        rows = [
            [Cell(one.run_id), Cell(one.flow), Cell(one.status), Cell(_would(one))] for one in found.sample
        ]
        write_table(["run", "flow", "status", "would be"], rows)


def _would(one: BulkSample) -> str:
    why = one.why.replace("_", " ") if one.would is BulkOutcome.SKIPPED else one.why
    return f"{one.would} {why}".strip()


def _counted(many: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in many.items())


def _why(many: Mapping[str, int]) -> dict[str, int]:
    """Return why runs are skipped, in words."""
    return {name.replace("_", " "): n for name, n in many.items()}


def _said(told: BulkProgress) -> str:
    parts = [f"{told.done:,} done"]
    parts += [f"{sum(many.values()):,} {name} ({_counted(many)})" for name, many in _others(told) if many]
    parts += [f"{told.left:,} left"] if told.left is not None and told.status not in _ENDS else []
    return ", ".join(parts)


def _others(told: BulkProgress) -> tuple[tuple[str, Mapping[str, int]], ...]:
    return ("skipped", _why(told.skipped)), ("refused", told.refused)


def _again(run_id: str, store: str | None) -> str:
    return command_line("bulk", "--follow", run_id, store=store)


def _follow(host: Host, run_id: str, store: str | None, *, as_json: bool) -> int:
    """Stay with it until it is over; where no worker would take it, do it here."""
    told, is_done_here = host.fleet.bulk_progress(run_id), False
    try:
        with _Watch(host, run_id) as watch:
            while told.status not in _ENDS:
                if any(one.why is WhyUntaken.NO_WORKER for one in host.fleet.untaken(run_id)):
                    is_done_here = True
                    host.fleet.drive_bulk(run_id)
                else:
                    watch.wait()
                told = host.fleet.bulk_progress(run_id)
    except KeyboardInterrupt:
        goes_on = "it is not over; go on with it" if is_done_here else "workers go on with it; watch it"
        stop = command_line("cancel", run_id, store=store)
        click.echo(f"\n{goes_on}: {_again(run_id, store)}\nto stop it: {stop}", err=True)
        return INTERRUPTED
    if as_json:
        write_json(wire(told))
    else:
        said = "" if told.status == "completed" else f" {told.status}:"
        click.echo(f"{told.act}:{said} {_said(told)}")
    if told.status == "failed":
        click.echo(f"see: {command_line('show', run_id, store=store)}", err=True)
    return 0 if told.status == "completed" and not told.refused else 1


class _Watch:
    """Says how far it has come: one line that changes on a terminal, plain lines elsewhere."""

    def __init__(self, host: Host, run_id: str) -> None:
        self._host, self._run_id = host, run_id
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._width, self._last = 0, ""

    def wait(self) -> None:
        """Let some time pass."""
        self._is_over.wait(LOOK)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *stopped: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)

    def _look(self) -> None:
        while not self._is_over.wait(LOOK):
            with suppress(EverstepError):  # who drives it is told
                told = self._host.fleet.bulk_progress(self._run_id)
                self._show(f"{told.act}: {_said(told)}")

    def _show(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        if sys.stderr.isatty():
            click.echo("\r" + text.ljust(self._width), err=True, nl=False)
            self._width = len(text)
        else:
            click.echo(text, err=True)
