"""The nodes of a flow, from the IR. Apart from reading the flow around them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from everstep.codec.complaints import complaints
from everstep.errors import BadRequest, EverstepError
from everstep.graph.author.channel import RESULT_SUFFIX
from everstep.graph.author.extension import EXTENSIONS
from everstep.graph.author.joins import JoinNode
from everstep.graph.author.node import Gate, IfElse, Node, Param
from everstep.graph.author.node_options import BUILT_IN
from everstep.graph.author.subflow import Subflow
from everstep.graph.author.wait_options import ARGUMENTS, TEXT
from everstep.graph.author.waits import (
    MATCH,
    Ref,
    Text,
    WaitNode,
    approval,
    callback,
    event,
    question,
    signal,
    timer,
)
from everstep.graph.author.wiring import Join, JoinSpec, MemberSpec, Policy, resolved_rules
from everstep.graph.ir.check import Faults
from everstep.graph.ir.names import Json
from everstep.graph.ir.options import FOR_FUNCTIONS, Options
from everstep.graph.ir.registry import LookUp
from everstep.graph.ir.write import JOIN, profile_of

WAITS: Final[Mapping[str, Callable[..., WaitNode]]] = {
    "std.timer.wait": timer,
    "std.hitl.approval": approval,
    "std.callback.wait": callback,
    "std.question": question,
    "std.signal.wait": signal,
    "std.event.wait": event,
}
PLAIN: Final[Mapping[str, Json]] = {"kind": TEXT} | {
    name: about.schema for name, about in ARGUMENTS.items() if about.schema is not None
}
"""Arguments of waits that never name a value, and what they must be."""
Entry = dict[str, Json]


class Surfaces:
    """What the control surfaces say of each node."""

    def __init__(self, entries: list[tuple[str, Entry]], faults: Faults) -> None:
        self._entries = entries
        self._by_node: dict[str, dict[str, Entry]] = {}
        self._paths: dict[tuple[str, str], str] = {}
        for at, entry in entries:
            kind = "gate" if entry["kind"] in ("if", "switch") else entry["kind"]
            if self._by_node.setdefault(entry["node"], {}).setdefault(kind, entry) is not entry:
                faults.add("ir.contradiction", at, f"{entry['node']!r} has two of them.", "Drop one.")
            self._paths.setdefault((entry["node"], kind), at)

    def of(self, alias: str, kind: str) -> Entry | None:
        """Return the surface of that kind, if the node has one."""
        return self._by_node.get(alias, {}).get(kind)

    def path_of(self, alias: str, kind: str) -> str:
        """Return where that surface stands."""
        return self._paths[alias, kind]

    def named(self) -> Iterable[tuple[str, str]]:
        """Yield each node that is named and has to exist, with its path."""
        for at, entry in self._entries:
            yield f"{at}.node", entry["node"]
            for k, member in enumerate(entry.get("members", ())):
                yield from ((f"{at}.members[{k}]", name) for name in (*member["nodes"], *member["last"]))

    def meetings(self) -> Iterable[tuple[str, str, str]]:
        """Yield where branches end, and the join they meet at."""
        for at, entry in self._entries:
            for k, member in enumerate(entry.get("members", ())):
                yield from ((f"{at}.members[{k}].last", last, entry["node"]) for last in member["last"])


class Nodes:
    """Makes nodes. What is wrong is noted, and none is made."""

    def __init__(
        self, look_up: LookUp, surfaces: Surfaces, faults: Faults, inner: Callable[[Json, str], Any]
    ) -> None:
        self._look_up = look_up
        self._surfaces = surfaces
        self._faults = faults
        self._inner = inner
        self.profiles: dict[str, dict[str, Json]] = {}
        """What the flow says of nodes whose identifiers say something else."""

    def node(self, ir: Entry, path: str) -> Node | JoinSpec | None:
        """Return a node, or what its join is made of."""
        before = len(self._faults.found)
        try:
            made = self._made(ir, path)
            extension = EXTENSIONS.read(ir)
        except EverstepError as error:
            self._faults.take(error, path)
            return None
        if isinstance(made, Node) and extension:
            made.extension = extension
        return made if len(self._faults.found) == before else None

    def _made(self, ir: Entry, path: str) -> Node | JoinSpec | None:
        identifier = ir.get("identifier", "")
        has_flow, is_flow = "flow" in ir, ir.get("kind") == "subflow"
        if has_flow and not is_flow:
            self._refuse(
                f"{path}.flow", "there is a flow in a node that is no subflow.", "Say kind: subflow."
            )
            return None
        if not identifier and not has_flow:
            self._faults.add("ir.shape", f"{path}.identifier", "missing.")
            return None
        made: Node | None
        if identifier == JOIN:
            return self._join(ir, path)
        if self._surfaces.of(ir["alias"], "join") is not None:
            self._refuse(path, f"{ir['alias']!r} has a join, but is {identifier!r}.", f"Call it {JOIN!r}.")
            return None
        if is_flow:
            made = self._subflow(ir, path)
        elif identifier.startswith(BUILT_IN):
            made = self._wait(ir, path)
        else:
            made = self._function(ir, path)
        return None if made is None else self._mapped(made, ir)

    def _refuse(self, path: str, message: str, fix: str = "") -> None:
        self._faults.add("ir.contradiction", path, message, fix)

    # -- functions ----------------------------------------------------------------------------------------

    def _function(self, ir: Entry, path: str) -> Node | None:
        alias, identifier = ir["alias"], ir["identifier"]
        found = self._look_up.function(identifier, alias, f"{path}.identifier")
        base = found if isinstance(found, Node) else None
        if base is not None and (base.inner is not None or base.is_built_in):
            self._refuse(
                f"{path}.identifier", f"the registry has {base!r} as {identifier!r}.", "Give a function."
            )
            return None
        options = Options(self._look_up, alias, path).read(ir, base)
        if found is None:
            return None
        fn = found if base is None else base.fn
        if _takes_any(fn):
            known = {p.name for p in base.params} if base is not None else set()
            options["inputs"] = [i["name"] for i in ir["inputs"]] if "inputs" in ir else sorted(known)
        outputs = self._item_outputs(ir, base)
        made = self._gate_or_node(ir, fn, base, {**options, "name": alias, "output": outputs})
        made.identifier = identifier
        if made.outputs == (alias + RESULT_SUFFIX,):
            made.result_name = made.outputs[0]
        if "inputs" in ir:
            made.params = self._params(ir, made, path)
        elif base is not None:
            made.params = base.params
        return made

    def _item_outputs(self, ir: Entry, base: Node | None) -> list[str]:
        mapped = self._surfaces.of(ir["alias"], "for_each") or {}
        default: list[str] = list(base.outputs) if base is not None else []
        return list(mapped.get("item_outputs") or ir.get("outputs", default))

    def _gate_or_node(self, ir: Entry, fn: Any, base: Node | None, options: dict[str, Any]) -> Node:
        gate = self._surfaces.of(ir["alias"], "gate")
        if gate is None and isinstance(base, IfElse):
            return IfElse(fn, *base.targets, **options)
        if gate is None and isinstance(base, Gate):
            return Gate(fn, base.targets, multi=base.multi, **options)
        if gate is None:
            return Node(fn, **options)
        if gate["kind"] == "if":
            return IfElse(fn, gate["then"], gate["else"], **options)
        return Gate(fn, gate["targets"], multi=gate.get("multi", False), **options)

    def _params(self, ir: Entry, made: Node, path: str) -> tuple[Param, ...]:
        """Return the inputs as the IR has them, as far as what is called takes them."""
        takes = {p.name: p for p in made.params}
        found: dict[str, Param] = {}
        for k, given in enumerate(ir["inputs"]):
            name, at = given["name"], f"{path}.inputs[{k}]"
            if name not in takes:
                known = ", ".join(takes) or "none"
                self._refuse(at, f"{made.name!r} has no parameter {name!r}.", f"It has {known}.")
                continue
            if name in found:
                self._refuse(at, f"parameter {name!r} is filled twice.", "Drop one.")
            required = given.get("required", takes[name].required)
            if takes[name].required and not required:
                self._refuse(f"{at}.required", f"{made.name!r} cannot do without {name!r}.", "Say true.")
            found[name] = takes[name]._replace(source=given.get("source", name), required=required)
        for p in takes.values():
            if p.required and p.name not in {given["name"] for given in ir["inputs"]}:
                self._refuse(f"{path}.inputs", f"parameter {p.name!r} of {made.name!r} is filled by nothing.")
        return tuple(found.values())

    def _mapped(self, made: Node, ir: Entry) -> Node:
        over = self._surfaces.of(made.name, "for_each")
        if over is None:
            return made
        try:
            made = made.map_over(
                *over["over"],
                mode=over.get("mode", "zip"),
                on_error=over.get("on_error", "stop"),
                max_concurrency=over.get("max_concurrency", 32),
            )
        except BadRequest as error:
            self._faults.take(error, self._surfaces.path_of(made.name, "for_each"))
            return made
        return made.with_outputs(*ir["outputs"]) if "outputs" in ir else made

    # -- waits --------------------------------------------------------------------------------------------

    def _wait(self, ir: Entry, path: str) -> Node | None:
        alias, identifier = ir["alias"], ir["identifier"]
        make = WAITS.get(identifier)
        if make is None:
            known = ", ".join((*WAITS, JOIN))
            self._faults.add(
                "ir.missing", f"{path}.identifier", f"there is no {identifier!r}.", f"There are {known}."
            )
            return None
        outputs = self._item_outputs(ir, None)
        if len(outputs) > 1:
            self._refuse(f"{path}.outputs", f"{alias!r} is a wait, which writes one value.")
            return None
        arguments = self._arguments(ir, make, path)
        if ir.get("answer") is not None:
            arguments["answer_type"] = Options(self._look_up, alias, path).answer(ir["answer"])
        if "answer_type" in arguments and "answer_type" not in inspect.signature(make).parameters:
            self._refuse(f"{path}.answer", f"{identifier!r} has an answer of its own.", "Drop it.")
            return None
        if "output" not in arguments:
            arguments["output"] = outputs[0] if outputs else None
        made = make(alias, **arguments)
        if "inputs" in ir:
            self._same_sources(ir, made, path)
            made.params = self._params(ir, made, path)
        self._declare(ir, made, path)
        return made

    def _arguments(self, ir: Entry, make: Callable[..., WaitNode], path: str) -> dict[str, Any]:
        known = inspect.signature(make).parameters.keys() - {"name", "output", "answer_type"}
        found: dict[str, Any] = {}
        for argument, given in ir.get("arguments", {}).items():
            at = f"{path}.arguments.{argument}"
            is_match = argument.startswith(MATCH) and "match" in known
            if is_match and ("value" in given or "literal" in given):
                said = Ref(given["value"]) if "value" in given else Text(given["literal"])
                found.setdefault("match", {})[argument.removeprefix(MATCH)] = said
            elif argument not in known:
                fix = f"It has {', '.join(sorted(known))}."
                self._faults.add("ir.shape", at, f"{ir['identifier']!r} has no such argument.", fix)
            elif "value" in given:
                found[argument] = Ref(given["value"])
            elif "identifier" in given:
                place = f"{ir['alias']}/arguments/{argument}"
                found[argument] = Text(self._look_up.thing(given["identifier"], place, at))
            elif argument in PLAIN and complaints(given["literal"], PLAIN[argument]):
                self._faults.add("ir.bad_value", at, f"{argument} is {given['literal']!r:.60}.")
            else:
                literal = given["literal"]
                is_name = isinstance(literal, str) and argument not in PLAIN
                found[argument] = Text(literal) if is_name else literal
        return found

    def _same_sources(self, ir: Entry, made: WaitNode, path: str) -> None:
        sources = {p.name: p.source for p in made.params}
        for k, given in enumerate(ir["inputs"]):
            name, source = given["name"], given.get("source", given["name"])
            if name in sources and sources[name] != source:
                message = f"{name!r} is filled from {source!r}, but the argument says {sources[name]!r}."
                self._refuse(f"{path}.inputs[{k}].source", message, "Say the same in both.")

    def _declare(self, ir: Entry, made: Node, path: str) -> None:
        """Note a profile for a node that says by itself what it is, where the IR says something else."""
        own = profile_of(made)
        said = {
            field: ir[field]
            for field in ("effects", "determinism")
            if ir.get(field, own[field]) != own[field]
        }
        given = ir.get("durability", {})
        durability = {f: v for f, v in given.items() if f in own["durability"] and v != own["durability"][f]}
        if durability.get("halts") is False:
            message = f"{made.name!r} halts, and nothing can say that it does not."
            self._refuse(f"{path}.durability.halts", message, "Leave it out.")
        key = ir.get("idempotency", {"key": made.idempotency_key}) or {}
        if key.get("key") != made.idempotency_key:
            if "key" not in key:
                self._refuse(f"{path}.idempotency", f"{made.name!r} calls no function.", "Give a key.")
            said["idempotency"] = {"key": key.get("key")}
        if said or durability:
            self.profiles[made.name] = said | {"durability": durability}
        self._no_options(ir, path)

    def _no_options(self, ir: Entry, path: str) -> None:
        for field in FOR_FUNCTIONS:
            if field in ir:
                message = f"{ir['alias']!r} calls no function, so it cannot have it."
                self._refuse(f"{path}.{field}", message, "Leave it out.")

    # -- flows and joins ----------------------------------------------------------------------------------

    def _subflow(self, ir: Entry, path: str) -> Node | None:
        self._no_options(ir, path)
        if "flow" in ir:
            flow = self._inner(ir["flow"], f"{path}.flow")
        else:
            flow = self._look_up.thing(ir["identifier"], ir["alias"], f"{path}.identifier")
            if flow is not None and not callable(getattr(flow, "as_node", None)):
                self._refuse(f"{path}.identifier", f"the registry has {flow!r:.80}, which is no flow.")
                return None
        if flow is None:
            return None
        nesting = ir.get("nesting", {})
        made: Subflow = flow.as_node(
            name=ir["alias"],
            durability=nesting.get("durability", "nested"),
            select=nesting.get("select"),
            undo=self._undo_of(nesting, ir["alias"], path),
        )
        if "inputs" in ir:
            made.params = self._params(ir, made, path)
        return self._exported(made, ir, path)

    def _undo_of(self, nesting: Entry, alias: str, path: str) -> Any:
        if nesting.get("undo") is None:
            return None
        return self._look_up.function(nesting["undo"], f"{alias}/undo", f"{path}.nesting.undo")

    def _exported(self, made: Subflow, ir: Entry, path: str) -> Subflow:
        nesting = ir.get("nesting", {})
        if "exports" in nesting:
            exports = {e["from"]: e.get("to", e["from"]) for e in nesting["exports"]}
            made = made.lift(*exports)._copy(
                exports=exports, outputs=tuple(exports.values()), must_lift=nesting.get("must_lift", True)
            )
        if "outputs" in ir and tuple(ir["outputs"]) != made.outputs:
            message = f"they are {ir['outputs']}, but the flow inside gives {list(made.outputs)}."
            self._refuse(f"{path}.outputs", message, "Say the same in nesting.exports.")
            return made
        return made

    def _join(self, ir: Entry, path: str) -> JoinSpec | None:
        alias = ir["alias"]
        surface = self._surfaces.of(alias, "join")
        if surface is None:
            self._refuse(path, f"join {alias!r} has no control surface.", "Add one of kind join.")
            return None
        if ir.get("inputs") or ir.get("outputs"):
            self._refuse(path, f"join {alias!r} has inputs or outputs.", "Drop them.")
        at = self._surfaces.path_of(alias, "join")
        members = tuple(
            MemberSpec(m["name"], tuple(m["nodes"]), tuple(m["last"])) for m in surface["members"]
        )
        policy = self._policy(surface.get("policy"), alias, at)
        try:
            rules = resolved_rules(_join_of(surface.get("join")), policy, [m.name for m in members])
        except BadRequest as error:
            self._faults.take(error, at)
            return None
        spec = JoinSpec(alias, members, *rules)
        self._declare(ir, JoinNode(spec), path)
        return spec

    def _policy(self, ir: Json, alias: str, at: str) -> Policy | None:
        if ir is None:
            return None
        rule = None
        if "function" in ir:
            rule = self._look_up.function(ir["function"], f"{alias}/policy", f"{at}.policy.function")
        elif ir["kind"] == "rule":
            self._refuse(f"{at}.policy", f"the policy of {alias!r} is a rule without a function.", "Name it.")
        return Policy(cast(Any, ir["kind"]), tuple(ir.get("names", ())), ir.get("count", 0), rule)


def _join_of(ir: Json) -> Join | None:
    return None if ir is None else Join(cast(Any, ir["kind"]), ir.get("count", 0))


def _takes_any(fn: Any) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(fn).parameters.values())
