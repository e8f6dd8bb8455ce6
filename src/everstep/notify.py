"""Ways to notify people and systems of a wait: `Host(notifiers={"finance": notify.Webhook("https://...")})`."""

from everstep.ports.durability import Notice, Notifier
from everstep.runtime.waits.notifiers import console
from everstep.runtime.waits.webhooks import Webhook, verify

__all__ = ["Notice", "Notifier", "Webhook", "console", "verify"]
