"""What the service says: runs, waits, events and errors as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from starlette.responses import Response

from everstep.client.plain_json import jsonable
from everstep.client.views import RunInfo, RunResult, RunState, Unreadable, WaitInfo, WorkerInfo
from everstep.errors import EverstepError, StoreError, TooSlow, Unauthorized, ValueUnreadable
from everstep.model.acts import Act
from everstep.model.records import ErrorInfo
from everstep.runtime.events import Event
from everstep.server.redaction import without_tokens

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def answer(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response. Values of users have gone through `jsonable` before."""
    return _response(json.dumps(body, ensure_ascii=False, allow_nan=False), status, headers)


def _response(text: str, status: int, headers: Mapping[str, str] | None) -> Response:
    body = text.encode("utf-8", "backslashreplace")
    return Response(body, status, {**HEADERS, **(headers or {})}, media_type="application/json")


def failure(error: EverstepError, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as the response it stands for."""
    extra = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}
    if isinstance(error, TooSlow):
        extra = {"Connection": "close"}  # what may still come is no other request
    wire = _OUT_OF_REACH | {"code": error.code} if isinstance(error, StoreError) else error.to_wire()
    text = json.dumps(jsonable(wire), ensure_ascii=False, allow_nan=False)
    return _response(without_tokens(text), error.http_status, {**extra, **(headers or {})})


_OUT_OF_REACH = {
    "message": "the store of this service is busy or out of reach.",
    "fix": "Try again in a moment; the service's log says more.",
    "details": {},
}
"""What a client is told of any error of the store: the error itself names addresses, files and users."""


def internal() -> Response:
    """Return the response to a request that met a bug; the log has the rest."""
    wire = {
        "code": "internal",
        "message": "something went wrong here.",
        "fix": "See the service's log.",
        "details": {},
    }
    return answer(wire, 500)


def run_wire(info: RunInfo) -> dict[str, Any]:
    return {
        "run_id": info.run_id,
        "flow": info.flow,
        "flow_version": info.flow_version,
        "status": info.status.value,
        "created_at": moment(info.created_at),
        "ended_at": moment(info.ended_at),
        "checkpoints": info.checkpoints,
        "parent_run_id": info.parent_run_id,
        "forked_at": info.forked_at,
        "is_driven": info.is_driven,
        "is_cancelling": info.is_cancelling,
        "priority": info.priority,
        "group": info.group,
        "needs_repair": info.needs_repair,
        "acked_at": moment(info.acked_at),
        "pinned": info.pinned,
        "pinned_by": act_wire(info.pinned_by),
    }


def worker_wire(info: WorkerInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "host": info.host,
        "pid": info.pid,
        "flows": info.flows,
        "concurrency": info.concurrency,
        "driving": info.driving,
        "longest": [
            {"run_id": run.run_id, "flow": run.flow_id, "since": moment(run.since)} for run in info.longest
        ],
        "started_at": moment(info.started_at),
        "seen_at": moment(info.seen_at),
        "is_stopping": info.is_stopping,
        "is_slowed": info.is_slowed,
        "skew_seconds": info.skew_seconds,
    }


def result_wire(result: RunResult) -> dict[str, Any]:
    return fallback_wire(result) | {
        "run_id": result.run_id,
        "status": result.status.value,
        "result": readable(result),
        **channel_wire(result),
        "error": error_wire(result.error),
        "spooled": result.spooled,
    }


def channel_wire(result: RunResult) -> dict[str, Any]:
    """Return what is in the run's channel, if anything is; of a pipeline that is its result."""
    return {} if result.is_pipeline or not result.channel else {"channel": readable(result.channel)}


def fallback_wire(result: RunResult) -> dict[str, Any]:
    """Return how a damaged run went on, if it was one."""
    told = result.fallback
    return {} if told is None else {"fallback": told.to_wire()}


def state_wire(state: RunState) -> dict[str, Any]:
    return {
        "run_id": state.run_id,
        "sequence": state.sequence,
        "status": state.status.value,
        "values": readable(state),
        "pending": list(state.frontier.pending),
        "idempotency": {"consumed": state.idempotency.consumed, "pending": state.idempotency.pending},
        "guards": state.guards.to_json(),
        "error": error_wire(state.error),
    }


def wait_wire(wait: WaitInfo) -> dict[str, Any]:
    return {
        "id": wait.id,
        "run_id": wait.run_id,
        "flow": wait.flow,
        "node": wait.node,
        "visit": wait.visit,
        "kind": wait.kind,
        "prompt": wait.prompt,
        "context": wait.context,
        "options": wait.options,
        "schema": wait.schema,
        "scheduler": wait.scheduler,
        "status": wait.status.value,
        "opened_at": moment(wait.opened_at),
        "due_at": moment(wait.due_at),
        "settled_at": moment(wait.settled_at),
        "settled_by": wait.settled_by.value if wait.settled_by is not None else None,
        "answer": wait.answer,
        "act": act_wire(wait.act),
        "token": wait.token,
        "token_metadata": wait.token_metadata,
        "link": wait.link,
    }


def event_wire(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "kind": event.kind,
        "run_id": event.run_id,
        "at": moment(event.at),
        "node": event.node,
        "visit": event.visit,
        "attempt": event.attempt,
        "data": {name: jsonable(value) for name, value in event.data.items()},
    }


def act_wire(act: Act | None) -> dict[str, Any] | None:
    return None if act is None else act.to_wire()


def error_wire(error: ErrorInfo | None) -> dict[str, Any] | None:
    return None if error is None else {"type": error.type, "code": error.code, "message": error.message}


def readable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name; where one cannot be read, why."""
    found: dict[str, Any] = {}
    for name in values:
        try:
            found[name] = jsonable(values[name])
        except ValueUnreadable as error:
            found[name] = jsonable(Unreadable(error))
    return found


def moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
