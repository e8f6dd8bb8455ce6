"""The options that several commands share, and the host they name."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from everstep import Host
from everstep.runtime.events import Listener

F = TypeVar("F", bound=Callable[..., Any])


def store_option(command: F) -> F:
    """Add `--store URL`."""
    return click.option(
        "--store",
        metavar="URL",
        envvar="EVERSTEP_STORE",
        help="Where runs are kept, such as sqlite:///runs.db. [default: sqlite:///.everstep/runs.db]",
    )(command)


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")(
        command
    )


def load_option(command: F) -> F:
    """Add `--load FILE.py`."""
    return click.option(
        "--load",
        "modules",
        metavar="FILE.py",
        multiple=True,
        help="Load this file first, so that values of the classes it defines can be read.",
    )(command)


def open_host(store: str | None, *, create: bool, on_event: Listener | None = None) -> Host:
    """Open the store that the options name."""
    return Host(store or None, create=create, on_event=on_event)


def command_line(*words: str, store: str | None = None) -> str:
    """Write a command of ours as it can be pasted into a shell."""
    return shlex.join(["everstep", *words, *(["--store", store] if store else [])])
