"""Fold a chain back into a run: where it stands, and its values."""

from __future__ import annotations

from collections.abc import Sequence

from everstep.codec.records import OpenRecord
from everstep.codec.values import Values
from everstep.engine.keyframe import restore
from everstep.engine.state import RunState
from everstep.errors import RunNotFound
from everstep.graph.plan import Plan
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord, Counters, ErrorInfo
from everstep.ports.store import CheckpointBlobStore
from everstep.runtime.journal import Head
from everstep.runtime.lineage import Link, verified
from everstep.runtime.nesting import apply, loaded
from everstep.runtime.values import ValueSpace


class Rehydrated:
    """A run as its records tell it."""

    def __init__(
        self, plan: Plan, values: Values, blobs: CheckpointBlobStore | None, blob_threshold: int
    ) -> None:
        self.state = RunState(plan)
        self.space = ValueSpace(values, blobs, blob_threshold)
        self.head = Head()
        self.status = Status.RUNNING
        self.error: ErrorInfo | None = None
        self.record: CheckpointRecord | None = None

    def fold(self, links: Sequence[Link]) -> Rehydrated:
        """Take these records into account; they begin with a keyframe or with the first of all."""
        for link, opened in verified(links, b"" if links[0].sequence == 1 else None):
            if opened is None:
                raise RunNotFound(f"{link.where} was just removed.", fix="Look at a newer one.")
            stored = link.stored
            self._take(opened, is_first=self.head.sequence == 0)
            self.head.sequence = stored.sequence
            self.head.checkpoint_id = stored.checkpoint_id
            self.head.digest = opened.digest
            self.head.tail_bytes = 0 if stored.keyframe else self.head.tail_bytes + len(stored.body)
        return self

    def _take(self, opened: OpenRecord, *, is_first: bool) -> None:
        record = opened.record
        self.status, self.error, self.record = record.status, record.error, record
        payloads = iter(opened.payloads)
        if record.trigger is Trigger.RESUME:
            self.state.reopen()
        if is_first and record.keyframe and record.state is not None:
            for _ in range(sum(1 for step in record.steps for w in step.writes if w.is_inline)):
                next(payloads)
            self.space.restore(record.state.values, payloads)
            versions = {w.name: w.version for w in record.state.values}
            restore(self.state, versions, record.state, record.counters or Counters())
            return
        for step in record.steps:
            slots = [
                loaded(self.state, self.space, step, w, next(payloads) if w.is_inline else None)
                for w in step.writes
            ]
            apply(self.state, self.space, step, slots)
