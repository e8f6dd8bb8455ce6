"""What goes over the wire besides the results of a host: pages of them, answers, and what bodies hold.

A body is converted into its struct, which checks it; the OpenAPI document is derived from all of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from everstep.client.audit import AuditInfo
from everstep.client.checkpoint_steps import StepLogInfo
from everstep.client.documents import readable
from everstep.client.guards import BreakerInfo, RunGuards
from everstep.client.projection import NodeInfo, RunAct, RunError, RunNodes
from everstep.client.views import RunInfo, RunResult, RunState, SignalInfo, WaitInfo, WorkerInfo
from everstep.model.acts import LONGEST_COMMENT, LONGEST_NAME
from everstep.model.enums import Status
from everstep.model.records import IdempotencyState
from everstep.model.shapes import LONGEST_TEXT, PRIORITIES, Count, Instant, Value
from everstep.model.waits import LONGEST_NAME as LONGEST_SIGNAL
from everstep.results import Event, Fallback, Untaken
from everstep.runtime.events import EventKind
from everstep.server.checks import EVENT_ID, RUN_ID


class Error(Struct, frozen=True, kw_only=True):
    """What went wrong, and what to do about it."""

    code: str
    message: str
    fix: str
    details: dict[str, Any]


class ShownRun(RunInfo, frozen=True, kw_only=True):
    """One run, with what it has spent and how its breakers stand, if its records can be read."""

    guards: RunGuards | UnsetType = UNSET


class Runs(Struct, frozen=True, kw_only=True):
    """A page of runs."""

    runs: list[RunInfo]
    next: str | None


class RunCounts(Struct, frozen=True, kw_only=True):
    """How many runs there are of each kind."""

    by: str
    """What tells them apart."""
    runs: dict[str, int]
    """By what they have; those without are under an empty text."""
    next: str | None
    """If not all runs were looked at: the `before` with which to count on."""


class Workers(Struct, frozen=True, kw_only=True):
    """The workers that are alive."""

    workers: list[WorkerInfo]


class UntakenRuns(Struct, frozen=True, kw_only=True):
    """Runs that no live worker will take."""

    runs: list[Untaken]


class Breakers(Struct, frozen=True, kw_only=True):
    """Breakers by name."""

    breakers: dict[str, BreakerInfo]


class AuditLog(Struct, frozen=True, kw_only=True):
    """A page of the audit log."""

    audit: list[AuditInfo]
    next: Count | None
    """The number of the last act, to go on from with `after`."""


class Waits(Struct, frozen=True, kw_only=True):
    """A page of waits."""

    waits: list[WaitInfo]
    next: str | None


class Inbox(Struct, frozen=True, kw_only=True):
    """A page of signals that a run has not taken."""

    signals: list[SignalInfo]
    next: Count | None
    """The number of the last one, to go on from."""


class Events(Struct, frozen=True, kw_only=True):
    """A page of events."""

    events: list[Event]
    next: str | None
    """The id of the last one, to go on from."""
    ended: bool


class StreamedEvent(Struct, frozen=True, kw_only=True):
    """One event of a stream."""

    id: Annotated[str, Meta(pattern=f"^({EVENT_ID})$")]
    event: EventKind
    data: Annotated[
        str,
        Meta(
            extra_json_schema={
                "contentMediaType": "application/json",
                "contentSchema": {"$ref": "#/components/schemas/Event"},
            }
        ),
    ]


class ShownNode(NodeInfo, frozen=True, kw_only=True):
    """One node of a run; a traceback, which shows code, stays with the service."""

    error: RunError | None  # type: ignore[assignment]

    @classmethod
    def of(cls, node: NodeInfo) -> ShownNode:
        """Describe a node."""
        return cls(**{**asdict(node), "error": RunError.of(node.error)})


class Logs(Struct, frozen=True, kw_only=True):
    """What the nodes of a run logged and printed, by step and attempt."""

    logs: list[StepLogInfo]


class Nodes(Struct, frozen=True, kw_only=True):
    """A run at a glance: its nodes in order, those inside a flow below it, and who did what."""

    run_id: str
    sequence: Count
    nodes: list[ShownNode]
    acts: list[RunAct]
    guards: RunGuards

    @classmethod
    def of(cls, found: RunNodes) -> Nodes:
        """Describe a run."""
        return cls(**{**asdict(found), "nodes": [ShownNode.of(node) for node in found.nodes]})


class State(Struct, frozen=True, kw_only=True):
    """The values of a run at one checkpoint, and where it stood."""

    run_id: str
    sequence: Count
    status: Status
    values: dict[str, Value]
    pending: list[str]
    idempotency: IdempotencyState
    guards: RunGuards
    error: RunError | None

    @classmethod
    def of(cls, state: RunState) -> State:
        """Read the values of a state."""
        return cls(
            run_id=state.run_id,
            sequence=state.sequence,
            status=state.status,
            values=readable(state),
            pending=list(state.frontier.pending),
            idempotency=state.idempotency,
            guards=state.guards,
            error=RunError.of(state.error),
        )


class Result(Struct, frozen=True, kw_only=True):
    """What a run came to."""

    run_id: str
    status: Status
    result: dict[str, Value]
    channel: dict[str, Value] | UnsetType
    """What is in the run's channel, if anything is; of a pipeline that is its result."""
    error: RunError | None
    spooled: Count
    fallback: Fallback | UnsetType
    """How a damaged run went on, if it was one."""

    @classmethod
    def of(cls, result: RunResult) -> Result:
        """Read the values of a result."""
        has_channel = not result.is_pipeline and bool(result.channel)
        return cls(
            run_id=result.run_id,
            status=result.status,
            result=readable(result),
            channel=readable(result.channel) if has_channel else UNSET,
            error=RunError.of(result.error),
            spooled=result.spooled,
            fallback=UNSET if result.fallback is None else result.fallback,
        )


class Turn(Result, frozen=True, kw_only=True):
    """What a run came to in a turn, and what it waits for now."""

    waits: list[WaitInfo]

    @classmethod
    def of(cls, result: RunResult) -> Turn:
        """Read the values of a result."""
        return cls(**asdict(Result.of(result)), waits=result.waits)


class Halted(Struct, frozen=True, kw_only=True):
    """What a run waits for."""

    halted: bool
    run_id: str
    waits: list[WaitInfo]
    fallback: Fallback | UnsetType = UNSET


class Cancelled(Struct, frozen=True, kw_only=True):
    """Where a run stands that was cancelled."""

    run_id: str
    status: Status


class Settled(Struct, frozen=True, kw_only=True):
    """An answer was taken."""

    status: Literal["settled"] = "settled"
    settled_at: Instant | None


class Health(Struct, frozen=True, kw_only=True):
    """The service answers."""

    status: Literal["ok"] = "ok"


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether the service can serve requests."""

    status: Literal["ready", "not ready"]
    reason: str | None = None
    """`stopping`, `store.slow`, or the code of what the store failed with. A service that is ready says
    `tokens.stale` if its file of tokens cannot be used as it is now, and counts as it was before."""


_TURNING = "\\u202a-\\u202e\\u2066-\\u2069"
_NAME = f"^[^\\u0000-\\u001f\\u007f-\\u009f{_TURNING}]{{0,{LONGEST_NAME}}}$"
_COMMENT = f"^[^\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f{_TURNING}]{{0,{LONGEST_COMMENT}}}$"

_GROUP = f"^[^\\u0000]{{1,{LONGEST_TEXT}}}$"


class Signed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that says who sends it, and why."""

    # What a name and a comment may hold is checked where every call checks it, in better words.
    by: Annotated[str, Meta(extra_json_schema={"pattern": _NAME})] | None = None
    comment: Annotated[str, Meta(extra_json_schema={"pattern": _COMMENT})] | None = None


class Start(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to be accepted."""

    flow: Annotated[str, Meta(min_length=1)]
    inputs: dict[str, Any] | None = None
    run_id: (
        Annotated[str, Meta(pattern=rf"\A({RUN_ID})\Z", extra_json_schema={"pattern": f"^({RUN_ID})$"})]
        | None
    ) = None
    channel: dict[str, Any] | None = None
    priority: Annotated[int, Meta(ge=PRIORITIES.start, le=PRIORITIES.stop - 1)] = 0
    group: Annotated[str, Meta(extra_json_schema={"pattern": _GROUP})] | None = None
    tags: list[str] | dict[str, str] = []
    """What the run is called by: names, or names and values."""
    attributes: dict[str, str | bool | int | float] = {}
    """What it is found by; only its nodes change them."""


class Tags(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tags that a run gets, and those that it loses."""

    add: list[str] | dict[str, str] = []
    """Names, or names and values."""
    remove: list[str] = []


class Resume(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run goes on."""

    start: str | None = None
    """The node to begin at, whatever was due."""
    fallback: bool = False
    """Go on from the newest valid checkpoint if the newest are damaged."""


class Pin(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a run is kept."""

    reason: Annotated[
        str,
        Meta(
            max_length=LONGEST_TEXT,
            extra_json_schema={"pattern": f"^[^\\u0000]{{0,{LONGEST_TEXT - 1}}}[^\\s\\u0000]$"},
        ),
    ] = "pinned on request"


LONGEST_TTL = 10 * 365 * 24 * 3600


class Send(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal to be sent."""

    name: Annotated[str, Meta(min_length=1, max_length=LONGEST_SIGNAL)]
    value: Any = None
    id: Annotated[str, Meta(min_length=1, max_length=LONGEST_SIGNAL)] | None = None
    """The same one is the same signal for as long as the run is there."""
    drive: bool = False
    """Drive the run to its next wait or its end; a name that is the path of a wait answers that one."""


class Publish(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event to be published."""

    value: Any = None
    id: Annotated[str, Meta(min_length=1, max_length=LONGEST_SIGNAL)] | None = None
    """No node of a run has an event of the same one twice."""
    keep_seconds: Annotated[float, Meta(ge=0.001, le=366 * 86400)] | None = None
    """For how long waits that open later find it."""


class Reissue(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a new token is to be."""

    ttl_seconds: Annotated[float, Meta(ge=1, le=LONGEST_TTL)] | None = None
    single_use: bool = True
    metadata: dict[str, Any] | None = None
