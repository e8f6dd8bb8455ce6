"""Every error everstep raises, its code, and what it means to a shell or an HTTP client.

EverstepError
├── FlowError                 flow.invalid             the graph cannot run as written
│   ├── IrInvalid             ir.invalid               a Flow IR that is no flow, or a flow that has no IR
│   └── DotError              dot.invalid              a DOT text that cannot be read
├── InputError                run.bad_input            inputs missing, unknown, or of another type
├── InputsDiffer              run.inputs_differ        this run began with other inputs
├── BadRequest                request.invalid          an argument that cannot mean anything
│   └── NotInAtomic           flow.not_in_atomic       a node asked for what an atomic flow cannot give
├── HostClosed                host.closed              the host was closed while it drove the run
├── NodeFailed                node.failed              a node used up its attempts
├── NodeTimeout               node.timeout             one attempt took longer than the node allows
├── ProbeFailed               node.probe_failed        the probe could not say whether an effect happened
├── OutputError               node.bad_output          a node returned other than its outputs
├── GateError                 gate.bad_decision        a gate chose something it did not declare
│   └── PhaseAborted          phase.aborted            a person ended the run at a gate
├── PhaseInputInvalid         phase.bad_input          a phase that was not given what it takes
├── GroupFailed               group.failed             too few members of a group succeeded
├── PipelineFailed            pipeline.failed          a stage failed, or a goal was missed, with no way on
│   └── NoEdgeHolds           pipeline.no_edge         a stage is done, and none of its edges holds
├── BackendChanged            pipeline.backend_changed a run would go on with a simulation only
├── MapInputError             map.bad_input            no list to go over, or lists of different lengths
├── ItemsFailed               map.items_failed         all items of a map have ended, and some of them failed
├── LiftError                 flow.not_lifted          an inner flow ended without a value that it was to give
├── UnknownTask               task.unknown             a task for a node that the flow does not have
├── TaskGone                  task.gone                a queued task's node was removed from the flow
├── LimitExceeded             run.limit_exceeded       too many steps or visits
├── BudgetExceeded            budget.exceeded          all of a budget is spent, and more was not approved
├── BreakerOpen               breaker.open             a breaker is open, and a person said to leave it so
├── InputMissing              node.input_never_came    a chosen node waits for a value that no node will write
├── DeadlineExceeded          run.deadline_exceeded    the run had not ended by its deadline, and was ended
├── RunCancelled              run.cancelled            the run was cancelled
├── RunHalted                 run.halted               the run waits for an answer
├── RunPaused                 run.paused               the run, its flow or its group is paused
├── RunAbandoned              run.abandoned            too many takeovers without progress
├── ValueNotStorable          value.not_storable       a value that would not come back equal
├── ValueUnreadable           value.unreadable         stored bytes that cannot be decoded
│   ├── KeyUnavailable        value.key_unavailable    encrypted bytes whose key is not at hand, or another
│   └── ValueLeftOut          value.left_out           a value that was left out when the run was exported
├── WaitNotFound              wait.not_found           no such wait
├── WaitSettled               wait.settled             the wait has its answer already
│   └── AnswerTooLate         answer.too_late          an answer given after the wait's time was over
├── VoteRefused               vote.refused             a vote on an approval by a name that may not decide it
├── VotedAlready              vote.given               a second vote of one name
├── WaitClosed                wait.closed              its run no longer wants an answer
├── WaitTimeout               wait.timeout             no answer came in time
├── AnswerInvalid             answer.invalid           an answer of another shape than the wait asks for
├── TokenInvalid              token.invalid            a token that is not, or no longer, one of ours
├── TokenExpired              token.expired            a token whose time is over
├── TokenUsed                 token.used               a token that has answered already
├── TimerAmbiguous            wait.two_times           a timer with both `duration` and `until`
├── TimerUnset                wait.no_time             a timer with neither
├── InvalidDelay              schedule.invalid_delay   a negative delay, or no delay at all
├── ScheduleNotFound          schedule.not_found       no such schedule
├── UnknownScheduler          scheduler.unknown        an alias that the host does not have
├── UnknownNotifier           notifier.unknown         likewise for who is to be told
├── NotifyFailed              notifier.failed          a notification of a wait or a run could not be sent
├── NoticeNotFound            notice.not_found         there is no such notice, to be sent again
├── ServiceMissing            DAG-CKPT-003             the host lacks a service that the flow needs
├── HaltNeedsDurability       DAG-CKPT-002             a node that halts, in a flow that is kept nowhere
├── NotCheckpointable         DAG-CKPT-001             a node that cannot be checkpointed, in a strong flow
├── KeyMissing                DAG-CKPT-004             an effect that a resume may repeat, without a key
├── NotReplayable             DAG-CKPT-005             a stream that cannot be replayed, in a strong flow
├── TooLarge                  request.too_large        a body above the limit
├── TooSlow                   request.too_slow         a body that does not come in
├── Unauthorized              request.unauthorized     no bearer token, or a wrong one
├── Forbidden                 request.forbidden        a request that a web page elsewhere may have sent
├── NoSuchPath                request.no_such_path     nothing is served there
├── MethodNotAllowed          request.bad_method       something is served there, but not that way
├── FlowNotLoaded             flow.not_loaded          no live worker has a flow whose code is asked for
├── NoAnswer                  flow.no_answer           workers have it, and none answered in time
├── FlowNotFound              flow.not_found           no flow of that name is loaded here
├── RunNotFound               DAG-CKPT-006             no such run or checkpoint
│   └── RunErased             run.erased               there was one, and it was removed
├── CheckpointPinned          run.pinned               a fork or a pin keeps what was to be removed
├── LeaseConflict             DAG-CKPT-007             another owner drives this run
│   └── LeaseLost             store.lease_lost         we drove it, and no longer do
├── StateCorrupted            DAG-CKPT-008             a record or an artifact is missing or altered
├── IncompatibleVersion       DAG-CKPT-009             written by a newer everstep
├── BundleInvalid             bundle.invalid           a bundle, or a file of another form, that is not whole
├── RunTaken                  run.taken                another run, or an older state of it, has this id there
├── DurabilityOff             durability.off           a flow that keeps nothing was to drive a recorded run
├── FlowChanged               run.flow_changed         the flow is not the one the run began with
└── StoreError                store.failed             the store could not do it (disk full, read-only, ...)
    ├── StoreMissing          store.failed             there is no store at that place yet
    ├── SpoolLost             store.spool_lost         checkpoints that waited on this machine are gone
    └── StoreUnavailable      store.unavailable        the store is busy or out of reach; try again
        └── StoreNotWritable  store.not_writable       it takes nothing for now: full, or read-only
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from everstep.on_demand import on_demand

if TYPE_CHECKING:
    import difflib
else:
    difflib = on_demand("difflib")


class EverstepError(Exception):
    """The root of all errors raised here: a stable `code`, a message, and what to do about it."""

    code: ClassVar[str] = "everstep.error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    shows_cause: ClassVar[bool] = False
    """True if what a user's function raised stands behind it, and its traceback is kept."""
    is_audited = False
    """True once the audit log has the act that it came of: it has that once."""

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
    draft: Any = None
    """The flow that could not be built, to be held against `validate`."""


class IrInvalid(FlowError):
    code = "ir.invalid"


class DotError(FlowError):
    code = "dot.invalid"


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


class HostClosed(EverstepError):
    code = "host.closed"
    http_status = 503


class NodeFailed(EverstepError):
    code = "node.failed"


class NodeTimeout(EverstepError, TimeoutError):
    code = "node.timeout"


class StepFailed(EverstepError):
    code = "step.failed"


class StepChanged(EverstepError):
    code = "step.changed"


class UndoUnknown(EverstepError):
    """Nothing here knows how a step is undone."""

    code = "undo.unknown"
    exit_code = 1


class RunUndone(EverstepError):
    """A run has undone what it did, or began to: it goes forward no more."""

    code = "run.undone"
    exit_code = 2
    http_status = 409


class ProbeFailed(EverstepError):
    code = "node.probe_failed"


class OutputError(EverstepError):
    code = "node.bad_output"


class GateError(EverstepError):
    code = "gate.bad_decision"


class PhaseInputInvalid(EverstepError):
    code = "phase.bad_input"


class PhaseAborted(GateError):
    code = "phase.aborted"


class GroupFailed(EverstepError):
    code = "group.failed"


class PipelineFailed(EverstepError):
    code = "pipeline.failed"
    shows_cause = True


class NoEdgeHolds(PipelineFailed):
    code = "pipeline.no_edge"


class BackendChanged(EverstepError):
    code = "pipeline.backend_changed"


class MapInputError(EverstepError):
    code = "map.bad_input"


class ItemsFailed(EverstepError):
    code = "map.items_failed"


class LiftError(EverstepError):
    code = "flow.not_lifted"


class NotInAtomic(BadRequest):
    code = "flow.not_in_atomic"


class UnknownTask(EverstepError):
    code = "task.unknown"


class TaskGone(EverstepError):
    code = "task.gone"
    exit_code = 2
    http_status = 409


class LimitExceeded(EverstepError):
    code = "run.limit_exceeded"


class BudgetExceeded(EverstepError):
    code = "budget.exceeded"


class BreakerOpen(EverstepError):
    code = "breaker.open"


class InputMissing(EverstepError):
    code = "node.input_never_came"


class DeadlineExceeded(EverstepError, TimeoutError):
    """A run that had not ended by its deadline was ended. Raised by `raise_for_status()`."""

    code = "run.deadline_exceeded"


class RunCancelled(EverstepError):
    code = "run.cancelled"
    http_status = 409


class RunHalted(EverstepError):
    code = "run.halted"
    http_status = 409


class RunPaused(EverstepError):
    code = "run.paused"
    exit_code = 2
    http_status = 409


class RunAbandoned(EverstepError):
    code = "run.abandoned"
    http_status = 409


class ValueNotStorable(EverstepError):
    code = "value.not_storable"
    http_status = 422


class ValueUnreadable(EverstepError):
    code = "value.unreadable"


class KeyUnavailable(ValueUnreadable):
    code = "value.key_unavailable"


class ValueLeftOut(ValueUnreadable):
    code = "value.left_out"


class RunEnded(EverstepError):
    code = "run.ended"
    exit_code = 2
    http_status = 409


class InboxFull(EverstepError):
    code = "inbox.full"
    exit_code = 2
    http_status = 409


class WaitNotFound(EverstepError):
    code = "wait.not_found"
    exit_code = 2
    http_status = 404


class WaitSettled(EverstepError):
    code = "wait.settled"
    exit_code = 2
    http_status = 409


class AnswerTooLate(WaitSettled):
    code = "answer.too_late"


class VoteRefused(EverstepError):
    code = "vote.refused"
    exit_code = 2
    http_status = 403


class VotedAlready(EverstepError):
    code = "vote.given"
    exit_code = 2
    http_status = 409


class WaitClosed(EverstepError):
    code = "wait.closed"
    exit_code = 2
    http_status = 409


class WaitTimeout(EverstepError, TimeoutError):
    code = "wait.timeout"


class ChildFailed(EverstepError):
    """A run that was waited for did not complete; `details` has its `run_id` and its `status`."""

    code = "child.failed"


class AnswerInvalid(EverstepError):
    code = "answer.invalid"
    exit_code = 2
    http_status = 400


class TokenInvalid(EverstepError):
    code = "token.invalid"
    exit_code = 2
    http_status = 401


class TokenExpired(EverstepError):
    code = "token.expired"
    exit_code = 2
    http_status = 401


class TokenUsed(EverstepError):
    code = "token.used"
    exit_code = 2
    http_status = 409


class TimerAmbiguous(EverstepError):
    code = "wait.two_times"
    exit_code = 2
    http_status = 422


class TimerUnset(EverstepError):
    code = "wait.no_time"
    exit_code = 2
    http_status = 422


class InvalidDelay(EverstepError):
    code = "schedule.invalid_delay"
    exit_code = 2
    http_status = 422


class ScheduleNotFound(EverstepError):
    code = "schedule.not_found"
    exit_code = 2
    http_status = 404


class UnknownScheduler(EverstepError):
    code = "scheduler.unknown"
    exit_code = 2
    http_status = 422


class UnknownNotifier(EverstepError):
    code = "notifier.unknown"
    exit_code = 2
    http_status = 422


class NoticeNotFound(EverstepError):
    code = "notice.not_found"
    exit_code = 2
    http_status = 404


class NotifyFailed(EverstepError):
    code = "notifier.failed"
    http_status = 502


class ServiceMissing(EverstepError):
    code = "DAG-CKPT-003"
    exit_code = 2
    http_status = 422


class HaltNeedsDurability(EverstepError):
    code = "DAG-CKPT-002"
    exit_code = 2
    http_status = 422


class NotCheckpointable(EverstepError):
    code = "DAG-CKPT-001"
    exit_code = 2
    http_status = 422


class KeyMissing(EverstepError):
    code = "DAG-CKPT-004"
    exit_code = 2
    http_status = 422


class NotReplayable(EverstepError):
    code = "DAG-CKPT-005"
    exit_code = 2
    http_status = 422


class TooLarge(EverstepError):
    code = "request.too_large"
    exit_code = 2
    http_status = 413


class TooSlow(EverstepError):
    code = "request.too_slow"
    exit_code = 2
    http_status = 408


class Unauthorized(EverstepError):
    code = "request.unauthorized"
    exit_code = 2
    http_status = 401


class Forbidden(EverstepError):
    code = "request.forbidden"
    exit_code = 2
    http_status = 403


class NoSuchPath(EverstepError):
    code = "request.no_such_path"
    exit_code = 2
    http_status = 404


class MethodNotAllowed(EverstepError):
    code = "request.bad_method"
    exit_code = 2
    http_status = 405


class FlowNotLoaded(EverstepError):
    code = "flow.not_loaded"
    exit_code = 2
    http_status = 409


class NoAnswer(EverstepError):
    code = "flow.no_answer"
    http_status = 503


class FlowNotFound(EverstepError):
    code = "flow.not_found"
    exit_code = 2
    http_status = 404


class RunNotFound(EverstepError):
    code = "DAG-CKPT-006"
    exit_code = 2
    http_status = 404


class RunErased(RunNotFound):
    code = "run.erased"


class CheckpointPinned(EverstepError):
    code = "run.pinned"
    exit_code = 2
    http_status = 409


class LeaseConflict(EverstepError):
    code = "DAG-CKPT-007"
    http_status = 409


class LeaseLost(LeaseConflict):
    code = "store.lease_lost"


class NoRoom(EverstepError):
    """A limit has no room now; `details` say of which key, and until when if that is known."""

    code = "limit.no_room"
    http_status = 409
    exit_code = 2


class KeyTaken(EverstepError):
    """Another unfinished run has the key of a start; `details` have the `key`, and its `run_id`."""

    code = "limit.key_taken"
    http_status = 409
    exit_code = 2


class StateCorrupted(EverstepError):
    code = "DAG-CKPT-008"


class IncompatibleVersion(EverstepError):
    code = "DAG-CKPT-009"


class BundleInvalid(EverstepError):
    code = "bundle.invalid"
    exit_code = 2
    http_status = 422


class RunTaken(EverstepError):
    code = "run.taken"
    exit_code = 2
    http_status = 409


class DurabilityOff(EverstepError):
    code = "durability.off"
    exit_code = 2
    http_status = 409


class FlowChanged(EverstepError):
    code = "run.flow_changed"
    exit_code = 2
    http_status = 409


class StoreError(EverstepError):
    code = "store.failed"
    http_status = 503


class StoreMissing(StoreError):
    """There is no store at that place yet."""


class SpoolLost(StoreError):
    code = "store.spool_lost"


class StoreUnavailable(StoreError):
    code = "store.unavailable"


class StoreNotWritable(StoreUnavailable):
    code = "store.not_writable"


def close_matches(name: str, known: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return what a name that is not known may have been meant to be, for the message of an error."""
    return difflib.get_close_matches(name, list(known), n, cutoff)


_OLD_NAMES = {"InputNeverCame": InputMissing, "NoTime": TimerUnset, "TwoTimes": TimerAmbiguous}
"""What 0.1 called these; until 0.3."""


def __getattr__(name: str) -> type[EverstepError]:
    if name in _OLD_NAMES:
        new = _OLD_NAMES[name]
        warnings.warn(f"everstep.errors.{name} is {new.__name__} now", DeprecationWarning, stacklevel=2)
        return new
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
