"""From words and flags to the answer of a wait, and how a terminal asks for one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from everstep import Flow, Host, Status
from everstep.cli.args.options import login_name, said_who, who
from everstep.cli.view.table import screen_width
from everstep.cli.view.text import full, moment, one_line, preview, printable
from everstep.cli.view.waits import KINDS, ago, due_said, kind_of, noun, present, votes_said
from everstep.errors import AnswerInvalid, BadRequest, VotedAlready, VoteRefused, WaitClosed, WaitSettled
from everstep.model.waits import WaitStatus
from everstep.results import RunResult, WaitInfo

_YES = {"y", "yes", "true", "on", "ok", "approve", "approved"}
_NO = {"n", "no", "false", "off", "reject", "rejected"}


class GivenAnswer(NamedTuple):
    """What the command line says of an answer."""

    words: str | None = None
    approves: bool | None = None
    says_yes: bool | None = None
    chosen: str | None = None
    text: str | None = None
    file: str | None = None

    @property
    def ways(self) -> list[str]:
        """The ways in which an answer is given; more than one is too many."""
        named = {
            "ANSWER": self.words,
            {True: "--approve", False: "--reject"}.get(self.approves or False, ""): self.approves,
            {True: "--yes", False: "--no"}.get(self.says_yes or False, ""): self.says_yes,
            "--choose": self.chosen,
            "--text": self.text,
            "--json-file": self.file,
        }
        return [name for name, value in named.items() if value is not None]

    def check(self) -> None:
        """Raise if these words cannot be one answer."""
        if len(self.ways) > 1:
            raise BadRequest(f"{' and '.join(self.ways)} are two answers.", fix="Give one.")


def answer_of(wait: WaitInfo, given: GivenAnswer) -> Any:
    """Return the answer that was given, as the wait takes it."""
    if given.file is not None:
        return _read_json(given.file)
    if given.words is not None:
        return _read_words(wait, given.words)
    if given.approves is not None:
        _refuse_unless(wait, wait.kind == "approval", given)
        return {"approved": given.approves}
    if given.says_yes is not None:
        is_fit = wait.kind in ("yes_no", "confirm", "callback") or _is_own(wait)
        _refuse_unless(wait, is_fit, given)
        return given.says_yes
    if given.chosen is not None:
        _refuse_unless(wait, bool(wait.options), given)
        return pick(wait, given.chosen)
    _refuse_unless(wait, wait.kind in ("text", "callback") or _is_own(wait), given)
    return given.text


def _is_own(wait: WaitInfo) -> bool:
    return wait.kind not in KINDS or wait.kind == "settle"


def _refuse_unless(wait: WaitInfo, is_fit: bool, given: GivenAnswer) -> None:
    if not is_fit:
        flags = kind_of(wait.kind).flags
        fix = f"Use {flags}." if flags else "Write the answer as JSON."
        if wait.options:
            fix = f"Use --choose with one of {_listed(wait.options)}."
        raise BadRequest(f"{wait.node!r} waits for {noun(wait.kind)}, not for {given.ways[0]}.", fix=fix)


def _read_json(file: str) -> Any:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadRequest(f"--json-file {file} cannot be read: {reason}.", fix="Check the path.") from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadRequest(f"--json-file {file} is not JSON: {error}.", fix="Text stands in quotes.") from error


def _read_words(wait: WaitInfo, words: str) -> Any:
    """Read ANSWER: text for a text, an option for a choice, yes or no in words, else JSON if it parses."""
    if wait.options:
        return pick(wait, words)
    if (wait.schema or {"type": wait.kind}).get("type") in ("string", "text"):
        return words
    word = words.strip().lower()
    if kind_of(wait.kind).other and word in _YES | _NO:
        return {"approved": word in _YES} if wait.kind == "approval" else word in _YES
    try:
        return json.loads(words)
    except ValueError:
        return words


def pick(wait: WaitInfo, text: str) -> Any:
    """Return the option that a text names, by itself or as JSON."""
    options = wait.options or []
    for option in options:
        if text == option or (not isinstance(option, str) and text == json.dumps(option)):
            return option
    lowered = [o for o in options if isinstance(o, str) and o.lower() == text.strip().lower()]
    if len(lowered) == 1:
        return lowered[0]
    spelled = wait.spellings.get(text.strip().lower())
    if spelled is not None:
        return spelled
    raise BadRequest(f"{text!r} is no option of {wait.node!r}.", fix=f"Choose one of {_listed(options)}.")


def _listed(options: Sequence[Any]) -> str:
    return ", ".join(
        one_line(option if isinstance(option, str) else json.dumps(option)) for option in options
    )


class Later(Exception):
    """The person asked declined to answer now."""


def introduce(wait: WaitInfo) -> None:
    """Write what is asked on stderr, as the person who answers needs it."""
    now = present()
    due = f", {due_said(wait.due_at, now)} ({moment(wait.due_at)})" if wait.due_at is not None else ""
    head = f"{click.style(wait.node, bold=True)} of run {wait.run_id} ({wait.flow})"
    click.echo(f"{head} waits for {noun(wait.kind)}", err=True)
    click.secho(f"  asked {ago(wait.opened_at, now)}{due}", err=True, dim=True)
    if wait.voting is not None:
        click.secho(f"  {votes_said(wait.voting)}", err=True, dim=True)
    if wait.context is not None:
        for line in context_lines(wait.context):
            click.echo(f"  {line}", err=True)
    if wait.prompt:
        click.echo(printable(wait.prompt), err=True)


def context_lines(context: Any) -> list[str]:
    """Write a context: an object by its names, a text by its lines."""
    width = (screen_width() or 100) - 4
    if isinstance(context, dict) and context:
        wide = max(len(str(name)) for name in context)
        found = []
        for name, value in context.items():
            shown = printable(value) if isinstance(value, str) else full(value, width - wide, wide + 4)
            head = click.style(one_line(str(name)).ljust(wide), dim=True)
            found += f"{head}  {shown}".splitlines()
        return found
    text = printable(context) if isinstance(context, str) else full(context, width, 2)
    return [line for line in text.splitlines() if line]


def ask(wait: WaitInfo, given: GivenAnswer) -> Any:
    """Ask for an answer in the form that its kind needs, on a terminal."""
    if wait.options:
        return _ask_choice(wait)
    match wait.kind:
        case "timer":
            if not click.confirm("Let it fire now?", default=False, err=True):
                raise Later
            return None
        case "approval":
            return _ask_approval()
        case "yes_no" | "confirm":
            return click.confirm(
                "Yes or no?" if wait.kind == "yes_no" else "Confirm?", default=None, err=True
            )
        case "text":
            return click.prompt("Answer", err=True)
    if wait.schema is not None:
        click.secho(f"it must match {preview(wait.schema, 200)}", dim=True, err=True)
    return _read_words(wait, click.prompt("Answer (JSON, or text)", err=True))


def _ask_approval() -> dict[str, Any]:
    word = click.prompt(
        "Approve or reject?", type=click.Choice(["approve", "reject"], case_sensitive=False), err=True
    )
    said = said_who()
    found: dict[str, Any] = {"approved": word == "approve"}
    if said["comment"] is None:
        found["comment"] = click.prompt("Comment", default="", show_default=False, err=True) or None
    if said["by"] is None:
        known = login_name()
        found["approver"] = click.prompt("Your name", default=known or "", show_default=bool(known), err=True)
    return {name: value for name, value in found.items() if value not in (None, "")}


def _ask_choice(wait: WaitInfo) -> Any:
    options = wait.options or []
    for number, option in enumerate(options, 1):
        shown = option if isinstance(option, str) else json.dumps(option, ensure_ascii=False)
        click.echo(f"  {number}  {one_line(shown)}", err=True)
    while True:
        text = click.prompt(f"Choose 1 to {len(options)}", err=True).strip()
        if text.isdecimal() and 1 <= int(text) <= len(options):
            return options[int(text) - 1]
        try:
            return pick(wait, text)
        except BadRequest as error:
            click.echo(f"{error.message} {error.fix}", err=True)


F = TypeVar("F", bound=Callable[..., Any])
Work = Callable[[Host], RunResult]
_META = "everstep.ask"


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
        if wait.status is not WaitStatus.OPEN or not kind_of(wait.kind).is_for_people:
            continue
        introduce(wait)
        try:
            has_any |= _answer(host, wait)
        except (Later, click.Abort):
            click.echo("\nnothing was answered", err=True)
            return has_any
    return has_any


def _answer(host: Host, wait: WaitInfo) -> bool:
    """Ask for an answer and give it; true if the wait is over, false if others have to vote."""
    while True:
        try:
            given = ask(wait, GivenAnswer())
            names_itself = isinstance(given, dict) and bool(given.get("approver"))
            now = host.answer(wait.id, given, by=None if names_itself else who()["by"])
        except AnswerInvalid as error:
            click.echo(str(error), err=True)
        except (VoteRefused, VotedAlready) as error:
            click.echo(str(error), err=True)
            raise Later from None
        except (WaitSettled, WaitClosed):
            click.echo("it was answered elsewhere meanwhile", err=True)
            return True
        else:
            if now.status is WaitStatus.OPEN and now.voting is not None:
                click.echo(votes_said(now.voting), err=True)
            return now.status is not WaitStatus.OPEN
