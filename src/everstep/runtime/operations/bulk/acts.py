"""Doing one act to one run: only while it stands as it was looked at, and only once. Apart from `flow`.

Each act has a row of the audit log, written with it in one go, whose id follows from the run that acts and
the run that is acted on. So a repeat after a crash finds that it was done, whatever became of the run since.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from everstep.engine.query.judge import matches
from everstep.engine.query.tree import comparisons_of
from everstep.errors import BadRequest, EverstepError, HostClosed, LeaseConflict, RunNotFound, StoreError
from everstep.model.acts import AuditOutcome, AuditRow, with_act
from everstep.model.commits import NO_LABELS, Tag
from everstep.model.durability import Durability
from everstep.ports.audit import AuditFilter
from everstep.ports.store import RunRow
from everstep.runtime.after_run import note_act, retaining_store
from everstep.runtime.operations.acting import (
    Acting,
    audit_row,
    audit_store,
    audited_as,
    riding,
    told,
    written,
)
from everstep.runtime.operations.bulk.order import BulkOrder
from everstep.runtime.operations.bulk.verdict import (
    CHANGED,
    DO,
    GONE,
    BulkAct,
    BulkOutcome,
    BulkVerdict,
    judge,
)
from everstep.runtime.operations.find import facts_of
from everstep.runtime.operations.labels import change_tags, labels_of_runs
from everstep.runtime.retention.erase import erase_at
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.travel.fork import Edits, fork

AT_ONCE = 8
"""So many runs are acted on at a time, as a store on another machine takes round trips for each."""
TRIES = 10
"""How often an act is tried on a run that goes on at the very moment."""
_PAGE = 100
_LEAVE_HEAD = frozenset(BulkAct) - {BulkAct.CANCEL, BulkAct.RESUME, BulkAct.RETRY, BulkAct.ERASE}
"""After these a run stands where it stood. Whether they were done is not seen from that: others may have
undone them since."""


_ONCE = (_LEAVE_HEAD - {BulkAct.FORK}) | {BulkAct.CANCEL, BulkAct.RETRY}
"""What the store does only while its row is not there: an owner that was stopped meanwhile does none late."""


class _Moved(Exception):
    """The run has gone on since it was looked at; nothing was done."""


def id_of(*parts: str) -> str:
    """Return the id that these always have together, in the form of any other."""
    text = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:32]}"


class RunActs:
    """Does what was ordered, for the run of one id."""

    def __init__(self, services: Services, runs: Runs, order: BulkOrder, bulk_id: str) -> None:
        self._services, self._runs = services, runs
        self._order = order
        self._query = order.query()
        self._fields = {one.field for one in comparisons_of(self._query)}
        self._bulk_id = bulk_id
        self._by = order.act_of(bulk_id)

    async def on(self, page: Sequence[tuple[str, int]]) -> list[BulkVerdict]:
        """Act on runs, each given with the checkpoint that it was looked at."""
        found: list[BulkVerdict] = []
        size = AT_ONCE if self._order.per_second is None else 1
        for first in range(0, len(page), size):
            some = page[first : first + size]
            acts = (self._on_one(run_id, head) for run_id, head in some)
            # All are waited for, so that none goes on while the page is done again.
            for one in await asyncio.gather(*acts, return_exceptions=True):
                if isinstance(one, BaseException):
                    raise one
                found.append(one)
        return found

    async def _on_one(self, run_id: str, head: int) -> BulkVerdict:
        is_looked_at = False
        for _ in range(TRIES):
            row = await self._services.store.run(run_id)
            has_changed = row is None or row.checkpoints != head or is_looked_at
            if has_changed or self._order.act in _LEAVE_HEAD:
                before = await self._said(run_id)
                if before is not None:
                    return before
            if row is None:
                return GONE
            if row.checkpoints != head and not await self._is_asked_for(row):
                return await self._leave(run_id)
            verdict = await self.judge(row)
            if verdict is not DO:
                return await self._not_to_do(row, verdict)
            await self._pace()
            try:
                return await self._do(row)
            except _Moved:
                is_looked_at = True
        return await self._leave(run_id)

    async def judge(self, row: RunRow) -> BulkVerdict:
        """Say what is to be done to a run as it stands."""
        tags: Sequence[Tag] = ()
        if self._order.act is BulkAct.TAG:
            tags = (await labels_of_runs(self._services, [row])).get(row.run_id, NO_LABELS).tags
        return judge(self._order.act, row, tags, self._order.change, self._order.at)

    async def _not_to_do(self, row: RunRow, verdict: BulkVerdict) -> BulkVerdict:
        """Say what came of a run to which nothing is left to do: it was done before, or others did."""
        before = await self._said(row.run_id)
        if before is DO and row.stop_request is not None:
            await self._runs.end_if_asked(row)  # who asked it to stop was killed before it ended it
        if before is not None:
            return before
        if verdict.outcome is BulkOutcome.REFUSED:
            return await self._refuse(row, verdict)
        return await self._leave(row.run_id)

    async def _leave(self, run_id: str) -> BulkVerdict:
        """Skip a run that has changed, for good: it is not acted on by who was to do it and is late."""
        return await self._close(run_id, CHANGED) if self._order.act in _ONCE else CHANGED

    async def _close(self, run_id: str, verdict: BulkVerdict) -> BulkVerdict:
        """Say in the audit log that nothing was done to a run, unless it was said first what was."""
        said = {"outcome": AuditOutcome.REFUSED, "code": verdict.why}
        await audit_store(self._services.store).note_audit(msgspec.structs.replace(self._row(run_id), **said))
        return await self._said(run_id) or verdict

    async def _is_asked_for(self, row: RunRow) -> bool:
        [facts] = await facts_of(self._services, self._runs.reader, [row], self._fields)
        return matches(self._query, facts)

    async def _said(self, run_id: str) -> BulkVerdict | None:
        """Return what came of a run, if that is known already."""
        if self._order.act is BulkAct.FORK:
            return None if await self._services.store.run(self._fork_id(run_id)) is None else DO
        wanted = AuditFilter(run_id=run_id, act=self._order.act, limit=_PAGE, after=0)
        while True:
            page = await audit_store(self._services.store).audit(wanted)
            for row in page:
                if row.audit_id == self._audit_id(run_id):
                    return _verdict_of(row)
            if len(page) < _PAGE:
                return None
            wanted = msgspec.structs.replace(wanted, after=page[-1].number)

    def _audit_id(self, run_id: str, code: str = "") -> str:
        return id_of("audit", self._bulk_id, self._order.act, run_id, code)

    def _fork_id(self, run_id: str) -> str:
        return id_of("fork", self._bulk_id, run_id)

    def _row(self, run_id: str) -> AuditRow:
        row = audit_row(self._services, self._order.act, self._by, run_id)
        assert row is not None  # a store without an audit log is refused before
        is_once = self._order.act in _ONCE
        return msgspec.structs.replace(row, audit_id=self._audit_id(run_id), once=is_once)

    async def _refuse(self, row: RunRow, verdict: BulkVerdict) -> BulkVerdict:
        if self._order.act in _ONCE:
            return await self._close(row.run_id, verdict)
        code = verdict.why
        audit = msgspec.structs.replace(
            self._row(row.run_id),
            audit_id=self._audit_id(row.run_id, code),
            outcome=AuditOutcome.REFUSED,
            code=code,
        )
        await audit_store(self._services.store).note_audit(audit)
        return verdict

    async def _pace(self) -> None:
        if self._order.per_second is not None:
            clock = self._services.clock
            await clock.sleep_until(clock.now() + timedelta(seconds=1 / self._order.per_second))

    async def _do(self, row: RunRow) -> BulkVerdict:
        acting = Acting(self._services, self._row(row.run_id), self._by)
        try:
            await audited_as(acting, self._done(row))
        except (StoreError, HostClosed):
            raise  # of the store and not of the run: the page is done again
        except RunNotFound:
            return GONE
        except EverstepError as error:
            verdict = BulkVerdict(BulkOutcome.REFUSED, error.code)
            return verdict if acting.is_written else await self._refuse(row, verdict)
        return DO

    async def _done(self, row: RunRow) -> None:
        """Do it, or raise `_Moved` with nothing done if the run has gone on."""
        try:
            is_done = await self._act(row)
        except LeaseConflict:
            if self._order.act is BulkAct.ERASE:
                raise
            is_done = False  # another reopens it at this moment
        if not is_done:
            raise _Moved

    async def _act(self, row: RunRow) -> bool:
        services, order = self._services, self._order
        match order.act:
            case BulkAct.CANCEL:
                return await self._runs.cancel_at(row, self._by)
            case BulkAct.RETRY:
                return await self._runs.resting.reopen(row, self._by)
            case BulkAct.RESUME:
                lease = await self._runs.resting.claim(row.run_id, Durability(), waits=False)
                await self._runs.resting.release(lease)
                return True
            case BulkAct.FORK:
                return await self._fork(row)
            case BulkAct.PAUSE:
                return await self._runs.pauses.pause_at(row, self._by)
            case BulkAct.UNPAUSE:
                return await self._runs.pauses.unpause_at(row, self._by)
            case BulkAct.TAG:
                return await change_tags(
                    services, row.run_id, order.add, order.remove, self._by, head=row.checkpoints
                )
            case BulkAct.PIN | BulkAct.UNPIN:
                return await self._pin(row)
            case BulkAct.ERASE:
                return await erase_at(services, row, self._by) is not None

    async def _fork(self, row: RunRow) -> bool:
        order = self._order
        edits = Edits(order.inputs, order.state, order.channel)
        at = row.checkpoints if order.at is None else order.at
        try:
            await fork(
                self._services,
                self._runs.reader,
                row.run_id,
                at,
                edits,
                fork_id=self._fork_id(row.run_id),
                keep_keys=order.keep_keys,
                act=self._by,
            )
        except BadRequest:
            if await self._said(row.run_id) is None:
                raise
            written(riding(self._by, self._fork_id(row.run_id)))  # the reply to it was lost
        return True

    async def _pin(self, row: RunRow) -> bool:
        reason = with_act(self._order.reason, self._by) if self._order.act is BulkAct.PIN else None
        audit = riding(self._by, row.run_id)
        store = retaining_store(self._services)
        is_done = await store.pin(row.run_id, reason, head=row.checkpoints, **told(audit))
        written(audit, is_done=is_done)
        if is_done and reason is None:
            await note_act(self._services, "unpin", row.run_id, row.flow_id, self._by)
        return is_done


def _verdict_of(row: AuditRow) -> BulkVerdict:
    """Return what a row says came of a run."""
    if row.outcome is AuditOutcome.DONE:
        return DO
    return CHANGED if row.code == CHANGED.why else BulkVerdict(BulkOutcome.REFUSED, row.code)
