"""Values cut for people: some levels, some members of each, the beginning of each text, the way to the rest.

What is behind a cut is asked for by a pointer as JSON has it (`/lines/3/price`, `~1` for a slash, `~0` for a
tilde) and a range. A member whose key is no text, and one of a set, is named by its place: `~23` is the
fourth.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from everstep.codec.classes import KINDS, Stored
from everstep.codec.frames import array_way, frame_way
from everstep.codec.plain_json import jsonable, safe_repr, spelled_out
from everstep.codec.tags import Refused, Unreadable
from everstep.errors import BadRequest, KeyUnavailable, ValueLeftOut
from everstep.model.shapes import Count

CHILDREN: Final = 100
"""How many members of a level are shown."""
LEAF: Final = 2000
"""How many characters of a text are shown."""
NODES: Final = 600
"""How many parts of a value are shown in all."""
DEEPEST: Final = 12
"""How many levels are shown."""
MOST_CHILDREN: Final = 1000
"""How many members may be asked for at once."""
MOST_TEXT: Final = 100_000
"""How many characters may."""

CutState = Literal["ok", "unreadable", "encrypted", "redacted", "removed", "not_kept", "artifact"]
CutShape = Literal["image", "table", "chat"]

_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_DATA_URL: Final = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,")
_SAMPLE: Final = 20
"""How many members are looked at to see whether they are rows or messages."""
_ROLES: Final = frozenset({"user", "assistant", "system", "tool", "developer", "function", "human", "ai"})


class CutChild(Struct, frozen=True, kw_only=True):
    """One member of a value."""

    key: str
    """As it is written: the name of a field, a key, the place in a list."""
    cut: ValueCut


class ValueCut(Struct, frozen=True, kw_only=True):
    """A value as far as it is shown."""

    type: str
    state: CutState
    """Anything but `ok` says why the value is not shown; of an artifact, that it was not read for this."""
    value: bool | int | float | str | UnsetType | None = UNSET
    """Of null, a flag, a number or a text: itself, a text as far as it is shown."""
    text: str | UnsetType = UNSET
    """What anything else without members is written as; of what cannot be read, why."""
    children: list[CutChild] | UnsetType = UNSET
    """Of what has members: those that are shown."""
    count: Count | UnsetType = UNSET
    """How many members it has, characters of a text, or bytes."""
    start: Count | UnsetType = UNSET
    """The place of the first that is shown, if that is not the first of all."""
    name: str | UnsetType = UNSET
    """Of a whole value: its whole name in the run."""
    version: Count | UnsetType = UNSET
    size: Count | UnsetType = UNSET
    """Of a whole value: how many bytes of it are stored."""
    pointer: str
    """Where it is inside the whole value; empty for the whole."""
    is_cut: bool
    """True if not all of it is shown."""
    mime: str | UnsetType = UNSET
    """Of an image."""
    shape: CutShape | UnsetType = UNSET
    columns: list[str] | UnsetType = UNSET
    """Of a table."""


class ReadOnDemand:
    """A list whose items are read one by one, when they are shown."""

    def __init__(self, count: int, read: Callable[[int], Any]) -> None:
        self._count, self._read = count, read

    def __len__(self) -> int:
        return self._count

    def items(self, span: slice) -> Iterator[Any]:
        """Yield the items of a range; what stands for one that cannot be read says why."""
        for k in range(*span.indices(self._count)):
            try:
                yield self._read(k)
            except Exception as error:  # whatever is wrong with one item, the others can be shown
                yield Unreadable(error)


class Range(NamedTuple):
    """Which members of a value, or characters of a text, are wanted."""

    start: int = 0
    length: int | None = None

    def of(self, default: int, most: int) -> slice:
        """Return the range, of a usual length and never longer than the longest."""
        return slice(self.start, self.start + min(self.length or default, most))


class _Members(NamedTuple):
    """What is inside a value."""

    total: int
    pick: Callable[[slice], Iterable[tuple[str, str, Any]]]
    """Gives members of a range: the key as it is shown, as it stands in a pointer, and the member."""
    columns: list[str] | None = None


def cut(
    value: Any,
    pointer: str = "",
    wanted: Range | None = None,
    *,
    size: int | None = None,
    most: int = NODES,
) -> ValueCut:
    """Return a value as far as it is shown, or the part that a pointer leads to; so many parts at most."""
    return _Cutting(most).whole(member_at(value, pointer), pointer, wanted or Range(), size)


def not_shown(state: CutState, text: str, size: int | None = None) -> ValueCut:
    """Return what stands for a value that is not shown."""
    stored = UNSET if size is None else size
    return ValueCut(type="", state=state, text=text, pointer="", is_cut=True, size=stored)


def cannot_be_read(why: Unreadable | BaseException | str, size: int | None = None) -> ValueCut:
    """Return what stands for a value that cannot be read."""
    state: CutState = "unreadable"
    if isinstance(why, KeyUnavailable):
        state = "encrypted"
    elif isinstance(why, ValueLeftOut):
        state = "redacted"
    if isinstance(why, BaseException):
        why = Unreadable(why)
    text = why if isinstance(why, str) else why.why
    return not_shown(state, text[:LEAF], size)


def member_at(value: Any, pointer: str) -> Any:
    """Return the part of a value that a pointer leads to."""
    if pointer == "":
        return value
    if pointer[0] != "/":
        raise _nowhere(pointer)
    for step in pointer[1:].split("/"):
        value = _member(value, step, pointer)
    return value


def _member(value: Any, step: str, pointer: str) -> Any:
    members = _members(value)
    if members is None:
        raise _nowhere(pointer)
    place = step.removeprefix("~2") if step.startswith("~2") else None
    if place is None and isinstance(value, Mapping):
        key = step.replace("~1", "/").replace("~0", "~")
        if key in value:
            return value[key]
        raise _nowhere(pointer)
    number = place if place is not None else step
    if number.isdecimal() and len(number) < 12:
        found = list(members.pick(slice(int(number), int(number) + 1)))
        if found and (found[0][1] == step or place is not None):
            return found[0][2]
    for _, spelled, member in members.pick(slice(0, members.total)):
        if spelled == step:
            return member
    raise _nowhere(pointer)


def _nowhere(pointer: str) -> BadRequest:
    return BadRequest(
        f"there is nothing at {pointer!r:.80} in this value.", fix="Use a pointer that was given for it."
    )


class _ToCut(NamedTuple):
    """A member that is still to be cut, and the list of those that it stands among."""

    beside: list[CutChild]
    key: str
    pointer: str
    value: Any
    depth: int


class _Cutting:
    """Goes through a value level by level, so that what is near the top is shown first."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._todo: deque[_ToCut] = deque()

    def whole(self, value: Any, pointer: str, wanted: Range, size: int | None) -> ValueCut:
        self._left = max(self._left, min(wanted.length or 0, MOST_CHILDREN))
        top = self._one(value, pointer, wanted, 0)
        while self._todo:
            # What it is in is cut already: the list of its members is filled in place.
            one = self._todo.popleft()
            one.beside.append(
                CutChild(key=one.key, cut=self._one(one.value, one.pointer, Range(), one.depth))
            )
        return top if size is None else msgspec.structs.replace(top, size=size)

    def _one(self, value: Any, pointer: str, wanted: Range, depth: int) -> ValueCut:
        leaf = _leaf(value, pointer, wanted)
        if leaf is not None:
            return leaf
        members = _members(value)
        if members is None:
            return _text(type_of(value), _written(value), pointer, wanted)
        span = wanted.of(CHILDREN, MOST_CHILDREN)
        room = self._left if depth < DEEPEST else 0
        children: list[CutChild] = []
        picked = list(members.pick(slice(span.start, min(span.stop, span.start + room))))
        self._left -= len(picked)
        for key, spelled, member in picked:
            self._todo.append(_ToCut(children, key, f"{pointer}/{spelled}", member, depth + 1))
        shape, columns = _shape_of(value, members)
        return ValueCut(
            type=type_of(value),
            state="ok",
            children=children,
            count=members.total,
            start=span.start or UNSET,
            pointer=pointer,
            is_cut=len(picked) < members.total,
            shape=shape,
            columns=columns,
        )


def _leaf(value: Any, pointer: str, wanted: Range) -> ValueCut | None:
    """Return what has no members; none if it has."""
    match value:
        case Unreadable():
            told = cannot_be_read(value)
            return msgspec.structs.replace(told, pointer=pointer)
        case None | bool():
            return _plain(value, pointer)
        case Enum():
            return _text(type_of(value), value.name, pointer, wanted)
        case int() if type(value) is int:
            shown = jsonable(value)
            if isinstance(shown, int):
                return _plain(shown, pointer)
            return _text("int", hex(value), pointer, wanted)
        case float() if type(value) is float:
            shown = jsonable(value)
            return (
                _plain(shown, pointer)
                if isinstance(shown, float)
                else _text("float", repr(value), pointer, wanted)
            )
        case str() if type(value) is str:
            span = wanted.of(LEAF, MOST_TEXT)
            part = spelled_out(value[span])
            image = _DATA_URL.match(value)
            return ValueCut(
                type="str",
                state="ok",
                value=part,
                count=len(value),
                start=span.start or UNSET,
                pointer=pointer,
                is_cut=span.start > 0 or len(value) > span.stop,
                mime=image[1] if image else UNSET,
                shape="image" if image else UNSET,
            )
        case bytes() | bytearray() | memoryview():
            mime = mime_of(value)
            span = wanted.of(LEAF // 4, MOST_TEXT // 4)
            return ValueCut(
                type=type(value).__name__,
                state="ok",
                text=bytes(value[span]).hex(" ") if mime is None else "",
                count=len(value),
                start=span.start or UNSET,
                pointer=pointer,
                is_cut=mime is not None or span.start > 0 or len(value) > span.stop,
                mime=mime or UNSET,
                shape=UNSET if mime is None else "image",
            )
    return None


def _plain(value: Any, pointer: str) -> ValueCut:
    kind = "None" if value is None else type(value).__name__
    return ValueCut(type=kind, state="ok", value=value, pointer=pointer, is_cut=False)


def _text(kind: str, text: str, pointer: str, wanted: Range) -> ValueCut:
    span = wanted.of(LEAF, MOST_TEXT)
    return ValueCut(
        type=kind,
        state="ok",
        text=spelled_out(text[span]),
        count=len(text),
        start=span.start or UNSET,
        pointer=pointer,
        is_cut=span.start > 0 or len(text) > span.stop,
    )


def _written(value: Any) -> str:
    """Return what is written for something without members: a time in ISO 8601, what JSON has no form for."""
    shown = jsonable(value)
    text = shown.get("text") if isinstance(shown, dict) else shown
    return text if isinstance(text, str) else safe_repr(value)


def mime_of(value: Any) -> str | None:
    """Return what kind of image some bytes are, if they are one that a browser shows as nothing else."""
    head = bytes(value[:16])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _IMAGES if head.startswith(magic)), None)


def data_url_of(text: str) -> tuple[str, str] | None:
    """Return the kind and the base64 of the image in a data URL; none of another text."""
    found = _DATA_URL.match(text)
    return None if found is None else (found[1], text[found.end() :])


def type_of(value: Any) -> str:
    """Return what a value is called: a built-in type by its name, a class with its module."""
    if isinstance(value, Stored):
        return value.type_name.replace(":", ".")
    if isinstance(value, ReadOnDemand):
        return "list"
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _members(value: Any) -> _Members | None:
    """Return what is inside a value; none if it is shown whole."""
    match value:
        case Mapping():
            return _Members(len(value), lambda span: _of_mapping(value, span))
        case list() | tuple() | deque():
            names = getattr(value, "_fields", None) if isinstance(value, tuple) else None
            if isinstance(names, tuple) and len(names) == len(value):
                return _of_fields(dict(zip(names, value, strict=True)))
            return _Members(
                len(value), lambda span: _numbered(islice(value, span.start, span.stop), span.start)
            )
        case ReadOnDemand():
            return _Members(len(value), lambda span: _numbered(value.items(span), span.start))
        case set() | frozenset():
            return _Members(
                len(value), lambda span: _placed(islice(value, span.start, span.stop), span.start)
            )
        case Stored():
            return _of_fields(value.fields)
    return _of_table(value) or _of_object(value)


def _of_mapping(value: Mapping[Any, Any], span: slice) -> Iterator[tuple[str, str, Any]]:
    for place, key in enumerate(islice(value, span.start, span.stop), span.start):
        if type(key) is str:
            yield spelled_out(key)[:LEAF], key.replace("~", "~0").replace("/", "~1"), value[key]
        else:
            yield spelled_out(safe_repr(key))[:LEAF], f"~2{place}", value[key]


def _numbered(members: Iterable[Any], start: int) -> Iterator[tuple[str, str, Any]]:
    for place, member in enumerate(members, start):
        yield str(place), str(place), member


def _placed(members: Iterable[Any], start: int) -> Iterator[tuple[str, str, Any]]:
    for place, member in enumerate(members, start):
        yield str(place), f"~2{place}", member


def _of_fields(fields: Mapping[Any, Any]) -> _Members:
    return _Members(len(fields), lambda span: _of_mapping(fields, span))


def _of_object(value: Any) -> _Members | None:
    """Return the fields of an instance, as what is stored of it has them."""
    kind = next((kind for kind in KINDS if kind.covers(type(value))), None)
    if kind is None:
        return None
    try:
        apart = kind.apart(value)
    except Refused:
        return None
    match apart:
        case dict():
            return _of_fields(apart)
        case (dict() as fields, _, extra, private):
            beside = [part for part in (extra, private) if isinstance(part, dict)]
            return _of_fields({name: one for part in (fields, *beside) for name, one in part.items()})
    return None


def _of_table(value: Any) -> _Members | None:
    """Return the rows of a frame or an array, whose library is loaded if there is one."""
    kind = type(value)
    try:
        if frame_way(kind) is not None:
            return _of_frame(value)
        is_array = array_way(kind) is not None and getattr(value, "ndim", 0) > 0
    except Refused:
        return None
    if not is_array:
        return None
    rows = len(value)
    return _Members(rows, lambda span: _numbered((row.tolist() for row in value[span]), span.start))


def _of_frame(value: Any) -> _Members:
    rows = len(value)
    if not hasattr(value, "columns"):  # a series
        return _Members(rows, lambda span: _numbered(_listed(value, span), span.start))
    names = [str(name)[:200] for name in list(value.columns)[:CHILDREN]]

    def pick(span: slice) -> Iterator[tuple[str, str, Any]]:
        part = value.iloc[span] if hasattr(value, "iloc") else value[span]
        columns = [
            _listed(part.iloc[:, k] if hasattr(part, "iloc") else part[:, k]) for k in range(len(names))
        ]
        yield from _numbered(
            (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)), span.start
        )

    return _Members(rows, pick, names)


def _listed(column: Any, span: slice | None = None) -> list[Any]:
    part = column if span is None else column.iloc[span] if hasattr(column, "iloc") else column[span]
    listed: list[Any] = part.tolist() if hasattr(part, "tolist") else part.to_list()
    return listed


def _shape_of(value: Any, members: _Members) -> tuple[CutShape | UnsetType, list[str] | UnsetType]:
    """Say whether a value is a table or a conversation."""
    if members.columns is not None:
        return "table", members.columns
    if not isinstance(value, list | tuple | ReadOnDemand) or not len(value):
        return UNSET, UNSET
    rows = [member for _, _, member in members.pick(slice(0, _SAMPLE))]
    found = [_row(row) for row in rows]
    if any(row is None for row in found):
        return UNSET, UNSET
    names = [set(row) for row in found if row is not None]
    if all(
        "role" in row and row["role"] in _ROLES and {"content", "tool_calls"} & row.keys()
        for row in found
        if row
    ):
        return "chat", UNSET
    if len(rows) > 1 and all(one == names[0] for one in names) and names[0]:
        return "table", [str(name) for name in found[0] or ()][:CHILDREN]
    return UNSET, UNSET


def _row(value: Any) -> Mapping[str, Any] | None:
    """Return what a member is made of by name; none if it is no row."""
    if isinstance(value, Mapping):
        return value if all(type(key) is str for key in islice(value, CHILDREN)) else None
    if isinstance(value, Stored):
        return value.fields
    names = getattr(type(value), "__dataclass_fields__", None) or getattr(value, "__struct_fields__", None)
    return None if names is None else {name: getattr(value, name, None) for name in names}
