"""The right to drive a run for a while, the workers that have it, and what keeps all from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from everstep.model.acts import Act, split_act, with_act
from everstep.model.shapes import understood

RELEASE = "0.2.0.dev0"
"""Which everstep this is, as workers say it: the layers below `everstep` cannot ask that for its version."""
SKEW = 1.0
"""Seconds between the clocks of a machine and of a store from which on it is reported."""


class Process(msgspec.Struct, frozen=True):
    """Which process holds a lease, told apart from any other that ever had its pid."""

    boot_id: str
    pid_namespace: str
    pid: int
    started: int
    """Start time in clock ticks since boot, as the kernel counts it."""
    until: float | None = None
    """When the lease that it holds ends, in seconds since boot, a clock that cannot be set. None if the store
    has a clock of its own, or the owner is of a version that noted none."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """One owner's right to write to a run. Every takeover raises the epoch, which every put names."""

    run_id: str
    owner: str
    epoch: int
    expires_at: datetime
    process: Process | None = None
    takeovers: int = 0
    """How many owners in a row, this one included, began without progress since the one before.

    Those whose process drove other runs too count up to two, as any of these may have been the reason."""


class KeyLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs of a key may be driven at once, and how many may start in a while."""

    name: str
    running: int | None = None
    starts: int | None = None
    """So many first claims within `span`; of a supplier, so much weight of calls."""
    span: timedelta = timedelta()
    alone: bool = False
    """Only one run of a key may have begun and not ended: it holds a place until then, halted or not."""


ALONE = "@"
"""What the name of a key begins with of which one run is unfinished at a time."""


class KeyState(msgspec.Struct, array_like=True):
    """What is kept of one key of a limit."""

    log: list[tuple[int, int]] = []
    """When something began that counts, in microseconds since 1970, and what it counts; the oldest first."""
    holders: dict[str, tuple[int, int]] = {}
    """Calls that hold a place: until when, and what they count. Of a key that one run has at a
    time, that run."""
    closed_until: int = 0
    """Until when nothing may begin, as who limits it asked for."""
    span: int = 0
    """In how many microseconds what is in the log counts, as who wrote it last has it."""

    @classmethod
    def of(cls, body: bytes | None) -> KeyState:
        """Read what a store keeps."""
        return cls() if body is None else msgspec.msgpack.decode(body, type=cls)

    def body(self) -> bytes | None:
        """Return what a store is to keep; nothing if there is nothing to know."""
        return msgspec.msgpack.encode(self) if self.log or self.holders or self.closed_until else None


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """A run that was written down for a key of which one run is unfinished at a time."""

    run_id: str
    at: int
    """When, in microseconds since 1970."""
    since: int = 0
    """When the first start was that this one stands for; 0 if that is this one."""


def slots_of(body: bytes | None) -> list[Slot]:
    """Read what is kept of the runs of a key."""
    return [] if body is None else msgspec.msgpack.decode(body, type=list[Slot])


def slots_body(slots: Sequence[Slot]) -> bytes:
    """Return what a store is to keep of the runs of a key."""
    return msgspec.msgpack.encode(slots)


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs of a flow may be driven at once, by all workers together."""

    running: int | None = None
    """Of the flow."""
    per_group: int | None = None
    """Of each of its groups; runs without a group are not counted."""
    paused: tuple[str, ...] = ()
    """Groups of which none is claimed."""
    limits: tuple[KeyLimit, ...] = ()
    """What the keys that a run's group consists of allow: see `keys_in`."""


def group_of(keys: Iterable[tuple[str, str]]) -> str:
    """Return the group of a run whose limits have these keys: `customer=acme,tenant=eu`.

    So all runs of a group have the same keys, and take turns with those of all other keys.
    """
    return ",".join(f"{name}={_quoted(value)}" for name, value in keys)


def keys_in(group: str) -> dict[str, str]:
    """Return the keys that a group consists of, by the names of their limits, each as `NAME=VALUE`."""
    return {part.partition("=")[0]: part for part in group.split(",") if "=" in part}


def _quoted(value: str) -> str:
    """Return a value so that it ends where it ends, and `%` stays what it is."""
    return value.replace("%", "%25").replace(",", "%2C")


class Driven(msgspec.Struct, frozen=True, kw_only=True):
    """One run that a worker drives."""

    run_id: str
    flow_id: str
    since: datetime


class Taken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version of a flow whose runs a worker takes."""

    flow_id: str
    flow_hash: str
    flow_version: str = ""
    """Empty for an older version, whose runs go over to the one that the worker has."""
    limits: tuple[KeyLimit, ...] = ()
    """By which it claims its runs."""


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself."""

    worker_id: str
    host: str
    """The name of its machine."""
    pid: int
    flows: tuple[str, ...]
    concurrency: int
    """How many runs it drives at once at most."""
    started_at: datetime
    driving: int = 0
    """How many it drives."""
    longest: tuple[Driven, ...] = ()
    """Those that it has driven for the longest, the oldest first; at most 100."""
    is_stopping: bool = False
    """It claims nothing more."""
    is_slowed: bool = False
    """It claims less than it could, as the store is slow."""
    process: Process | None = None
    skew_seconds: float = 0.0
    """How far the store's clock is ahead of its machine's; 0 if the store has none."""
    seen_at: datetime | None = None
    """When it last said so, by the store's clock. The store fills it in."""
    release: str = ""
    """The version of everstep; empty for 0.1.0, which says none."""
    records: int = 1
    """The newest version of records that it reads."""
    takes: tuple[Taken, ...] = ()
    """The versions of its flows whose runs it takes; 0.1.0 says none."""
    cleans: bool = False
    """It cleans up from time to time, if it is the longest serving of those that do."""


PAUSED = "paused: since "
"""What the mark of a paused run begins with. Workers of every release leave a run with a mark alone."""


def is_pause(mark: str | None) -> bool:
    """True if a run with this mark is paused, and not damaged or brought here."""
    return mark is not None and mark.startswith(PAUSED)


class Pause(msgspec.Struct, frozen=True):
    """Since when something is paused, and who wanted that."""

    since: datetime
    act: Act | None = None

    def mark(self) -> str:
        """Return what the row of a run says of it."""
        return with_act(f"{PAUSED}{self.since.isoformat()}", self.act)


class LanePause(msgspec.Struct, frozen=True, kw_only=True):
    """A flow, a group of it, or a group of every flow, of which nothing starts."""

    flow_id: str = ""
    """Empty for every flow; then it has a group."""
    group: str = ""
    """Empty for the flow as a whole."""
    since: datetime
    note: bytes | None = None
    """Who wanted that, as JSON."""

    def holds(self, flow_id: str, group: str | None) -> bool:
        """True if this keeps runs of a flow and group from going on."""
        return self.flow_id in ("", flow_id) and self.group in ("", group or "")

    def mark(self) -> str:
        """Return what a run that it keeps from going on is told."""
        return self.pause.mark()

    @property
    def pause(self) -> Pause:
        """Since when, and who wanted that."""
        return Pause(
            self.since, None if self.note is None else msgspec.json.decode(self.note, type=understood(Act))
        )

    @property
    def name(self) -> str:
        """The flow and the group, as the audit log has them."""
        return f"{self.flow_id or '*'}/{self.group}" if self.group else self.flow_id

    @property
    def option(self) -> str:
        """How the command line names it."""
        flow, group = f"--flow {self.flow_id}" if self.flow_id else "", f"--group {self.group}"
        return f"{flow} {group}".strip() if self.group else flow

    @property
    def text(self) -> str:
        """What is paused, in words."""
        if not self.flow_id:
            return f"group {self.group!r}"
        return f"flow {self.flow_id!r}" + (f", group {self.group!r}" if self.group else "")


class Held(msgspec.Struct, frozen=True):
    """What a process finds paused of what concerns it."""

    runs: Mapping[str, str] = {}
    """The marks of those runs that were asked about and are paused."""
    lanes: tuple[LanePause, ...] = ()
    """Every flow and group that is paused."""


NOTHING_HELD = Held()


def pause_of(mark: str | None) -> Pause | None:
    """Return since when a run with this mark is paused, and who wanted that; none if it is not."""
    if mark is None or not mark.startswith(PAUSED):
        return None
    text, act = split_act(mark)
    try:
        return Pause(datetime.fromisoformat(text.removeprefix(PAUSED)), act)
    except ValueError:
        return None


def lane_of(lanes: Iterable[LanePause], flow_id: str, group: str | None) -> LanePause | None:
    """Return what keeps runs of a flow and group from going on, if anything does."""
    return next((lane for lane in lanes if lane.holds(flow_id, group)), None)
