"""Fold a chain back into a run: where it stands, and its values."""

from __future__ import annotations

from collections.abc import Sequence

from everstep.codec.records import OpenRecord
from everstep.codec.values import Values
from everstep.engine.state import RunState
from everstep.errors import RunNotFound
from everstep.graph.plan import Plan
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord, ErrorInfo
from everstep.ports.store import CheckpointBlobStore
from everstep.runtime.journal import Head
from everstep.runtime.lineage import Link, verified
from everstep.runtime.values import ValueSpace


class Rehydrated:
    """A run as its records tell it."""

    def __init__(
        self, plan: Plan, values: Values, blobs: CheckpointBlobStore | None, blob_threshold: int
    ) -> None:
        self.state = RunState(plan)
        self.space = ValueSpace(plan, values, blobs, blob_threshold)
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
            inline = sum(1 for step in record.steps for w in step.writes if w.is_inline)
            for _ in range(inline):
                next(payloads)
            for write in record.state.values:
                self.space.load(write, next(payloads) if write.is_inline else None)
            versions = {w.name: w.version for w in record.state.values}
            steps = record.counters.steps if record.counters is not None else 0
            self.state.restore(versions, record.state.nodes, steps)
            self.state.error = record.state.error
            self.state.key_run = record.state.key_run
            return
        for step in record.steps:
            for write in step.writes:
                self.space.load(write, next(payloads) if write.is_inline else None)
            self.state.evolve(step)
