"""The forms with which a person answers a wait, and the answers that they mean. Apart from the page: what
each kind of wait asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from html import escape
from typing import Any

from everstep.client.views import WaitInfo
from everstep.errors import AnswerInvalid, BadRequest
from everstep.server.bodies import parse_json
from everstep.server.pages.look import plain


class AnswerForm(StrEnum):
    """Which form suits a wait."""

    APPROVAL = "approval"
    TIMER = "timer"
    CHOICE = "choice"
    YES_NO = "yes_no"
    TEXT = "text"
    NUMBER = "number"
    JSON = "json"


def form_of(wait: WaitInfo) -> AnswerForm:
    """Return the form for a wait, by its kind and by what its answer must look like."""
    if wait.kind == "approval":
        return AnswerForm.APPROVAL
    if wait.kind == "timer":
        return AnswerForm.TIMER
    if wait.options:
        return AnswerForm.CHOICE
    if wait.kind == "callback":
        return AnswerForm.JSON
    match wait.schema:
        case {"type": "boolean"}:
            return AnswerForm.YES_NO
        case {"type": "string"}:
            return AnswerForm.TEXT
        case {"type": "integer" | "number"}:
            return AnswerForm.NUMBER
    return AnswerForm.JSON


def form_html(wait: WaitInfo, given: Mapping[str, str]) -> str:
    """Return the form, with what was typed before if the page is shown again."""
    form = form_of(wait)
    fields, buttons = "", '<button type="submit">Send answer</button>'
    match form:
        case AnswerForm.APPROVAL:
            buttons = _yes_no("approved", "Approve", "Reject")
        case AnswerForm.TIMER:
            fields = "<p>The run goes on by itself when the time has come. You can let it go on now.</p>"
            buttons = '<button type="submit">Go on now</button>'
        case AnswerForm.CHOICE:
            fields = _choices(list(wait.options or ()), given)
        case AnswerForm.YES_NO:
            words = ("Confirm", "Decline") if wait.kind == "confirm" else ("Yes", "No")
            buttons = _yes_no("answer", *words)
        case AnswerForm.TEXT:
            fields = _area("answer", "Your answer", given)
        case AnswerForm.NUMBER:
            fields = _line(
                "answer", "Your answer, a number", given, ' inputmode="decimal" autocomplete="off"'
            )
        case AnswerForm.JSON:
            fields = _area("answer", "Your answer, as JSON", given, css=' class="code" spellcheck="false"')
    if form is not AnswerForm.TIMER:
        fields += _line("by", "Your name", given) + _area("comment", "Comment (optional)", given)
    # Without an action the form goes to the address it came from, so the token stands nowhere in the page.
    return f'<form method="post">\n{fields}\n<div class="buttons">{buttons}</div>\n</form>'


def _line(name: str, label: str, given: Mapping[str, str], css: str = ' autocomplete="name"') -> str:
    value = escape(given.get(name, ""))
    field = f'<input type="text" name="{name}" value="{value}" maxlength="200"{css}>'
    return f'<label class="field">{label}{field}</label>'


def _area(name: str, label: str, given: Mapping[str, str], css: str = "") -> str:
    value = escape(given.get(name, ""))
    return f'<label class="field">{label}<textarea name="{name}"{css}>\n{value}</textarea></label>'


def _choices(options: list[Any], given: Mapping[str, str]) -> str:
    rows = "".join(
        f'<label class="choice"><input type="radio" name="option" value="{k}" required'
        f"{' checked' if given.get('option') == str(k) else ''}><span>{escape(plain(option))}</span></label>"
        for k, option in enumerate(options)
    )
    return f"<fieldset><legend>Choose one</legend>{rows}</fieldset>"


def _yes_no(name: str, yes: str, no: str) -> str:
    return (
        f'<button type="submit" name="{name}" value="true">{yes}</button>'
        f'<button type="submit" name="{name}" value="false" class="stop">{no}</button>'
    )


def answer_of(wait: WaitInfo, given: Mapping[str, str]) -> Any:
    """Return the answer that a filled-in form means, or raise `AnswerInvalid`."""
    form = form_of(wait)
    match form:
        case AnswerForm.APPROVAL:
            return {"approved": _flag(given, "approved")}
        case AnswerForm.TIMER:
            return None
        case AnswerForm.CHOICE:
            return _option(list(wait.options or ()), given)
        case AnswerForm.YES_NO:
            return _flag(given, "answer")
        case AnswerForm.TEXT:
            return given.get("answer", "").replace("\r\n", "\n")
        case AnswerForm.NUMBER:
            return _number(given.get("answer", ""))
    return parse_json(given.get("answer", ""))


def signed(given: Mapping[str, str]) -> dict[str, str | None]:
    """Return who filled a form in, and why, as a host takes it."""
    # A page that was opened before the last upgrade calls it the approver.
    return {"by": given.get("by") or given.get("approver") or None, "comment": given.get("comment") or None}


def _flag(given: Mapping[str, str], name: str) -> bool:
    match given.get(name):
        case "true":
            return True
        case "false":
            return False
    raise AnswerInvalid("no button was pressed.", fix="Press one of the two.")


def _number(text: str) -> Any:
    try:
        number = parse_json(text.strip())
    except BadRequest:
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise AnswerInvalid("this is not a number.", fix="Write digits, such as 12 or 0.5.")
    return number


def _option(options: list[Any], given: Mapping[str, str]) -> Any:
    chosen = given.get("option", "")
    if not chosen.isascii() or not chosen.isdecimal() or len(chosen) > 6 or int(chosen) >= len(options):
        raise AnswerInvalid("nothing was chosen.", fix="Choose one of the options.")
    return options[int(chosen)]
