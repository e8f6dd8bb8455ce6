"""Where a run that failed is taken up again, if its flow has a rule for that."""

from __future__ import annotations

from typing import Any

from everstep.engine.state import RunState
from everstep.graph.flow import Flow
from everstep.model.enums import Status
from everstep.model.records import CHANNEL
from everstep.ports.store import RunRow
from everstep.runtime.values import ValueSpace


def resume_point(row: RunRow, flow: Flow, state: RunState, space: ValueSpace) -> str | None:
    """Return the node at which a failed run begins again; none for the one that failed."""
    if flow.resumes_at is None or row.status is not Status.FAILED:
        return None
    failed = [flow.nodes[i].name for i in state.due if state.statuses[i] is Status.FAILED]
    if not failed:
        return None
    area = space.areas.get(CHANNEL, {})

    def read(key: str) -> Any:
        return space.peek(key, CHANNEL) if key in area else None

    start = flow.resumes_at(failed[0], read)
    return start if start is not None and start in flow.plan.index and start != failed[0] else None
