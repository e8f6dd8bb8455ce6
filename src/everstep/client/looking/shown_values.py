"""Values of a run as people see them: cut, or as the bytes of a file. Nothing is read that is not shown."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from everstep.client.looking.cuts import (
    NODES,
    Range,
    ReadOnDemand,
    ValueCut,
    cannot_be_read,
    cut,
    data_url_of,
    member_at,
    mime_of,
    not_shown,
)
from everstep.client.views import OWN, RunState
from everstep.codec.plain_json import jsonable
from everstep.codec.tags import Unreadable
from everstep.errors import BadRequest, RunNotFound, ValueUnreadable
from everstep.model.shapes import Count
from everstep.ports.store import RunRow
from everstep.runtime.drive.values import Slot, ValueSpace, split_name
from everstep.runtime.history import stretch
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Version
from everstep.runtime.travel.recall import RecalledChain

MOST_VALUES = 200
"""How many values are listed at once."""
BRIEFLY = 50
"""How many parts of a value are shown among many."""
_FEW = 64
"""How many checkpoints are looked through for a version that was overwritten."""

T = TypeVar("T")


class RunValues(Struct, frozen=True, kw_only=True):
    """Values of a run at a checkpoint, each as far as it is shown."""

    run_id: str
    sequence: Count
    values: dict[str, ValueCut]
    """By whole name."""
    count: Count
    """How many there are; the first of them are listed."""


class RawValue(Struct, frozen=True, kw_only=True):
    """A value as a file."""

    data: bytes
    content_type: str
    is_image: bool
    """True if a browser may show it as what it is."""


def as_cut(found: object, version: Version) -> ValueCut:
    """Return a value that was seen by `cut_in`, under its name; or why it was not."""
    seen = found if isinstance(found, ValueCut) else cannot_be_read(_why(found))
    return replace(seen, name=version[0], version=version[1])


def _why(found: object) -> Unreadable | str:
    return found if isinstance(found, Unreadable) else "it is not there"


def cut_in(space: ValueSpace, name: str, prefix: str) -> ValueCut:
    """Return a value as far as it is shown; one that lies beside the records is not read for that."""
    slot = space.areas[prefix][name]
    if is_aside(slot):
        return not_shown("artifact", "it lies beside the records", size_of(slot))
    return _cut(space, name, prefix, "", Range())


def _in_brief(space: ValueSpace, name: str, prefix: str) -> ValueCut:
    """Return a value as it is shown among many."""
    if is_aside(space.areas[prefix][name]):
        return cut_in(space, name, prefix)
    return _cut(space, name, prefix, "", Range(), BRIEFLY)


def cutting(pointer: str, start: int, length: int | None) -> Callable[[ValueSpace, str, str], ValueCut]:
    """Return what gives the part of a value that is asked for, wherever it lies."""

    def see(space: ValueSpace, name: str, prefix: str) -> ValueCut:
        version = space.areas[prefix][name].written.version
        seen = _cut(space, name, prefix, pointer, Range(start, length))
        return replace(seen, name=prefix + name, version=version)

    return see


def _cut(
    space: ValueSpace, name: str, prefix: str, pointer: str, wanted: Range, most: int = NODES
) -> ValueCut:
    slot = space.areas[prefix][name]
    if slot.is_transient:
        return not_shown("not_kept", "it was not kept")
    size = size_of(slot)
    try:
        return cut(_seen(space, name, prefix, slot), pointer, wanted, size=size, most=most)
    except BadRequest:
        raise
    except Exception as error:  # whatever is wrong with one value, the others can be shown
        return cannot_be_read(error, size)


def _seen(space: ValueSpace, name: str, prefix: str, slot: Slot) -> Any:
    """Return a value; of what the items of a map wrote, each is read when it is looked at."""
    items = slot.items
    if items is None:
        return space.peek(name, prefix)
    return ReadOnDemand(len(items), lambda k: space.read(items[k]))


def is_aside(slot: Slot) -> bool:
    """True if a value, or a part of one, lies beside the records."""
    return slot.artifact is not None or any(is_aside(item) for item in slot.items or ())


def size_of(slot: Slot) -> int:
    """Return how many bytes of a value are kept."""
    if slot.items is not None:
        return sum(size_of(item) for item in slot.items)
    if slot.parts is not None:
        return sum(map(len, slot.parts)) + (slot.artifact.size if slot.artifact is not None else 0)
    return slot.written.size


def all_values(state: RunState) -> RunValues:
    """Return all values of a state that are not a run's own affair, as far as they are shown."""
    versions = {name: version for name, version in state.versions.items() if not name.startswith(OWN)}
    shown = dict(list(versions.items())[:MOST_VALUES])
    return RunValues(
        run_id=state.run_id,
        sequence=state.sequence,
        values={
            name: as_cut(state.seen(name, _in_brief), (name, version)) for name, version in shown.items()
        },
        count=len(versions),
    )


async def one_value(
    runs: RunReader,
    row: RunRow,
    at: int,
    wanted: tuple[str, int | None],
    see: Callable[[ValueSpace, str, str], T],
) -> T:
    """Return what `see` gives of one value at a checkpoint, or of a version that was overwritten lately.

    Raises if there is none, or it cannot be read for that.
    """
    whole, version = wanted
    folded = await runs.look_back(row.run_id, at)
    prefix, name = split_name(whole)
    slot = folded.space.areas.get(prefix, {}).get(name)
    if slot is not None and version in (None, slot.written.version):
        return see(folded.space, name, prefix)
    if version is not None:
        first = max(1, row.trimmed_before, at - _FEW + 1)
        chain = RecalledChain(runs, row.run_id, await stretch(runs, row, first, at))
        found: T | Unreadable = (await chain.values(at, [(whole, version)], see))[whole, version]
        if not isinstance(found, Unreadable):
            return found
    said = "" if version is None else f"version {version} of "
    raise RunNotFound(
        f"run {row.run_id!r} has no {said}{whole!r:.80} at checkpoint {at}.",
        fix="Name a value that it has there; of a version, give the checkpoint of a step that read it.",
    )


def raw_at(pointer: str) -> Callable[[ValueSpace, str, str], RawValue]:
    """Return what gives a part of a value as a file."""

    def see(space: ValueSpace, name: str, prefix: str) -> RawValue:
        if space.areas[prefix][name].is_transient:
            raise ValueUnreadable(f"value {name!r} was not kept.", fix="Fork the run to make it again.")
        return raw_of(member_at(space.peek(name, prefix), pointer))

    return see


def raw_of(value: Any) -> RawValue:
    """Return a value as a file: bytes as they are, a text, else JSON."""
    match value:
        case bytes() | bytearray() | memoryview():
            mime = mime_of(value)
            return RawValue(
                data=bytes(value), content_type=mime or "application/octet-stream", is_image=mime is not None
            )
        case str():
            image = _image_in(value)
            if image is not None:
                return image
            data = value.encode("utf-8", "backslashreplace")
            return RawValue(data=data, content_type="text/plain; charset=utf-8", is_image=False)
    text = json.dumps(jsonable(value), ensure_ascii=False, indent=2)
    data = text.encode("utf-8", "backslashreplace")
    return RawValue(data=data, content_type="application/json", is_image=False)


def _image_in(text: str) -> RawValue | None:
    """Return the image that a data URL holds; none if it holds none of those that are shown."""
    found = data_url_of(text)
    if found is None:
        return None
    try:
        data = base64.b64decode(found[1], validate=True)
    except binascii.Error:
        return None
    return RawValue(data=data, content_type=found[0], is_image=True) if mime_of(data) == found[0] else None
