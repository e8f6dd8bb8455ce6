"""The audit log as callers see it. HTTP and the command line ask for it by the same query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Protocol, cast

from msgspec import Meta, Struct

from everstep.client.queries import RunName
from everstep.errors import EverstepError, ServiceMissing
from everstep.model.acts import Act, AuditOutcome, AuditRow, Known
from everstep.model.durations import time_of
from everstep.model.shapes import Count, Instant
from everstep.ports.audit import AuditFilter
from everstep.runtime.operations.acting import CUTS, UNNAMED_ACTOR, audit_store, note_refused
from everstep.runtime.services import Services

When = str | datetime
_TIME = "-7d, 2026-01-31 or 2026-01-31T09:00:00Z"


class AuditInfo(Struct, frozen=True, kw_only=True):
    """One act: who did what, to which run, when, and what came of it."""

    number: Count
    """Rises from act to act: `after` goes on from it."""
    at: Instant
    act: str
    """By the name of the call, such as `cancel` or `answer`."""
    by: str
    how: Known
    """Whether the name is what the caller said, or a token's."""
    run_id: str | None
    about: str
    """What besides the run it was done to: the id of a wait, the name of a breaker, a signal or an event."""
    outcome: AuditOutcome
    code: str
    """Of the error with which it was refused."""
    comment: str

    @classmethod
    def of(cls, row: AuditRow) -> AuditInfo:
        shared = {name: getattr(row, name) for name in cls.__struct_fields__ if name != "at"}
        return cls(**shared, at=cast("datetime", row.at))


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Which acts to list; a test compares it with the signature of `host.fleet.audit`."""

    run_id: Annotated[RunName | None, Meta(description="Only of this run.")] = None
    by: Annotated[str | None, Meta(description="Only by this name.")] = None
    act: Annotated[str | None, Meta(description="Only of this kind, such as cancel or answer.")] = None
    since: Annotated[str | None, Meta(description=f"Only since this time: {_TIME}.")] = None
    until: Annotated[str | None, Meta(description=f"Only before this time: {_TIME}.")] = None
    limit: Annotated[int, Meta(ge=1, description="At most so many.")] = 100
    after: Annotated[
        Annotated[str, Meta(pattern="^([0-9]{1,18})$")] | None,
        Meta(description="The first ones behind the act with this number, not the newest."),
    ] = None


def check_times(asked: Mapping[str, Any], now: datetime) -> None:
    """Raise if a listing of acts asks for a time that is none."""
    for name in ("since", "until"):
        if asked.get(name) is not None:
            time_of(asked[name], now, name)


class Hosts(Protocol):
    """A host, as far as it is asked here."""

    _services: Services


@contextmanager
def cutting(cuts: Callable[[str], str]) -> Iterator[None]:
    """Have this cut tokens out of all that comes into the audit log meanwhile."""
    before = CUTS.set(cuts)
    try:
        yield
    finally:
        CUTS.reset(before)


def note_unnamed(host: Hosts) -> None:
    """Have a host keep rows of acts without a name where `unnamed` says what to call who does them."""
    host._services.notes_unnamed = True


@contextmanager
def unnamed(word: str) -> Iterator[None]:
    """Have the audit log call this who acts meanwhile and says no name; empty if such acts have no row."""
    before = UNNAMED_ACTOR.set(word)
    try:
        yield
    finally:
        UNNAMED_ACTOR.reset(before)


async def wait_of_token(host: Hosts, token: str) -> tuple[str, str]:
    """Return the run and the id of the wait that a token belongs to, also once it has answered."""
    row = await host._services.tokens.wait_of(token)
    return row.run_id, row.wait_id


async def note_refusal(
    host: Hosts, act: str, by: Act, error: EverstepError, *, run_id: str | None, about: str
) -> None:
    """Keep in the audit log that an act was refused before it began, such as for want of the role."""
    await note_refused(host._services, act, by, error, run_id, about)


async def read_audit(
    services: Services,
    *,
    since: When | None,
    until: When | None,
    limit: int,
    after: int | None,
    run_id: str | None,
    by: str | None,
    act: str | None,
) -> list[AuditInfo]:
    """Return rows of the audit log by their numbers."""
    if not services.store.capabilities.audits:
        raise ServiceMissing(
            "this store keeps no audit log.", fix="Use SQLite, PostgreSQL, Redis, files or a bucket."
        )
    now = services.time.now()
    wanted = AuditFilter(
        run_id=run_id,
        by=by,
        act=act,
        since=None if since is None else time_of(since, now, "since"),
        until=None if until is None else time_of(until, now, "until"),
        limit=limit,
        after=after,
    )
    return [AuditInfo.of(row) for row in await audit_store(services.store).audit(wanted)]
