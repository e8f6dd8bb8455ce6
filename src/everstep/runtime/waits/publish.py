"""Publishing events. That needs no lease of any run."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from everstep.codec.notes import Message, close_event
from everstep.errors import BadRequest, ServiceMissing
from everstep.model.acts import Act
from everstep.model.durations import Span, span_of
from everstep.on_demand import on_demand
from everstep.ports.events import EventRow, EventStore, fields_of
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import as_json
from everstep.runtime.waits.inbox import checked_name
from everstep.runtime.workers.lease_renewal import LeaseKeeper

if TYPE_CHECKING:
    from everstep.runtime.operations.acting import riding, written
else:
    riding = on_demand("everstep.runtime.operations.acting:riding")
    written = on_demand("everstep.runtime.operations.acting:written")

LONGEST = timedelta(days=366)
"""How long an event may be kept."""


async def publish(
    services: Services,
    keeper: LeaseKeeper,
    name: str,
    value: Any,
    *,
    event_id: str | None,
    keep: Span | None,
    act: Act | None,
) -> tuple[str, int]:
    """Publish an event; returns its id, and how many waits it settled."""
    store, clock = check_has_events(services), services.clock
    said = as_json(value, "an event")
    message = Message(
        id=services.ids.new_id() if event_id is None else checked_name(event_id, "id", "an event"),
        name=checked_name(name, "name", "an event"),
        value=msgspec.Raw(said),
        act=act,
    )
    now = clock.now()
    event = EventRow(
        event_id=message.id,
        name=name,
        value=close_event(services.codecs, message),
        fields=fields_of(msgspec.json.decode(said)),
        published_at=now,
        expires_at=now + _span(keep) if keep is not None else None,
    )
    # Kept first and looked for afterwards: a wait that opens meanwhile is in its shapes, or finds the event.
    keeping: dict[str, Any] = {}
    bringing: dict[str, Any] = {}
    audit = riding(act, None, name) if act is not None or services.notes_unnamed else None
    if audit is not None:
        (keeping if event.expires_at is not None else bringing)["audit"] = audit
    topics = event.topics(await patiently(clock, partial(store.keep_event, event, **keeping)))
    settled = 0
    while topics and (some := await patiently(clock, partial(store.settle_event, event, topics, **bringing))):
        settled += some
    if audit is not None:
        written(audit, is_done=keeping or topics)
    if settled:
        keeper.nudge_all()
    return message.id, settled


def _span(keep: Span) -> timedelta:
    span = span_of(keep, "keep")
    if not timedelta() < span <= LONGEST:
        raise BadRequest(f"an event is to be kept for {keep}.", fix="Keep it for up to a year, such as 1d.")
    return span


def check_has_events(services: Services) -> EventStore:
    """Return the store as one whose waits can be for events, or say that they cannot."""
    if not services.store.capabilities.has_events:
        raise ServiceMissing(
            "no wait can be for an event in this store.",
            fix="Use SQLite, PostgreSQL, Redis, files or a bucket.",
        )
    return cast("EventStore", services.store)
