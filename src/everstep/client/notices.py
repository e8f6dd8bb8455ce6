"""Notices as callers see them. HTTP and the command line ask for them by the same query."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from everstep.client.queries import RunName
from everstep.model.commits import NoticeRow, NoticeState
from everstep.model.shapes import Count, Instant

State = Literal["pending", "sent", "dead"]


class NoticeInfo(Struct, frozen=True, kw_only=True):
    """One notice: what it tells of, whom, and what became of it."""

    id: str
    """The same wherever and however often it is sent."""
    number: Count
    """Rises from notice to notice: `before` goes on from it."""
    run_id: str
    notifier: str
    occasion: str
    """What it tells of, such as "failed" or "reminder"."""
    state: NoticeState
    at: Instant | None
    """When that was, as far as the store knows."""
    due_at: Instant | None
    """When it is tried next; none once it was sent, or is tried no more."""
    tries: Count
    sent_at: Instant | None
    wait_id: str | None
    """The wait that it tells of again."""
    error: str
    """Why the last try failed."""

    @classmethod
    def of(cls, row: NoticeRow) -> NoticeInfo:
        """Describe a row."""
        shared = {name: getattr(row, name) for name in cls.__struct_fields__ if name != "id"}
        return cls(id=row.notice_id, **shared)


class NoticesQuery(Struct, frozen=True, kw_only=True):
    """Which notices to list; a test compares it with the signature of `host.notices.find`."""

    state: Annotated[
        State | None, Meta(description="Only those that are to be sent, were sent, or are dead letters.")
    ] = None
    run_id: Annotated[RunName | None, Meta(description="Only of this run.")] = None
    limit: Annotated[int, Meta(ge=1, description="At most so many.")] = 100
    before: Annotated[
        Annotated[str, Meta(pattern="^([0-9]{1,18})$")] | None,
        Meta(description="Go on behind the notice with this number."),
    ] = None
