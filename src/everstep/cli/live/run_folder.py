"""`--run-dir`: a run's folder, written beside the run while it is driven."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from everstep import Flow, Host
from everstep.cli.args.pipelines import pipeline_of
from everstep.errors import BadRequest, EverstepError
from everstep.results import Event
from everstep.runtime.events import Listener

F = TypeVar("F", bound=Callable[..., Any])
_META = "everstep.run_dir"
_PATIENCE = 5.0
"""Seconds to wait for the last files of a run that is interrupted."""


def run_dir_option(command: F) -> F:
    """Add `--run-dir`; `FolderKeeper` finds what it says."""
    return click.option(
        "--run-dir",
        metavar="DIR",
        expose_value=False,
        callback=_keep,
        help="Also write the run as a folder of plain files below this one.",
    )(command)


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    context.meta[_META] = value
    return value


def run_dir() -> str | None:
    """Return the folder that the command line names, if any."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_META) if context is not None else None


def refuse_run_dir() -> None:
    """Raise if a folder is asked for where nothing is driven."""
    if run_dir() is not None:
        raise BadRequest(
            "--start drives nothing, so there is no run to write into --run-dir.",
            fix="Leave one of them out; everstep export RUN DIR --form folder writes it at any time.",
        )


def text_of(flow: Flow) -> str | None:
    """Return the text that a pipeline was read from."""
    pipeline = pipeline_of(flow)
    return pipeline.digraph.source.text if pipeline is not None else None


class FolderKeeper:
    """Writes the folder of a run on a thread of its own; what goes wrong there is said, and harms no run."""

    def __init__(self, flow: Flow) -> None:
        self._folder = run_dir()
        self._text = text_of(flow)
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._host: Host | None = None
        self._written: str | None = None
        self.path: Path | None = None

    def hearing(self, listener: Listener) -> Listener:
        """Return a listener that hears of the run besides another one."""

        def hear(event: Event) -> None:
            listener(event)
            if event.kind == "checkpoint" and self._thread is None and self._host is not None:
                self._follow(event.run_id)

        return hear if self._folder is not None else listener

    def watch(self, host: Host) -> None:
        """Use this host from now on."""
        self._host = host

    def _follow(self, run_id: str) -> None:
        self._thread = threading.Thread(target=self._write, args=(run_id, self._stop.is_set), daemon=True)
        self._thread.start()

    def _write(self, run_id: str, until: Callable[[], bool] | None = None) -> None:
        assert self._host is not None and self._folder is not None
        try:
            self.path = self._host.transfer.write_run_folder(
                run_id, self._folder, pipeline=self._text, until=until
            )
            self._written = run_id
        except EverstepError as error:
            if until is None:
                click.secho(f"the run folder was not written: {error}", err=True, fg="yellow")

    def finish(self, run_id: str) -> None:
        """Write what is still to be written, and stop; without a run id, only what was begun."""
        if self._folder is None:
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
            if self._thread.is_alive():
                click.secho("the run folder is not complete.", err=True, fg="yellow")
                return
        if run_id and self._written != run_id:
            self._write(run_id)
