"""From an IR and a registry to a flow. Apart from `Flow`, which has other ways to be made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from everstep.errors import BadRequest, EverstepError
from everstep.graph.author.definition import Definition, ReadFrom
from everstep.graph.author.flow_options import FLOW_OPTIONS
from everstep.graph.author.node import Node
from everstep.graph.author.node_options import Spelling
from everstep.graph.author.wiring import JoinSpec, Layout
from everstep.graph.compile.plan import DEEPEST
from everstep.graph.ir.check import Checker, Faults
from everstep.graph.ir.names import Json
from everstep.graph.ir.nodes import Nodes, Surfaces
from everstep.graph.ir.options import durability_from_ir, retention_from_ir
from everstep.graph.ir.registry import LookUp, Registry
from everstep.graph.ir.write import JOIN, KEYS, edges_of
from everstep.graph.limits import limit_of_wire
from everstep.graph.tells import Tell
from everstep.model.breakers import Breaker
from everstep.model.budgets import Budget

Entry = tuple[str, dict[str, Json]]

F = TypeVar("F", bound=Definition)


def read(make: Callable[..., F], ir: object, registry: Registry) -> F:
    """Return the flow that an IR describes, or raise `IrInvalid` with everything that is wrong."""
    if not callable(getattr(registry, "get", None)):
        raise BadRequest(f"{registry!r:.60} is no registry.", fix="Give a mapping from identifiers.")
    faults = Faults()
    plain = _as_json(ir, faults)
    name = plain.get("name") if isinstance(plain, dict) else None
    flow = Reader(make, registry, faults).flow(plain, "$", 0) if not faults.found else None
    faults.raise_if_any(f"the IR of {name!r}" if isinstance(name, str) else "the IR")
    assert flow is not None
    return flow


def _as_json(ir: object, faults: Faults) -> Json:
    """Return a private copy."""
    try:
        return json.loads(json.dumps(ir, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        faults.add("ir.shape", "$", f"it is no JSON: {error}.", "Give what json.loads returns.")
        return None


FLOW_READERS: Final[Mapping[Spelling, Callable[[Json], Any]]] = {
    Spelling.PLAIN: lambda ir: ir,
    Spelling.NAMES: lambda ir: ir,
    Spelling.SECONDS: lambda ir: ir,
    Spelling.DURABILITY: durability_from_ir,
    Spelling.RETENTION: retention_from_ir,
    Spelling.BUDGETS: lambda ir: [Budget.of_wire(budget) for budget in ir],
    Spelling.TELLS: lambda ir: [Tell.of_wire(tell) for tell in ir],
    Spelling.REDUCERS: lambda ir: {one["value"]: one["how"] for one in ir},
    Spelling.BREAKERS: lambda ir: [Breaker.of_wire(breaker) for breaker in ir],
    Spelling.LIMITS: lambda ir: [limit_of_wire(limit) for limit in ir],
}
"""How options of a flow are read that need neither its nodes nor a registry."""


class Reader(Generic[F]):
    """Reads flows, one inside the other, and goes on after a fault to find the next."""

    def __init__(self, make: Callable[..., F], registry: Registry, faults: Faults) -> None:
        self._make = make
        self._registry = registry
        self._faults = faults
        self._checker = Checker(faults)

    def flow(self, ir: Json, path: str, depth: int) -> F | None:
        """Return a flow, or none if something is wrong with it or inside it."""
        if depth > DEEPEST:
            self._faults.add("ir.shape", path, f"more than {DEEPEST} flows are inside each other.")
            return None
        before = len(self._faults.found)
        if not self._checker.header(ir, path):
            self._checker_parts(ir, path)
            return None
        entries = self._checker.sound(ir, "nodes", path)
        surfaces = Surfaces(self._checker.sound(ir, "control_surfaces", path), self._faults)
        edges = self._checker.sound(ir, "edges", path)
        look_up = LookUp(self._registry, self._faults)
        nodes = Nodes(look_up, surfaces, self._faults, lambda inner, at: self.flow(inner, at, depth + 1))
        made = [nodes.node(entry, at) for at, entry in entries]
        self._names(ir, entries, surfaces, edges, path)
        options = {
            "channel": self._channel(ir.get("channel"), look_up, path),
            "rules": self._rules(ir, look_up, path),
            "profiles": nodes.profiles or None,
        }
        if len(self._faults.found) > before:
            return None
        layout = _layout(made, edges)
        flow = self._build(ir, layout, options, path)
        if flow is None:
            return None
        self._agrees(flow, edges)
        flow.read_from = ReadFrom(ir, look_up.names, look_up.found)
        return flow

    def _checker_parts(self, ir: Json, path: str) -> None:
        """Say what is wrong with the parts of a flow whose header is no good."""
        for part in ("nodes", "control_surfaces", "edges"):
            if isinstance(ir, dict) and isinstance(ir.get(part), list):
                self._checker.sound(ir, part, path)

    def _build(self, ir: dict[str, Json], layout: Layout, options: dict[str, Any], path: str) -> F | None:
        by_name = {n.name: n for n in layout.nodes if isinstance(n, Node)}
        options["tasks"] = [by_name[name] for name in ir.get("tasks", ())]
        try:
            for option, spec in FLOW_OPTIONS.items():
                *sections, field = spec.ir.split(".")
                said = ir
                for section in sections:
                    said = said.get(section, {})
                if spec.form in FLOW_READERS and field in said:
                    options[option] = FLOW_READERS[spec.form](said[field])
            return self._make(ir["name"], layout, **options)
        except EverstepError as error:
            self._faults.take(error, path)
            return None

    def _channel(self, ir: Json, look_up: LookUp, path: str) -> dict[str, Any] | None:
        if ir is None:
            return None
        return {
            key: look_up.type(hint, f"@channel/{key}", f"{path}.channel.{key}") for key, hint in ir.items()
        }

    def _rules(self, ir: dict[str, Json], look_up: LookUp, path: str) -> list[Any]:
        names = enumerate(ir.get("policies", {}).get("rules", ()))
        return [look_up.function(name, f"@rules/{k}", f"{path}.policies.rules[{k}]") for k, name in names]

    def _names(
        self, ir: dict[str, Json], nodes: list[Entry], surfaces: Surfaces, edges: list[Entry], path: str
    ) -> None:
        """Note names of nodes that the flow does not have, where the flow itself would not."""
        given = ir.get("nodes", ())
        known = {n["alias"] for n in given if isinstance(n, dict) and isinstance(n.get("alias"), str)}
        tasks = [(f"{path}.tasks[{k}]", name) for k, name in enumerate(ir.get("tasks", ()))]
        joins = {entry["alias"] for _, entry in nodes if entry.get("identifier") == JOIN}
        ends = [(f"{at}.{end}", edge[end]) for at, edge in edges for end in ("from", "to")]
        for at, name in [*tasks, *surfaces.named(), *ends]:
            if name not in known:
                self._faults.add(
                    "ir.unknown_node", at, f"there is no node {name!r}.", "Name a node by alias."
                )
        for at, name in tasks:
            if name in joins:
                self._faults.add("ir.unknown_node", at, f"{name!r} is a join, not a task.")
        control = {(edge["from"], edge["to"]) for _, edge in edges if "value" not in edge}
        for at, last, join in surfaces.meetings():
            if (last, join) not in control:
                self._faults.add(
                    "ir.contradiction", at, f"no edge leads from {last!r} to the join {join!r}.", "Add it."
                )

    def _agrees(self, flow: Definition, edges: list[Entry]) -> None:
        """Note edges that the names which nodes read and write do not give."""
        written = {_ends(edge) for edge in edges_of(flow)}
        for at, edge in edges:
            if _ends(edge) not in written:
                message = f"{edge['to']!r} does not read {edge['value']!r} from {edge['from']!r}."
                self._faults.add("ir.contradiction", at, message, "Drop the edge, or fix inputs and outputs.")


def _ends(edge: dict[str, Json]) -> tuple[Json, ...]:
    return tuple(edge.get(field) for field in KEYS["edges"])


def _layout(nodes: Sequence[Node | JoinSpec | None], edges: list[Entry]) -> Layout:
    control = [(edge["from"], edge["to"]) for _, edge in edges if "value" not in edge]
    return Layout(
        tuple(n for n in nodes if isinstance(n, Node)),
        tuple(dict.fromkeys(control)),
        tuple(n for n in nodes if isinstance(n, JoinSpec)),
    )
