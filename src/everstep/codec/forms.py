"""How each built-in type is taken apart into plainer parts, and put together again.

Every type that msgpack would flatten (a tuple into a list, a datetime into text) is stored as an Ext whose
tag names the type and whose payload is its parts, encoded the same way.
"""

from __future__ import annotations

import ipaddress
import pathlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from types import EllipsisType, MappingProxyType, NoneType
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from everstep.codec.tags import Refused, Tag


class TypeForm(msgspec.Struct, frozen=True):
    """How one built-in type is taken apart into storable parts, and put together from them."""

    tag: Tag
    shape: type  # the exact type of the parts
    apart: Callable[[Any], object]
    together: Callable[[Any], object]


_SINGLETONS: Final[Mapping[str, object]] = MappingProxyType({"Ellipsis": ..., "UNSET": msgspec.UNSET})

# What a defaultdict may make of nothing, by the name that is stored.
_FACTORIES: Final[Mapping[str, Callable[[], Any] | None]] = MappingProxyType(
    {"": None}
    | {
        cls.__name__: cls
        for cls in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, Counter, deque)
    }
)

# Types whose text says everything: cls(str(value)) is the value.
_TEXTS: Final[Mapping[str, Callable[[str], object]]] = MappingProxyType(
    {
        cls.__name__: cls
        for cls in (
            Decimal,
            pathlib.PurePosixPath,
            pathlib.PureWindowsPath,
            pathlib.PosixPath,
            pathlib.WindowsPath,
            ipaddress.IPv4Address,
            ipaddress.IPv6Address,
            ipaddress.IPv4Network,
            ipaddress.IPv6Network,
            ipaddress.IPv4Interface,
            ipaddress.IPv6Interface,
        )
    }
)


def _pairs_apart(pairs: Mapping[Hashable, object]) -> list[object]:
    return list(chain.from_iterable(pairs.items()))


def _pairs_together(parts: list[Any]) -> dict[Hashable, object]:
    keys = parts[::2]
    pairs = dict(zip(keys, parts[1::2], strict=True))
    if len(pairs) != len(keys):
        raise Refused("two keys of a dict have become equal")
    return pairs


def _counter_together(parts: list[Any]) -> Counter[Hashable]:
    found: Any = Counter()
    dict.update(found, _pairs_together(parts))  # Counter's own adds to what is there
    return found  # type: ignore[no-any-return]


def _default_apart(value: defaultdict[Hashable, object]) -> list[object]:
    factory = value.default_factory
    name = next((name for name, known in _FACTORIES.items() if known is factory), None)
    if name is None:
        raise Refused(
            f"its default_factory {factory!r:.60} has no data-only form",
            f"Use one of {', '.join(filter(None, _FACTORIES))}, or return dict(...).",
        )
    return [name, _pairs_apart(value)]


def _default_together(parts: list[Any]) -> defaultdict[Hashable, object]:
    name, pairs = parts
    if type(pairs) is not list:
        raise Refused("the items of a defaultdict are damaged")
    return defaultdict(_FACTORIES[name], _pairs_together(pairs))


def _int_apart(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _int_together(parts: bytes) -> int:
    return int.from_bytes(parts, "big", signed=True)


def _zone_apart(zone: tzinfo | None) -> object:
    # The common zones stay plain, which makes a datetime three times as fast; others have their own form.
    if zone is UTC:
        return True
    return zone.key if type(zone) is ZoneInfo and type(zone.key) is str else zone


def _zone_together(part: Any) -> tzinfo | None:
    if part is True:
        return UTC
    return ZoneInfo(part) if type(part) is str else part


def _datetime_apart(value: datetime) -> list[object]:
    day = [value.year, value.month, value.day]
    clock = [value.hour, value.minute, value.second, value.microsecond]
    return [*day, *clock, value.fold, _zone_apart(value.tzinfo)]


def _datetime_together(parts: list[Any]) -> datetime:
    year, month, day, hour, minute, second, micro, fold, zone = parts
    return datetime(year, month, day, hour, minute, second, micro, _zone_together(zone), fold=fold)


def _time_apart(value: time) -> list[object]:
    clock = [value.hour, value.minute, value.second, value.microsecond]
    return [*clock, value.fold, _zone_apart(value.tzinfo)]


def _time_together(parts: list[Any]) -> time:
    hour, minute, second, micro, fold, zone = parts
    return time(hour, minute, second, micro, _zone_together(zone), fold=fold)


def _timezone_apart(value: Any) -> list[object]:
    return list(value.__getinitargs__())  # the only way to ask a timezone whether it was given a name


def _text_apart(value: object) -> list[object]:
    return [type(value).__name__, str(value)]


def _text_together(parts: list[Any]) -> object:
    name, text = parts
    return _TEXTS[name](text)


def _singleton_apart(value: object) -> str:
    return next(name for name, one in _SINGLETONS.items() if one is value)


def _deque_together(parts: list[Any]) -> deque[object]:
    maxlen, items = parts
    if type(items) is not list:  # a range takes ten bytes to write, and any amount of memory to walk
        raise Refused("the items of a deque are damaged")
    return deque(items, maxlen)


def _fraction_together(parts: list[Any]) -> Fraction:
    numerator, denominator = parts
    if type(numerator) is not int or type(denominator) is not int:  # Fraction("1e999999999") takes for ever
        raise Refused("the parts of a fraction are damaged")
    return Fraction(numerator, denominator)


_TEXT: Final = TypeForm(Tag.TEXT, list, _text_apart, _text_together)
_SINGLETON: Final = TypeForm(Tag.SINGLETON, str, _singleton_apart, _SINGLETONS.__getitem__)

FORMS: Final[Mapping[type, TypeForm]] = MappingProxyType(
    {
        int: TypeForm(Tag.BIG_INT, bytes, _int_apart, _int_together),
        dict: TypeForm(Tag.MAP, list, _pairs_apart, _pairs_together),
        OrderedDict: TypeForm(
            Tag.ORDERED_MAP, list, _pairs_apart, lambda parts: OrderedDict(_pairs_together(parts))
        ),
        Counter: TypeForm(Tag.COUNTER, list, _pairs_apart, _counter_together),
        defaultdict: TypeForm(Tag.DEFAULT_MAP, list, _default_apart, _default_together),
        tuple: TypeForm(Tag.TUPLE, list, list, tuple),
        set: TypeForm(Tag.SET, list, list, set),
        frozenset: TypeForm(Tag.FROZENSET, list, list, frozenset),
        deque: TypeForm(Tag.DEQUE, list, lambda value: [value.maxlen, list(value)], _deque_together),
        bytearray: TypeForm(Tag.BYTEARRAY, bytes, bytes, bytearray),
        complex: TypeForm(
            Tag.COMPLEX, list, lambda value: [value.real, value.imag], lambda parts: complex(*parts)
        ),
        datetime: TypeForm(Tag.DATETIME, list, _datetime_apart, _datetime_together),
        date: TypeForm(
            Tag.DATE, list, lambda value: [value.year, value.month, value.day], lambda parts: date(*parts)
        ),
        time: TypeForm(Tag.TIME, list, _time_apart, _time_together),
        timedelta: TypeForm(
            Tag.TIMEDELTA,
            list,
            lambda value: [value.days, value.seconds, value.microseconds],
            lambda parts: timedelta(*parts),
        ),
        timezone: TypeForm(Tag.TIMEZONE, list, _timezone_apart, lambda parts: timezone(*parts)),
        ZoneInfo: TypeForm(Tag.ZONEINFO, str, lambda value: value.key, ZoneInfo),
        UUID: TypeForm(Tag.UUID, bytes, lambda value: value.bytes, lambda parts: UUID(bytes=parts)),
        Fraction: TypeForm(
            Tag.FRACTION,
            list,
            lambda value: [value.numerator, value.denominator],
            _fraction_together,
        ),
        range: TypeForm(
            Tag.RANGE, list, lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)
        ),
        EllipsisType: _SINGLETON,
        type(msgspec.UNSET): _SINGLETON,
        **{cls: _TEXT for cls in _TEXTS.values() if isinstance(cls, type)},
    }
)
FORM_OF_TAG: Final[Mapping[int, TypeForm]] = MappingProxyType({form.tag: form for form in FORMS.values()})

_CHANGEABLE: Final = frozenset({dict, OrderedDict, Counter, defaultdict, set, deque, bytearray})
_HOLDERS: Final = frozenset({tuple, frozenset, datetime, time})
ATOMS: Final = frozenset({NoneType, bool, float, str, bytes, *FORMS}) - _CHANGEABLE - _HOLDERS
"""The types whose values never change and hold nothing that could."""
