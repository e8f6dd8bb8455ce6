"""Fold a chain back into a run: where it stands, and its values."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

from everstep.codec.compare import Unreadable
from everstep.codec.records import OpenRecord
from everstep.codec.values import Values
from everstep.engine.state import RunState
from everstep.errors import RunNotFound
from everstep.graph.plan import Plan
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord, ErrorInfo, Written
from everstep.ports.store import CheckpointBlobStore
from everstep.runtime.journal import Head
from everstep.runtime.lineage import Link, verified
from everstep.runtime.values import ValueSpace

Version = tuple[str, int]
"""A value by its name and the number of its version."""


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
        self.seen: dict[Version, Any] = {}
        """Versions that were watched for and came by, or why one of them cannot be read."""
        self._watched: frozenset[Version] = frozenset()

    def fold(self, links: Sequence[Link]) -> Rehydrated:
        """Take these records into account; they go on from the last one taken, else begin with a
        keyframe or with the first of all.
        """
        before = self.head.digest if self.head.sequence else b"" if links[0].sequence == 1 else None
        for link, opened in verified(links, before):
            if opened is None:
                raise RunNotFound(f"{link.where} was just removed.", fix="Look at a newer one.")
            stored = link.stored
            self._take(opened, is_first=self.head.sequence == 0)
            self.head.sequence = stored.sequence
            self.head.checkpoint_id = stored.checkpoint_id
            self.head.digest = opened.digest
            self.head.tail_bytes = 0 if stored.keyframe else self.head.tail_bytes + len(stored.body)
        return self

    def watch(self, versions: Collection[Version]) -> None:
        """Note these versions in `seen`: those that are there, and the others when they come by."""
        self._watched = frozenset(versions)
        for name, slot in self.space.slots.items():
            self._note(name, slot.written.version)

    def digests(self) -> dict[str, bytes]:
        """Return something for each kept value that is equal only for equal ones, without reading any."""
        found = {}
        for name, slot in self.space.slots.items():
            if slot.is_transient:
                continue
            found[name] = slot.written.digest
            if slot.parts is not None:
                whole = hashlib.sha256(slot.artifact.checksum.encode() if slot.artifact is not None else b"")
                for part in slot.parts:
                    whole.update(hashlib.sha256(part).digest())
                found[name] = whole.digest()
        return found

    def _load(self, write: Written, payload: bytes | None) -> None:
        self.space.load(write, payload)
        if self._watched:
            self._note(write.name, self.space.slots[write.name].written.version)

    def _note(self, name: str, version: int) -> None:
        if (name, version) not in self._watched:
            return
        try:
            self.seen[name, version] = self.space.peek(name)
        except Exception as error:  # whatever is wrong with one value, the others can be read
            self.seen[name, version] = Unreadable(error)

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
                self._load(write, next(payloads) if write.is_inline else None)
            versions = {w.name: w.version for w in record.state.values}
            steps = record.counters.steps if record.counters is not None else 0
            self.state.restore(versions, record.state.nodes, steps)
            self.state.error = record.state.error
            self.state.key_run = record.state.key_run
            return
        for step in record.steps:
            for write in step.writes:
                self._load(write, next(payloads) if write.is_inline else None)
            self.state.evolve(step)
