"""What the calls of a host return, and what `validate` and `report` do."""

from everstep.client.diff import Diff
from everstep.client.views import (
    Change,
    CheckpointInfo,
    Collected,
    Compat,
    Delivery,
    Diagnosis,
    Divergence,
    Erased,
    Event,
    Explanation,
    Removal,
    RemovedRun,
    Replay,
    RunInfo,
    RunResult,
    RunState,
    RunSummary,
    WaitInfo,
)
from everstep.graph.check.diagnostics import Diagnostic, Diagnostics
from everstep.graph.check.report import DurabilityReport, Segment
from everstep.model.acts import Act

__all__ = [
    "Act",
    "Change",
    "CheckpointInfo",
    "Collected",
    "Compat",
    "Delivery",
    "Diagnosis",
    "Diagnostic",
    "Diagnostics",
    "Diff",
    "Divergence",
    "DurabilityReport",
    "Erased",
    "Event",
    "Explanation",
    "Removal",
    "RemovedRun",
    "Replay",
    "RunInfo",
    "RunResult",
    "RunState",
    "RunSummary",
    "Segment",
    "WaitInfo",
]
