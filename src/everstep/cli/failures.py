"""How a command says that it could not do it: what and what to do, or with `--json` one object."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

import click

from everstep.cli.view.text import printable, write_json
from everstep.errors import DotError, EverstepError
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep.cli.args.logs import logged
else:
    logged = on_demand("everstep.cli.args.logs:logged")


def report(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong and return the exit code."""
    if not as_json and "everstep.logs" in sys.modules and logged(error):
        return error.exit_code if isinstance(error, (click.ClickException, EverstepError)) else 1
    if isinstance(error, click.ClickException):
        return _report_usage(error, as_json=as_json)
    if not isinstance(error, EverstepError):
        return _report_bug(error, as_json=as_json)
    if as_json:
        write_json({"error": error.to_wire()})
    else:
        first, *rest = error.message.split("\n") if isinstance(error, DotError) else [error.message]
        say(error.code, first, error.fix, str(error.details.get("traceback", "")))
        for line in rest:  # what is wrong in the text of a pipeline, each with the line it is in
            click.echo(f"  {printable(line)}", err=True)
    return error.exit_code


def say(code: str, message: str, fix: str = "", trace: str = "") -> None:
    """Write `error [code]: message` on stderr, below the traceback of the user's code, and then the fix."""
    for line in trace.rstrip().splitlines():
        click.secho(printable(line), err=True, dim=True)
    head = click.style(f"error [{code}]:", fg="red", bold=True)
    text = " ".join(printable(message).split())
    click.echo(f"{head} {text}" + (f"\n  → {printable(fix)}" if fix else ""), err=True)


def _report_usage(error: click.ClickException, *, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "everstep"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return error.exit_code
    message, fix = error.format_message(), f"See: {path} --help"
    if as_json:
        write_json({"error": {"code": "usage", "message": message, "fix": fix, "details": {}}})
    else:
        say("usage", message, fix)
    return error.exit_code


def _report_bug(error: Exception, *, as_json: bool) -> int:
    trace = "".join(traceback.format_exception(error))
    message = f"{type(error).__name__}: {error}"
    fix = "This is a bug of everstep, or of something it was given; the traceback says where."
    if as_json:
        details = {"traceback": trace}
        write_json({"error": {"code": "internal", "message": message, "fix": fix, "details": details}})
    else:
        say("internal", message, fix, trace)
    return 1
