"""`everstep answer`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from everstep import Host
from everstep.cli.args.options import (
    command_line,
    host_options,
    json_option,
    login_name,
    open_host,
    said_who,
    store_option,
    who,
    who_options,
)
from everstep.cli.commands.waits.ask import GivenAnswer, Later, answer_of, ask, introduce
from everstep.cli.view.pauses import held_back, pause_of
from everstep.cli.view.text import write_json
from everstep.cli.view.waits import find_wait, how_to_answer, rough, settled, short, wait_json, waits_of
from everstep.client.views import WaitInfo
from everstep.errors import AnswerInvalid, BadRequest
from everstep.model.durations import span_of
from everstep.model.records import UNDOING
from everstep.model.waits import WaitStatus


@click.command()
@click.argument("wait", metavar="WAIT|TOKEN|-")
@click.argument("words", metavar="[ANSWER]", required=False)
@click.option("--approve/--reject", "approves", multiple=True, help="Answer an approval.")
@click.option("--yes/--no", "says_yes", multiple=True, help="Answer a yes or no, or a confirmation.")
@click.option("--choose", "chosen", metavar="OPTION", help="Answer a choice.")
@click.option("--text", metavar="TEXT", help="Answer with this text, as it is.")
@click.option(
    "--json-file", "file", metavar="FILE", help="Answer with the JSON in this file, or - for stdin."
)
@click.option("--fire", is_flag=True, help="Let its time be over: a timer fires, anything else is too late.")
@click.option("--reissue", is_flag=True, help="Print a new token; the old one dies.")
@click.option("--ttl", metavar="SPAN", help="With --reissue: the token lives so long, such as 2d or 90m.")
@click.option("--multi-use", is_flag=True, help="With --reissue: a repeated answer is told the first one.")
@click.option(
    "--metadata",
    metavar="JSON",
    help="With --reissue: an object to note of the token, such as for whom it is.",
)
@click.option("--revoke", is_flag=True, help="Make its token worthless; the wait stays open.")
@who_options
@host_options
@store_option
@json_option
def answer(
    wait: str,
    words: str | None,
    approves: tuple[bool, ...],
    says_yes: tuple[bool, ...],
    chosen: str | None,
    text: str | None,
    file: str | None,
    fire: bool,
    reissue: bool,
    ttl: str | None,
    multi_use: bool,
    metadata: str | None,
    revoke: bool,
    key_file: str | None,
    base_url: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Answer what a run waits for, once; without an answer, a terminal asks for it.

    WAIT is the id of a wait, six or more characters that it begins with, a run that waits for one thing only,
    or RUN/NODE. A dash reads a token from stdin, so that it is in no shell's history. ANSWER is text for a
    text, an option for a choice, yes or no in words, and otherwise JSON if it parses.

    \b
    Examples:
      everstep answer 8e75d88e --approve --as ann --comment 'within budget'
      everstep answer A17 '{"paid": true}'
      everstep answer A17/review --reject
      everstep answer - --reject < token.txt
      everstep answer 8e75d88e --reissue --ttl 2d
    """
    one, other = _either(approves, "--approve", "--reject"), _either(says_yes, "--yes", "--no")
    given = GivenAnswer(words, one, other, chosen, text, file)
    given.check()
    _check_acts(given, fire=fire, reissue=reissue, revoke=revoke)
    if (ttl is not None or multi_use or metadata is not None) and not reissue:
        raise BadRequest("--ttl, --multi-use and --metadata go with --reissue.", fix="Add --reissue.")
    if wait == "-":
        wait = _read_token(file)
    with open_host(store, create=False, key_file=key_file, base_url=base_url) as host:
        found = find_wait(host, wait)
        # A token must be used as such: it may be worth less than the id.
        name = wait if wait.startswith("et_") else found.id
        if reissue:
            about = {"ttl": ttl, "single_use": not multi_use, "metadata": _object(metadata)}
            _reissue(host, found, about, as_json=as_json)
        elif revoke:
            host.waiting.revoke(name, **who())
            _say_revoked(found, as_json=as_json)
        elif fire:
            _say_settled(host, host.waiting.fire(found.id, **who()), store, as_json=as_json)
        else:
            _answer(host, name, found, given, store, as_json=as_json)


def signed(answer: Any) -> dict[str, Any]:
    """Return who gives an answer, and why: as the answer says itself, or the options, or the login."""
    said = said_who()
    names_itself = isinstance(answer, dict) and bool(answer.get("approver"))
    return said if said["by"] or names_itself else {**said, "by": login_name()}


def _either(said: tuple[bool, ...], yes: str, no: str) -> bool | None:
    """Return what was said, if anything was; not both."""
    if len(set(said)) > 1:
        raise BadRequest(f"{yes} and {no} do not go together.", fix="Give one.")
    return said[0] if said else None


def _check_acts(given: GivenAnswer, *, fire: bool, reissue: bool, revoke: bool) -> None:
    acts = [n for n, on in (("--fire", fire), ("--reissue", reissue), ("--revoke", revoke)) if on]
    if len(acts) + len(given.ways) > 1:
        raise BadRequest(f"{' and '.join([*acts, *given.ways])} do not go together.", fix="Give one.")


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        found = None if text is None else json.loads(text)
    except ValueError:
        found = text
    if found is not None and not isinstance(found, dict):
        raise BadRequest(
            f"--metadata {text!r:.60} is no JSON object.", fix="""Write: --metadata '{"for": "ann"}'"""
        )
    return found


def _read_token(file: str | None) -> str:
    if file == "-":
        raise BadRequest("stdin cannot hold both the token and the answer.", fix="Read one from a file.")
    is_typed = sys.stdin.isatty()
    token = click.prompt("Token", hide_input=True, err=True) if is_typed else sys.stdin.readline()
    if not token.strip():
        raise BadRequest("there is no token on stdin.", fix="Write it there: everstep answer - < token.txt")
    return str(token).strip()


def _answer(
    host: Host, name: str, wait: WaitInfo, given: GivenAnswer, store: str | None, *, as_json: bool
) -> None:
    if given.ways and wait.kind == "timer" and wait.status is WaitStatus.OPEN:
        command, _ = how_to_answer(wait, store)
        raise BadRequest(f"{wait.node!r} waits for a time, not for an answer.", fix=f"Use --fire. {command}")
    if wait.kind == "settle" and wait.status is WaitStatus.OPEN:
        _check_settles(wait, given, store)
    if given.ways or wait.status is not WaitStatus.OPEN:
        value = answer_of(wait, given) if given.ways and wait.status is WaitStatus.OPEN else None
        _say_settled(host, host.answer(name, value, **signed(value)), store, as_json=as_json)
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        command, other = how_to_answer(wait, store)
        raise BadRequest("there is no answer.", fix=f"Give one: {command}" + (f", {other}" if other else ""))
    introduce(wait)
    while True:
        try:
            value = ask(wait, given)
            done = (
                host.waiting.fire(wait.id, **who())
                if wait.kind == "timer"
                else host.answer(name, value, **signed(value))
            )
        except AnswerInvalid as error:
            click.echo(str(error), err=True)
        except (Later, click.Abort):
            click.echo("\nnothing was answered", err=True)
            raise click.Abort from None
        else:
            _say_settled(host, done, store, as_json=as_json)
            return


def _check_settles(wait: WaitInfo, given: GivenAnswer, store: str | None) -> None:
    """Refer an answer to an effect that never reported to `everstep settle`."""
    said = answer_of(wait, given) if given.words is not None or given.file not in (None, "-") else {}
    if given.file == "-" or (isinstance(said, dict) and said.keys() & {"done", "rerun", "skip"}):
        return
    command, other = how_to_answer(wait, store)
    message = f"{wait.node!r} was begun and never reported: an operator has to say whether it happened."
    if wait.node.endswith(UNDOING):
        message = f"{wait.node!r} has failed: an operator has to say how to go on."
    raise BadRequest(message, fix=f"Use: {command}, {other}")


def _say_settled(host: Host, wait: WaitInfo, store: str | None, *, as_json: bool) -> None:
    """Say what became of the wait, and who goes on with its run."""
    info = host.info(wait.run_id)
    pause = None if as_json else pause_of(host, info)
    resume = command_line("resume", wait.run_id, store=store)
    if as_json:
        write_json({**wait_json(wait), "resume": resume})
        return
    click.echo(f"{wait.node} of run {wait.run_id}: {settled(wait)}")
    if wait.status is WaitStatus.OPEN:
        return  # others have to vote
    others = [other.node for other in waits_of(host, wait.run_id) if other.status is WaitStatus.OPEN]
    if others:
        click.echo(f"run {wait.run_id} waits for {', '.join(others)}, too", err=True)
    if pause is not None:
        click.echo(held_back(wait.run_id, pause, store), err=True)
    elif info.is_driven:
        click.echo(f"run {wait.run_id} is being driven and goes on", err=True)
    elif info.status.is_final:
        click.echo(f"run {wait.run_id} is {info.status.value}; to reopen it: {resume}", err=True)
    else:
        click.echo(f"a worker goes on with run {wait.run_id}, or: {resume}", err=True)


def _reissue(host: Host, wait: WaitInfo, about: dict[str, Any], *, as_json: bool) -> None:
    if wait.kind == "timer":
        raise BadRequest(f"{wait.node!r} is a timer, and a timer has no token.", fix="To end it: --fire")
    wait = host.waiting.reissue(wait.id, **about, **who())
    if as_json:
        write_json(wait_json(wait, with_token=True))
        return
    click.echo(wait.token)
    lives = f" for {rough(span_of(about['ttl']))}" if about["ttl"] is not None else ""
    click.echo(f"answers wait {short(wait.id)} ({wait.node} of run {wait.run_id}){lives}", err=True)
    if wait.link is not None:
        click.echo(f"page: {wait.link}", err=True)


def _say_revoked(wait: WaitInfo, *, as_json: bool) -> None:
    if as_json:
        write_json({**wait_json(wait), "is_revoked": True})
    else:
        click.echo(f"the token of wait {short(wait.id)} is worthless now; the wait stays open")
