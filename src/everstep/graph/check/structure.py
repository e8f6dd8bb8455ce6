"""What is checked when a flow is built: its names, its wiring, its types, and what it keeps of its values."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Final, Union

from everstep.errors import close_matches
from everstep.graph.author.definition import Definition
from everstep.graph.author.node import END, Gate, IfElse, Node
from everstep.graph.author.options import Inside, Of, Place, Refusal, refusals
from everstep.graph.author.subflow import Subflow
from everstep.graph.author.wait_options import answer_hint
from everstep.graph.check.diagnostics import Diagnostic, Severity
from everstep.graph.check.hints import UNKNOWN, accepts, hints_of, part_of, spell
from everstep.graph.check.reach import stuck
from everstep.graph.compile.loops import bits, mask_of
from everstep.graph.compile.plan import DEEPEST, Plan, all_keys, deep_nodes
from everstep.model.enums import OnError, Persist
from everstep.model.items import ItemError
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    from everstep.graph.check.undoing import undo_problems
else:
    undo_problems = on_demand("everstep.graph.check.undoing:undo_problems")

_SHOWN: Final = 6
"""How many nodes a message names."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def plan_problems(plan: Plan) -> Iterator[Diagnostic]:
    """Yield what is wrong with a flow whose names and edges are sound."""
    if plan.depth > DEEPEST:
        message = f"More than {DEEPEST} flows are inside each other."
        yield _error("flow.too_deep", "", message, "Put nodes of the innermost side by side.")
    yield from _writer_problems(plan)
    yield from _start_problems(plan)
    yield from _durability_problems(plan)
    yield from _nesting_problems(plan)
    if plan.has_undo:
        yield from undo_problems(plan)


def node_problems(flow: Definition) -> Iterator[Diagnostic]:
    """Yield what is wrong with nodes and between two of them, however they are wired."""
    known = [n for n in flow.nodes if isinstance(n, Node)]
    yield from _type_problems(known)
    yield from _atomic_problems(known)
    yield from _inner_problems(flow, known)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Guess what a name was meant to be."""
    close = close_matches(name, [k for k in known if k != name], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _called(thing: object) -> str:
    """Name what was put where a node belongs: a function by its name and place."""
    name, place = getattr(thing, "__name__", None), _place(thing)
    return f"Function {name!r} ({place})" if name and place else repr(thing)


def _error(code: str, node: str, message: str, fix: str, edge: tuple[str, str] | None = None) -> Diagnostic:
    return Diagnostic(code, Severity.ERROR, node, edge, message, fix)


def wiring_problems(flow: Definition) -> Iterator[Diagnostic]:
    """Yield what is wrong with the names of a flow, and with what they lead to."""
    if not NAME.fullmatch(flow.name):
        yield _error(
            "flow.bad_name", "", f"{flow.name!r} is not a flow's name.", "Use letters, digits, . _ -"
        )
    if not flow.nodes:
        yield _error("flow.empty", "", "It has no nodes.", "Give at least one.")
    names = Counter(n.name for n in flow.nodes if isinstance(n, Node))
    for n in flow.nodes:
        if not isinstance(n, Node):
            fix = (
                "Put it in as a node: .as_node()."
                if hasattr(n, "as_node")
                else "Decorate the function with @node."
            )
            yield _error("flow.not_a_node", repr(n), f"{_called(n)} is not a node.", fix)
            continue
        yield from _node_problems(n, names)
    for name, times in names.items():
        if times > 1:
            message = f"Two nodes are called {name!r}."
            yield _error("flow.duplicate_name", name, message, "Rename one: with_name(...).")
    yield from _task_problems(flow)
    yield from _profile_problems(flow, names)
    for name in flow.entry:
        if name not in names:
            fix = f"Name one of the nodes.{did_you_mean(name, names)}"
            yield _error("flow.unknown_entry", name, f"Entry {name!r} is not a node.", fix)


def _profile_problems(flow: Definition, names: Collection[str]) -> Iterator[Diagnostic]:
    flows = {n.name: n for n in flow.nodes if isinstance(n, Node) and n.inner is not None}
    for path in flow.profiles:
        name, slash, _ = path.partition("/")
        if slash and name in flows:
            continue
        if path in flows:
            message = f"{path!r} is a flow; its profile is the worst of its nodes'."
            fix = f"Give profiles of its nodes, by path: {path + '/...'!r}."
        elif slash and name in names:
            message, fix = f"There is a profile of {path!r}, but {name!r} is no flow.", "Name the node alone."
        elif name not in names:
            message = f"There is a profile of {path!r}, which is not a node."
            fix = f"Name one of the nodes.{did_you_mean(name, names)}"
        else:
            continue
        yield _error("flow.unknown_profile", path, message, fix)
    for n in flows.values():
        for problem in n.flow.problems if isinstance(n, Subflow) else ():
            path = f"{n.name}/{problem.node}".rstrip("/")
            yield problem._replace(node=path, message=f"In {n.name!r}: {problem.message}")


def _task_problems(flow: Definition) -> Iterator[Diagnostic]:
    wired = {name for edge in flow.edges for name in edge}
    for task in flow.tasks:
        if isinstance(task, Node) and task.name in wired:
            message = f"Task {task.name!r} also stands in a chain."
            yield _error("flow.wired_task", task.name, message, "List it under tasks= or wire it, not both.")


def _node_problems(n: Node, names: Collection[str]) -> Iterator[Diagnostic]:
    if not NAME.fullmatch(n.name):
        yield _error(
            "flow.bad_name", n.name, f"{n.name!r} is not a node's name.", "Pass name= to the decorator."
        )
    if n.is_unbound:
        message = f"{n.name!r} is a method, and nothing says of which object."
        fix = f"Take the node from an object: give the flow agent.{n.name}, where agent is one."
        yield _error("flow.unbound_method", n.name, message, fix)
    for odd in n.oddities:
        message = f"Parameter {odd!r} of {n.name!r} cannot be filled by name."
        yield _error(
            "flow.bad_parameter", n.name, message, "Use plain parameters, or **kwargs with inputs=[...]."
        )
    for out in n.outputs:
        if not out.isidentifier() and out != n.result_name:
            yield _error(
                "flow.bad_output", n.name, f"{n.name!r} writes {out!r}.", "Output names are identifiers."
            )
    if len(set(n.outputs)) < len(n.outputs):
        yield _error(
            "flow.bad_output", n.name, f"{n.name!r} writes a name twice.", "Give each output its own name."
        )
    for refused in _refusals(n, Place.PLAIN):
        what = "Gate" if n.is_gate else "Node"
        message = f"{what} {n.name!r} {refused.does}, but {refused.because}."
        yield _error(refused.code, n.name, message, refused.fix)
    if isinstance(n, Gate):
        if not n.targets:
            yield _error("flow.no_target", n.name, f"Gate {n.name!r} has no targets.", "Name at least one.")
        for target in n.targets:
            if target != END and target not in names:
                fix = f"Name a node of this flow, or END.{did_you_mean(target, names)}"
                if target == "END":
                    fix = "Write END without quotes; import it from everstep."
                message = f"Gate {n.name!r} leads to unknown {target!r}."
                yield _error("flow.unknown_target", n.name, message, fix, (n.name, target))
        yield from _choice_problems(n)


def _choice_problems(gate: Gate) -> Iterator[Diagnostic]:
    """Refuse a gate whose function certainly returns no choice."""
    told = f"Gate {gate.name!r} returns {spell(gate.returns)}, but"
    if isinstance(gate, IfElse) and not accepts(bool, gate.returns):
        fix = "Return a bool, or choose targets by name with @route."
        yield _error("flow.type_mismatch", gate.name, f"{told} an @ifelse function returns a bool.", fix)
    elif type(gate) is Gate and gate.returns is bool:
        fix = "Return a name, or use @ifelse."
        yield _error("flow.type_mismatch", gate.name, f"{told} a @route function names a target.", fix)


def _durability_problems(plan: Plan) -> Iterator[Diagnostic]:
    for n in plan.nodes:
        if n.persist is not Persist.NO:
            continue
        if n.skip_on_resume is True:
            message = f"{n.name!r} is to be skipped on resume, but its outputs are not kept."
            yield _error("flow.not_durable", n.name, message, "Drop persist='no' or skip_on_resume=True.")
        if n.is_effectful and any(plan.readers.get(o) for o in n.outputs):
            message = (
                f"{n.name!r} is effectful and its outputs are read, but not kept: a resume would repeat it."
            )
            yield _error("flow.not_durable", n.name, message, "Drop persist='no'.")
        i = plan.index[n.name]
        if (i in plan.tasks or plan.channelled[i]) and any(plan.readers.get(o) for o in n.outputs):
            message = (
                f"{n.name!r} may get its arguments from a task or the channel, and cannot be called again."
            )
            yield _error("flow.not_durable", n.name, message, "Drop persist='no'.")


def _nesting_problems(plan: Plan) -> Iterator[Diagnostic]:
    """A flow that is resumed inside needs every value that crosses its boundary to be kept."""
    fix = "Drop persist='no', or make the flow atomic."
    for i, child in plan.children.items():
        name = plan.paths[i]
        if child.is_leaf and plan.nodes[i].persist is Persist.NO:
            message = f"Map {name!r} does not keep what its items return."
            yield _error("flow.not_durable", name, message, "Drop persist='no'.")
        if child.is_leaf or (child.is_atomic and child.over is None):
            continue
        for source in plan.sources[i]:
            for w in plan.writers.get(source, ()):
                if plan.nodes[w].persist is Persist.NO:
                    message = f"{plan.paths[w]!r} does not keep {source!r}, but flow {name!r} begins with it."
                    edge = (plan.paths[w], name)
                    yield _error("flow.not_durable", plan.paths[w], message, fix, edge)
        for inner in () if child.is_atomic else child.exports:
            for w in child.plan.writers[inner]:
                if child.plan.nodes[w].persist is Persist.NO:
                    path = f"{name}/{child.plan.paths[w]}"
                    message = f"{path!r} does not keep {inner!r}, but flow {name!r} gives it."
                    leave = "Leave it inside with .lift(...) of the others, drop persist='no', "
                    yield _error("flow.not_durable", path, message, f"{leave}or make the flow atomic.")


def loop_problem(nodes: list[Node]) -> Diagnostic:
    """Say that these nodes are a loop that no gate can leave."""
    members = [n.name for n in nodes]
    if nodes[0].inner is not None and len(nodes) == 1:
        message = f"Flow {members[0]!r} reads what it writes, so it would run again and again."
        fix = 'Give its output another name: .with_outputs(old="new"), or let a gate choose it.'
        return _error("flow.endless_loop", members[0], message, fix)
    if len(members) == 1:
        message = f"{members[0]!r} reads what it writes, and no gate chooses whether it runs again."
        fix = "Give its output another name, or let a gate (@ifelse, @route) choose it."
        return _error("flow.endless_loop", members[0], message, fix)
    message = f"{' -> '.join([*members, members[0]])} is a loop that no gate can leave."
    return _error(
        "flow.endless_loop", members[0], message, "Let a gate (@ifelse, @route) choose whether to go round."
    )


def _writer_problems(plan: Plan) -> Iterator[Diagnostic]:
    ways = _Ways(plan)
    for name, writers in plan.writers.items():
        for k, first in enumerate(writers):
            for second in writers[k + 1 :]:
                if not _ordered(plan, first, second) and not ways.exclude(first, second):
                    a, b = plan.paths[first], plan.paths[second]
                    if plan.nodes[first].inner is not None or plan.nodes[second].inner is not None:
                        yield _boundary_problem(plan, name, first, second)
                        continue
                    message = f"{a!r} and {b!r} both write {name!r} and nothing says which comes last."
                    fix = "Give one another output name, or let a gate choose between them."
                    yield _error("flow.two_writers", a, message, fix)


def _start_problems(plan: Plan) -> Iterator[Diagnostic]:
    """Say which nodes can never run, once for each set of nodes that wait for each other."""
    for members, reasons, behind in stuck(plan):
        first = plan.paths[members[0]]
        heads = [m for m in members if plan.is_target[m] or plan.is_led[m]]
        head = plan.paths[heads[0]] if heads else first
        if len(members) + len(behind) == len(plan.nodes):
            code, begins = "flow.no_start", "No node can start"
        elif len(members) == 1:
            code, begins = "flow.unreachable", f"{first!r} can never start"
        else:
            code, begins = "flow.unreachable", f"{_listed(plan, members)} can never start"
        message = f"{begins}, {_why(reasons)}"
        if behind and code == "flow.unreachable":
            message += _after(plan, behind)
        fix = f"Say where it begins, such as entry={head!r}, or let a node that starts lead to one of them."
        yield _error(code, head, message, fix)


def unbegun(plan: Plan, inputs: frozenset[str]) -> Iterator[str]:
    """Say which nodes a run with these inputs can never come to, as their loop begins nowhere."""
    for members, reasons, behind in stuck(plan, inputs):
        told = f"{_listed(plan, members)} can never start with these inputs, {_why(reasons)}"
        first = next((m for m in members if plan.is_target[m]), members[0])
        seeds = sorted({name for m in members for name in plan.required[m] & plan.seeds} - inputs)
        give = f", or give {' or '.join(map(repr, seeds))}" if seeds else ""
        told += _after(plan, behind) if behind else ""
        yield f"{told} Say where it begins, such as entry={plan.paths[first]!r}{give}."
    for i, child in plan.children.items():
        if not child.is_leaf:
            known = (
                inputs | plan.channelled[i] | {n for n, writers in plan.writers.items() if set(writers) - {i}}
            )
            brought = frozenset(p.name for p in plan.nodes[i].params if p.source in known)
            yield from (f"In {plan.paths[i]!r}: {told}" for told in unbegun(child.plan, brought))


def _why(reasons: Sequence[str]) -> str:
    what = "it waits for itself" if len(reasons) == 1 else "each waits for another"
    return f"for {what}: {'; '.join(reasons[:_SHOWN])}{'; ...' * (len(reasons) > _SHOWN)}."


def _after(plan: Plan, behind: Sequence[int]) -> str:
    return f" So {_listed(plan, behind)} never run{'s' * (len(behind) == 1)}, either."


def _listed(plan: Plan, nodes: Sequence[int]) -> str:
    names = [repr(plan.paths[i]) for i in nodes[:_SHOWN]]
    more = [f"{len(nodes) - _SHOWN} more"] if len(nodes) > _SHOWN else []
    *most, last = [*names, *more]
    return f"{', '.join(most)} and {last}" if most else last


def _boundary_problem(plan: Plan, name: str, first: int, second: int) -> Diagnostic:
    inner, other = (first, second) if plan.nodes[first].inner is not None else (second, first)
    flow = plan.paths[inner]
    message = f"flow {flow!r} gives {name!r}, which {plan.paths[other]!r} writes too."
    fix = f"Rename it with .with_outputs({name}=...), or leave it inside with .lift(...) of the others."
    return _error("flow.boundary_clash", flow, message, fix)


def _ordered(plan: Plan, a: int, b: int) -> bool:
    return bool(plan.blockers[a] >> b & 1 or plan.blockers[b] >> a & 1)


class _Ways:
    """The nodes that a gate leads to, where it takes one way and nothing else leads to them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        choosers: dict[int, list[int]] = {}
        for g, gate in enumerate(plan.nodes):
            if isinstance(gate, Gate):
                for target in gate.targets:
                    if target != END:
                        choosers.setdefault(plan.index[target], []).append(g)
        self._gate = {
            t: gates[0]
            for t, gates in choosers.items()
            if len(gates) == 1 and t not in plan.entry and not _is_multi(plan.nodes[gates[0]])
        }
        self._targets = mask_of(self._gate)

    def exclude(self, a: int, b: int) -> bool:
        """True if a gate leads to `a` or to `b`, never to both, and nothing else leads to either."""
        if a in self._gate and self._gate[a] == self._gate.get(b):
            return True
        return not self._only_to(a, b).isdisjoint(self._only_to(b, a))

    def _only_to(self, wanted: int, other: int) -> set[int]:
        """Return the gates one way of which leads to `wanted`, and not to `other`.

        In a loop that is so within a round, which comes to rest before the next begins.
        """
        before, elsewhere = (self._plan.blockers[n] | 1 << n for n in (wanted, other))
        return {self._gate[t] for t in bits(before & ~elsewhere & self._targets)}


def _is_multi(gate: Node) -> bool:
    return isinstance(gate, Gate) and gate.multi


def _type_problems(nodes: Sequence[Node]) -> Iterator[Diagnostic]:
    writers: dict[str, list[Node]] = {}
    for n in nodes:
        for output in dict.fromkeys(n.outputs):
            writers.setdefault(output, []).append(n)
    for reader in nodes:
        for p in reader.params:
            for writer in writers.get(p.source, ()) if p.hint is not UNKNOWN else ():
                given = _given(writer, p.source)
                if writer is not reader and not accepts(p.hint, given):
                    message = (
                        f"{writer.name!r} returns {spell(given)} as {p.source!r}, "
                        f"but {reader.name!r} wants {spell(p.hint)}."
                    )
                    edge = (writer.name, reader.name)
                    places = " or ".join(filter(None, (_defined_at(writer), _defined_at(reader))))
                    fix = f"Change one of the hints{': ' if places else ''}{places}."
                    yield _error("flow.type_mismatch", reader.name, message, fix, edge)


def _defined_at(n: Node) -> str:
    """Return the file and the line of a node's function, if that is known."""
    return _place(n.fn) if n.inner is None and not n.is_built_in else ""


def _place(function: object) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename.rpartition(os.sep)[2]}:{code.co_firstlineno}" if code is not None else ""


def _given(writer: Node, output: str) -> Any:
    """Return the hint of a value that a node writes."""
    if writer.over is not None:
        return _given_by_map(writer, output)
    if isinstance(writer.inner, Plan):
        inside = [inner for inner, outer in writer.exports.items() if outer == output]
        writers = [(w, name) for name in inside for w in writer.inner.writers.get(name, ())]
        return _given(writer.inner.nodes[writers[0][0]], writers[0][1]) if len(writers) == 1 else UNKNOWN
    hint = answer_hint(writer.returns, writer.answer_type)
    return hint if len(writer.outputs) == 1 else part_of(hint, writer.outputs.index(output), writer.outputs)


def _given_by_map(writer: Node, output: str) -> Any:
    """Return the hint of a list of what a node returns for each item, if that is known."""
    if writer.inner is not None or writer.is_built_in or writer.halts or writer.streams:
        return list
    item = hints_of(writer.fn).get("return", UNKNOWN)
    if len(writer.outputs) > 1:
        item = part_of(item, writer.outputs.index(output), writer.outputs)
    if item is UNKNOWN:
        return list
    is_collecting = writer.over is not None and writer.over.on_error is OnError.COLLECT
    return GenericAlias(list, (Union[item, ItemError] if is_collecting else item,))  # noqa: UP007  no hint need know `|`


def _atomic_problems(nodes: Sequence[Node]) -> Iterator[Diagnostic]:
    for n in nodes:
        for path, node in deep_nodes(n.inner) if n.is_atomic and isinstance(n.inner, Plan) else ():
            for refused in _refusals(node, Place.ATOMIC):
                message = f"{path!r} {refused.does}, but flow {n.name!r} is atomic: {refused.because}."
                yield _error(refused.code, f"{n.name}/{path}", message, refused.fix)


def _refusals(n: Node, place: Place) -> list[Refusal]:
    """Return what a node cannot have in a place; of what it can have nowhere the flow it is in has told."""
    of = Of.GATE if n.is_gate else Of.NODE
    anywhere = refusals(of, Place.PLAIN, n)
    return (
        list(anywhere) if place is Place.PLAIN else [r for r in refusals(of, place, n) if r not in anywhere]
    )


def _clashes(keys: Mapping[str, Any], inner: Plan) -> list[str]:
    """Return the keys of the channel that a flow and one inside it take for different things."""
    return [key for key, hint in all_keys(inner).items() if key in keys and keys[key] != hint]


def _inner_problems(flow: Definition, nodes: Sequence[Node]) -> Iterator[Diagnostic]:
    """Say what flows declare that hold only where they are run by themselves."""
    for n in nodes:
        if not isinstance(n, Subflow) or n.flow is None:
            continue
        place = Place.ATOMIC if n.is_atomic else Place.ITEM if n.over is not None else Place.NESTED
        for refused in refusals(Of.FLOW, place, Inside(n.flow, flow)):
            message = f"Flow {n.flow.name!r} {refused.does}, but is inside {flow.name!r}: {refused.because}."
            yield _error(refused.code, n.name, message, refused.fix)
        for key in _clashes(flow.channel or {}, n.inner):
            message = f"Flow {n.flow.name!r} has another type for channel key {key!r} than {flow.name!r}."
            yield _error("flow.channel_clash", n.name, message, "Declare the same type, or another key.")
        for refused in refusals(Of.AS_NODE, place, n):
            message = f"Flow {n.name!r} {refused.does}, but is atomic: {refused.because}."
            yield _error(refused.code, n.name, message, refused.fix)
