"""Every error everstep raises, its code, and what it means to a shell or an HTTP client.

EverstepError
├── FlowError                 flow.invalid             the graph cannot run as written
├── InputError                run.bad_input            inputs missing, unknown, or of another type
├── InputsDiffer              run.inputs_differ        this run began with other inputs
├── BadRequest                request.invalid          an argument that cannot mean anything
├── NodeFailed                node.failed              a node used up its attempts
├── NodeTimeout               node.timeout             one attempt took longer than the node allows
├── OutputError               node.bad_output          a node returned other than its outputs
├── GateError                 gate.bad_decision        a gate chose something it did not declare
├── LimitExceeded             run.limit_exceeded       too many steps or visits
├── InputNeverCame            node.input_never_came    a chosen node waits for a value nobody will write
├── RunCancelled              run.cancelled            somebody cancelled the run
├── RunAbandoned              run.abandoned            too many takeovers without progress
├── ValueNotStorable          value.not_storable       a value that would not come back equal
├── ValueUnreadable           value.unreadable         stored bytes that cannot be decoded
├── RunNotFound               DAG-CKPT-006             no such run or checkpoint
├── CheckpointPinned          run.pinned               a fork needs what was to be removed
├── LeaseConflict             DAG-CKPT-007             somebody else drives this run
│   └── LeaseLost             store.lease_lost         we drove it, and no longer do
├── StateCorrupted            DAG-CKPT-008             a record or an artifact is missing or altered
├── IncompatibleVersion       DAG-CKPT-009             written by a newer everstep
├── FlowChanged               run.flow_changed         the flow is not the one the run began with
└── StoreError                store.failed             the store could not do it (disk full, read-only, ...)
    └── StoreUnavailable      store.unavailable        the store is busy or out of reach; try again
"""

from __future__ import annotations

from typing import ClassVar


class EverstepError(Exception):
    """The root of all errors raised here: a stable `code`, a message, and what to do about it."""

    code: ClassVar[str] = "everstep.error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, fix: str = "", **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} {self.fix}".rstrip() if self.fix else self.message

    def to_wire(self) -> dict[str, object]:
        """Return the form that `--json` and HTTP show."""
        return {"code": self.code, "message": self.message, "fix": self.fix, "details": self.details}


class FlowError(EverstepError):
    code = "flow.invalid"
    exit_code = 2
    http_status = 422


class InputError(EverstepError):
    code = "run.bad_input"
    exit_code = 2
    http_status = 422


class InputsDiffer(EverstepError):
    code = "run.inputs_differ"
    exit_code = 2
    http_status = 409


class BadRequest(EverstepError):
    code = "request.invalid"
    exit_code = 2
    http_status = 400


class NodeFailed(EverstepError):
    code = "node.failed"


class NodeTimeout(EverstepError, TimeoutError):
    code = "node.timeout"


class OutputError(EverstepError):
    code = "node.bad_output"


class GateError(EverstepError):
    code = "gate.bad_decision"


class LimitExceeded(EverstepError):
    code = "run.limit_exceeded"


class InputNeverCame(EverstepError):
    code = "node.input_never_came"


class RunCancelled(EverstepError):
    code = "run.cancelled"
    http_status = 409


class RunAbandoned(EverstepError):
    code = "run.abandoned"
    http_status = 409


class ValueNotStorable(EverstepError):
    code = "value.not_storable"
    http_status = 422


class ValueUnreadable(EverstepError):
    code = "value.unreadable"


class RunNotFound(EverstepError):
    code = "DAG-CKPT-006"
    exit_code = 2
    http_status = 404


class CheckpointPinned(EverstepError):
    code = "run.pinned"
    exit_code = 2
    http_status = 409


class LeaseConflict(EverstepError):
    code = "DAG-CKPT-007"
    http_status = 409


class LeaseLost(LeaseConflict):
    code = "store.lease_lost"


class StateCorrupted(EverstepError):
    code = "DAG-CKPT-008"


class IncompatibleVersion(EverstepError):
    code = "DAG-CKPT-009"


class FlowChanged(EverstepError):
    code = "run.flow_changed"
    exit_code = 2
    http_status = 409


class StoreError(EverstepError):
    code = "store.failed"
    http_status = 503


class StoreUnavailable(StoreError):
    code = "store.unavailable"
