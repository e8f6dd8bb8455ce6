"""Telling a chat of a wait or a run, by a webhook that takes `{"text": ...}`, as Slack and Mattermost do."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from everstep.ports.durability import Notice
from everstep.runtime.waits.notices.words import can_be_answered, lines, subject
from everstep.runtime.waits.webhooks import Webhook

_JOINER: Final = "\u2060"
"""Invisible, and no part of a name or an address."""
_LIVE: Final = re.compile(r"(?<!\w)@(?=\w)|:(?=//)|\bwww(?=\.)|\](?=\()", re.IGNORECASE)
"""What makes a mention or a link of text, up to where that is broken."""


class Chat(Webhook):
    """Posts a message with the context of a notice and the link to the page where it is answered.

    The link only shows that page: a preview of it in the chat decides nothing.
    """

    def _body(self, notice: Notice) -> bytes:
        return msgspec.json.encode({"text": message(notice)})


def message(notice: Notice) -> str:
    """Return a notice as a chat shows it, with nothing in it that would mention or link by itself."""
    said = [f"*{_safe(subject(notice))}*"]
    said += [f"{name}: {_safe(text)}" for name, text in lines(notice) if name != "Question"]
    if notice.link is not None:
        said.append(f"<{notice.link}|Answer>")
    elif can_be_answered(notice):
        said.append(f"Answer with: everstep answer {_safe(notice.wait_id)}")
    if notice.run_link is not None:
        said.append(f"<{notice.run_link}|See the run>")
    return "\n".join(said)


def _safe(text: str) -> str:
    """Return text as these chats want it escaped: what a run says must not become markup or a mention."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LIVE.sub(rf"\g<0>{_JOINER}", text)
