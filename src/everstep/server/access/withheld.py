"""What a viewer is not shown: values, and texts in which people, nodes and authors may have put some.

Every field of what a viewer may ask for is in one of two tables; a test compares them with the route table.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from everstep.client.checkpoint_steps import CheckpointLine, CheckpointPage
from everstep.client.guards import BreakerInfo, BudgetInfo, GuardedInfo, RunGuards
from everstep.client.looking.changes import Changes, RunChange
from everstep.client.looking.comparison import (
    ComparedRun,
    Comparison,
    CutValue,
    FirstDifference,
    NodeDifference,
    ValueDifference,
)
from everstep.client.looking.cuts import CutChild, ValueCut
from everstep.client.looking.drawing import FlowDrawing, RunDrawing
from everstep.client.looking.edges import LoopRounds, RunEdges, TakenEdge
from everstep.client.looking.store_info import FlowRules, StoreInfo
from everstep.client.looking.timeline import (
    TimeBucket,
    TimeCommit,
    TimeLane,
    TimeLeftOut,
    Timeline,
    TimeMark,
    TimeSegment,
)
from everstep.client.looking.visits import (
    StepVisit,
    VisitAttempt,
    VisitError,
    VisitRecord,
    VisitUnit,
    VisitWrite,
)
from everstep.client.projection import ItemsInfo, RunAct, RunError, StepLine, StepPage, WaitingFor
from everstep.client.queries import fields_of
from everstep.client.views import DrivenInfo, NoticeInfo, PauseInfo, RunInfo, TakenInfo, WaitInfo, WorkerInfo
from everstep.errors import EverstepError, Forbidden, RunErased, RunNotFound
from everstep.graph.draw.picture import DrawnEdge, DrawnGroup, DrawnNode, Picture
from everstep.model.acts import Act
from everstep.model.waits import Vote, VotingInfo
from everstep.results import (
    AgainNode,
    Awaited,
    BackfillInfo,
    BulkProgress,
    Compat,
    CompatGroup,
    Durations,
    Event,
    Explanation,
    Finding,
    FlowCompat,
    FlowDurations,
    FlowFinding,
    FlowFindings,
    FlowInfo,
    FlowReport,
    FlowSegment,
    ForkPreview,
    LimitInfo,
    NodeDurations,
    Planned,
    Recorded,
    ScheduleInfo,
    Spread,
    Untaken,
)
from everstep.server.shapes import (
    Breakers,
    Driver,
    Events,
    Flows,
    Limits,
    Me,
    Nodes,
    NoticeList,
    OneFlow,
    Pauses,
    RunCounts,
    Runs,
    ScheduleList,
    ShownFlow,
    ShownNode,
    ShownRun,
    Times,
    UntakenRuns,
    Waits,
    Workers,
)

WITHHELD = "(withheld)"
"""What stands where a text was."""

SHOWN: Mapping[type[msgspec.Struct], str] = {
    Runs: "runs next",
    Changes: "id kind at runs",
    RunChange: "run_id flow sequence status is_gone",
    RunCounts: "by runs next",
    Durations: "runs began ended read_since cut flows",
    FlowDurations: "flow runs total running waiting nodes",
    NodeDurations: "node visits failures retries seconds",
    Spread: "p50 p90 p99 max",
    RunInfo: "run_id flow flow_version status created_at ended_at checkpoints parent_run_id forked_at "
    "starter_run_id starter_node adopted_at trimmed_before is_driven is_cancelling priority group acked_at "
    "pinned_by changed_at paused_at paused_by undoing",
    ShownRun: "guards bulk driver begins_at ends_at",
    Driver: "host pid since",
    ForkPreview: "run_id at starts again asks kept",
    Comparison: "before after shared_until values nodes is_cut first_difference is_searched",
    ComparedRun: "run_id checkpoint status error part",
    ValueDifference: "name path kind",
    CutValue: "is_cut",
    NodeDifference: "path kind visits status values",
    FirstDifference: "path visit address checkpoint before_checkpoint what",
    StoreInfo: "looked_at server is_well durable single_writer write_ms skew_seconds findings size_bytes "
    "runs waits rules flows",
    FlowRules: "flow rules",
    Finding: "level",
    AgainNode: "path visits had_key",
    BulkProgress: "run_id status act flows tags done skipped refused left",
    Limits: "limits",
    Pauses: "pauses",
    PauseInfo: "run_id flow group since by",
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
    Nodes: "run_id sequence nodes acts guards left_out",
    ShownNode: "node status visits attempts seconds started_at ended_at items decision error wait act "
    "is_pending",
    RunEdges: "run_id sequence left_out edges loops",
    TakenEdge: "source target times round is_newest",
    LoopRounds: "node rounds began",
    Picture: "width height total shown is_cut centre nodes groups edges",
    FlowDrawing: "flow flow_version flow_hash",
    RunDrawing: "run_id",
    FlowInfo: "flow runs versions total workers",
    LimitInfo: "limit flow key running most started rate waiting since until why",
    Flows: "flows",
    ShownFlow: "is_loaded",
    OneFlow: "drawing asks",
    DrawnNode: "path name kind around x y width height order is_folded inside left_out",
    DrawnGroup: "path name kind around x y width height order inside left_out",
    DrawnEdge: "source target kind label is_back points",
    ItemsInfo: "count completed failed",
    WaitingFor: "id kind due_at",
    RunAct: "checkpoint trigger step by how",
    RunError: "type code",
    Act: "by how sealed",
    StepPage: "run_id steps next",
    StepLine: "checkpoint last_checkpoint trigger address depth steps status attempts started_at ended_at "
    "items decision error wait spent guards act",
    CheckpointPage: "run_id checkpoints next",
    CheckpointLine: "sequence checkpoint_id run_id trigger created_at status keyframe steps nodes digest act",
    Timeline: "run_id began_at until is_live first last lanes commits marks left_out",
    TimeLane: "node kind visits items segments buckets",
    TimeSegment: "began ended kind status address attempt sequence count",
    TimeBucket: "status began ended count slowest first_item sequence",
    TimeCommit: "sequence at trigger",
    TimeMark: "kind at sequence worker by how",
    TimeLeftOut: "checkpoints_before checkpoints_after removed lanes commits",
    StepVisit: "run_id address path visit status checkpoint began_checkpoint attempts decision outcome error "
    "idempotency_key spent guards items units unit_count wait act record is_cut",
    VisitAttempt: "attempt checkpoint status started_at ended_at retry_at error",
    VisitError: "type code",
    VisitUnit: "name address status attempts checkpoint started_at ended_at",
    VisitRecord: "checkpoint checkpoint_id trigger created_at digest status attempts started_at ended_at "
    "queued goto ends",
    ValueCut: "type state count start version size pointer is_cut mime shape",
    CutChild: "cut",
    Waits: "waits next",
    ScheduleList: "schedules next",
    ScheduleInfo: "schedule_id flow cron every zone overlap catch_up jitter time_input priority group "
    "declared status paused next last last_run started skipped missed pending refused backfill",
    BackfillInfo: "after until started there left",
    Times: "times",
    NoticeList: "notices next",
    NoticeInfo: "id number run_id notifier occasion state at due_at tries sent_at wait_id",
    WaitInfo: "id run_id flow node visit kind listens_for scheduler status opened_at due_at notified_at "
    "settled_at settled_by act voting",
    VotingInfo: "quorum approvers not_by votes left",
    Vote: "by at how",
    Me: "name role acts flows tags release acts_as can_log_out",
    Explanation: "run_id flow status is_driven compat is_cancelling recorded starts pending remade waits "
    "missing can_lose spooled becomes_fork untaken undoes is_undoing begins_at ends_at",
    Compat: "verdict nodes values migrations starts is_same code",
    Recorded: "path visits status outputs items of_items",
    Planned: "path visit attempt effects may_have_started not_before chunks calls asks only_chooses",
    Awaited: "wait_id path kind status due_at settled_by then voting calls",
    FlowReport: "flow mode coverage nodes incompatible_nodes reasons resumable_segments halt_nodes "
    "expensive_nodes destructive_nodes budgets breakers undo_nodes",
    FlowSegment: "nodes points",
    FlowFindings: "flow errors warnings diagnostics",
    FlowFinding: "code severity node edge message fix services file line column",
    FlowCompat: "flow version runs groups is_whole",
    CompatGroup: "flow_version runs",
    Events: "events next ended",
    Event: "id kind run_id at node visit attempt",
}
"""By what a field is of: those that a viewer is shown. A struct has those of the one it derives from, too."""

INSTEAD: Mapping[type[msgspec.Struct], Mapping[str, Any]] = {
    RunInfo: {"pinned": WITHHELD, "needs_repair": WITHHELD, "tags": None, "attributes": None},
    BulkProgress: {"where": WITHHELD},
    OneFlow: {"report": None, "findings": None},
    BreakerInfo: {"reason": WITHHELD},
    RunAct: {"comment": ""},
    ValueDifference: {"before": None, "after": None},
    CutValue: {"text": WITHHELD},
    StoreInfo: {"url": WITHHELD},
    Finding: {"text": WITHHELD, "fix": WITHHELD},
    TimeMark: {"text": ""},
    StepVisit: {"inputs": {}, "outputs": {}, "before": {}},
    VisitError: {"message": WITHHELD, "traceback": ""},
    VisitRecord: {"reads": {}, "writes": []},
    VisitWrite: {"name": WITHHELD, "version": 0, "size": 0, "form": None, "is_artifact": False},
    ValueCut: {"value": None, "text": WITHHELD, "children": [], "name": WITHHELD, "columns": []},
    CutChild: {"key": WITHHELD},
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
    ScheduleInfo: {"tags": {}, "said": WITHHELD},
    NoticeInfo: {"error": WITHHELD},
    Explanation: {"paused": WITHHELD},
    Compat: {"reason": WITHHELD, "fix": WITHHELD, "warnings": ()},
    Planned: {"key": WITHHELD, "cursor": WITHHELD},
    Awaited: {"outcome": None},
    Vote: {"approved": None, "comment": ""},
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
        *(
            "id",
            "flow",
            "version",
            "status",
            "group",
            "priority",
            "parent",
            "started_by",
            "owner",
            "started",
            "ended",
        ),
        *("pinned", "needs_repair", "paused", "changed", "waiting", "waiting_at", "error_code", "undoing"),
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
