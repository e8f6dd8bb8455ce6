"""A flow compiled for running: nodes by number, who reads what, who waits for whom."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from everstep.graph.author.joins import JoinNode
from everstep.graph.author.node import END, Gate, MapSpec, Node
from everstep.graph.compile.loops import Graph, Order, UncutLoop, bits, mask_of, order, reachable
from everstep.model.enums import Persist
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from hashlib import sha256
else:
    sha256 = on_demand("hashlib:sha256")  # OpenSSL, which the first flow needs

DEEPEST: Final = 50
"""How many flows may be inside each other."""


class FlowLimits(NamedTuple):
    """How far one flow may go."""

    max_steps: int = 10_000
    max_visits: int | None = None
    max_concurrency: int | None = None


class Child(msgspec.Struct, frozen=True):
    """What lies inside a node: an inner flow, or the function that a map calls for each item."""

    plan: Plan
    is_leaf: bool
    """True if there is no flow inside, only the node's own function, once per item."""
    is_atomic: bool
    over: MapSpec | None
    exports: Mapping[str, str]
    """Outer names by the inner names they are lifted from."""
    selected: frozenset[str]
    """Inner names that a result shows."""
    must_lift: bool
    """True if a lifted name that was not written is an error."""
    persists: Mapping[str, Persist] = {}
    """How an atomic flow keeps what it lifts, by inner name, where the nodes that write it say so."""


class Member(msgspec.Struct, frozen=True):
    """One branch of a group, as bit masks."""

    name: str
    nodes: int
    last: int
    joins: tuple[int, ...]
    """The joins of the groups inside it."""


class Meeting(msgspec.Struct, frozen=True):
    """Where the branches of a group meet."""

    members: tuple[Member, ...]
    need: int | None
    """How many must succeed before it goes on; none if all must have ended."""
    cancels: bool
    everyone: int
    """The nodes of all branches."""
    tolerates: bool
    """True if the failure of a branch is the group's affair, not at once the run's."""


class Plan:
    """The wiring of a flow, worked out once. Nodes are known by their position in the flow."""

    def __init__(
        self,
        nodes: Sequence[Node],
        entry: Sequence[str] = (),
        *,
        edges: Sequence[tuple[str, str]] = (),
        tasks: Sequence[str] = (),
        channel: Iterable[str] = (),
        limits: FlowLimits = FlowLimits(),  # noqa: B008  an immutable tuple
        key_types: Mapping[str, Any] | None = None,
        around: Mapping[str, str] | None = None,
        pinned: str | None = None,
    ) -> None:
        self.pinned = pinned
        """The version that its runs stay with, so that each version is a structure of its own."""
        self.nodes = tuple(nodes)
        self.limits = limits
        self.index = {n.name: i for i, n in enumerate(self.nodes)}
        self.paths = tuple(n.name for n in self.nodes)
        self.writers: dict[str, tuple[int, ...]] = _gather(
            (o, i) for i, n in enumerate(self.nodes) for o in n.outputs
        )
        self._read_wiring(edges, tasks)
        self.keys = {**(around or {}), **{key: key for key in channel}}
        """Inputs that keys of the channel may give: those declared here, and those of flows around."""
        self._read_inputs()
        self.entry = tuple(self.index[name] for name in entry)
        self._read_children()
        self._read_meetings()
        self._read_fed()
        self.is_wired = bool(self.follows)
        self.is_special = [
            i in self.meetings or i in self.fed or bool(self.channelled[i]) for i in range(len(self.nodes))
        ]
        """True for a node that gets more than the values of its inputs."""
        self.graph = self._edges()
        found = self._order()
        self.blockers = [found.blockers[i] for i in range(len(self.nodes))]
        self.excuses = self._excuses()
        self.loops = found.loops
        self.looping = frozenset(found.looping)
        self.rewritten = frozenset(
            name for name, ws in self.writers.items() if len(ws) > 1 or any(self._may_return(w) for w in ws)
        )
        """Names that may get more than one version."""
        self.sole_reader = frozenset(name for name, rs in self.readers.items() if len(set(rs)) == 1)
        self.free_inputs = frozenset(name for name in self.readers if name not in self.writers)
        """Names that only a run's inputs, or its channel, can give."""
        self.channel = frozenset(channel)
        """The declared keys of the channel; if there are none, any key may be used."""
        self.key_types = key_types
        """The same with their types; none if no keys are declared."""
        self.seeds = frozenset(
            name
            for name, ws in self.writers.items()
            if all(w in self.looping or w in self.edge_driven or self.is_target[w] for w in ws)
        )
        """Names that nodes write, but for which a run may bring the first value."""
        self.has_visit_limits = any(n.max_visits is not None for n in self.nodes)
        self.shape: dict[str, Any] = {
            "entry": list(entry),
            "nodes": [n.describe() for n in self.nodes],
            **({"edges": [list(e) for e in edges]} if edges else {}),
            **({"tasks": sorted(tasks)} if tasks else {}),
            **({"channel": sorted(channel)} if channel else {}),
            **({"pinned": pinned} if pinned is not None else {}),
        }
        self.blueprint = msgspec.json.encode(self.shape)
        """The structure as bytes: names and wiring, no bodies. `plan_of` reads it back."""
        self.hash = hash_of(self.blueprint)

    @cached_property
    def deep(self) -> tuple[tuple[str, Node], ...]:
        """Every node at any depth, with its path."""
        return tuple(deep_nodes(self))

    @cached_property
    def findings(self) -> dict[Hashable, Any]:
        """What checks have found that look at nothing but this plan, which does not change."""
        return {}

    def _read_wiring(self, edges: Sequence[tuple[str, str]], tasks: Sequence[str]) -> None:
        self.tasks = frozenset(self.index[name] for name in tasks)
        """Nodes that run only when a node asks for them."""
        self.follows: dict[int, tuple[int, ...]] = _gather((self.index[a], self.index[b]) for a, b in edges)
        """Control edges: who comes next."""
        self.is_led = [False] * len(self.nodes)
        """True for a node that runs only once a node before it has arrived."""
        for targets in self.follows.values():
            for t in targets:
                self.is_led[t] = True
        self.is_target = [i in self.tasks for i in range(len(self.nodes))]
        """True for a node that runs once per choice of a gate, or per task."""
        for gate in self.nodes:
            if isinstance(gate, Gate):
                for target in gate.targets:
                    if target != END:
                        self.is_target[self.index[target]] = True

    def _read_inputs(self) -> None:
        self.readers: dict[str, tuple[int, ...]] = _gather(
            (p.source, i) for i, n in enumerate(self.nodes) for p in n.params
        )
        self.sources = tuple(tuple(p.source for p in n.params) for n in self.nodes)
        self.channelled = tuple(
            frozenset(
                p.source
                for p in n.params
                if p.source not in self.writers
                and (n.over is None or p.name not in n.over.params)
                and (p.source in self.keys or ((self.is_led[i] or i in self.tasks) and n.inner is None))
            )
            for i, n in enumerate(self.nodes)
        )
        """Inputs that the channel may give when the node starts: no node writes them."""
        self.required = tuple(
            frozenset(p.source for p in n.params if p.required) - self.channelled[i]
            for i, n in enumerate(self.nodes)
        )
        self.lacking = [len(names) for names in self.required]
        """How many values each node needs before it can start."""
        self.needed_by: dict[str, tuple[int, ...]] = _gather(
            (name, i) for i, names in enumerate(self.required) for name in sorted(names)
        )

    def _read_children(self) -> None:
        nodes = self.nodes
        self.children = {i: _child_of(n, self._keys_for(i)) for i, n in enumerate(nodes) if n.inner or n.over}
        inner = (child.plan.depth for child in self.children.values() if not child.is_leaf)
        self.depth: int = 1 + max(inner, default=-1)
        """How many flows are inside each other."""
        self.has_effects = self.has_limits = self.has_undo = False
        """True if a node at any depth is effectful, has a limit of its supplier, or says how it is undone."""
        for n in nodes:
            within: Plan | None = n.inner
            self.has_effects |= n.is_effectful or (within is not None and within.has_effects)
            self.has_limits |= n.limit is not None or (within is not None and within.has_limits)
            self.has_undo |= n.undo is not None or (within is not None and within.has_undo)
        self.has_asides = any(n.halts or n.announces or n.goes_on or n.expensive for n in nodes)
        """True if a node here may wait, stream, or want a record of its own."""
        self.has_kept_at_once = any(
            n.is_kept_at_once or (n.inner is not None and n.inner.has_kept_at_once) for n in nodes
        )
        """True if a node at any depth is not to be made a second time."""

    def _keys_for(self, i: int) -> dict[str, str]:
        """Return the keys that may fill what is inside a node, by what they are called there."""
        params = (p for p in self.nodes[i].params if p.source in self.channelled[i])
        return {p.name: self.keys.get(p.source, p.source) for p in params}

    def inside(self, around: Mapping[str, str]) -> Plan:
        """Return the same structure where keys of flows around it may fill its inputs."""
        if not around:
            return self
        shape = self.shape
        return Plan(
            self.nodes,
            shape["entry"],
            edges=[(a, b) for a, b in shape.get("edges", ())],
            tasks=shape.get("tasks", ()),
            channel=shape.get("channel", ()),
            limits=self.limits,
            key_types=self.key_types,
            around=around,
        )

    def _read_meetings(self) -> None:
        self.meetings: dict[int, Meeting] = {}
        self.meets_at: dict[int, tuple[int, ...]] = {}
        """For each node of a branch, the joins that its branch leads to."""
        found: list[tuple[str, int]] = []
        for j, n in enumerate(self.nodes):
            if isinstance(n, JoinNode):
                branches = [(m, dict.fromkeys((*m.nodes, *m.last))) for m in n.spec.members]
                members = tuple(
                    Member(m.name, self._mask(names), self._mask(m.last), self._joins(names))
                    for m, names in branches
                )
                everyone = 0
                for m in members:
                    everyone |= m.nodes
                self.meetings[j] = Meeting(members, n.need, n.cancels, everyone, n.tolerates)
                found += [(name, j) for _, names in branches for name in names]
        self.meets_at = {self.index[name]: joins for name, joins in _gather(found).items()}

    def _read_fed(self) -> None:
        """Find the values that nodes right behind a join read from the branches of the group."""
        self.fed: dict[int, dict[str, tuple[int, int]]] = {}
        """Per node, the join and the branch that a value comes from."""
        loose: set[tuple[str, int]] = set()
        for j, meeting in self.meetings.items():
            for k, member in enumerate(meeting.members):
                names = {o for m in bits(member.nodes) for o in self.nodes[m].outputs}
                for i in self.follows.get(j, ()):
                    read = names & set(self.sources[i])
                    if read:
                        self.fed.setdefault(i, {}).update(dict.fromkeys(read, (j, k)))
                    if meeting.need is not None:
                        loose.update((name, i) for name in read)
        self.wakes = {
            name: tuple(i for i in readers if (name, i) not in loose)
            for name, readers in self.readers.items()
        }
        """Who runs again when a value changes: not a node behind an early join, for what comes too late."""
        self.watched = tuple(
            tuple(name for name in names if (name, i) not in loose) for i, names in enumerate(self.sources)
        )

    def _may_return(self, i: int) -> bool:
        """True if a run may come to a node more than once."""
        can_ask = self.nodes[i].context_param is not None
        return i in self.looping or i in self.tasks or self.is_led[i] or can_ask

    def _mask(self, names: Iterable[str]) -> int:
        return mask_of(self.index[name] for name in names)

    def _joins(self, names: Iterable[str]) -> tuple[int, ...]:
        found = (self.index[name] for name in names)
        return tuple(i for i in found if isinstance(self.nodes[i], JoinNode))

    def _edges(self) -> Graph:
        graph: Graph = {i: set() for i in range(len(self.nodes))}
        for name, writers in self.writers.items():
            for w in writers:
                graph[w].update(self.readers.get(name, ()))
        for i, gate in enumerate(self.nodes):
            if isinstance(gate, Gate):
                graph[i].update(self.index[t] for t in gate.targets if t != END)
        for i, targets in self.follows.items():
            graph[i].update(targets)
        gates = (i for i, n in enumerate(self.nodes) if isinstance(n, Gate))
        self._gates_before: dict[int, tuple[int, ...]] = _gather((t, i) for i in gates for t in graph[i])
        return graph

    def _order(self) -> Order:
        """Work out who waits for whom, and which nodes behind an edge no value wakes.

        A circle of values that no gate can leave is none where a node in it stands behind an edge: that node
        runs each time the edge is gone along, and takes what there is by then.
        """
        driven: set[int] = set()
        while True:
            try:
                found = order(self.graph, self._heads)
                break
            except UncutLoop as loop:
                fresh = self._cut_values(set(loop.members))
                if not fresh:
                    raise
                driven |= fresh
        self.edge_driven = frozenset(driven)
        """Nodes that run only when an edge, a gate or a task leads to them, whatever is written meanwhile."""
        for i in driven:
            self.watched = tuple(() if k == i else names for k, names in enumerate(self.watched))
        if driven:
            self.wakes = {name: tuple(i for i in rs if i not in driven) for name, rs in self.wakes.items()}
        return found

    def _cut_values(self, members: set[int]) -> set[int]:
        """Take the edges out of a circle that only values make, where they lead to nodes behind `>>`."""
        found: set[int] = set()
        for i in members:
            for w in members if self.is_led[i] else ():
                if i in self.graph[w] and i not in self.follows.get(w, ()):
                    self.graph[w].discard(i)
                    found.add(i)
        return found

    def _excuses(self) -> dict[int, dict[int, int]]:
        """Work out which nodes are no longer waited for once an early join has gone on.

        For each node behind the join, the nodes of the branches that stand in its way only through the join,
        or by what they write for the nodes right behind it.
        """
        found: dict[int, dict[int, int]] = {}
        early = {j: meeting for j, meeting in self.meetings.items() if meeting.need is not None}
        if not early:
            return found
        onward = {u: {v for v in vs if self.blockers[v] >> u & 1} for u, vs in self.graph.items()}
        for j, meeting in early.items():
            behind = {*self.follows.get(j, ()), j}
            members = set(bits(meeting.everyone))
            apart = {u: vs - behind if u in members else vs for u, vs in onward.items()}
            reach = {m: reachable(apart, m) for m in members}
            for i in reachable(onward, j) - {j}:
                found.setdefault(i, {})[j] = mask_of(m for m in members if i not in reach[m])
        return found

    def _heads(self, members: Sequence[int]) -> Sequence[int]:
        """Where a loop begins: at an entry, else where a gate outside leads in, else at its first target."""
        inside = set(members)
        targets = [m for m in members if self.is_target[m]]
        entries = [m for m in targets if m in self.entry]
        if entries:
            return entries
        led_in = [t for t in targets if any(g not in inside for g in self._gates_before.get(t, ()))]
        return led_in or targets[:1]

    def params_of(self, name: str) -> tuple[str, ...] | None:
        """Return the parameters of a node that may be asked for, or none if there is no such node."""
        i = self.index.get(name)
        return None if i is None or i in self.meetings else tuple(p.name for p in self.nodes[i].params)

    def unreachable_inputs(self, given: frozenset[str]) -> dict[str, tuple[str, ...]]:
        """Return the names that must be given but are not, each with the nodes that read it."""
        available = set(given)
        reached: set[int] = set()
        changed = True
        while changed:
            changed = False
            for i, n in enumerate(self.nodes):
                if i not in reached and self.required[i] <= available:
                    reached.add(i)
                    available.update(n.outputs)
                    changed = True
        missing: dict[str, list[str]] = {}
        for i, n in enumerate(self.nodes):
            if i in self.tasks:  # who asks for it brings its arguments
                continue
            for name in sorted(self.required[i] - available):
                if (
                    i in self.entry
                    or name in self.free_inputs
                    or (i not in reached and self._is_root_gap(name, available))
                ):
                    missing.setdefault(name, []).append(n.name)
        return {name: tuple(readers) for name, readers in missing.items()}

    def is_entry(self, i: int) -> bool:
        """True for a node that a run begins at: `entry` counts as its first choice, or its first arrival."""
        return i in self.entry and (self.is_target[i] or (self.is_led[i] and i in self.looping))

    def can_start(self, given: frozenset[str]) -> bool:
        """True if at least one node is ready when a run begins with these inputs."""
        return any(self.is_entry(i) for i in self.entry) or any(
            names <= given and not self.is_target[i] and not self.is_led[i]
            for i, names in enumerate(self.required)
        )

    def first_values(self, given: frozenset[str]) -> set[str]:
        """Return what nodes write and a run may bring, for lack of which a node waits."""
        waiting = (
            names for i, names in enumerate(self.required) if not self.is_target[i] and not self.is_led[i]
        )
        return {name for names in waiting for name in names - given if name in self.seeds}

    def _is_root_gap(self, name: str, available: set[str]) -> bool:
        """True if a name is missing in its own right: its writers wait for nothing else that is."""
        return name in self.seeds and all(
            self.required[w] - available <= {name} for w in self.writers.get(name, ())
        )


def _child_of(node: Node, around: Mapping[str, str]) -> Child:
    if node.inner is None:
        plan = Plan([node.alone()], around=around)
        names = {o: o for o in node.inner_outputs}
        exports = dict(zip(node.inner_outputs, node.outputs, strict=True))
        return Child(plan, True, False, node.over, exports, frozenset(names), False)
    assert isinstance(node.inner, Plan)
    persists = _persists(node) if node.is_atomic else {}
    plan = node.inner.inside(around)
    return Child(
        plan, False, node.is_atomic, node.over, node.exports, node.selected, node.must_lift, persists
    )


def _persists(node: Node) -> dict[str, Persist]:
    """Return how the nodes inside a flow want what it lifts to be kept, as far as they say so."""
    found: dict[str, Persist] = {}
    for inner in node.exports:
        for w in node.inner.writers[inner]:
            writer, child = node.inner.nodes[w], node.inner.children.get(w)
            said = writer.persist
            if child is not None and not child.is_leaf:
                below = {outer: name for name, outer in child.exports.items()}
                said = _persists(writer).get(below[inner], Persist.AUTO)
            if said in (Persist.INLINE, Persist.REF):
                found[inner] = said
    return found


def may_be_transient(plan: Plan, name: str) -> bool:
    """True if a node that writes this value, at any depth, says that it need not be kept."""
    for w in plan.writers.get(name, ()):
        child = plan.children.get(w)
        if child is None or child.is_leaf:
            is_it = plan.nodes[w].may_be_transient
        else:
            is_it = any(
                may_be_transient(child.plan, inner) for inner, outer in child.exports.items() if outer == name
            )
        if is_it:
            return True
    return False


def _gather(pairs: Iterable[tuple[str, int]] | Iterable[tuple[int, int]]) -> dict:  # type: ignore[type-arg]
    out: dict[object, list[int]] = {}
    for name, i in pairs:
        out.setdefault(name, []).append(i)
    return {name: tuple(indexes) for name, indexes in out.items()}


def all_keys(plan: Plan) -> dict[str, Any]:
    """Return the keys of the channel that a flow and those inside it declare, with their types."""
    found: dict[str, Any] = {}
    for child in plan.children.values():
        found.update(all_keys(child.plan))
    return {**found, **dict.fromkeys(plan.channel, Any), **(plan.key_types or {})}


def hash_of(blueprint: bytes) -> str:
    """Return the name under which a structure is kept."""
    return sha256(blueprint).hexdigest()[:32]


def deep_nodes(plan: Plan, prefix: str = "", *, opens_atomic: bool = True) -> Iterator[tuple[str, Node]]:
    """Yield every node of a plan and of the flows inside it, with its path."""
    for n in plan.nodes:
        yield prefix + n.name, n
        if isinstance(n.inner, Plan) and (opens_atomic or not n.is_atomic):
            yield from deep_nodes(n.inner, f"{prefix}{n.name}/", opens_atomic=opens_atomic)
