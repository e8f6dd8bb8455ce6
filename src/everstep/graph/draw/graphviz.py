"""Nodes and edges as text for Graphviz that reads back as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

import msgspec

from everstep.errors import BadRequest
from everstep.model.durations import spell

Scalar = str | int | float | bool | timedelta

KEYWORDS: Final = frozenset({"node", "edge", "graph", "digraph", "subgraph", "strict"})
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)")
_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|-?[0-9]+(?:\.[0-9]+)?")


class SketchNode(msgspec.Struct, frozen=True):
    id: str
    attributes: Mapping[str, Scalar] = {}


class SketchEdge(msgspec.Struct, frozen=True):
    tail: str
    head: str
    attributes: Mapping[str, Scalar] = {}


class SketchGroup(msgspec.Struct, frozen=True):
    """A subgraph; a name that begins with `cluster` gets a box."""

    name: str
    nodes: tuple[str, ...]
    attributes: Mapping[str, Scalar] = {}


class Sketch(msgspec.Struct, frozen=True):
    """What is to be written: attributes by key, in the order given."""

    name: str
    nodes: tuple[SketchNode, ...] = ()
    edges: tuple[SketchEdge, ...] = ()
    groups: tuple[SketchGroup, ...] = ()
    attributes: Mapping[str, Scalar] = {}
    node_defaults: Mapping[str, Scalar] = {}
    edge_defaults: Mapping[str, Scalar] = {}


def to_text(sketch: Sketch) -> str:
    """Return DOT text; what it is read back as has these nodes, edges, groups and attributes."""
    return "\n".join(_lines(sketch)) + "\n"


def string_text(raw: str) -> str:
    r"""Return what is between quotes as Graphviz reads it: `\"` is a quote, `\` joins a line to the next."""
    if '\\"' not in raw and "\\\n" not in raw and "\\\r" not in raw:
        return raw
    return "\\\\".join(_resolved(part) for part in raw.split("\\\\"))


def _resolved(part: str) -> str:
    part = part.replace('\\"', '"')
    return part.replace("\\\r\n", "").replace("\\\n", "").replace("\\\r", "")


def quoted(text: str) -> str:
    r"""Return a string that reads back as this text: quotes, backslashes, tabs and line ends escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def spelled_id(id_: str) -> str:
    """Return an id as it is written: bare if it can be, else in quotes."""
    if _NUMBER.fullmatch(id_) or (_WORD.fullmatch(id_) and id_.lower() not in KEYWORDS):
        return id_
    # An id keeps its backslashes as they are, so not every text can be one.
    raw = id_.replace('"', '\\"')
    if string_text(raw) != id_ or (len(raw) - len(raw.rstrip("\\"))) % 2:
        raise BadRequest(f"{id_!r} cannot be an id in DOT.", fix="Leave backslashes out, and use a label.")
    return f'"{raw}"'


def spelled_value(value: Scalar) -> str:
    """Return a value as it is written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return quoted(spell(value))
    text = value if isinstance(value, str) else repr(value)
    if _BARE.fullmatch(text) and text.lower() not in KEYWORDS:
        return text
    return quoted(text)


def _lines(sketch: Sketch) -> Iterator[str]:
    yield f"digraph {spelled_id(sketch.name)} {{" if sketch.name else "digraph {"
    for key, value in sketch.attributes.items():
        yield f"  {spelled_id(key)}={spelled_value(value)};"
    for kind, defaults in (("node", sketch.node_defaults), ("edge", sketch.edge_defaults)):
        if defaults:
            yield f"  {kind}{_list(defaults)};"
    for node in sketch.nodes:
        yield f"  {spelled_id(node.id)}{_list(node.attributes)};"
    for group in sketch.groups:
        yield f"  subgraph {spelled_id(group.name)} {{" if group.name else "  {"
        for key, value in group.attributes.items():
            yield f"    {spelled_id(key)}={spelled_value(value)};"
        for id_ in group.nodes:
            yield f"    {spelled_id(id_)};"
        yield "  }"
    for edge in sketch.edges:
        yield f"  {spelled_id(edge.tail)} -> {spelled_id(edge.head)}{_list(edge.attributes)};"
    yield "}"


def _list(attributes: Mapping[str, Scalar]) -> str:
    if not attributes:
        return ""
    return " [" + ", ".join(f"{spelled_id(k)}={spelled_value(v)}" for k, v in attributes.items()) + "]"
