"""A flow with the flows inside it laid open: every node that is a step of its own, and what leads where.

An atomic flow is one step, so it is one leaf; of a map its function is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from everstep.graph.author.joins import JoinNode
from everstep.graph.author.node import END, Gate, Node
from everstep.graph.compile.plan import Plan


class Leaf(msgspec.Struct, frozen=True):
    """A node that is a step of its own."""

    path: str
    node: Node
    tasks: tuple[int, ...]
    """What it may ask for, as a node with a context can."""

    @property
    def is_join(self) -> bool:
        return isinstance(self.node, JoinNode)


class Leaves:
    """The leaves of a plan and the edges between them, by number; upstream first where the plan has it so."""

    def __init__(self, plan: Plan) -> None:
        self.nodes: list[Leaf] = []
        self.after: list[dict[int, None]] = []
        """Who follows: by a value, by choice of a gate, or by an edge drawn by hand."""
        _Part(self, plan, "")

    def add(self, path: str, node: Node) -> int:
        self.nodes.append(Leaf(path, node, ()))
        self.after.append({})
        return len(self.nodes) - 1

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield every edge once."""
        return ((u, v) for u, targets in enumerate(self.after) for v in targets)

    def behind(self, starts: Iterable[int]) -> set[int]:
        """Return these leaves and everything that may come after them."""
        found = set(starts)
        todo = list(found)
        asked: set[tuple[int, ...]] = set()
        while todo:
            here = todo.pop()
            coming = list(self.after[here])
            tasks = self.nodes[here].tasks
            if tasks and tasks not in asked:
                asked.add(tasks)
                coming += tasks
            for nxt in coming:
                if nxt not in found:
                    found.add(nxt)
                    todo.append(nxt)
        return found


class _Part:
    """One flow among the leaves: which of them stand for each of its nodes."""

    def __init__(self, leaves: Leaves, plan: Plan, prefix: str) -> None:
        self._leaves = leaves
        self._plan = plan
        self._places: list[int | _Part] = []
        for n in plan.nodes:
            if isinstance(n.inner, Plan) and not n.is_atomic:
                self._places.append(_Part(leaves, n.inner, f"{prefix}{n.name}/"))
            else:
                self._places.append(leaves.add(prefix + n.name, n))
        self._let_ask()
        self._connect()

    def _let_ask(self) -> None:
        tasks = tuple(t for i in sorted(self._plan.tasks) for t in self._first(i, None))
        for i, n in enumerate(self._plan.nodes):
            k = self._places[i]
            if tasks and n.context_param is not None and isinstance(k, int):
                self._leaves.nodes[k] = msgspec.structs.replace(self._leaves.nodes[k], tasks=tasks)

    def _connect(self) -> None:
        plan = self._plan
        for name, writers in plan.writers.items():
            for w in writers:
                for r in plan.readers.get(name, ()):
                    self._join(self._last(w, name), self._first(r, name))
        for i, gate in enumerate(plan.nodes):
            for target in gate.targets if isinstance(gate, Gate) else ():
                if target != END:
                    self._join(self._last(i, None), self._first(plan.index[target], None))
        for i, targets in plan.follows.items():
            for t in targets:
                self._join(self._last(i, None), self._first(t, None))

    def _join(self, before: Iterable[int], after: Iterable[int]) -> None:
        listed = list(after)
        for u in before:
            self._leaves.after[u].update(dict.fromkeys(listed))

    def _first(self, i: int, name: str | None) -> Iterator[int]:
        """Yield the leaves of a node that read a value; without a name, those with which it begins."""
        place = self._places[i]
        if isinstance(place, int):
            yield place
            return
        inner = place._plan
        if name is None:
            led = {v for targets in inner.graph.values() for v in targets}
            found: Iterable[int] = [k for k in inner.graph if k not in led] or inner.graph
            for k in found:
                yield from place._first(k, None)
            return
        for p in self._plan.nodes[i].params:
            if p.source == name:
                for r in inner.readers.get(p.name, ()):
                    yield from place._first(r, p.name)

    def _last(self, i: int, name: str | None) -> Iterator[int]:
        """Yield the leaves of a node that write a value; without a name, those with which it ends."""
        place = self._places[i]
        if isinstance(place, int):
            yield place
            return
        inner = place._plan
        if name is None:
            found: Iterable[int] = [k for k, after in inner.graph.items() if not after] or inner.graph
            for k in found:
                yield from place._last(k, None)
            return
        for source, outer in self._plan.nodes[i].exports.items():
            if outer == name:
                for w in inner.writers.get(source, ()):
                    yield from place._last(w, source)
