"""The runs that an order is about, page by page; and what would come of it, for a dry run."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence

import msgspec

from everstep.errors import BadRequest
from everstep.model.commits import NO_LABELS
from everstep.ports.store import Capabilities, RunFilter, RunRow
from everstep.runtime.operations.bulk.order import BulkOrder
from everstep.runtime.operations.bulk.verdict import BulkAct, BulkOutcome, BulkVerdict, judge
from everstep.runtime.operations.find import Found, find
from everstep.runtime.operations.labels import labels_of_runs
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

COUNTED = 200_000
"""So many runs that match are counted."""
_PAGE = 1000


class BulkSample(msgspec.Struct, frozen=True, kw_only=True):
    """One run, and what would come of it."""

    run_id: str
    flow: str
    status: str
    would: BulkOutcome
    """What would come of the act."""
    why: str = ""
    """Why it would be skipped, or the code of the error with which it would be refused."""


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an act on many runs would do: nothing was done."""

    act: BulkAct
    runs: int
    """Runs that the query asks for."""
    is_whole: bool
    """False if there are more than were counted."""
    by_status: dict[str, int]
    by_flow: dict[str, int]
    to_do: int
    """Runs to which it would be done, or as many as it would stop at."""
    skipped: dict[str, int]
    """By why: `ended`, `not_failed`, `nothing_to_do`."""
    refused: dict[str, int]
    """By the code of the error. What only the act itself finds out, such as damage, is not among them."""
    sample: list[BulkSample]
    """The newest runs."""


def check_store(able: Capabilities, act: BulkAct) -> None:
    """Raise unless a store can do this to many runs."""
    lacks = []
    if not able.audits:
        lacks.append("`audits`")
    if not able.takes_head and act in (BulkAct.CANCEL, BulkAct.TAG, BulkAct.PIN, BulkAct.UNPIN):
        lacks.append("`takes_head`")
    if not able.retains and act in (BulkAct.PIN, BulkAct.UNPIN, BulkAct.ERASE):
        lacks.append("`retains`")
    if not able.pauses and act in (BulkAct.PAUSE, BulkAct.UNPAUSE):
        lacks.append("`pauses`")
    if not able.has_labels and act is BulkAct.TAG:
        lacks.append("`has_labels`")
    if lacks:
        raise BadRequest(
            f"this store does not declare {' and '.join(lacks)}, so {act} is not done to many runs at once.",
            fix="Use a store that does: all of everstep's own do.",
        )


async def page_of(
    services: Services, reader: RunReader, order: BulkOrder, *, before: str | None, limit: int
) -> Found:
    """Return a page of the runs that an order is about."""
    found = await find(services, reader, RunFilter(limit=limit, before=before), order.query())
    return found._replace(rows=[row for row in found.rows if not order.leaves_out(row)])


async def _pages(
    services: Services, reader: RunReader, order: BulkOrder, before: str | None
) -> AsyncIterator[list[RunRow]]:
    while True:
        page = await page_of(services, reader, order, before=before, limit=_PAGE)
        yield page.rows
        before = page.following
        if before is None:
            return


async def verdicts(services: Services, order: BulkOrder, rows: Sequence[RunRow]) -> list[BulkVerdict]:
    """Say what is to come of runs as they stand."""
    labels = await labels_of_runs(services, rows) if order.act is BulkAct.TAG else {}
    return [
        judge(order.act, row, labels.get(row.run_id, NO_LABELS).tags, order.change, order.at) for row in rows
    ]


async def count(services: Services, reader: RunReader, order: BulkOrder, before: str) -> int | None:
    """Count the runs that an order is about; none if they are too many to be counted."""
    many = 0
    async for rows in _pages(services, reader, order, before):
        many += len(rows)
        if many >= COUNTED:
            return None
    return many


async def preview(services: Services, reader: RunReader, order: BulkOrder, sample: int) -> BulkPreview:
    """Say what an order would do to the runs that there are now."""
    by_status, by_flow = Counter[str](), Counter[str]()
    outcomes = Counter[BulkVerdict]()
    shown: list[BulkSample] = []
    many, is_whole = 0, True
    async for rows in _pages(services, reader, order, None):
        for row, verdict in zip(rows, await verdicts(services, order, rows), strict=True):
            by_status[row.status.value] += 1
            by_flow[row.flow_id] += 1
            outcomes[verdict] += 1
            if len(shown) < sample:
                shown.append(_sample(row, verdict))
        many += len(rows)
        if many >= COUNTED:
            is_whole = False
            break
    done = sum(n for verdict, n in outcomes.items() if verdict.outcome is BulkOutcome.DONE)
    return BulkPreview(
        act=order.act,
        runs=many,
        is_whole=is_whole,
        by_status=dict(by_status.most_common()),
        by_flow=dict(by_flow.most_common()),
        to_do=done if order.at_most is None else min(done, order.at_most),
        skipped=_why(outcomes, BulkOutcome.SKIPPED),
        refused=_why(outcomes, BulkOutcome.REFUSED),
        sample=shown,
    )


def _sample(row: RunRow, verdict: BulkVerdict) -> BulkSample:
    return BulkSample(
        run_id=row.run_id,
        flow=row.flow_id,
        status=row.status.value,
        would=verdict.outcome,
        why=verdict.why,
    )


def _why(outcomes: Counter[BulkVerdict], outcome: BulkOutcome) -> dict[str, int]:
    return {verdict.why: n for verdict, n in outcomes.most_common() if verdict.outcome is outcome}
