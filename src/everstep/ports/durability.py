"""The host services behind waits: who keeps the time, who makes tokens, who is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from everstep.model.enums import Mode
from everstep.model.waits import TokenConfig
from everstep.ports.store import CheckpointBlobStore, CheckpointStore


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule or a token leads back to: a run that halted at a checkpoint, and its wait."""

    run_id: str
    flow_id: str
    wait_id: str
    checkpoint_id: str = ""
    """The newest checkpoint of the run when this was made: the one that it halted with, if it has halted."""


class ScheduleState(StrEnum):
    PENDING = "pending"
    FIRED = "fired"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ScheduleStatus(msgspec.Struct, frozen=True):
    """Where a schedule stands; `at` is when it fires, or fired."""

    state: ScheduleState
    at: datetime | None = None


@runtime_checkable
class ResumeScheduler(Protocol):
    """Keeps due times. When one comes, the implementation calls `host.waiting.fire(handle.wait_id)`."""

    async def schedule_at(self, handle: Handle, at: datetime) -> str:
        """Keep a due time for a wait, in place of the one it had; returns the schedule's id."""

    async def schedule_after(self, handle: Handle, delay: timedelta) -> str:
        """Keep a due time from now on; `InvalidDelay` if it lies in the past."""

    async def cancel(self, schedule_id: str) -> None:
        """Forget a due time; `ScheduleNotFound` if there is none."""

    async def status(self, schedule_id: str) -> ScheduleStatus:
        """Say where a schedule stands; `ScheduleNotFound` if there is none."""


@runtime_checkable
class ResumeSignalSource(Protocol):
    """Makes the secrets with which outsiders answer waits."""

    async def create_token(self, handle: Handle, config: TokenConfig) -> str:
        """Return a new token for a wait; one that it had dies."""

    async def resolve_token(self, token: str) -> Handle:
        """Return what a token leads to; `TokenInvalid`, `TokenExpired` or `TokenUsed` if to nothing."""

    async def revoke_token(self, token: str) -> None:
        """Make a token worthless."""


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a notification of a wait, or of a run."""

    wait_id: str = ""
    """Empty if it is about a run as a whole."""
    run_id: str
    flow: str
    node: str = ""
    kind: str
    """That of the wait; "run" if it is about a run as a whole."""
    context: Any = None
    prompt: str = ""
    due_at: datetime | None = None
    token: str | None = None
    link: str | None = None
    """The page to answer at, if the host knows its own address."""
    id: str = ""
    """What a notice of a run, a reminder or an escalation is called, however often it is sent."""
    occasion: str = ""
    """What it tells of, such as "failed" or "reminder"; empty where a wait is told of for the first time."""
    at: datetime | None = None
    """When that was."""
    status: str = ""
    """That of the run by now."""
    error: str = ""
    """Why it failed or needs repair, as far as that may be shown."""
    run_link: str | None = None
    """The run in the console, if the host knows its own address."""

    @property
    def key(self) -> str:
        """What is the same each time it is sent: one may come more than once."""
        return self.id or self.wait_id

    def __repr__(self) -> str:
        if self.occasion:
            return f"<notice that run {self.run_id} is {self.occasion}>"
        return f"<notice of {self.kind} {self.node!r} of run {self.run_id}>"


Notifier = Callable[[Notice], Awaitable[None] | None]
"""Sends notifications of waits and runs. What it raises is logged, and the call is retried."""


class HostDurability(Protocol):
    """The services of a host, each of which it may lack."""

    @property
    def checkpoint_store(self) -> CheckpointStore | None: ...

    @property
    def resume_signal_source(self) -> ResumeSignalSource | None: ...

    @property
    def checkpoint_blob_store(self) -> CheckpointBlobStore | None: ...

    @property
    def max_durability_mode(self) -> Mode: ...

    def resume_scheduler(self, alias: str = "") -> ResumeScheduler | None: ...
