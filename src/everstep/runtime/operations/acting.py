"""Acts of the audit log under way: a row is made where a named act begins, and written with what does it.

What writes for an act asks `riding` for its row, hands it to the store with the write, and says by
`written` that it went through. An act that wrote nothing, or was refused, has its row written by itself when
it is over.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import msgspec

from everstep.errors import EverstepError, StoreError
from everstep.model.acts import LONGEST_NAME, Act, AuditOutcome, AuditRow, Known, without_tokens
from everstep.ports.audit import AuditStore
from everstep.ports.store import CheckpointStore
from everstep.runtime.run_ids import RUN_ID
from everstep.runtime.services import Services
from everstep.runtime.waits.tokens import looks_like_token

T = TypeVar("T")
log = logging.getLogger("everstep")


class Acting:
    """A named act under way."""

    def __init__(self, services: Services, row: AuditRow, by: Act | None) -> None:
        self.services = services
        self.row = row
        self.by = by
        self.is_written = False

    def anew(self) -> None:
        """Go on with another row, as the act is about one more run."""
        if self.is_written:
            self.row = msgspec.structs.replace(self.row, audit_id=self.services.ids.new_id())
            self.is_written = False


CUTS: ContextVar[Callable[[str], str]] = ContextVar("everstep_cuts", default=without_tokens)
"""What cuts tokens out of a text: a service knows more of them than those that look like one."""
UNNAMED_ACTOR: ContextVar[str] = ContextVar("everstep_unnamed_actor", default="")
"""What the audit log calls who acts here and says no name; empty where such an act has no row."""
_acting: ContextVar[Acting | None] = ContextVar("everstep_acting", default=None)


async def audited(
    services: Services,
    act: str,
    by: Act | None,
    doing: Awaitable[T],
    run_id: str | None = None,
    about: str = "",
) -> T:
    """Do something, and see to it that the audit log has a row of it: done, or refused and why.

    Where no name is given and nothing else is known of who acts, or the store keeps no audit log, it is just
    done. So is what nodes do in no name while the act is under way.
    """
    who = named_or_not(by) if _acting.get() is None else by
    row = None if who is None else audit_row(services, act, who, run_id, about)
    if row is None:
        return await doing
    acting = Acting(services, row, by)
    try:
        return await audited_as(acting, doing)
    except EverstepError as error:
        if not acting.is_written:
            await _note_refusal(services, acting.row, error)
        error.is_audited = True
        raise


async def audited_as(acting: Acting, doing: Awaitable[T]) -> T:
    """Do something, with this row in the audit log once it is done; if it fails nothing is noted."""
    before = _acting.set(acting)
    try:
        result = await doing
    finally:
        _acting.reset(before)
    if not acting.is_written:
        await audit_store(acting.services.store).note_audit(acting.row)
    return result


async def note_refused(
    services: Services,
    act: str,
    by: Act,
    error: EverstepError,
    run_id: str | None = None,
    about: str = "",
) -> None:
    """Note that an act was refused before it began, such as for want of the role, unless that was noted."""
    row = None if error.is_audited else audit_row(services, act, by, run_id, about)
    if row is not None:
        await _note_refusal(services, row, error)
        error.is_audited = True


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
    return AuditRow(
        audit_id=services.ids.new_id(),
        act=act,
        by=CUTS.get()(by.by),
        run_id=_named_run(run_id),
        about=_named(about),
        how=by.how,
        comment="" if services.codecs.encrypts else CUTS.get()(by.comment),
    )


def named_or_not(by: Act | None) -> Act | None:
    """Return who acts, as the audit log says it; none if nothing is known of that."""
    word = UNNAMED_ACTOR.get()
    if not word or (by is not None and by.by):
        return by
    return Act(word, "" if by is None else by.comment, Known.UNNAMED)


def as_said(
    services: Services, row: AuditRow | None, act: str, by: Act, run_id: str, about: str
) -> AuditRow | None:
    """Return the row of an act whose answer says itself who gives it."""
    said = audit_row(services, act, by, run_id, about)
    if row is None or said is None:
        return said or row
    return msgspec.structs.replace(row, by=said.by, how=said.how, comment=said.comment)


def _named_run(said: object) -> str | None:
    """Return the run that a caller names; none if no run can be called that."""
    if not isinstance(said, str) or looks_like_token(said) or CUTS.get()(said) != said:
        return None
    name = said.partition("/")[0].partition("@")[0]
    return name if RUN_ID.fullmatch(name) else None


def _named(said: object) -> str:
    """Return what a caller names as every store can keep it: it is in the log also if that was refused."""
    text = CUTS.get()(said if isinstance(said, str) else repr(said))
    return text[:LONGEST_NAME].encode("utf-8", "backslashreplace").decode()


def audit_store(store: CheckpointStore) -> AuditStore:
    """Return the store as one with an audit log."""
    return cast(AuditStore, store)


def concerning(by: Act | None, run_id: str | None, about: str = "") -> None:
    """Say which run the act under way turns out to be about, also if it is refused."""
    acting = _acting.get()
    if acting is not None and _is_of(acting, by, run_id):
        acting.row = msgspec.structs.replace(
            acting.row, run_id=run_id, about=_named(about) or acting.row.about
        )


def riding(by: Act | None, run_id: str | None, about: str = "", *, of: str | None = None) -> AuditRow | None:
    """Return the row of the act under way, to be written with what does it; none if it is there already.

    What is done for another reason meanwhile, such as by a node that is driven, has another name, or is done
    to another run; `of` says which run a new one is made of.
    """
    acting = _acting.get()
    if acting is None or acting.is_written or not _is_of(acting, by, of or run_id):
        return None
    return msgspec.structs.replace(acting.row, run_id=run_id, about=_named(about) or acting.row.about)


def _is_of(acting: Acting, by: Act | None, run_id: str | None) -> bool:
    """Say whether something is done for the act under way; what has no name is told apart by its run."""
    if by is not None or run_id is None or acting.row.run_id is None:
        return acting.by == by
    return acting.by is None and acting.row.run_id == run_id


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
