"""What happens while a run is driven, for those who watch. Never the source of truth."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from everstep.model.acts import Act
from everstep.model.budgets import spelled
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord, StepRecord
from everstep.model.shapes import Count, Instant, Value
from everstep.on_demand import on_demand
from everstep.ports.system import Clock
from everstep.runtime.drive.invoke import Call, OnChunk

if TYPE_CHECKING:
    from everstep.codec.wire import wire
else:
    wire = on_demand("everstep.codec.wire:wire")


EventKind = Literal[
    "run_started",
    "run_resumed",
    "run_halted",
    "run_paused",
    "run_ended",
    "step_replayed",
    "step_started",
    "step_completed",
    "step_failed",
    "step_retrying",
    "step_cancelled",
    "step_halted",
    "chunk",
    "streamed",
    "spent",
    "budget_warned",
    "breaker_opened",
    "emitted",
    "gap",
    "checkpoint",
    "lease_wait",
    "result",
]


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that happened."""

    id: str = ""
    """Where it stands among the events of its run: hand it to `follow` to go on behind it.

    Of one told live in this process only what a node emitted or yielded has one.
    """
    kind: EventKind
    run_id: str
    at: Instant
    node: str = ""
    visit: Count = 0
    attempt: Count = 0
    data: dict[str, Value] = {}

    def called(self, id: str) -> Event:
        """Return the event with an id."""
        return msgspec.structs.replace(self, id=id)


Listener = Callable[[Event], None]
log = logging.getLogger("everstep")


def tell(listener: Listener | None, event: Event) -> None:
    """Hand an event to a listener. One that fails is logged: watching a run must not break it."""
    if listener is None:
        return
    try:
        listener(event)
    except Exception:
        log.exception("listener failed on %s of run %r", event.kind, event.run_id)


class Outlet(Protocol):
    """Takes what the nodes of one drive emit and yield. May be used from any thread."""

    def put(self, kind: EventKind, node: str, visit: int, attempt: int, data: dict[str, Any]) -> None: ...

    async def settle(self) -> None:
        """Return once what was emitted can be read elsewhere, as far as that is possible now."""


class EventSender:
    """Tells a listener, if there is one, what one drive does."""

    outlet: Outlet | None = None
    """Where what nodes emit goes, once one may."""

    def __init__(
        self, listener: Listener | None, clock: Clock, run_id: str, outlet: Callable[[], Outlet] | None
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._run_id = run_id
        self._make_outlet = outlet
        self.is_heard = listener is not None
        self.is_streamed = outlet is not None
        """True if what nodes emit and yield goes anywhere."""

    def tell(
        self,
        kind: EventKind,
        node: str = "",
        visit: int = 0,
        attempt: int = 0,
        data: dict[str, Any] | None = None,
    ) -> None:
        if self._listener is not None:
            at = self._clock.now()
            event = Event(
                kind=kind,
                run_id=self._run_id,
                at=at,
                node=node,
                visit=visit,
                attempt=attempt,
                data=data or {},
            )
            tell(self._listener, event)

    def chunks(self, call: Call) -> OnChunk | None:
        """Return who gets the chunks of a streaming node, from any thread."""
        return self._taking_chunks(call) if self.is_streamed else None

    def _taking_chunks(self, call: Call) -> OnChunk:
        put, path, visit, attempt = self._opened().put, call.path, call.visit, call.attempt
        return lambda chunk: put("chunk", path, visit, attempt, {"chunk": chunk})

    def emitting(self, call: Call) -> Callable[[dict[str, Any]], None]:
        """Return who gets what a node emits, from any thread."""
        put, path, visit, attempt = self._opened().put, call.path, call.visit, call.attempt
        return lambda data: put("emitted", path, visit, attempt, data)

    def _opened(self) -> Outlet:
        if self.outlet is None:
            assert self._make_outlet is not None
            self.outlet = self._make_outlet()
        return self.outlet

    def step_started(self, call: Call) -> None:
        self.tell("step_started", call.path, call.visit, call.attempt)

    def step_ended(self, step: StepRecord) -> None:
        if self._listener is not None:
            tell(self._listener, step_event(self._run_id, step, self._clock.now()))


def step_event(run_id: str, step: StepRecord, at: datetime) -> Event:
    """Return what a recorded step tells."""
    return Event(
        kind=_kind_of(step),
        run_id=run_id,
        at=at,
        node=step.path,
        visit=step.visit,
        attempt=step.attempts,
        data=_data_of(step),
    )


def _kind_of(step: StepRecord) -> EventKind:
    if step.stream is not None:
        return "streamed"
    return "spent" if step.spent is not None and step.status is Status.RUNNING else STEP_KINDS[step.status]


NEWS = (Trigger.COST_THRESHOLD, Trigger.CIRCUIT_BREAKER)
"""Checkpoints that tell of more than their steps."""


def news_of(trigger: Trigger, about: dict[str, Any] | None) -> list[tuple[EventKind, dict[str, Any]]]:
    """Return what a checkpoint tells of besides its steps: budgets nearly spent, breakers that opened."""
    found: list[tuple[EventKind, dict[str, Any]]] = []
    if trigger in NEWS and about is not None:
        if "budgets" in about:
            found.append(("budget_warned", {"budgets": about["budgets"]}))
        if "breakers" in about:
            found.append(("breaker_opened", {"breakers": about["breakers"]}))
    return found


def with_who(data: dict[str, Any], act: Act | None) -> dict[str, Any]:
    """Return what an event says, with who did it and why if that is known."""
    return data if act is None else {**data, "act": wire(act)}


def checkpoint_data(record: CheckpointRecord) -> dict[str, Any]:
    """Return what is told of a checkpoint that was written."""
    return with_who({"sequence": record.sequence, "trigger": record.trigger.value}, record.act)


def _data_of(step: StepRecord) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if step.started_at is not None and step.ended_at is not None:
        data["seconds"] = (step.ended_at - step.started_at).total_seconds()
    if step.error is not None:
        data["error"] = f"{step.error.type}: {step.error.message}"
    if step.retry_at is not None:
        data["retry_at"] = step.retry_at.isoformat()
    if step.decision is not None:
        data["decision"] = list(step.decision)
    if step.outcome:
        data["outcome"] = step.outcome
    if step.items is not None:
        data["items"] = step.items
    if step.stream is not None:
        data |= {"chunks": step.stream.chunks, "cursor": step.stream.cursor}
    if step.spent is not None:
        data["spent"] = spelled(step.spent)
    if step.wait is not None:
        due = step.wait.due_at
        data["wait"] = {
            "id": step.wait.wait_id,
            "kind": step.wait.kind,
            "due_at": due.isoformat() if due is not None else None,
        }
    return with_who(data, step.act)


STEP_KINDS: dict[Status, EventKind] = {
    Status.COMPLETED: "step_completed",
    Status.RETRYING: "step_retrying",
    Status.FAILED: "step_failed",
    Status.CANCELLED: "step_cancelled",
    Status.RUNNING: "step_started",
    Status.HALTED: "step_halted",
}
