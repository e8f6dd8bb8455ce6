"""Waits as people see them: what is asked, until when, and the command that answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import click

from everstep import Host
from everstep.cli.args.options import command_line
from everstep.cli.view.table import screen_width
from everstep.cli.view.text import act_said, count, cut, one_line, preview
from everstep.client.views import WaitInfo
from everstep.codec.plain_json import Wire
from everstep.codec.wire import wire
from everstep.errors import BadRequest, RunNotFound, WaitNotFound
from everstep.model.address import Address, plain_of, unvisited
from everstep.model.records import START, UNDOING
from everstep.model.waits import DEADLINE_KIND, SettledBy, VotingInfo, WaitStatus

SHORTEST_PREFIX, SHORT = 6, 8
"""How much of a wait's id must be given, and how much is shown."""
SHOWN = 10
_PAGE = 1000
_LOOK = "See all it waited for with: everstep waits {} --status all"
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


class WaitKind(NamedTuple):
    """How a kind of wait is spoken of, and answered at a shell."""

    noun: str
    """What is waited for."""
    flag: str = ""
    """What answers it, behind `everstep answer WAIT`; without one, JSON does."""
    value: str = ""
    """What stands behind the flag."""
    other: str = ""
    """The flag that says the opposite, which makes it a yes or no in words too."""
    needs_schema: bool = False
    """True if only its schema says what an answer looks like."""
    is_for_people: bool = True

    @property
    def flags(self) -> str:
        """What may be given to answer it."""
        return " or ".join(filter(None, (self.flag, self.other)))


KINDS: Mapping[str, WaitKind] = {
    "timer": WaitKind("its time", "--fire", needs_schema=True, is_for_people=False),
    "approval": WaitKind("an approval", "--approve", other="--reject"),
    "callback": WaitKind("a callback", needs_schema=True, is_for_people=False),
    "yes_no": WaitKind("a yes or no", "--yes", other="--no"),
    "confirm": WaitKind("a confirmation", "--yes", other="--no"),
    "choice": WaitKind("a choice", "--choose", "OPTION"),
    "text": WaitKind("a text", "--text", "TEXT"),
    "signal": WaitKind("a signal", is_for_people=False),
    "event": WaitKind("an event", is_for_people=False),
    "child": WaitKind("the end of a run", is_for_people=False),
    "deadline": WaitKind("its deadline", is_for_people=False),
    "settle": WaitKind("word from an operator", is_for_people=False),
}
"""Every kind of wait but those that nodes make up."""


_WITHOUT_TOKEN = ("timer", "signal", "event", "child", DEADLINE_KIND)


def kind_of(kind: str) -> WaitKind:
    """Return how a kind of wait is spoken of and answered, also one that a node made up."""
    return KINDS.get(kind) or WaitKind(f"an answer ({one_line(kind)})", needs_schema=True)


def find_wait(host: Host, text: str) -> WaitInfo:
    """Return what a token, an id, the beginning of one, a run that waits for one thing, or RUN/NODE names."""
    try:
        return host.wait(text)
    except WaitNotFound:
        found = _of_run(host, text)
        for status in (WaitStatus.OPEN, WaitStatus.SETTLED, WaitStatus.CLOSED):
            if not found and len(text) >= SHORTEST_PREFIX:
                found = [wait for wait in all_waits(host, status=status) if wait.id.startswith(text)]
        if not found:
            raise
    if len(found) > 1:
        listed = ", ".join(f"{short(wait.id)} ({wait.node})" for wait in found[:5])
        more = ", …" if len(found) > 5 else ""
        raise BadRequest(f"{text!r} may mean {len(found)} waits.", fix=f"Name one: {listed}{more}")
    return found[0]


def _of_run(host: Host, text: str) -> list[WaitInfo]:
    run, _, node = text.partition("/")
    try:
        run_id = host.info(run).run_id
    except (RunNotFound, BadRequest):
        return []
    found = list(all_waits(host, run_id, status=WaitStatus.OPEN))
    named = [wait for wait in found if not node or _is_named(wait, node)]
    if named:
        return named
    known = list(all_waits(host, run_id, status=None))
    found = found or [wait for wait in known if wait.status is WaitStatus.SETTLED]
    if not found:
        past = "".join(f" {_past(wait)}" for wait in known[-1:])
        raise WaitNotFound(f"run {run_id!r} waits for nothing.{past}", fix=_LOOK.format(run_id))
    if not node:
        return found
    # One that has its answer is refused with who gave it, not as one that there never was.
    named = [wait for wait in known if _is_named(wait, node)][-1:]
    if not named:
        there = ", ".join(dict.fromkeys(wait.node for wait in found[:5]))
        raise WaitNotFound(f"run {run_id!r} does not wait for {node!r}.", fix=f"It waits for {there}.")
    return named


def _is_named(wait: WaitInfo, node: str) -> bool:
    return node in (wait.node, unvisited(wait.node), plain_of(wait.node))


def _past(wait: WaitInfo) -> str:
    return f"Its newest wait, {wait.node}, is over: {settled(wait)}."


def all_waits(host: Host, run_id: str | None = None, *, status: WaitStatus | None) -> Iterator[WaitInfo]:
    """Yield every wait, the oldest first."""
    after: str | None = None
    while True:
        page = host.waits(run_id, status=status, limit=_PAGE, after=after)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].id


def waits_of(host: Host, run_id: str) -> list[WaitInfo]:
    """Return what a run waits for, and what was answered and not yet taken in."""
    return [wait for wait in all_waits(host, run_id, status=None) if wait.status is not WaitStatus.CLOSED]


def present() -> datetime:
    """Return the time it is."""
    return datetime.now(UTC)


def short(id: str) -> str:
    """Cut a UUID to what tells it from others; other ids stay whole."""
    try:
        UUID(id)
    except ValueError:
        return id
    return id[:SHORT]


def rough(span: timedelta) -> str:
    """Write a span by its largest units: `2d 4h`, `3m`, `12s`. A negative one is none."""
    left = max(0, round(span.total_seconds()))
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append((number, unit))
    if not parts:
        return "0s"
    shown = parts[:1] if parts[0][1] == "m" and parts[0][0] > 1 else parts[:2]
    return " ".join(f"{number}{unit}" for number, unit in shown if number)


def due_in(due_at: datetime | None, now: datetime) -> str:
    """Say how long something has still time: `in 2d 4h`, `overdue 3m`; empty if for ever."""
    if due_at is None:
        return ""
    if abs(due_at - now) < timedelta(seconds=1):
        return "now"
    return f"in {rough(due_at - now)}" if due_at > now else f"overdue {rough(now - due_at)}"


def due_said(due_at: datetime | None, now: datetime) -> str:
    """Say it as part of a sentence: `due in 2d 4h`, `overdue 3m`."""
    due = due_in(due_at, now)
    return due if due.startswith("overdue") or not due else f"due {due}"


def ago(at: datetime, now: datetime) -> str:
    """Say how long ago something was."""
    return f"{rough(now - at)} ago" if now - at >= timedelta(seconds=1) else "just now"


def noun(kind: str) -> str:
    """Name what a kind of wait waits for."""
    return kind_of(kind).noun


def votes_said(voting: VotingInfo, *, is_over: bool = False) -> str:
    """Say who has voted, and who may still: `1 of 2 (ann ✓), left: bob, cleo`."""
    votes = ", ".join(f"{one_line(vote.by)} {'✓' if vote.approved else '✗'}" for vote in voting.votes)
    approving = sum(bool(vote.approved) for vote in voting.votes)
    said = f"{approving} of {voting.quorum}" + (f" ({votes})" if votes else "")
    left = ", ".join(map(one_line, voting.left or ())) if not is_over else ""
    return said + (f", left: {left}" if left else "")


def asked(wait: WaitInfo, width: int = 72) -> str:
    """Write what is asked in one line."""
    parts = [one_line(wait.prompt)] if wait.prompt else []
    if wait.voting is not None and wait.status is WaitStatus.OPEN:
        parts.insert(0, votes_said(wait.voting))
    if wait.options:
        parts.append("one of " + ", ".join(one_line(str(option)) for option in wait.options))
    if wait.context is not None:
        text = one_line(wait.context) if isinstance(wait.context, str) else preview(wait.context, width)
        parts.append(cut(text, width + 20))
    return "  ".join(parts)


def settled(wait: WaitInfo) -> str:
    """Say what became of a wait: its answer, or that its time was over; the votes on one that is open."""
    if wait.status is WaitStatus.OPEN:
        return "" if wait.voting is None else votes_said(wait.voting)
    said = _settled(wait)
    if wait.voting is not None and wait.voting.votes:
        said += f", {votes_said(wait.voting, is_over=True)}"
    return said


def _settled(wait: WaitInfo) -> str:
    if wait.settled_by is None:
        return "no longer wanted"
    if wait.settled_by is SettledBy.CLOCK:
        is_timer = wait.kind == "timer"
        if wait.act is not None:
            return f"{'fired early' if is_timer else 'timed out early'} {act_said(wait.act)}"
        return "its time came" if is_timer else "its time was over"
    if wait.kind == "approval" and isinstance(wait.answer, dict):
        verdict = "approved" if wait.answer.get("approved") else "rejected"
        by = wait.act is not None and wait.act.by  # what is said without a name is only a comment
        return f"{verdict}{' ' if by else ': '}{act_said(wait.act)}" if wait.act is not None else verdict
    if wait.kind == "timer":
        return "fired early"
    return " ".join(filter(None, (_answered(wait), act_said(wait.act))))


def _answered(wait: WaitInfo) -> str:
    """Say what was answered, and by whom."""
    if wait.kind == "settle" and isinstance(wait.answer, dict):
        if "rerun" in wait.answer:
            return "to be called again"
        if "skip" in wait.answer:
            return f"skipped: {preview(wait.answer['skip'], 60)}"
        return f"done: {preview(wait.answer.get('done'), 60)}"
    if wait.answer is None:  # or its key is not at hand
        return "answered"
    word = {True: "yes", False: "no"}.get(wait.answer) if isinstance(wait.answer, bool) else None
    return f"answered: {word or preview(wait.answer, 60)}"


def status_of(wait: WaitInfo, now: datetime) -> str:
    """Say where a wait stands in a word or two, and why: `open, due in 2d`, `closed: approved by ann`."""
    if wait.status is WaitStatus.OPEN:
        return ", ".join(filter(None, ("open", due_said(wait.due_at, now))))
    return f"{wait.status.value}: {settled(wait)}"


def standing_of(wait: WaitInfo, now: datetime) -> str:
    """Say where a wait stands: `an approval, due in 2d 4h`, `approved by ann, not taken in yet`."""
    if wait.status is WaitStatus.SETTLED:
        return f"{settled(wait)}, not taken in yet"
    return ", ".join(filter(None, (noun(wait.kind), due_said(wait.due_at, now))))


def how_to_answer(wait: WaitInfo, store: str | None) -> tuple[str, str]:
    """Return the command that answers a wait, and what may stand in its place."""
    if wait.kind in ("signal", "event"):
        words = ["send", wait.run_id] if wait.kind == "signal" else ["publish"]
        return command_line(*words, wait.listens_for, "VALUE", store=store), ""
    if wait.kind == "child" and wait.listens_for:
        return command_line("show", wait.listens_for, store=store), ""
    if wait.kind == DEADLINE_KIND:
        return command_line("show", wait.run_id, store=store), ""
    kind, more = kind_of(wait.kind), ""
    if wait.node == START:
        return command_line("answer", short(wait.id), kind.flag, store=store), "to begin at once"
    command, other = answering(wait.kind, wait.run_id, Address.of(wait.node, wait.visit), wait.id, store)
    if other or (kind.flag and not kind.value):
        return command, f"or {other}" if other else ""
    words = ["JSON"]
    if wait.kind == "text" and (wait.schema or {}).get("type", "string") == "string":
        words = [kind.flag, kind.value]
    elif wait.options:
        first, *rest = [one_line(o if isinstance(o, str) else json.dumps(o)) for o in wait.options]
        words, more = ["--choose", first], f"or {', '.join(rest)}" if rest else ""
    return command_line("answer", short(wait.id), *words, store=store), more


def answering(kind: str, run_id: str, step: Address, wait_id: str, store: str | None) -> tuple[str, str]:
    """Return the command that answers a wait of which no more is known, and the flag for the opposite.

    Where it takes more than a flag, the command as it is asks for the answer on a terminal.
    """
    if kind == "settle":
        if step.names[-1] == UNDOING:
            command = command_line("settle", run_id, str(step), "--rerun", store=store)
            return command, "--done null, or --skip WHY"
        return command_line("settle", run_id, str(step), "--done", "JSON", store=store), "--rerun"
    if kind in ("signal", "event", "child"):
        return command_line("waits", run_id, store=store), ""
    known = kind_of(kind)
    words = [known.flag] if known.flag and not known.value else []
    return command_line("answer", short(wait_id), *words, store=store), known.other


def wait_lines(waits: Sequence[WaitInfo], store: str | None, *, with_tokens: bool = False) -> Iterator[str]:
    """Write what a run waits for, each with the command that answers it."""
    now, width = present(), screen_width()
    for wait in waits[:SHOWN]:
        stands = f"{wait.node}  {standing_of(wait, now)}"
        question = asked(wait)
        if width is not None:
            question = cut(question, max(width - len(stands) - 7, 0))
        mark = click.style("‖", fg="yellow")
        yield f"  {mark} {stands}" + (f"  {click.style(question, dim=True)}" if question else "")
        if wait.status is WaitStatus.OPEN:
            command, other = how_to_answer(wait, store)
            yield f"      {command}" + (click.style(f"  {other}", dim=True) if other else "")
        if with_tokens:
            yield from token_lines(wait, store, "      ")
    if len(waits) > SHOWN:
        command = command_line("waits", waits[0].run_id, store=store)
        yield f"    … and {count(len(waits) - SHOWN, 'more wait')}: {command}"


def token_lines(wait: WaitInfo, store: str | None, indent: str) -> Iterator[str]:
    """Write the token of a wait and the page to answer at, or why they are not known."""
    if wait.token is not None:
        yield f"{indent}{click.style('token', dim=True)} {wait.token}"
        if wait.link is not None:
            yield f"{indent}{click.style('link', dim=True)}  {wait.link}"
    elif wait.kind not in _WITHOUT_TOKEN and wait.status is WaitStatus.OPEN:
        again = command_line("answer", short(wait.id), "--reissue", store=store)
        yield indent + click.style(f"token unknown here; for a new one: {again}", dim=True)


def wait_json(wait: WaitInfo, *, with_token: bool = False) -> Wire:
    """Return a wait as JSON shows it; the token is a secret, so it must be asked for."""
    found = wire(wait)
    return found if with_token else Wire((k, part) for k, part in found.items() if k not in ("token", "link"))
