"""A digraph to what a pipeline does: the settings of each node, its ways on, where it goes when it fails."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from everstep.frontends.dot.attributes import Attributes
from everstep.frontends.dot.conditions import Condition, parse_condition
from everstep.frontends.dot.resolve import Digraph, Edge, ResolvedNode
from everstep.frontends.dot.stylesheet import StyleSheet, is_inline, parse_stylesheet
from everstep.frontends.pipelines.choice import Way, with_statuses
from everstep.frontends.pipelines.kinds import Dialect, Kinds, kinds_of
from everstep.frontends.pipelines.regions import Wiring, returns_of
from everstep.model.retry import Retry

REDIRECTS: Final = 10
"""How often in a row a failed stage or a goal gate may send a run back, if nothing else is said."""
_UNSAFE: Final = re.compile(r"[/@#%:\x00-\x1f]")
_PRESETS: Final[Mapping[str, tuple[int, float, float]]] = {
    "none": (0, 0.0, 1.0),
    "standard": (4, 0.2, 2.0),
    "aggressive": (4, 0.5, 2.0),
    "linear": (2, 0.5, 1.0),
    "patient": (2, 2.0, 3.0),
}
"""Retries, first pause and factor by the name of a policy."""
_BACKOFFS: Final[Mapping[str, tuple[float, float]]] = {
    "none": (0.0, 1.0),
    "linear": (5.0, 1.0),
    "exponential": (1.0, 2.0),
    "aggressive": (0.1, 3.0),
    "standard": (0.2, 2.0),
    "patient": (2.0, 3.0),
}
"""First pause and factor by the name of a back-off."""
_MODEL: Final = ("llm_model", "llm_provider", "reasoning_effort", "max_tokens", "temperature", "model")


def name_of(node_id: str) -> str:
    """Return what a node of the digraph is called in the flow: its id, but for what paths are made of."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", node_id) or "%"


def word_of(name: str) -> str:
    """Return a node's name as one for a value, which has only letters, digits and `_`."""
    word = re.sub(r"\W", lambda match: f"_x{ord(match[0]):x}_", name)
    return word if word.isidentifier() and not keyword.iskeyword(word) else f"n_{word}"


@dataclass(frozen=True)
class StageSpec:
    """One node of a pipeline, with everything that holds for it."""

    id: str
    kind: str
    label: str
    prompt: str
    attributes: Mapping[str, str]
    ways: tuple[Way, ...]
    retry: Retry
    model: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    allow_partial: bool = False
    is_gate: bool = False
    """True for a goal gate."""
    returns: tuple[str, ...] = ()
    """Where a run goes when the stage fails and no edge is for that, the first first."""
    max_redirects: int = REDIRECTS
    timeout: float | None = None
    timeout_action: str = ""
    fidelity: str = ""
    thread_id: str = ""
    is_expensive: bool = False
    is_destructive: bool = False

    @property
    def name(self) -> str:
        return name_of(self.id)

    def whole(self, key: str, default: int) -> int:
        """Return an attribute that is a whole number."""
        said = self.attributes.get(key, "").strip()
        return int(said) if re.fullmatch(r"\d+", said) else default


@dataclass(frozen=True)
class Pipeline:
    """A digraph read for running."""

    digraph: Digraph
    kinds: Kinds
    specs: Mapping[str, StageSpec]
    start: str
    goal: str
    fidelity: str
    variables: Mapping[str, str]
    """Attributes of the graph, for `$variables`."""

    @property
    def name(self) -> str:
        return self.digraph.name or "pipeline"

    @property
    def dialect(self) -> Dialect:
        return self.kinds.dialect

    @property
    def is_strict(self) -> bool:
        """True if a goal gate is satisfied by nothing less than success, and has to be reached."""
        return self.dialect is Dialect.ROUND

    @cached_property
    def wiring(self) -> Wiring:
        """What leads where."""
        return Wiring(self.digraph, self.kinds)

    @property
    def gates(self) -> list[StageSpec]:
        """The goal gates."""
        return [spec for spec in self.specs.values() if spec.is_gate]


def read_pipeline(
    digraph: Digraph, kinds: Kinds | None = None, *, sheet: Callable[[str], str] | None = None
) -> Pipeline:
    """Return what a digraph does; `DotError` with the place of an attribute that cannot be read.

    `sheet` reads a style sheet that the digraph names by file.
    """
    kinds = kinds if kinds is not None else kinds_of(digraph)
    graph = digraph.attributes
    style = _style(graph, sheet)
    by_tail: dict[str, list[Way]] = {name: [] for name in digraph.nodes}
    for order, edge in enumerate(digraph.edges):
        by_tail[edge.tail].append(_way(edge, order, is_judged=kinds[edge.head] == "conditional"))
    specs = {
        node.id: _spec(node, kinds, graph, tuple(by_tail[node.id]), style) for node in digraph.nodes.values()
    }
    return Pipeline(
        digraph,
        kinds,
        specs,
        kinds.starts[0] if kinds.starts else "",
        graph.text("goal", ""),
        graph.text("default_fidelity", graph.text("fidelity", "")),
        graph.plain(),
    )


def condition_of(attributes: Attributes, key: str = "condition") -> Condition | None:
    """Return a condition with statuses as outcomes spell them; none if there is none."""
    if not attributes.text(key, "").strip():
        return None
    return with_statuses(parse_condition(attributes.passage(key)))


def _style(graph: Attributes, sheet: Callable[[str], str] | None) -> StyleSheet:
    text = graph.text("model_stylesheet", "")
    if is_inline(text):
        return parse_stylesheet(graph.passage("model_stylesheet")) if text.strip() else StyleSheet(())
    return parse_stylesheet(sheet(text)) if sheet is not None else StyleSheet(())


def _way(edge: Edge, order: int, *, is_judged: bool) -> Way:
    said = edge.attributes
    return Way(
        edge.head,
        said.text("label", ""),
        condition_of(said),
        said.number("weight", 0.0),
        said.text("fidelity", ""),
        said.text("thread_id", ""),
        said.flag("loop_restart", False),
        order,
        is_judged,
    )


def _spec(
    node: ResolvedNode, kinds: Kinds, graph: Attributes, ways: tuple[Way, ...], style: StyleSheet
) -> StageSpec:
    said, kind = node.attributes, kinds[node.id]
    model = style.of(node, known=_MODEL)
    timeout: timedelta | None = said.duration("timeout", None)
    return StageSpec(
        node.id,
        kind,
        said.text("label", node.id) or node.id,
        said.text("prompt", said.text("goal", said.text("label", ""))),
        said.plain(),
        ways,
        _retry(said, graph, kinds.dialect),
        model,
        node.classes,
        said.flag("allow_partial", False),
        said.flag("goal_gate", False),
        returns_of(node, graph),
        _redirects(said, graph),
        timeout.total_seconds() if timeout is not None else None,
        said.text("timeout_action", ""),
        said.text("fidelity", ""),
        said.text("thread_id", ""),
        said.flag("expensive", False),
        said.flag("destructive", False),
    )


def _redirects(said: Attributes, graph: Attributes) -> int:
    own = said.integer("max_redirects", None)
    if own is not None:
        return max(0, own)
    if said.flag("goal_gate", False):
        tries = said.integer("max_retries", None)
        if tries is not None and tries > 0:
            return tries
    return max(0, graph.integer("default_max_redirects", REDIRECTS))


def _retry(said: Attributes, graph: Attributes, dialect: Dialect) -> Retry:
    times = said.integer("max_retries", None)
    policy = said.text("retry_policy", "").strip()
    if policy in _PRESETS:
        preset, first, factor = _PRESETS[policy]
        times = preset if times is None else times
    else:
        usual = "exponential" if dialect is Dialect.ROUND else "standard"
        first, factor = _BACKOFFS.get(said.text("retry_backoff", usual).strip(), _BACKOFFS[usual])
    if times is None:
        times = graph.integer("default_max_retries", graph.integer("default_max_retry", 0))
    jitter = said.number("retry_jitter", 0.1 if dialect is Dialect.ROUND else 0.5)
    return Retry(max(0, times), first=first, factor=factor, jitter=min(1.0, max(0.0, jitter)))


def fill(text: str, variables: Mapping[str, Any]) -> str:
    """Replace `$name` and `${name}` by what is known under that name; what is not known stays as it is."""
    if "$" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        try:
            found = variables[name]
        except KeyError:
            return match[0]
        return found if isinstance(found, str) else str(found)

    return _VARIABLE.sub(value, text)


_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_][\w.]*)\}|([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*))")
