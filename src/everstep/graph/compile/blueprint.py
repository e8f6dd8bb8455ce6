"""A plan read back from the store: enough to fold a chain, not to run it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from everstep.errors import EverstepError, FlowError, StateCorrupted
from everstep.graph.author.joins import JoinNode
from everstep.graph.author.node import Gate, IfElse, MapSpec, Node, Param
from everstep.graph.author.subflow import Subflow
from everstep.graph.author.wiring import Join, JoinKind, JoinSpec, MemberSpec, Policy, PolicyKind
from everstep.graph.check.hints import UNKNOWN
from everstep.graph.compile.plan import Plan
from everstep.model.enums import OnError
from everstep.model.shapes import understood

_KEPT, _LARGE = 16, 64 * 1024
"""How many plans are kept that were read lately, and bytes from which on a structure is read each time."""


class _Group(msgspec.Struct):
    members: list[tuple[str, list[str], list[str]]]
    join: tuple[str, int]
    policy: tuple[str, list[str], int]


class _NodeShape(msgspec.Struct):
    name: str
    kind: str
    inputs: list[tuple[str, bool]]
    outputs: list[str]
    targets: list[str] = []
    multi: bool = False
    params: list[str] | None = None
    over: tuple[list[str], str, str] | None = None
    inner_outputs: list[str] = []
    group: _Group | None = None
    flow: _Blueprint | None = None
    atomic: bool = False
    exports: dict[str, str] = {}
    select: list[str] = []
    must_lift: bool = False
    halts: str | None = None


STRUCTURE: Final = frozenset(_NodeShape.__struct_fields__)
"""What the core knows of a node's structure; anything else is a front end's, by namespace."""


class _Blueprint(msgspec.Struct):
    entry: list[str]
    nodes: list[dict[str, Any]]
    edges: list[tuple[str, str]] = []
    tasks: list[str] = []
    channel: list[str] = []
    pinned: str | None = None


def plan_of(blueprint: bytes) -> Plan:
    """Build a plan without bodies."""
    return _plan(msgspec.json.decode(blueprint, type=understood(_Blueprint)))


def read_plan(blueprint: bytes, flow_id: str) -> Plan:
    """Build a plan without bodies from what a store keeps; `StateCorrupted` if that is no structure.

    Who reads the same again gets the same plan: it is only looked at.
    """
    try:
        return plan_of(blueprint) if len(blueprint) > _LARGE else _read_lately(blueprint)
    except (EverstepError, msgspec.DecodeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise StateCorrupted(f"the structure of flow {flow_id!r} cannot be read: {error}.") from error


@lru_cache(maxsize=_KEPT)
def _read_lately(blueprint: bytes) -> Plan:
    return plan_of(blueprint)


def _plan(shape: _Blueprint) -> Plan:
    nodes = [_node_of(n) for n in shape.nodes]
    return Plan(
        nodes,
        shape.entry,
        edges=shape.edges,
        tasks=shape.tasks,
        channel=shape.channel,
        pinned=shape.pinned,
    )


def _node_of(said: Mapping[str, Any]) -> Node:
    node = _core_of(msgspec.convert(said, understood(_NodeShape)))
    if not said.keys() <= STRUCTURE:
        node.extension = {name: data for name, data in said.items() if name not in STRUCTURE}
    return node


def _core_of(shape: _NodeShape) -> Node:
    node: Node
    if shape.group is not None:
        return JoinNode(_spec_of(shape.name, shape.group))
    if shape.flow is not None:
        inner = _plan(shape.flow)
        inputs = [(name, required, UNKNOWN) for name, (_, required) in _named(shape)]
        node = Subflow(inner, name=shape.name, inputs=inputs, is_atomic=shape.atomic, select=shape.select)
        node.exports, node.must_lift = shape.exports, shape.must_lift
        node.outputs = tuple(shape.outputs)
    elif shape.kind == "node":
        node = _PLAIN.with_name(shape.name)
        node.outputs = tuple(shape.outputs)
        node.identifier, node.is_built_in = shape.halts or "", bool(shape.halts)
    elif shape.kind == "ifelse":
        when_true, when_false = shape.targets
        node = IfElse(_no_body, when_true, when_false, name=shape.name, output=shape.outputs)
    else:
        node = Gate(_no_body, shape.targets, multi=shape.multi, name=shape.name, output=shape.outputs)
    node.halts = shape.halts is not None
    node.params = tuple(Param(name, source, required, UNKNOWN) for name, (source, required) in _named(shape))
    if shape.over is not None:
        params, mode, on_error = shape.over
        node.over = MapSpec(tuple(params), mode, OnError(on_error), 1)
        node.inner_outputs = tuple(shape.inner_outputs)
    return node


def _named(shape: _NodeShape) -> list[tuple[str, tuple[str, bool]]]:
    names = shape.params if shape.params is not None else [source for source, _ in shape.inputs]
    return list(zip(names, shape.inputs, strict=True))


def _spec_of(name: str, group: _Group) -> JoinSpec:
    members = tuple(MemberSpec(n, tuple(nodes), tuple(last)) for n, nodes, last in group.members)
    kind, names, count = group.policy
    join = Join(cast(JoinKind, group.join[0]), group.join[1])
    return JoinSpec(name, members, join, Policy(cast(PolicyKind, kind), tuple(names), count))


def _no_body(**_: object) -> None:
    raise FlowError("this plan was read from a store and has no functions to call.")


_PLAIN: Final = Node(_no_body)
"""What plain nodes are copied from: to look at the signature of a function costs more than all the rest."""
