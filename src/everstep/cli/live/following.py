"""A run that is followed from elsewhere, in lines: `everstep log --follow`. Apart from the lines of a run
that is driven here, which know its flow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from everstep.cli.live.progress import ChunkLines, describe
from everstep.cli.view.text import clock_time, one_line
from everstep.codec.wire import wire
from everstep.runtime.events import Event


def write_followed(events: Iterable[Event], *, as_json: bool) -> None:
    """Write a line for each event worth one; with `as_json` a JSON object for each event."""
    chunks = ChunkLines(lambda line: click.echo(line))
    for event in events:
        if as_json:
            click.echo(json.dumps(wire(event), allow_nan=False))
        elif not chunks.take(event):
            line = _said(event)
            if line:
                click.echo(f"{click.style(clock_time(event.at), dim=True)}  {line}")
    chunks.flush()


def _said(event: Event) -> str:
    data = event.data
    match event.kind:
        case "run_resumed":
            return f"run {event.run_id} resumed at checkpoint {data['sequence']}"
        case "run_halted":
            return f"run {event.run_id} waits"
        case "run_ended":
            why = f": {one_line(data['error'])}" if data.get("error") else ""
            return f"run {event.run_id} {data['status']}{why}"
    return describe(event, f"attempt {event.attempt}", in_full=True).strip()
