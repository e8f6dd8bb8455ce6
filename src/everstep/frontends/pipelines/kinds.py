"""What each node of a pipeline is, in either of the two dialects that pipelines are written in.

The same shapes mean different things in them. In the *round* one both ends of a pipeline are ellipses, and
`hexagon` is parallel, `house` a person, `component` a tool. In the *square* one a pipeline goes from
`Mdiamond` to `Msquare`, and `hexagon` is a person, `component` parallel, `house` another pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from everstep.errors import DotError
from everstep.frontends.dot.conditions import Dialect as Grammar
from everstep.frontends.dot.conditions import Key, parse_condition
from everstep.frontends.dot.resolve import Digraph, ResolvedNode
from everstep.frontends.pipelines.findings import Findings
from everstep.graph.check.diagnostics import Diagnostic


class Dialect(StrEnum):
    """Which meaning shapes have, and which rules hold where the two differ."""

    ROUND = "round"
    """Ellipses at both ends, statuses such as `SUCCESS`, the long grammar of conditions."""
    SQUARE = "square"
    """From `Mdiamond` to `Msquare`, statuses such as `success`, the short grammar of conditions."""


KINDS: Final = (
    *("start", "exit", "task", "conditional", "human", "parallel", "fan_in", "tool", "subpipeline"),
)
"""What a node can be without a handler of the caller's own."""
TYPES: Final[Mapping[str, str]] = {
    **{kind: kind for kind in KINDS},
    "codergen": "task",
    "wait.human": "human",
    "parallel.fan_in": "fan_in",
    "stack.manager_loop": "subpipeline",
    "manager_loop": "subpipeline",
}
"""The kind that a node's `type` names; any other type is the name of a handler. See also `TERMINAL`."""
TERMINAL: Final = "terminal"
"""The type, and what an ellipse is, of either end; which one is told by its id or its edges."""
START_IDS: Final = ("start", "Start")
EXIT_IDS: Final = ("exit", "Exit", "end", "End")

_SHAPES: Final = {
    "box": "task",
    "diamond": "conditional",
    "Mdiamond": "start",
    "Msquare": "exit",
    "invhouse": "fan_in",
    "tripleoctagon": "fan_in",
    "parallelogram": "tool",
    "tab": "subpipeline",
}
_AMBIGUOUS: Final[Mapping[Dialect, Mapping[str, str]]] = {
    Dialect.ROUND: {"hexagon": "parallel", "house": "human", "component": "tool", "ellipse": TERMINAL},
    Dialect.SQUARE: {"hexagon": "human", "house": "subpipeline", "component": "parallel", "ellipse": "task"},
}
_CLEAR_SHAPES: Final = {
    "invhouse": Dialect.ROUND,
    **dict.fromkeys(("Mdiamond", "Msquare", "tripleoctagon", "parallelogram"), Dialect.SQUARE),
}
_CLEAR_ON_A_SHAPE: Final = {
    ("component", "tool_command"): Dialect.ROUND,
    ("hexagon", "join_policy"): Dialect.ROUND,
    ("hexagon", "k"): Dialect.ROUND,
    ("house", "timeout_action"): Dialect.ROUND,
    ("hexagon", "human.default_choice"): Dialect.SQUARE,
    ("component", "join_policy"): Dialect.SQUARE,
    ("component", "max_parallel"): Dialect.SQUARE,
    ("house", "stack.child_dotfile"): Dialect.SQUARE,
}
_HINTS: Final = {
    **dict.fromkeys(("k", "timeout_action", "retry_backoff", "retry_jitter"), Dialect.ROUND),
    **dict.fromkeys(("title", "version", "fallback"), Dialect.ROUND),
    **dict.fromkeys(("tool_command", "human.default_choice", "max_parallel", "prompt"), Dialect.SQUARE),
    **dict.fromkeys(("auto_status", "allow_partial", "fallback_retry_target"), Dialect.SQUARE),
    **dict.fromkeys(("default_max_retries", "default_max_retry", "stack.child_dotfile"), Dialect.SQUARE),
    **dict.fromkeys(("loop_restart", "thread_id"), Dialect.SQUARE),
}


class Kinds(Mapping[str, str]):
    """The kind of every node by its id, and how that was found."""

    def __init__(self, dialect: Dialect, kinds: Mapping[str, str], problems: Iterable[Diagnostic]) -> None:
        self.dialect = dialect
        self.problems = tuple(problems)
        """What was unclear; part of what `lint` says."""
        self._kinds = kinds
        self.starts = tuple(name for name, kind in kinds.items() if kind == "start")
        self.exits = tuple(name for name, kind in kinds.items() if kind == "exit")

    def __getitem__(self, node: str) -> str:
        return self._kinds[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def __repr__(self) -> str:
        return f"Kinds({self.dialect.value}, {dict(self._kinds)!r})"


def dialect_of(digraph: Digraph) -> Dialect:
    """Return the dialect that a pipeline says it is written in, or else the one it looks like."""
    return _Reader(digraph).dialect


def kinds_of(digraph: Digraph) -> Kinds:
    """Return the kind of every node; its `type` has the first word, then its shape, then its id."""
    return _Reader(digraph).kinds()


class _Reader:
    def __init__(self, digraph: Digraph) -> None:
        self._digraph = digraph
        self._findings = Findings(digraph)
        others = [edge for edge in digraph.edges if edge.tail != edge.head]
        self._has_in = {edge.head for edge in others}
        self._has_out = {edge.tail for edge in others}
        self.dialect = self._stated() or self._guessed()

    def kinds(self) -> Kinds:
        kinds = {node.id: self._kind(node) for node in self._digraph.nodes.values()}
        for name, kind in kinds.items():
            if kind == TERMINAL:
                kinds[name] = self._end(self._digraph.nodes[name])
        for kind, ids in (("start", START_IDS), ("exit", EXIT_IDS)):
            if kind not in kinds.values():
                for name in ids:
                    if kinds.get(name) == "task" and "type" not in self._digraph.nodes[name].attributes:
                        kinds[name] = kind
                        break
        return Kinds(self.dialect, kinds, self._findings.found)

    def _stated(self) -> Dialect | None:
        said = self._digraph.attributes.text("dialect", "").strip().lower()
        if not said:
            return None
        if said in set(Dialect):
            return Dialect(said)
        fix = "Write dialect=round (ellipses at both ends) or dialect=square (Mdiamond, Msquare)."
        self._findings.error(
            "pipeline.dialect", None, f"The dialect {said!r:.60} is not known.", fix, "dialect"
        )
        return None

    def _guessed(self) -> Dialect:
        clear: dict[Dialect, tuple[ResolvedNode, str]] = {}
        unclear: list[ResolvedNode] = []
        hints: Counter[Dialect] = Counter()
        for node in self._digraph.nodes.values():
            shape = _shape(node)
            hints.update(_HINTS[key] for key in node.attributes if key in _HINTS)
            if _type(node) or shape is None:
                continue
            found = self._clear(node, shape)
            if found:
                clear.setdefault(found, (node, shape))
            elif shape in ("hexagon", "house", "component"):
                unclear.append(node)
        if len(clear) == 1:
            return next(iter(clear))
        if clear:
            self._say_mixed(clear, unclear)
        for attributes in (self._digraph.attributes, *(edge.attributes for edge in self._digraph.edges)):
            hints.update(_HINTS[key] for key in attributes if key in _HINTS)
        return _most(hints) or _most(self._later_hints()) or Dialect.ROUND

    def _clear(self, node: ResolvedNode, shape: str) -> Dialect | None:
        if shape == "ellipse":
            is_end = (node.id in self._has_in) is not (node.id in self._has_out)
            return Dialect.ROUND if is_end else None
        if shape in _CLEAR_SHAPES:
            return _CLEAR_SHAPES[shape]
        said = (_CLEAR_ON_A_SHAPE.get((shape, key)) for key in node.attributes)
        return next((dialect for dialect in said if dialect), None)

    def _later_hints(self) -> Counter[Dialect]:
        """Count what says least: the grammar of conditions, and ends that only their ids make such."""
        hints = Counter(Dialect.SQUARE for name in (*START_IDS, *EXIT_IDS) if name in self._digraph.nodes)
        for edge in self._digraph.edges:
            try:
                condition = parse_condition(edge.attributes.text("condition", ""))
            except DotError:
                continue
            if condition.root is not None and not isinstance(condition.root, Key):
                hints[Dialect.SQUARE if condition.dialect is Grammar.SHORT else Dialect.ROUND] += 1
        return hints

    def _say_mixed(
        self, clear: Mapping[Dialect, tuple[ResolvedNode, str]], unclear: list[ResolvedNode]
    ) -> None:
        (a, shape), (b, other) = clear[Dialect.ROUND], clear[Dialect.SQUARE]
        message = f"{shape} of {a.id!r} is of the round dialect, and {other} of {b.id!r} of the square one."
        fix = "Write dialect=round or dialect=square in the graph, or give nodes a type."
        if unclear:
            message += f" What {_shape(unclear[0])} of {unclear[0].id!r} means depends on it."
            self._findings.error("pipeline.unclear_shape", unclear[0], message, fix, "shape")
        else:
            self._findings.warning(
                "pipeline.mixed_dialects", max(a, b, key=lambda n: n.at), message, fix, "shape"
            )

    def _kind(self, node: ResolvedNode) -> str:
        said = _type(node)
        if said:
            return said if said == TERMINAL else TYPES.get(said, said)
        shape = _shape(node) or "box"
        return _SHAPES.get(shape) or _AMBIGUOUS[self.dialect].get(shape, "task")

    def _end(self, node: ResolvedNode) -> str:
        """Say which end of the pipeline a node is that can be either."""
        if node.id in START_IDS:
            return "start"
        if node.id in EXIT_IDS:
            return "exit"
        has_in, has_out = node.id in self._has_in, node.id in self._has_out
        if has_in is not has_out:
            return "exit" if has_in else "start"
        what = "both lead to it and away from it" if has_in else "lead neither to it nor away from it"
        self._findings.warning(
            "pipeline.unclear_end",
            node,
            f"{node.id!r} is drawn as an end of the pipeline, but edges {what}.",
            "Give it shape=box if it is a task, or type=start or type=exit.",
            "shape",
        )
        return "task"


def _type(node: ResolvedNode) -> str:
    return node.attributes.text("type", "").strip()


def _shape(node: ResolvedNode) -> str | None:
    shape = node.attributes.text("shape", "").strip()
    return shape or None


def _most(hints: Counter[Dialect]) -> Dialect | None:
    if hints[Dialect.ROUND] == hints[Dialect.SQUARE]:
        return None
    return max(hints, key=hints.__getitem__)
