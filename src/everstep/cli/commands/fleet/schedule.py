"""`everstep schedule`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from everstep.cli.args.inputs import read_value
from everstep.cli.args.labels import given_tags
from everstep.cli.args.loading import load_several, stdout_kept_clean
from everstep.cli.args.options import (
    find_run,
    json_option,
    open_host,
    store_option,
    who,
    who_options,
)
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import count, one_line, write_json
from everstep.codec.wire import wire
from everstep.errors import BadRequest
from everstep.results import AppliedSchedule, ScheduleInfo


@click.group()
def schedule() -> None:
    """Start runs again and again by the clock; workers that have the flow do it.

    \b
    Examples:
      everstep schedule create report nightly --cron "30 2 * * *" --zone Europe/Berlin --time-input at
      everstep schedule list
      everstep schedule apply report.py --dry-run
      everstep schedule next nightly
      everstep schedule run nightly
      everstep schedule backfill nightly --since 2026-01-01 --until 2026-02-01 --at-most 31
    """


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what a schedule is."""
    for option in reversed(
        [
            click.option("--cron", metavar="EXPRESSION", help='When: "30 2 * * 1-5", @daily, @hourly.'),
            click.option("--every", metavar="SPAN", help="When: after each 15m, 2h, 1d."),
            click.option("--zone", metavar="ZONE", help="The time zone of --cron. [default: UTC]"),
            click.option("--input", "-i", "inputs", multiple=True, metavar="NAME=VALUE", help="An input."),
            click.option("--time-input", metavar="NAME", help="The input that gets the scheduled time."),
            click.option(
                "--overlap",
                type=click.Choice(["skip", "queue", "replace", "allow"]),
                help="What becomes of a time while a run before goes on. [default: skip]",
            ),
            click.option("--catch-up", metavar="SPAN", help="So late a time is still started. [default: 1h]"),
            click.option("--jitter", metavar="SPAN", help="Put starts off by up to this. [default: none]"),
            click.option("--priority", type=int, metavar="N", help="The higher, the sooner."),
            click.option("--group", metavar="NAME", help="The group of the runs."),
            click.option("--tag", "tags", multiple=True, metavar="NAME[=VALUE]", help="A tag of the runs."),
        ]
    ):
        command = option(command)
    return command


def _said(inputs: Iterable[str], tags: Iterable[str], given: dict[str, Any]) -> dict[str, Any]:
    """Return what was said of a schedule, by the names of the call."""
    values: dict[str, Any] = {}
    for pair in inputs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadRequest(f"--input {pair!r:.80} is not NAME=VALUE.", fix="Write --input count=3.")
        values[name] = read_value(name, text, [], option="--input")
    more = {"inputs": values or None, "tags": given_tags(tags) or None}
    return {**given, **more}


@schedule.command()
@click.argument("flow")
@click.argument("schedule_id", metavar="ID")
@_options
@who_options
@store_option
@json_option
def create(
    flow: str,
    schedule_id: str,
    inputs: tuple[str, ...],
    tags: tuple[str, ...],
    store: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a schedule of a flow, by its name. The same again changes nothing."""
    with open_host(store, create=True) as host:
        _write_one(host.schedules.create(flow, schedule_id, **_said(inputs, tags, given), **who()), as_json)


@schedule.command("list")
@click.option("--flow", metavar="NAME", help="Only of this flow.")
@click.option("--limit", type=int, default=100, show_default=True, help="At most so many.")
@click.option("--before", metavar="ID", help="Those behind this one.")
@store_option
@json_option
def list_schedules(
    flow: str | None, limit: int, before: str | None, store: str | None, as_json: bool
) -> None:
    """List schedules, the newest first."""
    with open_host(store, create=False) as host:
        found = host.schedules.list(flow, limit=limit, before=before)
    if as_json:
        write_json([wire(one) for one in found])
        return
    rows = [
        [Cell(one.schedule_id), Cell(one.flow), Cell(_when(one)), Cell(_next(one)), Cell(_counts(one))]
        for one in found
    ]
    write_table(["schedule", "flow", "when", "next", "runs"], rows)


@schedule.command("next")
@click.argument("schedule_id", metavar="ID")
@click.option("--count", "many", type=int, default=10, show_default=True, help="So many.")
@store_option
@json_option
def next_times(schedule_id: str, many: int, store: str | None, as_json: bool) -> None:
    """Say the next times of a schedule, in UTC."""
    with open_host(store, create=False) as host:
        found = host.schedules.times(find_run(host, schedule_id), many)
    if as_json:
        write_json([at.isoformat() for at in found])
        return
    for at in found:
        click.echo(_moment(at))


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@_options
@who_options
@store_option
def change(
    schedule_id: str, inputs: tuple[str, ...], tags: tuple[str, ...], store: str | None, **given: Any
) -> None:
    """Change what is said, and leave the rest of a schedule as it is."""
    with open_host(store, create=False) as host:
        name = find_run(host, schedule_id)
        host.schedules.change(name, **_said(inputs, tags, given), **who())
    click.echo(f"{one_line(name)} will be changed by the next worker that has its flow")


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@who_options
@store_option
@json_option
def pause(schedule_id: str, store: str | None, as_json: bool) -> None:
    """Let a schedule start nothing until it is let go on. Its runs go on."""
    with open_host(store, create=False) as host:
        _write_one(host.schedules.pause(find_run(host, schedule_id), **who()), as_json)


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@who_options
@store_option
@json_option
def unpause(schedule_id: str, store: str | None, as_json: bool) -> None:
    """Let a schedule go on. Times that passed meanwhile count as late: see --catch-up."""
    with open_host(store, create=False) as host:
        _write_one(host.schedules.unpause(find_run(host, schedule_id), **who()), as_json)


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@who_options
@store_option
def run(schedule_id: str, store: str | None) -> None:
    """Start a run now, whatever the times; says the id that the run will have."""
    with open_host(store, create=False) as host:
        click.echo(host.schedules.run_now(find_run(host, schedule_id), **who()))


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@click.option("--since", metavar="TIME", help="From this time on: 2026-01-31, -7d.")
@click.option("--until", metavar="TIME", default="now", show_default=True, help="Up to this time.")
@click.option("--at-most", type=int, default=100, show_default=True, help="So many runs at most.")
@click.option("--at-once", type=int, default=1, show_default=True, help="So many at the same time.")
@click.option("--stop", is_flag=True, help="Start no more of them.")
@who_options
@store_option
def backfill(
    schedule_id: str,
    since: str | None,
    until: str,
    at_most: int,
    at_once: int,
    stop: bool,
    store: str | None,
) -> None:
    """Run times gone by that have no run yet, the oldest first, each with the tag backfill."""
    if (since is None) != stop:
        raise BadRequest("a backfill begins somewhere, or is stopped.", fix="Give --since, or --stop.")
    with open_host(store, create=False) as host:
        name = find_run(host, schedule_id)
        if since is None:
            host.schedules.stop_backfill(name, **who())
        else:
            host.schedules.backfill(name, since, until, at_most=at_most, at_once=at_once, **who())
    click.echo(f"the next worker that has the flow of {one_line(name)} {'stops it' if stop else 'does it'}")


@schedule.command()
@click.argument("places", metavar="FILE.py[:FLOW]...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@who_options
@store_option
@json_option
def apply(places: tuple[str, ...], dry_run: bool, store: str | None, as_json: bool) -> None:
    """Make schedules what their flows declare: Flow(..., schedules=[Schedule(...)]).

    One that is declared no more is paused, not deleted.
    """
    with stdout_kept_clean(as_json):
        flows, _ = load_several(places)
    with open_host(store, create=not dry_run) as host:
        found = host.schedules.apply(flows, dry_run=dry_run, **who())
    if as_json:
        write_json([wire(one) for one in found])
        return
    for one in found:
        click.echo(applied_line(one, dry_run=dry_run))
    if not found:
        click.echo("these flows declare no schedule")


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@who_options
@store_option
def delete(schedule_id: str, store: str | None) -> None:
    """Remove a schedule for good. Runs that it has started go on."""
    with open_host(store, create=False) as host:
        name = find_run(host, schedule_id)
        host.schedules.delete(name, **who())
    click.echo(f"{one_line(name)} is deleted")


_DONE = {
    "create": ("would be created", "is created"),
    "change": ("would be changed", "will be changed by the next worker that has its flow"),
    "pause": ("would be paused, as it is declared no more", "is paused, as it is declared no more"),
    "unpause": ("would go on, as it is declared again", "goes on, as it is declared again"),
    "none": ("is as it is declared", "is as it is declared"),
}


def applied_line(one: AppliedSchedule, *, dry_run: bool = False) -> str:
    """Say what was done about a schedule, or would be."""
    said = f"{one_line(one.schedule_id)} ({one_line(one.flow)}) {_DONE[one.act][0 if dry_run else 1]}"
    changes = [f"{name} {one.before[name]!r:.60} -> {one.after[name]!r:.60}" for name in one.after]
    return one_line("; ".join([said, *changes]))


def _write_one(told: ScheduleInfo, as_json: bool) -> None:
    if as_json:
        write_json(wire(told))
    else:
        click.echo(f"{one_line(told.schedule_id)} starts {one_line(told.flow)} {_when(told)}; {_next(told)}")


def _when(told: ScheduleInfo) -> str:
    if told.every is not None:
        return f"every {told.every}"
    return one_line(f"{told.cron} {told.zone}")


def _next(told: ScheduleInfo) -> str:
    if told.paused:
        return "paused"
    return f"next {_moment(told.next)}" if told.next is not None else told.status


def _moment(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def _counts(told: ScheduleInfo) -> str:
    parts = [count(told.started, "run")]
    for name in ("skipped", "missed", "pending", "refused"):
        if many := getattr(told, name):
            parts.append(f"{many:,} {name}")
    return ", ".join(parts)
