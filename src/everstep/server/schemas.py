"""The JSON schemas of what goes over the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from everstep.model.acts import LONGEST_COMMENT, LONGEST_NAME, Known
from everstep.model.waits import SettledBy
from everstep.runtime.events import EventKind
from everstep.server.api.waits import LONGEST_TTL
from everstep.server.checks import EVENT_ID, RUN_ID, RUN_STATUSES, TOKEN, WAIT_ID, WAIT_STATUSES

Schema = dict[str, Any]

ANY: Schema = {}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
OBJECT: Schema = {"type": "object"}
MOMENT: Schema = {"type": "string", "format": "date-time"}


def exactly(properties: Mapping[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """Return the schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def pattern(text: str) -> Schema:
    return {"type": "string", "pattern": f"^({text})$"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


RUN_STATUS: Schema = {"type": "string", "enum": RUN_STATUSES}

BREAKER_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,79}"
AMOUNTS: Schema = {"type": "object", "additionalProperties": TEXT}
"""Amounts are text, so that no JSON reader rounds them."""
BREAKER: Schema = exactly(
    {
        "state": {"type": "string", "enum": ["closed", "open", "half_open"]},
        "since": or_null(MOMENT),
        "reason": TEXT,
        "trips": COUNT,
        "failures": COUNT,
    }
)

_TURNING = "\\u202a-\\u202e\\u2066-\\u2069"
SIGNED: dict[str, Schema] = {
    "by": or_null(
        {"type": "string", "pattern": f"^[^\\u0000-\\u001f\\u007f-\\u009f{_TURNING}]{{0,{LONGEST_NAME}}}$"}
    ),
    "comment": or_null(
        {
            "type": "string",
            "pattern": f"^[^\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f{_TURNING}]{{0,{LONGEST_COMMENT}}}$",
        }
    ),
}
"""Who sends a body, and why."""

SCHEMAS: dict[str, Schema] = {
    "Error": exactly({"code": TEXT, "message": TEXT, "fix": TEXT, "details": OBJECT}),
    "Run": exactly(
        {
            "run_id": pattern(RUN_ID),
            "flow": TEXT,
            "flow_version": TEXT,
            "status": RUN_STATUS,
            "created_at": MOMENT,
            "ended_at": or_null(MOMENT),
            "checkpoints": COUNT,
            "parent_run_id": or_null(TEXT),
            "forked_at": or_null(COUNT),
            "is_driven": FLAG,
            "is_cancelling": FLAG,
            "priority": {"type": "integer"},
            "group": or_null(TEXT),
            "needs_repair": or_null(TEXT),
            "acked_at": or_null(MOMENT),
            "pinned": or_null(TEXT),
            "pinned_by": or_null(ref("Act")),
            "guards": ref("Guards"),
        },
        optional=("guards",),
    ),
    "Act": exactly(
        {
            "by": or_null(TEXT),
            "comment": or_null(TEXT),
            "how": {"type": "string", "enum": [how.value for how in Known]},
        }
    ),
    "Guards": exactly(
        {
            "spent": AMOUNTS,
            "budgets": {
                "type": "object",
                "additionalProperties": exactly({"spent": TEXT, "limit": TEXT, "raised": TEXT, "left": TEXT}),
            },
            "breakers": {"type": "object", "additionalProperties": ref("Breaker")},
        }
    ),
    "Worker": exactly(
        {
            "id": TEXT,
            "host": TEXT,
            "pid": COUNT,
            "flows": list_of(TEXT),
            "concurrency": COUNT,
            "driving": COUNT,
            "longest": list_of(exactly({"run_id": TEXT, "flow": TEXT, "since": MOMENT})),
            "started_at": MOMENT,
            "seen_at": MOMENT,
            "is_stopping": FLAG,
            "is_slowed": FLAG,
            "skew_seconds": {"type": "number"},
        }
    ),
    "Breaker": BREAKER,
    "Breakers": exactly(
        {"breakers": {"type": "object", "additionalProperties": ref("Breaker")}},
    ),
    "Workers": exactly({"workers": list_of(ref("Worker"))}),
    "Runs": exactly({"runs": list_of(ref("Run")), "next": or_null(pattern(RUN_ID))}),
    "Start": exactly(
        {
            "flow": {"type": "string", "minLength": 1},
            "inputs": or_null(OBJECT),
            "run_id": or_null(pattern(RUN_ID)),
            "channel": or_null(OBJECT),
            "priority": {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1, "default": 0},
            "group": or_null({"type": "string", "pattern": "^[^\\u0000]{1,500}$"}),
            **SIGNED,
        },
        optional=("inputs", "run_id", "channel", "priority", "group", *SIGNED),
    ),
    "RunError": exactly({"type": TEXT, "code": TEXT, "message": TEXT}),
    "State": exactly(
        {
            "run_id": TEXT,
            "sequence": COUNT,
            "status": RUN_STATUS,
            "values": OBJECT,
            "pending": list_of(TEXT),
            "idempotency": exactly(
                {
                    "consumed": {"type": "object", "additionalProperties": list_of(TEXT)},
                    "pending": {"type": "object", "additionalProperties": TEXT},
                }
            ),
            "guards": ref("Guards"),
            "error": or_null(ref("RunError")),
        }
    ),
    "Pin": exactly(
        {"reason": {"type": "string", "pattern": "^[^\\u0000]{0,499}[^\\s\\u0000]$"}, **SIGNED},
        optional=("reason", *SIGNED),
    ),
    "Erased": exactly({"run_id": TEXT, "checkpoints": COUNT, "artifacts": COUNT, "artifacts_left": COUNT}),
    "Cancelled": exactly({"run_id": TEXT, "status": RUN_STATUS}),
    "Resume": exactly(
        {"start": or_null(TEXT), "fallback": FLAG, **SIGNED}, optional=("start", "fallback", *SIGNED)
    ),
    "Result": exactly(
        {
            "run_id": TEXT,
            "status": RUN_STATUS,
            "result": OBJECT,
            "channel": OBJECT,
            "error": or_null(ref("RunError")),
            "spooled": COUNT,
            "fallback": ref("Fallback"),
        },
        optional=("channel", "fallback"),
    ),
    "Halted": exactly(
        {
            "halted": FLAG,
            "run_id": TEXT,
            "waits": list_of(ref("Wait")),
            "fallback": ref("Fallback"),
        },
        optional=("fallback",),
    ),
    "Fallback": exactly(
        {
            "run_id": TEXT,
            "fork": TEXT,
            "at": COUNT,
            "reason": TEXT,
            "may_repeat": list_of(OBJECT),
            "unread": list_of(COUNT),
        }
    ),
    "Wait": exactly(
        {
            "id": pattern(WAIT_ID),
            "run_id": TEXT,
            "flow": TEXT,
            "node": TEXT,
            "visit": COUNT,
            "kind": TEXT,
            "prompt": TEXT,
            "context": ANY,
            "options": ANY,
            "schema": ANY,
            "scheduler": TEXT,
            "status": {"type": "string", "enum": WAIT_STATUSES},
            "opened_at": MOMENT,
            "due_at": or_null(MOMENT),
            "settled_at": or_null(MOMENT),
            "settled_by": or_null({"type": "string", "enum": [by.value for by in SettledBy]}),
            "answer": ANY,
            "act": or_null(ref("Act")),
            "token": or_null(pattern(TOKEN)),
            "token_metadata": or_null(OBJECT),
            "link": or_null(TEXT),
        }
    ),
    "Waits": exactly({"waits": list_of(ref("Wait")), "next": or_null(pattern(WAIT_ID))}),
    "Reissue": exactly(
        {
            "ttl_seconds": or_null({"type": "number", "minimum": 1, "maximum": LONGEST_TTL}),
            "single_use": FLAG,
            "metadata": or_null(OBJECT),
            **SIGNED,
        },
        optional=("ttl_seconds", "single_use", "metadata", *SIGNED),
    ),
    "Settled": exactly({"status": {"const": "settled"}, "settled_at": or_null(MOMENT)}),
    "Event": exactly(
        {
            "id": pattern(EVENT_ID),
            "kind": {"type": "string", "enum": list(get_args(EventKind))},
            "run_id": TEXT,
            "at": MOMENT,
            "node": TEXT,
            "visit": COUNT,
            "attempt": COUNT,
            "data": OBJECT,
        }
    ),
    "StreamedEvent": exactly(
        {
            "id": pattern(EVENT_ID),
            "event": {"type": "string", "enum": list(get_args(EventKind))},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": ref("Event")},
        }
    ),
    "Events": exactly({"events": list_of(ref("Event")), "next": or_null(pattern(EVENT_ID)), "ended": FLAG}),
    "Health": exactly({"status": {"const": "ok"}}),
}
