"""Ways to notify people and systems of a wait or a run:
`Host(notifiers={"finance": notify.Webhook("https://...")}, notify=notify.Tell("finance", on="failed"))`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everstep.graph.tells import Occasion, Tell
from everstep.ports.durability import Notice, Notifier
from everstep.runtime.waits.notifiers import console
from everstep.runtime.waits.webhooks import Webhook, verify

if TYPE_CHECKING:
    from everstep.runtime.waits.notices.chat import Chat
    from everstep.runtime.waits.notices.mail import Mail

__all__ = ["Chat", "Mail", "Notice", "Notifier", "Occasion", "Tell", "Webhook", "console", "verify"]

_HOMES = {"Chat": "everstep.runtime.waits.notices.chat", "Mail": "everstep.runtime.waits.notices.mail"}
"""What is loaded when it is first used: who sends no mail need not load how that is done."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
