"""Python values as bytes that give back equal values of the same exact types, and nothing but data.

A plain value (None, bool, int of 64 bits, float, str, bytes, and lists and str-keyed dicts of these) is
msgpack as it stands: checked and encoded by C code, a level at a time. Everything else is tagged, type by
type, then read back and compared before it is believed. Unless a host allows pickle, nothing is unpickled,
and reading imports nothing.
"""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, time
from enum import Enum
from itertools import chain, repeat
from types import CoroutineType, MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.msgpack import Decoder, Encoder, Ext

from everstep.codec.tags import Refused, Tag
from everstep.errors import BadRequest, ValueNotStorable, ValueUnreadable
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    import pickle

    from everstep.codec import classes, forms, frames
else:
    # What is not plain: most values never need it.
    pickle = on_demand("pickle")
    classes = on_demand("everstep.codec.classes")
    forms = on_demand("everstep.codec.forms")
    frames = on_demand("everstep.codec.frames")

MAX_DEPTH: Final = 500
_DEEP: Final = 50
"""Levels that need no more of the stack than a call should have left."""
_MANY: Final = 1024
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**64 - 1
_STR: Final = frozenset({str})
_SAFE_SCALARS: Final = frozenset({NoneType, bool, float, str, bytes})
_SCALARS: Final = _SAFE_SCALARS | {int}
_PLAIN: Final = _SCALARS | {list, dict}
_DICT: Final = frozenset({dict})
_CHANGEABLE: Final = frozenset({list, dict})
_MAPPINGS: Final = frozenset({dict, OrderedDict, Counter, defaultdict})
_MAY_BE_REGISTERED: Final = frozenset({Counter, defaultdict})
"""Types that 0.1.0 did not store itself, so that users may have serializers for them."""
_SEQUENCES: Final = frozenset({list, tuple, deque})
_UNORDERED: Final = frozenset({set, frozenset})
_ENCODER: Final = Encoder()
_SORTED: Final = Encoder(order="deterministic")
_PROTOCOL = 5


def is_plain(value: object) -> bool:
    """Say whether msgpack alone keeps a value: exact plain types, 64-bit ints and valid text throughout."""
    return plain_bytes(value) is not None


def plain_bytes(value: object) -> bytes | None:
    """Return the bytes of a plain value, and none for any other."""
    if not _has_plain_types(value):
        return None
    try:
        return _ENCODER.encode(value)
    except (OverflowError, ValueError, RecursionError):  # a big int, no text, more than msgpack can hold
        return None


def ordered_bytes(value: object) -> bytes | None:
    """Return the same bytes for equal plain values, whatever the order of their keys; none for any other."""
    if not _has_plain_types(value):
        return None
    try:
        return _SORTED.encode(value)
    except (OverflowError, ValueError, RecursionError):
        return None


class Values:
    """Turns values into bytes and back, with the serializers that the user registered."""

    def __init__(self, *, loose: bool = False, allow_pickle: bool = False) -> None:
        self.allow_pickle = allow_pickle
        """Pickle what has no data-only form, and unpickle it; who can write to the store can run code."""
        self.loose = loose
        """Read instances of classes that are not at hand as `Stored`, for people to look at."""
        self.seen_without_class: set[str] = set()
        """The names of the classes that were read so."""
        self._by_class: dict[type, _Serializer] = {}
        self._by_name: dict[str, _Serializer] = {}
        self._read = Decoder(ext_hook=self._from_ext).decode

    def register(
        self, cls: type, *, name: str, encode: Callable[[Any], object], decode: Callable[[Any], object]
    ) -> None:
        """Store the instances of exactly `cls` as what `encode` returns, under the lasting tag `name`.

        A class registered anew under another name is written under the new one and read under both.
        """
        if cls in _PLAIN or (cls in forms.FORMS and cls not in _MAY_BE_REGISTERED):
            raise BadRequest(f"`{_type_name(cls)}` cannot be registered: everstep stores it itself.")
        taken = self._by_name.get(name)
        if taken is not None and classes.spelled(taken.cls) != classes.spelled(cls):
            raise BadRequest(
                f"the name `{name}` already stands for `{classes.spelled(taken.cls)}`.",
                fix="Choose another name.",
            )
        self._by_class[cls] = self._by_name[name] = _Serializer(cls, name, encode, decode)

    def is_registered(self, cls: type) -> bool:
        """Say whether instances of exactly this class have a serializer of the user's."""
        return cls in self._by_class

    def encode(self, value: object, where: str) -> bytes:
        """Return the bytes of a value, or raise ValueNotStorable that names the part to blame.

        `where` names the value in that error.
        """
        data = plain_bytes(value)
        if data is not None:
            return data
        try:
            return self._checked_bytes(value)
        except Refused as refused:
            path, part, refused = self._blame(value, where, refused)
            raise ValueNotStorable(
                f"cannot store `{path}`: {refused.reason}.",
                fix=refused.fix,
                where=path,
                type=_type_name(type(part)),
            ) from refused.__cause__

    def decode(self, data: bytes | memoryview, where: str = "value") -> Any:
        """Return the value that these bytes hold, or raise ValueUnreadable."""
        try:
            return self._read(data)
        except Refused as refused:
            raise ValueUnreadable(
                f"cannot read `{where}`: {refused.reason}.", fix=refused.fix, where=where
            ) from refused.__cause__
        # Whatever damaged bytes make a constructor raise, the reader learns only that they are unreadable.
        except Exception as exc:
            raise ValueUnreadable(
                f"cannot read `{where}`: the bytes are damaged or not everstep's ({exc}).",
                fix="Restore them from a backup.",
                where=where,
            ) from exc

    def canonical(self, value: object) -> bytes:
        """Return bytes that do not depend on the order in which a dict was filled."""
        return _SORTED.encode(_UNBUILT.decode(self.encode(value, "value")))

    def is_frozen(self, value: object) -> bool:
        """Say whether readers may share this very object, because it cannot be changed."""
        level: list[Any] = [value]
        for _ in range(MAX_DEPTH):
            kinds = set(map(type, level)) - _SCALARS
            if not kinds:
                return True
            if not _CHANGEABLE.isdisjoint(kinds):
                return False
            kinds -= forms.ATOMS
            if not all(kind in _FROZEN_PARTS or issubclass(kind, Enum) for kind in kinds):
                return False
            holders = [one for one in level if type(one) in _FROZEN_PARTS]
            level = list(chain.from_iterable(_FROZEN_PARTS[type(one)](one) for one in _distinct(holders)))
        return False

    def _checked_bytes(self, value: object) -> bytes:
        """Return the bytes of a value that has been read back and found the same, or raise Refused."""
        try:
            data = _ENCODER.encode(self._tree(value, 0))
            if _ENCODER.encode(self._tree(self._read(data), 0)) == data:
                return data
        except (Refused, MemoryError):
            raise
        except RecursionError as exc:
            raise (_TooDeep() if self._is_deep(value) else _StackIsFull()) from exc
        except UnicodeEncodeError as exc:
            raise Refused("it holds a lone surrogate, which is no text", "Return bytes instead.") from exc
        # Taking apart and putting together may run the user's properties, hashes and serializers.
        except Exception as exc:
            name = _type_name(type(value))
            raise Refused(f"a `{name}` cannot be taken apart and put together again ({exc})") from exc
        raise Refused(f"a `{_type_name(type(value))}` does not come back equal")

    def _blame(self, value: object, path: str, refused: Refused) -> tuple[str, object, Refused]:
        """Follow the failure down to the smallest part that fails by itself."""
        while not isinstance(refused, _TooDeep | _StackIsFull):
            found = self._failing_part(value)
            if found is None:
                break
            suffix, value, refused = found
            path += suffix
        return path, value, refused

    def _failing_part(self, value: object) -> tuple[str, object, Refused] | None:
        for suffix, part in self._parts(value):
            try:
                if plain_bytes(part) is None:
                    self._checked_bytes(part)
            except Refused as refused:
                return suffix, part, refused
        return None

    def _parts(self, value: Any) -> Iterator[tuple[str, object]]:
        serializer = self._by_class.get(type(value))
        if serializer is None:
            return _parts(value)
        try:
            return iter([("", serializer.encode(value))])
        except Exception:  # it is the reason for the failure under way, which is reported
            return iter(())

    def _is_deep(self, value: object) -> bool:
        """Say whether a value is nested so deeply that taking it apart may fill the stack by itself."""
        level = [value]
        for _ in range(_DEEP):
            level = _distinct([part for one in level for _, part in self._parts(one)])
            if not level:
                return False
        return True

    def _tree(self, value: Any, depth: int) -> object:
        """Return what msgpack keeps exactly: plain values and Exts."""
        kind = type(value)
        if kind in _SAFE_SCALARS or (kind is int and _INT_MIN <= value <= _INT_MAX):
            return value
        if depth >= MAX_DEPTH:
            raise _TooDeep
        if kind is list:
            return _flat_bytes(value, value) or list(map(self._tree, value, repeat(depth + 1)))
        if kind is dict and _STR.issuperset(map(type, value)):
            members = value.values()
            flat = _flat_bytes(value, members)
            return flat or dict(zip(value, map(self._tree, members, repeat(depth + 1)), strict=True))
        if kind in _UNORDERED:
            parts = sorted(_ENCODER.encode(self._tree(part, depth + 1)) for part in value)
            return Ext(int(forms.FORMS[kind].tag), _ENCODER.encode(list(map(msgspec.Raw, parts))))
        tag, name, apart = self._way(kind)
        held = apart(value) if name is None else [name, apart(value)]
        return Ext(int(tag), _ENCODER.encode(self._tree(held, depth)))

    def _way(self, kind: type) -> tuple[Tag, str | None, Callable[[Any], object]]:
        """Return how instances of exactly this class are kept: tag, name if one goes with it, and parts.

        Raises Refused if none of them can be.
        """
        serializer = self._by_class.get(kind)
        if serializer is not None:
            return Tag.REGISTERED, serializer.name, serializer.encode
        form = forms.FORMS.get(kind)
        if form is not None:
            return form.tag, None, form.apart
        if issubclass(kind, BaseException) and not self.allow_pickle:
            raise Refused(f"an exception (`{_type_name(kind)}`) has no data-only form")
        for group in classes.KINDS:
            if group.covers(kind):
                return group.tag, classes.storable_name(kind, group), group.apart
        way = frames.array_way(kind) or frames.frame_way(kind)
        if way is not None:
            return way[0], None, way[1]
        if self.allow_pickle:
            return Tag.PICKLED, None, pickled
        if kind is CoroutineType:
            raise Refused("a coroutine was not awaited", "Await it: await ctx.step(...), say.")
        raise Refused(f"a value of type `{_type_name(kind)}` has no data-only form")

    def objection(self, cls: type) -> tuple[str, str] | None:
        """Return why no instance of exactly this class can be kept, and what to do; none if some can be."""
        if cls in _PLAIN:
            return None
        try:
            self._way(cls)
        except Refused as refused:
            return refused.reason, refused.fix
        return None

    def _from_ext(self, code: int, payload: memoryview) -> object:
        parts = self._read(payload)
        form = forms.FORM_OF_TAG.get(code)
        if form is None:
            if code == Tag.PICKLED:
                return unpickled(parts, is_allowed=self.allow_pickle)
            return self._from_tagged_list(code, parts) if not self.loose else self._look_at(code, parts)
        if type(parts) is not form.shape:
            raise Refused(f"the payload of tag {code} is damaged", "Restore it from a backup.")
        return form.together(parts)

    def _from_tagged_list(self, code: int, parts: list[Any]) -> object:
        if code in (Tag.ARRAY, Tag.ARRAY_SCALAR):
            return frames.array_together(Tag(code), parts)
        if code in frames.FRAMES:
            return frames.frame_together(Tag(code), parts)
        if code == Tag.REGISTERED:
            name, apart = parts
            return self._serializer(name).decode(apart)
        group = classes.KIND_OF_TAG.get(code)
        if group is None:
            raise Refused(f"it has the unknown tag {code}", "Use the newer everstep that wrote it.")
        name, apart = parts
        return group.together(self._class(name, group), apart)

    def _look_at(self, code: int, parts: list[Any]) -> object:
        try:
            return self._from_tagged_list(code, parts)
        except Refused:
            if code not in classes.SEEN_APART:
                raise
            stored = classes.as_stored(code, parts)
            self.seen_without_class.add(stored.type_name)
            return stored

    def _serializer(self, name: str) -> _Serializer:
        found = self._by_name.get(name)
        if found is None:
            raise Refused(
                f"no serializer named `{name}` is registered",
                f"Register it with host.values.register(..., name={name!r}).",
            )
        return found

    def _class(self, name: str, group: classes.ClassKind) -> type:
        module, _, qualname = name.partition(":")
        registered = (cls for cls in self._by_class if classes.spelled(cls) == name)
        state = "is not loaded"
        fix = f"Import the module `{module}` that defines it, or register a serializer."
        if module in sys.modules:
            state = f"is gone: `{module}` is loaded and has none of that name"
            fix = (
                f"If it was renamed or moved, leave an alias in `{module}`: "
                f"`{qualname} = TheNewName`. Or register a serializer."
            )
        for cls in chain(registered, classes.loaded_classes(name)):
            if group.covers(cls):
                return cls
            state = f"is not a {group.noun}"
        raise Refused(f"its class `{name}` {state}", fix)


class _Serializer(msgspec.Struct, frozen=True):
    """What a user registered for one class."""

    cls: type
    name: str
    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


class _TooDeep(Refused):
    """The value has no bottom, or one too far down to look for the part to blame."""

    def __init__(self) -> None:
        super().__init__(
            f"it refers to itself or is nested too deeply ({MAX_DEPTH} levels at most, fewer in a deep call)",
            "Return a flatter value.",
        )


class _StackIsFull(Refused):
    """There was no room left to take the value apart, which is no fault of the value."""

    def __init__(self) -> None:
        super().__init__(
            "there is no room left on Python's stack: the call that runs the flow is nested too deeply",
            "Call from fewer frames, or raise sys.setrecursionlimit.",
        )


_FROZEN_PARTS: Final[Mapping[type, Callable[[Any], Iterable[object]]]] = MappingProxyType(
    {
        tuple: iter,
        frozenset: iter,
        datetime: lambda value: (value.tzinfo,),
        time: lambda value: (value.tzinfo,),
    }
)


def _in_order(parts: list[Any]) -> list[Any]:
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return list(chain.from_iterable(sorted(pairs, key=_SORTED.encode)))


def _sorted_ext(code: int, payload: memoryview) -> Ext:
    """Return a tagged value with every dict in it, and itself if it is one, in the order of the keys."""
    parts = _UNBUILT.decode(payload)
    if code == Tag.DEFAULT_MAP:
        parts = [parts[0], _in_order(parts[1])]
    elif code in (Tag.MAP, Tag.COUNTER):
        parts = _in_order(parts)
    elif code in (Tag.SET, Tag.FROZENSET):
        parts.sort(key=_SORTED.encode)
    return Ext(code, _SORTED.encode(parts))


_UNBUILT: Final = Decoder(ext_hook=_sorted_ext)


def _has_plain_types(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        level = value.values()
        if not _STR.issuperset(map(type, value)):
            return False
    elif kind is list:
        level = value
    else:
        return kind in _SCALARS
    return _SCALARS.issuperset(map(type, level)) or _is_plain_below(list(level))


def _is_plain_below(level: list[Any]) -> bool:
    for _ in range(MAX_DEPTH - 1):
        kinds = set(map(type, level))
        if kinds <= _SCALARS:
            return True
        if not kinds <= _PLAIN:
            return False
        dicts = level if kinds == _DICT else [one for one in level if type(one) is dict]
        lists = [one for one in level if type(one) is list] if list in kinds else []
        members = _members(_distinct(lists), _distinct(dicts))
        if members is None:
            return False
        level = members
    return False


def _members(lists: list[list[Any]], dicts: list[dict[Any, Any]]) -> list[Any] | None:
    """Return all items and values, or None if a dict has a key that is not exactly a str."""
    if sys.version_info < (3, 13):
        # One C call for all. Up to 3.12 the collector sees every item and value, and the keys of just those
        # dicts whose keys are not all exact str; from 3.13 on it passes over the values of some dicts.
        members = gc.get_referents(*lists, *dicts)
        if len(members) == sum(map(len, lists)) + sum(map(len, dicts)):
            return members
    if not _STR.issuperset(map(type, chain.from_iterable(dicts))):
        return None
    return list(chain.from_iterable(chain(lists, map(dict.values, dicts))))


def _distinct(containers: list[Any]) -> list[Any]:
    # A list that holds itself twice doubles at each level: 500 of them would never end.
    if len(containers) < _MANY:
        return containers
    return list({id(one): one for one in containers}.values())


def _flat_bytes(value: object, members: Iterable[object]) -> msgspec.Raw | None:
    """Return the bytes of a list or str-keyed dict of scalars, which spares looking at each."""
    if not _SCALARS.issuperset(map(type, members)):
        return None
    try:
        return msgspec.Raw(_ENCODER.encode(value))
    except OverflowError:
        return None


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the parts of a value, each with the way to it as one would write it in Python."""
    kind = type(value)
    if kind in _MAPPINGS:
        for position, (key, part) in enumerate(value.items()):
            yield f".keys()[{position}]", key
            yield _subscript(key, position), part
    elif kind in _SEQUENCES:
        yield from ((f"[{position}]", part) for position, part in enumerate(value))
    elif kind in _UNORDERED:
        yield from (("{item}", part) for part in value)
    else:
        yield from frames.frame_parts(value)
        yield from ((f".{name}", getattr(value, name)) for name in _attributes(value) if hasattr(value, name))


def _subscript(key: object, position: int) -> str:
    if type(key) is str and key.isidentifier():
        return f".{key}"
    return f"[{key!r:.40}]" if type(key) in _SCALARS else f".values()[{position}]"


def _attributes(value: Any) -> Iterable[str]:
    cls = type(value)
    if cls is datetime or cls is time:
        return ("tzinfo",)
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return list(cls._fields)
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if hasattr(cls, "model_fields"):
        return [*vars(value), *(value.__pydantic_extra__ or ()), *(value.__pydantic_private__ or ())]
    return ()


def _type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def pickled(value: object) -> bytes:
    """Return a value as a pickle, in the form that it has once it was read back."""
    try:
        return pickle.dumps(pickle.loads(pickle.dumps(value, _PROTOCOL)), _PROTOCOL)
    except Exception as error:  # a class may raise anything here
        raise Refused(f"it cannot be pickled ({error})") from error


def unpickled(data: object, *, is_allowed: bool) -> object:
    """Return what was pickled, if that is allowed here."""
    if not is_allowed:
        raise Refused(
            "it was pickled, and this host does not unpickle",
            "If you trust everybody who can write to the store: Host(..., allow_pickle=True).",
        )
    if not isinstance(data, bytes):
        raise Refused("its pickle is damaged", "Restore it from a backup.")
    return pickle.loads(data)
