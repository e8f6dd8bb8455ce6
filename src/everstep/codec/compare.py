"""What differs between two values, part by part.

Equality is that of stored values: exact types and canonical bytes. 1 is not True and not 1.0, NaN equals
itself, and the order in which a dict was filled is no difference.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from types import NoneType
from typing import Any, Final, Literal, NamedTuple

import msgspec

from everstep.codec.classes import KINDS, Stored, StoredArray, StoredMember, as_stored
from everstep.codec.frames import array_way, frame_way
from everstep.codec.tags import Refused, Tag, Unreadable
from everstep.codec.values import Values
from everstep.errors import ValueNotStorable
from everstep.model.shapes import Value, shown

ChangeKind = Literal["added", "removed", "changed"]

_ATOMS: Final = frozenset({NoneType, bool, int, str, bytes})
_NO_FRAME: Final = ()


class Change(msgspec.Struct, frozen=True):
    """One difference: where it is, such as `order.lines[2].price`, and both sides of it."""

    path: str
    kind: ChangeKind
    before: Value
    """None if it was added."""
    after: Value
    """None if it was removed."""


class Pair(msgspec.Struct, frozen=True):
    """One value on two sides, and what differs between them."""

    name: str
    before: Value
    after: Value
    changes: tuple[Change, ...]

    @shown
    def is_equal(self) -> bool | None:
        """Whether the sides are equal; none if one of them cannot be read."""
        if isinstance(self.before, Unreadable) or isinstance(self.after, Unreadable):
            return None
        return not self.changes


def compare(values: Values, name: str, before: Any, after: Any) -> Pair:
    """Return both sides of a value with what differs; what cannot be read differs from everything."""
    if isinstance(before, Unreadable) or isinstance(after, Unreadable):
        return Pair(name, before, after, (Change(name, "changed", before, after),))
    return Pair(name, before, after, tuple(changes(values, name, before, after)))


def is_same(values: Values, before: Any, after: Any) -> bool:
    """Say whether two values are equal as stored values are."""
    return next(changes(values, "", before, after), None) is None


def changes(values: Values, path: str, before: Any, after: Any) -> Iterator[Change]:
    """Yield what differs, from the top down; `path` names the whole."""
    comparison = _Comparison(values)
    # A stack of our own: values may be nested deeper than Python likes to call.
    stack: list[Iterator[_Found]] = [iter([_Both(path, before, after)])]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
        elif isinstance(found, Change):
            yield found
        else:
            stack.append(comparison.look_into(found))


class _Both(NamedTuple):
    """Two parts at the same place, which may differ."""

    path: str
    before: Any
    after: Any


_Found = Change | _Both


class _Parts(NamedTuple):
    """A value taken apart: its members by what identifies them, and all that is not in the members."""

    members: Mapping[Any, Any]
    suffix: Callable[[Any], str]
    """How a path goes on to a member."""
    frame: object = _NO_FRAME
    is_ordered: bool = False


class _Comparison:
    def __init__(self, values: Values) -> None:
        self._values = values

    def look_into(self, both: _Both) -> Iterator[_Found]:
        path, before, after = both
        if before is after:
            return
        if type(before) is not type(after):
            yield _changed(path, before, after)
            return
        old, new = self._parts(before), self._parts(after)
        if old is None or new is None:
            if not self._is_same_leaf(before, after):
                yield _changed(path, before, after)
        elif old.frame != new.frame or (old.is_ordered and _is_reordered(old, new)):
            yield _changed(path, before, after)
        else:
            yield from _members(path, old, new)

    def _is_same_leaf(self, before: Any, after: Any) -> bool:
        if type(before) in _ATOMS:
            return bool(before == after)
        if type(before) is float:
            return struct.pack("d", before) == struct.pack("d", after)
        return self._token(before) == self._token(after)

    def _token(self, value: Any) -> Hashable:
        """Return something that is equal for equal values, and can be hashed."""
        try:
            return self._values.canonical(value)
        except ValueNotStorable:
            parts = self._parts(value)
        if parts is None:
            return type(value), _spelled(value)
        members = [(token, self._token(member)) for token, member in parts.members.items()]
        return type(value), repr(parts.frame), tuple(members) if parts.is_ordered else frozenset(members)

    def _parts(self, value: Any) -> _Parts | None:
        """Take a value apart; none if it is shown whole."""
        match value:
            case dict() if type(value) in (dict, OrderedDict, Counter):
                return self._mapping(value)
            case defaultdict() if type(value) is defaultdict:
                return self._mapping(value)._replace(frame=value.default_factory)
            case list() | tuple() if type(value) in (list, tuple):
                return _Parts(dict(enumerate(value)), _item)
            case deque() if type(value) is deque:
                return _Parts(dict(enumerate(value)), _item, value.maxlen)
            case set() | frozenset() if type(value) in (set, frozenset):
                tokens = self._identified(value)
                return _Parts(tokens, lambda token: f"{{{_spelled(tokens[token])}}}")
            case StoredArray() | StoredMember():
                return _Parts({}, _field, (value.type_name, value.fields))
            case Stored():
                return _Parts(value.fields, _field, value.type_name)
        return self._fields(value)

    def _mapping(self, value: dict[Any, Any]) -> _Parts:
        keys = self._identified(value)
        members = dict(zip(keys, value.values(), strict=True))
        return _Parts(members, lambda token: _key(keys[token]), is_ordered=type(value) is OrderedDict)

    def _identified(self, members: Iterable[Any]) -> dict[Hashable, Any]:
        """Return keys or the members of a set by what makes each of them itself; two NaNs stay two."""
        found: dict[Hashable, Any] = {}
        for member in members:
            token = member if type(member) is str else self._token(member)
            while token in found:
                token = (token, "again")
            found[token] = member
        return found

    def _fields(self, value: Any) -> _Parts | None:
        kind = type(value)
        if kind in _ATOMS or isinstance(value, Enum) or self._values.is_registered(kind):
            return None
        group = next((group for group in KINDS if group.covers(kind)), None)
        if group is None:
            return None
        try:
            apart: Any = group.apart(value)
        except Refused:
            return None
        if group.tag is not Tag.MODEL:
            return _Parts(apart, _field) if isinstance(apart, dict) else None
        fields, fields_set, extra, private = apart
        return _Parts({**fields, **(extra or {}), **(private or {})}, _field, frozenset(fields_set))


def _members(path: str, old: _Parts, new: _Parts) -> Iterator[_Found]:
    for token, before in old.members.items():
        if token not in new.members:
            yield Change(path + old.suffix(token), "removed", _shown(before), None)
            continue
        after = new.members[token]
        if before is after or (type(before) is type(after) and type(before) in _ATOMS and before == after):
            continue
        yield _Both(path + old.suffix(token), before, after)
    for token, after in new.members.items():
        if token not in old.members:
            yield Change(path + new.suffix(token), "added", None, _shown(after))


def _is_reordered(old: _Parts, new: _Parts) -> bool:
    return [t for t in old.members if t in new.members] != [t for t in new.members if t in old.members]


def _changed(path: str, before: Any, after: Any) -> Change:
    return Change(path, "changed", _shown(before), _shown(after))


def _shown(value: Any) -> Any:
    """Return the summary of an array or a frame; anything else as it is."""
    try:
        way = array_way(type(value)) or frame_way(type(value))
        if way is None or way[0] is Tag.ARRAY_SCALAR:
            return value
        return as_stored(way[0], way[1](value))
    except Refused:
        return value


def _item(index: int) -> str:
    return f"[{index}]"


def _field(name: str) -> str:
    return f".{name}"


def _key(key: object) -> str:
    return f".{key}" if type(key) is str and key.isidentifier() else f"[{_spelled(key)}]"


def _spelled(part: object) -> str:
    try:
        return repr(part)
    except Exception:  # a repr of the user's may do anything; the comparison must go on
        return f"<{type(part).__qualname__}>"
