"""Waiting for the end of a run that a node has started, and what it came to.

Who ends such a run looks for waits for that afterwards; who opens one looks at the run afterwards. So of
the two that come at once one sees the other, and a sweep finds what a crash left. To settle is a
compare-and-set: twice is harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec

from everstep.codec.notes import ANSWER, close_note
from everstep.errors import BadRequest, ChildFailed, EverstepError, StoreError
from everstep.graph.author.wait_options import Wait
from everstep.model.commits import ChildRun, StartedBy
from everstep.model.durations import Span
from everstep.model.enums import Status
from everstep.model.waits import (
    CHILD_KIND,
    SettledBy,
    WaitRow,
    WaitStatus,
    child_in,
    topic_of_child,
)
from everstep.ports.store import RunFilter, RunRow, WaitFilter
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.reader import RunReader
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.services import Services
from everstep.runtime.waits.answers import open_waits

log = logging.getLogger("everstep")
Nudge = Callable[[str], None]
"""Told of a run whose wait was settled."""
SWEPT = 200
"""So many waits a sweep looks at, of each flow."""
_FORKS = 1000


@dataclass(frozen=True, kw_only=True)
class ChildWait(Wait):
    """A wait for the end of a run that a node has started."""

    child: str = ""


def wait_for(path: str, child: object, timeout: Span | None) -> ChildWait:
    """Return what waits for the end of a run."""
    run_id = child.run_id if isinstance(child, ChildRun) else child
    if not isinstance(run_id, str):
        raise BadRequest(
            f"node {path!r} waits for the result of {child!r:.60}.", fix="Give what ctx.start returned."
        )
    about = {"run_id": check_run_id(run_id)}
    return ChildWait(kind=CHILD_KIND, child=run_id, timeout=timeout, context=about)


def topic_of(wait: Wait) -> str | None:
    """Return what a wait of this kind listens for; none if a node made the kind up."""
    return topic_of_child(wait.child) if isinstance(wait, ChildWait) else None


# -- settling ---------------------------------------------------------------------------------------------


class EndedRun(NamedTuple):
    """A run that has ended, and the node that started it."""

    run_id: str
    status: Status
    started_by: StartedBy


async def tell_starter(services: Services, row: EndedRun, nudge: Nudge) -> None:
    """Settle all waits for the end of a run that a node started, those of forks of its starter included.

    Never raises: what a store that is out of reach does not take is settled by a sweep.
    """
    topic, left = topic_of_child(row.run_id), [row.started_by.run]
    try:
        while left:
            run_id = left.pop()
            for wait in await open_waits(services.store, run_id):
                if wait.topic == topic and wait.status is WaitStatus.OPEN:
                    await _settle(services, wait, row.run_id, row.status, nudge)
            wanted = RunFilter(parent_run_id=run_id, limit=_FORKS)
            left += [fork.run_id for fork in await services.store.list(wanted)]
    except StoreError as error:
        log.warning("run %r has ended, and its starter was not told yet: %s", row.run_id, error)


async def look(services: Services, wait: WaitRow, nudge: Nudge) -> bool:
    """Settle a wait whose run has ended already; true if it was settled. Never raises."""
    child = child_in(wait.topic)
    if child is None:
        return False
    try:
        row = await services.store.run(child)
        if row is None or row.status.is_final or row.started_by is None:
            status = None if row is None or row.started_by is None else row.status
            return await _settle(services, wait, child, status, nudge)
    except StoreError as error:
        log.warning("run %r was not looked at, whose end %r waits for: %s", child, wait.run_id, error)
    return False


async def sweep(services: Services, flow: str, after: str | None, nudge: Nudge) -> tuple[str | None, int]:
    """Look at some waits of a flow; returns where to go on the next time, and how many were settled."""
    wanted = WaitFilter(flow_id=flow, kind=CHILD_KIND, status=WaitStatus.OPEN, limit=SWEPT, after=after)
    rows = await services.store.waits(wanted)
    settled = 0
    for row in rows:
        settled += await look(services, row, nudge)
    return (rows[-1].wait_id if len(rows) == SWEPT else None), settled


async def _settle(services: Services, wait: WaitRow, child: str, status: Status | None, nudge: Nudge) -> bool:
    said = msgspec.json.encode({"run_id": child, "status": status})
    answer = close_note(services.codecs, wait.wait_id, ANSWER, said)
    settle = partial(services.store.settle, wait.wait_id, by=SettledBy.ANSWER, answer=answer)
    is_ours, now = await patiently(services.clock, settle)
    if is_ours or (now is not None and now.status is WaitStatus.SETTLED):
        nudge(wait.run_id)
        await services.ring(wait.run_id, wait.flow_id)
    return is_ours


# -- taking it in -----------------------------------------------------------------------------------------


async def came_to(services: Services, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run came to, as a value that its waiter keeps: erasing the run takes nothing away."""
    run_id, status = said["run_id"], said["status"]
    found: dict[str, Any] = {"run_id": run_id, "status": status}
    row = None if status is None else await services.store.run(run_id)
    if row is None or row.status.value != status:
        return found  # it was erased, or goes on again
    try:
        outcome = await RunReader(services, _no_other).recorded(row)
        if outcome.error is not None:
            found["error"] = {"type": outcome.error.type, "message": outcome.error.message}
        if row.status is Status.COMPLETED:
            space, writers = outcome.space, outcome.state.plan.writers
            names = [n for n in space.areas.get("", {}) if n in writers and not space.is_missed(n, "")]
            found["outputs"] = {name: space.final(name, "") for name in names}
    except StoreError:
        raise
    except EverstepError as error:
        found["error"] = {"type": type(error).__name__, "message": error.message}
    return found


async def _no_other(services: Services, reader: RunReader, row: RunRow) -> int | None:
    return None


def result_of(settled: Mapping[str, Any], path: str) -> Any:
    """Return what a run wrote, by name, or raise `ChildFailed` if it did not complete."""
    error = failure_of(settled, path)
    if error is not None:
        raise error
    return settled["answer"]["outputs"]


def failure_of(settled: Mapping[str, Any], path: str) -> EverstepError | None:
    """Return what a node is told of a run that did not complete; none if it did.

    It counts for one attempt at the node: the next one waits again, for a run that may have been resumed.
    """
    said = settled["answer"]
    if not isinstance(said, Mapping) or "status" not in said or "outputs" in said:
        return None  # it is another kind of wait, which a node made up
    run_id, status = said["run_id"], said["status"]
    if status is None:
        return BadRequest(
            f"{path!r} waits for run {run_id!r}, which no node has started, or which was erased.",
            fix="Wait for what ctx.start returned.",
        )
    error = said.get("error")
    why = f": {error['type']}: {error['message']}" if error else "."
    return ChildFailed(
        f"run {run_id!r}, which {path!r} waits for, {_SAID.get(status, status)}{why}",
        fix=f"Look at it: everstep show {run_id}",
        run_id=run_id,
        status=status,
    )


_SAID = {
    "failed": "failed",
    "cancelled": "was cancelled",
    "abandoned": "was abandoned",
    "completed": "is gone",
}
