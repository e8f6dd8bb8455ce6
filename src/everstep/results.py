"""What the calls of a host return, and `validate` and `report`.

Every result is a frozen struct, but for `RunResult` and `RunState`, whose values are read when asked for.
`as_json` gives any of them, and lists and dicts of them, as `--json` shows it.
"""

from everstep.client.audit import AuditInfo
from everstep.client.checkpoint_steps import CheckpointLine, CheckpointPage, StepLogInfo
from everstep.client.diff import Diff, Moment, NodeChange
from everstep.client.documents import as_json
from everstep.client.guards import BreakerInfo, BudgetInfo, Counts, GuardedInfo, RunGuards
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
from everstep.client.looking.schedules import AppliedSchedule, BackfillInfo, ScheduleInfo
from everstep.client.looking.shown_values import RawValue, RunValues
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
from everstep.client.projection import (
    ItemsInfo,
    NodeInfo,
    RunAct,
    RunError,
    RunNodes,
    StepLine,
    StepPage,
    WaitingFor,
)
from everstep.client.views import (
    CheckpointInfo,
    Delivery,
    DrivenInfo,
    NoticeInfo,
    PauseInfo,
    PublishedEvent,
    RunInfo,
    RunPage,
    RunResult,
    RunState,
    SentSignal,
    SignalInfo,
    StartedRun,
    TakenInfo,
    Values,
    WaitInfo,
    WorkerInfo,
)
from everstep.codec.compare import Change, Pair
from everstep.codec.keyring import Key
from everstep.codec.tags import Unreadable
from everstep.codec.values import Values as ValueCodec
from everstep.graph.check.diagnostics import Diagnostic, Diagnostics
from everstep.graph.check.report import DurabilityReport, Segment
from everstep.graph.draw.picture import DrawnEdge, DrawnGroup, DrawnNode
from everstep.model.acts import Act, AuditOutcome, Known
from everstep.model.address import Part
from everstep.model.bundles import BundledRun, LeftOut
from everstep.model.commits import NoticeState
from everstep.model.compat import Compat, CompatGroup, Compatibility, FlowCompat
from everstep.model.enums import Effects, Mode, Status, Trigger, ValueForm
from everstep.model.leases import Driven, KeyLimit, Process, Taken, WorkerRow
from everstep.model.ledger import BreakerAt, BreakerState, Guarded, Ledger
from everstep.model.records import (
    ArtifactRef,
    CheckpointRecord,
    Counters,
    ErrorInfo,
    FlowFrontier,
    FrontierEntry,
    IdempotencyState,
    NodeState,
    OpenedState,
    QueuedTask,
    ScopeState,
    SerializedState,
    StepRecord,
    StreamAt,
    Undo,
    Undoable,
    UndoState,
    UnitAt,
    UnitFacts,
    Written,
)
from everstep.model.removal import Removal
from everstep.model.waits import SettledBy, Vote, VotingInfo, WaitOpened, WaitStatus
from everstep.ports.durability import HostDurability
from everstep.ports.health import Finding, Level
from everstep.ports.system import Clock
from everstep.ports.upgrades import StoreUpgrade, UpgradeStep
from everstep.runtime.bundles.copy import Copied
from everstep.runtime.bundles.export import Exported, Progress
from everstep.runtime.bundles.import_run import Imported
from everstep.runtime.events import Event
from everstep.runtime.integrity.doctor import Diagnosis
from everstep.runtime.integrity.findings import Fallback, Flaw, FlawKind, Repeated, Verified
from everstep.runtime.operations.after_restore import AfterRestore
from everstep.runtime.operations.asking.answers import FlowFinding, FlowFindings, FlowReport, FlowSegment
from everstep.runtime.operations.bulk.flow import BulkProgress
from everstep.runtime.operations.bulk.pages import BulkPreview, BulkSample
from everstep.runtime.operations.bulk.verdict import BulkAct, BulkOutcome
from everstep.runtime.operations.count import RunCount
from everstep.runtime.operations.durations import Durations, FlowDurations, NodeDurations, Spread
from everstep.runtime.operations.flows import FlowInfo
from everstep.runtime.operations.limits import LimitInfo
from everstep.runtime.operations.untaken import Untaken, WhyUntaken
from everstep.runtime.outage.outbox import Drained
from everstep.runtime.rekey import Rekeyed
from everstep.runtime.resume import Resumed
from everstep.runtime.retention.collect import Collected, Removed, Spared
from everstep.runtime.retention.erase import Erased
from everstep.runtime.retention.summaries import RemovedRun, RunSummary
from everstep.runtime.retention.sweep import Swept
from everstep.runtime.services import Drivable
from everstep.runtime.travel.bisect import Divergence, Visited
from everstep.runtime.travel.explain import Awaited, Explanation, Planned, Recorded
from everstep.runtime.travel.fork import AgainNode, ForkPreview
from everstep.runtime.travel.replay import Replay
from everstep.runtime.waits.notices.send import SentNotices
from everstep.runtime.workers.worker import Stats, Worker

__all__ = [
    "Act",
    "AfterRestore",
    "AgainNode",
    "AppliedSchedule",
    "ArtifactRef",
    "AuditInfo",
    "AuditOutcome",
    "Awaited",
    "BackfillInfo",
    "BreakerAt",
    "BreakerInfo",
    "BreakerState",
    "BudgetInfo",
    "BulkAct",
    "BulkOutcome",
    "BulkPreview",
    "BulkProgress",
    "BulkSample",
    "BundledRun",
    "Change",
    "Changes",
    "CheckpointInfo",
    "CheckpointLine",
    "CheckpointPage",
    "CheckpointRecord",
    "Clock",
    "Collected",
    "ComparedRun",
    "Comparison",
    "Compat",
    "CompatGroup",
    "Compatibility",
    "Copied",
    "Counters",
    "Counts",
    "CutChild",
    "CutValue",
    "Delivery",
    "Diagnosis",
    "Diagnostic",
    "Diagnostics",
    "Diff",
    "Divergence",
    "Drained",
    "DrawnEdge",
    "DrawnGroup",
    "DrawnNode",
    "Drivable",
    "Driven",
    "DrivenInfo",
    "DurabilityReport",
    "Durations",
    "Effects",
    "Erased",
    "ErrorInfo",
    "Event",
    "Explanation",
    "Exported",
    "Fallback",
    "Finding",
    "FirstDifference",
    "Flaw",
    "FlawKind",
    "FlowCompat",
    "FlowDrawing",
    "FlowDurations",
    "FlowFinding",
    "FlowFindings",
    "FlowFrontier",
    "FlowInfo",
    "FlowReport",
    "FlowRules",
    "FlowSegment",
    "ForkPreview",
    "FrontierEntry",
    "Guarded",
    "GuardedInfo",
    "HostDurability",
    "IdempotencyState",
    "Imported",
    "ItemsInfo",
    "Key",
    "KeyLimit",
    "Known",
    "Ledger",
    "LeftOut",
    "Level",
    "LimitInfo",
    "LoopRounds",
    "Mode",
    "Moment",
    "NodeChange",
    "NodeDifference",
    "NodeDurations",
    "NodeInfo",
    "NodeState",
    "NoticeInfo",
    "NoticeState",
    "OpenedState",
    "Pair",
    "Part",
    "PauseInfo",
    "Planned",
    "Process",
    "Progress",
    "PublishedEvent",
    "QueuedTask",
    "RawValue",
    "Recorded",
    "Rekeyed",
    "Removal",
    "Removed",
    "RemovedRun",
    "Repeated",
    "Replay",
    "Resumed",
    "RunAct",
    "RunChange",
    "RunCount",
    "RunDrawing",
    "RunEdges",
    "RunError",
    "RunGuards",
    "RunInfo",
    "RunNodes",
    "RunPage",
    "RunResult",
    "RunState",
    "RunSummary",
    "RunValues",
    "ScheduleInfo",
    "ScopeState",
    "Segment",
    "SentNotices",
    "SentSignal",
    "SerializedState",
    "SettledBy",
    "SignalInfo",
    "Spared",
    "Spread",
    "StartedRun",
    "Stats",
    "Status",
    "StepLine",
    "StepLogInfo",
    "StepPage",
    "StepRecord",
    "StepVisit",
    "StoreInfo",
    "StoreUpgrade",
    "StreamAt",
    "Swept",
    "Taken",
    "TakenEdge",
    "TakenInfo",
    "TimeBucket",
    "TimeCommit",
    "TimeLane",
    "TimeLeftOut",
    "TimeMark",
    "TimeSegment",
    "Timeline",
    "Trigger",
    "Undo",
    "UndoState",
    "Undoable",
    "UnitAt",
    "UnitFacts",
    "Unreadable",
    "Untaken",
    "UpgradeStep",
    "ValueCodec",
    "ValueCut",
    "ValueDifference",
    "ValueForm",
    "Values",
    "Verified",
    "VisitAttempt",
    "VisitError",
    "VisitRecord",
    "VisitUnit",
    "VisitWrite",
    "Visited",
    "Vote",
    "VotingInfo",
    "WaitInfo",
    "WaitOpened",
    "WaitStatus",
    "WaitingFor",
    "WhyUntaken",
    "Worker",
    "WorkerInfo",
    "WorkerRow",
    "Written",
    "as_json",
]
