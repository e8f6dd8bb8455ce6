"""The values of a run in this process: what was recorded of each, and who may have the live object.

Nodes never share a mutable object. The only reader of a value may take the live object once; everybody
else, and every retry, gets a fresh copy decoded from what was recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from everstep.codec.growth import Shadow
from everstep.codec.payload import HEADER, body_of
from everstep.codec.values import Values, is_plain
from everstep.errors import StateCorrupted, ValueUnreadable
from everstep.graph.plan import Plan
from everstep.model.enums import Persist, ValueForm
from everstep.model.records import ArtifactRef, Written
from everstep.ports.store import CheckpointBlobStore

_GONE = object()
_DEFAULT = -1
_MUTABLE = (dict, list)
_SMALL = 64 * 1024
CONTENT_TYPE = "application/vnd.everstep.value"


class Slot:
    """The newest version of one value: its recorded bytes, and the live object while it may be handed out."""

    __slots__ = ("artifact", "cost", "is_frozen", "live", "parts", "shadow", "version", "whole")

    def __init__(
        self, version: int, parts: list[bytes], artifact: ArtifactRef | None, whole: Written | None
    ) -> None:
        self.version = version
        self.parts = parts
        """The payload (none for an artifact), then what later versions appended to it."""
        self.artifact = artifact
        self.whole = whole
        """How a keyframe names it, unless it has grown since it was written whole."""
        self.cost = 0
        """About how many bytes a keyframe would write for it."""
        self.live: Any = _GONE
        self.is_frozen = False
        self.shadow: Shadow | None = None

    @property
    def is_transient(self) -> bool:
        """True if no bytes of it are kept."""
        return self.whole is not None and self.whole.form is ValueForm.TRANSIENT


class Draft:
    """A value a step is about to write: recorded once the step is."""

    __slots__ = ("added", "is_frozen", "is_lent", "live", "payload", "shadow", "spill", "written")

    def __init__(self, written: Written, payload: bytes | None, live: Any) -> None:
        self.written = written
        self.payload = payload
        self.live = live
        self.is_frozen = False
        self.is_lent = False
        """True if the live object is the caller's own, which no node may change."""
        self.shadow: Shadow | None = None
        self.added: list[Any] | None = None
        """What it appends to the version before."""
        self.spill: bytes | None = None
        """Serialized bytes that are to be written aside."""


class ValueSpace:
    """The slots of one run."""

    def __init__(
        self, plan: Plan, values: Values, blobs: CheckpointBlobStore | None, blob_threshold: int
    ) -> None:
        self._plan = plan
        self._values = values
        self._blobs = blobs
        self._threshold = blob_threshold
        self.slots: dict[str, Slot] = {}
        self.size = 0
        """About how many bytes a keyframe of these values takes."""

    def draft(self, name: str, value: Any, where: str, persist: Persist = Persist.AUTO) -> Draft:
        """Encode a value. A large one still has to be written aside; a transient one is not touched."""
        previous = self.slots.get(name)
        version = 1 if previous is None else previous.version + 1
        if persist is not Persist.AUTO:
            return self._draft_as(persist, name, value, version, where)
        if type(value) is not list or name not in self._plan.rewritten:
            return self._draft_whole(name, value, version, where)
        if previous is not None and previous.shadow is not None:
            grown = self._draft_growth(name, value, version, previous.shadow)
            if grown is not None:
                return grown
        draft = self._draft_whole(name, value, version, where)
        if is_plain(value):
            draft.shadow = Shadow(value)
        return draft

    def _draft_as(self, persist: Persist, name: str, value: Any, version: int, where: str) -> Draft:
        if persist is Persist.NO:
            return Draft(Written(name, version, b"", 0, ValueForm.TRANSIENT), None, value)
        return self._draft_whole(name, value, version, where, 0 if persist is Persist.REF else None)

    def _draft_whole(
        self, name: str, value: Any, version: int, where: str, threshold: int | None = _DEFAULT
    ) -> Draft:
        data = self._values.encode(value, where)
        limit = self._threshold if threshold == _DEFAULT else threshold
        if limit is not None and len(data) > limit and self._blobs is not None:
            draft = Draft(Written(name, version, b"", len(data)), None, value)
            draft.spill = data
        else:
            draft = Draft(
                Written(name, version, hashlib.sha256(data).digest(), len(data)), HEADER + data, value
            )
        draft.is_frozen = type(value) not in _MUTABLE and self._values.is_frozen(value)
        return draft

    def _draft_growth(self, name: str, value: list[Any], version: int, shadow: Shadow) -> Draft | None:
        added = shadow.appended(value)
        if added is None or not is_plain(added):
            return None
        data = self._values.encode(added, name)
        if len(data) > self._threshold:
            return None
        written = Written(name, version, hashlib.sha256(data).digest(), len(data), ValueForm.APPEND)
        draft = Draft(written, HEADER + data, value)
        draft.shadow, draft.added = shadow, added
        return draft

    def write_aside(self, draft: Draft) -> None:
        """Keep the bytes of a large draft as an artifact. Must come before any record can name them."""
        if draft.spill is None or self._blobs is None:
            return
        ref = self._blobs.put_checkpoint_blob(HEADER, draft.spill, content_type=CONTENT_TYPE)
        old = draft.written
        draft.written = Written(old.name, old.version, bytes.fromhex(ref.checksum), old.size, artifact=ref)
        draft.spill = None

    def accept(self, draft: Draft) -> None:
        """Make a draft the newest version of its value."""
        written = draft.written
        slot = self.load(written, draft.payload)
        if draft.added is not None and draft.shadow is not None:
            draft.shadow.extend(draft.added)
        slot.shadow = draft.shadow
        if written.form is ValueForm.TRANSIENT:
            slot.live = draft.live
        elif draft.is_frozen:
            slot.live, slot.is_frozen = draft.live, True
        elif draft.is_lent:
            return
        elif written.name in self._plan.sole_reader or (
            written.name not in self._plan.readers and written.size < _SMALL
        ):
            slot.live = draft.live

    def load(self, written: Written, payload: bytes | None) -> Slot:
        """Take a recorded write into account, as when a chain is folded."""
        name = written.name
        previous = self.slots.get(name)
        if previous is not None:
            self.size -= previous.cost
        if written.form is ValueForm.APPEND:
            if previous is None or payload is None:
                raise StateCorrupted(f"value {name!r} appends to a version that is not there.")
            slot = Slot(written.version, previous.parts, previous.artifact, None)
            slot.parts.append(payload)
            first_growth = previous.whole is not None and previous.artifact is not None
            slot.cost = (
                previous.cost
                + len(payload)
                + (previous.artifact.size if first_growth and previous.artifact else 0)
            )
        else:
            slot = Slot(written.version, [] if payload is None else [payload], written.artifact, written)
            slot.cost = len(payload) if payload is not None else 0
        self.size += slot.cost
        self.slots[name] = slot
        return slot

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
        parts: Sequence[bytes] = slot.parts
        if slot.artifact is not None:
            parts = (self._fetch(name, slot.artifact), *slot.parts)
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
                payloads.append(slot.parts[0])
        return tuple(written), payloads

    def _merge(self, name: str, slot: Slot) -> Written:
        """Write a grown value whole again."""
        draft = self._draft_whole(name, self._decode(name, slot), slot.version, name)
        self.write_aside(draft)
        written = draft.written
        slot.whole = written
        slot.artifact = written.artifact
        slot.parts = [] if draft.payload is None else [draft.payload]
        self.size -= slot.cost
        slot.cost = len(draft.payload or b"")
        self.size += slot.cost
        return written
