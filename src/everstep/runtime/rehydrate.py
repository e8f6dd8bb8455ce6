"""Fold a chain back into a run: where it stands, and its values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from everstep.codec.records import OpenRecord
from everstep.codec.tags import Unreadable
from everstep.codec.values import Values
from everstep.engine.fold import enter
from everstep.engine.keyframe import restore
from everstep.engine.state import RunState
from everstep.errors import EverstepError, RunNotFound, StateCorrupted
from everstep.graph.compile.plan import Plan
from everstep.model.enums import Status, Trigger, ValueForm
from everstep.model.records import TRACE, CheckpointRecord, Counters, ErrorInfo, StepRecord
from everstep.on_demand import on_demand
from everstep.ports.store import CheckpointBlobStore
from everstep.runtime.drive.apply import Lists, apply, loaded
from everstep.runtime.drive.chain_writer import Head
from everstep.runtime.drive.values import ValueSpace, slot_of, split_name
from everstep.runtime.lineage import Link, verified

if TYPE_CHECKING:
    from everstep.engine.undo.stack import Undoing
else:
    Undoing = on_demand("everstep.engine.undo.stack:Undoing")

_RESUME, _MIGRATION, _WHOLE = Trigger.RESUME, Trigger.MIGRATION, ValueForm.WHOLE
# A member of an enum takes ten times as long to find in its class, and every record comes by here.
Version = tuple[str, int]
"""A value by its name and the number of its version."""
See = Callable[[ValueSpace, str, str], Any]
"""Gives what is noted of a value: from all values, its local name, and what its name begins with."""


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
        self.note: dict[str, str] | None = None
        """What the newest record says that tells of a trace."""
        self.seen: dict[Version, Any] = {}
        """Versions that were watched for and came by, or why one of them cannot be read."""
        self._watched: frozenset[Version] = frozenset()
        self._see: See = ValueSpace.peek
        self._places: frozenset[str] = frozenset()
        """What the names that are watched for begin with."""
        self._lists = Lists(self.space)
        self.plans: dict[str, Plan] = {}
        """Wirings that the run may go over to in what is folded, by their hashes."""

    def fold(self, links: Sequence[Link], *, needs_values: bool = True) -> Rehydrated:
        """Take these records into account; they go on from the last one taken, else begin with a
        keyframe or with the first of all.

        If values are not needed, those whose key is not at hand are locked: only to read one is an error.
        """
        before = self.head.digest if self.head.sequence else b"" if links[0].sequence == 1 else None
        for link, opened in verified(links, before, needs_values=needs_values):
            if opened is None:
                raise RunNotFound(f"{link.where} was just removed.", fix="Look at a newer one.")
            self.take(link, opened)
        for wait_id, (scope, i) in self.state.waits.items():
            if i not in scope.waiting:
                said = f"{links[-1].where} does not fit its flow: no node waits for {wait_id!r}."
                raise StateCorrupted(said)
        return self

    def take(self, link: Link, opened: OpenRecord) -> None:
        """Take one record into account that was verified already."""
        stored = link.stored
        try:
            self._take(opened, is_first=self.head.sequence == 0)
        except EverstepError:
            raise
        except Exception as error:  # it was written as it is, but not by a run of this flow
            raise StateCorrupted(f"{link.where} does not fit its flow: {error!r}.") from error
        self.head.sequence = stored.sequence
        self.head.checkpoint_id = stored.checkpoint_id
        self.head.digest = opened.digest
        self.head.tail_bytes = 0 if stored.keyframe else self.head.tail_bytes + len(stored.body)

    def approach(self, opened: OpenRecord, count: int) -> None:
        """Take only the first steps of the next record into account."""
        payloads = iter(opened.payloads)
        for step in opened.record.steps[:count]:
            self._apply(step, payloads)

    def watch(self, versions: Collection[Version], see: See = ValueSpace.peek) -> None:
        """Note these versions in `seen`: those that are there, and the others when they come by.

        What is noted of each is the value, or what `see` gives.
        """
        self._watched, self._see = frozenset(versions), see
        self._places = frozenset(split_name(name)[0] for name, _ in versions)
        for prefix in tuple(self.space.areas):
            self._note_area(prefix)

    def digests(self) -> dict[str, bytes]:
        """Return something for each kept value that is equal only for equal ones, without reading any."""
        return {
            prefix + name: slot.digest()
            for prefix, area in self.space.areas.items()
            for name, slot in area.items()
            if not slot.is_transient
        }

    def _note_area(self, prefix: str) -> None:
        for name in self.space.areas.get(prefix, ()) if prefix in self._places else ():
            self._note(prefix + name)

    def _note(self, full: str) -> None:
        prefix, name = split_name(full)
        slot = self.space.areas.get(prefix, {}).get(name)
        if slot is None or (full, slot.written.version) not in self._watched:
            return
        try:
            self.seen[full, slot.written.version] = self._see(self.space, name, prefix)
        except Exception as error:  # whatever is wrong with one value, the others can be read
            self.seen[full, slot.written.version] = Unreadable(error)

    def _take(self, opened: OpenRecord, *, is_first: bool) -> None:
        record = opened.record
        self.status, self.error, self.record = record.status, record.error, record
        if record.metadata is not None and TRACE in record.metadata:
            self.note = record.metadata[TRACE]
        payloads = iter(opened.payloads)
        if record.trigger is _RESUME:
            self.state.reopen()
        is_over = record.trigger is _MIGRATION and not is_first
        if is_over:
            self.state = RunState(self.plans[record.flow_hash])
            self.space.clear()
        if (is_over or (is_first and record.keyframe)) and record.state is not None:
            for _ in range(sum(1 for step in record.steps for w in step.writes if w.is_inline)):
                next(payloads)
            self.space.restore(record.state.values, payloads)
            versions = {
                prefix + name: slot.written.version
                for prefix, area in self.space.areas.items()
                for name, slot in area.items()
            }
            if record.state.undo is not None:
                self.state.undo = Undoing(record.state.undo)
            restore(self.state, versions, record.state, record.counters or Counters())
            for name in versions if self._watched else ():
                self._note(name)
            return
        for step in record.steps:
            self._apply(step, payloads)
        if self.state.undo is not None:
            self.state.undo.number(record.sequence)

    def _apply(self, step: StepRecord, payloads: Iterator[bytes]) -> None:
        slots = []
        for w in step.writes:
            if w.form is _WHOLE and w.version:
                slots.append(slot_of(w, next(payloads) if w.artifact is None else None))
            else:
                payload = next(payloads) if w.is_inline else None
                slots.append(loaded(self.state, self.space, step, w, payload))
        if self._watched:
            self._note_inputs(step)
        apply(self.state, self.space, step, slots)
        if self._watched:
            for write in step.writes:
                self._note(step.whole_name(write.name))

    def _note_inputs(self, step: StepRecord) -> None:
        """Note what an inner flow begins with, which no step writes."""
        prefix = split_name(step.whole_name("-"))[0]
        if prefix and prefix[0] != "@" and prefix in self._places:
            scope, i, item = self.state.locate(step.path)
            self._lists.fill(scope if item is None else enter(scope, i, item))
            self._note_area(prefix)
