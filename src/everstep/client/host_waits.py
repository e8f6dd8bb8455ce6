"""The part of a host that is about waits: listing, settling, tokens."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from everstep.client.views import WaitInfo
from everstep.codec.notes import look_at_wait
from everstep.errors import BadRequest, StoreUnavailable
from everstep.model.acts import Act, act_of
from everstep.model.address import Part
from everstep.model.durations import Span, span_of
from everstep.model.waits import TokenConfig, WaitRow, WaitStatus
from everstep.ports.store import WaitFilter
from everstep.runtime.addresses import in_run
from everstep.runtime.outage.outbox import waits_here
from everstep.runtime.retention.erase import note_act
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import UNSAID, Answers


class HostWaits:
    """Calls on the waits of a store; none needs the lease of a run."""

    _services: Services
    _runs: Runs
    _answers: Answers

    def _wait(self, row: WaitRow, token: str | None = None) -> WaitInfo:
        token = token or self._services.tokens.shown(row)
        return WaitInfo(look_at_wait(self._services.codecs, row), token, self._services.link(token))

    async def waits(
        self,
        run_id: str | None = None,
        *,
        flow: str | None = None,
        kind: str | None = None,
        status: WaitStatus | Literal["open", "settled", "closed"] | None = WaitStatus.OPEN,
        limit: int = 100,
        after: str | None = None,
    ) -> list[WaitInfo]:
        """List waits, the oldest first; open ones unless told otherwise. `after` continues a listing.

        Those that wait on this machine for a store that cannot be reached come last. Of a part such as
        A17/rag, the waits of steps in it.
        """
        check_limit(limit)
        part = None
        if run_id is not None:
            run_id, part = await in_run(self._runs, run_id)
        try:
            wanted = WaitStatus(status) if status is not None else None
        except ValueError:
            known = ", ".join(WaitStatus)
            raise BadRequest(f"{status!r} is not a status of waits.", fix=f"Use one of {known}.") from None
        here = [
            row
            for row in waits_here(self._services)
            if run_id in (None, row.run_id) and flow in (None, row.flow_id) and kind in (None, row.kind)
            if part is None or part.holds(row.path, row.visit)
        ]
        if after in [row.wait_id for row in here]:
            return []  # they were all on the last page
        try:
            asked = WaitFilter(
                run_id=run_id, flow_id=flow, kind=kind, status=wanted, limit=limit, after=after
            )
            rows = await self._rows(asked, part)
        except StoreUnavailable:
            if not here:
                raise
            rows = []
        if len(rows) < limit and wanted in (None, WaitStatus.OPEN):
            there = {row.wait_id for row in rows}
            rows += [row for row in here if row.wait_id not in there]
        return [self._wait(row) for row in rows]

    async def _rows(self, asked: WaitFilter, part: Part | None) -> list[WaitRow]:
        """Return waits as the store has them; of a part, page by page until there are enough."""
        rows = await self._services.store.waits(asked)
        if part is None:
            return rows
        found = [row for row in rows if part.holds(row.path, row.visit)]
        while len(rows) == asked.limit and len(found) < asked.limit:
            asked = msgspec.structs.replace(asked, after=rows[-1].wait_id)
            rows = await self._services.store.waits(asked)
            found += [row for row in rows if part.holds(row.path, row.visit)]
        return found[: asked.limit]

    async def wait(self, token_or_id: str | None) -> WaitInfo:
        """Return one wait, by its id or its token. Looking uses nothing up."""
        return self._wait((await self._answers.find(token_or_id, brings=False)).row)

    async def answer(
        self,
        token_or_id: str | None,
        answer: Any = UNSAID,
        *,
        by: str | None = None,
        comment: str | None = None,
    ) -> WaitInfo:
        """Settle a wait with an answer, once. The run goes on when a worker, or `resume`, drives it.

        An answer of the wrong shape is refused and uses nothing up; so is a second one, and one that JSON
        would change without being asked to. Only a timer goes on without one.
        """
        return self._wait(await self._answers.answer(token_or_id, answer, act_of(by, comment)))

    async def fire(self, wait_id: str, *, by: str | None = None, comment: str | None = None) -> WaitInfo:
        """Settle a wait as its clock would: a timer fires, anything else is too late.

        This is what a scheduler of your own calls when a time has come.
        """
        return self._wait(await self._answers.fire(wait_id, act_of(by, comment)))

    async def settle(
        self,
        run_id: str,
        step: str,
        *,
        done: Any = UNSAID,
        rerun: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> WaitInfo:
        """Say what became of an effect that was begun and never reported, for a run that stopped for it.

        `done` is the value that the node would have returned; with `rerun` it is called again, with its key.
        After A17/rag, `step` lies inside it.
        """
        run_id, part = await in_run(self._runs, run_id)
        step = step if part is None else part.within(step)
        act = act_of(by, comment)
        return self._wait(await self._answers.settle(run_id, step, done=done, rerun=rerun, act=act))

    async def reissue(
        self,
        wait_id: str,
        *,
        ttl: Span | None = None,
        single_use: bool = True,
        metadata: dict[str, Any] | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> WaitInfo:
        """Make a new token for an open wait and return it with the wait; the old one dies.

        `metadata` is JSON to note of the token, such as for whom it is; `token_metadata` shows it.
        """
        act = act_of(by, comment)
        span = None if ttl is None else span_of(ttl, "ttl")
        config = TokenConfig(ttl=span, single_use=single_use, metadata=metadata)
        row, token = await self._answers.reissue(wait_id, config)
        await self._note("reissue", row, act)
        return self._wait(row, token)

    async def revoke(
        self, token_or_id: str | None, *, by: str | None = None, comment: str | None = None
    ) -> None:
        """Make the token of a wait worthless; the wait stays open for those with access to the store."""
        act = act_of(by, comment)
        await self._note("revoke", await self._answers.revoke(token_or_id), act)

    async def _note(self, what: str, row: WaitRow, act: Act | None) -> None:
        """Note who let a token die. A token service may be a user's own, so the wait cannot say it."""
        if act is not None:
            await note_act(self._services, what, row.run_id, row.flow_id, act, f"wait {row.wait_id}")


def check_limit(limit: int) -> None:
    """Raise unless a listing may be that long."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise BadRequest(f"limit is {limit}.", fix="Give at least 1.")
