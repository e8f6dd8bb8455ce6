"""Who is told of a run, and of a wait again: decided when it begins, and kept with it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from everstep.engine.notices.rows import overdue_notices, told_of
from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.graph.author.wait_options import Wait, escalations_of
from everstep.graph.tells import Occasion
from everstep.model.commits import ASK_FLOW, SCHEDULE_FLOW, NoticeRow, Tag, Told
from everstep.model.durations import span_of
from everstep.ports.notices import NoticeStore
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.runtime.drive.chain_writer import Journal

_MICROSECOND = timedelta(microseconds=1)


def notice_store(services: Services) -> NoticeStore:
    """Return the store as one that keeps notices, or say that it does not."""
    if not services.store.capabilities.has_notices:
        raise BadRequest(
            "this store keeps no notices.", fix="Use a store that does: all of everstep's own do."
        )
    return cast("NoticeStore", services.store)


def told_at_admission(services: Services, flow: Flow, tags: Iterable[Tag]) -> tuple[Told, list[NoticeRow]]:
    """Return who is told of a run that is about to begin, and the notices that it brings."""
    tells, named = (*flow.notify, *services.notify), {tag.name: tag.value for tag in tags}
    if flow.name.startswith((SCHEDULE_FLOW, ASK_FLOW)):
        # A schedule's has what the host says: of its runs, and not of itself. A question is no one's run.
        tells = flow.notify
    told = told_of(tells, flow.name, named)
    if told:
        notice_store(services)
    return told, overdue_notices(tells, flow.name, named, services.time.now())


def tells_of_wait(services: Services, wait: Wait, wait_id: str, now: datetime) -> list[NoticeRow]:
    """Return the notices that a wait brings: reminders, and those for whom it is escalated to."""
    if wait.remind is None and not wait.escalate:
        return []
    notice_store(services)
    found: list[tuple[Occasion, timedelta, tuple[str, ...], bool]] = []
    if wait.remind is not None:
        if not wait.notified:
            raise BadRequest("a wait has no one to remind.", fix='Say who is told of it: notify="boss".')
        found.append((Occasion.REMINDER, span_of(wait.remind, "remind"), wait.notified, True))
    for span, aliases in escalations_of(wait.escalate, "escalate") if wait.escalate else ():
        found.append((Occasion.ESCALATION, span, aliases, False))
    rows = []
    for occasion, span, aliases, repeats in found:
        for alias in aliases:
            services.notifiers.of(alias)
            every = span // _MICROSECOND if repeats else 0
            at = now + span
            rows.append(
                NoticeRow(notifier=alias, occasion=occasion, wait_id=wait_id, at=at, due_at=at, every=every)
            )
    return rows


def tell_of_budget(journal: Journal) -> None:
    """Let people hear that all of a budget is spent: a person is about to be asked."""
    journal.tell(Occasion.BUDGET)


async def set_aside(services: Services, run_id: str, epoch: int, reason: str) -> None:
    """Mark a damaged run, and let people hear of it in the same act."""
    if services.store.capabilities.has_notices:
        telling = notice_store(services)
        await telling.set_aside(run_id, epoch=epoch, reason=reason, occasion=Occasion.NEEDS_REPAIR)
    else:
        await services.store.set_aside(run_id, epoch=epoch, reason=reason)
