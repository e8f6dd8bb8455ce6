"""What an export leaves out: found by name first, then by digest wherever the same value is kept."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from everstep.codec.payload import LEFT_OUT
from everstep.codec.records import with_payloads
from everstep.codec.sealing import Kept, inline_writes
from everstep.model.bundles import LeaveOut, LeftOut
from everstep.model.records import StepRecord, Written
from everstep.model.waits import WaitRow, WaitStatus
from everstep.ports.store import StoredRecord
from everstep.runtime.whole import Checked


class Leaving:
    """What stays behind of the runs of one bundle. It is shown every record before any is written."""

    def __init__(self, policy: LeaveOut) -> None:
        self._policy = policy
        self._digests: set[bytes] = set()
        self._visits: set[tuple[str, str, int]] = set()
        self._kept: set[LeftOut] = set()

    @property
    def looks_at_values(self) -> bool:
        """True if values may stay behind, so that all records must be shown first."""
        return bool(self._policy.values)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Everything that stayed behind."""
        return tuple(sorted(self._kept))

    def look(self, run_id: str, page: Iterable[Checked]) -> None:
        """Note which values of these records are to stay behind."""
        for checked in page:
            if checked.opened is None:
                continue
            record = checked.opened.record
            for write in record.writes():
                if self._is_named(write):
                    self._digests.add(write.digest)
            self._visits |= {(run_id, s.path, s.visit) for s in record.steps if self._is_secret(s)}

    def _is_named(self, write: Written) -> bool:
        return self._policy.is_left_out(write.name) and (write.is_inline or write.artifact is not None)

    def _is_secret(self, step: StepRecord) -> bool:
        return any(self._policy.is_left_out(write.name) for write in step.writes)

    def stays(self, write: Written) -> bool:
        """True if the bytes of a value stay behind."""
        return write.digest in self._digests or (
            write.artifact is not None and bytes.fromhex(write.artifact.checksum) in self._digests
        )

    def record(self, run_id: str, checked: Checked, plain: Kept | None) -> StoredRecord:
        """Return a record without the values that stay behind; `plain` has other bytes for its own."""
        stored, opened = checked.stored, checked.opened
        if opened is None or (plain is None and not self._digests):
            return stored
        notes = opened.notes if plain is None else plain.notes
        kept = list(opened.payloads if plain is None else plain.payloads)
        for write in opened.record.writes():
            if self.stays(write) and (write.is_inline or write.artifact is not None):
                self._kept.add(LeftOut(run_id=run_id, what="value", name=write.name))
        for k, write in enumerate(inline_writes(opened.record)):
            if self.stays(write):
                kept[k] = LEFT_OUT
        if (kept, notes) == (opened.payloads, opened.notes):
            return stored
        return msgspec.structs.replace(stored, body=with_payloads(stored.body, kept, notes))

    def wait(self, wait: WaitRow) -> WaitRow:
        """Return a wait without its token, and without an answer that became a value that stays behind."""
        changes: dict[str, object] = {}
        if self._policy.tokens and wait.token_hash is not None:
            changes |= {"token_hash": None}
            self._kept.add(LeftOut(run_id=wait.run_id, what="token", name=wait.wait_id))
        if (wait.run_id, wait.path, wait.visit) in self._visits and wait.answer is not None:
            changes |= {"answer": None}
            if wait.status is WaitStatus.SETTLED:
                # Its run has not taken the answer in yet: somebody has to give it again.
                changes |= {"status": WaitStatus.OPEN, "settled_at": None, "settled_by": None}
            self._kept.add(LeftOut(run_id=wait.run_id, what="answer", name=wait.wait_id))
        return msgspec.structs.replace(wait, **changes) if changes else wait
