"""How long runs take, and which of their nodes take how long, as the newest ended ones tell.

Nothing is counted while runs are driven. Apart from finding runs, which few who look at times do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from everstep.engine.query.tree import Compare, Every, Op, Query
from everstep.errors import BadRequest
from everstep.model.shapes import Count, Instant
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.operations.find import find
from everstep.runtime.operations.run_times import MOST_RUNS, RunTimes, VisitTimes
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services

_CALLS: Final = 4
"""How often a search that has looked at many runs goes on."""
_ENDED: Final = Compare("ended", Op.SET)

Seconds = Annotated[float, Meta(ge=0)]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How times are spread, in seconds: half of them were no longer than `p50`."""

    p50: Seconds
    p90: Seconds
    p99: Seconds
    max: Seconds

    @classmethod
    def of(cls, times: Iterable[float]) -> Spread | None:
        """Return how some times are spread; none if there are none."""
        ranked = sorted(times)
        if not ranked:
            return None
        p50, p90, p99, most = (
            round(ranked[ceil(share * len(ranked)) - 1], 6) for share in (0.5, 0.9, 0.99, 1)
        )
        return cls(p50=p50, p90=p90, p99=p99, max=most)


class NodeDurations(msgspec.Struct, frozen=True, kw_only=True):
    """How long the visits to a node took."""

    node: str
    """Its path in the flow; `check#` are the items of a map `check`."""
    visits: Count
    """Those that ended."""
    failures: Count
    """Visits that failed."""
    retries: Count
    """Attempts that failed, and after which it was tried again."""
    seconds: Spread | None
    """How long the last attempt of a visit took, with what it waited for; none if no visit says so."""


class FlowDurations(msgspec.Struct, frozen=True, kw_only=True):
    """How long runs of a flow took."""

    flow: str
    runs: Count
    total: Spread | None
    """From the start of a run to its end."""
    running: Spread | None
    """What is left of that without `waiting`."""
    waiting: Spread | None
    """Until its first step began, and while it was halted or had failed; of runs that were read whole."""
    nodes: list[NodeDurations]
    """Those in which most time was spent first."""


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """How long the newest ended runs took, and of which runs that is said."""

    runs: Count
    began: Instant | None
    """When the first of them was started."""
    ended: Instant | None
    """When the last of them ended."""
    read_since: Instant | None
    """When the first of them was read: runs that have ended stay as they are, so they are read once."""
    cut: Count
    """Runs of which not all checkpoints were read: they have too many, or some were removed."""
    flows: list[FlowDurations]
    """Those with the most runs first."""


async def durations(
    services: Services, runs: RunReader, flow: str | None, query: Query | None, newest: int
) -> Durations:
    """Say how long the newest ended runs took that a query asks for, of a flow or of all."""
    if isinstance(newest, bool) or not 1 <= newest <= MOST_RUNS:
        raise BadRequest(f"newest is {newest!r:.60}.", fix=f"Ask for 1 to {MOST_RUNS:,} runs.")
    asked = Every((_ENDED,) if query is None else (_ENDED, *_parts_of(query)))
    rows: list[RunRow] = []
    before = None
    for _ in range(_CALLS):
        wanted = RunFilter(flow_id=flow, limit=newest - len(rows), before=before)
        page = await find(services, runs, wanted, asked)
        rows += page.rows
        before = page.following
        if before is None or len(rows) == newest:
            break
    return _told(await services.read_times.of(services.store, rows, services.time.now()))


def _parts_of(query: Query) -> tuple[Query, ...]:
    return query.parts if isinstance(query, Every) else (query,)


def _told(times: Sequence[RunTimes]) -> Durations:
    flows: dict[str, list[RunTimes]] = {}
    for one in times:
        flows.setdefault(one.flow, []).append(one)
    ranked = sorted(flows.items(), key=lambda item: (-len(item[1]), item[0]))
    return Durations(
        runs=len(times),
        began=min((one.began for one in times), default=None),
        ended=max((one.ended for one in times), default=None),
        read_since=min((one.read_at for one in times), default=None),
        cut=sum(1 for one in times if one.waiting is None),
        flows=[_of_flow(flow, of) for flow, of in ranked],
    )


def _of_flow(flow: str, times: Sequence[RunTimes]) -> FlowDurations:
    waits = [(one.total, one.waiting) for one in times if one.waiting is not None]
    return FlowDurations(
        flow=flow,
        runs=len(times),
        total=Spread.of(one.total for one in times),
        running=Spread.of(max(total - waited, 0.0) for total, waited in waits),
        waiting=Spread.of(waited for _, waited in waits),
        nodes=_of_nodes(times),
    )


def _of_nodes(times: Sequence[RunTimes]) -> list[NodeDurations]:
    nodes: dict[str, list[VisitTimes]] = {}
    for one in times:
        for node, at in one.nodes.items():
            nodes.setdefault(node, []).append(at)
    spent = {node: sum(sum(at.seconds) for at in of) for node, of in nodes.items()}
    return [
        NodeDurations(
            node=node,
            visits=sum(at.visits for at in nodes[node]),
            failures=sum(at.failures for at in nodes[node]),
            retries=sum(at.retries for at in nodes[node]),
            seconds=Spread.of(second for at in nodes[node] for second in at.seconds),
        )
        for node in sorted(nodes, key=lambda node: (-spent[node], node))
    ]
