"""The flow that acts on many runs: a page of them is found and recorded, then acted on, then the next.

What a page says is in the chain before anything is done, so who takes over acts on the same runs, each only
if it is where the page saw it. Pages go from the newest run that was there before this one to the oldest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any

import msgspec

from everstep.errors import StoreError
from everstep.graph.author.context import AsyncContext
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import END, ifelse, node
from everstep.model.commits import BULK_FLOW
from everstep.model.retry import Retry
from everstep.runtime.operations.bulk.acts import RunActs
from everstep.runtime.operations.bulk.order import BulkOrder, order_of
from everstep.runtime.operations.bulk.pages import count, page_of, verdicts
from everstep.runtime.operations.bulk.verdict import BulkOutcome, BulkVerdict
from everstep.runtime.reader import RunReader
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services

PAGE = 50
"""Runs of a page: so many are looked at again after a process was killed."""
_SECONDS = 5
"""A page is acted on in about so many seconds, if there is a limit to the speed."""


class StoreAway(ConnectionError):
    """The store was in trouble while runs were found or acted on: that is done again.

    Errors of everstep's own end a node at once, as they would come again.
    """


@contextmanager
def again_if_store_is_away() -> Iterator[None]:
    """Let the node that does this in it do it again if the store is in trouble."""
    try:
        yield
    except StoreError as error:
        raise StoreAway(str(error)) from error


PATIENCE = Retry(1000, first=1.0, most=30.0, on=StoreAway)
STEPS = 1 << 40


class BulkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run that acts on many has come. What it does at this moment is not counted yet."""

    run_id: str
    status: str
    act: str
    where: str
    flows: list[str] | None
    """Only runs of these flows are meant, as who ordered it sees no others; none for all."""
    tags: list[str] | None
    """Only runs with one of these tags, likewise."""
    done: int
    skipped: dict[str, int]
    """By why: `ended`, `not_failed`, `nothing_to_do`, `changed`, `gone`."""
    refused: dict[str, int]
    """By the code of the error."""
    left: int | None
    """Runs still to be looked at, of those that were asked for when it began; none if that is not known."""


def bulk_flow(services: Services, runs: Runs) -> Flow:
    """Return the flow, whose nodes act through these services."""

    @node(output="batch", effects="read_only", retry=PATIENCE)
    async def find_runs(
        order: dict[str, Any], ctx: AsyncContext, progress: dict[str, Any] | None = None
    ) -> Any:
        with again_if_store_is_away():
            return await _page(services, runs.reader, order_of(order), ctx.run_id, progress)

    @node(output="progress", effects="effectful", retry=PATIENCE)
    async def act_on_runs(order: dict[str, Any], batch: dict[str, Any], ctx: AsyncContext) -> Any:
        acts = RunActs(services, runs, order_of(order), ctx.run_id)
        with again_if_store_is_away():
            found = await acts.on([(run_id, head) for run_id, head in batch["runs"]])
        return _added(batch, found)

    @ifelse(when_true="find_runs", when_false=END)
    def goes_on(order: dict[str, Any], progress: dict[str, Any]) -> bool:
        at_most = order_of(order).at_most
        return progress["next"] is not None and (at_most is None or progress["done"] < at_most)

    return Flow(
        BULK_FLOW, [find_runs, act_on_runs, goes_on], entry="find_runs", max_steps=STEPS, max_visits=STEPS
    )


async def _page(
    services: Services,
    reader: RunReader,
    order: BulkOrder,
    bulk_id: str,
    progress: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Find the next runs, and what of them is skipped at once."""
    before = progress["next"] if progress else bulk_id
    total = await count(services, reader, order, bulk_id) if not progress else None
    found = await page_of(services, reader, order, before=before, limit=_limit(order, progress))
    skipped: dict[str, int] = {}
    page: list[list[Any]] = []
    for row, verdict in zip(found.rows, await verdicts(services, order, found.rows), strict=True):
        if verdict.outcome is BulkOutcome.SKIPPED:
            skipped[verdict.why] = skipped.get(verdict.why, 0) + 1
        else:
            page.append([row.run_id, row.checkpoints])
    so_far = progress or {"done": 0, "skipped": {}, "refused": {}, "looked_at": 0, "total": total}
    return {"runs": page, "skipped": skipped, "next": found.following, "so_far": so_far}


def _limit(order: BulkOrder, progress: Mapping[str, Any] | None) -> int:
    most = PAGE if order.per_second is None else min(PAGE, ceil(order.per_second * _SECONDS))
    left = most if order.at_most is None else order.at_most - (progress or {}).get("done", 0)
    return min(most, left)


def _added(batch: Mapping[str, Any], found: list[BulkVerdict]) -> dict[str, Any]:
    before = batch["so_far"]
    skipped, refused = dict(before["skipped"]), dict(before["refused"])
    for why, many in batch["skipped"].items():
        skipped[why] = skipped.get(why, 0) + many
    for verdict in found:
        if verdict.outcome is not BulkOutcome.DONE:
            kept = skipped if verdict.outcome is BulkOutcome.SKIPPED else refused
            kept[verdict.why] = kept.get(verdict.why, 0) + 1
    done = sum(verdict.outcome is BulkOutcome.DONE for verdict in found)
    looked_at = before["looked_at"] + len(found) + sum(batch["skipped"].values())
    is_over = batch["next"] is None
    return {
        "done": before["done"] + done,
        "skipped": skipped,
        "refused": refused,
        "looked_at": looked_at,
        "total": looked_at if is_over else before["total"],
        "next": batch["next"],
    }


def progress_of(run_id: str, status: str, values: Mapping[str, Any]) -> BulkProgress:
    """Say how far a run has come, from its values."""
    order = order_of(values["order"])
    told = values.get("progress") or (values.get("batch") or {}).get("so_far") or {}
    total = told.get("total")
    return BulkProgress(
        run_id=run_id,
        status=status,
        act=order.act,
        where=order.where,
        flows=None if order.flows is None else list(order.flows),
        tags=None if order.tags is None else list(order.tags),
        done=told.get("done", 0),
        skipped=told.get("skipped", {}),
        refused=told.get("refused", {}),
        left=None if total is None else max(total - told.get("looked_at", 0), 0),
    )
