"""What the records of a run tell of the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from everstep.frontends.pipelines.layers import (
    GATES,
    HIDDEN,
    INSIDE,
    PASSED,
    RESTARTS,
    STAGES,
    STRICT,
    UNROUTED,
    is_satisfied,
)
from everstep.graph.compile.plan import Plan
from everstep.model.address import unvisited
from everstep.model.enums import Status
from everstep.model.records import CHANNEL, StepRecord

RESTARTED: Final = CHANNEL + RESTARTS
"""The value that counts how often a pipeline began anew."""
_NOT_OUTCOME: Final = (
    *("node", "kind", "n", "visit", "prompt", "preamble", "fidelity", "degraded_from", "context_updates"),
    *(UNROUTED, INSIDE, PASSED),
)
_TELLING: Final = (Status.FAILED, Status.HALTED, Status.CANCELLED, Status.RETRYING)


def stage_key(step: StepRecord) -> str | None:
    """Return the name of the value in which a step keeps the record of its stage, if it has one."""
    start = CHANNEL + STAGES
    return next((write.name for write in step.writes if write.name.startswith(start)), None)


def node_path(step: StepRecord) -> str:
    """Return the node that a step belongs to, as a path without visits: of a stage, that in the digraph."""
    key = stage_key(step)
    return unvisited(step.path) if key is None else key.removeprefix(CHANNEL + STAGES)


def outcome_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a stage ended, without what it was asked."""
    return {name: value for name, value in record.items() if name not in _NOT_OUTCOME}


def is_staged(names: Iterable[str]) -> bool:
    """Say whether these are names of values of a pipeline."""
    return any(name.startswith(CHANNEL + STAGES) for name in names)


def is_pipeline(plan: Plan) -> bool:
    """Say whether a flow is a pipeline: every node is a stage, or has the gate of its stage behind it."""
    return all(node.is_gate or gates_behind(plan, node.name) for node in plan.nodes)


def result_keys(plan: Plan, keys: Iterable[str]) -> set[str] | None:
    """Return the keys of a pipeline's context, which are what it came to.

    None for a flow of which the pipeline is only a part: that keeps its stages in the same channel.
    """
    return {key for key in keys if is_in_context(key)} if is_pipeline(plan) else None


def gates_behind(plan: Plan, name: str) -> bool:
    """Say whether the gate of a stage stands behind its node: `ask.next`, `fan.join`."""
    return any(f"{name}.{kind}{more}" in plan.index for kind in ("next", "join") for more in ("", "_", "__"))


def context_in(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context of a pipeline: its channel without what is kept of stages and branches."""
    found = {name.removeprefix(CHANNEL): values[name] for name in values if name.startswith(CHANNEL)}
    return {key: value for key, value in found.items() if is_in_context(key)}


def is_in_context(key: str) -> bool:
    """Say whether a key of a pipeline's channel is part of its context."""
    return not key.startswith(HIDDEN)


def history_in(steps: Iterable[StepRecord]) -> list[list[Any]]:
    """Return each stage that was visited, with how it ended.

    A step without an outcome only chose the edge of a stage that had ended before.
    """
    found = (step for step in steps if step.outcome and stage_key(step) is not None)
    return [[node_path(step), {"status": step.outcome}] for step in found]


def gates_in(values: Mapping[str, Any]) -> dict[str, str]:
    """Return whether each goal gate that was reached is satisfied."""
    start = CHANNEL + GATES
    found = {name.removeprefix(start): values[name] for name in values if name.startswith(start)}
    is_strict = CHANNEL + STRICT in values
    return {
        gate: "satisfied" if is_satisfied(status, is_strict=is_strict) else "pending"
        for gate, status in found.items()
    }


def fidelity_in(values: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return how much of what came before the newest stage was told of it."""
    kept = values.get(f"{CHANNEL}fidelity_state")
    if isinstance(kept, dict):
        return kept
    degraded = {"degraded_from": record["degraded_from"]} if "degraded_from" in record else {}
    told = {record["node"]: record["preamble"]} if record.get("preamble") else {}
    return {"mode": record.get("fidelity", "compact"), **degraded, "summaries": told}


def newest_of(steps: Iterable[StepRecord]) -> StepRecord | None:
    """Return the step that tells where a pipeline stands: the last stage, or what failed or waits since."""
    later: set[tuple[str, int]] = set()
    for step in reversed(list(steps)):
        if stage_key(step) is not None:
            return step
        is_answered = step.status is Status.COMPLETED and step.wait is not None
        if (step.status in _TELLING or is_answered) and (step.path, step.visit) not in later:
            return step
        later.add((step.path, step.visit))
    return None
