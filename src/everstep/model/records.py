"""The record: one commit of a run, and what it is made of.

A delta stores its steps only. A keyframe also stores the folded state, so a resume reads from the newest
keyframe on. Fields that are left empty are filled in by the fold. What a run has many of is stored under
names of one letter, which stay what they are; version 1 stored every field under its own name.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Self

import msgspec

from everstep.model.acts import Act
from everstep.model.enums import Status, Trigger, ValueForm
from everstep.model.ledger import Guarded, Ledger
from everstep.model.shapes import HIDDEN
from everstep.model.waits import WaitOpened

SCHEMA_VERSION = 2

INPUTS = "@inputs"
"""The path of the pseudo-step that writes a run's inputs."""

FORK = "@fork"
"""The path of the pseudo-step that begins a fork: its writes are what was edited.

A fork is made without folding the chain, so these writes have version 0: the one after the newest. Its key is
the run whose id goes into idempotency keys from here on; none leaves them as they were."""

INBOX = "@inbox"
"""The path of the pseudo-step that takes signals into values of the flow: its writes are what they became."""

WAIT = "@wait/"
"""What the names of a wait's request begin with: `@wait/ID/request`."""

STREAM = "@stream/"
"""What the names of a stream's chunks begin with while it is under way: `@stream/ID/chunks`."""

UNIT = "@unit/"
"""What the names of what durable calls gave begin with while their node is under way:
`@unit/agent@2/$search@1`."""

UNDONE_BY = "$undo"
"""What the step of a durable call names what its undo is given."""

RESULT = "$"
"""What the step of a durable call names its result; the last segment of its path begins with it, too."""

WAITED = b"wait"
"""What the step of an answer that is taken inside a node has in place of a digest of arguments."""

STARTS = "$start-"
"""What the name of a durable call begins with that starts a run."""

STARTED = b"s"
"""What a digest of the inputs begins with of a step that has started a run: the run is its result."""

BY_CHANCE = frozenset({b"now", b"uuid", b"random"})
"""Likewise, what the steps have that give the time, an id or a random number: no two runs have the same."""

CHANNEL = "@channel/"
"""What the names of channel entries begin with among the writes of a step."""

ATTRIBUTE = "@attribute/"
"""What the names of a run's attributes begin with among the writes of a step: `@attribute/customer`."""

SPENT = "@spent"
"""The path of the pseudo-step that keeps what was spent outside of a recorded visit, as in an atomic flow.

Its decision names the node."""

GUARDS = "@guards"
"""The path of the pseudo-step that says which budgets hold, or how breakers stand."""

UNDO = "@undo"
"""The path of the pseudo-step with which a run begins to undo what it did.

Its decision is how the run ends: `failed` or `cancelled`; behind that `ask`, if a person is asked first."""

DEADLINE = "@deadline"
"""The path of the pseudo-step with which a run is given a deadline, as a wait for a time.

It is `failed` if the deadline ended the run, and `cancelled` if the run has ended otherwise."""

START = "@start"
"""The path of the pseudo-step that begins a flow of a run anew at a node, ignoring what was due in it.

With a wait it is the start of the run itself: `halted` until its time comes, then `completed`."""

UNDOING = "!undo"
"""The last segment of the path of a step that undoes another: `charge@2/!undo`."""

TRACE = "@trace"
"""What metadata of a record, and details of a wait, call what they say of the trace it was made in."""

OWNER = "@owner"
"""What metadata of the first record behind a takeover calls the process that goes on with the run."""

KEPT = "@kept/"
"""What the names begin with that say what of a run is not kept in its chain: `@kept/channel`."""


def unit_of(path: str) -> tuple[str, int, str] | None:
    """Return the node, the visit and the last segment of the path of a durable call; none of another path.

    `rag@2#7/agent`, 3 and `$search` for `rag@2#7/agent@3/$search`.
    """
    head, _, name = path.rpartition("/")
    if name[:1] != RESULT:
        return None
    around, slash, last = head.rpartition("/")
    node, mark, item = last.partition("#")
    if mark:
        item, _, visit = item.partition("@")
        return f"{around}{slash}{node}#{item}", int(visit or 1), name
    node, _, visit = node.partition("@")
    return around + slash + node, int(visit or 1), name


def visit_path(path: str, visit: int) -> str:
    """Return what the paths inside a visit begin with, less the slash: `agent@2`."""
    return f"{path}@{visit}" if visit > 1 else path


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A part of a record that is stored under names of one letter, or that holds such parts.

    A record refers to nothing that could refer to it, so the garbage collector need not look at any.
    """


def _short(names: str) -> dict[str, str]:
    return dict(name.split("=") for name in names.split())


Name = Annotated[str, msgspec.Meta(min_length=1)]
"""A path or a name; a record that is read has none that is empty."""


class ArtifactRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """Large bytes kept beside the record, named by their digest."""

    storage: str
    key: str
    size: int
    content_type: str
    checksum: str


class Written(
    Stored,
    frozen=True,
    omit_defaults=True,
    rename=_short("name=n version=v digest=d size=z form=f artifact=a source=s expires_at=x"),
):
    """One value a step wrote. Inline bytes travel beside the header, in the order of the writes."""

    name: Name
    version: int
    digest: bytes
    """SHA-256 of the serialized value, before codecs."""
    size: int
    form: ValueForm = ValueForm.WHOLE
    artifact: ArtifactRef | None = None
    source: str = ""
    """The name of a lifted value in the flow it comes from."""
    expires_at: datetime | None = None
    """When a channel's value is gone by itself."""

    @property
    def is_inline(self) -> bool:
        """True if its bytes travel with the record."""
        return self.artifact is None and self.form not in _WITHOUT_BYTES

    def has_expired(self, now: datetime) -> bool:
        """True if it was to be there for some time only, and that is over."""
        return self.expires_at is not None and self.expires_at <= now


_WITHOUT_BYTES = frozenset({ValueForm.TRANSIENT, ValueForm.LIFTED, ValueForm.DELETED})


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it is kept: what it was and what it said, never the live exception."""

    type: str
    message: str
    code: str = "node.failed"
    traceback: str = ""
    sealed: Annotated[bytes, HIDDEN] = b""
    """Where a record is encrypted: SHA-256 of message and traceback, which are kept behind the values."""


class QueuedTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A visit that a node asked for: which node, with which arguments, how urgent."""

    node: str
    number: int
    """Counts the tasks of a run; its arguments are kept as `@task/NUMBER/NAME`."""
    arguments: tuple[str, ...] = ()
    priority: int = 0
    strategy: str = "direct"
    asked_by: str = ""

    def at(self, node: str) -> Self:
        """Return the task with its node named otherwise."""
        return msgspec.structs.replace(self, node=node)


class StreamAt(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a stream has come: how much of it is kept, and where it goes on."""

    stream_id: str
    """Its chunks are kept as `@stream/ID/chunks`."""
    chunks: int
    cursor: str | None = None
    """The newest cursor that it yielded."""
    since: int = 0
    """Chunks that came after the cursor, or in all if there is none."""
    reads: dict[str, int] = {}
    """The version of each value that it streams from."""


class UnitFacts(
    Stored,
    frozen=True,
    omit_defaults=True,
    rename=_short("arguments=a is_brief=b is_fresh=f changed=c unasked=u behind=n asked=w"),
):
    """What a step says of durable calls: its own of one, or of those of its node."""

    arguments: bytes = b""
    """Of a call: a digest of the arguments that can be stored."""
    is_brief: bool = False
    """Of a call: true if its result counts in this attempt at its node only."""
    is_fresh: bool = False
    """Of a failed attempt at a node: true if the next one begins without the calls that are recorded."""
    changed: tuple[str, ...] = ()
    """Calls taken from the records though their arguments differ, such as `$search@1`; each is told once."""
    unasked: tuple[str, ...] = ()
    """Of a node's last step: recorded calls that the attempt which ended it did not ask for."""
    behind: str | None = None
    """Of a call made beside others: which one had ended last when it was asked for; empty if none had."""
    asked: float = 0.0
    """Of such a call: seconds from when its node first asked for one until it was asked for."""


class Undo(Stored, frozen=True, omit_defaults=True, rename=_short("by=b is_kept=k")):
    """What a step says of how it is undone, if its node declares that."""

    by: str = ""
    """The function that undoes it, as `module:name`."""
    is_kept: bool = False
    """Of a fork: true if it goes on for its parent, and is to undo what that did."""


class Undoable(
    Stored, frozen=True, omit_defaults=True, rename=_short("sequence=n path=p visit=v key=k by=b was=w")
):
    """A completed step or durable call that is undone if the run fails or is cancelled."""

    sequence: int
    """The checkpoint that holds the step; 0 until it is written."""
    path: str
    visit: int
    key: str | None = None
    by: str = ""
    was: str = ""
    """The path that the checkpoint has, if the node was renamed since."""

    @property
    def recorded(self) -> str:
        """The path that the checkpoint has."""
        return self.was or self.path

    @property
    def address(self) -> str:
        """What the path of the step that undoes it begins with, less the slash."""
        return visit_path(self.path, self.visit)


class UndoState(
    Stored,
    frozen=True,
    omit_defaults=True,
    rename=_short("stack=s ends=e error=x asks=a is_declined=c done=d skipped=k at=n"),
):
    """What a run has to undo, and how far it has come with that."""

    stack: tuple[Undoable, ...] = ()
    """In the order of the chain: the last one is undone first."""
    ends: str = ""
    """How the run ends once all is undone: `failed` or `cancelled`; empty until it begins to undo."""
    error: ErrorInfo | None = None
    """Why it failed."""
    asks: bool = False
    """True if a person is asked first."""
    is_declined: bool = False
    """True if that person said no."""
    done: int = 0
    skipped: int = 0
    at: "NodeState | None" = None
    """Where the step stands that undoes the last one of the stack."""


class UnitAt(
    Stored,
    frozen=True,
    omit_defaults=True,
    rename=_short("status=s attempts=a arguments=d is_brief=b error=x retry_at=y behind=n asked=w"),
):
    """How a durable call of a visit under way stands."""

    status: Status = Status.COMPLETED
    attempts: int = 1
    arguments: bytes = b""
    is_brief: bool = False
    error: ErrorInfo | None = None
    retry_at: datetime | None = None
    behind: str | None = None
    asked: float = 0.0

    def of_an_attempt_before(self) -> Self:
        """Return it without when it was asked for: that says nothing of another attempt."""
        return self if self.behind is None else msgspec.structs.replace(self, behind=None, asked=0.0)


class StepRecord(
    Stored,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    rename=_short(
        "path=p visit=v status=s attempts=a reads=r writes=w decision=d key=k error=x retry_at=y "
        "started_at=b ended_at=e items=i queued=q task=t goto=g ends=f wait=h stream=m outcome=o "
        "unknown=u spent=c guards=l again=n act=j unit=z undo=U"
    ),
):
    """One visit of the run to a node, or what is known of one under way.

    `running` announces an effect with its key before it is attempted, opens an inner flow, or keeps what a
    stream has yielded so far or what was spent; `retrying` is a
    failed attempt after which the node will be tried again; `halted` waits for an answer; `completed`,
    `failed` and `cancelled` end the visit. The path of a node inside another is `outer@2#7/inner`: visit 2 of
    `outer`, its item 7.
    """

    path: Name
    visit: int = 1
    status: Status = Status.COMPLETED
    attempts: int = 1
    reads: dict[str, int] = {}
    """The version of each value this visit consumed."""
    writes: tuple[Written, ...] = ()
    decision: tuple[str, ...] | None = None
    """The targets a gate chose; empty when its path ends here."""
    key: str | None = None
    error: ErrorInfo | None = None
    retry_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    items: int | None = None
    """How many items a map that opens here goes over."""
    queued: tuple[QueuedTask, ...] = ()
    """Visits it asked for."""
    task: int | None = None
    """The queued task that this visit answers."""
    goto: bool = False
    """True if only what it queued comes next, not what follows it in the flow."""
    ends: bool = False
    """True if it ended its flow."""
    wait: WaitOpened | None = None
    """What it waits for, if it halts."""
    stream: StreamAt | None = None
    """How far it has come, if it streams."""
    outcome: str = ""
    """How it ended in the words of its flow, if it said: `partial_success`, `iterate`."""
    unknown: bool = False
    """True if an announced effect failed without saying what it did to the world."""
    spent: dict[str, Decimal] | None = None
    """What was spent since the step before it of the same visit."""
    guards: Guarded | None = None
    """What it did to budgets and breakers."""
    again: dict[str, tuple[str, ...]] | None = None
    """Of a fork: the gates that choose again, by path, each with what it had chosen."""
    act: Act | None = None
    """Who gave the answer that it takes, and why."""
    unit: UnitFacts | None = None
    """What it says of durable calls, if it is one or its node made some."""
    undo: Undo | None = None
    """How it is undone, if its node declares that."""

    def whole_name(self, name: str) -> str:
        """Return the whole name of a value that this step reads or writes, as a run's state shows it."""
        if name[0] == "@" or self.path[0] == "@":
            return name
        head, slash, last = self.path.rpartition("/")
        if last[0] == RESULT:
            return f"{UNIT}{self.path}@{self.visit}" + ("" if name == RESULT else f"/{name}")
        return f"{self.path}/{name}" if "#" in last else head + slash + name


Mask = int | bytes
"""A bit mask. One that is larger than an integer of the format is kept as its bytes, the lowest first."""

_LARGEST_INT = (1 << 64) - 1


def packed_mask(mask: int) -> Mask:
    """Return a bit mask as a record keeps it."""
    return mask if mask <= _LARGEST_INT else mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def mask_in(kept: Mask) -> int:
    """Return the bit mask that a record keeps."""
    return kept if isinstance(kept, int) else int.from_bytes(kept, "little")


class NodeState(
    Stored,
    frozen=True,
    omit_defaults=True,
    rename=_short(
        "visits=v status=s attempts=a reads=r chosen=c retry_at=y key=k consumed=o is_due=d "
        "round=n arrived=e won=w lost=l has_fired=f winners=i begun=b wait=h since=g task=t "
        "stream=m units=u began_as=p"
    ),
):
    """Where a run stands with one node: the fold of its steps."""

    visits: int = 0
    status: Status | None = None
    attempts: int = 0
    """Failed attempts of the visit under way."""
    reads: dict[str, int] = {}
    chosen: int = 0
    """Choices of a gate that this node has not answered yet."""
    retry_at: datetime | None = None
    key: str | None = None
    """The key of the visit under way."""
    consumed: str | None = None
    """The key of the last finished visit."""
    is_due: bool = False
    """It should run: chosen, to be tried again, or an input is newer than the one it consumed."""
    round: int = 0
    """Which round of its loop it belongs to."""
    arrived: int = 0
    """Control edges along which it was reached since its last visit."""
    won: Mask = 0
    """Members of a join that succeeded, as a bit mask."""
    lost: Mask = 0
    """Members of a join that failed, as a bit mask."""
    has_fired: bool = False
    """True for a join that went on before all its members had settled."""
    winners: Mask = 0
    """Members that had succeeded when a join last went on, as a bit mask."""
    begun: bool = False
    """True if a call was recorded before it was made, and what became of it is not known."""
    wait: WaitOpened | None = None
    """What the visit under way waits for."""
    since: datetime | None = None
    """When that visit began."""
    task: int | None = None
    """The queued task that it answers."""
    stream: StreamAt | None = None
    """How far the stream of the visit under way has come."""
    units: dict[str, UnitAt] | None = None
    """The durable calls of the visit under way, such as `$search@1`."""
    began_as: str = ""
    """The path that their keys are made of, if the node was renamed since."""


class OpenedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One visit to an inner flow that is under way."""

    visit: int
    reads: dict[str, int] = {}
    items: int | None = None
    done: tuple[int, ...] = ()
    """The items that are completed."""
    failed: tuple[int, ...] = ()
    """The items whose failure was tolerated."""
    started_at: datetime | None = None
    task: int | None = None
    """The queued task that the visit answers."""
    begun: tuple[int, ...] = ()
    """Items that are atomic flows, can be undone and may have made effects, and have not ended."""


class ScopeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one open inner flow stands besides its nodes."""

    steps: int = 0
    ended: bool = False
    error: ErrorInfo | None = None


class FrontierEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    node_alias: str
    output_port: str
    cursor: str | None = None


class FlowFrontier(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a run stands: what is done, and what comes next."""

    completed: tuple[FrontierEntry, ...] = ()
    pending: tuple[str, ...] = ()


class IdempotencyState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Keys whose effect is recorded, and keys to use again on the next attempt."""

    consumed: dict[str, list[str]] = {}
    pending: dict[str, str] = {}


class Counters(msgspec.Struct, frozen=True, omit_defaults=True):
    steps: int = 0
    visits: dict[str, int] = {}
    retries: dict[str, int] = {}
    spent: dict[str, Decimal] = {}
    """What the run has spent, by name."""


class SerializedState(Stored, frozen=True, omit_defaults=True):
    """The folded state: the newest version of each value, and where each node stands."""

    values: tuple[Written, ...] = ()
    nodes: dict[str, NodeState] = {}
    error: ErrorInfo | None = None
    """Why the run fails, if a step has failed for good."""
    opened: dict[str, OpenedState] = {}
    """Visits to inner flows under way, by path."""
    scopes: dict[str, ScopeState] = {}
    """Inner flows that are open, by path."""
    tasks: tuple[QueuedTask, ...] = ()
    """Visits that were asked for and are still to come; `node` is the whole path here."""
    task_count: int = 0
    """How many tasks were ever queued."""
    has_ended: bool = False
    """True if a node ended the run."""
    key_run: str | None = None
    """The fork whose id goes into idempotency keys; none while those of the first run are used."""
    ledger: Ledger | None = None
    """What was spent, what may be spent, and how breakers stand."""
    undo: UndoState | None = None
    """What is undone if the run fails or is cancelled."""
    delay: WaitOpened | None = None
    """The wait for the time at which the run begins."""
    deadline: WaitOpened | None = None
    """The wait for the time at which it is ended."""

    @property
    def blobs(self) -> tuple[ArtifactRef, ...]:
        """The artifacts among the values."""
        return tuple(w.artifact for w in self.values if w.artifact is not None)


class CheckpointRecord(
    Stored,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    rename=_short(
        "checkpoint_id=i sequence=n base=b trigger=t created_at=c keyframe=k status=s steps=e "
        "error=x metadata=m resume_after=u ttl=l act=a run_id=r parent_run_id=p flow_id=f "
        "flow_version=v flow_hash=h frontier=y state=z idempotency=d counters=o"
    ),
):
    """One commit of a run."""

    version: int = SCHEMA_VERSION
    """Stored in the envelope around the header."""
    checkpoint_id: str = ""
    """Stored beside the record, and hashed into its digest."""
    sequence: int
    base: str | None = None
    """The checkpoint before this one, none only for the first of an unforked run.

    Stored only where it lies in another run; elsewhere it is the record before."""
    trigger: Trigger
    created_at: datetime
    keyframe: bool = False
    status: Status = Status.RUNNING
    """The run's status once this checkpoint is written."""
    steps: tuple[StepRecord, ...] = ()
    error: ErrorInfo | None = None
    metadata: dict[str, Any] | None = None
    resume_after: datetime | None = None
    """If the run halts with it: when the first of its waits is due."""
    ttl: timedelta | None = None
    act: Act | None = None
    """Who started, resumed, cancelled or forked the run with it, and why."""

    run_id: str = ""
    parent_run_id: str | None = None
    flow_id: str = ""
    flow_version: str = ""
    flow_hash: str = ""
    frontier: FlowFrontier | None = None
    """Of a keyframe of version 1; else the fold tells, from the state."""
    state: SerializedState | None = None
    idempotency: IdempotencyState | None = None
    """Likewise."""
    counters: Counters | None = None
    """Of a keyframe. From version 2 on only how many steps there were: the fold tells the others."""

    digest: str = ""
    """Covers the digest before it and this header; filled in when read, never inside the hashed bytes."""

    def writes(self) -> tuple[Written, ...]:
        """Every write of the record in payload order: those of the steps, then those of the state."""
        if len(self.steps) == 1:
            steps = self.steps[0].writes
        else:
            steps = tuple([w for step in self.steps for w in step.writes])
        return steps + self.state.values if self.state is not None else steps
