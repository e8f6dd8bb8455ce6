"""`--log-level` and `--log-format`: how the log lines of a command are written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import click

from everstep.errors import EverstepError
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep.logs import configure, finish, writes_json
else:
    configure = on_demand("everstep.logs:configure")
    finish = on_demand("everstep.logs:finish")
    writes_json = on_demand("everstep.logs:writes_json")

__all__ = ["begin_logs", "finish", "log_options", "logged", "note"]

F = TypeVar("F", bound=Callable[..., Any])

LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("text", "json")
log = logging.getLogger("everstep.cli")


def log_options(command: F) -> F:
    """Add `--log-level` and `--log-format`; `begin_logs` does what they say."""
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        envvar="EVERSTEP_LOG_LEVEL",
        expose_value=False,
        callback=_keep,
        help="Log from this level on. [default: EVERSTEP_LOG_LEVEL, or warning]",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(FORMATS, case_sensitive=False),
        envvar="EVERSTEP_LOG_FORMAT",
        expose_value=False,
        callback=_keep,
        help="Log as text, or a JSON object a line. [default: EVERSTEP_LOG_FORMAT; json with --json]",
    )
    return level(form(command))


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    context.meta[f"everstep.{option.name}"] = value
    return value


def begin_logs(
    *, as_json: bool = False, output: Collection[str] = ("stderr",), is_service: bool = False
) -> bool:
    """Write log lines as the options say; true if each is JSON because that was asked for.

    Of the streams in `output` every line is one then. A command that ends soon logs as Python does unless it
    is told otherwise.
    """
    meta = click.get_current_context().meta
    level, form = meta.get("everstep.log_level"), meta.get("everstep.log_format")
    if level is None and form is None and not as_json and not is_service:
        return False
    is_asked = form == "json"
    configure(level=level, format=form or ("json" if as_json else "text"), output=output if is_asked else ())
    return is_asked


def note(text: str, **style: Any) -> None:
    """Tell people something on stderr; where logs are JSON, as a line of them."""
    if writes_json():
        log.warning("%s", text)
    else:
        click.secho(text, err=True, **style)


def logged(error: Exception) -> bool:
    """Log what ended a command, if logs are JSON; false if they are not."""
    if not writes_json():
        return False
    if isinstance(error, EverstepError):
        fix = f" → {error.fix}" if error.fix else ""
        log.error("command failed: [%s] %s%s", error.code, error.message, fix)
    elif isinstance(error, click.ClickException):
        log.error("command failed: [usage] %s", error.format_message())
    else:
        log.critical("command failed: %s", type(error).__name__, exc_info=error)
    finish()
    return True
