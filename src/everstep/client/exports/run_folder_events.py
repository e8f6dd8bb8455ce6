"""The events of a run as a run folder tells them: `type`, `run_id`, `timestamp`, `node_id`, `data`. Apart
from the files around it: these names are a contract with readers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from everstep.client.exports.forms import step_outcome
from everstep.client.exports.spelling import iso, signature
from everstep.client.exports.stage_records import gates_behind, node_path, outcome_of
from everstep.client.projection import Projection
from everstep.graph.compile.plan import Plan
from everstep.model.enums import Status, Trigger
from everstep.model.records import FORK, CheckpointRecord, StepRecord

_DONE: Final = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


class Told:
    """Turns records into events, one after the other."""

    def __init__(self, run_id: str, forks: Collection[str], followed: Collection[str] = ()) -> None:
        self._run_id = run_id
        self._forks = forks
        self._followed = followed
        """Nodes whose stage ends with the gate behind them."""
        self._begun: set[str] = set()
        """Those of them that were told to have started, and whose stage has not ended."""
        self.late: set[str] = set()
        """Waits that the clock settled."""
        self._run = Projection()
        """How visits stand before the step that is told."""

    def events_of(
        self, record: CheckpointRecord, stages: Mapping[tuple[str, int], Mapping[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Yield what a record tells; `stages` are the stages that its steps are, by path and visit."""
        at, who = record.created_at, signature(record.act)
        if record.trigger is Trigger.ADMISSION:
            yield self._event("pipeline.started", at, "", {"pipeline": record.flow_id, **who})
        elif record.trigger is Trigger.RESUME:
            yield self._event("checkpoint.loaded", at, "", {"sequence": record.sequence - 1})
            yield self._event("pipeline.resumed", at, "", {"pipeline": record.flow_id, **who})
        for step in record.steps:
            if step.path == FORK:
                forked = {"pipeline": record.flow_id, "forked_from": record.parent_run_id, **who}
                yield self._event("pipeline.started", at, "", forked)
            elif step.path[0] != "@":
                yield from self._step(step, stages.get((step.path, step.visit), {}), at)
                self._run.note(step)
        saved = {"sequence": record.sequence, "trigger": record.trigger.value, **who}
        yield self._event("checkpoint.saved", at, "", {**saved, "checkpoint_id": record.checkpoint_id})
        if record.status is Status.COMPLETED:
            yield self._event("pipeline.completed", at, "", {"status": "success"})
        elif record.status.is_final:
            why = record.error.message if record.error is not None else record.status.value
            ended = {"status": record.status.value, "error": why}
            by = who if record.status is Status.CANCELLED else {}
            yield self._event("pipeline.failed", at, "", {**ended, **by})

    def _step(self, step: StepRecord, stage: Mapping[str, Any], at: datetime) -> Iterator[dict[str, Any]]:
        node, visit = node_path(step), self._run.visit(step)
        is_waiting = visit is not None and visit.is_waiting
        has_begun = visit is not None and visit.has_begun
        began, ended = step.started_at or at, step.ended_at or at
        base = {"visit": step.visit, "attempt": step.attempts}
        answered = {**base, **signature(step.act)}
        if step.status is Status.HALTED and step.wait is not None:
            due = iso(step.wait.due_at)
            data = {**base, "kind": step.wait.kind, "wait_id": step.wait.wait_id, "due_at": due}
            yield self._event("human.waiting", began, node, data)
            return
        if step.status is Status.RUNNING:
            if has_begun:
                return
            self._begun.add(node)
            is_fork = node in self._forks
            yield self._event("parallel.fork" if is_fork else "node.started", began, node, base)
            return
        if step.status is Status.RETRYING and is_waiting:  # it was let start
            yield self._event("human.responded", ended, node, answered)
            return
        if step.status is Status.RETRYING:
            retry = {**base, **step_outcome(step), "retry_at": iso(step.retry_at)}
            yield self._event("node.retrying", ended, node, retry)
            return
        if is_waiting and step.status in _DONE:
            is_late = step.error is not None and step.error.code == "wait.timeout"
            is_late = is_late or (step.wait is not None and step.wait.wait_id in self.late)
            yield self._event("human.timeout" if is_late else "human.responded", ended, node, answered)
        elif not has_begun and node not in self._forks and not (stage and node in self._begun):
            self._begun.add(node)
            yield self._event("node.started", began, node, base)
        if node in self._followed and not stage and step.status is Status.COMPLETED:
            return  # how its stage ends, the gate behind it will say
        self._begun.discard(node)
        outcome = outcome_of(stage) if stage else step_outcome(step)
        outcome.pop("edge", None)
        outcome.pop("response", None)
        if node in self._forks and not stage:
            return
        if node.rpartition("/")[0] in self._forks:
            yield self._event("parallel.branch_completed", ended, node, {**base, **outcome})
            return
        if node in self._forks:
            yield self._event("parallel.join", ended, node, {**base, **outcome})
        yield self._event("node.completed", ended, node, {**base, **outcome})
        yield from self._edges(step, stage, node, ended)

    def _edges(
        self, step: StepRecord, stage: Mapping[str, Any], node: str, at: datetime
    ) -> Iterator[dict[str, Any]]:
        edge = stage.get("edge")
        if isinstance(edge, Mapping):
            yield self._event("edge.selected", at, node, dict(edge))
        elif not stage and step.decision is not None:
            for target in step.decision:
                yield self._event("edge.selected", at, node, {"to": target, "reason": "decision"})

    def _event(self, kind: str, at: datetime, node: str, data: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": kind,
            "run_id": self._run_id,
            "timestamp": iso(at),
            "node_id": node or None,
            "data": data,
        }


def may_be_late(step: StepRecord) -> bool:
    """True if a step may have timed out, so that a default counted; its wait says whether."""
    due = step.wait.due_at if step.wait is not None else None
    return step.status in _DONE and due is not None and step.ended_at is not None and step.ended_at >= due


def forks_in(plan: Plan, prefix: str = "") -> frozenset[str]:
    """Return the nodes of a pipeline whose branches run side by side, by their paths."""
    found: set[str] = set()
    for number, child in plan.children.items():
        path = prefix + plan.paths[number]
        if any(f"{plan.paths[number]}.join{more}" in plan.index for more in ("", "_", "__")):
            found.add(path)
        if not child.is_leaf:
            found |= forks_in(child.plan, f"{path}/")
    return frozenset(found)


def followed_in(plan: Plan, prefix: str = "") -> frozenset[str]:
    """Return the nodes of a pipeline whose stage ends with the gate behind them, by their paths."""
    found = {prefix + node.name for node in plan.nodes if gates_behind(plan, node.name)}
    for number, child in plan.children.items():
        if not child.is_leaf:
            found |= followed_in(child.plan, f"{prefix}{plan.paths[number]}/")
    return frozenset(found)
