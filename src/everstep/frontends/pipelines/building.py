"""From the text of a pipeline to a flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from everstep.errors import BackendChanged, BadRequest, close_matches
from everstep.frontends.dot.resolve import Digraph, read
from everstep.frontends.pipelines import layers
from everstep.frontends.pipelines.ends import missed_gates, way_back
from everstep.frontends.pipelines.interviewers import Interviewer
from everstep.frontends.pipelines.kinds import KINDS, TYPES, kinds_of
from everstep.frontends.pipelines.lint.rules import lint
from everstep.frontends.pipelines.lowering import Lowered, Workshop, lower
from everstep.frontends.pipelines.outcome import Outcome
from everstep.frontends.pipelines.reading import Pipeline, StageSpec, name_of, read_pipeline
from everstep.frontends.pipelines.simulation import Simulation
from everstep.frontends.pipelines.stage import Handler, Stage
from everstep.frontends.pipelines.stages import JUDGES, SIMULATION, is_done_inside, only_lacks_an_edge
from everstep.frontends.pipelines.vocabulary import BUDGET, CHILD
from everstep.graph.author.extension import Extension, Read
from everstep.graph.author.flow import Flow
from everstep.graph.check.diagnostics import Diagnostic, Diagnostics
from everstep.graph.draw.graphviz import Sketch, SketchEdge, SketchGroup, SketchNode, to_text
from everstep.graph.draw.sketches import plan_to_dot
from everstep.model.address import unvisited

IR_HOME = "everstep.graph.pipelines.building"
"""The module that IRs name for the rules of pipelines; it stays, whatever this module is called."""

F = TypeVar("F")
_DEEPEST: Final = 8
_LARGEST: Final = 16 * 1024 * 1024
_IDLE: Final = frozenset({"start", "exit", "conditional", "human", "parallel", "subpipeline"})
"""Kinds that need no handler."""


class Files:
    """Texts that a pipeline names: given by name, or read from its own folder and nowhere else."""

    def __init__(self, given: Mapping[str, str], file: str) -> None:
        self._given = given
        self._folder = Path(file).resolve().parent if file else None

    def __call__(self, name: str) -> str:
        if name in self._given:
            return self._given[name]
        parts = PurePosixPath(name)
        if self._folder is None:
            raise BadRequest(f"the pipeline names {name!r}, which was not given.", fix="Give children={...}.")
        path = (self._folder / parts).resolve()
        if parts.is_absolute() or not path.is_relative_to(self._folder):
            raise BadRequest(
                f"the pipeline names {name!r}, which lies outside its folder.",
                fix="Put it beside the pipeline, or give its text with children={...}.",
            )
        try:
            if path.stat().st_size > _LARGEST:
                raise BadRequest(f"{name} has more than {_LARGEST:,} bytes.")
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadRequest(f"the pipeline names {name!r}, which cannot be read: {error}.") from error


class Workers:
    """Who does the work of which node."""

    def __init__(
        self,
        handlers: Mapping[str, Handler] | None,
        backend: Handler | None,
        tools: Handler | None,
        human: Interviewer | None,
    ) -> None:
        self.handlers = dict(handlers or {})
        for name, handler in (*self.handlers.items(), ("backend", backend), ("tools", tools)):
            if handler is not None and not callable(handler):
                raise BadRequest(f"{name!r} is {handler!r:.60}.", fix="Give a function of a stage.")
        if human is not None and not callable(getattr(human, "ask", None)):
            raise BadRequest(f"human is {human!r:.60}.", fix="Give an object with ask(question).")
        self.backend: Handler = backend if backend is not None else Simulation()
        self.tools = tools
        self.human = human

    @property
    def signature(self) -> dict[str, Any]:
        """What a run remembers of who does its work."""
        told = getattr(self.backend, "name", None) or getattr(self.backend, "__name__", "") or "callable"
        name = SIMULATION if isinstance(self.backend, Simulation) else str(told)
        return {"backend": name, "handlers": sorted(self.handlers)}

    def of(self, spec: StageSpec) -> Handler | None:
        """Return the handler of a node: its own, that of its type, or what does such work by default."""
        own = self.handlers.get(spec.id) or self.handlers.get(spec.attributes.get("type", ""))
        own = own or self.handlers.get(spec.kind)
        if own is not None and spec.kind == "parallel":
            raise BadRequest(
                f"node {spec.id!r} forks, and no handler can do that.",
                fix="Give a handler to the nodes of its branches, or to the one where they meet.",
            )
        if own is not None:
            return own
        if spec.kind == "tool":
            return self.tools or _refuse_tool
        if spec.kind in _IDLE or spec.kind == "fan_in":
            return self.backend if spec.kind == "fan_in" and spec.attributes.get("prompt") else None
        return self.backend


def _refuse_tool(stage: Stage) -> Outcome:
    return Outcome.fail(f"{stage.node} runs a command, and tools are not allowed.", retryable=False)


def build(
    make: Callable[..., F],
    text: str | bytes,
    *,
    file: str,
    workers: Workers,
    children: Mapping[str, str],
    name: str | None,
    options: Mapping[str, Any],
) -> F:
    """Return the flow of a pipeline; `DotError` or `FlowError` with everything that is wrong with it."""
    if "entry" in options:
        raise BadRequest("a pipeline begins at its start node.", fix="Leave out entry=.")
    files = Files(children, file)
    digraph = read(text, file)
    found = check(digraph, workers)
    Diagnostics(name or digraph.name or "pipeline", found).raise_for_errors(tells_all=True)
    pipeline = read_pipeline(digraph, sheet=files)
    limits = {key: options[key] for key in ("max_steps", "max_visits") if key in options}
    workshop = _workshop(partial(make, **limits), pipeline, workers, files, (str(file),))
    _check_handlers(workers, pipeline, workshop)
    parts = lower(pipeline, workshop)
    known = [d for d in found if d.severity != "error"]
    told = lambda *_: known  # noqa: E731 - IRs name it by what it is and where
    told.__module__ = IR_HOME
    rules = (*options.get("rules", ()), told)
    flow: Any = make(
        name or pipeline.name,
        parts.nodes,
        **{
            "durability": "strong",
            "budgets": _budgets(pipeline),
            **options,
            "entry": parts.entry,
            "rules": rules,
        },
    )
    flow.extension = PipelineRules(pipeline, parts, workshop, keeps_as_around="durability" not in options)
    made: F = flow
    return made


def dot_of(flow: Flow) -> str:
    """Return the pipeline that a flow was made from, or else a picture of its steps."""
    pipeline = pipeline_of(flow)
    if pipeline is not None:
        return to_text(sketch_of(pipeline.digraph))
    flow.problems.raise_for_errors()
    return plan_to_dot(flow.name, flow.plan)


def _check_handlers(workers: Workers, pipeline: Pipeline, workshop: Workshop) -> None:
    """Refuse handlers that nothing asks for: a misspelled one would leave its node to the backend."""
    known: dict[str, None] = {}
    todo = [(pipeline, workshop)]
    while todo:
        one, made = todo.pop()
        for spec in one.specs.values():
            known.update(dict.fromkeys((spec.id, spec.attributes.get("type", ""), spec.kind)))
        todo.extend(made.children.values())
    for name in workers.handlers:
        if name not in known and name not in TYPES:
            close = close_matches(name, known, n=1)
            meant = f"Did you mean {close[0]!r}? " if close else ""
            raise BadRequest(
                f"there is a handler for {name!r}, and no node with that id, type or kind.",
                fix=f"{meant}Name a node, its type, or one of {', '.join(KINDS)}.",
            )


def _budgets(pipeline: Pipeline) -> dict[str, str]:
    """Return what a run may spend, as the graph says: `"budget.usd"="5.00"`."""
    said = pipeline.variables
    return {key.removeprefix(BUDGET): said[key] for key in said if key.startswith(BUDGET)}


def check(digraph: Digraph, workers: Workers) -> list[Diagnostic]:
    """Return what is wrong with a pipeline, and what may not be as it was meant."""
    has_tools = workers.tools is not None or "tool" in workers.handlers
    return lint(digraph, kinds_of(digraph), handlers=workers.handlers, has_tools=has_tools)


def _workshop(
    make: Callable[..., Any], pipeline: Pipeline, workers: Workers, files: Files, above: tuple[str, ...]
) -> Workshop:
    children: dict[str, tuple[Pipeline, Workshop]] = {}
    handlers = {spec.id: workers.of(spec) for spec in pipeline.specs.values()}
    for spec in pipeline.specs.values():
        if spec.kind == "subpipeline" and handlers[spec.id] is None:
            children[spec.id] = _child(make, spec, workers, files, above)
    return Workshop(make, handlers, workers.signature, workers.human, children)


def _child(
    make: Callable[..., Any], spec: StageSpec, workers: Workers, files: Files, above: tuple[str, ...]
) -> tuple[Pipeline, Workshop]:
    named = next((spec.attributes[key] for key in CHILD if spec.attributes.get(key)), "")
    if not named:
        raise BadRequest(f"node {spec.id!r} runs a pipeline, and names none.", fix=f"Set {CHILD[0]}.")
    if named in above or len(above) > _DEEPEST:
        chain = " → ".join((*above, named))
        raise BadRequest(f"pipelines run each other without end: {chain}.", fix="Take one of them out.")
    digraph = read(files(named), named)
    Diagnostics(digraph.name or named, check(digraph, workers)).raise_for_errors(tells_all=True)
    pipeline = read_pipeline(digraph, sheet=files)
    if _budgets(pipeline):
        raise BadRequest(
            f"pipeline {named!r} has a budget, and is run by node {spec.id!r}: a budget is for a whole run.",
            fix="Say it in the pipeline around it: it holds for everything inside.",
        )
    return pipeline, _workshop(make, pipeline, workers, files, (*above, named))


class PipelineRules(Extension):
    """How the runs of a pipeline go on: with the backend they began with, and where a failure sends them.

    Keys of the channel are read in the layer of the pipeline, which has one of its own inside another flow.
    """

    def __init__(
        self, pipeline: Pipeline, parts: Lowered, workshop: Workshop, *, keeps_as_around: bool
    ) -> None:
        self.pipeline = pipeline
        self.keeps_as_around = keeps_as_around
        self._parts = parts
        self._workshop = workshop
        self._by_name = {name_of(spec.id): spec for spec in pipeline.specs.values()}

    def check_resume(self, prefix: str, read: Read) -> None:
        """Refuse to go on with a run whose work would silently be done by a simulation."""
        began, now = layers.reader_at(prefix, read)(layers.BACKEND), self._workshop.backend
        if not isinstance(began, Mapping):
            return
        lost = sorted(set(began.get("handlers", ())) - set(now["handlers"]))
        is_other = began.get("backend") != SIMULATION
        if now["backend"] == SIMULATION and (is_other or lost):
            what = [f"the backend {began['backend']!r}"] if is_other else []
            what += [f"handlers for {', '.join(lost)}"] if lost else []
            raise BackendChanged(
                f"this run began with {' and '.join(what)}, and would go on with a simulation.",
                fix="Give them again, as when it was started: --backend, --handlers, or backend=, handlers=.",
            )

    def start_marks(self, path: str, *, is_told: bool) -> dict[str, Any]:
        """Note that a resume begins at a node, and at which if its rule said so."""
        prefix = path[: path.rfind("/") + 1]
        marks = {layers.RESUMED: True, layers.AGAIN: "" if is_told else unvisited(path)}
        return {layers.layer_key(prefix, key): value for key, value in marks.items()}

    def only_chooses(self, prefix: str, path: str, visit: int, read: Read) -> bool:
        """Say whether a visit to a node has done its work, so that a resume only chooses its edge."""
        read_key = layers.reader_at(prefix, read)
        head, slash, _ = path.rpartition("/")
        record = read_key(layers.STAGES + unvisited(prefix + self._parts.behind.get(path, path))) or {}
        if slash:
            return is_done_inside(record, prefix + head + slash, read_key(layers.AGAIN), read_key)
        return only_lacks_an_edge(record, visit, read_key(layers.COUNT))

    def resumes_at(self, prefix: str, failed: str, read: Read) -> str | None:
        """Begin a failed run again before the failure that led to a dead end, or at a missed goal."""
        read_key, place = layers.reader_at(prefix, read), self._parts.place
        name = self._parts.behind.get(failed, failed)
        record = read_key(layers.STAGES + unvisited(prefix + name)) or {}
        if layers.UNROUTED in record:
            return None  # it has done its work, and only its edge is chosen again
        if name != failed:
            return name  # an unanswered question is asked again; what failed inside is gone through again
        spec = self._by_name.get(failed)
        if spec is None:
            return None
        if spec.kind == "exit":
            missed = missed_gates(self.pipeline, read_key)
            if not missed:
                return None
            gate = missed[0][0]
            return place.enter.get(way_back(self.pipeline, gate, place.enter) or gate.id)
        edge = read_key(layers.EDGE) or {}
        came_by_failure = edge.get("to") == spec.id and edge.get("after") == "fail"
        is_judge = spec.kind in JUDGES and self._workshop.handlers[spec.id] is None
        is_dead_end = came_by_failure and (not spec.ways or is_judge)
        return place.enter.get(edge.get("failed", edge["from"])) if is_dead_end else None


def pipeline_of(flow: Flow) -> Pipeline | None:
    """Return the pipeline that a flow was made from, if it was one."""
    return flow.extension.pipeline if isinstance(flow.extension, PipelineRules) else None


def sketch_of(digraph: Digraph) -> Sketch:
    """Return a pipeline that was read as data to be written; its defaults are in its nodes and edges."""
    return Sketch(
        digraph.name,
        tuple(SketchNode(node.id, node.attributes.plain()) for node in digraph.nodes.values()),
        tuple(SketchEdge(edge.tail, edge.head, edge.attributes.plain()) for edge in digraph.edges),
        tuple(SketchGroup(group.name, group.nodes, group.attributes.plain()) for group in digraph.groups),
        digraph.attributes.plain(),
    )
