"""Signals: sending them to a run, and looking at its inbox. That needs no lease of the run."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from everstep.codec.notes import Message, close_signal, open_signal
from everstep.errors import BadRequest, EverstepError, InboxFull, RunEnded, ServiceMissing
from everstep.model.acts import Act
from everstep.model.bundles import moved_to
from everstep.model.enums import Status
from everstep.model.waits import LONGEST_NAME, MOST_UNTAKEN, Sending, SignalRow
from everstep.on_demand import on_demand
from everstep.ports.inbox import InboxStore
from everstep.ports.store import CheckpointStore, RunRow, no_such_run
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import as_json
from everstep.runtime.workers.lease_renewal import LeaseKeeper

if TYPE_CHECKING:
    from everstep.runtime.operations.acting import riding, written
else:
    riding = on_demand("everstep.runtime.operations.acting:riding")
    written = on_demand("everstep.runtime.operations.acting:written")

PAGE = 1000
_ENDED_AS = {Status.FAILED: "failed", Status.ABANDONED: "was abandoned"}


class LookedAt(msgspec.Struct, frozen=True, kw_only=True):
    """A signal in an inbox, as far as it can be read here."""

    number: int
    id: str
    name: str
    sent_at: datetime
    value: Any = None
    act: Act | None = None
    wait_id: str | None = None
    problem: str = ""
    """Why its value cannot be shown."""


class Inboxes:
    """The inboxes of a host's runs."""

    def __init__(self, services: Services, keeper: LeaseKeeper) -> None:
        self._services = services
        self._keeper = keeper

    async def send(
        self, run_id: str, name: str, value: Any, *, signal_id: str | None, act: Act | None
    ) -> tuple[str, bool]:
        """Send a signal to a run; returns its id, and whether it is new there."""
        services, store = self._services, check_has_inbox(self._services)
        message = Message(
            id=services.ids.new_id() if signal_id is None else checked_name(signal_id, "id"),
            name=checked_name(name),
            value=msgspec.Raw(as_json(value, "a signal")),
            act=act,
        )
        if (driven := self._keeper.drive_of(run_id)) is not None:
            driven.check_sent(name, value)
        row = await self._run(run_id)
        note = close_signal(services.codecs, run_id, message)
        sent_at = services.clock.now()
        signal = SignalRow(signal_id=message.id, name=name, value=note, sent_at=sent_at)
        send = partial(store.send, run_id, signal)
        audit = riding(act, run_id, name) if act is not None or services.notes_unnamed else None
        if audit is not None:
            send = partial(send, audit=audit)
        verdict = await patiently(services.clock, send)
        if audit is not None:
            written(audit, is_done=verdict is Sending.SENT)
        self._judge(row, verdict)
        drive = self._keeper.drive_of(run_id)
        if drive is not None:
            drive.nudge()
        await services.ring(run_id, row.flow_id)
        return message.id, verdict is Sending.SENT

    async def _run(self, run_id: str) -> RunRow:
        row = await self._services.store.run(check_run_id(run_id))
        if row is None:
            raise no_such_run(run_id)
        if (place := moved_to(row.needs_repair)) is not None:
            raise RunEnded(
                f"run {run_id!r} was moved to {place}, and what is sent here does not reach it.",
                fix="Send it there.",
            )
        return row

    def _judge(self, row: RunRow, verdict: Sending) -> None:
        run_id = row.run_id
        if verdict is Sending.UNKNOWN_RUN:
            raise no_such_run(run_id)
        if verdict is Sending.ENDED:
            raise ended(run_id, row.status)
        if verdict is Sending.FULL:
            raise InboxFull(
                f"the inbox of run {run_id!r} is full: {MOST_UNTAKEN:,} signals wait to be taken.",
                fix="Send again once the run has taken some.",
            )

    async def look(self, run_id: str, *, after: int, limit: int) -> list[LookedAt]:
        """Return the signals of a run that were not taken, by their numbers."""
        store = check_has_inbox(self._services)
        if await self._services.store.run(check_run_id(run_id)) is None:
            raise no_such_run(run_id)
        rows = await patiently(self._services.clock, partial(store.inbox, run_id, after=after, limit=limit))
        return [looked_at(self._services, run_id, row) for row in rows]


def looked_at(services: Services, run_id: str, row: SignalRow) -> LookedAt:
    """Return a signal that was not taken, as far as it can be read here."""
    known = LookedAt(
        number=row.number, id=row.signal_id, name=row.name, sent_at=row.sent_at, wait_id=row.wait_id
    )
    try:
        message = open_message(services, run_id, row)
    except EverstepError as error:
        return msgspec.structs.replace(known, problem=error.message)
    return msgspec.structs.replace(known, value=message.value, act=message.act)


def ended(run_id: str, status: Status) -> RunEnded:
    """Say that a run has ended and takes nothing more, and how to go on all the same."""
    if status in (Status.FAILED, Status.ABANDONED):
        return RunEnded(
            f"run {run_id!r} has ended, and takes no signal any more: it {_ENDED_AS[status]}.",
            fix=f"Resume it first: host.resume({run_id!r}, flow), or: everstep resume {run_id}",
        )
    return RunEnded(
        f"run {run_id!r} has ended, and takes no signal any more.",
        fix="Fork it from before its end, or start another run.",
    )


def open_message(services: Services, run_id: str, row: SignalRow) -> Message:
    """Return what a signal that was not taken says."""
    return open_signal(services.codecs, run_id, row.value or b"")


async def untaken(
    services: Services, run_id: str, name: str, after: int = 0
) -> list[tuple[SignalRow, Message]]:
    """Return the signals of a name that were not taken and settled no wait, by their numbers.

    An owner takes them by naming their ids in the put that has their values: `Journal.taken`.
    """
    store = check_has_inbox(services)
    found: list[SignalRow] = []
    while True:
        last = found[-1].number if found else after
        ask = partial(store.inbox, run_id, name=name, after=last, limit=1000)
        page = await patiently(services.clock, ask)
        found += page
        if len(page) < 1000:
            return [(row, open_message(services, run_id, row)) for row in found if row.wait_id is None]


async def copy_untaken(services: Services, run_id: str, fork_id: str, at: int) -> list[str]:
    """Give a fork that takes its run's place the signals that were not taken at its base, in order.

    Sent under the ids that they have, so it may be done again after a crash. Of one that was taken since, the
    inbox has no value any more: if a wait was settled with it, that has it. Returns the ids of all others.
    """
    if not services.store.capabilities.has_inbox:
        return []
    store, lost = check_has_inbox(services), []
    rows = await all_signals(services.store, run_id)
    most = MOST_UNTAKEN + len(rows)  # what waits have taken since counts there, too
    for row in rows:
        if row.taken_at is not None and row.taken_at <= at:
            continue
        said = row.value
        if said is None and row.wait_id is not None:
            wait = await services.store.wait(row.wait_id)
            said = wait.answer if wait is not None else None
        if said is None:
            lost.append(row.signal_id)
            continue
        message = open_signal(services.codecs, run_id, said)
        note = close_signal(services.codecs, fork_id, message)
        await store.send(fork_id, msgspec.structs.replace(row, value=note), most=most)
    return lost


async def all_signals(store: CheckpointStore, run_id: str) -> list[SignalRow]:
    """Return the signals of a run by their numbers, those that were taken too."""
    if not store.capabilities.has_inbox:
        return []
    found: list[SignalRow] = []
    for is_taken in (False, True):
        page: list[SignalRow] = []
        while not page or len(page) == PAGE:
            after = page[-1].number if page else 0
            ask = cast("InboxStore", store).inbox
            page = await ask(run_id, after=after, limit=PAGE, is_taken=is_taken)
            found += page
            if not page:
                break
    return sorted(found, key=lambda signal: signal.number)


def check_has_inbox(services: Services) -> InboxStore:
    """Return the store as one that keeps signals, or say that it keeps none."""
    if not services.store.capabilities.has_inbox:
        raise ServiceMissing(
            "this store keeps no signals.", fix="Use SQLite, PostgreSQL, Redis, files or a bucket."
        )
    return cast("InboxStore", services.store)


def _is_half(name: str) -> bool:
    """True of text with half a surrogate pair, which no store can keep."""
    return not name.isascii() and any("\ud800" <= sign <= "\udfff" for sign in name)


def checked_name(name: object, what: str = "name", of: str = "a signal") -> str:
    """Return the name or the id of a signal or an event, or say what is wrong with it."""
    if not isinstance(name, str) or not name or len(name) > LONGEST_NAME or _is_half(name):
        raise BadRequest(
            f"the {what} of {of} is {name!r:.60}.", fix=f"Give text of 1 to {LONGEST_NAME} characters."
        )
    return name
