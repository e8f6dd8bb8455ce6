"""The nodes that a phase and its gate become.

    phase ──> gate ──proceed──> next phase
      ^        │ │
      │        │ └──escalate──> review ──> next phase, again, or the end
      └─ again <── iterate

All of it is kept in the channel and in step records, so a resume knows what was decided and why.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from everstep.codec.plain_json import jsonable
from everstep.errors import GateError, PhaseAborted, PhaseInputInvalid
from everstep.frontends.phases.contracts import corrected, faults
from everstep.frontends.phases.deciding import (
    Decision,
    decide,
    is_critical,
    open_breakers,
    read_score,
)
from everstep.frontends.phases.phase import Phase, ScoredGate
from everstep.frontends.phases.places import (
    BREAKERS,
    GATES,
    HEALTH,
    LESSONS,
    LESSONS_GIVEN,
    NAMESPACE,
    RAW,
    WARNINGS,
    PhasePlace,
)
from everstep.graph.author.context import Context
from everstep.graph.author.node import Gate, Node, Param
from everstep.graph.author.wait_options import NO_DEFAULT, Wait
from everstep.graph.check.hints import UNKNOWN
from everstep.model.enums import Trigger

IR_HOME = "everstep.graph.phases.nodes"
"""The module that IRs name for the nodes of phases; it stays, whatever this module is called."""

CHOICES: Final = (Decision.PROCEED.value, Decision.ITERATE.value, Decision.ABORT.value)
_CONTEXT: Final = "phase_context"


class Spot(NamedTuple):
    """A phase and its place in a process."""

    phase: Phase
    number: str
    lessons: tuple[Any, ...] | None
    """The lessons that the flow was built with."""

    @property
    def name(self) -> str:
        return self.phase.name

    @property
    def gate(self) -> str:
        return f"{self.name}.gate"

    @property
    def start(self) -> str:
        """The node that the phase begins with."""
        return f"{self.name}.check" if self._checks_apart else self.name

    @property
    def last(self) -> str:
        """The node that the phase ends with, before its gate."""
        return self.name if self.phase.flow is None else f"{self.name}.done"

    @property
    def _checks_apart(self) -> bool:
        return self.phase.flow is not None and bool(self.phase.takes or self.phase.refers)

    def place(self, role: str) -> PhasePlace:
        return PhasePlace(self.number, self.name, role)

    @property
    def label(self) -> str:
        return self.place("phase").label


def work_nodes(spot: Spot) -> list[Node]:
    """Return the nodes that do a phase's work, in order."""
    if spot.phase.flow is None:
        return [_function_node(spot)]
    found: list[Node] = []
    if spot.start != spot.name:
        found.append(_check_node(spot))
    return [*found, *_flow_nodes(spot)]


def gate_nodes(spot: Spot, then: str) -> list[Node]:
    """Return a phase's gate, with what it may choose besides the next phase."""
    gate = spot.phase.gate
    assert gate is not None
    return [_gate_node(spot, gate, then), _again_node(spot), _review_node(spot, gate, then)]


def next_node(spot: Spot, then: str) -> Node:
    """Return what leads from a phase without a gate to one that may begin more than once."""

    def go_on() -> str:
        return then

    _dress(go_on, f"{spot.name}.next", (), None)
    return _placed(Gate(go_on, (then,), name=f"{spot.name}.next"), spot, "next")


# -- work -------------------------------------------------------------------------------------------------


def _function_node(spot: Spot) -> Node:
    node = spot.phase.node
    assert node is not None
    params = (*node.params, *_more(_taken(spot.phase), node.params))
    context = node.context_param or _CONTEXT
    own = {p.name for p in node.params} | ({context} if node.context_param is not None else set())

    def begin(given: dict[str, Any]) -> dict[str, Any]:
        _begin(spot, given[context], {p.source: given[p.name] for p in params if p.name in given})
        return {name: value for name, value in given.items() if name in own}

    def finish(given: dict[str, Any], returned: Any) -> Any:
        values = dict(zip(node.outputs, node.spread(returned), strict=True))
        found = tuple(_finish(spot, given[context], values).values())
        return found[0] if len(found) == 1 else found

    def work(**given: Any) -> Any:
        return finish(given, node.fn(**begin(given)))

    async def work_async(**given: Any) -> Any:
        return finish(given, await node.fn(**begin(given)))

    made = _dress(work_async if node.is_async else work, spot.name, params, context, like=node.fn)
    return _placed(node._copy(fn=made, params=params, context_param=context), spot, "phase")


def _check_node(spot: Spot) -> Node:
    params = _more(_taken(spot.phase), ())

    def check(**given: Any) -> str:
        _begin(spot, given[_CONTEXT], {p.source: given[p.name] for p in params if p.name in given})
        return spot.name

    _dress(check, spot.start, params, _CONTEXT)
    gate = Gate(check, (spot.name,), name=spot.start)
    return _placed(gate._copy(params=params), spot, "check")


def _flow_nodes(spot: Spot) -> list[Node]:
    """Return a flow as a node, and what keeps its end: corrected outputs go by another name."""
    phase = spot.phase
    assert phase.flow is not None
    inner = phase.flow.as_node(name=spot.name)
    if set(inner.outputs) != set(phase.outputs):
        inner = inner.lift(*phase.outputs)
    raw = {name: f"{spot.name}{RAW}{name}" for name in phase.gives}
    inner = inner.with_outputs(*(raw.get(name, name) for name in inner.outputs))
    params = tuple(
        Param(f"given_{k}", raw.get(name, name), False, UNKNOWN) for k, name in enumerate(phase.outputs)
    )
    outputs = tuple(phase.gives)

    def done(**given: Any) -> Any:
        values = {name: given.get(p.name) for name, p in zip(phase.outputs, params, strict=True)}
        if spot.start == spot.name:
            _note_lessons(spot, given[_CONTEXT])
        found = _finish(spot, given[_CONTEXT], {name: values[name] for name in outputs})
        return found[outputs[0]] if len(outputs) == 1 else tuple(found.values())

    _dress(done, spot.last, params, _CONTEXT)
    node = Node(done, name=spot.last, output=outputs)
    return [_placed(inner, spot, "phase"), _placed(node._copy(params=params), spot, "done")]


def _begin(spot: Spot, ctx: Context, values: Mapping[str, Any]) -> None:
    """Raise unless a phase has what it takes."""
    wrong = faults(spot.phase.takes, spot.phase.refers, values)
    if wrong:
        raise PhaseInputInvalid(
            f"{spot.label} was not begun: {'; '.join(fault.rstrip('.') for fault in wrong)}.",
            fix="Fix what the phases before it give, or what it takes.",
        )
    _note_lessons(spot, ctx)


def _finish(spot: Spot, ctx: Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a phase gives, corrected, and ask for the checkpoint that says that it is done."""
    found: dict[str, Any] = {}
    warned: list[str] = []
    for name, value in values.items():
        found[name], said = (
            corrected(value, spot.phase.gives[name], name) if name in spot.phase.gives else (value, [])
        )
        warned += said
    for warning in warned:
        ctx.channel.append(WARNINGS, f"{spot.label}: {warning}.")
        ctx.emit("warning", phase=spot.label, message=warning)
    ctx.checkpoint(
        {"phase": spot.label, "iteration": ctx.visit - 1, "warnings": len(warned)},
        trigger=Trigger.PHASE_COMPLETE,
    )
    return found


def _note_lessons(spot: Spot, ctx: Context) -> None:
    """Keep the lessons that a run began with; if the flow has others by now, that is warned of once."""
    if spot.lessons is None:
        return
    given = jsonable(list(spot.lessons))
    known = ctx.channel.get(LESSONS_GIVEN)
    if known is None:
        ctx.channel.set(LESSONS_GIVEN, given)
        if not ctx.channel.exists(LESSONS):
            ctx.channel.set(LESSONS, list(spot.lessons))
    elif known != given:
        ctx.channel.append(WARNINGS, f"{spot.label}: {lessons_differ(known, given)}")
        ctx.channel.set(LESSONS_GIVEN, given)


def lessons_differ(known: Sequence[Any], given: Sequence[Any]) -> str:
    """Say how the lessons of a flow differ from those that its run began with."""
    added = [one for one in given if one not in known]
    gone = [one for one in known if one not in given]
    said = [f"{len(added)} new" if added else "", f"{len(gone)} gone" if gone else ""]
    how = ", ".join(part for part in said if part) or "in another order"
    return f"the lessons changed since the run began ({how}); the run keeps those that it has."


# -- gates ------------------------------------------------------------------------------------------------


def _gate_node(spot: Spot, gate: ScoredGate, then: str) -> Node:
    score = gate.node
    seen = (*score.params, *_more(spot.phase.outputs, score.params, required=spot.phase.flow is None))
    context = score.context_param or _CONTEXT
    own = {p.name for p in score.params} | ({context} if score.context_param is not None else set())
    targets = {
        Decision.PROCEED: then,
        Decision.ITERATE: f"{spot.name}.again",
        Decision.ESCALATE: f"{spot.name}.review",
    }

    def scored(given: dict[str, Any], returned: Any) -> str:
        values = {p.source: given[p.name] for p in seen if p.name in given}
        return targets[_decide(spot, gate, given[context], values, returned)]

    def judge(**given: Any) -> str:
        return scored(given, score.fn(**{k: v for k, v in given.items() if k in own}))

    async def judge_async(**given: Any) -> str:
        return scored(given, await score.fn(**{k: v for k, v in given.items() if k in own}))

    fn = _dress(judge_async if score.is_async else judge, spot.gate, seen, context, like=gate.score)
    made = Gate(fn, targets.values(), name=spot.gate, retry=score.retry, timeout=score.timeout)
    return _placed(made._copy(params=seen), spot, "gate")


def _decide(spot: Spot, gate: ScoredGate, ctx: Context, values: Mapping[str, Any], returned: Any) -> Decision:
    """Decide, and keep the decision with everything it was made of."""
    score, details = read_score(returned, spot.gate)
    iteration = ctx.visit - 1
    earlier = [one["score"] for one in _history(ctx, spot)]
    verdict = decide(
        score,
        gate.by,
        iteration=iteration,
        earlier=earlier,
        breakers=open_breakers({**(ctx.channel.get(BREAKERS) or {}), **ctx.breakers}),
        is_unhealthy=is_critical(ctx.channel.get(HEALTH)),
    )
    told: dict[str, Any] = {
        "gate_id": _gate_id(ctx, spot),
        "phase": spot.label,
        "decision": verdict.decision.value,
        "score": score,
        "iteration": iteration,
        "rule": verdict.rule.value,
        "reason": verdict.reason,
        "input_hash": hash_of(values),
    }
    if details:
        told["details"] = details
    ctx.channel.append(GATES, told)
    # Metadata is never encrypted, and a hash of few possible inputs would give them away.
    about = {name: told[name] for name in told if name not in ("details", "input_hash")}
    ctx.checkpoint(about, trigger=Trigger.GATE_DECISION)
    ctx.emit("gate_decision", **about)
    return verdict.decision


def hash_of(values: Mapping[str, Any]) -> str:
    """Return the same text for the same input of a gate, in every process."""
    text = json.dumps(jsonable(dict(values)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _again_node(spot: Spot) -> Node:
    def again(**given: Any) -> str:
        ctx: Context = given[_CONTEXT]
        about = {"phase": spot.label, "gate_id": _gate_id(ctx, spot), "iteration": ctx.visit}
        ctx.checkpoint(about, trigger=Trigger.ITERATION)
        return spot.start

    name = f"{spot.name}.again"
    _dress(again, name, (), _CONTEXT)
    return _placed(Gate(again, (spot.start,), name=name), spot, "again")


def _review_node(spot: Spot, gate: ScoredGate, then: str) -> Node:
    """Return the gate whose decision is a person's."""
    name = f"{spot.name}.review"
    targets = {"proceed": then, "iterate": f"{spot.name}.again"}
    seen = _more(spot.phase.outputs, (), required=False)

    def ask(**given: Any) -> Wait:
        ctx: Context = given[_CONTEXT]
        history = _history(ctx, spot)
        last = history[-1] if history else {}
        told = {
            "output": {p.source: given[p.name] for p in seen if p.name in given},
            "scores": [one["score"] for one in history],
            **last,
            "warnings": ctx.channel.get(WARNINGS, []),
        }
        about: dict[str, Any] = {
            key: last[key] for key in ("gate_id", "rule", "score", "iteration") if key in last
        }
        ctx.checkpoint({"phase": spot.label, **about}, trigger=Trigger.ESCALATION)
        return Wait(
            kind="choice",
            prompt=f"{spot.label}: {last.get('reason', 'a person decides')}. Proceed, iterate or abort?",
            options=CHOICES,
            context=told,
            notify=gate.notify,
            timeout=gate.timeout,
            default=NO_DEFAULT if gate.default is None else gate.default,
        )

    def target_of(answer: Any) -> str:
        if answer == Decision.ABORT.value:
            raise PhaseAborted(
                f"a person aborted the run at {spot.label}.",
                fix="Resume the run to be asked again, or fork it from an earlier checkpoint.",
            )
        if answer not in targets:
            raise GateError(f"{name!r} was answered {answer!r:.60}.", fix=f"Answer one of {CHOICES}.")
        return targets[answer]

    ask.target_of = target_of  # type: ignore[attr-defined]
    ask.answered_as = Trigger.GATE_DECISION  # type: ignore[attr-defined]
    _dress(ask, name, seen, _CONTEXT)
    needs = ("resume_signal_source", *(("resume_scheduler",) if gate.timeout is not None else ()))
    made = Gate(ask, targets.values(), name=name, halts=True, requires=needs, determinism="nondeterministic")
    return _placed(made._copy(params=seen), spot, "review")


# -- shared -----------------------------------------------------------------------------------------------


def _history(ctx: Context, spot: Spot) -> list[dict[str, Any]]:
    return [one for one in ctx.channel.get(GATES) or [] if one["gate_id"] == _gate_id(ctx, spot)]


def _gate_id(ctx: Context, spot: Spot) -> str:
    """Return the address of a phase's gate: each visit to a process inside another flow has its own."""
    return ctx.path.removesuffix(ctx.node) + spot.gate


def _taken(phase: Phase) -> list[str]:
    """Return the values that a phase's inputs are checked by."""
    roots = [path.partition(".")[0] for pair in phase.refers.items() for path in pair]
    return list(dict.fromkeys([*phase.takes, *roots]))


def _more(names: Iterable[str], params: Sequence[Param], *, required: bool = True) -> tuple[Param, ...]:
    """Return parameters for values that are not read already."""
    known, taken = {p.source for p in params}, {p.name for p in params}
    found: list[Param] = []
    for k, name in enumerate(name for name in names if name not in known):
        is_free = name.isidentifier() and name not in taken and name != _CONTEXT
        found.append(Param(name if is_free else f"also_{k}", name, required, UNKNOWN))
    return tuple(found)


def _dress(
    fn: Callable[..., Any], name: str, params: Sequence[Param], context: str | None, like: Any = None
) -> Callable[..., Any]:
    """Let a function look as if it had been written with these parameters."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    found = [
        inspect.Parameter(p.name, keyword, default=inspect.Parameter.empty if p.required else None)
        for p in params
    ]
    hints: dict[str, Any] = {p.name: p.hint for p in params}
    if context is not None:
        found.append(inspect.Parameter(context, keyword))
        hints[context] = Context
    fn.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    fn.__annotations__ = hints
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = getattr(like, "__doc__", None)
    fn.__module__ = getattr(like, "__module__", None) or IR_HOME
    return fn


def _placed(node: Node, spot: Spot, role: str) -> Node:
    return node._copy(extension={NAMESPACE: list(spot.place(role))})
