"""What the calls of a host return, and `validate` and `report`.

Every result is a frozen struct, but for `RunResult` and `RunState`, whose values are read when asked for.
`as_json` gives any of them, and lists and dicts of them, as `--json` shows it.
"""

from everstep.client.audit import AuditInfo
from everstep.client.checkpoint_steps import StepLogInfo
from everstep.client.diff import Diff, Moment, NodeChange
from everstep.client.documents import as_json
from everstep.client.guards import BreakerInfo, BudgetInfo, Counts, GuardedInfo, RunGuards
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
    PublishedEvent,
    RunInfo,
    RunPage,
    RunResult,
    RunState,
    SentSignal,
    SignalInfo,
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
from everstep.model.acts import Act, AuditOutcome, Known
from everstep.model.address import Part
from everstep.model.bundles import BundledRun, LeftOut
from everstep.model.compat import Compat, Compatibility
from everstep.model.enums import Effects, Mode, Status, Trigger, ValueForm
from everstep.model.leases import Driven, Process, Taken, WorkerRow
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
    UnitAt,
    UnitFacts,
    Written,
)
from everstep.model.removal import Removal
from everstep.model.waits import SettledBy, WaitOpened, WaitStatus
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
from everstep.runtime.operations.count import RunCount
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
from everstep.runtime.travel.replay import Replay
from everstep.runtime.workers.worker import Stats, Worker

__all__ = [
    "Act",
    "AfterRestore",
    "ArtifactRef",
    "AuditInfo",
    "AuditOutcome",
    "Awaited",
    "BreakerAt",
    "BreakerInfo",
    "BreakerState",
    "BudgetInfo",
    "BundledRun",
    "Change",
    "CheckpointInfo",
    "CheckpointRecord",
    "Clock",
    "Collected",
    "Compat",
    "Compatibility",
    "Copied",
    "Counters",
    "Counts",
    "Delivery",
    "Diagnosis",
    "Diagnostic",
    "Diagnostics",
    "Diff",
    "Divergence",
    "Drained",
    "Drivable",
    "Driven",
    "DrivenInfo",
    "DurabilityReport",
    "Effects",
    "Erased",
    "ErrorInfo",
    "Event",
    "Explanation",
    "Exported",
    "Fallback",
    "Finding",
    "Flaw",
    "FlawKind",
    "FlowFrontier",
    "FrontierEntry",
    "Guarded",
    "GuardedInfo",
    "HostDurability",
    "IdempotencyState",
    "Imported",
    "ItemsInfo",
    "Key",
    "Known",
    "Ledger",
    "LeftOut",
    "Level",
    "Mode",
    "Moment",
    "NodeChange",
    "NodeInfo",
    "NodeState",
    "OpenedState",
    "Pair",
    "Part",
    "Planned",
    "Process",
    "Progress",
    "PublishedEvent",
    "QueuedTask",
    "Recorded",
    "Rekeyed",
    "Removal",
    "Removed",
    "RemovedRun",
    "Repeated",
    "Replay",
    "Resumed",
    "RunAct",
    "RunCount",
    "RunError",
    "RunGuards",
    "RunInfo",
    "RunNodes",
    "RunPage",
    "RunResult",
    "RunState",
    "RunSummary",
    "ScopeState",
    "Segment",
    "SentSignal",
    "SerializedState",
    "SettledBy",
    "SignalInfo",
    "Spared",
    "Stats",
    "Status",
    "StepLine",
    "StepLogInfo",
    "StepPage",
    "StepRecord",
    "StoreUpgrade",
    "StreamAt",
    "Swept",
    "Taken",
    "TakenInfo",
    "Trigger",
    "UnitAt",
    "UnitFacts",
    "Unreadable",
    "Untaken",
    "UpgradeStep",
    "ValueCodec",
    "ValueForm",
    "Values",
    "Verified",
    "Visited",
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
