"""The values of a run in this process: what was recorded of each, and who may have the live object.

Nodes never share a mutable object. Every reader gets a fresh copy decoded from what was recorded; only if a
value is large may its only reader take the live object, once.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from everstep.codec.growth import Shadow
from everstep.codec.payload import HEADER, body_of
from everstep.codec.values import Values, is_plain
from everstep.errors import StateCorrupted, ValueUnreadable
from everstep.graph.plan import Plan
from everstep.model.enums import Persist, ValueForm
from everstep.model.records import ArtifactRef, Written
from everstep.ports.store import CheckpointBlobStore

_GONE = object()
_MUTABLE = (dict, list)
LIVE_FROM = 64 * 1024
"""From this size on, the only reader of a value is given the object itself, not a copy."""
CONTENT_TYPE = "application/vnd.everstep.value"


class Slot:
    """One version of a value: its recorded bytes, and the live object while it may be handed out.

    A step's outputs are drafts until the step is recorded; then they take their place in the space.
    """

    __slots__ = (
        "added",
        "artifact",
        "cost",
        "is_frozen",
        "is_lent",
        "live",
        "parts",
        "payload",
        "shadow",
        "spill",
        "whole",
        "written",
    )

    def __init__(self, written: Written, payload: bytes | None, live: Any = _GONE) -> None:
        self.written = written
        self.payload = payload
        """What travels with the record: the value, or what it appends; none for an artifact."""
        self.live = live
        self.is_frozen = False
        self.is_lent = False
        """True if the live object is the caller's own, which no node may change."""
        self.artifact = written.artifact
        self.whole: Written | None = written
        """How a keyframe names it, unless it has grown since it was written whole."""
        self.parts: list[bytes] | None = None
        """The payloads it was put together from, once it has grown."""
        self.cost = 0 if payload is None else len(payload)
        """About how many bytes a keyframe would write for it."""
        self.shadow: Shadow | None = None
        self.added: list[Any] | None = None
        """What it appends to the version before."""
        self.spill: bytes | None = None
        """Serialized bytes that are still to be written aside."""

    @property
    def is_transient(self) -> bool:
        """True if no bytes of it are kept."""
        return self.written.form is ValueForm.TRANSIENT


class ValueSpace:
    """The slots of one run."""

    def __init__(
        self, plan: Plan, values: Values, blobs: CheckpointBlobStore | None, blob_threshold: int
    ) -> None:
        self._plan = plan
        self._values = values
        self._blobs = blobs
        self._threshold = blob_threshold if blobs is not None else None
        self.slots: dict[str, Slot] = {}
        self.size = 0
        """About how many bytes a keyframe of these values takes."""

    def draft(self, name: str, value: Any, persist: Persist = Persist.AUTO) -> Slot:
        """Encode a value. A large one still has to be written aside; a transient one is not touched."""
        previous = self.slots.get(name)
        version = 1 if previous is None else previous.written.version + 1
        if persist is Persist.AUTO:
            if type(value) is list and name in self._plan.rewritten:
                return self._draft_list(name, value, version, previous)
            return self._draft_whole(name, value, version, self._threshold)
        if persist is Persist.NO:
            return Slot(Written(name, version, b"", 0, ValueForm.TRANSIENT), None, value)
        is_ref = persist is Persist.REF and self._blobs is not None
        return self._draft_whole(name, value, version, 0 if is_ref else None)

    def _draft_whole(self, name: str, value: Any, version: int, threshold: int | None) -> Slot:
        data = self._values.encode(value, name)
        if threshold is not None and len(data) > threshold:
            draft = Slot(Written(name, version, b"", len(data)), None, value)
            draft.spill = data
        else:
            written = Written(name, version, hashlib.sha256(data).digest(), len(data))
            draft = Slot(written, HEADER + data, value)
        draft.is_frozen = type(value) not in _MUTABLE and self._values.is_frozen(value)
        return draft

    def _draft_list(self, name: str, value: list[Any], version: int, previous: Slot | None) -> Slot:
        """A list that a loop writes again and again is compared with what it was."""
        if previous is not None and previous.shadow is not None:
            grown = self._draft_growth(name, value, version, previous.shadow)
            if grown is not None:
                return grown
        draft = self._draft_whole(name, value, version, self._threshold)
        if is_plain(value):
            draft.shadow = Shadow(value)
        return draft

    def _draft_growth(self, name: str, value: list[Any], version: int, shadow: Shadow) -> Slot | None:
        added = shadow.appended(value)
        if added is None or not is_plain(added):
            return None
        data = self._values.encode(added, name)
        if self._threshold is not None and len(data) > self._threshold:
            return None
        written = Written(name, version, hashlib.sha256(data).digest(), len(data), ValueForm.APPEND)
        draft = Slot(written, HEADER + data, value)
        draft.shadow, draft.added = shadow, added
        return draft

    def write_aside(self, draft: Slot) -> None:
        """Keep the bytes of a large draft as an artifact. Must come before any record can name them."""
        if draft.spill is None or self._blobs is None:
            return
        draft.artifact = self._blobs.put_checkpoint_blob(HEADER, draft.spill, content_type=CONTENT_TYPE)
        old, digest = draft.written, bytes.fromhex(draft.artifact.checksum)
        draft.written = Written(old.name, old.version, digest, old.size, artifact=draft.artifact)
        draft.whole = draft.written
        draft.spill = None

    def accept(self, draft: Slot) -> None:
        """Make a draft the newest version of its value."""
        name = draft.written.name
        self._place(name, draft)
        if draft.added is not None and draft.shadow is not None:
            draft.shadow.extend(draft.added)
            draft.added = None
        if draft.is_frozen or draft.is_transient:
            return
        # A copy of a small value is cheap, and nobody else can hold it: no node, no module's variable.
        is_small = draft.written.size < LIVE_FROM and draft.cost < LIVE_FROM
        if is_small or draft.is_lent or name not in self._plan.sole_reader:
            draft.live = _GONE

    def load(self, written: Written, payload: bytes | None) -> None:
        """Take a recorded write into account, as when a chain is folded. Version 0 is the next one."""
        if written.version == 0:
            previous = self.slots.get(written.name)
            version = 1 if previous is None else previous.written.version + 1
            written = msgspec.structs.replace(written, version=version)
        self._place(written.name, Slot(written, payload))

    def _place(self, name: str, slot: Slot) -> None:
        previous = self.slots.get(name)
        if previous is not None:
            self.size -= previous.cost
        if slot.written.form is ValueForm.APPEND:
            _grow(slot, previous)
        self.size += slot.cost
        self.slots[name] = slot

    def take(self, name: str, *, is_first_attempt: bool) -> Any:
        """Return a value for a node to read."""
        slot = self.slots[name]
        live = slot.live
        if live is not _GONE:
            if slot.is_frozen or slot.is_transient:
                return live
            if is_first_attempt and name in self._plan.sole_reader:
                slot.live = _GONE
                return live
        value = self._decode(name, slot)
        if name in self._plan.rewritten and slot.shadow is None and type(value) is list and is_plain(value):
            slot.shadow = Shadow(value)
        return value

    def is_missed(self, name: str) -> bool:
        """True for a transient value that this process has not made."""
        slot = self.slots[name]
        return slot.is_transient and slot.live is _GONE

    def make_up(self, name: str, value: Any) -> None:
        """Put a transient value in place again; it is the version that was missed, not a newer one."""
        self.slots[name].live = value

    def peek(self, name: str) -> Any:
        """Return a copy of a value that its reader may keep."""
        slot = self.slots[name]
        return slot.live if slot.is_frozen else self._decode(name, slot)

    def final(self, name: str) -> Any:
        """Return a value after the run has ended: the live object if nobody took it."""
        slot = self.slots[name]
        live = slot.live
        if live is _GONE:
            return self._decode(name, slot)
        if not slot.is_frozen and not slot.is_transient:
            slot.live = _GONE
        return live

    def _decode(self, name: str, slot: Slot) -> Any:
        if slot.is_transient:
            raise ValueUnreadable(f"value {name!r} was not kept.", fix='Its node says persist="no".')
        parts = slot.parts if slot.parts is not None else [] if slot.payload is None else [slot.payload]
        if slot.artifact is not None:
            parts = [self._fetch(name, slot.artifact), *parts]
        value = self._values.decode(body_of(parts[0], name), name)
        for part in parts[1:]:
            value.extend(self._values.decode(body_of(part, name), name))
        return value

    def _fetch(self, name: str, ref: ArtifactRef) -> bytes:
        if self._blobs is None:
            raise StateCorrupted(f"value {name!r} is an artifact, and this host has no artifact store.")
        stored = self._blobs.get_checkpoint_blob(ref)
        if len(stored) < len(HEADER) or hashlib.sha256(body_of(stored, name)).hexdigest() != ref.checksum:
            raise StateCorrupted(f"the artifact of value {name!r} was altered: {ref.key}.")
        return stored

    def snapshot(self) -> tuple[tuple[Written, ...], list[bytes]]:
        """Return every value whole, for a keyframe, with the inline payloads in the same order."""
        written: list[Written] = []
        payloads: list[bytes] = []
        for name, slot in self.slots.items():
            whole = slot.whole or self._merge(name, slot)
            written.append(whole)
            if whole.is_inline:
                assert slot.payload is not None
                payloads.append(slot.payload)
        return tuple(written), payloads

    def _merge(self, name: str, slot: Slot) -> Written:
        """Write a grown value whole again."""
        merged = self._draft_whole(name, self._decode(name, slot), slot.written.version, self._threshold)
        self.write_aside(merged)
        slot.written = slot.whole = merged.written
        slot.payload, slot.artifact, slot.parts = merged.payload, merged.artifact, None
        self.size += merged.cost - slot.cost
        slot.cost = merged.cost
        return merged.written


def _grow(slot: Slot, previous: Slot | None) -> None:
    """Put a version that only appends on top of the one before it."""
    if previous is None or slot.payload is None:
        raise StateCorrupted(f"value {slot.written.name!r} appends to a version that is not there.")
    parts = previous.parts
    slot.cost += previous.cost
    if parts is None:
        parts = [] if previous.payload is None else [previous.payload]
        slot.cost += previous.artifact.size if previous.artifact is not None else 0
    parts.append(slot.payload)
    slot.parts, slot.artifact, slot.whole = parts, previous.artifact, None
