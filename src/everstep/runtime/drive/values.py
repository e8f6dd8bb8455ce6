"""The values of a run in this process: what was recorded of each, and who may have the live object.

Nodes never share a mutable object. Every reader gets a fresh copy decoded from what was recorded; only if a
value is large may its only reader take the live object, once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from everstep.codec.growth import Shadow, copy_containers
from everstep.codec.payload import HEADER, body_of
from everstep.codec.values import Values, is_plain, plain_bytes
from everstep.engine.scope import Scope
from everstep.errors import StateCorrupted, StoreUnavailable, ValueNotStorable, ValueUnreadable
from everstep.model.durability import VALUE_BYTES
from everstep.model.enums import Persist, ValueForm
from everstep.model.records import ATTRIBUTE, CHANNEL, KEPT, STREAM, UNIT, ArtifactRef, Written
from everstep.ports.store import CheckpointBlobStore
from everstep.runtime.outage.store_retry import outage, patiently
from everstep.runtime.services import Services

log = logging.getLogger("everstep")
_GONE = object()
_CHANGES = frozenset({ValueForm.APPEND, ValueForm.PREPEND, ValueForm.ADD})
_WHOLE, _TRANSIENT = ValueForm.WHOLE, ValueForm.TRANSIENT
_AUTO, _NO = Persist.AUTO, Persist.NO
_MUTABLE = (dict, list)
_OF_VISITS = (STREAM, UNIT)
"""What the names begin with of what is kept only while a visit is under way."""
LIVE_FROM = 64 * 1024
"""From this size on, the only reader of a value is given the object itself, not a copy."""
CONTENT_TYPE = "application/vnd.everstep.value"


class Slot(msgspec.Struct, eq=False, gc=False):
    """One version of a value: its recorded bytes, and the live object while it may be handed out.

    A step's outputs are drafts until the step is recorded; then they take their place in the space. A value
    knows nothing of its slot, so the garbage collector need not look at any.
    """

    written: Written
    payload: bytes | None
    """What travels with the record: the value, or what it appends; none for an artifact."""
    live: Any
    whole: Written | None
    """How a keyframe names it, unless it has grown since it was written whole."""
    cost: int
    """About how many bytes a keyframe would write for it."""
    is_frozen: bool = False
    is_lent: bool = False
    """True if the live object is the caller's own, which no node may change."""
    artifact: ArtifactRef | None = None
    parts: list[bytes] | None = None
    """The payloads it was put together from, once it has grown."""
    items: list[Slot] | None = None
    """What a map's items wrote, for a list that was never written as one."""
    shadow: Shadow | None = None
    added: list[Any] | None = None
    """What it appends to the version before."""
    spill: bytes | None = None
    """Serialized bytes that are still to be written aside."""

    @property
    def is_transient(self) -> bool:
        """True if no bytes of it are kept."""
        return self.written.form is ValueForm.TRANSIENT

    def digest(self) -> bytes:
        """Return a digest that covers the whole value, also if it has grown or was gathered."""
        if self.items is not None:
            return sha256(b"".join(item.digest() for item in self.items)).digest()
        if self.parts is None:
            return self.written.digest
        start = bytes.fromhex(self.artifact.checksum) if self.artifact is not None else b""
        return sha256(start + b"".join(self.parts)).digest()

    def alias(self, written: Written, *, moves_live: bool) -> Slot:
        """Return the same value under another name. The live object goes along if nothing else holds it."""
        twin = slot_of(written, self.payload)
        twin.artifact, twin.items, twin.cost = self.artifact, self.items, self.cost
        twin.parts = None if self.parts is None else list(self.parts)
        twin.is_frozen, twin.is_lent = self.is_frozen, self.is_lent
        twin.whole = None
        if self.whole is not None:
            old = self.whole
            twin.whole = Written(written.name, written.version, old.digest, old.size, artifact=old.artifact)
        if self.is_frozen or self.is_transient:
            twin.live = self.live
        elif moves_live:
            twin.live, self.live = self.live, _GONE
        return twin


def slot_of(written: Written, payload: bytes | None, live: Any = _GONE) -> Slot:
    """Return the slot of a value as it was written."""
    cost = 0 if payload is None else len(payload)
    return Slot(written, payload, live, written, cost, artifact=written.artifact)


Area = dict[str, Slot]


class ValueOutOfReach(StoreUnavailable):
    """A value that lies beside the records could not be read now. No node is to blame that wanted it."""

    def __init__(self, error: StoreUnavailable, space: ValueSpace, read_again: Callable[[], object]) -> None:
        super().__init__(error.message, fix=error.fix, **error.details)
        self.space = space
        self.read_again = read_again


class ValueSpace:
    """The slots of one run."""

    def __init__(
        self,
        values: Values,
        blobs: CheckpointBlobStore | None,
        blob_threshold: int,
        *,
        keeps: bool = True,
    ) -> None:
        self._values = values
        self.keeps = keeps
        """False if nothing of the run is recorded: then there are only objects, and nothing is encoded."""
        self._blobs = blobs
        self._threshold = blob_threshold
        self._told: set[str] = set()
        """Large values that stay in the records, of which was told."""
        self.slots: Area = {}
        """The values of the run's own flow."""
        self.areas: dict[str, Area] = {"": self.slots}
        """All values: those of inner flows, the channel and queued tasks by what their names begin with."""
        self.hidden: set[str] = set()
        """The areas of atomic flows, of which nothing is kept."""
        self.size = 0
        """About how many bytes a keyframe of these values takes."""
        self.under_way: set[str] = set()
        """What the names begin with of what visits under way have streamed, and of their durable calls."""
        self.lists: dict[str, tuple[list[Any], ...]] = {}
        """What open maps go over, decoded once, by what the names of their values begin with."""
        self.was_out_of_reach = False
        """True if a value that lies aside could not be read at some time."""

    def area(self, prefix: str) -> Area:
        """Return the values of a flow, by local name."""
        found = self.areas.get(prefix)
        if found is None:
            found = self.areas[prefix] = {}
        return found

    @property
    def has_channel_elsewhere(self) -> bool:
        """True if the channel is not kept in the chain of the run."""
        return "channel" in self.areas.get(KEPT, {})

    def clear(self) -> None:
        """Forget everything."""
        self.slots = {}
        self.areas, self.hidden, self.size = {"": self.slots}, set(), 0
        self.under_way.clear()
        self.lists.clear()

    def drop(self, prefix: str) -> None:
        """Forget the values of a flow that is done with."""
        for slot in self.areas.pop(prefix, {}).values():
            self.size -= slot.cost
        self.hidden.discard(prefix)
        if self.under_way:
            self.under_way.discard(prefix)

    def remove(self, prefix: str, name: str) -> None:
        """Forget one value."""
        slot = self.areas[prefix].pop(name, None)
        if slot is not None:
            self.size -= slot.cost

    def rename(self, where: Callable[[str, str], tuple[str, str] | None]) -> None:
        """Let values be called what `where` says of what their names begin with and their local names."""
        moved: dict[str, Area] = {"": {}}
        for prefix, area in self.areas.items():
            for name, slot in area.items():
                place = where(prefix, name)
                if place is None:
                    self.size -= slot.cost
                    continue
                slot.written = _renamed(slot.written, _like(slot.written.name, name, place[1]))
                if slot.whole is not None:
                    slot.whole = _renamed(slot.whole, _like(slot.whole.name, name, place[1]))
                moved.setdefault(place[0], {})[place[1]] = slot
        self.hidden = {p for p in self.hidden if p in moved}
        self.areas, self.slots = moved, moved[""]
        self.under_way = {p for p in moved if p.startswith(_OF_VISITS)}
        self.lists.clear()

    def draft(
        self, scope: Scope, name: str, value: Any, persist: Persist = Persist.AUTO, *, is_kept: bool = False
    ) -> Slot:
        """Encode a value. A large one still has to be written aside; a transient one is not touched."""
        area = self.areas.get(scope.prefix)
        previous = area.get(name) if area is not None else None
        version = 1 if previous is None else previous.written.version + 1
        if persist is _NO or not self.keeps or (scope.is_hidden and not is_kept):
            return self.unkept(name, version, value)
        if persist is _AUTO:
            if type(value) is list and name in scope.plan.rewritten:
                return self._draft_list(name, value, version, None if is_kept else previous)
            return self._draft_whole(name, value, version, self._threshold)
        is_ref = persist is Persist.REF and self._blobs is not None
        return self._draft_whole(name, value, version, 0 if is_ref else None)

    def _draft_whole(self, name: str, value: Any, version: int, threshold: int | None) -> Slot:
        data = self._values.encode(value, name)
        size = len(data)
        is_frozen = type(value) not in _MUTABLE and self._values.is_frozen(value)
        if size > (VALUE_BYTES if threshold is None else threshold) and self._goes_aside(name, size):
            written = Written(name, version, b"", size)
            return Slot(written, None, value, written, 0, is_frozen, spill=data)
        written = Written(name, version, sha256(data).digest(), size)
        payload = HEADER + data
        # A copy of a small value is cheap, and nothing else can hold it: no node, no module's variable.
        live = value if is_frozen or size >= LIVE_FROM else _GONE
        return Slot(written, payload, live, written, len(payload), is_frozen)

    def _goes_aside(self, name: str, size: int) -> bool:
        """Say whether a large value becomes an artifact; where there is no place for them, warn once."""
        if self._blobs is not None:
            return True
        if size > VALUE_BYTES:
            raise ValueNotStorable(
                f"{name!r} has {size:,} bytes, more than a record takes.",
                fix="Use a store that keeps artifacts, or keep it in a place of your own.",
            )
        if name not in self._told:
            self._told.add(name)
            log.warning(
                "%r has %s bytes and stays in the records: this host has no place for artifacts. Give it one "
                "with Host(blobs=...) or EVERSTEP_BLOBS.",
                name,
                f"{size:,}",
            )
        return False

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
        data = None if added is None else plain_bytes(added)
        if data is None or (self._blobs is not None and len(data) > self._threshold):
            return None
        written = Written(name, version, sha256(data).digest(), len(data), ValueForm.APPEND)
        draft = slot_of(written, HEADER + data, value)
        draft.shadow, draft.added = shadow, added
        return draft

    def change(self, name: str, version: int, value: Any, form: ValueForm) -> Slot:
        """Encode a value of the channel or of a task, or what is to be done to it."""
        if form is ValueForm.DELETED:
            return slot_of(Written(name, version, b"", 0, form), None)
        if not self.keeps:
            return self.unkept(name, version, value)
        slot = self._draft_whole(name, value, version, self._threshold if form is ValueForm.WHOLE else None)
        if form is not ValueForm.WHOLE:
            old = slot.written
            slot.written = Written(name, version, old.digest, old.size, form)
        slot.live, slot.is_frozen = _GONE, False
        return slot

    def foresee(self, change: Slot, value: Any) -> None:
        """Note what a change makes of the version before it, which then need not be read once more."""
        change.parts = [HEADER + self._values.encode(value, change.written.name)]

    def part(self, name: str, version: int, items: list[Any]) -> Slot:
        """Encode what is added to a list, or the list itself as its first version. Touches nothing here."""
        data = self._values.encode(items, name)
        form = ValueForm.WHOLE if version == 1 else ValueForm.APPEND
        return slot_of(Written(name, version, sha256(data).digest(), len(data), form), HEADER + data)

    def unkept(self, name: str, version: int, value: Any) -> Slot:
        """Return a value of which no bytes are kept."""
        return slot_of(Written(name, version, b"", 0, ValueForm.TRANSIENT), None, value)

    def read(self, slot: Slot) -> Any:
        """Return what is in a slot."""
        return self._decode(slot.written.name, slot)

    def encoded(self, name: str, value: Any) -> Slot:
        """Return a value in a slot of its own, as its first version."""
        slot = self._draft_whole(name, value, 1, None)
        slot.is_lent = True
        if not slot.is_frozen:
            slot.live = _GONE
        return slot

    def write_aside(self, draft: Slot) -> None:
        """Keep the bytes of a large draft as an artifact. Must come before any record can name them."""
        if draft.spill is None or self._blobs is None:
            return
        draft.artifact = self._blobs.put_checkpoint_blob(HEADER, draft.spill, content_type=CONTENT_TYPE)
        digest = bytes.fromhex(draft.artifact.checksum)
        draft.written = msgspec.structs.replace(draft.written, digest=digest, artifact=draft.artifact)
        draft.whole = draft.written
        draft.spill = None

    @property
    def has_aside(self) -> bool:
        """True if values can be kept beside the records."""
        return self._blobs is not None

    def fit(self, drafts: Iterable[Slot], limit: int) -> None:
        """Mark the largest values of one step to be written aside, if they are too much for a record."""
        over = sum(draft.cost for draft in drafts) - limit
        if over <= 0 or self._blobs is None:
            return
        for draft in sorted(drafts, key=lambda draft: draft.cost, reverse=True):
            if over > 0 and draft.payload is not None and draft.written.form is ValueForm.WHOLE:
                over -= draft.cost
                draft.spill, draft.cost = bytes(body_of(draft.payload, draft.written.name)), 0
                draft.payload = None

    def make_room(self, limit: int) -> bool:
        """Write the largest values aside, so that a keyframe of them all does not outgrow a store."""
        if self._blobs is None:
            return False
        held: dict[int, list[Slot]] = {}
        for prefix, area in self.areas.items():
            for slot in area.values() if prefix not in self.hidden else ():
                if slot.payload is not None and slot.whole is not None and slot.parts is None:
                    held.setdefault(id(slot.payload), []).append(slot)
        known = sorted(held.values(), key=lambda slots: slots[0].cost, reverse=True)
        over = sum(slots[0].cost for slots in known) - limit
        for slots in known:
            if over <= 0:
                break
            over -= slots[0].cost
            self._move_aside(slots)
        return True

    def _move_aside(self, slots: list[Slot]) -> None:
        """Keep a value that is in its place already, under one or more names, as an artifact."""
        assert self._blobs is not None and slots[0].payload is not None
        data = bytes(body_of(slots[0].payload, slots[0].written.name))
        artifact = self._blobs.put_checkpoint_blob(HEADER, data, content_type=CONTENT_TYPE)
        for slot in slots:
            assert slot.whole is not None
            slot.artifact, slot.payload = artifact, None
            slot.whole = msgspec.structs.replace(slot.whole, form=ValueForm.WHOLE, artifact=artifact)
            self.size -= slot.cost
            slot.cost = 0

    def accept(self, scope: Scope, draft: Slot) -> None:
        """Make a draft the newest version of its value."""
        written = draft.written
        name, form = written.name, written.form
        area = self.areas.get(scope.prefix)
        if form is _WHOLE and area is not None and "/" not in name:
            previous = area.get(name)
            self.size += draft.cost if previous is None else draft.cost - previous.cost
            area[name] = draft
        else:
            self.place(scope.prefix, name, draft)
            if draft.added is not None and draft.shadow is not None:
                draft.shadow.extend(draft.added)
                draft.added = None
        if draft.live is _GONE or draft.is_frozen or form is _TRANSIENT:
            return
        is_small = written.size < LIVE_FROM and draft.cost < LIVE_FROM
        if is_small or draft.is_lent or name not in scope.plan.sole_reader:
            draft.live = _GONE

    def place(self, prefix: str, name: str, slot: Slot) -> None:
        """Put a slot where a record says; a name of the channel or of a task says it by itself."""
        if name[0] == "@" or "/" in name:
            prefix, name = split_name(name)
            is_whole = prefix in (CHANNEL, ATTRIBUTE)
            slot.written = _renamed(slot.written, prefix + name if is_whole else name)
            if prefix.startswith(_OF_VISITS):
                self.under_way.add(prefix)
        area = self.areas.get(prefix)
        if area is None:
            area = self.areas[prefix] = {}
        previous = area.get(name)
        if previous is not None:
            self.size -= previous.cost
        form = slot.written.form
        if form is not ValueForm.WHOLE:
            if form is ValueForm.DELETED:
                area.pop(name, None)
                return
            if form in _CHANGES:
                self._change(slot, previous)
        self.size += slot.cost
        area[name] = slot

    def _change(self, slot: Slot, previous: Slot | None) -> None:
        """Put a version that says only what changed on top of the one before it."""
        if slot.written.form is ValueForm.APPEND:
            _grow(slot, previous)
            return
        if slot.parts is None or previous is None or slot.written.version != previous.written.version + 1:
            slot.parts = [self._changed(slot, previous)]
        slot.artifact = slot.whole = None
        slot.cost = len(slot.parts[0])

    def _changed(self, slot: Slot, previous: Slot | None) -> bytes:
        name = slot.written.name
        assert slot.payload is not None
        change = self._values.decode(body_of(slot.payload, name), name)
        old = None if previous is None else self._decode(name, previous)
        new: Any = change + (old or 0) if slot.written.form is ValueForm.ADD else [*change, *(old or ())]
        return HEADER + self._values.encode(new, name)

    def take(self, scope: Scope, name: str, is_first_attempt: bool) -> Any:
        """Return a value for a node to read."""
        slot = self.areas[scope.prefix][name]
        live = slot.live
        if live is not _GONE:
            if slot.is_frozen:
                return live
            if slot.written.form is ValueForm.TRANSIENT:
                # Where nothing is encoded, containers are copied as they are.
                is_copied = type(live) in _MUTABLE and (scope.is_hidden or not self.keeps)
                return copy_containers(live) if is_copied else live
            if is_first_attempt and name in scope.plan.sole_reader:
                slot.live = _GONE
                return live
        value = self._decode(name, slot)
        if name in scope.plan.rewritten and slot.shadow is None and type(value) is list and is_plain(value):
            slot.shadow = Shadow(value)
        return value

    def is_missed(self, name: str, prefix: str = "") -> bool:
        """True for a transient value that this process has not made."""
        return _is_missed(self.areas[prefix][name])

    def make_up(self, name: str, value: Any, prefix: str = "") -> None:
        """Put a transient value in place again; it is the version that was missed, not a newer one."""
        self.areas[prefix][name].live = value

    def peek(self, name: str, prefix: str = "") -> Any:
        """Return a copy of a value that its reader may keep; a transient one is there only once."""
        slot = self.areas[prefix][name]
        is_shared = slot.live is not _GONE and (slot.is_frozen or slot.is_transient)
        if is_shared and not self.keeps and type(slot.live) in _MUTABLE:
            return copy_containers(slot.live)
        return slot.live if is_shared else self._decode(name, slot)

    def final(self, name: str, prefix: str = "") -> Any:
        """Return a value after the run has ended: the live object if it was not handed out."""
        slot = self.areas[prefix][name]
        live = slot.live
        if live is _GONE:
            return self._decode(name, slot)
        if not slot.is_frozen and not slot.is_transient:
            slot.live = _GONE
        return live

    def _decode(self, name: str, slot: Slot) -> Any:
        payload = slot.payload
        if payload is not None and slot.whole is not None:
            return self._values.decode(body_of(payload, name), name)
        return self._put_together(name, slot)

    def _put_together(self, name: str, slot: Slot) -> Any:
        """Return a value that lies in several parts, beside the records, or nowhere."""
        if slot.written.form is ValueForm.TRANSIENT:
            fix = 'Its node says persist="no", or cannot be checkpointed.'
            raise ValueUnreadable(f"value {name!r} was not kept.", fix=fix)
        if slot.items is not None:
            items = slot.items
            return [
                i.live if i.is_transient and i.live is not _GONE else self._decode(name, i) for i in items
            ]
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
        try:
            stored = self._blobs.get_checkpoint_blob(ref)
        except StoreUnavailable as error:
            self.was_out_of_reach = True
            raise ValueOutOfReach(error, self, partial(self._fetch, name, ref)) from error
        if len(stored) < len(HEADER) or sha256(body_of(stored, name)).hexdigest() != ref.checksum:
            raise StateCorrupted(f"the artifact of value {name!r} was altered: {ref.key}.")
        return stored

    def snapshot(self) -> tuple[tuple[Written, ...], list[bytes]]:
        """Return every value whole, for a keyframe, with the inline payloads in the same order."""
        written: list[Written] = []
        payloads: list[bytes] = []
        twins: dict[int, str] = {}
        for prefix, area in self.areas.items():
            if prefix in self.hidden:
                continue
            for name, slot in area.items():
                whole, payload = slot.whole, slot.payload
                if whole is None or payload is None or prefix:
                    self._snapshot(prefix + name, name, slot, written, payloads, twins)
                else:
                    written.append(whole)
                    payloads.append(payload)
                    if len(self.areas) > 1:
                        twins[id(payload)] = name
        return tuple(written), payloads

    def _snapshot(
        self,
        full: str,
        name: str,
        slot: Slot,
        written: list[Written],
        payloads: list[bytes],
        twins: dict[int, str],
    ) -> None:
        """Add one value to a keyframe. What is known under two names is written once."""
        if slot.items is not None and any(i.artifact is not None or i.is_transient for i in slot.items):
            # What lies elsewhere, or nowhere, is not gathered: a list names each. Nothing else names an item.
            for k, item in enumerate(slot.items):
                self._snapshot(f"{full}#{k}", name, item, written, payloads, {})
            old = slot.written
            written.append(Written(full, old.version, old.digest, len(slot.items), ValueForm.LIFTED))
            return
        whole = slot.whole or self._merge(name, slot)
        twin = twins.setdefault(id(slot.payload), full) if slot.payload is not None else full
        if twin != full:
            written.append(
                Written(full, whole.version, whole.digest, whole.size, ValueForm.LIFTED, None, twin)
            )
            return
        if whole.name != full:
            whole = Written(
                full,
                whole.version,
                whole.digest,
                whole.size,
                whole.form,
                whole.artifact,
                "",
                whole.expires_at,
            )
        written.append(whole)
        if whole.is_inline:
            assert slot.payload is not None
            payloads.append(slot.payload)

    def restore(self, written: Iterable[Written], payloads: Iterator[bytes]) -> None:
        """Become the values that a keyframe holds."""
        made: dict[str, Slot] = {}
        for write in written:
            payload = next(payloads) if write.is_inline else None
            prefix, name = split_name(write.name)
            slot = slot_of(_renamed(write, name), payload)
            if write.source:
                slot = made[write.source].alias(slot.written, moves_live=False)
            elif write.form is ValueForm.LIFTED:
                slot.items = [made[f"{write.name}#{k}"] for k in range(write.size)]
                slot.whole = None
                slot.cost = sum(item.cost for item in slot.items)
            made[write.name] = slot
            if "#" in name and prefix[:1] != "@":  # an item of a list that is still to come
                continue
            self.area(prefix)[name] = slot
            self.size += slot.cost
        self.under_way = {prefix for prefix in self.areas if prefix.startswith(_OF_VISITS)}

    def _merge(self, name: str, slot: Slot) -> Written:
        """Write a grown value whole again."""
        merged = self._draft_whole(name, self._decode(name, slot), slot.written.version, self._threshold)
        self.write_aside(merged)
        whole, expires_at = merged.written, slot.written.expires_at
        if expires_at is not None:
            whole = msgspec.structs.replace(whole, expires_at=expires_at)
        slot.written = slot.whole = whole
        slot.payload, slot.artifact, slot.parts, slot.items = merged.payload, merged.artifact, None, None
        self.size += merged.cost - slot.cost
        slot.cost = merged.cost
        return whole


def out_of_reach(error: BaseException, space: ValueSpace) -> ValueOutOfReach | None:
    """Return the read of a value of this run that failed, if that is what an exception comes of."""
    behind, seen = [error], set[int]()
    while behind:
        each = behind.pop()
        if isinstance(each, ValueOutOfReach) and each.space is space:
            return each
        if id(each) not in seen:
            seen.add(id(each))
            before = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
            group = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            behind += [*group, before] if before is not None else group
    return None


def _is_missed(slot: Slot) -> bool:
    if slot.items is not None:
        return any(_is_missed(item) for item in slot.items)
    return slot.is_transient and slot.live is _GONE


def split_name(full: str) -> tuple[str, str]:
    """Return what a whole name begins with and the local name: `rag#7/` and `docs`, `@channel/` and a key."""
    if full.startswith(CHANNEL):
        return CHANNEL, full[len(CHANNEL) :]
    cut = full.rfind("/") + 1
    return full[:cut], full[cut:]


def _like(full: str, old: str, new: str) -> str:
    """Return a name that ends in a local name, with that local name replaced."""
    return full if old == new else full.removesuffix(old) + new


def _renamed(written: Written, name: str) -> Written:
    return written if written.name == name else msgspec.structs.replace(written, name=name)


def _grow(slot: Slot, previous: Slot | None) -> None:
    """Put a version that only appends on top of the one before it."""
    if previous is None or slot.payload is None:
        raise StateCorrupted(f"value {slot.written.name!r} appends to a version that is not there.")
    parts = previous.parts
    slot.cost += previous.cost
    if parts is None:
        parts = [] if previous.payload is None else [previous.payload]
        if previous.items is not None:
            raise StateCorrupted(f"value {slot.written.name!r} appends to a list that was never written.")
        slot.cost += previous.artifact.size if previous.artifact is not None else 0
    parts.append(slot.payload)
    slot.parts, slot.artifact, slot.whole = parts, previous.artifact, None


Hold = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


async def write_aside(
    services: Services,
    space: ValueSpace,
    draft: Slot,
    *,
    is_alone: bool = True,
    persist: Hold | None = None,
) -> None:
    """Keep a large draft as an artifact: here if nothing else waits for this thread, else on another.

    `persist` is how long what a step has made is held for a store that cannot take it.
    """

    async def write() -> None:
        if is_alone:
            space.write_aside(draft)
        else:
            await asyncio.get_running_loop().run_in_executor(services.pool, space.write_aside, draft)

    if persist is None:
        await patiently(services.clock, write, outage(services.store))
    else:
        await persist(write)
