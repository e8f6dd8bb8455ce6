"""What a flow declares, as the modules see it that check it and write it down: they stand below `Flow`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from everstep.graph.author.node import Node
from everstep.graph.compile.plan import Plan
from everstep.model.budgets import Budget
from everstep.model.durability import Durability
from everstep.model.retention import Retention

if TYPE_CHECKING:
    from everstep.graph.limits import AnyLimit
    from everstep.model.breakers import Breaker


class ReadFrom:
    """What a flow remembers of the IR that it was read from, so that it can be written again."""

    def __init__(self, ir: Any, names: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        self.ir = ir
        self.names = names
        """What was looked up, by its place in the flow."""
        self.found = found
        """What was found, by its name."""


class Definition(Protocol):
    """The fields of a flow, each as `Flow` documents it."""

    name: str
    version: str
    nodes: tuple[Any, ...]
    """Nodes; of a draft perhaps something else."""
    edges: tuple[tuple[str, str], ...]
    entry: tuple[str, ...]
    tasks: tuple[Node, ...]
    channel: dict[str, Any] | None
    rules: tuple[Callable[..., Any], ...]
    durability: Durability
    retention: Retention | None
    streams: bool
    logs: bool
    pin_version: bool
    budgets: tuple[Budget, ...]
    breakers: tuple[Breaker, ...]
    max_steps: int
    max_visits: int | None
    max_concurrency: int | None
    max_running: int | None
    max_per_group: int | None
    limits: tuple[AnyLimit, ...]
    auto_checkpoint: int | None
    plan: Plan
    read_from: ReadFrom | None

    @property
    def profiles(self) -> Mapping[str, Any]: ...
