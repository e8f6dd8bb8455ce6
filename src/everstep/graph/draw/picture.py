"""Where each node of a flow stands: from its declared structure alone, so nothing moves while a run goes on.

Flows inside it are frames around their nodes, or one box each while they are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from everstep.graph.author.joins import JoinNode
from everstep.graph.author.node import Gate, Node
from everstep.graph.compile.plan import Plan
from everstep.graph.draw.connections import ENDS, Edge, EdgeKind, edges_within, first_nodes
from everstep.graph.draw.outline import order_within
from everstep.graph.draw.placing import Line, place
from everstep.model.records import INPUTS

FOLDED_FROM, MOST_SHOWN, NEAR = 300, 2_000, 300
"""Above so many nodes inner flows start folded; above so many shown, only so many near one are."""

END_MARK: Final = "@end"
"""The name of the mark where gates of a flow end it."""

Kind = Literal["node", "gate", "wait", "map", "subflow", "join", "input", "end"]
Place = Annotated[int, Meta(ge=0)]


class DrawnNode(msgspec.Struct, frozen=True, kw_only=True):
    """One box: a node, a folded flow, or the mark of the inputs or of an end."""

    path: str
    name: str
    kind: Kind
    around: str
    """The path of the flow it is in; empty at the top."""
    x: Place
    y: Place
    """Its left top."""
    width: Place
    height: Place
    order: Place
    """Where it stands in the outline of the flow: upstream first."""
    is_folded: bool
    """True if it has a flow inside that is not shown."""
    inside: Place
    """How many nodes are inside it, at any depth."""
    left_out: Place
    """How many of its neighbours are not drawn."""


class DrawnGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A flow inside a flow that is open: the frame around its nodes."""

    path: str
    name: str
    kind: Kind
    around: str
    x: Place
    y: Place
    width: Place
    height: Place
    order: Place
    inside: Place
    left_out: Place


class DrawnEdge(msgspec.Struct, frozen=True, kw_only=True):
    """What leads from one node, or frame, to another of the same flow."""

    source: str
    target: str
    kind: EdgeKind
    label: str
    """The names of the values, or the choice of the gate."""
    is_back: bool
    """True if it closes a loop."""
    points: list[tuple[Place, Place]]
    """Where it runs: straight, but curved between points that differ in both, and upright at both ends."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Where the nodes and edges of a flow stand."""

    width: Place
    height: Place
    total: Place
    """How many nodes there are, at any depth."""
    shown: Place
    """How many of them are drawn."""
    is_cut: bool
    """True if only those near one node are drawn."""
    centre: str | None
    """The path of that node."""
    nodes: list[DrawnNode]
    groups: list[DrawnGroup]
    edges: list[DrawnEdge]


def picture_of(
    plan: Plan, *, opened: Collection[str] | None = None, around: str | None = None, all_open: bool = False
) -> Picture:
    """Draw a flow. Which inner flows are open is said by their paths; by default all are, in a small flow.

    Those whose steps are not recorded one by one, maps and atomic flows, are open only if that is said.
    """
    total = count_nodes(plan)
    if all_open:
        opens = _always
    elif opened is not None:
        opens = _Named(opened)
    else:
        opens = _never if total > FOLDED_FROM else _is_stepwise
    top = _Level(plan, "", 0, opens)
    shown = sum(len(level.members) for level in top.levels())
    centre = None
    if shown > MOST_SHOWN:
        centre = top.keep_near(around)
        shown = sum(len(level.members) for level in top.levels())
    return top.picture(total, shown, centre)


def count_nodes(plan: Plan) -> int:
    """Count the nodes of a flow at any depth, those of one without functions, too."""
    found, todo = 0, [plan]
    while todo:
        here = todo.pop()
        found += len(here.nodes)
        todo += [child.plan for child in here.children.values() if not child.is_leaf]
    return found


Opens = Callable[[str, Node], bool]


def _always(path: str, node: Node) -> bool:
    return True


def _never(path: str, node: Node) -> bool:
    return False


def _is_stepwise(path: str, node: Node) -> bool:
    return node.over is None and not node.is_atomic


class _Named:
    def __init__(self, paths: Collection[str]) -> None:
        self._paths = {part for path in paths for part in _prefixes(path)}

    def __call__(self, path: str, node: Node) -> bool:
        return path in self._paths


def _prefixes(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[: k + 1]) for k in range(len(parts)))


_PADDING, _HEAD = 18, 30
"""The room between a frame and its nodes, and for its name."""
_HIGH, _LOW, _LETTER = 44, 28, 7.3


class _Level:
    """One flow of the picture, with the open ones inside it."""

    def __init__(self, plan: Plan, prefix: str, order: int, opens: Opens) -> None:
        self.plan = plan
        self.prefix = prefix
        self.around = prefix[:-1]
        """The path of the node that it is in; empty at the top."""
        self.first = order
        self.members = order_within(plan)
        self.inner: dict[int, _Level] = {}
        self.inside: dict[int, int] = {}
        self.order: dict[int, int] = {}
        self.neighbours: dict[int, set[int]] | None = None
        """Of all nodes, if only some are kept."""
        for i in self.members:
            self.order[i] = order
            order += 1
            child = plan.children.get(i)
            if child is not None and not child.is_leaf:
                path = self.path(i)
                if opens(path, plan.nodes[i]):
                    self.inner[i] = _Level(child.plan, f"{path}/", order, opens)
                    self.inside[i] = self.inner[i].total
                else:
                    self.inside[i] = count_nodes(child.plan)
                order += self.inside[i]
        self.total: int = len(self.members) + sum(self.inside.values())

    def path(self, i: int) -> str:
        return self.prefix + self.plan.paths[i]

    def levels(self) -> Iterator[_Level]:
        todo = [self]
        while todo:
            here = todo.pop()
            yield here
            todo += reversed(here.inner.values())

    def keep_near(self, around: str | None) -> str:
        """Keep the nodes near one, nearest first, and the flows they are in; return the path of that one."""
        start, level = self._find(around)
        kept: dict[int, set[int]] = {}
        home = {id(inner): (outer, i) for outer in self.levels() for i, inner in outer.inner.items()}
        near: dict[int, dict[int, set[int]]] = {}
        left = NEAR
        coming = [(level, start)]
        while coming and left > 0:
            following: list[tuple[_Level, int]] = []
            for here, i in coming:
                seen = kept.setdefault(id(here), set())
                if i in seen or left <= 0:
                    continue
                seen.add(i)
                left -= 1
                if id(here) not in near:
                    near[id(here)] = here._neighbours()
                following += [(here, j) for j in sorted(near[id(here)][i], key=here.order.__getitem__)]
                if id(here) in home:
                    following.append(home[id(here)])
                if i in here.inner:
                    following += [(here.inner[i], j) for j in here.inner[i].members]
            coming = following
        for here in list(self.levels()):
            seen = kept.get(id(here), set())
            here.neighbours = near.get(id(here), {})
            here.members = [i for i in here.members if i in seen]
            here.inner = {i: inner for i, inner in here.inner.items() if kept.get(id(inner))}
        return level.path(start)

    def _find(self, path: str | None) -> tuple[int, _Level]:
        """Return a node by its path: the nearest one around it that is drawn, else the first of all."""
        level, found = self, (self.members[0], self)
        for name in path.split("/") if path else ():
            i = level.plan.index.get(name)
            if i is None:
                break
            found = (i, level)
            if i not in level.inner:
                break
            level = level.inner[i]
        return found

    def _neighbours(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {i: set() for i in self.members}
        for u, v in edges_within(self.plan):
            if u != v and u in found and v in found:
                found[u].add(v)
                found[v].add(u)
        return found

    def picture(self, total: int, shown: int, centre: str | None) -> Picture:
        """Place the flow and all in it."""
        laid, drawn = _Laid(self), _Drawn()
        drawn.add(laid, 0, 0)
        return Picture(
            width=round(laid.placed.width),
            height=round(laid.placed.height),
            total=total,
            shown=shown,
            is_cut=centre is not None,
            centre=centre,
            nodes=drawn.nodes,
            groups=drawn.groups,
            edges=drawn.edges,
        )


class _Laid:
    """A level with the sizes of what is in it, inner ones first."""

    def __init__(self, level: _Level) -> None:
        self.level = level
        plan, prefix = level.plan, level.prefix
        self.inner = {i: _Laid(inner) for i, inner in level.inner.items()}
        self.members = list(level.members)
        number = {i: k for k, i in enumerate(self.members)}
        edges = {
            (u, v): edge
            for (u, v), edge in edges_within(plan).items()
            if u in number and (v in number or v == ENDS)
        }
        self.sizes = [self._size(i) for i in self.members]
        self.marks: dict[int, str] = {}
        """The marks of inputs and of an end, by the number of their box."""
        self.edges: list[tuple[int, int, Edge]] = []
        if not prefix:
            begins = first_nodes(plan, edges)
            firsts = [i for i in self.members if i in begins]
            if firsts and level.neighbours is None:
                box = self._mark(INPUTS)
                for i in firsts:
                    names = [name for name in plan.sources[i] if name in plan.free_inputs]
                    kind: EdgeKind = "value" if names else "order"
                    self.edges.append((box, number[i], Edge(kind, dict.fromkeys(names))))
        if any(v == ENDS for _, v in edges):
            number[ENDS] = self._mark(prefix + END_MARK)
        self.edges += [(number[u], number[v], edge) for (u, v), edge in edges.items()]
        # Each choice has a line of its own, but the many that end a flow would hide the others.
        self.placed = place(
            self.sizes,
            [
                Line(u, v, edge.is_back, edge.kind == "choice" and v not in self.marks)
                for u, v, edge in self.edges
            ],
        )

    def _mark(self, path: str) -> int:
        self.marks[len(self.sizes)] = path
        self.sizes.append((64 if path == INPUTS else 48, _LOW))
        return len(self.sizes) - 1

    def _size(self, i: int) -> tuple[float, float]:
        node = self.level.plan.nodes[i]
        text = _LETTER * len(node.name)
        if i in self.inner:
            placed = self.inner[i].placed
            return max(placed.width, text + 30) + 2 * _PADDING, placed.height + 2 * _PADDING + _HEAD
        if isinstance(node, JoinNode):
            return min(max(72, text + 26), 240), _LOW
        return min(max(104, text + 34), 240), _HIGH


def _kind(node: Node) -> Kind:
    if isinstance(node, JoinNode):
        return "join"
    if isinstance(node, Gate):
        return "gate"
    if node.over is not None:
        return "map"
    if isinstance(node.inner, Plan):
        return "subflow"
    return "wait" if node.halts else "node"


class _Drawn:
    """What is drawn so far, in the coordinates of the whole."""

    def __init__(self) -> None:
        self.nodes: list[DrawnNode] = []
        self.groups: list[DrawnGroup] = []
        self.edges: list[DrawnEdge] = []

    def add(self, laid: _Laid, x: float, y: float) -> None:
        """Draw a level with its left top here, and those inside it."""
        for k, (left, top) in enumerate(laid.placed.corners):
            told = _box(laid, k, x + left, y + top)
            i = laid.members[k] if k < len(laid.members) else None
            inner = None if i is None else laid.inner.get(i)
            if inner is None:
                self.nodes.append(DrawnNode(**told, is_folded=i in laid.level.inside))
                continue
            self.groups.append(DrawnGroup(**told))
            within = (laid.sizes[k][0] - inner.placed.width) / 2
            self.add(inner, x + left + within, y + top + _HEAD + _PADDING)
        names = [*map(laid.level.path, laid.members), *laid.marks.values()]
        self.edges += [
            DrawnEdge(
                source=names[u],
                target=names[v],
                kind=edge.kind,
                label=", ".join(edge.labels),
                is_back=edge.is_back,
                points=[(round(x + a), round(y + b)) for a, b in points],
            )
            for (u, v, edge), points in zip(laid.edges, laid.placed.lines, strict=True)
        ]


def _box(laid: _Laid, k: int, x: float, y: float) -> dict[str, Any]:
    """Return what is told of a node, a frame and a mark alike."""
    level, (width, height) = laid.level, laid.sizes[k]
    told = {"x": round(x), "y": round(y), "width": round(width), "height": round(height)}
    if k in laid.marks:
        kind = "input" if laid.marks[k] == INPUTS else "end"
        order = level.order[level.members[0]] if kind == "input" else level.first + level.total
        names = {"path": laid.marks[k], "name": "inputs" if kind == "input" else kind, "kind": kind}
        return names | told | {"around": level.around, "order": order, "inside": 0, "left_out": 0}
    i = laid.members[k]
    near = () if level.neighbours is None else level.neighbours.get(i, ())
    return told | {
        "path": level.path(i),
        "name": level.plan.paths[i],
        "kind": _kind(level.plan.nodes[i]),
        "around": level.around,
        "order": level.order[i],
        "inside": level.inside.get(i, 0),
        "left_out": sum(j not in level.members for j in near),
    }
