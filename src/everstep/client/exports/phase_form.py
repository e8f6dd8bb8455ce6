"""A checkpoint of a run made of phases, in the words that processes of phases and gates have for it. Apart,
as only runs made of phases have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from everstep.client.exports.spelling import iso, readable, signature, uuid_of
from everstep.client.views import RunInfo, RunState
from everstep.codec.wire import wire
from everstep.errors import PhaseAborted
from everstep.frontends.phases.places import (
    BREAKERS,
    COST_KEYS,
    GATES,
    HEALTH,
    LESSONS,
    MONEY,
    RAW,
    WARNINGS,
    PhasePlace,
    place_of,
)
from everstep.model.address import plain_of
from everstep.model.enums import Status
from everstep.model.records import CHANNEL, CheckpointRecord, StepRecord

_ACT = "@act"
"""Where a decision holds who made it; no entry of the channel has such a name."""


class _Run(NamedTuple):
    """A run of phases up to a checkpoint."""

    info: RunInfo
    state: RunState
    places: Mapping[str, PhasePlace]
    """The place of each node at the top of the flow."""
    steps: Sequence[StepRecord]
    channel: Mapping[str, Any]

    def listed(self, key: str) -> list[Any]:
        """Return what the channel keeps under a key as a list, whatever nodes have put there."""
        kept = self.channel.get(key)
        return kept if isinstance(kept, list) else [] if kept is None else [kept]

    def mapped(self, key: str) -> dict[str, Any]:
        """Return what the channel keeps under a key as an object; what is none says nothing."""
        kept = self.channel.get(key)
        return kept if isinstance(kept, dict) else {}

    def place_of(self, step: StepRecord) -> PhasePlace | None:
        return self.places.get(plain_of(step.path).partition("/")[0])

    def of(self, label: str) -> list[StepRecord]:
        """Return the steps of a phase."""
        return [step for step in self.steps if (at := self.place_of(step)) is not None and at.label == label]

    def iterations(self, place: PhasePlace) -> int:
        """Return how often a phase was done again."""
        return self.state.counters.visits.get(f"{place.name}.again", 0)

    @property
    def phases(self) -> list[PhasePlace]:
        return [place for place in self.places.values() if place.role == "phase"]


def phase_form(
    info: RunInfo, state: RunState, records: Sequence[CheckpointRecord], trigger: str
) -> dict[str, Any]:
    """Return a checkpoint of a run made of phases."""
    record = records[-1]
    placed = [(node.name, place_of(node)) for node in state.plan.nodes]
    places = {name: place for name, place in placed if place is not None}
    steps = [step for one in records for step in one.steps if not step.path.startswith("@")]
    run = _Run(info, state, places, steps, _channel_of(state))
    current = next((at for step in reversed(steps) if (at := run.place_of(step)) is not None), run.phases[0])
    return {
        "checkpoint_id": uuid_of(record.checkpoint_id),
        "run_id": uuid_of(info.run_id),
        "timestamp": iso(record.created_at),
        "trigger": _trigger(run, record, trigger),
        "phase": current.label,
        "sequence_number": record.sequence,
        "state_snapshot": {
            "phase_outputs": {place.key: _output(run, place) for place in run.phases},
            "current_phase_state": _current(run, current),
            "gate_history": _decisions(run),
            "circuit_breaker_state": _breakers(run),
            "cost_accumulated": _cost(run),
            "health_history": run.listed(HEALTH),
            "errors_encountered": run.listed("errors")
            if "errors" in run.channel
            else [_error(step) for step in steps if step.error],
            "active_lessons": run.listed(LESSONS),
        },
        "context_fields": {
            **{name: run.mapped(name) for name in ("api_metrics", "fallback_flags")},
            "iteration_counts": {
                name: run.iterations(place) for name, place in places.items() if place.role == "gate"
            },
            WARNINGS: run.listed(WARNINGS),
        },
    }


def _channel_of(state: RunState) -> dict[str, Any]:
    """Return the channel alone: a phase may well be called `health`, and what it gives is not meant."""
    return {name.removeprefix(CHANNEL): readable(state, name) for name in state if name.startswith(CHANNEL)}


def _trigger(run: _Run, record: CheckpointRecord, said: str) -> str:
    """Return why a checkpoint was taken; choosing the only way there is, is no decision of a gate."""
    if said == record.trigger.value:
        return said
    roles = {place.role for step in record.steps if (place := run.place_of(step)) is not None}
    if said == "gate_decision" and not roles & {"gate", "review"}:
        return "manual"
    if said == "phase_complete" and not roles & {"phase", "done"}:
        return "manual"
    return said


def _breakers(run: _Run) -> dict[str, Any]:
    """Return how breakers stand: those that the run keeps, and those that its nodes tell of."""
    own = {name: wire(breaker) for name, breaker in run.state.guards.breakers.items()}
    return {**run.mapped(BREAKERS), **own}


def _cost(run: _Run) -> float:
    if MONEY in run.state.counters.spent:
        return float(run.state.counters.spent[MONEY])
    known = [run.channel[name] for name in COST_KEYS if isinstance(run.channel.get(name), int | float)]
    return known[0] if known else 0


def _values(run: _Run, place: PhasePlace) -> dict[str, Any] | None:
    """Return what a phase has given; none if it has not finished."""
    nodes = [
        node
        for node in run.state.plan.nodes
        if (at := run.places.get(node.name)) is not None and at.label == place.label
    ]
    last = next((node for node in nodes if run.places[node.name].role == "done"), None)
    last = last or next(node for node in nodes if run.places[node.name].role == "phase")
    if not run.state.counters.visits.get(last.name, 0):
        return None
    names = dict.fromkeys(name for node in nodes for name in node.outputs)
    apart = f"{place.name}{RAW}"
    return {
        name: readable(run.state, name) for name in names if name in run.state and not name.startswith(apart)
    }


def _output(run: _Run, place: PhasePlace) -> dict[str, Any] | None:
    """Return what a phase has given, and how it came about."""
    values = _values(run, place)
    if values is None:
        return None
    own = run.of(place.label)
    done = [s for s in own if s.status is Status.COMPLETED and _role(run, s) in ("phase", "done")]
    gates = [one for one in run.listed(GATES) if one["gate_id"] == f"{place.name}.gate"]
    health = run.listed(HEALTH) or [None]
    began = next((s.started_at for s in reversed(own) if _role(run, s) == "phase" and s.started_at), None)
    return {
        **values,
        "metadata": {
            "run_id": uuid_of(run.info.run_id),
            "phase": place.label,
            "timestamp": iso(done[-1].ended_at) if done else None,
            "duration_ms": _milliseconds(began, done[-1].ended_at) if done else None,
            "source_apis": sorted(run.mapped("api_metrics")),
            "cost_usd": _cost_of(own),
            "health_summary": health[-1],
            "iteration_count": run.iterations(place),
            "gate_score": gates[-1]["score"] if gates else None,
            "warnings": [w for w in run.listed(WARNINGS) if str(w).startswith(place.label)],
            "parent_run_id": uuid_of(run.info.parent_run_id) if run.info.parent_run_id else None,
        },
    }


def _role(run: _Run, step: StepRecord) -> str:
    place = run.place_of(step)
    return place.role if place is not None and "/" not in step.path else ""


def _cost_of(steps: Sequence[StepRecord]) -> float:
    spent = [step.spent[MONEY] for step in steps if step.spent is not None and MONEY in step.spent]
    return float(sum(spent))


def _milliseconds(began: datetime | None, ended: datetime | None) -> float | None:
    return None if began is None or ended is None else round((ended - began).total_seconds() * 1000, 3)


def _current(run: _Run, place: PhasePlace) -> dict[str, Any]:
    """Return how far the phase has come that a run is in."""
    own = run.of(place.label)
    visits = run.state.counters.visits.get(place.name, 0)
    began = [s.started_at for s in own if _role(run, s) in ("phase", "check") and s.started_at is not None]
    opened = run.state.opened.get(place.name)
    turn = f"@{opened.visit}" if opened is not None and opened.visit > 1 else ""
    inside = f"{place.name}{turn}/"
    partial = {
        name.removeprefix(inside): readable(run.state, name)
        for name in (run.state if opened is not None else ())
        if name.startswith(inside)
    }
    pending = [name for name in run.state.frontier.pending if _belongs(run, name, place)]
    return {
        "phase": place.label,
        "started_at": iso(began[-1]) if began else None,
        "progress": {
            "iteration": run.iterations(place),
            "visits": visits,
            "steps": len(own),
            "pending": pending,
        },
        "partial_output": partial or None,
    }


def _belongs(run: _Run, path: str, place: PhasePlace) -> bool:
    at = run.places.get(plain_of(path).partition("/")[0])
    return at is not None and at.label == place.label


def _decisions(run: _Run) -> list[dict[str, Any]]:
    """Return what gates and people decided, in order."""
    kept = [one for one in run.listed(GATES) if one["gate_id"] in run.places]
    made = [step for step in run.steps if _role(run, step) == "gate" and step.decision is not None]
    # Of a run whose first records were removed, the decisions made there are told first.
    found = kept[: max(0, len(kept) - len(made))]
    rest = kept[len(found) :]
    for step in run.steps:
        role = _role(run, step)
        if role == "gate" and step.decision is not None and rest:
            found.append(rest.pop(0))
        elif role == "review":
            person = _said_by_a_person(step)
            gate = f"{step.path.removesuffix('.review')}.gate"
            last = next((one for one in reversed(found) if one["gate_id"] == gate), None)
            if person is not None and last is not None:
                found.append({**last, "decision": person, _ACT: step.act})
    return [
        {name: one[name] for name in ("gate_id", "decision", "score", "iteration")} | signature(one.get(_ACT))
        for one in found
    ]


def _said_by_a_person(step: StepRecord) -> str | None:
    if step.status is Status.FAILED and step.error is not None and step.error.code == PhaseAborted.code:
        return "abort"
    if step.status is not Status.COMPLETED or step.decision is None:
        return None
    is_again = any(target.endswith(".again") for target in step.decision)
    return "iterate" if is_again else "proceed"


def _error(step: StepRecord) -> dict[str, Any]:
    assert step.error is not None
    return {
        "phase": step.path,
        "type": step.error.type,
        "message": step.error.message,
        "timestamp": iso(step.ended_at),
        "attempt": step.attempts,
    }
