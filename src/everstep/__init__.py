"""everstep: durable graph flows. Write functions, wire them into a graph, and every step lasts.

What flows are written with is loaded at once, what runs them and other ways to write them at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everstep import migrate, registry, wait
from everstep.codec.chain import Codec
from everstep.codec.keyring import KeyRing
from everstep.errors import EverstepError
from everstep.graph.author.channel import Channel
from everstep.graph.author.context import Context
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

if TYPE_CHECKING:
    from everstep import backends, checkpoints, notify, pipelines
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
    from everstep.compat import Flow
    from everstep.frontends.phases.build import phases
    from everstep.frontends.phases.phase import Phase, ScoredGate
else:
    from everstep.graph.author.flow import Flow

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

_AT_FIRST_USE = {
    "everstep.client.diff": ("Diff",),
    "everstep.client.host": ("AsyncHost",),
    "everstep.client.sync": ("Host",),
    "everstep.client.views": (
        *("Change", "CheckpointInfo", "Collected", "Compat", "Delivery", "Diagnosis", "Divergence", "Erased"),
        *("Event", "Explanation", "Removal", "RemovedRun", "Replay", "RunInfo", "RunResult", "RunState"),
        *("RunSummary", "WaitInfo"),
    ),
    "everstep.frontends.phases.build": ("phases",),
    "everstep.frontends.phases.phase": ("Phase", "ScoredGate"),
}
"""Names by the module that has them, which is loaded when one of them is first used."""
_MODULES = ("backends", "checkpoints", "notify", "pipelines")
_HOMES = {name: home for home, names in _AT_FIRST_USE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"everstep.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


registry.attach()
