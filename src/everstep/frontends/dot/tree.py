"""What a DOT text says, as it says it: statements in their order, each with its offset in the text."""

from __future__ import annotations

from typing import Literal

import msgspec

from everstep.frontends.dot.source import Source

Form = Literal["word", "number", "string", "html"]


class Value(msgspec.Struct, frozen=True, gc=False):
    """A name or a value: what Graphviz reads it as, and how it was written."""

    text: str
    """Without its quotes; of the escapes only those of quotes and line ends are resolved, as in Graphviz."""
    form: Form
    at: int
    end: int

    @property
    def plain(self) -> str:
        r"""The text as a person means it: in a string `\n`, `\t` and `\\` are what they are elsewhere."""
        if self.form != "string" or "\\" not in self.text:
            return self.text
        if "\\n" not in self.text and "\\t" not in self.text:
            return self.text.replace("\\\\", "\\")
        parts = self.text.split("\\\\")
        return "\\".join(part.replace("\\n", "\n").replace("\\t", "\t") for part in parts)


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """`key=value`, in brackets or as a statement."""

    key: Value
    value: Value


class Defaults(msgspec.Struct, frozen=True):
    """`graph [...]`, `node [...]` or `edge [...]`."""

    kind: Literal["graph", "node", "edge"]
    attributes: tuple[Attribute, ...]
    at: int


class NodeRef(msgspec.Struct, frozen=True, gc=False):
    """A node as an end of an edge or on its own, perhaps with a port."""

    name: Value
    port: str = ""
    """`port`, `port:compass` or `compass`."""


class NodeStatement(msgspec.Struct, frozen=True):
    """`a`, `a [...]` or `a, b [...]`."""

    nodes: tuple[NodeRef, ...]
    attributes: tuple[Attribute, ...]
    at: int


class Subgraph(msgspec.Struct, frozen=True):
    """`subgraph name {...}` or `{...}`."""

    name: Value | None
    statements: tuple[Statement, ...]
    at: int


End = tuple[NodeRef, ...] | Subgraph
"""What stands on one side of an arrow."""


class EdgeStatement(msgspec.Struct, frozen=True):
    """`a -> b -> {c d} [...]`."""

    ends: tuple[End, ...]
    arrows: tuple[int, ...]
    """The offset of each arrow."""
    attributes: tuple[Attribute, ...]
    at: int


Statement = Attribute | Defaults | NodeStatement | EdgeStatement | Subgraph


class Graph(msgspec.Struct, frozen=True):
    """A whole text: `digraph name {...}`."""

    name: Value | None
    is_strict: bool
    statements: tuple[Statement, ...]
    at: int
    source: Source
