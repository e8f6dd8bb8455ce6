"""The tables of events. Apart from the store, as few runs wait for any. The caller holds the connection."""

from __future__ import annotations

from everstep.ports.events import EventRow, Wanted
from everstep.stores.columns import span_to_int
from everstep.stores.postgres.columns import read_text, text
from everstep.stores.postgres.connections import Connection, rows
from everstep.stores.postgres.schema import EVENT_LOCK


def keep_event(db: Connection, sql: dict[str, str], event: EventRow, now: int | None) -> list[str]:
    """Keep an event; returns the shapes of open waits for its name."""
    name = text(event.name)
    with db.transaction():
        db.execute(sql["lock_event"], (EVENT_LOCK, name))
        if event.expires_at is not None:
            span = span_to_int(event.expires_at - event.published_at)
            fields = [text(field) for field in event.fields], list(event.fields.values())
            db.execute(sql["drop_events"], (now, name, text(event.event_id)))
            db.execute(sql["keep_event"], (now, text(event.event_id), name, event.value, span, *fields))
        prefix, shapes = Wanted(event.name, {}).prefix, []
        after = prefix
        while (topic := read_text(rows(db, sql["next_topic"], (text(after),))[0][0] or "")).startswith(
            prefix
        ):
            wanted = Wanted.of(topic)
            assert wanted is not None
            shapes.append(wanted.shape)
            after = f"{prefix}{wanted.shape};"  # behind all of this shape
        return shapes
