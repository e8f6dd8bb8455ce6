"""Putting a whole run into a store as another one kept it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from everstep.errors import StoreError
from everstep.model.acts import AuditRow
from everstep.model.commits import NO_LABELS, Labels, NoticeRow, Told
from everstep.model.records import ArtifactRef
from everstep.model.waits import HadEvent, SignalRow, WaitRow
from everstep.ports.store import RunRow, StoredRecord

EPOCHS_OF_A_LIFE = 1 << 20
"""How far apart the epochs of runs lie that were restored. A store that numbers its runs and never uses a
number again begins with that many times the number, so that no epoch of an erased run comes back."""


FENCED_BY = (1 << 19) - 1
"""How far epochs are raised when a store itself was put back from a backup: by more owners than a run can
have had since, and by less than `EPOCHS_OF_A_LIFE`."""


class WholeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run as a store keeps it, apart from its artifacts."""

    row: RunRow
    """Its lease is not restored: the run has no owner in the other store yet."""
    base: str | None
    """The checkpoint of its parent that a fork goes on from; none for any other run."""
    records: tuple[StoredRecord, ...]
    """Its own records in order, trimmed ones as stubs. There is at least one."""
    waits: tuple[WaitRow, ...]
    """All its waits, the oldest first, closed ones too."""
    blueprints: tuple[tuple[str, bytes], ...]
    """The structures that the run went by, by their hashes, the oldest first."""
    inbox: tuple[SignalRow, ...] = ()
    """Its signals by their numbers, those that were taken too."""
    had: tuple[HadEvent, ...] = ()
    """Which events its nodes had: none has one twice, wherever the run goes on."""
    labels: Labels = NO_LABELS
    told: Told = {}
    """Who is told of it on which occasion, as its admission said."""
    notices: tuple[NoticeRow, ...] = ()
    """Notices of it that were not sent: each gets a number of this store."""
    audit: AuditRow | None = None
    """Who brings it, for the audit log of the store that it comes to."""

    @property
    def head(self) -> StoredRecord:
        """The newest record."""
        return self.records[-1]


class Restored(StrEnum):
    """How a store judged a run that was to be restored."""

    RESTORED = "restored"
    SAME = "same"
    """It was there already with the same newest record; nothing was changed."""
    AHEAD = "ahead"
    """It was there already, and has gone on since that record; nothing was changed."""
    BEHIND = "behind"
    """Refused: an older state of it is there."""
    TAKEN = "taken"
    """Refused: another run has its id."""
    NO_BASE = "no_base"
    """Refused: it is a fork, and the checkpoint that it goes on from is not there, whole."""


def judge_there(run: WholeRun, newest: int, id_at: Callable[[int], str | None]) -> Restored:
    """Say what a run that a store has means for one of the same id that is to come. Every store asks here.

    `newest` is the sequence of the newest record that the store has, `id_at` finds the id of its own record
    at a sequence. Records never change, and each has an id of its own: where the same one lies at one place,
    all before it is the same.
    """
    head, first = run.head, run.records[0].sequence
    if newest >= head.sequence:
        if id_at(head.sequence) != head.checkpoint_id:
            return Restored.TAKEN
        return Restored.SAME if newest == head.sequence else Restored.AHEAD
    k = newest - first
    is_ours = 0 <= k < len(run.records) and id_at(newest) == run.records[k].checkpoint_id
    return Restored.BEHIND if is_ours else Restored.TAKEN


@runtime_checkable
class RestoringStore(Protocol):
    """A store that takes a run as another store kept it."""

    async def restore(self, run: WholeRun) -> Restored:
        """Keep a whole run durably and in one go, or nothing of it.

        It is then as if it had been put here: without a lease, and the newest in listings. Its
        row, stop request, mark for repair, waits with tokens and answers stay as they are. `judge_there`
        says what one that is there already means, so the call may be repeated. `StoreError` if a wait's id
        or token is another's here. A run that was erased here may come back, at an
        epoch that it never had: an owner which slept meanwhile is fenced.
        """


@runtime_checkable
class FencingStore(Protocol):
    """A store that can keep owners from writing of which it knows nothing, as it is older than they are."""

    async def fence(self, run_id: str, by: int) -> bool:
        """Raise the epoch of a run that is neither completed nor cancelled by so much, and void its lease.

        What was claimed of the run before, known here or not, cannot write any more; it is due as a run
        without an owner is. False if there is no such run.
        """


@runtime_checkable
class RestoringBlobs(Protocol):
    """A store of artifacts that takes one as another store kept it."""

    def restore_checkpoint_blob(self, ref: ArtifactRef, stored: bytes) -> None:
        """Keep header and data durably as they are, encoded or not, so that `ref` finds them here.

        An artifact is found by its checksum in every store, whatever key another one gave it.
        Blocking; may be called from any thread.
        """


def wait_is_taken(wait_id: str) -> StoreError:
    """Say that a store has a wait of this id."""
    return StoreError(f"there is a wait {wait_id!r} already.", fix="Give every wait its own id.")


def token_is_taken(wait_id: str) -> StoreError:
    """Say that a store has another wait with the token of this one."""
    return StoreError(
        f"the token of wait {wait_id!r} is another wait's here.",
        fix="Issue a new one where the run comes from.",
    )
