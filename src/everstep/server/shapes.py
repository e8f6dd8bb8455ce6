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
from everstep.client.looking.drawing import FlowDrawing
from everstep.client.projection import NodeInfo, RunAct, RunError, RunNodes
from everstep.client.views import (
    NoticeInfo,
    PauseInfo,
    RunInfo,
    RunResult,
    RunState,
    SignalInfo,
    WaitInfo,
    WorkerInfo,
)
from everstep.graph.labels import LABEL_NAME
from everstep.model.acts import LONGEST_COMMENT, LONGEST_NAME, UNSEEN, UNSEEN_IN_NAMES
from everstep.model.enums import Status
from everstep.model.records import IdempotencyState
from everstep.model.shapes import LONGEST_QUERY, LONGEST_TEXT, PRIORITIES, SPEEDS, Count, Instant, Value
from everstep.model.waits import LONGEST_NAME as LONGEST_SIGNAL
from everstep.results import BulkProgress, Event, Fallback, FlowInfo, LimitInfo, ScheduleInfo, Untaken
from everstep.runtime.events import EventKind
from everstep.server.access.roles import Role
from everstep.server.checks import CHANGE_ID, EVENT_ID, RUN_ID


class Error(Struct, frozen=True, kw_only=True):
    """What went wrong, and what to do about it."""

    code: str
    message: str
    fix: str
    details: dict[str, Any]


class Driver(Struct, frozen=True, kw_only=True):
    """A worker that drives a run."""

    host: str
    pid: Count
    since: Instant


class ShownRun(RunInfo, frozen=True, kw_only=True):
    """One run, with what it has spent and how its breakers stand, if its records can be read."""

    guards: RunGuards | UnsetType = UNSET
    begins_at: Instant | UnsetType = UNSET
    """When it begins, if it was to begin later and has not."""
    ends_at: Instant | UnsetType = UNSET
    """Its deadline, if it has one and has not ended."""
    bulk: BulkProgress | UnsetType = UNSET
    """Of a run that acts on many runs: how far it has come."""
    driver: Driver | UnsetType = UNSET
    """The worker that drives it, if one does."""


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


class ShownFlow(FlowInfo, frozen=True, kw_only=True):
    """A flow, its runs, and whether the service has its code."""

    is_loaded: bool


class Flows(Struct, frozen=True, kw_only=True):
    """The flows of a store and of the service, by name."""

    flows: list[ShownFlow]


class OneFlow(ShownFlow, frozen=True, kw_only=True):
    """One flow: its drawing, and what is found out from its code, if the service has that."""

    drawing: FlowDrawing | None
    """Of the flow that the service has, else of its newest run; none if there are no runs."""
    report: dict[str, Any] | None
    """What `everstep report --json` says."""
    findings: dict[str, Any] | None
    """What `everstep validate --json` says of it."""
    asks: str | None
    """If the service has no code of it: the command that starts one that has."""


class Breakers(Struct, frozen=True, kw_only=True):
    """Breakers by name."""

    breakers: dict[str, BreakerInfo]


class Pauses(Struct, frozen=True, kw_only=True):
    """What is paused."""

    pauses: list[PauseInfo]
    """Flows and groups first, then runs, the newest first."""


class Limits(Struct, frozen=True, kw_only=True):
    """What limits hold back."""

    limits: list[LimitInfo]
    """By key, those for which most runs wait first."""


class Unpaused(Struct, frozen=True, kw_only=True):
    """Whether something was let go on."""

    unpaused: bool
    """False if it was not paused."""


class AuditLog(Struct, frozen=True, kw_only=True):
    """A page of the audit log."""

    audit: list[AuditInfo]
    next: Count | None
    """The number of the last act, to go on from with `after`."""


class NoticeList(Struct, frozen=True, kw_only=True):
    """A page of notices."""

    notices: list[NoticeInfo]
    next: Count | None
    """The number of the last notice, to go on from with `before`."""


class NoticesAgain(Struct, frozen=True, kw_only=True):
    """How many dead letters are to be sent once more."""

    again: Count


class ScheduleList(Struct, frozen=True, kw_only=True):
    """A page of schedules."""

    schedules: list[ScheduleInfo]
    next: str | None


class Times(Struct, frozen=True, kw_only=True):
    """The next times of a schedule."""

    times: list[Instant]


class AskedRun(Struct, frozen=True, kw_only=True):
    """A run that a schedule was asked for."""

    run_id: str
    """What it will be called once a worker has started it."""


class DeletedSchedule(Struct, frozen=True, kw_only=True):
    """Whether a schedule is gone."""

    deleted: bool
    """False if a worker is at it at this moment: ask again."""


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


class StreamedChanges(Struct, frozen=True, kw_only=True):
    """One message of a stream of changes."""

    id: Annotated[str, Meta(pattern=f"^({CHANGE_ID})$")]
    event: Literal["ready", "runs", "refetch", "trouble"]
    data: Annotated[
        str,
        Meta(
            extra_json_schema={
                "contentMediaType": "application/json",
                "contentSchema": {"$ref": "#/components/schemas/Changes"},
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
    left_out: Count
    """Checkpoints before those that were read: of them it is only known how often nodes were visited."""

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
    paused: bool = False
    """True if it was let go of because it, its flow or its group is paused."""
    fallback: Fallback | UnsetType = UNSET


class Cancelled(Struct, frozen=True, kw_only=True):
    """Where a run stands that was cancelled."""

    run_id: str
    status: Status


class Undone(Struct, frozen=True, kw_only=True):
    """Where a run stands that is to undo what it did."""

    run_id: str
    status: Status
    undoing: str | None
    """`undoing` once it has begun; none until who has its code does."""


class Settled(Struct, frozen=True, kw_only=True):
    """An answer was taken. It is still open where others have to approve, too."""

    status: Literal["settled", "open"] = "settled"
    settled_at: Instant | None


class Me(Struct, frozen=True, kw_only=True):
    """Who asks, and what they may do."""

    name: str
    """Empty where the credential belongs to no name."""
    role: Role
    acts: bool
    """False if it may only look, whatever its role."""
    flows: list[str] | None
    """The flows whose runs it sees; none for all."""
    tags: list[str] | None
    """Of those, only runs with one of these tags; none for all."""
    release: str
    """The version of everstep that answers."""
    acts_as: str
    """What to send as `Everstep-By` where there is no name; empty if that was not said."""
    can_log_out: bool
    """True for a browser that has logged in."""


class Health(Struct, frozen=True, kw_only=True):
    """The service answers."""

    status: Literal["ok"] = "ok"


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether the service can serve requests."""

    status: Literal["ready", "not ready"]
    reason: str | None = None
    """`stopping`, `store.slow`, or the code of what the store failed with. A service that is ready says
    `tokens.stale` if its file of tokens cannot be used as it is now, and counts as it was before."""


_NAME = f"^[^\\u0000-\\u001f\\u007f-\\u009f{UNSEEN_IN_NAMES}]{{0,{LONGEST_NAME}}}$"
_COMMENT = f"^[^\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f{UNSEEN}]{{0,{LONGEST_COMMENT}}}$"

_GROUP = f"^[^\\u0000]{{1,{LONGEST_TEXT}}}$"


class Signed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that says who sends it, and why."""

    # What a name and a comment may hold is checked where every call checks it, in better words.
    by: Annotated[str, Meta(extra_json_schema={"pattern": _NAME})] | None = None
    comment: Annotated[str, Meta(extra_json_schema={"pattern": _COMMENT})] | None = None


_Time = Annotated[str, Meta(min_length=1, max_length=64)]
_SpanOfTime = Annotated[str, Meta(min_length=1, max_length=100)] | Annotated[float, Meta(ge=0)]


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
    at: _Time | None = None
    """When it begins, with a time zone; at once if that has gone by."""
    after: _SpanOfTime | None = None
    """How long from now it begins instead: "2h", or seconds."""
    deadline: _SpanOfTime | None = None
    """When it is ended if it has not ended by itself: a time, or a span from when it begins."""


_Label = Annotated[str, Meta(extra_json_schema={"pattern": f"^{LABEL_NAME.pattern}$"})]
_Reason = Annotated[
    str,
    Meta(
        max_length=LONGEST_TEXT,
        extra_json_schema={"pattern": f"^[^\\u0000]{{0,{LONGEST_TEXT - 1}}}[^\\s\\u0000]$"},
    ),
]


class PausesLane(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flow, a group of it, or with `group` alone that group of every flow."""

    flow: Annotated[str, Meta(extra_json_schema={"pattern": _GROUP})] | None = None
    group: Annotated[str, Meta(extra_json_schema={"pattern": _GROUP})] | None = None


class Tags(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tags that a run gets, and those that it loses."""

    add: list[_Label] | dict[str, str] = []
    """Names, or names and values."""
    remove: list[_Label] = []


class Bulk(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One act on all runs that a query asks for."""

    act: Literal["cancel", "resume", "retry", "fork", "pause", "unpause", "tag", "pin", "unpin", "erase"]
    where: Annotated[str, Meta(extra_json_schema={"pattern": "\\S", "maxLength": LONGEST_QUERY})]
    dry_run: bool = False
    """Only say what would be done."""
    sample: Annotated[int, Meta(ge=1, le=1000)] = 20
    """Runs that a dry run shows."""
    at_most: Annotated[int, Meta(ge=1)] | None = None
    """Stop after so many runs."""
    per_second: Annotated[float, Meta(ge=SPEEDS[0], le=SPEEDS[1])] | None = None
    """Act on no more runs a second."""
    add: list[_Label] | dict[str, str] = []
    """Tags that `tag` adds: names, or names and values."""
    remove: list[_Label] = []
    """Tags that `tag` takes away."""
    reason: _Reason | None = None
    """Why `pin` keeps runs."""
    at: Annotated[int, Meta(ge=1)] | None = None
    """The checkpoint that `fork` goes on from; by default the newest of each run."""
    inputs: dict[str, Any] | None = None
    """Inputs that `fork` edits."""
    state: dict[str, Any] | None = None
    channel: dict[str, Any] | None = None
    keep_keys: bool = False

    def options(self) -> dict[str, Any]:
        """Return how it is done, as a host takes it; what was not said is left out."""
        names = ("at_most", "per_second", "add", "remove", "reason", "at", "inputs", "state", "channel")
        said = {name: getattr(self, name) for name in (*names, "keep_keys")}
        return {name: value for name, value in said.items() if value or value == ""}


class ChangeSchedule(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a schedule is to say; what is left out stays as it is, or as it is by default."""

    cron: Annotated[str, Meta(min_length=1)] | None = None
    every: Annotated[str, Meta(min_length=1)] | None = None
    """A span: 15m, 2h, 1d."""
    zone: Annotated[str, Meta(min_length=1)] | None = None
    inputs: dict[str, Any] | None = None
    time_input: Annotated[str, Meta(min_length=1)] | None = None
    """The input that gets the scheduled time."""
    overlap: Literal["skip", "queue", "replace", "allow"] | None = None
    catch_up: Annotated[str, Meta(min_length=1)] | None = None
    """So late a time is still started."""
    jitter: Annotated[str, Meta(min_length=1)] | None = None
    priority: Annotated[int, Meta(ge=PRIORITIES.start, le=PRIORITIES.stop - 1)] | None = None
    group: Annotated[str, Meta(extra_json_schema={"pattern": _GROUP})] | None = None
    tags: list[_Label] | dict[str, str] | None = None

    def said(self) -> dict[str, Any]:
        """Return it as a host takes it, without who says it."""
        return {name: getattr(self, name) for name in _OF_SCHEDULE}


_OF_SCHEDULE = tuple(
    name for name in ChangeSchedule.__struct_fields__ if name not in Signed.__struct_fields__
)


class MakeSchedule(ChangeSchedule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule to be made: of a flow, with a cron expression or an interval."""

    flow: Annotated[str, Meta(min_length=1)]
    id: Annotated[str, Meta(pattern=rf"\A({RUN_ID})\Z", extra_json_schema={"pattern": f"^({RUN_ID})$"})]


class RunSchedule(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that a schedule is asked for."""

    id: Annotated[str, Meta(min_length=1, max_length=LONGEST_SIGNAL)] | None = None
    """The same one is the same run."""


class Fill(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Between which moments times gone by are run."""

    since: Annotated[str, Meta(min_length=1)]
    until: Annotated[str, Meta(min_length=1)] = "now"
    at_most: Annotated[int, Meta(ge=1, le=10_000)] = 100
    at_once: Annotated[int, Meta(ge=1, le=1000)] = 1


class Fork(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where a run is forked, and what the fork changes."""

    at: int | Annotated[str, Meta(min_length=1)] | None = None
    """A checkpoint's number or id; by default the newest."""
    inputs: dict[str, Any] = {}
    """Inputs that are edited."""
    state: dict[str, Any] = {}
    """Values that are edited, by their names."""
    channel: dict[str, Any] = {}
    """Entries of the channel that are edited."""
    fork_id: (
        Annotated[str, Meta(pattern=rf"\A({RUN_ID})\Z", extra_json_schema={"pattern": f"^({RUN_ID})$"})]
        | None
    ) = None
    """What the fork is called."""
    keep_keys: bool = False
    """Use the idempotency keys of the original run again."""
    choose_again: bool = False
    """Ask the gates whose choice is still to be acted on."""


class Resume(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run goes on."""

    start: str | None = None
    """The node to begin at, whatever was due."""
    fallback: bool = False
    """Go on from the newest valid checkpoint if the newest are damaged."""
    drive: bool = True
    """False to leave it to the workers, and answer at once."""
    deadline: _SpanOfTime | None = None
    """When it is ended if it has not ended by itself: a time, or a span from now. If it is reopened, it has
    no other."""


class Pin(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a run is kept."""

    reason: _Reason = "pinned on request"


LONGEST_TTL = 10 * 365 * 24 * 3600


class Send(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal to be sent."""

    name: Annotated[str, Meta(min_length=1, max_length=LONGEST_SIGNAL)]
    value: Any = None
    id: Annotated[str, Meta(min_length=1, max_length=LONGEST_SIGNAL)] | None = None
    """The same one is the same signal for as long as the run is there."""
    drive: bool = False
    """Drive the run to its next wait or its end; a name that is the path of a wait answers that one."""


class Drop(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal to be taken out of an inbox unread."""

    id: Annotated[str, Meta(min_length=1, max_length=LONGEST_SIGNAL)]


class Publish(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event to be published."""

    value: Any = None
    id: Annotated[str, Meta(min_length=1, max_length=LONGEST_SIGNAL)] | None = None
    """No node of a run has an event of the same one twice."""
    keep_seconds: Annotated[float, Meta(ge=0.001, le=366 * 86400)] | None = None
    """For how long waits that open later find it."""


class Settle(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of an effect that was begun and never reported, or of an undo: one of these."""

    step: Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT)]
    """The node, as its wait names it."""
    done: Any = UNSET
    """It happened: what the node would have returned."""
    rerun: bool = False
    """It did not: the node is called again, with its key."""
    skip: Annotated[str, Meta(max_length=LONGEST_COMMENT)] = ""
    """Why what an undo was to undo is left as it is."""


class Reissue(Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a new token is to be."""

    ttl_seconds: Annotated[float, Meta(ge=1, le=LONGEST_TTL)] | None = None
    single_use: bool = True
    metadata: dict[str, Any] | None = None
