"""Pausing runs, flows and groups, as stores keep it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from everstep.model.acts import AuditRow
from everstep.model.leases import Held, LanePause


@runtime_checkable
class PausingStore(Protocol):
    """A store that keeps what is paused. Every method is one atomic act, and needs no lease."""

    @property
    def looks_every(self) -> float:
        """Seconds that an owner lets pass between two looks at what is paused."""

    @property
    def tells_pauses(self) -> bool:
        """True if `changes` is another number once something was paused: as long as it is the same, no look
        is needed."""

    async def mark(
        self, run_id: str, *, was: str | None, mark: str | None, audit: AuditRow | None = None
    ) -> bool:
        """Replace the mark that keeps workers from an unfinished run, if that is still `was`.

        A run that was asked to stop gets none. One without a mark may be due at once.
        """

    async def pause_lane(self, lane: LanePause, *, audit: AuditRow | None = None) -> bool:
        """Pause a flow or a group; false if it is paused already, which stays as it is."""

    async def unpause_lane(self, flow_id: str, group: str, *, audit: AuditRow | None = None) -> bool:
        """Let a flow or a group go on; false if it is not paused."""

    async def held(self, run_ids: Collection[str]) -> Held:
        """Say which of these runs are paused, and which flows and groups."""


@runtime_checkable
class BlockingPauses(Protocol):
    """A `PausingStore` that can be asked from the thread on which leases are prolonged."""

    def held_blocking(self, run_ids: Collection[str]) -> Held: ...
