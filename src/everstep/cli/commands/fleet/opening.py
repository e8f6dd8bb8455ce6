"""Opens the host of a process that is to stay: a worker, the service."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import click

from everstep import AsyncHost
from everstep.cli.args.logs import note
from everstep.errors import StoreUnavailable
from everstep.model.durations import span_of

patience_option = click.option(
    "--give-up-after", metavar="SPAN", help="Wait so long for a store that is not there. [default: for ever]"
)


def patience_of(given: str | None) -> timedelta | None:
    return span_of(given, "--give-up-after") if given is not None else None


def opened(make: Callable[[], AsyncHost], patience: timedelta | None) -> AsyncHost:
    """Open a host, however long its store is out of reach; with `patience`, that long."""
    waited, pause = 0.0, 0.1
    while True:
        try:
            return make()
        except StoreUnavailable as error:
            if patience is not None and waited >= patience.total_seconds():
                raise
            if waited == 0:
                note(f"store unavailable ({error}); asking again until it is there", fg="yellow")
            threading.Event().wait(pause)
            waited, pause = waited + pause, min(2 * pause, 5.0)
