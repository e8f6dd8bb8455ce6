"""Calls for operators and schedulers about waits: settle one otherwise than by its answer, and its token."""

from __future__ import annotations

from typing import Any

from everstep.client.parts import Parts
from everstep.client.views import WaitInfo
from everstep.model.acts import Act, act_of
from everstep.model.durations import Span, span_of
from everstep.model.waits import UNSAID, TokenConfig, WaitRow
from everstep.runtime.addresses import in_run
from everstep.runtime.after_run import note_act
from everstep.runtime.waits.answers import Answers


class WaitingCalls:
    """What an operator or a scheduler does about waits, besides answering them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._services, self._runs, self._answers = (
            parts.services,
            parts.runs.reader,
            Answers(parts.services, parts.runs.keeper),
        )

    async def fire(self, wait_id: str, *, by: str | None = None, comment: str | None = None) -> WaitInfo:
        """Settle a wait as its clock would: a timer fires, anything else is too late.

        This is what a scheduler of your own calls when a time has come.
        """
        act = act_of(by, comment)
        doing = self._answers.fire(wait_id, act)
        return self._parts.wait(await self._parts.audited("fire", act, doing))

    async def settle(
        self,
        run_id: str,
        step: str,
        *,
        done: Any = UNSAID,
        rerun: bool = False,
        skip: str = "",
        by: str | None = None,
        comment: str | None = None,
    ) -> WaitInfo:
        """Say what became of an effect that was begun and never reported, or of an undo that failed.

        `done` is the value that the node would have returned; with `rerun` it is called again, with its key.
        An undo that was done by hand is `done=None`; one that is to be left out is skipped with a reason.
        After A17/rag, `step` lies inside it.
        """
        act = act_of(by, comment)

        async def settle() -> WaitRow:
            name, part = await in_run(self._runs, run_id)
            path = step if part is None else part.within(step)
            return await self._answers.settle(name, path, done=done, rerun=rerun, skip=skip, act=act)

        return self._parts.wait(await self._parts.audited("settle", act, settle(), run_id))

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
        doing = self._answers.reissue(wait_id, config, act)
        row, token = await self._parts.audited("reissue", act, doing)
        await self._note("reissue", row, act)
        return self._parts.wait(row, token)

    async def revoke(
        self, token_or_id: str | None, *, by: str | None = None, comment: str | None = None
    ) -> None:
        """Make the token of a wait worthless; the wait can still be answered by its id."""
        act = act_of(by, comment)
        doing = self._answers.revoke(token_or_id, act)
        await self._note("revoke", await self._parts.audited("revoke", act, doing), act)

    async def _note(self, what: str, row: WaitRow, act: Act | None) -> None:
        """Note who let a token die. A token service may be a user's own, so the wait cannot say it."""
        if act is not None:
            await note_act(self._services, what, row.run_id, row.flow_id, act, f"wait {row.wait_id}")
