"""A caller that is cancelled while its commit is under way hears how that ended, and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from everstep.errors import StoreUnavailable
from everstep.ports.store import Capabilities, CheckpointStore, Verdict
from everstep.runtime.drive.committer import Committer
from everstep.runtime.system import RealSystem


class Gated:
    """A store whose puts end when the test says so."""

    capabilities = Capabilities(durable=True, single_writer=True)

    def __init__(self) -> None:
        self.is_reached = asyncio.Event()
        self.outcome: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

    async def put(self, commits: list[Any]) -> list[Verdict]:
        self.is_reached.set()
        return [await self.outcome] * len(commits)


class Sized:
    """All that a committer looks at in a commit."""

    body = b""


@pytest.mark.parametrize("is_answered_first", [False, True])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_cancelled_caller_is_told_the_verdict(is_answered_first: bool, refuses: bool) -> None:
    asyncio.run(_cancel(is_answered_first, refuses))


async def _cancel(is_answered_first: bool, refuses: bool) -> None:
    store, notes = Gated(), list[Verdict]()
    committer = Committer(cast("CheckpointStore", store), None, RealSystem())
    caller = asyncio.ensure_future(committer.put(cast("Any", Sized()), notes.append))
    await store.is_reached.wait()

    def answer() -> None:
        if refuses:
            store.outcome.set_exception(StoreUnavailable("it is away."))
        else:
            store.outcome.set_result(Verdict.ACCEPTED)

    if is_answered_first:
        answer()  # the cancel arrives before the answer has gone its way through the loop
        caller.cancel()
    else:
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()  # its commit may still take the lease
        answer()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert notes == ([] if refuses else [Verdict.ACCEPTED])
