"""A pipeline to the nodes of a flow: every node of the digraph is a gate that does its work, then chooses.
Apart from reading files and options, which `building` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from everstep.errors import PipelineFailed
from everstep.frontends.pipelines import layers
from everstep.frontends.pipelines.ends import (
    ConditionalRunner,
    ExitRunner,
    FanInRunner,
    JoinRunner,
    ReturnRunner,
    StartRunner,
    way_back,
)
from everstep.frontends.pipelines.human import HumanRunner
from everstep.frontends.pipelines.interviewers import Interviewer
from everstep.frontends.pipelines.layers import LayeredContext
from everstep.frontends.pipelines.outcome import StageStatus
from everstep.frontends.pipelines.reading import Pipeline, StageSpec, condition_of, name_of, word_of
from everstep.frontends.pipelines.regions import Region, RegionLevel
from everstep.frontends.pipelines.stage import Handler
from everstep.frontends.pipelines.stages import StagePlace, StageRunner
from everstep.graph.author.context import Context
from everstep.graph.author.node import END, Gate, Node
from everstep.graph.author.wiring import Join, JoinSpec, Layout, MemberSpec, Policy, Wired, chain

CYCLES: Final = 1000
"""How often an inner pipeline may go round until its stop condition holds."""
MOST_BRANCHES: Final = 4
"""Branches that run at once, if nothing else is said."""

_RUNNERS: Final[Mapping[str, type[StageRunner]]] = {
    "start": StartRunner,
    "exit": ExitRunner,
    "conditional": ConditionalRunner,
    "fan_in": FanInRunner,
}


@dataclass(frozen=True)
class Workshop:
    """What a pipeline is lowered with: who does the work of its nodes."""

    make_flow: Callable[..., Any]
    handlers: Mapping[str, Handler | None]
    """The handler of each node by id; none for nodes that do nothing themselves."""
    backend: Mapping[str, Any]
    """Who does the work, as a run remembers it."""
    human: Interviewer | None = None
    children: Mapping[str, tuple[Pipeline, Workshop]] = field(default_factory=dict)
    """The inner pipelines by the id of their node."""


@dataclass(frozen=True)
class Lowered:
    """The parts of a flow."""

    nodes: list[Wired]
    entry: tuple[str, ...]
    place: StagePlace
    behind: Mapping[str, str]
    """The gates at its top that stand behind a node, each with that node: `ask.next` behind `ask`."""


def lower(pipeline: Pipeline, workshop: Workshop, *, is_top: bool = True) -> Lowered:
    """Return the parts of the flow that a pipeline is."""
    level = pipeline.wiring.level(pipeline.start)
    place = StagePlace(pipeline, _entries(level), is_top=is_top, head="" if is_top else pipeline.start)
    lowering = _Lowering(pipeline, workshop)
    nodes = lowering.nodes(level, place)
    return Lowered(nodes, _entry(name_of(pipeline.start), nodes), place, lowering.behind)


def _entries(level: RegionLevel, last: str = END, meets_at: str = "") -> dict[str, str]:
    """Say for each node what is chosen to go there. What lies inside a fork begins with the fork."""
    found = {
        inside: name_of(name) for name, region in level.regions.items() for inside in sorted(region.inside)
    }
    found.update((name, name_of(name)) for name in level.nodes)
    if meets_at:
        found[meets_at] = last
    return found


def _entry(name: str, nodes: Iterable[Wired]) -> tuple[str, ...]:
    """Name where a flow begins, if a gate may choose that too."""
    leaves = [leaf for node in nodes for leaf in getattr(node, "leaves", (node,))]
    is_chosen = any(isinstance(leaf, Gate) and name in leaf.targets for leaf in leaves)
    return (name,) if is_chosen else ()


class _Lowering:
    def __init__(self, pipeline: Pipeline, workshop: Workshop) -> None:
        self._pipeline = pipeline
        self._workshop = workshop
        self.behind: dict[str, str] = {}

    def nodes(self, level: RegionLevel, place: StagePlace) -> list[Wired]:
        taken = {name_of(name) for name in level.nodes}
        return [self._node(name, level, place, taken) for name in level.nodes]

    def _node(self, name: str, level: RegionLevel, place: StagePlace, taken: set[str]) -> Wired:
        spec = self._pipeline.specs[name]
        if spec.kind == "parallel":
            return self._parallel(spec, level.regions[name], place, taken)
        handler = self._workshop.handlers[name]
        if spec.kind == "human" and handler is None:
            return self._human(spec, place, taken)
        if spec.kind == "subpipeline" and handler is None:
            return self._inner(spec, place, taken)
        runner = _RUNNERS.get(spec.kind, StageRunner)(place, spec, handler, backend=self._workshop.backend)
        return self._gate(runner, spec.name, runner.function())

    def _gate(self, runner: StageRunner, name: str, fn: Callable[..., Any], **more: Any) -> Gate:
        spec, place = runner.spec, runner.place
        targets = self._targets(spec, place)
        targets += [place.enter[t] for t in more.pop("also", ()) if t in place.enter]
        made = Gate(
            fn,
            tuple(dict.fromkeys([*targets, place.last])),
            name=name,
            retry=spec.retry,
            expensive=spec.is_expensive,
            destructive=spec.is_destructive,
            **more,
        )
        made.identifier = f"{self._pipeline.name}.{name}"
        if name != spec.name and not place.is_branch:
            self.behind[name] = spec.name
        return made

    def _targets(self, spec: StageSpec, place: StagePlace) -> list[str]:
        wanted = [way.target for way in spec.ways] + list(spec.returns)
        if spec.kind == "exit":
            wanted = []
            for gate in self._pipeline.gates:
                target = way_back(self._pipeline, gate, place.enter)
                wanted += [target] if target is not None else []
        return [place.enter[target] for target in wanted if target in place.enter]

    # -- people -------------------------------------------------------------------------------------------

    def _human(self, spec: StageSpec, place: StagePlace, taken: set[str]) -> Wired:
        workshop = self._workshop
        runner = HumanRunner(place, spec, backend=workshop.backend, human=workshop.human)
        asks = Node(
            runner.asking(),
            name=spec.name,
            output=word_of(spec.name),
            halts=True,
            requires=("resume_signal_source", *(("resume_scheduler",) if spec.timeout is not None else ())),
            answer_type=str if runner.is_free else None,
        )
        asks.identifier = f"{self._pipeline.name}.{spec.name}"
        behind = self._gate(runner, _free(f"{spec.name}.next", taken), runner.answering())
        return chain(asks, behind.with_inputs(answer=word_of(spec.name)))

    # -- branches -----------------------------------------------------------------------------------------

    def _parallel(self, spec: StageSpec, region: Region, place: StagePlace, taken: set[str]) -> Wired:
        policy = spec.attributes.get("join_policy", "wait_all").strip()
        heads = [head for head in region.heads if head != region.meets_at]
        need = _need(policy, spec, len(heads))
        flow = self._fork(spec, region, place, heads, need)
        branches = {name_of(head): head for head in heads}
        after = tuple(way for way in spec.ways if way.condition is not None or way.is_for_failure)
        runner = JoinRunner(
            place,
            replace(spec, ways=after),
            None,
            backend=self._workshop.backend,
            branches=branches,
            meets_at=region.meets_at,
            need=need,
        )
        name = _free(f"{spec.name}.join", taken)
        behind = self._gate(runner, name, runner.function(), also=(region.meets_at, spec.id))
        return chain(flow.as_node(name=spec.name).lift(), behind)

    def _fork(
        self, spec: StageSpec, region: Region, place: StagePlace, heads: list[str], need: int | None
    ) -> Any:
        """Return the flow of the branches: each a flow of its own, side by side."""
        members = [self._branch(head, region, place, is_raced=need is not None) for head in heads]
        limit = spec.whole("max_parallel", MOST_BRANCHES)
        make, name = self._workshop.make_flow, spec.name
        if need is None or not members:
            return make(name, members or [_nothing(name)], max_concurrency=max(1, limit))
        joined = _free(f"{name}.race", {member.name for member in members})
        names = tuple(MemberSpec(m.name, (m.name,), (m.name,)) for m in members)
        join = JoinSpec(joined, names, Join("first_success", need), Policy("rule", rule=tolerate_all))
        edges = tuple((m.name, joined) for m in members)
        return make(name, Layout(tuple(members), edges, (join,)), max_concurrency=max(1, limit))

    def _branch(self, head: str, region: Region, place: StagePlace, *, is_raced: bool) -> Node:
        level = self._pipeline.wiring.level(head, region.meets_at)
        taken = {name_of(name) for name in level.nodes}
        last = _free("end", taken) if is_raced else END
        inner = StagePlace(
            self._pipeline,
            _entries(level, last, region.meets_at),
            depth=place.depth + 2,
            is_top=False,
            last=last,
            meets_at=region.meets_at,
            head=head,
        )
        nodes = self.nodes(level, inner)
        entry = _entry(name_of(head), nodes)
        if is_raced:
            nodes.append(Node(_judge_branch, name=last))
        flow = self._workshop.make_flow(name_of(head), nodes, entry=entry)
        made: Node = flow.as_node(name=name_of(head)).lift()
        return made

    # -- pipelines inside ---------------------------------------------------------------------------------

    def _inner(self, spec: StageSpec, place: StagePlace, taken: set[str]) -> Wired:
        pipeline, workshop = self._workshop.children[spec.id]
        parts = lower(pipeline, workshop, is_top=False)
        flow = workshop.make_flow(pipeline.name, parts.nodes, entry=parts.entry)
        stop = condition_of(self._pipeline.digraph.nodes[spec.id].attributes, "manager.stop_condition")
        cycles = spec.whole("manager.max_cycles", CYCLES)
        runner = ReturnRunner(
            place, spec, None, backend=self._workshop.backend, stop=stop, cycles=max(1, cycles)
        )
        behind = self._gate(runner, _free(f"{spec.name}.next", taken), runner.function(), also=(spec.id,))
        return chain(flow.as_node(name=spec.name).lift(), behind)


def tolerate_all(outcomes: dict[str, str]) -> bool:
    """Let branches that failed be judged by the node behind them."""
    return True


def _judge_branch(ctx: Context) -> None:
    """End a branch that races with others: if it has not succeeded, it has lost."""
    ended = LayeredContext(ctx).here(layers.END) or {}
    status = StageStatus.read(ended.get("status"))
    if status is None or not status.is_good:
        raise PipelineFailed(f"the branch ended with {status}: {ended.get('failure_reason', '')}")


def _nothing(name: str) -> Node:
    def nothing() -> None:
        """Do nothing: the fork has no branches."""

    return Node(nothing, name=f"{name}.none")


def _need(policy: str, spec: StageSpec, branches: int) -> int | None:
    """Return how many branches must succeed before the others are stopped; none to wait for all."""
    if policy == "first_success":
        return 1
    if policy == "quorum":
        return branches // 2 + 1
    if policy == "k_of_n":
        return max(1, min(branches, spec.whole("k", 1)))
    return None


def _free(name: str, taken: set[str]) -> str:
    """Return a name that no node of the digraph has."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
