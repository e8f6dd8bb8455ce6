"""A checkpoint in the words of others: pipelines, phases and sessions. Nothing here is read back as truth."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from everstep.client.exports import stage_records as stages
from everstep.client.exports.phase_form import phase_form
from everstep.client.exports.spelling import context_of, iso, readable, signature, uuid_of
from everstep.client.views import RunInfo, RunState
from everstep.codec.wire import wire
from everstep.errors import BadRequest
from everstep.frontends.phases.places import place_of
from everstep.graph.author.flow import Flow
from everstep.graph.compile.plan import Plan
from everstep.model.address import plain_of
from everstep.model.enums import Status, Trigger
from everstep.model.records import CHANNEL, CheckpointRecord, QueuedTask, StepRecord

PIPELINE, PHASES = "pipeline", "phases"
FORMS = {"pipeline": PIPELINE, "phases": PHASES, "001": PIPELINE, "004": PHASES}
"""The forms that are one JSON object, by the names they may be asked for."""

_OUTCOMES = {
    Status.COMPLETED: "success",
    Status.FAILED: "fail",
    Status.RETRYING: "retry",
    Status.HALTED: "waiting",
    Status.CANCELLED: "fail",
}
_TRIGGERS = {
    Trigger.MANUAL: "manual",
    Trigger.AUTO: "manual",
    Trigger.HALT: "escalation",
    Trigger.FORK: "iteration",
    Trigger.RETRY: "iteration",
    Trigger.BEFORE_EFFECT: "destructive_op",
    Trigger.EFFECT: "expensive_op",
    Trigger.FAILED: "circuit_breaker",
    Trigger.ABANDONED: "circuit_breaker",
    Trigger.CANCELLED: "escalation",
    **{
        trigger: trigger.value
        for trigger in (
            Trigger.PHASE_COMPLETE,
            Trigger.GATE_DECISION,
            Trigger.ESCALATION,
            Trigger.ITERATION,
            Trigger.COST_THRESHOLD,
            Trigger.CIRCUIT_BREAKER,
            Trigger.EXPENSIVE_OP,
            Trigger.DESTRUCTIVE_OP,
        )
    },
}
"""What a checkpoint of ours is called among phases, unless a step or a gate's decision says more."""
_RESERVED: Mapping[str, Any] = {"health": [], "errors": [], "lessons": []}
_CONTEXT: Mapping[str, Any] = {"api_metrics": {}, "fallback_flags": {}, "warnings": []}
_FEW = 1000
"""How many steps are kept of a run that has had no stage yet."""
_NO_FIDELITY: Mapping[str, Any] = {"mode": "compact", "summaries": {}}
_COSTS = ("cost_accumulated", "cost", "total_cost_usd")


def as_form(form: str, info: RunInfo, state: RunState, records: Sequence[CheckpointRecord]) -> dict[str, Any]:
    """Return the newest of these records in another form; `state` is how the run stood there."""
    known = FORMS.get(form)
    if known is None:
        raise BadRequest(f"{form!r} is no form.", fix=f"Use one of {', '.join(sorted({*FORMS.values()}))}.")
    return (pipeline_form if known == PIPELINE else phases_form)(info, state, records)


class Past:
    """What the form of a pipeline tells of the steps so far; the records are not kept."""

    def __init__(self) -> None:
        self.newest: CheckpointRecord | None = None
        self.current: StepRecord | None = None
        """The newest step."""
        self.stages: list[list[Any]] = []
        self._recent: list[StepRecord] = []
        """The newest stage, and every step since."""
        self._steps: list[list[Any]] = []
        self._last: StepRecord | None = None
        self._chosen: set[str] = set()

    def take(self, record: CheckpointRecord) -> None:
        """Take the next record."""
        self.newest = record
        steps = [step for step in record.steps if step.path[0] != "@"]
        self.current = steps[-1] if steps else self.current
        self.stages += stages.history_in(steps)
        self._recent += steps
        places = [n for n, step in enumerate(self._recent) if stages.stage_key(step) is not None]
        if places:
            del self._recent[: places[-1]]
            self._steps.clear()  # from now on stages are told of
        else:
            del self._recent[:-_FEW]
        ended = [step for step in steps if step.status is not Status.RUNNING]
        self._last = ended[-1] if ended else self._last
        self._steps += [[step.path, step_outcome(step)] for step in ended]
        self._chosen |= {plain_of(step.path) for step in steps if step.decision is not None}

    def form(self, info: RunInfo, state: RunState, read: Callable[[str], Any]) -> dict[str, Any]:
        """Return the nine fields that a pipeline's checkpoint has; `read` gives a value as JSON."""
        assert self.newest is not None
        if stages.is_staged(state):
            values = {name: read(name) for name in state if name.startswith(CHANNEL)}
            last = stages.newest_of(self._recent)
            return staged_form(info, values, last, self.stages, self.newest.created_at)
        context, last = context_of(state), self._last
        fidelity = context.pop("fidelity_state", None)
        return {
            "run_id": info.run_id,
            "pipeline_name": info.flow,
            "current_node": last.path if last is not None else None,
            "context": context,
            "outcome": step_outcome(last) if last is not None else None,
            "node_history": list(self._steps),
            "goal_gate_status": {} if stages.is_pipeline(state.plan) else _gates(state, self._chosen),
            "timestamp": iso(self.newest.created_at),
            "fidelity_state": fidelity
            if isinstance(fidelity, dict)
            else {"mode": "compact", "summaries": {}},
        }


def pipeline_form(info: RunInfo, state: RunState, records: Sequence[CheckpointRecord]) -> dict[str, Any]:
    """Return the newest of these records with the nine fields that a pipeline's checkpoint has."""
    past = Past()
    for record in records:
        past.take(record)
    return past.form(info, state, partial(readable, state))


def staged_form(
    info: RunInfo,
    values: Mapping[str, Any],
    last: StepRecord | None,
    history: Sequence[list[Any]],
    at: datetime,
) -> dict[str, Any]:
    """Return the nine fields of a pipeline whose stages are in its channel.

    `values` are JSON already; `last` is the step that tells where it stands, `history` the stages so far.
    """
    key = stages.stage_key(last) if last is not None else None
    record = values.get(key, {}) if key is not None else {}
    record = record if isinstance(record, dict) else {}
    current: str | None
    outcome: dict[str, Any] | None
    if key is not None:
        assert last is not None
        current, outcome = stages.node_path(last), stages.outcome_of(record)
    else:
        current = last.path if last is not None else None
        outcome = step_outcome(last) if last is not None else None
        if outcome is not None and last is not None and last.status is Status.COMPLETED:
            outcome["status"] = "answered"  # by a person or the clock; what comes of it, the next step says
        history = [*history, [current, outcome]] if last is not None else history
    return {
        "run_id": info.run_id,
        "pipeline_name": info.flow,
        "current_node": current,
        "context": stages.context_in(values),
        "outcome": outcome,
        "node_history": list(history),
        "goal_gate_status": stages.gates_in(values),
        "timestamp": iso(at),
        "fidelity_state": stages.fidelity_in(values, record),
    }


def step_outcome(step: StepRecord) -> dict[str, Any]:
    """Return how a step ended, in the words of pipelines."""
    told: dict[str, Any] = {"status": _OUTCOMES.get(step.status, step.status.value)}
    if step.decision is not None:
        told["preferred_next"] = list(step.decision)
    if step.error is not None:
        told["failure_reason"] = f"{step.error.type}: {step.error.message}"
    if step.attempts > 1:
        told["retries"] = step.attempts - 1
    return told | signature(step.act)


def _gates(state: RunState, chosen: Collection[str]) -> dict[str, str]:
    """Return whether each gate at the top of the flow has chosen."""
    gates = [node.name for node in state.plan.nodes if node.is_gate]
    return {name: "satisfied" if name in chosen else "pending" for name in gates}


def phases_form(info: RunInfo, state: RunState, records: Sequence[CheckpointRecord]) -> dict[str, Any]:
    """Return a checkpoint as runs made of phases and gates keep it: each node of the flow is a phase."""
    record = records[-1]
    if any(place_of(node) is not None for node in state.plan.nodes):
        return phase_form(info, state, records, _trigger(record))
    names = [node.name for node in state.plan.nodes]
    numbers = {name: number for number, name in enumerate(names)}
    steps = [step for one in records for step in one.steps if not step.path.startswith("@")]
    last = next((step for step in reversed(steps) if _top(step) in numbers), None)
    current = _top(last) if last is not None else names[0] if names else "start"
    context = context_of(state)
    costs = [context[name] for name in _COSTS if isinstance(context.get(name), (int, float))]
    errors = [_error(step) for step in steps if step.error is not None]
    return {
        "checkpoint_id": uuid_of(record.checkpoint_id),
        "run_id": uuid_of(info.run_id),
        "timestamp": iso(record.created_at),
        "trigger": _trigger(record),
        "phase": f"phase_{numbers.get(current, 0)}_{_slug(current)}",
        "sequence_number": record.sequence,
        "state_snapshot": {
            "phase_outputs": _outputs(state, numbers),
            "current_phase_state": _phase(state, current, numbers, steps),
            "gate_history": _decisions(steps, context),
            "circuit_breaker_state": context.get("circuit_breaker_state", _breakers(state)),
            "cost_accumulated": float(state.guards.spent.get("usd", 0)) or (costs[0] if costs else 0),
            "health_history": context.get("health", _RESERVED["health"]),
            "errors_encountered": context.get("errors", errors),
            "active_lessons": context.get("lessons", _RESERVED["lessons"]),
        },
        "context_fields": {
            **{name: context.get(name, empty) for name, empty in _CONTEXT.items()},
            "iteration_counts": {name: state.counters.visits.get(name, 0) for name in _gates(state, ())},
        },
    }


def _breakers(state: RunState) -> dict[str, Any]:
    return {name: wire(breaker) for name, breaker in state.guards.breakers.items()}


def _top(step: StepRecord) -> str:
    """Return the node at the top of the flow that a step belongs to."""
    return re.split(r"[@#/]", step.path, maxsplit=1)[0]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "node"


def _trigger(record: CheckpointRecord) -> str:
    said = _TRIGGERS.get(record.trigger)
    if said is not None:
        return said
    if any(step.decision is not None and step.path[0] != "@" for step in record.steps):
        return "gate_decision"
    has_ended = any(
        step.status is Status.COMPLETED and not step.path.startswith("@") for step in record.steps
    )
    return "phase_complete" if has_ended else "manual"


def _outputs(state: RunState, numbers: Mapping[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in state.plan.nodes:
        written = {name: readable(state, name) for name in node.outputs if name in state}
        found[f"phase_{numbers[node.name]}"] = written or None
    return found


def _phase(
    state: RunState, current: str, numbers: Mapping[str, int], steps: Sequence[StepRecord]
) -> dict[str, Any]:
    own = [step for step in steps if _top(step) == current]
    started = next((step.started_at for step in own if step.started_at is not None), None)
    return {
        "phase": f"phase_{numbers.get(current, 0)}_{_slug(current)}",
        "started_at": iso(started),
        "progress": {
            "visits": state.counters.visits.get(current, 0),
            "steps": len(own),
            "pending": list(state.frontier.pending),
        },
        "partial_output": None,
    }


def _decisions(steps: Iterable[StepRecord], context: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "gate_id": step.path,
            "decision": ",".join(step.decision) if step.decision else "end",
            "score": context.get(f"{step.path}.score"),
            "iteration": step.visit,
            **signature(step.act),
        }
        for step in steps
        if step.decision is not None
    ]


def _error(step: StepRecord) -> dict[str, Any]:
    assert step.error is not None
    return {
        "phase": step.path,
        "type": step.error.type,
        "message": step.error.message,
        "timestamp": iso(step.ended_at),
        "attempt": step.attempts,
    }


def session_form(
    info: RunInfo,
    state: RunState,
    records: Sequence[CheckpointRecord],
    backend: Mapping[str, str],
    flow: Flow | None = None,
) -> dict[str, Any]:
    """Return what `.state.json` holds of a session: what is done, how often, and what comes next.

    How often something may be retried is not recorded; with the flow it is told.
    """
    done: dict[str, None] = {}
    for record in records:
        for step in record.steps:
            if step.status is Status.COMPLETED and not step.path.startswith("@"):
                done.setdefault(step.path)
    asked_for = {task.node for task in state.queued}
    pending: list[tuple[str, QueuedTask | None]] = [(task.node, task) for task in state.queued]
    pending += [(path, None) for path in state.frontier.pending if path not in asked_for]
    plan = state.plan if flow is None else flow.plan
    return {
        "schema_version": "1.0",
        "session_id": info.run_id,
        "start_node": _first_node(state, records),
        "steps": state.counters.steps,
        "completed_tasks": list(done),
        "cycle_counts": dict(state.counters.visits),
        "pending_tasks": [_task(state, path, task, plan, flow is not None) for path, task in pending],
        "backend": dict(backend),
        **({"acts": acts} if (acts := _acts(records)) else {}),
    }


def _acts(records: Sequence[CheckpointRecord]) -> list[dict[str, Any]]:
    """Return who did what to a run, and why, the oldest first; an answer names its task."""
    found: list[dict[str, Any]] = []
    for record in records:
        did = {
            "sequence": record.sequence,
            "trigger": record.trigger.value,
            "timestamp": iso(record.created_at),
        }
        found += [{**did, **signature(record.act)}] if record.act is not None else []
        found += [
            {**did, "task_id": step.path, **signature(step.act)}
            for step in record.steps
            if step.act is not None
        ]
    return found


def _first_node(state: RunState, records: Sequence[CheckpointRecord]) -> str | None:
    """Return the node with which a run began, or will begin."""
    ran = (step for record in records for step in record.steps if not step.path.startswith("@"))
    first = next((_top(step) for step in ran), None)
    return first or next(iter(state.frontier.pending), None)


def _task(
    state: RunState, path: str, queued: QueuedTask | None, plan: Plan, is_known: bool
) -> dict[str, Any]:
    names = queued.arguments if queued is not None else ()
    number = queued.number if queued is not None else 0
    return {
        "task_id": path,
        "task_data": {name: readable(state, f"@task/{number}/{name}") for name in names},
        "status": "pending",
        "priority": queued.priority if queued is not None else 0,
        "retry_count": state.counters.retries.get(path, 0),
        "max_retries": _retries(plan, path) if is_known else None,
        "execution_strategy": queued.strategy if queued is not None else "direct",
    }


def _retries(plan: Plan, path: str) -> int:
    *outer, name = plain_of(path).split("/")
    for step in outer:
        child = plan.children.get(plan.index.get(step, -1))
        if child is None:
            return 0
        plan = child.plan
    return plan.nodes[plan.index[name]].retry.times if name in plan.index else 0
