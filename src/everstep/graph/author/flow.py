"""`Flow`: nodes wired by the names they read and write."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar, cast

from everstep.errors import BadRequest, FlowError, InputError, NotInAtomic
from everstep.graph.author.definition import ReadFrom
from everstep.graph.author.extension import EXTENSIONS, PLAIN, Extension
from everstep.graph.author.flow_options import FlowOptions, UndoWhen
from everstep.graph.author.joins import JoinNode
from everstep.graph.author.node import Gate, Node
from everstep.graph.author.options import Of, Place, refused_at_build
from everstep.graph.author.profiles import Entry, Profile, Registry
from everstep.graph.author.subflow import Subflow
from everstep.graph.author.wiring import Layout, Wired, flatten
from everstep.graph.check.diagnostics import Diagnostic, Diagnostics
from everstep.graph.check.hints import UNKNOWN, fits, spell
from everstep.graph.check.structure import (
    did_you_mean,
    loop_problem,
    node_problems,
    plan_problems,
    unbegun,
    wiring_problems,
)
from everstep.graph.compile.loops import UncutLoop
from everstep.graph.compile.plan import FlowLimits, Plan, deep_nodes
from everstep.model.budgets import Budget
from everstep.model.durability import Durability, DurabilityMode
from everstep.model.durations import Span
from everstep.model.retention import Retention
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep.graph.author.migrations import Migration
    from everstep.graph.check.started_flows import joined
    from everstep.graph.ir.read import read
    from everstep.graph.ir.registry import Registry as Names
    from everstep.graph.ir.write import Writer
    from everstep.graph.limits import AnyLimit
    from everstep.graph.schedules import Schedule
    from everstep.graph.tells import Telling
    from everstep.model.breakers import Breaker, breakers_of
else:
    breakers_of = on_demand("everstep.model.breakers:breakers_of")
    joined = on_demand("everstep.graph.check.started_flows:joined")
    read = on_demand("everstep.graph.ir.read:read")
    Writer = on_demand("everstep.graph.ir.write:Writer")


class Unhinted(Iterable[Any], Protocol):
    """A list of objects of any kind, which lists of numbers or of plain functions are not.

    mypy takes a variable for one that holds a list of several nodes and has no hint.
    """

    def append(self, item: object, /) -> None: ...


U = TypeVar("U", bound=Unhinted)


class Flow:
    """A definition: nodes, and edges inferred from the names they read and write, or drawn with `>>` and `|`.

    It checks itself when built and reports every problem at once. `entry` says where a loop begins; a gate's
    target runs only when it is chosen, one of `tasks` only when a node asks for it with `ctx.next_task`.
    `channel` names the keys of the run's channel with their types; without it any key may be used.
    `registry` tells of nodes that are defined elsewhere, `profiles` has the last word on each node of this
    flow, and of those inside it, by path; and `rules` are checks of your own that `validate` makes too.
    `budgets` say what a run may spend, `breakers` what keeps nodes from starting that fail too much,
    `inbox` which values take in what is sent to a run: `inbox={"messages": append}`.
    `undo` says when what its runs have done is undone by the `undo=` of its nodes: on failure, when a run is
    cancelled, both, never, or if a person says so ("ask"). `deadline` ends a run that takes longer.
    With `pin_version` its runs stay with the version they began with: no worker takes one over to another.
    With `streams` what its nodes emit can be followed from other processes, with `logs` what they log and
    print is kept with their steps. `plain_attributes` are attributes that may be readable in the store though
    what its runs keep is encrypted. `starts` are flows whose runs its nodes may start with `ctx.start`; who
    loads it loads them. `schedules` say when its runs are started, once `host.schedules.apply` makes them.
    """

    plan: Plan
    """What is driven; a draft with problems may have none."""
    starts: tuple[Flow, ...]
    """Flows whose runs its nodes may start, those of flows inside it included."""
    schedules: tuple[Schedule, ...] = ()
    """When runs of it are started, once that is applied."""
    extension: Extension = PLAIN
    """What its maker adds to how its runs go on, if a front end made it."""
    source: str | None = None
    """Where to find this flow again, as `FILE.py:FLOW`; kept with its runs if it is set."""
    plays_undo: Callable[[str, Node], Node] | None = None
    """What gives a simulation the double of what undoes a durable call, by the path of that."""
    _raises = True

    def __init__(
        self,
        name: str,
        nodes: Iterable[Wired] | Wired | Layout | U = (),
        *,
        entry: str | Node | Iterable[str | Node] = (),
        tasks: Iterable[Node] = (),
        channel: Mapping[str, Any] | None = None,
        durability: DurabilityMode | Durability = "partial",
        version: str = "1",
        max_steps: int = 10_000,
        max_visits: int | None = None,
        max_concurrency: int | None = None,
        max_running: int | None = None,
        max_per_group: int | None = None,
        limits: Iterable[AnyLimit] = (),
        auto_checkpoint: int | None = None,
        registry: Registry | None = None,
        profiles: Mapping[str, Mapping[str, Any] | Profile] | None = None,
        rules: Iterable[Callable[..., Iterable[Diagnostic]]] = (),
        migrations: Iterable[Migration] = (),
        retention: Retention | None = None,
        streams: bool = False,
        logs: bool = False,
        pin_version: bool = False,
        budgets: Iterable[Budget] | Mapping[str, Any] = (),
        breakers: Iterable[Breaker] = (),
        notify: Telling | None = None,
        inbox: Mapping[str, str] | None = None,
        undo: UndoWhen = "both",
        deadline: Span | None = None,
        plain_attributes: Iterable[str] = (),
        starts: Iterable[Flow] = (),
        schedules: Iterable[Schedule] = (),
    ) -> None:
        self.name = name
        _check_shape(name, nodes)
        said = FlowOptions.of(
            name,
            version=version,
            tasks=tasks,
            channel=channel,
            registry=registry,
            profiles=profiles,
            rules=rules,
            migrations=migrations,
            durability=durability,
            retention=retention,
            streams=streams,
            logs=logs,
            pin_version=pin_version,
            entry=entry,
            max_steps=max_steps,
            max_visits=max_visits,
            max_concurrency=max_concurrency,
            max_running=max_running,
            max_per_group=max_per_group,
            limits=limits,
            auto_checkpoint=auto_checkpoint,
            budgets=budgets,
            breakers=breakers,
            notify=notify,
            inbox=inbox,
            undo=undo,
            deadline=deadline,
            plain_attributes=plain_attributes,
            starts=starts,
            schedules=schedules,
        )
        self._wire(flatten(nodes), said)

    def _wire(self, layout: Layout, said: FlowOptions) -> None:
        """Make a plan of the nodes, and find out what is wrong with it, which is raised but for drafts."""
        self._take(said)
        self.edges = layout.edges
        """Control edges, as names of nodes."""
        has_results = bool(layout.edges or self.tasks or said.channel)
        given = _all_nodes(layout, self.tasks, has_results=has_results)
        self.nodes = tuple(_declared(given, said.registry, self.profiles))
        inside = [one for n in self.nodes if isinstance(n, Subflow) for one in n.flow.starts]
        if inside:
            self.starts = joined(self.name, (*self.starts, *inside))
        self.extension = EXTENSIONS.of(self.nodes)
        self.problems = Diagnostics(self.name, self._compile())
        """What is wrong with it; none unless it is a draft."""
        self._guard(said.breakers)
        if self.inbox and not self.problems.errors:
            self._check_inbox()
        if self.limits and not self.problems.errors:
            self._check_keys()
        if self._raises and self.problems.errors:
            self._refuse()

    def _take(self, said: FlowOptions) -> None:
        """Keep what was said, under the names of the options."""
        self._complete_inputs: set[frozenset[str]] = set()
        self.read_from: ReadFrom | None = None
        """The IR that it was read from."""
        self.original: Flow | None = None
        """The flow that it is but for what a flow around it says of its nodes."""
        self.version, self.entry, self.tasks = said.version, said.entry, said.tasks
        self.channel, self.rules = said.channel, said.rules
        self.profiles = said.profiles
        """What this flow says of its nodes, by name; of those of inner flows by path, as `rag/embed`."""
        self.migrations = said.migrations
        """What runs that began with another version of this flow do, the oldest rule first."""
        self.durability, self.auto_checkpoint = said.durability, said.auto_checkpoint
        self.retention = said.retention
        """How long its runs are kept, if the flow says so itself."""
        self.streams, self.logs = said.streams, said.logs
        self.pin_version = said.pin_version
        """True if its runs stay with the version they began with."""
        self.max_steps, self.max_visits = said.max_steps, said.max_visits
        self.max_concurrency = said.max_concurrency
        self.max_running, self.max_per_group = said.max_running, said.max_per_group
        self.limits = said.limits
        """How many of its runs with the same key may run at once, or start in a while."""
        self.plain_attributes = said.plain_attributes
        self.undo = said.undo
        """When what its runs did is undone: on failure, when cancelled, if a person says so, or never."""
        self.deadline = said.deadline
        """How long after they begin its runs are ended, if they have not ended by themselves."""
        self.starts, self.schedules = said.starts, said.schedules
        self.inbox = said.inbox
        """Values that signals of the same name are taken into before the next step starts."""
        self.notify = said.notify
        """Who is told of its runs, and of what."""
        self.budgets = said.budgets
        """What its runs may spend, all that is inside them included."""

    def _guard(self, breakers: Iterable[Breaker]) -> None:
        has_none = breakers == () or bool(self.problems.errors)
        self.breakers = () if has_none else breakers_of(self.name, breakers, _paths(self.plan))
        """What keeps nodes from starting once they fail too much, the most important first."""
        if any(breaker.nodes for breaker in self.breakers):
            self._check_guarded()

    def _check_inbox(self) -> None:
        """Refuse signals for values that the flow has not, or that a wait takes, too."""
        known = self.plan.readers.keys() | self.plan.writers.keys()
        for name in self.inbox:
            if name not in known:
                raise BadRequest(
                    f"flow {self.name!r} takes signals into {name!r}, which no node reads or writes.",
                    fix="Name a value of the flow.",
                )
            takers = [n.name for n in self.nodes if getattr(n, "arguments", {}).get("signal") == name]
            if takers:
                raise BadRequest(
                    f"flow {self.name!r} takes signals {name!r} in, and {takers[0]!r} waits for them.",
                    fix="A name has one kind of consumer: call one of them otherwise.",
                )

    def _check_keys(self) -> None:
        """Refuse limits by what no run is started with."""
        known = self.plan.free_inputs | self.plan.seeds
        for limit in self.limits:
            if (limit.by or limit.name).partition(".")[0] not in known:
                raise BadRequest(
                    f"flow {self.name!r} has a limit by {limit.by or limit.name!r}, which is no input of it.",
                    fix=f"It has {sorted(known)}: Limit({limit.name!r}, by=...).",
                )

    def _check_guarded(self) -> None:
        """Refuse breakers for nodes inside atomic flows: those are stopped as a whole, or not at all."""
        shown = set(_paths(self.plan, opens_atomic=False))
        for breaker in self.breakers:
            for name in breaker.nodes or ():
                if name not in shown:
                    refusal = refused_at_build(Of.BREAKER, Place.ATOMIC)[0][1]
                    message = f"breaker {breaker.name!r} of flow {self.name!r} {refusal.does} {name!r}"
                    raise NotInAtomic(f"{message}: {refusal.because}.", fix=refusal.fix)

    def _refuse(self) -> None:
        """Raise what is wrong; the error has the flow as a draft, to hear what else is wrong with it."""
        draft = copy.copy(self)
        draft.__class__ = _Draft
        try:
            self.problems.raise_for_errors()
        except FlowError as error:
            error.draft = draft
            raise

    @classmethod
    def draft(cls, name: str, nodes: Iterable[Node | Wired] | Wired = (), **options: Any) -> Self:
        """Return a flow that may be wrong, to look at with `validate`; it does not run while it is."""
        return cast(Self, _Draft(name, nodes, **options))

    def _compile(self) -> list[Diagnostic]:
        problems, among = list(wiring_problems(self)), list(node_problems(self))
        if problems:
            return problems + among
        limits = FlowLimits(self.max_steps, self.max_visits, self.max_concurrency)
        tasks = [t.name for t in self.tasks]
        try:
            self.plan = Plan(
                self.nodes,
                self.entry,
                edges=self.edges,
                tasks=tasks,
                channel=self.channel or (),
                limits=limits,
                key_types=self.channel,
                pinned=self.version if self.pin_version else None,
            )
        except UncutLoop as loop:
            return [loop_problem([self.nodes[i] for i in loop.members]), *among]
        return [*plan_problems(self.plan), *among]

    def _told(self, registry: Registry | None, profiles: Mapping[str, Entry]) -> Flow:
        """Return the flow with what a flow around it says of its nodes; its problems are told there."""
        twin = copy.copy(self)
        twin.original = self.original or self
        twin.profiles = {**self.profiles, **profiles}
        # What this flow says of its nodes goes before what any registry knows.
        twin.nodes = tuple(_declared(self.nodes, registry, profiles if registry is None else twin.profiles))
        twin.problems = Diagnostics(self.name, twin._compile())
        return twin

    def __repr__(self) -> str:
        return f"<flow {self.name} ({', '.join(n.name for n in self.nodes)})>"

    def __getitem__(self, name: str) -> Node:
        return self.plan.nodes[self.plan.index[name]]

    def as_node(
        self,
        *,
        name: str | None = None,
        durability: Literal["nested", "atomic"] = "nested",
        select: Iterable[str] | None = None,
        undo: Callable[..., Any] | None = None,
    ) -> Subflow:
        """Return this flow as one node of another.

        Nested, its steps are recorded one by one, addressed as `name/node`, and a resume goes on inside.
        Atomic, it is one step that keeps nothing but what is lifted. `select` says which of its values a
        result shows under the node's name; by default all. `undo` undoes a visit to it that was completed, in
        place of what undoes the steps inside; it gets the flow's inputs and outputs by name.
        """
        if durability not in ("nested", "atomic"):
            raise BadRequest(
                f"flow {self.name!r}: durability is {durability!r}.", fix='A node is "nested" or "atomic".'
            )
        self.problems.raise_for_errors()
        hints = {n: (self.input_hints(n) or [UNKNOWN])[0] for n in self.inputs}
        inputs = [(n, required, hints[n]) for n, required in self.inputs.items()]
        is_atomic = durability == "atomic"
        made = Subflow(self.plan, name=name or self.name, inputs=inputs, is_atomic=is_atomic, select=select)
        made.flow = self
        if undo is not None:
            made._be_undone_by(undo)
        if self.extension.keeps_as_around:
            made.flow = copy.copy(self)
            made.flow.durability = Durability()
        return made

    def to_ir(self) -> dict[str, Any]:
        """Return the flow as JSON: all that it is but its functions, which are named."""
        self.problems.raise_for_errors()
        return Writer(self).plain()

    def functions(self) -> dict[str, Any]:
        """Return each function and class that the IR names, by identifier: what `from_ir` asks for."""
        return Writer(self).functions()

    @classmethod
    def from_ir(cls, ir: Mapping[str, Any], registry: Names) -> Self:
        """Return the flow of an IR, with its functions from a registry: a mapping from identifiers.

        A registry may give a function, or a node whose options hold where the IR says nothing. Raises
        `IrInvalid` with everything that is wrong or missing, each with its path.
        """
        return read(cls, ir, registry)

    @property
    def inputs(self) -> dict[str, bool]:
        """Each name a run may bring, and whether it must."""
        return {
            name: name in self.plan.free_inputs
            and any(i not in self.plan.tasks for i in self.plan.needed_by.get(name, ()))
            for name in sorted(self.plan.free_inputs | (self.plan.seeds & self.plan.readers.keys()))
        }

    @property
    def outputs(self) -> tuple[str, ...]:
        """Every name the nodes write."""
        return tuple(self.plan.writers)

    def input_hints(self, name: str) -> list[Any]:
        """Return what the readers of an input expect it to be."""
        return [p.hint for n in self.nodes for p in n.params if p.source == name]

    def check_inputs(self, inputs: Mapping[str, Any], channel: Mapping[str, Any] | None = None) -> None:
        """Raise `InputError` unless a run can begin with these inputs; says everything that is wrong."""
        if not isinstance(inputs, Mapping):
            raise InputError(
                f"flow {self.name!r} got {inputs!r} as inputs.", fix="Give a dict of names and values."
            )
        names = frozenset(inputs)
        wrong: list[str] = []
        if names not in self._complete_inputs:
            wrong += self._unknown_inputs(inputs)
            wrong += self._missing_inputs(inputs, channel or {})
            if not wrong:
                self._complete_inputs.add(names)
        wrong += self._mistyped_inputs(inputs)
        if wrong:
            missing = [repr(name) for name in self.plan.unreachable_inputs(frozenset(inputs))]
            fix = f"Give {' and '.join(missing)}." if missing else ""
            raise InputError(f"flow {self.name!r} cannot start: " + " ".join(wrong), fix=fix)

    def _unknown_inputs(self, inputs: Mapping[str, Any]) -> Iterable[str]:
        allowed = self.plan.free_inputs | self.plan.seeds
        for name in inputs:
            if not isinstance(name, str):
                yield f"Input names are text, not {name!r}."
                continue
            if name in allowed:
                continue
            if name in self.plan.writers:
                writers = [self.plan.paths[w] for w in self.plan.writers[name]]
                yield f"Input {name!r} is written by {writers}, so it cannot be given."
            else:
                known = ", ".join(sorted(self.plan.free_inputs)) or "none"
                seeds = ", ".join(sorted(allowed - self.plan.free_inputs))
                more = f" (and, to begin with, what nodes write: {seeds})" if seeds else ""
                yield f"Unknown input {name!r}.{did_you_mean(name, sorted(allowed))} It takes: {known}{more}."

    def _missing_inputs(self, inputs: Mapping[str, Any], channel: Mapping[str, Any]) -> Iterable[str]:
        given = frozenset(inputs)
        missing = self.plan.unreachable_inputs(given)
        if not missing and not self.plan.can_start(given):
            firsts = " or ".join(map(repr, sorted(self.plan.first_values(given))))
            given_first = f", or give a first value of {firsts}" if firsts else ""
            yield "No node can start: each waits to be chosen, or for another. " + (
                f"Name where the loop begins with entry={given_first}."
            )
        elif not missing:
            yield from unbegun(self.plan, given)
        # An input that the flow does not know is guessed at where it is told of.
        names = [*(inputs.keys() & self.inputs), *self.plan.writers]
        for name, readers in missing.items():
            reads = "read it" if len(readers) > 1 else "reads it"
            hint = self._hint(name, names)
            if any(self._goes_over(reader, name) for reader in readers):
                hint += " What a map goes over comes from a node or an input, not from the channel."
            elif name in channel:
                hint = f" To fill it from the channel, declare the key: Flow(..., channel={{{name!r}: ...}})."
            waiting = {path for path, n in deep_nodes(self.plan) if n.halts and n.identifier}
            if waiting.issuperset(readers):
                hint += f" If the text itself is meant: wait.literal({name!r})."
            yield f"Input {name!r} is missing; {', '.join(readers)} {reads}.{hint}"

    def _goes_over(self, reader: str, name: str) -> bool:
        n = self.plan.nodes[self.plan.index[reader]]
        return n.over is not None and any(p.source == name and p.name in n.over.params for p in n.params)

    def _hint(self, name: str, known: Sequence[str]) -> str:
        """Guess what a missing name was meant to be."""
        if name in self.plan.index and not self[name].outputs:
            return f" Node {name!r} writes nothing; did you forget output={name!r}?"
        if name in ("ctx", "context"):
            return f" For a context, annotate it: {name}: Context."
        return did_you_mean(name, known)

    def _mistyped_inputs(self, inputs: Mapping[str, Any]) -> Iterable[str]:
        readers = self.plan.readers
        for i in {i: None for name in inputs for i in readers.get(name, ())}:  # each once, in order
            for p in self.nodes[i].params:
                if p.source in inputs and not fits(value := inputs[p.source], p.hint):
                    got, reader = type(value).__name__, self.nodes[i].name
                    yield f"Input {p.source!r} is {value!r:.60} ({got}); {reader} wants {spell(p.hint)}."


class _Draft(Flow):
    _raises = False

    def __getattr__(self, name: str) -> Any:
        if name == "plan" and "problems" in vars(self):
            self.problems.raise_for_errors()
        raise AttributeError(f"a flow has no {name!r}", name=name, obj=self)


def _declared(
    nodes: Iterable[Any], registry: Registry | None, profiles: Mapping[str, Entry]
) -> Iterable[Any]:
    """Yield the nodes with what a registry, and then the flow itself, says of them."""
    inside: dict[str, dict[str, Entry]] = {}
    for path, said in profiles.items():
        name, slash, rest = path.partition("/")
        if slash:
            inside.setdefault(name, {})[rest] = said
    for n in nodes:
        if isinstance(n, Subflow):
            if n.name in inside or (registry is not None and _knows_any(registry, n)):
                flow = n.flow._told(registry, inside.get(n.name, {}))
                n = n._with_flow(flow)
        elif isinstance(n, Node):
            if registry is not None:
                n = registry.known(n)
            if n.name in profiles:
                n = profiles[n.name].on(n)
        yield n


def _knows_any(registry: Registry, subflow: Subflow) -> bool:
    return any(registry.known(n) is not n for _, n in deep_nodes(subflow.inner) if n.inner is None)


def _paths(plan: Plan, *, opens_atomic: bool = True) -> Iterable[str]:
    """Yield the names of a flow's nodes, and of those inside it both names and paths."""
    for path, n in deep_nodes(plan, opens_atomic=opens_atomic):
        yield path
        yield n.name


def _check_shape(name: object, nodes: object) -> None:
    if not isinstance(name, str):
        raise BadRequest(f"a flow's name is text, not {name!r}.", fix='Write Flow("name", [...]).')
    if isinstance(nodes, Node):
        raise BadRequest(
            f"flow {name!r} got one node, not a list.", fix=f"Write Flow({name!r}, [{nodes.name}])."
        )
    if not isinstance(nodes, (Iterable, Wired, Layout)):
        raise BadRequest(f"flow {name!r} got {nodes!r:.60} as nodes.", fix="Give a list of nodes.")


def _all_nodes(layout: Layout, tasks: Sequence[Node], *, has_results: bool) -> tuple[Any, ...]:
    """Return the nodes of a flow: those given, the tasks, and a join for each group that needs one."""
    given: list[Any] = [*layout.nodes, *(t for t in tasks if t not in layout.nodes)]
    if any(not isinstance(n, Node) for n in given):
        return tuple(given)
    written = {o for n in given for o in n.outputs}
    read = {p.source for n in given for p in n.params}
    results: dict[str, str] = {}
    for k, n in enumerate(given):
        is_read = has_results and n.name in read and n.name not in written
        if len(n.outputs) == 1 and is_read:
            results[n.name] = n.outputs[0]
        elif has_results and not n.outputs and not n.is_gate and not isinstance(n, Subflow):
            results[n.name] = f"{n.name}.__result__"
            given[k] = n._copy(outputs=(results[n.name],), result_name=results[n.name])
    for k, n in enumerate(given):
        if any(p.source in results and p.source not in written for p in n.params):
            params = tuple(
                p if p.source in written else p._replace(source=results.get(p.source, p.source))
                for p in n.params
            )
            given[k] = n._copy(params=params)
    chosen = {t for n in given if isinstance(n, Gate) for t in n.targets} | {b for _, b in layout.edges}
    writers = Counter(o for n in given for o in set(n.outputs))
    given = [n if n.inner is None or n.name in chosen else _without_own_seeds(n, writers) for n in given]
    return (*given, *(JoinNode(spec) for spec in layout.joins))


def _without_own_seeds(subflow: Node, writers: Mapping[str, int]) -> Node:
    """Leave out inputs that a flow may have but need not, if only the flow itself would give them."""
    needed = frozenset(p.name for p in subflow.params if p.required)
    if subflow.inner.unreachable_inputs(needed):
        return subflow
    over = subflow.over.params if subflow.over is not None else ()
    kept = tuple(
        p
        for p in subflow.params
        if p.required or p.name in over or p.source not in subflow.outputs or writers[p.source] > 1
    )
    return subflow if len(kept) == len(subflow.params) else subflow._copy(params=kept)
