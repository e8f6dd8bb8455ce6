"""Type hints as far as they can be trusted: certain mismatches are reported, doubt is not."""

from __future__ import annotations

import inspect
import threading
import types
import typing
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

UNKNOWN = Any
T = TypeVar("T")


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the resolved hints of a function; those that cannot be resolved are left out."""
    try:
        return typing.get_type_hints(fn)
    except Exception:  # a hint may name anything, even something that only a type checker imports
        return {k: v for k, v in getattr(fn, "__annotations__", {}).items() if not isinstance(v, str)}


def fits(value: object, hint: Any) -> bool:
    """False only if the value certainly is not what the hint says. Looks one level deep."""
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin is None:
        if hint is None or hint is type(None):
            return value is None
        if not isinstance(hint, type):
            return True
        return _fits_class(value, hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in get_args(hint))
    if origin is typing.Annotated:
        return fits(value, get_args(hint)[0])
    return _fits_class(value, origin) if isinstance(origin, type) else True


def _fits_class(value: object, cls: type) -> bool:
    if cls is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if cls is complex:
        return isinstance(value, (int, float, complex)) and not isinstance(value, bool)
    if cls is int and isinstance(value, bool):
        return False
    try:
        return isinstance(value, cls)
    except TypeError:  # a Protocol that is not runtime-checkable, a NewType, ...
        return True


def accepts(wanted: Any, given: Any) -> bool:
    """False only if a value hinted `given` can certainly never be what `wanted` says."""
    if wanted is UNKNOWN or given is UNKNOWN:
        return True
    wanted, given = _bare(wanted), _bare(given)
    if wanted is UNKNOWN or given is UNKNOWN or isinstance(wanted, TypeVar) or isinstance(given, TypeVar):
        return True
    if get_origin(given) in (Union, types.UnionType):
        return any(accepts(wanted, option) for option in get_args(given))
    if get_origin(wanted) in (Union, types.UnionType):
        return any(accepts(option, given) for option in get_args(wanted))
    want, give = _class_of(wanted), _class_of(given)
    if want is None or give is None or want is object:
        return True
    if want in (float, complex) and give in (bool, int, float):
        return True
    try:
        if not (issubclass(give, want) or issubclass(want, give)):
            return False
    except TypeError:
        return True
    return _accepts_arguments(wanted, given)


def _accepts_arguments(wanted: Any, given: Any) -> bool:
    wants, gives = get_args(wanted), get_args(given)
    if get_origin(wanted) is not get_origin(given) or len(wants) != len(gives):
        return True
    if get_origin(wanted) not in (list, set, frozenset, dict):
        return True
    return all(accepts(w, g) for w, g in zip(wants, gives, strict=True))


def _bare(hint: Any) -> Any:
    return _bare(get_args(hint)[0]) if get_origin(hint) is typing.Annotated else hint


def _class_of(hint: Any) -> type | None:
    if hint is None:
        return type(None)
    origin = get_origin(hint) or hint
    return origin if isinstance(origin, type) else None


def gone_over(hint: Any) -> Any:
    """Return the hint of what a map goes over, given that of an item."""
    if hint is UNKNOWN:
        return list | tuple
    return list[hint] | tuple[hint, ...]


def of_item(hint: Any) -> Any:
    """Return the hint of an item, given that of what a map goes over: the way back from `gone_over`."""
    if hint is UNKNOWN or hint == list | tuple:
        return UNKNOWN
    (item,) = get_args(get_args(hint)[0])
    return item


def may_hold(hint: Any, item: type) -> bool:
    """False only if a list that is what the hint says certainly holds no such item."""
    hint = _bare(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(may_hold(option, item) for option in get_args(hint))
    cls, args = _class_of(hint), get_args(hint)
    if cls is None or not args or not issubclass(list, cls):
        return cls is None or not args
    return accepts(args[0], item)


def unstorable(hint: Any, objects: Callable[[type], T | None]) -> tuple[type, T] | None:
    """Return the class in a hint that `objects` has something against, and what; none if there is a doubt.

    A class that others derive from may stand for one of them, and an abstract one for any.
    """
    if type(hint) is type and hint not in _HOLDERS:  # a plain class, which stands for nothing else
        return _objected(hint, objects)
    hint = _bare(hint)
    if get_origin(hint) in (Union, types.UnionType):
        found = [unstorable(option, objects) for option in get_args(hint)]
        return found[0] if all(found) else None
    cls = _FACTORIES.get(id(hint)) or _class_of(hint)
    if cls in _LIVE:
        cls = _LIVE[cls]
    if (
        cls in (None, UNKNOWN)
        or typing.is_typeddict(cls)
        or inspect.isabstract(cls)
        or getattr(cls, "_is_protocol", False)
    ):
        return None
    if cls in _HOLDERS:
        parts = (unstorable(part, objects) for part in get_args(hint))
        return next((part for part in parts if part is not None), None)
    return _objected(cls, objects)


def _objected(cls: Any, objects: Callable[[type], T | None]) -> tuple[type, T] | None:
    said = objects(cls)
    if said is None or any(objects(derived) is None for derived in _derived(cls)):
        return None
    return cls, said


def _derived(cls: type) -> Iterator[type]:
    """Yield the loaded classes that derive from a class, each once."""
    seen = {cls}
    left = [cls]
    while left:
        found: list[type] = type.__subclasses__(left.pop())
        for derived in found:
            if derived not in seen:
                seen.add(derived)
                left.append(derived)
                yield derived


_HOLDERS = (list, set, frozenset, dict, tuple)
_FACTORIES = {id(threading.Lock): type(threading.Lock()), id(threading.RLock): type(threading.RLock())}
"""What hints call by a function that makes it."""
_LIVE: dict[Any, type] = {
    Generator: types.GeneratorType,
    AsyncGenerator: types.AsyncGeneratorType,
    Coroutine: types.CoroutineType,
}
"""Abstract classes of which no instance is data."""


def part_of(hint: Any, at: int, parts: Sequence[str]) -> Any:
    """Return the hint of one of several outputs, if the hint of all says as much."""
    args = get_args(hint)
    return args[at] if get_origin(hint) is tuple and len(args) == len(parts) and ... not in args else UNKNOWN


def spell(hint: Any) -> str:
    """Write a hint as a user would."""
    return (
        hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
    )
