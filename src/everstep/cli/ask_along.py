"""`--ask`: what a run waits for is asked where it was started, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from everstep import Flow, Host, RunResult, Status, WaitInfo
from everstep.cli.asking import Given, Later, ask, introduce
from everstep.cli.options import who
from everstep.errors import AnswerInvalid, BadRequest, WaitClosed, WaitSettled
from everstep.model.waits import WaitStatus

F = TypeVar("F", bound=Callable[..., Any])
Work = Callable[[Host], RunResult]
_META = "everstep.ask"
_NOT_FOR_PEOPLE = ("timer", "callback", "settle")


def ask_option(command: F) -> F:
    """Add `--ask`; `asks` finds what it says."""
    return click.option(
        "--ask",
        is_flag=True,
        expose_value=False,
        callback=_keep,
        help="If the run halts for an answer, ask for it here and go on.",
    )(command)


def _keep(context: click.Context, option: click.Parameter, value: bool) -> bool:
    context.meta[_META] = value
    return value


def asks() -> bool:
    """True if answers are asked for where the run was started."""
    context = click.get_current_context(silent=True)
    return bool(context.meta.get(_META)) if context is not None else False


def refuse_ask(other: str) -> None:
    """Raise if answers are to be asked for besides another way to leave a run."""
    if asks():
        raise BadRequest(f"--ask asks here, and {other} does not.", fix="Give one of them.")


def along(work: Work, flow: Flow) -> Work:
    """Return the work with the answers that it halts for asked for in between."""
    if not asks():
        return work

    def go_on(host: Host) -> RunResult:
        result = work(host)
        while result.status is Status.HALTED and _answer_all(host, result.waits):
            result = host.resume(result.run_id, flow)
        return result

    return go_on


def _answer_all(host: Host, waits: Iterable[WaitInfo]) -> bool:
    """Ask for what people can answer; true if a run has something to go on with."""
    has_any = False
    for wait in waits:
        if wait.status is not WaitStatus.OPEN or wait.kind in _NOT_FOR_PEOPLE:
            continue
        introduce(wait)
        try:
            _answer(host, wait)
        except (Later, click.Abort):
            click.echo("\nnothing was answered", err=True)
            return has_any
        has_any = True
    return has_any


def _answer(host: Host, wait: WaitInfo) -> None:
    while True:
        try:
            given = ask(wait, Given())
            names_itself = isinstance(given, dict) and bool(given.get("approver"))
            host.answer(wait.id, given, by=None if names_itself else who()["by"])
        except AnswerInvalid as error:
            click.echo(str(error), err=True)
        except (WaitSettled, WaitClosed):
            click.echo("it was answered elsewhere meanwhile", err=True)
            return
        else:
            return
