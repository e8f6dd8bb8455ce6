"""everstep: durable graph flows. Write functions, wire them into a graph, and every step lasts."""

from everstep import backends, checkpoints, migrate, notify, pipelines, wait
from everstep.client.diff import Diff
from everstep.client.host import AsyncHost
from everstep.client.sync import Host
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
from everstep.codec.chain import Codec
from everstep.codec.keyring import KeyRing
from everstep.errors import EverstepError
from everstep.frontends.phases.build import phases
from everstep.frontends.phases.phase import Phase, ScoredGate
from everstep.graph.author.channel import Channel
from everstep.graph.author.context import Context
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import END, Gate, Node, ifelse, node, route
from everstep.graph.author.profiles import Profile, Registry
from everstep.graph.author.streams import Chunk
from everstep.graph.author.unknown_effects import Done
from everstep.graph.author.wiring import at_least, chain, critical, parallel, quorum
from everstep.graph.check.diagnostics import Diagnostic, Diagnostics
from everstep.graph.check.report import DurabilityReport, Segment, report
from everstep.graph.check.validate import Offers, validate
from everstep.model.acts import Act
from everstep.model.breakers import Breaker
from everstep.model.budgets import Budget
from everstep.model.bundles import LeaveOut
from everstep.model.durability import Durability
from everstep.model.enums import Status
from everstep.model.items import ItemError
from everstep.model.retention import Retention
from everstep.model.retry import Retry

__version__ = "0.2.0.dev0"

__all__ = [
    "Act",
    "AsyncHost",
    "Breaker",
    "Budget",
    "Change",
    "Channel",
    "CheckpointInfo",
    "Chunk",
    "Codec",
    "Collected",
    "Compat",
    "Context",
    "Delivery",
    "Diagnosis",
    "Diagnostic",
    "Diagnostics",
    "Diff",
    "Divergence",
    "Done",
    "Durability",
    "DurabilityReport",
    "END",
    "Erased",
    "Event",
    "EverstepError",
    "Explanation",
    "Flow",
    "Gate",
    "Host",
    "ItemError",
    "KeyRing",
    "LeaveOut",
    "Node",
    "Offers",
    "Phase",
    "Profile",
    "Registry",
    "Removal",
    "RemovedRun",
    "Replay",
    "Retention",
    "Retry",
    "RunInfo",
    "RunResult",
    "RunState",
    "RunSummary",
    "ScoredGate",
    "Segment",
    "Status",
    "WaitInfo",
    "__version__",
    "at_least",
    "backends",
    "chain",
    "checkpoints",
    "critical",
    "ifelse",
    "migrate",
    "node",
    "notify",
    "parallel",
    "phases",
    "pipelines",
    "quorum",
    "report",
    "route",
    "validate",
    "wait",
]
