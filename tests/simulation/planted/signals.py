"""Faults in how signals and events are kept and taken, planted one at a time, and where to look for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import msgspec

from everstep.client import host
from everstep.codec.notes import Message, close_event
from everstep.ports.events import EventRow, fields_of
from everstep.runtime.drive.chain_writer import Journal
from everstep.stores.objects.drafts import Draft
from everstep.stores.objects.marks.marks import Marks
from everstep.testing.simulation.faults import Fault
from tests.simulation.planted.plants import instead
from tests.simulation.signals.senders import Publish, Script, Send
from tests.simulation.users.people import Wish


def unmarked() -> AbstractContextManager[None]:
    """A put that takes signals does not mark them as taken."""
    return instead(Draft, "_take", lambda _: lambda self, signal_ids, sequence: None)


def shared_out_twice() -> AbstractContextManager[None]:
    """Who takes a signal only looks at those whose values are recorded, and not at those who are about to."""
    return instead(Journal, "claim", lambda _: lambda self, signal_id: signal_id not in self.taken)


def not_remembered() -> AbstractContextManager[None]:
    """The store does not remember which events a node had."""
    return instead(Marks, "add_had", lambda _: lambda self, had: None)


def looked_first() -> AbstractContextManager[None]:
    """A publisher looks for waits first, and keeps the event afterwards."""

    def hasty(publish: Any) -> Any:
        async def published(services: Any, keeper: Any, name: str, value: Any, **how: Any) -> Any:
            done = await publish(services, keeper, name, value, **{**how, "keep": None})
            if how["keep"] is not None:
                said = Message(
                    id=how["event_id"],
                    name=name,
                    value=msgspec.Raw(msgspec.json.encode(value)),
                    act=how["act"],
                )
                now = services.clock.now()
                event = EventRow(
                    event_id=said.id,
                    name=name,
                    value=close_event(services.codecs, said),
                    fields=fields_of(value),
                    published_at=now,
                    expires_at=now + how["keep"],
                )
                await services.store.keep_event(event)
            return done

        return published

    return instead(host, "publish", hasty)


class Plant(NamedTuple):
    """A fault, the script in which it is looked for, and the promise that it breaks."""

    make: Callable[[], AbstractContextManager[None]]
    plan: Script
    breaks: str
    kinds: tuple[Fault, ...] = ()
    """What must go wrong besides, if anything must."""
    at: str = ""
    """Whom that happens to."""


def _one(flow: str) -> tuple[Wish, ...]:
    """Return the wish for one run whose users do nothing about it for longer than what goes wrong lasts."""
    return (Wish(run_id="R0", flow=flow, x=1, by="users", starts=1, answers=100),)


_NOTES = (Send(1.5, "service", 1, "R0", "notes", 1), Send(2, "users", 1, "R0", "notes", 2))
_PAID = (Publish(0.5, "service", "one", 1, is_kept=True, times=1),)
PLANTS: Mapping[str, Plant] = {
    "a put does not mark what it takes": Plant(unmarked, Script(_one("midway"), _NOTES, ()), "signals"),
    "two calls take the same signal": Plant(
        shared_out_twice, Script(_one("shares"), _NOTES, ()), "signals", (Fault.SLOW,), "worker-1"
    ),
    "a node has an event again": Plant(not_remembered, Script(_one("pays"), (), _PAID), "events"),
    "a publisher looks before it writes": Plant(
        looked_first, Script(_one("pays"), (), _PAID), "events", (Fault.STALL,), "service"
    ),
}
