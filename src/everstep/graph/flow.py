"""`Flow`: nodes wired by the names they read and write."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any, Literal, NamedTuple

from everstep.errors import BadRequest, FlowError, InputError
from everstep.graph.hints import UNKNOWN, accepts, fits, spell
from everstep.graph.joins import JoinNode
from everstep.graph.loops import UncutLoop, reachable
from everstep.graph.node import END, Gate, Node
from everstep.graph.plan import Limits, Plan, deep_nodes
from everstep.graph.subflow import Subflow
from everstep.graph.waits import answer_hint
from everstep.graph.wiring import Layout, Wired, flatten
from everstep.model.durability import Durability
from everstep.model.enums import Effects, Persist

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Problem(NamedTuple):
    """One thing that is wrong with a flow, where, and how to mend it."""

    code: str
    node: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"[{self.code}] {self.message} {self.fix}"


class Flow:
    """A definition: nodes, and edges inferred from the names they read and write, or drawn with `>>` and `|`.

    It checks itself when built and reports every problem at once. `entry` says where a loop begins; a gate's
    target runs only when it is chosen, one of `tasks` only when a node asks for it with `ctx.next_task`.
    `channel` names the keys of the run's channel with their types; without it any key may be used.
    """

    def __init__(
        self,
        name: str,
        nodes: Iterable[Node | Wired] | Wired = (),
        *,
        entry: str | Node | Iterable[str | Node] = (),
        tasks: Iterable[Node] = (),
        channel: Mapping[str, Any] | None = None,
        durability: str | Durability = "partial",
        version: str = "1",
        max_steps: int = 10_000,
        max_visits: int | None = None,
        max_concurrency: int | None = None,
        auto_checkpoint: int | None = None,
    ) -> None:
        self.name = name
        _check_shape(name, nodes, version)
        layout = flatten(nodes)
        self.tasks = tuple(tasks)
        self.edges = layout.edges
        """Control edges, as names of nodes."""
        self.channel = None if channel is None else dict(channel)
        self.nodes = _all_nodes(layout, self.tasks, has_results=bool(layout.edges or self.tasks or channel))
        self.auto_checkpoint = auto_checkpoint
        self.durability = Durability.of(durability)
        self.version = version
        self.max_steps = max_steps
        self.max_visits = max_visits
        self.max_concurrency = max_concurrency
        listed = (entry,) if isinstance(entry, (str, Node)) else tuple(entry)
        self.entry = tuple(e.name if isinstance(e, Node) else e for e in listed)
        self._check_numbers()
        problems = list(_wiring_problems(self))
        if not problems:
            try:
                self.plan = Plan(
                    self.nodes,
                    self.entry,
                    edges=self.edges,
                    tasks=[t.name for t in self.tasks],
                    channel=self.channel or (),
                    limits=Limits(max_steps, max_visits, max_concurrency),
                )
            except UncutLoop as loop:
                problems.append(_loop_problem([self.nodes[i] for i in loop.members]))
            else:
                problems += [
                    *_writer_problems(self.plan),
                    *_type_problems(self.plan),
                    *_durability_problems(self.plan),
                    *_nesting_problems(self.plan),
                ]
        if problems:
            raise FlowError(
                f"flow {name!r} cannot run: " + " ".join(str(p) for p in problems),
                problems=[p._asdict() for p in problems],
            )
        self._complete_inputs: dict[frozenset[str], bool] = {}
        self.source: str | None = None
        """Where to find this flow again, as `FILE.py:FLOW`; kept with its runs if it is set."""

    def _check_numbers(self) -> None:
        for field in ("max_steps", "max_visits", "max_concurrency", "auto_checkpoint"):
            limit = getattr(self, field)
            if limit is not None and (not isinstance(limit, int) or limit < 1):
                raise BadRequest(
                    f"flow {self.name!r}: {field} is {limit!r}.", fix="Give a whole number from 1 on."
                )

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
    ) -> Subflow:
        """Return this flow as one node of another.

        Nested, its steps are recorded one by one, addressed as `name/node`, and a resume goes on inside.
        Atomic, it is one step that keeps nothing but what is lifted. `select` says which of its values a
        result shows under the node's name; by default all.
        """
        if durability not in ("nested", "atomic"):
            raise BadRequest(
                f"flow {self.name!r}: durability is {durability!r}.", fix='A node is "nested" or "atomic".'
            )
        hints = {n: (self.input_hints(n) or [UNKNOWN])[0] for n in self.inputs}
        inputs = [(n, required, hints[n]) for n, required in self.inputs.items()]
        is_atomic = durability == "atomic"
        if is_atomic:
            self._refuse_halts(name or self.name)
        return Subflow(self.plan, name=name or self.name, inputs=inputs, is_atomic=is_atomic, select=select)

    def _refuse_halts(self, name: str) -> None:
        for path, node in deep_nodes(self.plan):
            if node.halts:
                raise FlowError(
                    f"{path!r} may halt, but flow {name!r} is to be atomic: one step has no place to wait.",
                    fix="Use durability='nested', or move the node out of the atomic flow.",
                )

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
        wrong = [
            *self._unknown_inputs(inputs),
            *self._missing_inputs(inputs, channel or {}),
            *self._mistyped_inputs(inputs),
        ]
        if wrong:
            raise InputError(f"flow {self.name!r} cannot start: " + " ".join(wrong))

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
                known = ", ".join(sorted(allowed)) or "none"
                yield f"Unknown input {name!r}.{_did_you_mean(name, sorted(allowed))} It takes: {known}."

    def _missing_inputs(self, inputs: Mapping[str, Any], channel: Mapping[str, Any]) -> Iterable[str]:
        given = frozenset(inputs)
        if self._complete_inputs.get(given):
            return
        missing = self.plan.unreachable_inputs(given)
        self._complete_inputs[given] = not missing
        if not missing and not self.plan.can_start(given):
            self._complete_inputs[given] = False
            yield "No node can start: every node waits to be chosen. Name where the loop begins with entry=."
        names = [*inputs, *self.plan.writers]
        for name, readers in missing.items():
            reads = "read it" if len(readers) > 1 else "reads it"
            hint = self._hint(name, names)
            if name in channel:
                hint = f" To fill it from the channel, declare the key: Flow(..., channel={{{name!r}: ...}})."
            waiting = {path for path, n in deep_nodes(self.plan) if n.halts and n.identifier}
            if waiting.issuperset(readers):
                hint += f" If the text itself is meant: wait.literal({name!r})."
            yield f"Input {name!r} is missing; {', '.join(readers)} {reads}.{hint}"

    def _hint(self, name: str, known: Sequence[str]) -> str:
        """Guess what a missing name was meant to be."""
        if name in self.plan.index and not self[name].outputs:
            return f" Node {name!r} writes nothing; did you forget output={name!r}?"
        if name in ("ctx", "context"):
            return f" For a context, annotate it: {name}: Context."
        if name == "self":
            return " A method cannot be a node; wrap it in a function."
        return _did_you_mean(name, known)

    def _mistyped_inputs(self, inputs: Mapping[str, Any]) -> Iterable[str]:
        for name, value in inputs.items():
            for i in self.plan.readers.get(name, ()):
                for p in self.nodes[i].params:
                    if p.source == name and not fits(value, p.hint):
                        got, reader = type(value).__name__, self.nodes[i].name
                        yield f"Input {name!r} is {value!r:.60} ({got}); {reader} wants {spell(p.hint)}."


def _check_shape(name: object, nodes: object, version: object) -> None:
    if not isinstance(version, str):
        raise BadRequest(f"flow {name!r}: version is {version!r}.", fix="Give text.")
    if not isinstance(name, str):
        raise BadRequest(f"a flow's name is text, not {name!r}.", fix='Write Flow("name", [...]).')
    if isinstance(nodes, Node):
        raise BadRequest(
            f"flow {name!r} got one node, not a list.", fix=f"Write Flow({name!r}, [{nodes.name}])."
        )


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
    targets = {t for n in given if isinstance(n, Gate) for t in n.targets}
    given = [n if n.inner is None or n.name in targets else _without_own_seeds(n, given) for n in given]
    return (*given, *(JoinNode(spec) for spec in layout.joins))


def _without_own_seeds(subflow: Node, given: Sequence[Node]) -> Node:
    """Leave out inputs that a flow may have but need not, if only the flow itself would give them."""
    others = {o for n in given if n is not subflow for o in n.outputs}
    needed = frozenset(p.name for p in subflow.params if p.required)
    if subflow.inner.unreachable_inputs(needed):
        return subflow
    over = subflow.over.params if subflow.over is not None else ()
    kept = tuple(
        p
        for p in subflow.params
        if p.required or p.name in over or p.source in others or p.source not in subflow.outputs
    )
    return subflow if len(kept) == len(subflow.params) else subflow._copy(params=kept)


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, [k for k in known if k != name], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _wiring_problems(flow: Flow) -> Iterable[Problem]:
    if not NAME.fullmatch(flow.name):
        yield Problem(
            "flow.bad_name", "", f"{flow.name!r} is not a flow's name.", "Use letters, digits, . _ -"
        )
    if not flow.nodes:
        yield Problem("flow.empty", "", "It has no nodes.", "Give at least one.")
    names = [n.name for n in flow.nodes if isinstance(n, Node)]
    for n in flow.nodes:
        if not isinstance(n, Node):
            fix = (
                "Put it in as a node: .as_node()."
                if isinstance(n, Flow)
                else "Decorate the function with @node."
            )
            yield Problem("flow.not_a_node", repr(n), f"{n!r} is not a node.", fix)
            continue
        yield from _node_problems(n, names)
    for name in dict.fromkeys(n for n in names if names.count(n) > 1) if len(set(names)) < len(names) else ():
        yield Problem(
            "flow.duplicate_name", name, f"Two nodes are called {name!r}.", "Rename one: with_name(...)."
        )
    yield from _task_problems(flow)
    for name in flow.entry:
        if name not in names:
            fix = f"Name one of the nodes.{_did_you_mean(name, names)}"
            yield Problem("flow.unknown_entry", name, f"Entry {name!r} is not a node.", fix)


def _task_problems(flow: Flow) -> Iterable[Problem]:
    wired = {name for edge in flow.edges for name in edge}
    for task in flow.tasks:
        if isinstance(task, Node) and task.name in wired:
            message = f"Task {task.name!r} also stands in a chain."
            yield Problem("flow.wired_task", task.name, message, "List it under tasks= or wire it, not both.")


def _node_problems(n: Node, names: Sequence[str]) -> Iterable[Problem]:
    if not NAME.fullmatch(n.name):
        yield Problem(
            "flow.bad_name", n.name, f"{n.name!r} is not a node's name.", "Pass name= to the decorator."
        )
    for odd in n.oddities:
        message = f"Parameter {odd!r} of {n.name!r} cannot be filled by name."
        yield Problem(
            "flow.bad_parameter", n.name, message, "Use plain parameters, or **kwargs with inputs=[...]."
        )
    for out in n.outputs:
        if not out.isidentifier() and out != n.result_name:
            yield Problem(
                "flow.bad_output", n.name, f"{n.name!r} writes {out!r}.", "Output names are identifiers."
            )
    if len(set(n.outputs)) < len(n.outputs):
        yield Problem(
            "flow.bad_output", n.name, f"{n.name!r} writes a name twice.", "Give each output its own name."
        )
    if isinstance(n, Gate):
        if n.outputs:
            yield Problem(
                "flow.gate_output",
                n.name,
                f"Gate {n.name!r} has outputs.",
                "Gates only choose; drop output=.",
            )
        if not n.targets:
            yield Problem("flow.no_target", n.name, f"Gate {n.name!r} has no targets.", "Name at least one.")
        for target in n.targets:
            if target != END and target not in names:
                fix = f"Name a node of this flow, or END.{_did_you_mean(target, names)}"
                if target == "END":
                    fix = "Write END without quotes; import it from everstep."
                yield Problem(
                    "flow.unknown_target", n.name, f"Gate {n.name!r} leads to unknown {target!r}.", fix
                )


def _durability_problems(plan: Plan) -> Iterable[Problem]:
    for n in plan.nodes:
        if n.persist is not Persist.NO:
            continue
        if n.skip_on_resume:
            message = f"{n.name!r} is to be skipped on resume, but its outputs are not kept."
            yield Problem("flow.not_durable", n.name, message, "Drop persist='no' or skip_on_resume=True.")
        if n.effects is Effects.EFFECTFUL and any(plan.readers.get(o) for o in n.outputs):
            message = (
                f"{n.name!r} is effectful and its outputs are read, but not kept: a resume would repeat it."
            )
            yield Problem("flow.not_durable", n.name, message, "Drop persist='no'.")
        i = plan.index[n.name]
        if (i in plan.tasks or plan.channelled[i]) and any(plan.readers.get(o) for o in n.outputs):
            message = (
                f"{n.name!r} may get its arguments from a task or the channel, and cannot be called again."
            )
            yield Problem("flow.not_durable", n.name, message, "Drop persist='no'.")


def _nesting_problems(plan: Plan) -> Iterable[Problem]:
    """A flow that is resumed inside needs every value that crosses its boundary to be kept."""
    fix = "Drop persist='no', or make the flow atomic."
    for i, child in plan.children.items():
        name = plan.paths[i]
        if child.is_leaf and plan.nodes[i].persist is Persist.NO:
            message = f"Map {name!r} does not keep what its items return."
            yield Problem("flow.not_durable", name, message, "Drop persist='no'.")
        if child.is_leaf or (child.is_atomic and child.over is None):
            continue
        for source in plan.sources[i]:
            for w in plan.writers.get(source, ()):
                if plan.nodes[w].persist is Persist.NO:
                    message = f"{plan.paths[w]!r} does not keep {source!r}, but flow {name!r} begins with it."
                    yield Problem("flow.not_durable", plan.paths[w], message, fix)
        for inner in () if child.is_atomic else child.exports:
            for w in child.plan.writers[inner]:
                if child.plan.nodes[w].persist is Persist.NO:
                    message = (
                        f"{name}/{child.plan.paths[w]} does not keep {inner!r}, but flow {name!r} gives it."
                    )
                    yield Problem("flow.not_durable", name, message, fix)


def _loop_problem(nodes: list[Node]) -> Problem:
    members = [n.name for n in nodes]
    if nodes[0].inner is not None and len(nodes) == 1:
        message = f"Flow {members[0]!r} reads what it writes, so it would run again and again."
        fix = 'Give its output another name: .with_outputs(old="new"), or let a gate choose it.'
        return Problem("flow.endless_loop", members[0], message, fix)
    if len(members) == 1:
        message = f"{members[0]!r} reads what it writes, and no gate chooses whether it runs again."
        fix = "Give its output another name, or let a gate (@ifelse, @route) choose it."
        return Problem("flow.endless_loop", members[0], message, fix)
    message = f"{' -> '.join([*members, members[0]])} is a loop that no gate can leave."
    return Problem(
        "flow.endless_loop", members[0], message, "Let a gate (@ifelse, @route) choose whether to go round."
    )


def _writer_problems(plan: Plan) -> Iterable[Problem]:
    for name, writers in plan.writers.items():
        for k, first in enumerate(writers):
            for second in writers[k + 1 :]:
                if not _ordered(plan, first, second) and not _exclusive(plan, first, second):
                    a, b = plan.paths[first], plan.paths[second]
                    if plan.nodes[first].inner is not None or plan.nodes[second].inner is not None:
                        yield _boundary_problem(plan, name, first, second)
                        continue
                    message = f"{a!r} and {b!r} both write {name!r} and nothing says which comes last."
                    fix = "Give one another output name, or let a gate choose between them."
                    yield Problem("flow.two_writers", a, message, fix)


def _boundary_problem(plan: Plan, name: str, first: int, second: int) -> Problem:
    inner, other = (first, second) if plan.nodes[first].inner is not None else (second, first)
    flow = plan.paths[inner]
    message = f"flow {flow!r} gives {name!r}, which {plan.paths[other]!r} writes too."
    fix = f"Rename it with .with_outputs({name}=...), or leave it inside with .lift(...) of the others."
    return Problem("flow.boundary_clash", flow, message, fix)


def _ordered(plan: Plan, a: int, b: int) -> bool:
    return bool(plan.blockers[a] >> b & 1 or plan.blockers[b] >> a & 1)


def _exclusive(plan: Plan, a: int, b: int) -> bool:
    """True if one gate leads to `a` or to `b`, never to both, and nothing else leads to either."""
    choosers: dict[int, list[Gate]] = {}
    for gate in plan.nodes:
        if isinstance(gate, Gate):
            for target in gate.targets:
                if target != END:
                    choosers.setdefault(plan.index[target], []).append(gate)
    for t, u in permutations((t for t in choosers if t not in plan.entry), 2):
        if choosers[t] != choosers[u] or len(choosers[t]) != 1 or choosers[t][0].multi:
            continue
        if (t, u) == (a, b):
            return True
        reach_t, reach_u = reachable(plan.graph, t), reachable(plan.graph, u)
        if a in reach_t - reach_u and b in reach_u - reach_t:
            return True
    return False


def _type_problems(plan: Plan) -> Iterable[Problem]:
    for i, reader in enumerate(plan.nodes):
        for p in reader.params:
            for w in plan.writers.get(p.source, ()):
                writer = plan.nodes[w]
                given = answer_hint(writer)
                if len(writer.outputs) == 1 and w != i and not accepts(p.hint, given):
                    message = (
                        f"{writer.name!r} returns {spell(given)} as {p.source!r}, "
                        f"but {reader.name!r} wants {spell(p.hint)}."
                    )
                    yield Problem("flow.type_mismatch", reader.name, message, "Change one of the hints.")
