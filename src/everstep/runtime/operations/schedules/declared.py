"""What flows declare of schedules, beside what there is. Apart, as who applies them does it once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.runtime.operations.schedules.spec import ScheduleSpec, checked
from everstep.runtime.run_ids import check_run_id

DECLARED = "declared"
"""The tag of schedules that were declared beside their flows and applied."""
GONE = "gone"
"""The tag of those that are declared no more, and were paused for that."""


class Wanted(NamedTuple):
    """A schedule that a flow declares."""

    flow: Flow
    spec: ScheduleSpec


def wanted(flows: Iterable[Flow], now: datetime) -> dict[str, Wanted]:
    """Return the schedules that flows declare, by id, each checked as its flow will take it."""
    found: dict[str, Wanted] = {}
    for flow in flows:
        for schedule in flow.schedules:
            name = check_run_id(schedule.id)
            if name in found:
                raise BadRequest(
                    f"flows {found[name].flow.name!r} and {flow.name!r} both declare a schedule {name!r}.",
                    fix="Call one of them otherwise.",
                )
            spec = checked(flow.name, schedule.said())
            flow.check_inputs(spec.inputs_at(now), None)
            found[name] = Wanted(flow, spec)
    return found


def differences(
    there: Mapping[str, Any], spec: ScheduleSpec, canonical: Callable[[Any], bytes]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a schedule says and is to say instead, of what differs."""
    told = spec.told()
    names = [name for name in told if canonical(there.get(name)) != canonical(told[name])]
    return {name: there.get(name) for name in names}, {name: told[name] for name in names}
