"""Acts of the audit log under way: a row is made where a named act begins, and written with what does it.

What writes for an act asks `riding` for its row, hands it to the store with the write, and says by
`written` that it went through. An act that wrote nothing, or was refused, has its row written by itself when
it is over.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import msgspec

from everstep.errors import EverstepError, StoreError
from everstep.model.acts import Act, AuditOutcome, AuditRow
from everstep.ports.audit import AuditStore
from everstep.ports.store import CheckpointStore
from everstep.runtime.services import Services
from everstep.runtime.waits.tokens import looks_like_token

T = TypeVar("T")
log = logging.getLogger("everstep")


class Acting:
    """A named act under way."""

    def __init__(self, services: Services, row: AuditRow, by: Act) -> None:
        self._services = services
        self.row = row
        self.by = by
        self.is_written = False

    def anew(self) -> None:
        """Go on with another row, as the act is about one more run."""
        if self.is_written:
            self.row = msgspec.structs.replace(self.row, audit_id=self._services.ids.new_id())
            self.is_written = False


_acting: ContextVar[Acting | None] = ContextVar("everstep_acting", default=None)


async def audited(
    services: Services, act: str, by: Act, doing: Awaitable[T], run_id: str | None = None, about: str = ""
) -> T:
    """Do something, and see to it that the audit log has a row of it: done, or refused and why.

    Where no name is given, or the store keeps no audit log, it is just done.
    """
    row = audit_row(services, act, by, run_id, about)
    if row is None:
        return await doing
    acting = Acting(services, row, by)
    before = _acting.set(acting)
    try:
        result = await doing
    except EverstepError as error:
        if not acting.is_written:
            await _note_refusal(services, acting.row, error)
        raise
    finally:
        _acting.reset(before)
    if not acting.is_written:
        await audit_store(services.store).note_audit(acting.row)
    return result


async def note_refused(
    services: Services, act: str, by: Act, error: EverstepError, run_id: str | None = None
) -> None:
    """Note that an act was refused before it began, such as for want of the role."""
    row = audit_row(services, act, by, run_id)
    if row is not None:
        await _note_refusal(services, row, error)


async def _note_refusal(services: Services, row: AuditRow, error: EverstepError) -> None:
    of_run = error.details.get("run_id")
    run_id = row.run_id or (of_run if isinstance(of_run, str) else None)
    told = {"outcome": AuditOutcome.REFUSED, "code": error.code, "run_id": run_id}
    try:
        await audit_store(services.store).note_audit(msgspec.structs.replace(row, **told))
    except StoreError as missed:  # the caller is to hear of the first error
        log.warning("refusal not in the audit log: %s by %r: %s", row.act, row.by, missed)


def audit_row(
    services: Services,
    act: str,
    by: Act,
    run_id: str | None = None,
    about: str = "",
    store: CheckpointStore | None = None,
) -> AuditRow | None:
    """Return a row that says who does something; none without a name, or without an audit log.

    A run may be named by an address inside it; where it is named by a token, the row does not say so. Where
    values are encrypted, a comment is kept only with what was done, where it is encrypted, too.
    """
    if not by.by or not (store or services.store).capabilities.audits:
        return None
    if isinstance(run_id, str):
        run_id = None if looks_like_token(run_id) else run_id.partition("/")[0].partition("@")[0]
    return AuditRow(
        audit_id=services.ids.new_id(),
        act=act,
        by=by.by,
        run_id=run_id if isinstance(run_id, str) else None,
        about=about,
        how=by.how,
        comment="" if services.codecs.encrypts else by.comment,
    )


def audit_store(store: CheckpointStore) -> AuditStore:
    """Return the store as one with an audit log."""
    return cast(AuditStore, store)


def concerning(by: Act | None, run_id: str, about: str = "") -> None:
    """Say which run the act under way turns out to be about, also if it is refused."""
    acting = _acting.get()
    if acting is not None and acting.by == by:
        acting.row = msgspec.structs.replace(acting.row, run_id=run_id, about=about or acting.row.about)


def riding(by: Act | None, run_id: str | None, about: str = "") -> AuditRow | None:
    """Return the row of the act under way, to be written with what does it; none if it is there already.

    What is done for another reason meanwhile, such as by a node that is driven, has another name or none.
    """
    acting = _acting.get()
    if acting is None or acting.by != by or acting.is_written:
        return None
    return msgspec.structs.replace(acting.row, run_id=run_id, about=about or acting.row.about)


@contextmanager
def first() -> Iterator[None]:
    """Let something be written that only makes the act under way possible: no row rides with that."""
    before = _acting.set(None)
    try:
        yield
    finally:
        _acting.reset(before)


def one_more(by: Act | None) -> None:
    """Begin another row if there is one already: the act is about one more run."""
    acting = _acting.get()
    if acting is not None and acting.by == by:
        acting.anew()


async def note_one(
    services: Services, by: Act | None, run_id: str, about: str = "", *, refused: str | None = None
) -> None:
    """Write a row by itself for one run of the act under way: done, or refused with the code of an error."""
    one_more(by)
    row = riding(by, run_id, about)
    if row is not None and refused is not None:
        row = msgspec.structs.replace(row, outcome=AuditOutcome.REFUSED, code=refused)
    if row is not None:
        await audit_store(services.store).note_audit(row)
        written(row)


def written(row: AuditRow | None, *, is_done: object = True) -> None:
    """Say that a row went through with what it rode with."""
    acting = _acting.get()
    if row is not None and is_done and acting is not None and acting.row.audit_id == row.audit_id:
        acting.is_written = True


def told(row: AuditRow | None) -> dict[str, Any]:
    """Return a row as calls of a store take it: one that keeps no audit log takes nothing of the kind."""
    return {} if row is None else {"audit": row}
