"""The runs that `memory:` keeps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everstep.codec.records import digest_of
from everstep.ports.restoring import EPOCHS_OF_A_LIFE
from everstep.ports.store import Recoded, RunRow, StoredRecord


class MemoryRun:
    """One run and its own records."""

    def __init__(self, row: RunRow, epoch: int, number: int) -> None:
        self.row = row
        self.epoch = epoch
        self.number = number
        """Its place in the order of admission."""
        self.claimed_at_sequence = row.first
        self.records: list[StoredRecord] = []

    @classmethod
    def restored(cls, row: RunRow, records: Sequence[StoredRecord], number: int) -> MemoryRun:
        """Return a run that comes whole from another store."""
        run = cls(row, number * EPOCHS_OF_A_LIFE, number)
        run.claimed_at_sequence = row.checkpoints
        run.records = list(records)
        return run

    def at(self, sequence: int) -> StoredRecord | None:
        """Return the run's own record at a sequence."""
        k = sequence - self.row.first
        return self.records[k] if 0 <= k < len(self.records) else None

    def id_at(self, sequence: int) -> str | None:
        """Return the id of the run's own record at a sequence."""
        there = self.at(sequence)
        return there.checkpoint_id if there is not None else None

    def recode(self, records: Sequence[Recoded]) -> int:
        """Give records other bytes with the same digest; returns how many were given some."""
        replaced = 0
        for new in records:
            old = self.at(new.sequence)
            if old is None or old.is_stub or old.checkpoint_id != new.checkpoint_id:
                continue
            if digest_of(old.body) == digest_of(new.body):
                self.records[new.sequence - self.row.first] = msgspec.structs.replace(old, body=new.body)
                replaced += 1
        return replaced
