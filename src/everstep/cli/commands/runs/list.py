"""`everstep runs`."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from everstep import Status
from everstep.cli.args.options import (
    DEFAULT_FILE,
    json_option,
    open_host,
    query_options,
    store_option,
    where_else,
)
from everstep.cli.view.table import Cell, write_table
from everstep.cli.view.text import STATUS_COLOURS, count, duration, moment, one_line, write_json
from everstep.client.queries import RunsQuery, check_query, parameters_of
from everstep.client.views import RunPage
from everstep.errors import StoreError
from everstep.model.waits import WaitStatus
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep import Host
    from everstep.cli.view.labels import attributes_said, tags_said
    from everstep.cli.view.pauses import pauses_of
    from everstep.cli.view.waits import present, standing_of, wait_json, waits_of
    from everstep.client.views import WaitInfo
    from everstep.codec.wire import wire
    from everstep.results import RunInfo, Untaken
else:
    attributes_said = on_demand("everstep.cli.view.labels:attributes_said")
    tags_said = on_demand("everstep.cli.view.labels:tags_said")
    pauses_of = on_demand("everstep.cli.view.pauses:pauses_of")
    present = on_demand("everstep.cli.view.waits:present")
    standing_of = on_demand("everstep.cli.view.waits:standing_of")
    wait_json = on_demand("everstep.cli.view.waits:wait_json")
    waits_of = on_demand("everstep.cli.view.waits:waits_of")
    wire = on_demand("everstep.codec.wire:wire")

log = logging.getLogger("everstep.cli")


_ALONE = " (no live worker)"
_PATIENCE = 5.0
"""Seconds for which a search goes on by itself that has not looked at all runs."""
SPARE = ("checkpoints", "took", "started", "place", "forked from")
"""What a narrow terminal does not show of runs, the first to go first."""


@click.command()
@query_options(parameters_of(RunsQuery), limit=20)
@store_option
@json_option
def runs(store: str | None, as_json: bool, **asked: Any) -> None:
    """List runs, newest first.

    \b
    Example:
      everstep runs --flow orders --status failed
      everstep runs --tag vip --attribute customer=7
      everstep runs --waiting approval --started-until -3d
      everstep runs --where "status = failed and started > -2d and error contains 'timeout'"
    """
    if not store and not DEFAULT_FILE.exists():
        check_query(asked, datetime.now(UTC))  # what is wrong with it is so without a store, too
        if as_json:
            write_json({"runs": [], "next": None})
        else:
            click.echo(f"no runs yet: there is no {DEFAULT_FILE} here. {where_else('runs', store='FILE')}")
        return
    with open_host(store, create=False) as host:
        said = {name: value for name, value in asked.items() if value not in (None, ())}
        found = _found(host, said)
        halted = [info.run_id for info in found if info.status is Status.HALTED]
        waits = {run_id: waits_of(host, run_id) for run_id in halted}
        left = [info.run_id for info in found if _is_due(info, waits)]
        untaken = _untaken(host, left) if left else {}
        more = _untaken(host) if found.next is not None and _asks_for_all(asked) else {}
        is_asked = not as_json and any(not info.status.is_final for info in found)
        paused = pauses_of(host, found) if is_asked else {}
    if as_json:
        listed = [
            {**wire(info), **_waits_json(waits, info), "untaken": wire(untaken.get(info.run_id))}
            for info in found
        ]
        write_json({"runs": listed, "next": found.next})
        return
    if not found:
        click.echo("no runs" if found.next is None else "no runs so far")
    else:
        head = ["run", "flow", "status", "started", "took", "checkpoints"]
        rows = [
            _row(info, is_untaken=info.run_id in untaken, is_paused=info.run_id in paused) for info in found
        ]
        if any(info.forked_at is not None for info in found):
            head.insert(1, "forked from")
            for row, info in zip(rows, found, strict=True):
                row.insert(1, Cell(origin(info)))
        if any(info.priority or info.group for info in found):
            head.insert(3, "place")
            for row, info in zip(rows, found, strict=True):
                row.insert(3, Cell(place(info)))
        if any(info.changed_at is not None for info in found):
            head.append("changed")
            for row, info in zip(rows, found, strict=True):
                row.append(Cell(moment(info.changed_at)))
        if asked["labels"]:
            head.append("labels")
            for row, info in zip(rows, found, strict=True):
                row.append(Cell(", ".join(filter(None, (tags_said(info), attributes_said(info))))))
        if waits:
            now = present()
            head.append("waits for")
            for row, info in zip(rows, found, strict=True):
                row.append(Cell(_waited_for(waits.get(info.run_id, []), now)))
        write_table(head, rows, SPARE)
        _tell_untaken(list((untaken | more).values()))
    if found.next is not None and len(found) < asked["limit"]:
        click.echo(f"not all runs were looked at; go on with --before {found.next}", err=True)


def _found(host: Host, said: Mapping[str, Any]) -> RunPage:
    """Return a page of runs. A call looks at so many runs; others follow for a while, until it is full."""
    found, ends = host.runs(**said), time.monotonic() + _PATIENCE
    while found.next is not None and len(found) < said["limit"] and time.monotonic() < ends:
        more = host.runs(**{**said, "limit": said["limit"] - len(found), "before": found.next})
        found = RunPage([*found, *more], more.next)
    return found


def _waits_json(waits: Mapping[str, Sequence[WaitInfo]], info: RunInfo) -> dict[str, Any]:
    return {"waits": [wait_json(wait) for wait in waits.get(info.run_id, ())]}


def _waited_for(waits: Sequence[WaitInfo], now: datetime) -> str:
    """Name what a run waits for, what is answered or due first."""
    ranked = sorted(waits, key=lambda w: (w.status is WaitStatus.OPEN, w.due_at is None, w.due_at or now))
    shown = [f"{wait.node}: {standing_of(wait, now)}" for wait in ranked[:1]]
    shown += [f"and {len(ranked) - 1:,} more"] if len(ranked) > 1 else []
    return " ".join(shown)


def _is_due(info: RunInfo, waits: Mapping[str, Sequence[WaitInfo]]) -> bool:
    """True if a worker should take a run, as far as the listing says: nothing holds it back."""
    if info.is_driven or info.needs_repair is not None or info.paused_at is not None:
        return False
    settled = any(wait.status is WaitStatus.SETTLED for wait in waits.get(info.run_id, ()))
    return info.status is Status.RUNNING or settled or (info.is_cancelling and not info.status.is_final)


def _asks_for_all(asked: Mapping[str, Any]) -> bool:
    """True if nothing narrows a listing: then it tells of the store as a whole."""
    return not any(value for name, value in asked.items() if name not in ("limit", "labels"))


def _untaken(host: Host, run_ids: Sequence[str] = ()) -> dict[str, Untaken]:
    """Return which of these runs no worker takes, or of all; none where a key may only read, and the time is
    unknown.
    """
    try:
        return {one.run_id: one for one in host.fleet.untaken(*run_ids)}
    except StoreError as error:
        log.info("untaken runs unknown: %s", error.message)
        return {}


def _tell_untaken(untaken: Sequence[Untaken]) -> None:
    """Say why no live worker takes some runs, each reason once with its first run."""
    reasons: dict[tuple[str, str, str], list[Untaken]] = {}
    for one in untaken:
        reasons.setdefault((one.why, one.flow, one.flow_version), []).append(one)
    for alike in reasons.values():
        first = alike[0]
        who = first.run_id if len(alike) == 1 else f"{first.run_id} and {count(len(alike) - 1, 'other')}"
        click.secho(f"no live worker takes {who}: {first.text}", fg="yellow", err=True)
        click.echo(f"  {first.fix}", err=True)


def _row(info: RunInfo, *, is_untaken: bool, is_paused: bool) -> list[Cell]:
    text = standing(info, is_paused=is_paused)
    if not is_untaken and text.endswith(_ALONE):
        text = f"{text.removesuffix(_ALONE)} (waits for a worker)"
    elif is_untaken and not text.endswith(_ALONE):
        text += _ALONE
    return [
        Cell(info.run_id),
        Cell(info.flow),
        Cell(text, "red" if info.is_damaged else STATUS_COLOURS[info.status]),
        Cell(moment(info.created_at)),
        Cell(duration(info.duration)),
        Cell(str(info.checkpoints)),
    ]


def origin(info: RunInfo) -> str:
    """Write which checkpoint a fork goes on from: `A17@3`."""
    return "" if info.forked_at is None else f"{info.parent_run_id}@{info.forked_at}"


def place(info: RunInfo) -> str:
    """Say where a run stands among those that wait for a worker: `+5 acme`."""
    priority = f"{info.priority:+d}" if info.priority else ""
    return " ".join(filter(None, (priority, one_line(info.group or ""))))


def standing(info: RunInfo, *, is_paused: bool = False) -> str:
    """Say how a run stands, and whether an unfinished one has a live owner.

    It may be paused by itself, or, as `is_paused` says, with its flow or group.
    """
    if info.status.is_final:
        return f"{info.status.value} (pinned)" if info.pinned is not None else info.status.value
    if info.needs_repair is not None:
        return f"{info.status.value} ({'needs repair' if info.is_damaged else 'set aside'})"
    if info.is_cancelling:
        return f"{info.status.value} (cancelling)"
    if info.undoing is not None:
        return f"{info.status.value} (undoing)"
    if info.paused_at is not None or is_paused:
        return f"{info.status.value} ({'pausing' if info.is_driven else 'paused'})"
    if info.status is Status.HALTED:
        return info.status.value  # it needs no worker until it is answered
    return info.status.value if info.is_driven else f"{info.status.value}{_ALONE}"
