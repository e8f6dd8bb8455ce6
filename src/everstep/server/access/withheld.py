"""What a viewer is not shown: values, and texts in which people, nodes and authors may have put some.

Every field of what a viewer may ask for is in one of two tables; a test compares them with the route table.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from everstep.client.guards import BreakerInfo, BudgetInfo, GuardedInfo, RunGuards
from everstep.client.projection import ItemsInfo, RunAct, RunError, StepLine, StepPage, WaitingFor
from everstep.client.queries import fields_of
from everstep.client.views import DrivenInfo, RunInfo, TakenInfo, WaitInfo, WorkerInfo
from everstep.errors import EverstepError, Forbidden, RunErased, RunNotFound
from everstep.model.acts import Act
from everstep.results import Event, Untaken
from everstep.server.shapes import (
    Breakers,
    Events,
    Nodes,
    RunCounts,
    Runs,
    ShownNode,
    ShownRun,
    UntakenRuns,
    Waits,
    Workers,
)

WITHHELD = "(withheld)"
"""What stands where a text was."""

SHOWN: Mapping[type[msgspec.Struct], str] = {
    Runs: "runs next",
    RunCounts: "by runs next",
    RunInfo: "run_id flow flow_version status created_at ended_at checkpoints parent_run_id forked_at "
    "adopted_at trimmed_before is_driven is_cancelling priority group acked_at pinned_by",
    ShownRun: "guards",
    Workers: "workers",
    WorkerInfo: "id host pid flows concurrency driving longest started_at seen_at is_stopping is_slowed "
    "skew_seconds release takes",
    TakenInfo: "flow_id flow_version flow_hash",
    UntakenRuns: "runs",
    Untaken: "run_id flow flow_version why text fix",
    DrivenInfo: "run_id flow_id since",
    Breakers: "breakers",
    BreakerInfo: "name state since trips failures",
    BudgetInfo: "spent limit raised",
    RunGuards: "spent budgets breakers",
    GuardedInfo: "limits raised breakers",
    Nodes: "run_id sequence nodes acts guards",
    ShownNode: "node status visits attempts seconds started_at ended_at items decision error wait act "
    "is_pending",
    ItemsInfo: "count completed failed",
    WaitingFor: "id kind due_at",
    RunAct: "checkpoint trigger step by how",
    RunError: "type code",
    Act: "by how sealed",
    StepPage: "run_id steps next",
    StepLine: "checkpoint last_checkpoint trigger address depth steps status attempts started_at ended_at "
    "items decision error wait spent guards act",
    Waits: "waits next",
    WaitInfo: "id run_id flow node visit kind listens_for scheduler status opened_at due_at notified_at "
    "settled_at settled_by act",
    Events: "events next ended",
    Event: "id kind run_id at node visit attempt",
}
"""By what a field is of: those that a viewer is shown. A struct has those of the one it derives from, too."""

INSTEAD: Mapping[type[msgspec.Struct], Mapping[str, Any]] = {
    RunInfo: {"pinned": WITHHELD, "needs_repair": WITHHELD, "tags": None, "attributes": None},
    BreakerInfo: {"reason": WITHHELD},
    RunAct: {"comment": ""},
    RunError: {"message": WITHHELD},
    Act: {"comment": ""},
    WaitInfo: {
        "prompt": WITHHELD,
        "context": None,
        "options": None,
        "spellings": {},
        "schema": None,
        "answer": None,
        "token": None,
        "token_metadata": None,
        "link": None,
    },
    Event: {"data": {}},
}
"""What stands in the place of the others; where there was nothing, nothing does."""

OF_EVENTS = frozenset(
    {
        *("flow", "forked_from", "sequence", "trigger", "status", "seconds", "items", "decision", "retry_at"),
        *("resume_after", "wait", "chunks", "lost"),
    }
)
"""What a viewer is shown of the data of an event; of an error its type, of an act who did it."""
_OF_NODES = frozenset({"chunk", "emitted", "result"})
"""Events whose data is what a node said."""


def without_values(told: Any) -> Any:
    """Return what a viewer is shown of an answer."""
    match told:
        case Event():
            return msgspec.structs.replace(told, data=_of_event(told))
        case msgspec.Struct():
            instead = _instead_of(type(told))
            return msgspec.structs.replace(
                told,
                **{
                    name: _blank(value, instead[name]) if name in instead else without_values(value)
                    for name in told.__struct_fields__
                    if (value := getattr(told, name)) is not msgspec.UNSET
                },
            )
        case list() | tuple():
            return type(told)(without_values(one) for one in told)
        case Mapping():
            return {name: without_values(one) for name, one in told.items()}
    return told


def _instead_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return what stands in the place of fields; a field that no table has is an error, not shown."""
    bases = [base for base in kind.__mro__ if base in SHOWN]
    instead = {name: value for base in bases for name, value in INSTEAD.get(base, {}).items()}
    known = {*instead, *(name for base in bases for name in SHOWN[base].split())}
    for name in kind.__struct_fields__:
        if name not in known:
            raise TypeError(f"{kind.__name__}.{name} is in none of the tables of what a viewer is shown")
    return instead


def _blank(value: Any, instead: Any) -> Any:
    return instead if value not in (None, "") else value


def _of_event(event: Event) -> dict[str, Any]:
    if event.kind in _OF_NODES:
        return {}
    data = {name: value for name, value in event.data.items() if name in OF_EVENTS}
    if event.data.get("error") is not None:
        kind, colon, _ = str(event.data["error"]).partition(": ")
        is_typed = event.kind.startswith("step_") and colon and kind.isidentifier()
        data["error"] = f"{kind}: {WITHHELD}" if is_typed else WITHHELD
    if isinstance(act := event.data.get("act"), dict):
        data["act"] = {**act, "comment": None}
    return data


QUERIED = frozenset(
    {
        *("id", "flow", "version", "status", "group", "priority", "parent", "owner", "started", "ended"),
        *("pinned", "needs_repair", "waiting", "waiting_at", "error_code"),
    }
)
"""What a query of a viewer may name: by one that names a text, the text could be found letter by letter."""


def check_fields(asked: Mapping[str, Any], now: datetime) -> None:
    """Raise if a listing or a count of runs asks for what a viewer is not shown."""
    for name in sorted(fields_of(asked, now) - QUERIED):
        raise Forbidden(f"a viewer may not ask for {name}.", fix=f"There is {', '.join(sorted(QUERIED))}.")


def without_reasons(error: EverstepError) -> EverstepError:
    """Return an error as it is told to those who may not see why a run was removed, or that it ever was."""
    if not isinstance(error, RunErased):
        return error
    run_id = error.details.get("run_id", "")
    return RunNotFound(f"there is no run {run_id!r}.", fix="List them with: everstep runs")
