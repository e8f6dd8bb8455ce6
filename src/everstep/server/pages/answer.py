"""The page behind a link: a person sees what is asked, and answers. Works without scripts. Apart from the
handlers for programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from starlette.requests import Request
from starlette.responses import Response

from everstep.client.views import WaitInfo
from everstep.errors import (
    AnswerInvalid,
    AnswerTooLate,
    BadRequest,
    EverstepError,
    StoreError,
    TokenExpired,
    TokenInvalid,
    TokenUsed,
    TooLarge,
    TooSlow,
    VotedAlready,
    VoteRefused,
    WaitClosed,
    WaitNotFound,
    WaitSettled,
)
from everstep.model.waits import VotingInfo, WaitStatus
from everstep.server.bodies import read_form
from everstep.server.checks import token_of
from everstep.server.endpoint import REFUSED, Service
from everstep.server.pages.forms import answer_of, form_html, signed
from everstep.server.pages.look import context_html, message, moment_html, page

_ANSWERED = "This was answered already, or its time was over. There is nothing left to do."

TOLD: dict[type[EverstepError], tuple[str, str]] = {
    TokenInvalid: ("This link does not work", "It is not complete, or another link has taken its place."),
    TokenExpired: ("This link has expired", "Its time is over. Ask for a new one."),
    TokenUsed: ("Already answered", _ANSWERED),
    AnswerTooLate: ("Too late", "The time for an answer was over. There is nothing left to do."),
    WaitSettled: ("Already answered", _ANSWERED),
    WaitClosed: (
        "No longer needed",
        "The run that asked has gone on or was stopped.",
    ),
    WaitNotFound: ("This link does not work", "What it led to is no longer there."),
    TooLarge: ("Too much text", "What you sent is larger than this service takes. Go back and shorten it."),
    TooSlow: ("Please try again", "What you sent did not arrive in time."),
    StoreError: ("Please try again", "The service could not reach its store. Nothing was changed."),
}
"""What a person is told of an error; the first that fits."""


async def show(service: Service, request: Request) -> Response:
    """Show what is asked. Nothing is settled by looking: previews of links look too."""
    try:
        wait = await service.host.wait(token_of(request))
        _check_open(wait)
    except EverstepError as error:
        return _told(error)
    return _asking(wait)


async def settle(service: Service, request: Request) -> Response:
    """Take in what a person sent, or show the form again with what is wrong."""
    try:
        token = token_of(request)
        wait = await service.host.wait(token)
        _check_open(wait)
        given = await read_form(request, service.max_body)
    except EverstepError as error:
        request.scope[REFUSED] = error
        return _told(error)
    try:
        settled = await service.host.answer(token, answer_of(wait, given), **signed(given))
    except (AnswerInvalid, BadRequest, VotedAlready, VoteRefused) as error:
        return _asking(wait, given, error)
    except EverstepError as error:
        return _told(error)
    return _thanks(settled)


def _check_open(wait: WaitInfo) -> None:
    if wait.status is WaitStatus.SETTLED:
        raise WaitSettled("this wait has its answer.")
    if wait.status is WaitStatus.CLOSED:
        raise WaitClosed("this wait is closed.")


def _told(error: EverstepError) -> Response:
    for kind, (title, text) in TOLD.items():
        if isinstance(error, kind):
            said = message(title, text, status=error.http_status)
            if kind is TooSlow:
                said.headers["Connection"] = "close"
            return said
    if error.http_status < 500:
        return message("This did not work", str(error), status=error.http_status)
    raise error


def _asking(
    wait: WaitInfo, given: Mapping[str, str] | None = None, error: EverstepError | None = None
) -> Response:
    title = wait.prompt or _TITLES.get(wait.kind, "Your answer is needed")
    parts = [f'<p class="where">{escape(wait.flow)} · {escape(wait.node)}</p>', f"<h1>{escape(title)}</h1>"]
    if error is not None:
        said = str(error)
        parts.append(f'<p class="note" role="alert">{escape(said[:1].upper() + said[1:])}</p>')
    if wait.due_at is not None:
        what = "Goes on at" if wait.kind == "timer" else "Answer by"
        parts.append(f'<p class="due">{what} {moment_html(wait.due_at)}</p>')
    if wait.context is not None:
        parts.append(context_html(wait.context))
    if wait.voting is not None:
        parts.append(_votes_html(wait.voting))
    if wait.voting is None or not _is_by_name(wait.voting):
        parts.append(form_html(wait, given or {}))
    foot = f"Run {escape(wait.run_id)}"
    return page(title, "\n".join(parts), status=200 if error is None else error.http_status, foot=foot)


def _is_by_name(voting: VotingInfo) -> bool:
    """True where a link decides nothing."""
    return voting.approvers is not None or bool(voting.not_by)


def _votes_html(voting: VotingInfo) -> str:
    """Return who has voted, and who may where a link is not enough."""
    said = [f"{vote.by} {'approved' if vote.approved else 'rejected'}" for vote in voting.votes]
    parts = [f"<p>{voting.quorum} must approve. {escape(', '.join(said) or 'There is no vote yet')}.</p>"]
    if _is_by_name(voting):
        others = f"others than {', '.join(voting.not_by)}"
        names = escape(others if voting.left is None else ", ".join(voting.left) or "no one any more")
        parts.append(
            f'<p class="note">To be decided by {names}, by name: this link does not say who you are.</p>'
        )
    return "\n".join(parts)


_TITLES = {
    "approval": "Do you approve?",
    "timer": "Waiting for its time",
    "callback": "Waiting for a message",
}


def _thanks(wait: WaitInfo) -> Response:
    said = ""
    if wait.status is WaitStatus.OPEN and wait.voting is not None:
        so_far = sum(bool(vote.approved) for vote in wait.voting.votes)
        said = f"You approved it. That makes {so_far} of the {wait.voting.quorum} who must."
    match wait.answer:
        case {"approved": bool(approved)}:
            said = "You approved it." if approved else "You rejected it."
    text = f"<p>{escape(said)}</p>\n" if said else ""
    body = f"<h1>Thank you</h1>\n{text}<p>Your answer is kept. You can close this page.</p>"
    return page("Thank you", body, foot=f"Run {escape(wait.run_id)}")
