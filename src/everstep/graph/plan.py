"""A flow compiled for running: nodes by number, who reads what, who waits for whom."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from everstep.errors import FlowError
from everstep.graph.hints import UNKNOWN
from everstep.graph.loops import Graph, order
from everstep.graph.node import END, Gate, Node, Param


class Plan:
    """The wiring of a flow, worked out once. Nodes are known by their position in the flow."""

    def __init__(self, nodes: Sequence[Node], entry: Sequence[str]) -> None:
        self.nodes = tuple(nodes)
        self.index = {n.name: i for i, n in enumerate(self.nodes)}
        self.paths = tuple(n.name for n in self.nodes)
        self.writers: dict[str, tuple[int, ...]] = _gather(
            (o, i) for i, n in enumerate(self.nodes) for o in n.outputs
        )
        self.readers: dict[str, tuple[int, ...]] = _gather(
            (p.source, i) for i, n in enumerate(self.nodes) for p in n.params
        )
        self.required = tuple(frozenset(p.source for p in n.params if p.required) for n in self.nodes)
        self.sources = tuple(tuple(p.source for p in n.params) for n in self.nodes)
        self.needed_by: dict[str, tuple[int, ...]] = _gather(
            (name, i) for i, names in enumerate(self.required) for name in sorted(names)
        )
        self.is_target = [False] * len(self.nodes)
        for gate in self.nodes:
            if isinstance(gate, Gate):
                for target in gate.targets:
                    if target != END:
                        self.is_target[self.index[target]] = True
        self.entry = tuple(self.index[name] for name in entry)
        self.graph = self._edges()
        found = order(self.graph, self._heads)
        self.blockers = [found.blockers[i] for i in range(len(self.nodes))]
        self.loops = found.loops
        self.looping = frozenset(found.looping)
        self.rewritten = frozenset(
            name for name, ws in self.writers.items() if len(ws) > 1 or any(w in self.looping for w in ws)
        )
        """Names that may get more than one version."""
        self.sole_reader = frozenset(name for name, rs in self.readers.items() if len(set(rs)) == 1)
        self.free_inputs = frozenset(name for name in self.readers if name not in self.writers)
        """Names that only a run's inputs can give."""
        self.seeds = frozenset(
            name
            for name, ws in self.writers.items()
            if all(w in self.looping or self.is_target[w] for w in ws)
        )
        """Names that nodes write, but for which a run may bring the first value."""
        self.has_visit_limits = any(n.max_visits is not None for n in self.nodes)
        self.blueprint = msgspec.json.encode(
            {"entry": list(entry), "nodes": [n.describe() for n in self.nodes]}
        )
        """The structure as bytes: names and wiring, no bodies. `plan_of` reads it back."""
        self.hash = hash_of(self.blueprint)

    def _edges(self) -> Graph:
        graph: Graph = {i: set() for i in range(len(self.nodes))}
        for name, writers in self.writers.items():
            for w in writers:
                graph[w].update(self.readers.get(name, ()))
        for i, gate in enumerate(self.nodes):
            if isinstance(gate, Gate):
                graph[i].update(self.index[t] for t in gate.targets if t != END)
        return graph

    def _heads(self, members: Sequence[int]) -> Sequence[int]:
        """Where a loop begins: at an entry, else where a gate outside leads in, else at its first target."""
        inside = set(members)
        targets = [m for m in members if self.is_target[m]]
        entries = [m for m in targets if m in self.entry]
        if entries:
            return entries
        led_in = [
            t
            for t in targets
            if any(
                t in self.graph[g] and isinstance(self.nodes[g], Gate) for g in self.graph if g not in inside
            )
        ]
        return led_in or targets[:1]

    def unreachable_inputs(self, given: frozenset[str]) -> dict[str, tuple[str, ...]]:
        """Return the names that must be given but are not, each with the nodes that read it."""
        available = set(given)
        settled: set[int] = set()
        changed = True
        while changed:
            changed = False
            for i, n in enumerate(self.nodes):
                if i not in settled and self.required[i] <= available:
                    settled.add(i)
                    available.update(n.outputs)
                    changed = True
        missing: dict[str, list[str]] = {}
        for i, n in enumerate(self.nodes):
            for name in sorted(self.required[i] - available):
                if (
                    i in self.entry
                    or name in self.free_inputs
                    or (i not in settled and self._is_root_gap(name, available))
                ):
                    missing.setdefault(name, []).append(n.name)
        return {name: tuple(readers) for name, readers in missing.items()}

    def can_start(self, given: frozenset[str]) -> bool:
        """True if at least one node is ready when a run begins with these inputs."""
        return any(self.is_target[i] for i in self.entry) or any(
            names <= given and not self.is_target[i] for i, names in enumerate(self.required)
        )

    def _is_root_gap(self, name: str, available: set[str]) -> bool:
        """True if a name is missing in its own right: its writers wait for nothing else that is."""
        return name in self.seeds and all(
            self.required[w] - available <= {name} for w in self.writers.get(name, ())
        )


def _gather(pairs: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    out: dict[str, list[int]] = {}
    for name, i in pairs:
        out.setdefault(name, []).append(i)
    return {name: tuple(indexes) for name, indexes in out.items()}


def hash_of(blueprint: bytes) -> str:
    """Return the name under which a structure is kept."""
    return hashlib.sha256(blueprint).hexdigest()[:32]


class _NodeShape(msgspec.Struct):
    name: str
    kind: str
    inputs: list[tuple[str, bool]]
    outputs: list[str]
    targets: list[str] = []
    multi: bool = False


class _Blueprint(msgspec.Struct):
    entry: list[str]
    nodes: list[_NodeShape]


def plan_of(blueprint: bytes) -> Plan:
    """Build a plan without bodies: enough to fold a chain, not to run it."""
    shape = msgspec.json.decode(blueprint, type=_Blueprint)
    return Plan([_node_of(n) for n in shape.nodes], shape.entry)


def _node_of(shape: _NodeShape) -> Node:
    if shape.kind == "node":
        node = Node(_no_body, name=shape.name, output=shape.outputs)
    else:
        node = Gate(_no_body, shape.targets, multi=shape.multi, name=shape.name, output=shape.outputs)
    node.params = tuple(Param(source, source, required, UNKNOWN) for source, required in shape.inputs)
    return node


def _no_body(**_: object) -> None:
    raise FlowError("this plan was read from a store and has no functions to call.")


def differences(stored: bytes, present: bytes) -> str:
    """Say which nodes came, went or changed between two blueprints."""
    old, new = ({n.name: n for n in msgspec.json.decode(b, type=_Blueprint).nodes} for b in (stored, present))
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    parts = [
        f"added {sorted(new.keys() - old.keys())}" if new.keys() - old.keys() else "",
        f"removed {sorted(old.keys() - new.keys())}" if old.keys() - new.keys() else "",
        f"rewired {changed}" if changed else "",
    ]
    return ", ".join(p for p in parts if p) or "another order or entry"
