"""From a flow to its IR."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from everstep.errors import IrInvalid
from everstep.graph.author.definition import Definition, ReadFrom
from everstep.graph.author.flow_options import FLOW_OPTIONS
from everstep.graph.author.joins import JoinNode
from everstep.graph.author.node import Gate, IfElse, Node
from everstep.graph.author.node_options import NODE_OPTIONS, Spelling
from everstep.graph.author.subflow import Subflow
from everstep.graph.author.wait_options import ARGUMENTS, is_unsaid
from everstep.graph.author.waits import MATCH, WaitNode
from everstep.graph.ir.names import Json, Unspeakable, is_json, name_of, names_in, type_to_ir
from everstep.model.durability import Durability
from everstep.model.enums import Effects

IR_VERSION: Final = 1
NAMESPACE: Final = uuid.UUID("6f1f4a52-6f0f-5d0c-9a1e-2c1d3f0a7b55")
"""Where the ids of flows come from; another one would give every flow another id."""
JOIN: Final = "std.join"
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "nodes": ("alias",),
    "edges": ("from", "to", "value"),
    "control_surfaces": ("node", "kind"),
    "inputs": ("name",),
    "exports": ("from",),
    "members": ("name",),
    "key_limits": ("name", "on_conflict", "debounce"),
}
"""By what the entries of a list are told apart."""


def flow_id(name: str, version: str) -> uuid.UUID:
    """Return the id of a flow: the same for the same name and version, anywhere."""
    return uuid.uuid5(NAMESPACE, f"{name}@{version}")


class Writer:
    """Writes one flow, and notes what only Python can hold."""

    def __init__(self, flow: Definition) -> None:
        self._flow = flow
        read = flow.read_from or ReadFrom(None, {}, {})
        self._kept, self._found = read.names, read.found
        self._clashes: dict[str, None] = {}
        self._names: dict[str, Any] = {}

    def plain(self) -> dict[str, Json]:
        """Return the IR as a copy of its own."""
        copied: dict[str, Json] = json.loads(json.dumps(self.write(), allow_nan=False))
        return copied

    def functions(self) -> dict[str, Any]:
        """Return what the IR names."""
        self.write()
        return self._names

    def write(self) -> dict[str, Json]:
        """Return the IR, with what it was read from added where it says more."""
        flow = self._flow
        own = flow_id(flow.name, flow.version)
        said = self._flow_options()
        ir = {
            "ir_version": IR_VERSION,
            "id": str(own),
            "name": flow.name,
            **{field: said[field] for field in ("version", "entry", "tasks", "channel")},
            "nodes": [{"id": str(uuid.uuid5(own, n.name)), **self._node(n)} for n in flow.nodes],
            "edges": list(edges_of(flow)),
            "control_surfaces": [surface for n in flow.nodes for surface in self._surfaces(n)],
            "policies": said["policies"],
            "metadata": {"structure": flow.plan.hash},
        }
        self._refuse_clashes()
        return _with_more(ir, flow.read_from.ir) if flow.read_from is not None else ir

    def _flow_options(self) -> dict[str, Json]:
        """Return the options of the flow, each in its field, sections included."""
        found: dict[str, Json] = {}
        for option, spec in FLOW_OPTIONS.items():
            if spec.ir:
                *sections, field = spec.ir.split(".")
                place = found
                for section in sections:
                    place = place.setdefault(section, {})
                place[field] = FLOW_WRITERS[spec.form](self, getattr(self._flow, option))
        return found

    def _types(self, types: Mapping[str, Any] | None) -> Json:
        if types is None:
            return None
        return {key: self._type(hint, f"@channel/{key}") for key, hint in sorted(types.items())}

    def _functions(self, rules: Iterable[Any]) -> Json:
        return [self._named(rule, f"@rules/{k}") for k, rule in enumerate(rules)]

    # -- nodes --------------------------------------------------------------------------------------------

    def _node(self, n: Node) -> dict[str, Json]:
        identifier, kind = self._identity(n)
        return {
            "alias": n.name,
            "identifier": identifier,
            "kind": kind,
            "inputs": [{"name": p.name, "source": p.source, "required": p.required} for p in n.params],
            "outputs": list(n.outputs),
            **self._says(n),
            **({"extension": dict(n.extension)} if n.extension else {}),
        }

    def _identity(self, n: Node) -> tuple[str, str]:
        if isinstance(n, Subflow):
            return f"flow:{n.flow.name}@{n.flow.version}", "subflow"
        if isinstance(n, JoinNode):
            return JOIN, "inline"
        kind = "activity" if n.effects is Effects.EFFECTFUL else "inline"
        if n.is_built_in:
            return n.identifier, kind
        return self._named(n.fn, n.name, n.identifier), kind

    def _says(self, n: Node) -> dict[str, Json]:
        if isinstance(n, Subflow):
            return self._subflow(n)
        about = profile_of(n) | {"idempotency": self._idempotency(n)}
        if isinstance(n, JoinNode):
            return about
        if not isinstance(n, WaitNode):
            about |= self._options(n)
        if n.answer_type is not None:
            about["answer"] = self._answer(n)
        if isinstance(n, WaitNode):
            about["arguments"] = self._arguments(n)
        return about

    def _options(self, n: Node) -> dict[str, Json]:
        """Return what only the node of a function says; what it leaves to others is left out."""
        said = [(option, spec) for option, spec in NODE_OPTIONS.items() if spec.of_functions]
        return {
            spec.ir: WRITERS[spec.form](self, n, getattr(n, option))
            for option, spec in said
            if not (option == "skip_on_resume" and n.skip_on_resume is None)
        }

    def _function(self, n: Node, option: Any) -> Json:
        return None if option is None else self._named(option, f"{n.name}/probe")

    def _undo(self, n: Node, _: Any) -> Json:
        if n.undo is None:
            return None
        given = vars(n.undo)["given"]
        return self._named(given, f"{n.name}/undo", given.id if isinstance(given, Node) else "")

    def _retry(self, n: Node, _: Any) -> Json:
        if n.retry.times == 0:
            return None
        own = {"units": n.retry.units} if n.retry.units != "keep" else {}
        return {
            "times": n.retry.times,
            "first_s": _number(n.retry.first),
            "factor": _number(n.retry.factor),
            "most_s": _number(n.retry.most),
            "jitter": _number(n.retry.jitter),
            "on": [self._type(kind, f"{n.name}/retry/{k}") for k, kind in enumerate(n.retry.on)],
            **own,
        }

    def _idempotency(self, n: Node) -> Json:
        if n.idempotency_key is None:
            return None
        if isinstance(n.idempotency_key, str):
            return {"key": n.idempotency_key, "scope": "node"}
        return {"function": self._named(n.idempotency_key, f"{n.name}/idempotency"), "scope": "node"}

    def _answer(self, n: Node) -> Json:
        if isinstance(n.answer_type, dict):
            return {"schema": n.answer_type}
        return {"type": self._type(n.answer_type, f"{n.name}/answer")}

    def _arguments(self, n: WaitNode) -> dict[str, Json]:
        found: dict[str, Json] = {"kind": {"literal": n.kind}} if n.identifier == "std.question" else {}
        for argument, given in n.arguments.items():
            if argument.startswith(MATCH):
                found[argument] = {"literal": given}
            elif not is_unsaid(argument, given):
                found[argument] = self._literal(argument, given, f"{n.name}/arguments/{argument}")
        return found | {p.name: {"value": p.source} for p in n.params}

    def _literal(self, argument: str, given: Any, place: str) -> Json:
        about = ARGUMENTS[argument]
        if about.read is not None:
            return {"literal": msgspec.to_builtins(given)}
        plain = list(given) if isinstance(given, tuple) and about.is_list else given
        return {"literal": plain} if is_json(plain) else {"identifier": self._named(given, place)}

    def _subflow(self, n: Subflow) -> dict[str, Json]:
        inside = Writer(n.flow)
        ir = inside.write()
        for name, thing in inside._names.items():
            self._note(name, thing)
        return {
            "flow": ir,
            "nesting": {
                "durability": "atomic" if n.is_atomic else "nested",
                "select": sorted(n.selected),
                "exports": [{"from": inner, "to": outer} for inner, outer in n.exports.items()],
                "must_lift": n.must_lift,
                **({"undo": self._undo(n, None)} if n.undo is not None else {}),
            },
        }

    # -- control ------------------------------------------------------------------------------------------

    def _surfaces(self, n: Node) -> Iterable[dict[str, Json]]:
        if isinstance(n, IfElse):
            when_true, when_false = n.targets
            yield {"kind": "if", "node": n.name, "then": when_true, "else": when_false}
        elif isinstance(n, Gate):
            yield {"kind": "switch", "node": n.name, "targets": list(n.targets), "multi": n.multi}
        elif isinstance(n, JoinNode):
            yield self._join(n)
        if n.over is not None:
            yield {
                "kind": "for_each",
                "node": n.name,
                "over": list(n.over.params),
                "mode": n.over.mode,
                "on_error": n.over.on_error.value,
                "max_concurrency": n.over.max_concurrency,
                **({} if isinstance(n, Subflow) else {"item_outputs": list(n.inner_outputs)}),
            }

    def _join(self, n: JoinNode) -> dict[str, Json]:
        join, policy = n.spec.join, n.spec.policy
        rule = {"function": self._named(policy.rule, f"{n.name}/policy")} if policy.rule is not None else {}
        return {
            "kind": "join",
            "node": n.name,
            "members": [
                {"name": m.name, "nodes": list(m.nodes), "last": list(m.last)} for m in n.spec.members
            ],
            "join": {"kind": join.kind, "count": join.count},
            "policy": {"kind": policy.kind, "names": list(policy.names), "count": policy.count, **rule},
        }

    # -- names --------------------------------------------------------------------------------------------

    def _named(self, thing: Any, place: str, given: str = "") -> str:
        kept = self._kept.get(place)
        name = given or (kept if isinstance(kept, str) else name_of(thing, f"{self._flow.name}/{place}"))
        self._note(name, thing)
        return name

    def _type(self, hint: Any, place: str) -> Json:
        if place in self._kept:
            for name in names_in(self._kept[place]):
                self._note(name, self._found[name])
            return self._kept[place]
        try:
            ir, found = type_to_ir(hint)
        except Unspeakable:
            return self._named(hint, place)
        for name, kind in found.items():
            self._note(name, kind)
        return ir

    def _note(self, name: str, thing: Any) -> None:
        known = self._names.setdefault(name, thing)
        if known is not thing and not (callable(thing) and known == thing):
            self._clashes[name] = None

    def _refuse_clashes(self) -> None:
        if self._clashes:
            problems = [
                {
                    "code": "ir.ambiguous",
                    "path": "$",
                    "message": f"{name!r} would stand for two different things.",
                    "fix": 'Name one of them: @node(identifier="..."), or a function of its own.',
                }
                for name in self._clashes
            ]
            said = " ".join(p["message"] for p in problems)
            raise IrInvalid(
                f"flow {self._flow.name!r} cannot be written: {said}",
                fix=problems[0]["fix"],
                problems=problems,
            )


WRITERS: Final[Mapping[Spelling, Callable[[Writer, Node, Any], Json]]] = {
    Spelling.PLAIN: lambda _, n, value: value,
    Spelling.WORD: lambda _, n, value: value.value,
    Spelling.NAMES: lambda _, n, value: list(value),
    Spelling.SECONDS: lambda _, n, value: None if value is None else _number(value),
    Spelling.FUNCTION: Writer._function,
    Spelling.LIMIT: lambda _, n, value: None if value is None else value.to_wire(),
    Spelling.UNDO: Writer._undo,
    Spelling.RETRY: Writer._retry,
}
"""How a value of each form is written; those that every node has are written by their own functions."""


def profile_of(n: Node) -> dict[str, Json]:
    """Return what a node does to the world and how it may be kept."""
    inside = [spec.ir.partition(".")[2] for spec in NODE_OPTIONS.values() if "." in spec.ir]
    return {
        "effects": n.effects.value,
        "determinism": n.determinism.value,
        "durability": {field: getattr(n, field) for field in inside},
    }


def durability_to_ir(d: Durability) -> dict[str, Json]:
    """Return how a flow wants to be kept."""
    steps, time = d.interval_parts()
    return {
        "mode": d.mode.value,
        "checkpoint_interval": None if d.interval is None else {"steps": steps, "time": _span(time)},
        "flush": d.flush.value,
        "blob_threshold_bytes": d.blob_threshold,
        "lease_ttl": _span(d.lease_ttl),
        "checkpoint_ttl": _span(d.checkpoint_ttl),
        "retain_completed_for": _span(d.retain_completed_for),
        "retry_on_lease_conflict": d.retry_on_lease_conflict,
        "max_resume_attempts": d.max_resume_attempts,
        "on_store_failure": d.on_store_failure,
    }


FLOW_WRITERS: Final[Mapping[Spelling, Callable[[Writer, Any], Json]]] = {
    Spelling.PLAIN: lambda _, value: value,
    Spelling.NAMES: lambda _, value: list(value),
    Spelling.NODES: lambda _, value: [node.name for node in value],
    Spelling.TYPES: Writer._types,
    Spelling.FUNCTIONS: Writer._functions,
    Spelling.SECONDS: lambda _, value: None if value is None else value.total_seconds(),
    Spelling.DURABILITY: lambda _, value: durability_to_ir(value),
    Spelling.RETENTION: lambda _, value: None if value is None else value.to_wire(),
    Spelling.BUDGETS: lambda _, value: [budget.to_wire() for budget in value],
    Spelling.TELLS: lambda _, value: [tell.to_wire() for tell in value],
    Spelling.REDUCERS: lambda _, value: [{"value": name, "how": str(how)} for name, how in value.items()],
    Spelling.BREAKERS: lambda _, value: [breaker.to_wire() for breaker in value],
    Spelling.LIMITS: lambda _, value: [limit.to_wire() for limit in value],
}
"""How a value of each form is written, of those that options of flows have."""


def edges_of(flow: Definition) -> Iterable[dict[str, Json]]:
    """Yield the control edges of a flow, then who reads what from whom."""
    yield from ({"from": a, "to": b} for a, b in flow.edges)
    plan = flow.plan
    for i, n in enumerate(plan.nodes):
        for value in n.outputs:
            for reader in dict.fromkeys(plan.readers.get(value, ())):
                yield {"from": plan.paths[i], "to": plan.paths[reader], "value": value}


def _span(span: Any) -> Json:
    return None if span is None else msgspec.to_builtins(span)


def _number(x: float) -> Json:
    """Return a number as JSON has it, which knows no infinity."""
    return float(x) if math.isfinite(x) else str(float(x))


def _with_more(written: Json, read: Json) -> Json:
    """Return what was written, with the fields of what was read that are not in it."""
    if not isinstance(written, dict) or not isinstance(read, dict):
        return written
    merged = {}
    for name, now in written.items():
        before = read.get(name)
        if name in KEYS and _are_objects(now) and _are_objects(before):
            merged[name] = _entries(now, before, _told_apart(KEYS[name]))
        else:
            merged[name] = _with_more(now, before)
    return merged | {name: more for name, more in read.items() if name not in written}


def _entries(now: Json, before: Json, key: Callable[[Json], Json]) -> list[Json]:
    known = {key(entry): entry for entry in before}
    return [_with_more(entry, known.get(key(entry))) for entry in now]


def _are_objects(entries: Json) -> bool:
    return isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)


def _told_apart(fields: tuple[str, ...]) -> Callable[[Json], tuple[Json, ...]]:
    return lambda entry: tuple(entry.get(field) for field in fields)
