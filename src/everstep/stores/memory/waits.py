"""The waits of the runs that `memory:` keeps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from everstep.engine.commits import closes_waits
from everstep.engine.settling import settled
from everstep.model.enums import Status
from everstep.model.waits import SettledBy, WaitChange, WaitRow, WaitStatus
from everstep.ports.restoring import token_is_taken, wait_is_taken
from everstep.ports.store import Commit, RecodedWait, WaitFilter

EARLIEST = datetime.min.replace(tzinfo=UTC)
_Wake = tuple[datetime, datetime, int, str]


class MemoryWaits:
    """Every wait by its id, and those of halted runs by when they wake their run."""

    def __init__(self) -> None:
        self.rows: dict[str, WaitRow] = {}
        """In order of opening."""
        self._unclosed: dict[str, dict[str, None]] = {}
        self._tokens: dict[bytes, str] = {}
        self._halted: set[str] = set()
        self._wakes: list[_Wake] = []
        """Sorted: the time of an open wait, or the earliest of all and when it was settled; order; id."""
        self._wake_of: dict[str, _Wake] = {}
        self._numbers: dict[str, int] = {}

    def check(self, commit: Commit) -> None:
        """Refuse a commit that opens a wait which exists."""
        for wait in commit.waits:
            if wait.wait_id in self.rows:
                raise wait_is_taken(wait.wait_id)

    def restore(self, run_id: str, status: Status, waits: Sequence[WaitRow]) -> None:
        """Keep waits of a run that comes whole, or refuse them all."""
        for wait in waits:
            if wait.wait_id in self.rows:
                raise wait_is_taken(wait.wait_id)
            if wait.token_hash is not None and wait.token_hash in self._tokens:
                raise token_is_taken(wait.wait_id)
        self._follow(run_id, status)
        for wait in waits:
            self._numbers[wait.wait_id] = len(self._numbers)
            self._set(wait)

    def _follow(self, run_id: str, status: Status) -> None:
        """Let the waits of a run wake it, or not, with its status."""
        if status is Status.HALTED:
            self._halted.add(run_id)
        else:
            self._halted.discard(run_id)

    def take(self, commit: Commit, status: Status) -> None:
        """Open and close what an accepted commit says, and let the others go with the run's status."""
        for wait in commit.waits:
            self._numbers[wait.wait_id] = len(self._numbers)
            self._set(wait)
        for wait_id in commit.closed:
            if wait_id in self._unclosed.get(commit.run_id, ()):
                self._close(wait_id)
        if commit.status is None:
            return
        self._follow(commit.run_id, status)
        for wait_id in list(self._unclosed.get(commit.run_id, ())):
            if closes_waits(status):
                self._close(wait_id)
            else:
                self._set(self.rows[wait_id])

    def _close(self, wait_id: str) -> None:
        self._set(msgspec.structs.replace(self.rows[wait_id], status=WaitStatus.CLOSED))

    def _set(self, wait: WaitRow) -> None:
        """Keep a wait as it is now, and when it wakes its run."""
        old = self.rows.get(wait.wait_id)
        self.rows[wait.wait_id] = wait
        if old is not None and old.token_hash is not None:
            self._tokens.pop(old.token_hash, None)
        if wait.token_hash is not None:
            self._tokens[wait.token_hash] = wait.wait_id
        if wait.status is WaitStatus.CLOSED:
            self._unclosed.get(wait.run_id, {}).pop(wait.wait_id, None)
        else:
            self._unclosed.setdefault(wait.run_id, {}).setdefault(wait.wait_id)
        before = self._wake_of.pop(wait.wait_id, None)
        if before is not None:
            del self._wakes[bisect_left(self._wakes, before)]
        after = self._wake(wait)
        if after is not None:
            self._wake_of[wait.wait_id] = after
            insort(self._wakes, after)

    def _wake(self, wait: WaitRow) -> _Wake | None:
        if wait.run_id not in self._halted:
            return None
        number = self._numbers[wait.wait_id]
        if wait.status is WaitStatus.SETTLED:
            return EARLIEST, wait.settled_at or EARLIEST, number, wait.wait_id
        if wait.status is WaitStatus.OPEN and wait.due_at is not None and not wait.scheduler:
            return wait.due_at, wait.due_at, number, wait.wait_id
        return None

    def matching(self, wanted: WaitFilter) -> list[WaitRow]:
        """Return the waits that match, the oldest first."""
        after = -1 if wanted.after is None else self._numbers.get(wanted.after, len(self._numbers))
        rows: Iterable[WaitRow] = self.rows.values()
        if wanted.run_id is not None and wanted.leaves_out_closed:
            rows = [self.rows[wait_id] for wait_id in self._unclosed.get(wanted.run_id, ())]
        return [
            wait
            for wait in rows
            if wanted.run_id in (None, wait.run_id)
            and wanted.flow_id in (None, wait.flow_id)
            and wanted.kind in (None, wait.kind)
            and wanted.status in (None, wait.status)
            and (wait.status is not WaitStatus.CLOSED or not wanted.is_unclosed)
            and (wait.is_untold or not wanted.is_untold)
            and self._numbers[wait.wait_id] > after
        ][: wanted.limit]

    def of_token(self, token_hash: bytes) -> WaitRow | None:
        """Return the wait that a token belongs to."""
        wait_id = self._tokens.get(token_hash)
        return None if wait_id is None else self.rows[wait_id]

    def settle(
        self,
        wait_id: str,
        by: SettledBy,
        answer: bytes | None,
        token_hash: bytes | None,
        now: datetime,
        details: bytes | None = None,
    ) -> bool:
        """Give an open wait its answer; true if this did it."""
        wait = settled(self.rows.get(wait_id), by, answer, token_hash, now, details)
        if wait is not None:
            self._set(wait)
        return wait is not None and wait.settled_by is by

    def fire(self, run_id: str, now: datetime) -> None:
        """Settle what is due of a run."""
        for wait_id in list(self._unclosed.get(run_id, ())):
            wait = self.rows[wait_id]
            if not wait.scheduler and wait.due_at is not None and wait.due_at <= now:
                self.settle(wait_id, SettledBy.CLOCK, None, None, now)

    def settled(self, run_id: str) -> list[WaitRow]:
        """Return the waits of a run that have their answer."""
        waits = [self.rows[wait_id] for wait_id in self._unclosed.get(run_id, ())]
        return [wait for wait in waits if wait.status is WaitStatus.SETTLED]

    def change(self, wait_id: str, change: WaitChange) -> WaitRow | None:
        """Change an open wait and return it as it is now."""
        wait = self.rows.get(wait_id)
        if wait is not None and wait.status is WaitStatus.OPEN:
            self._set(wait.changed(change))
        return self.rows.get(wait_id)

    def recode(self, waits: Sequence[RecodedWait]) -> int:
        """Give waits that still say what was read other bytes for it; returns how many were given some."""
        replaced = 0
        for new in waits:
            old = self.rows.get(new.wait_id)
            if old is not None and (old.details, old.answer) == new.was:
                self._set(msgspec.structs.replace(old, details=new.details, answer=new.answer))
                replaced += 1
        return replaced

    def erase(self, run_id: str) -> None:
        """Forget the waits of a run. Their numbers are kept: a listing may go on from one of them."""
        for wait in [wait for wait in self.rows.values() if wait.run_id == run_id]:
            if wait.status is not WaitStatus.CLOSED:
                self._close(wait.wait_id)
            del self.rows[wait.wait_id]
            if wait.token_hash is not None:
                self._tokens.pop(wait.token_hash, None)
        self._unclosed.pop(run_id, None)
        self._halted.discard(run_id)

    def due(self, now: datetime) -> Iterator[tuple[str, datetime]]:
        """Yield halted runs with a wait that is settled or due, and since when."""
        for wake_at, since, _, wait_id in self._wakes:
            if wake_at > now:
                return
            yield self.rows[wait_id].run_id, since

    def next_due(self, after: datetime) -> datetime | None:
        """Return when the next open wait of a halted run is due."""
        first = bisect_right(self._wakes, after, key=lambda wake: wake[0])
        return self._wakes[first][0] if first < len(self._wakes) else None
