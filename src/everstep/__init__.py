"""everstep: durable graph flows. Write functions, wire them into a graph, and every step lasts.

What flows are written with is loaded at once, what runs them and other ways to write them at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

from everstep import registry
from everstep.errors import EverstepError
from everstep.graph.author.context import AsyncContext, Context
from everstep.graph.author.node import END, Node, ifelse, node, route
from everstep.graph.author.streams import Chunk
from everstep.graph.author.wiring import at_least, chain, critical, parallel, quorum
from everstep.model.budgets import Budget
from everstep.model.durability import Durability
from everstep.model.enums import Status
from everstep.model.items import ItemError
from everstep.model.retention import Retention
from everstep.model.retry import Retry

if TYPE_CHECKING:
    from everstep import backends as backends
    from everstep import checkpoints as checkpoints
    from everstep import migrate, notify, wait
    from everstep import phases as phases
    from everstep import pipelines as pipelines
    from everstep import results as results
    from everstep import types as types
    from everstep.client.host import AsyncHost
    from everstep.client.sync import Host
    from everstep.codec.keyring import KeyRing
    from everstep.compat import Flow
    from everstep.graph.author.unknown_effects import Done
    from everstep.graph.check.report import report
    from everstep.graph.check.validate import validate
    from everstep.graph.limits import Debounce, Limit, Singleton
    from everstep.graph.schedules import Schedule
    from everstep.model.breakers import Breaker
    from everstep.steps import current, step
else:
    from everstep.graph.author.flow import Flow

__version__ = "0.2.0.dev0"

__all__ = [
    "AsyncContext",
    "AsyncHost",
    "Breaker",
    "Budget",
    "Chunk",
    "Context",
    "Debounce",
    "Done",
    "Durability",
    "END",
    "EverstepError",
    "Flow",
    "Host",
    "ItemError",
    "KeyRing",
    "Limit",
    "Node",
    "Retention",
    "Retry",
    "Schedule",
    "Singleton",
    "Status",
    "__version__",
    "at_least",
    "chain",
    "critical",
    "current",
    "ifelse",
    "migrate",
    "node",
    "notify",
    "parallel",
    "quorum",
    "report",
    "route",
    "step",
    "validate",
    "wait",
]

_HOMES = {
    "AsyncHost": "everstep.client.host",
    "Breaker": "everstep.model.breakers",
    "Debounce": "everstep.graph.limits",
    "Done": "everstep.graph.author.unknown_effects",
    "Host": "everstep.client.sync",
    "KeyRing": "everstep.codec.keyring",
    "Limit": "everstep.graph.limits",
    "Singleton": "everstep.graph.limits",
    "Schedule": "everstep.graph.schedules",
    "current": "everstep.steps",
    "report": "everstep.graph.check.report",
    "step": "everstep.steps",
    "validate": "everstep.graph.check.validate",
}
"""Names by the module that has them, which is loaded when one of them is first used."""
_MODULES = (
    *("backends", "checkpoints", "logs", "migrate", "notify", "phases", "pipelines", "results", "testing"),
    *("types", "wait"),
)
_MOVED = {
    "everstep.phases": ("Phase", "ScoredGate"),
    "everstep.results": (
        *("Change", "CheckpointInfo", "Collected", "Compat", "Delivery", "Diagnosis", "Diagnostic"),
        *("Diagnostics", "Diff", "Divergence", "DurabilityReport", "Erased", "Event", "Explanation"),
        *("Removal", "RemovedRun", "Replay", "RunInfo", "RunResult", "RunState", "RunSummary", "Segment"),
        *("WaitInfo",),
    ),
    "everstep.types": ("Channel", "Codec", "Gate", "LeaveOut", "Offers", "Profile", "Registry"),
}
"""What was here in 0.1, by the module that has it now. It is found here until 0.3."""


if not TYPE_CHECKING:  # type checkers name what is not there

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"everstep.{name}")
        if name in _HOMES:
            found = globals()[name] = getattr(import_module(_HOMES[name]), name)
            return found
        for home, names in _MOVED.items():
            if name in names:
                message = f"everstep.{name} is {home}.{name} now; the old name works until everstep 0.3."
                warn(message, DeprecationWarning, stacklevel=2)
                return getattr(import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


registry.attach()
