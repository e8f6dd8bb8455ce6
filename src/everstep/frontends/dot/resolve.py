"""A syntax tree to nodes and edges: defaults applied where they hold, chains and subgraphs taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from everstep.frontends.dot.attributes import Attributes
from everstep.frontends.dot.parser import parse
from everstep.frontends.dot.source import Limits, Position, Problems, Source
from everstep.frontends.dot.tree import (
    Attribute,
    Defaults,
    EdgeStatement,
    Graph,
    NodeRef,
    NodeStatement,
    Statement,
    Subgraph,
    Value,
)

_NO_CLASS: Final = re.compile(r"[^\w-]|_")
_SEPARATORS: Final = re.compile(r"[\s,]+")


class ResolvedNode(msgspec.Struct, frozen=True, gc=False):
    """A node with what holds for it."""

    id: str
    """As Graphviz knows it; an id in angle brackets keeps them."""
    attributes: Attributes
    classes: tuple[str, ...]
    """Those of its attribute `class`, then those from labels of the subgraphs it is in, outer ones first."""
    at: int
    """The offset of its first mention."""
    declared_at: int | None
    """The offset of its first statement of its own; None if only edges mention it."""
    declared_again_at: int | None = None
    """The offset of the first later statement that gives it another value for an attribute."""


class Edge(msgspec.Struct, frozen=True, gc=False):
    """An edge with what holds for it."""

    tail: str
    head: str
    attributes: Attributes
    at: int
    """The offset of its arrow."""
    tail_port: str = ""
    head_port: str = ""


class Group(msgspec.Struct, frozen=True, gc=False):
    """A subgraph."""

    name: str
    attributes: Attributes
    """What was set inside it, not what it takes over."""
    class_: str
    """What its label is as a class; empty without one."""
    nodes: tuple[str, ...]
    parent: int | None
    """Its place in `Digraph.groups` of the one it is in; None at the top."""
    at: int


class Digraph(msgspec.Struct, frozen=True):
    """A pipeline as its text describes it: everything in the order of declaration."""

    name: str
    is_strict: bool
    attributes: Attributes
    nodes: Mapping[str, ResolvedNode]
    edges: tuple[Edge, ...]
    groups: tuple[Group, ...]
    source: Source

    def place(self, of: ResolvedNode | Edge | Group) -> Position:
        """Return the line and the column of something."""
        return self.source.place(of.at)


def read(text: str | bytes, file: str = "", *, limits: Limits | None = None) -> Digraph:
    """Return the nodes and edges of a DOT text, or raise `DotError` with everything that is wrong with it."""
    return resolve(parse(text, file, limits=limits), limits=limits)


def resolve(graph: Graph, *, limits: Limits | None = None) -> Digraph:
    """Return the nodes and edges of a syntax tree; `DotError` only if they are more than the limits allow."""
    return _Resolver(graph, limits or Limits()).digraph()


def class_of(label: str) -> str:
    """Return the class that the label of a subgraph stands for: `"Loop A (new)"` is `loop-a-new`."""
    return _NO_CLASS.sub("", re.sub(r"\s", "-", label.lower()))


class _Scope:
    """A subgraph, or the graph itself, with the defaults that hold in it."""

    def __init__(self, name: str, parent: _Scope | None, number: int, at: int) -> None:
        self.name = name
        self.parent = parent
        self.number = number
        self.at = at
        self.own: dict[str, dict[str, Attribute]] = {"node": {}, "edge": {}}
        self.defaults: dict[str, dict[str, Attribute]] = {"node": {}, "edge": {}}
        """Own and outer ones together; never changed once it was handed out."""
        self.attributes: dict[str, Attribute] = {}
        self.members: dict[str, None] = {}
        self.named: dict[str, _Scope] = {}

    def enter(self) -> int:
        """Take over what holds outside, and return how much that was; one opened again keeps its own."""
        copied = 0
        if self.parent is not None:
            for kind, outer in self.parent.defaults.items():
                own = self.own[kind]
                self.defaults[kind] = held = {**outer, **own} if own else outer
                copied += len(held) if own else 0
        return copied


class _Draft:
    """A node or an edge while its attributes are collected."""

    __slots__ = ("again_at", "at", "declared_at", "defaults", "own")

    def __init__(self, at: int, defaults: dict[str, Attribute]) -> None:
        self.at = at
        self.declared_at: int | None = None
        self.again_at: int | None = None
        self.defaults = defaults
        self.own: dict[str, Attribute] = {}


class _EdgeDraft(_Draft):
    __slots__ = ("head", "tail")

    def __init__(self, at: int, defaults: dict[str, Attribute], tail: NodeRef, head: NodeRef) -> None:
        super().__init__(at, defaults)
        self.tail = tail
        self.head = head


class _Resolver:
    def __init__(self, graph: Graph, limits: Limits) -> None:
        self._graph = graph
        self._source = graph.source
        self._limits = limits
        self._entries = 0
        self._joins = 0
        self._nodes: dict[str, _Draft] = {}
        self._order: dict[str, int] = {}
        self._edges: list[_EdgeDraft] = []
        self._keyed: dict[tuple[str, str, str], _EdgeDraft] = {}
        self._scopes = [_Scope(_id(graph.name) if graph.name else "", None, -1, graph.at)]

    def digraph(self) -> Digraph:
        stack = [self._body(self._scopes[0], self._graph.statements)]
        while stack:
            inner = next(stack[-1], None)
            if inner is None:
                stack.pop()
            else:
                stack.append(self._body(*inner))
        root = self._scopes[0]
        groups = tuple(self._group(scope) for scope in self._scopes[1:])
        derived: dict[str, list[str]] = {}
        for group in groups:
            if group.class_:
                for name in group.nodes:
                    derived.setdefault(name, []).append(group.class_)
        nodes = {name: self._node(name, draft, derived.get(name, ())) for name, draft in self._nodes.items()}
        return Digraph(
            root.name,
            self._graph.is_strict,
            Attributes(self._source, root.attributes),
            MappingProxyType(nodes),
            tuple(self._edge(draft) for draft in self._edges),
            groups,
            self._source,
        )

    def _body(
        self, scope: _Scope, statements: Sequence[Statement]
    ) -> Iterator[tuple[_Scope, Sequence[Statement]]]:
        """Take in the statements of a scope; yield each scope inside, to be done before going on."""
        self._spend(scope.enter(), scope.at)
        for statement in statements:
            match statement:
                case NodeStatement():
                    for ref in statement.nodes:
                        draft = self._mention(scope, ref.name)
                        if draft.declared_at is None:
                            draft.declared_at = ref.name.at
                        elif draft.again_at is None and _contradicts(draft.own, statement.attributes):
                            draft.again_at = ref.name.at
                        self._set(draft.own, statement.attributes, ref.name.at)
                case EdgeStatement():
                    sides: list[_Scope | tuple[NodeRef, ...]] = []
                    for end in statement.ends:
                        if isinstance(end, Subgraph):
                            inner = self._inner(scope, end)
                            yield inner, end.statements
                            sides.append(inner)
                        else:
                            for ref in end:
                                self._mention(scope, ref.name)
                            sides.append(end)
                    self._join_all(scope, statement, sides)
                case Subgraph():
                    yield self._inner(scope, statement), statement.statements
                case Attribute():
                    self._set(scope.attributes, (statement,), statement.key.at)
                case Defaults(kind="graph"):
                    self._set(scope.attributes, statement.attributes, statement.at)
                case Defaults():
                    self._set_defaults(scope, statement)

    def _inner(self, scope: _Scope, subgraph: Subgraph) -> _Scope:
        name = _id(subgraph.name) if subgraph.name else ""
        if name and name in scope.named:
            return scope.named[name]
        if len(self._scopes) > self._limits.groups:
            self._refuse(subgraph.at, f"more than {self._limits.groups:,} subgraphs.")
        inner = _Scope(name, scope, len(self._scopes) - 1, subgraph.at)
        self._scopes.append(inner)
        if name:
            scope.named[name] = inner
        return inner

    def _set(self, into: dict[str, Attribute], attributes: tuple[Attribute, ...], at: int) -> None:
        self._spend(len(attributes), at)
        for attribute in attributes:
            into[attribute.key.text] = attribute

    def _set_defaults(self, scope: _Scope, said: Defaults) -> None:
        self._set(scope.own[said.kind], said.attributes, said.at)
        held = dict(scope.defaults[said.kind])
        self._spend(len(held), said.at)
        self._set(held, said.attributes, said.at)
        scope.defaults[said.kind] = held

    def _mention(self, scope: _Scope, name: Value) -> _Draft:
        key = _id(name)
        draft = self._nodes.get(key)
        if draft is None:
            if len(self._nodes) >= self._limits.nodes:
                self._refuse(name.at, f"more than {self._limits.nodes:,} nodes.")
            draft = self._nodes[key] = _Draft(name.at, scope.defaults["node"])
            self._order[key] = len(self._order)
        outer: _Scope | None = scope
        # A node of a subgraph is one of all that are around it, so the first that has it ends the walk.
        while outer is not None and outer.parent is not None and key not in outer.members:
            outer.members[key] = None
            self._spend(1, name.at)
            outer = outer.parent
        return draft

    def _join_all(
        self, scope: _Scope, statement: EdgeStatement, sides: list[_Scope | tuple[NodeRef, ...]]
    ) -> None:
        sizes = [len(side.members) if isinstance(side, _Scope) else len(side) for side in sides]
        pairs = [(k, k + 1) for k in range(len(sides) - 1) if sizes[k] and sizes[k + 1]]
        self._joins += sum(sizes[k] * sizes[j] for k, j in pairs)
        if self._joins > self._limits.edges:
            self._refuse(statement.at, f"more than {self._limits.edges:,} edges.")
        ends = {k: self._refs(sides[k]) for k in {k for pair in pairs for k in pair}}
        key = next((a.value.text for a in reversed(statement.attributes) if a.key.text == "key"), None)
        for k, j in pairs:
            arrow = statement.arrows[k]
            for tail in ends[k]:
                for head in ends[j]:
                    draft = self._join(scope, arrow, tail, head, key)
                    self._set(draft.own, statement.attributes, arrow)

    def _refs(self, side: _Scope | tuple[NodeRef, ...]) -> Sequence[NodeRef]:
        if not isinstance(side, _Scope):
            return side
        names = sorted(side.members, key=self._order.__getitem__)
        return [NodeRef(_value(name)) for name in names]

    def _join(self, scope: _Scope, arrow: int, tail: NodeRef, head: NodeRef, key: str | None) -> _EdgeDraft:
        """Return a new edge, or in a strict graph, or of the same key, the one there is."""
        is_same_again = self._graph.is_strict or key is not None
        mark = (_id(tail.name), _id(head.name), "" if self._graph.is_strict or key is None else key)
        if is_same_again and mark in self._keyed:
            return self._keyed[mark]
        draft = _EdgeDraft(arrow, scope.defaults["edge"], tail, head)
        self._edges.append(draft)
        if is_same_again:
            self._keyed[mark] = draft
        return draft

    def _merged(self, draft: _Draft) -> Attributes:
        if not draft.own or not draft.defaults:
            return Attributes(self._source, draft.own or draft.defaults)
        merged = {**draft.defaults, **draft.own}
        self._spend(len(merged), draft.at)
        return Attributes(self._source, merged)

    def _node(self, name: str, draft: _Draft, derived: Iterable[str]) -> ResolvedNode:
        attributes = self._merged(draft)
        listed = _SEPARATORS.split(attributes["class"].plain) if "class" in attributes else ()
        classes = tuple(dict.fromkeys(c for c in (*listed, *derived) if c))
        return ResolvedNode(name, attributes, classes, draft.at, draft.declared_at, draft.again_at)

    def _edge(self, draft: _EdgeDraft) -> Edge:
        tail, head = draft.tail, draft.head
        ends = _id(tail.name), _id(head.name)
        return Edge(*ends, self._merged(draft), draft.at, tail.port, head.port)

    def _group(self, scope: _Scope) -> Group:
        attributes = Attributes(self._source, scope.attributes)
        parent = scope.parent.number if scope.parent and scope.parent.number >= 0 else None
        derived = class_of(attributes.text("label", ""))
        nodes = tuple(sorted(scope.members, key=self._order.__getitem__))
        return Group(scope.name, attributes, derived, nodes, parent, scope.at)

    def _spend(self, count: int, at: int) -> None:
        self._entries += count
        if self._entries > self._limits.entries:
            self._refuse(at, f"more than {self._limits.entries:,} attributes and members of subgraphs.")

    def _refuse(self, at: int, message: str) -> None:
        problems = Problems(self._source)
        problems.add(at, "dot.limit", message, "Split the pipeline into several.")
        problems.raise_if_any()


def _contradicts(own: Mapping[str, Attribute], later: Iterable[Attribute]) -> bool:
    found = ((own.get(attribute.key.text), attribute.value) for attribute in later)
    return any(earlier is not None and earlier.value.text != value.text for earlier, value in found)


def _id(name: Value) -> str:
    return f"<{name.text}>" if name.form == "html" else name.text


def _value(id_: str) -> Value:
    return Value(id_, "word", 0, 0)
