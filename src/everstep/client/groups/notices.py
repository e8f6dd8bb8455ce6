"""Calls about notices: what people and systems are told of runs, whether it was sent, and again."""

from __future__ import annotations

from everstep.client.parts import Parts, check_limit, check_number
from everstep.client.queries import NoticeStates
from everstep.client.views import NoticeInfo
from everstep.engine.notices.sending import asked_again
from everstep.errors import BadRequest, NoticeNotFound
from everstep.graph.tells import read_notice_id
from everstep.model.acts import Act, act_of
from everstep.model.commits import NoticeRow, NoticeState
from everstep.ports.notices import NoticeFilter
from everstep.runtime.operations.acting import one_more, riding, written
from everstep.runtime.waits.notices.send import SentNotices, send_due
from everstep.runtime.waits.notices.told import notice_store

_PAGE = 100


class NoticeCalls:
    """What becomes of notices."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services = parts.services

    async def find(
        self,
        *,
        state: NoticeStates | None = None,
        run_id: str | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> list[NoticeInfo]:
        """Return notices, the newest first: all, those of a run, or those that stand like this.

        With `before`, those behind the one with this number.
        """
        check_limit(limit)
        if before is not None:
            check_number(before)
        if state is not None and state not in list(NoticeState):
            raise BadRequest(f"state is {state!r:.40}.", fix="Use pending, sent or dead.")
        wanted = NoticeFilter(
            run_id=run_id, state=None if state is None else NoticeState(state), limit=limit, before=before
        )
        return [NoticeInfo.of(row) for row in await notice_store(self._services).notices(wanted)]

    async def again(self, notice_id: str, *, by: str | None = None, comment: str | None = None) -> NoticeInfo:
        """Have a notice sent once more, with the same id, whatever became of it: as soon as one looks.

        Who looks is `send`, and each worker that has its notifier.
        """
        act = act_of(by, comment)
        named = read_notice_id(notice_id) if isinstance(notice_id, str) else None
        run_id = None if named is None else named[0]
        doing = self._again(notice_id, named, act)
        return NoticeInfo.of(await self._parts.audited("resend", act, doing, run_id, str(notice_id)))

    async def _again(self, notice_id: str, named: tuple[str, int] | None, act: Act | None) -> NoticeRow:
        store = notice_store(self._services)
        while named is not None:
            run_id, number = named
            wanted = NoticeFilter(run_id=run_id, before=number + 1, limit=1)
            found = [row for row in await store.notices(wanted) if row.number == number]
            if not found:
                break
            row = asked_again(found[0], self._services.time.now())
            audit = riding(act, run_id, row.notice_id)
            said = {} if audit is None else {"audit": audit}
            if await store.change_notice(found[0], row, **said):
                if audit is not None:
                    written(audit)
                return row
        raise NoticeNotFound(f"there is no notice {notice_id!r:.80}.", fix="Look with: everstep notices")

    async def again_all(self, *, by: str | None = None, comment: str | None = None) -> int:
        """Have all dead letters sent once more, and return how many there were."""
        act = act_of(by, comment)
        return await self._parts.audited("resend", act, self._all_again(act))

    async def _all_again(self, act: Act | None) -> int:
        store, many = notice_store(self._services), 0
        wanted = NoticeFilter(state=NoticeState.DEAD, limit=_PAGE)
        while rows := await store.notices(wanted):
            for row in rows:
                one_more(act)
                await self._again(row.notice_id, read_notice_id(row.notice_id), act)
            many += len(rows)
            wanted = NoticeFilter(state=NoticeState.DEAD, limit=_PAGE, before=rows[-1].number)
        return many

    async def send(self, run_id: str | None = None) -> SentNotices:
        """Send what is due and for one of this host's notifiers, of a run or of all, and say what came of it.

        Workers do so by themselves; this is for programs that have none.
        """
        return await send_due(self._services, run_id)
