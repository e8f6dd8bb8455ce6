"""What the IR calls things that JSON cannot hold: functions and classes by `module:name`, hints by parts.

A name that leads back to the thing is its whole name. One that does not, of a closure or a lambda, gets the
place in the flow added: `shop:make.<locals>.charge#charge`.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final, Literal, Union, get_args, get_origin

from everstep.codec.classes import loaded_classes, script_name
from everstep.graph.check.hints import UNKNOWN

Json = Any
"""None, a bool, a number, text, a list of these, or a dict of text and these."""

_PLAIN: Final = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, object)
}
_WORDS: Final[dict[str, Any]] = {**_PLAIN, "any": UNKNOWN, "none": None, "...": ...}


class Unspeakable(Exception):
    """A hint that has no name of its own and no parts that have."""


def home_of(thing: Any) -> tuple[str, str]:
    """Return the module of a function and its name there, the same in every process."""
    module = getattr(thing, "__module__", None) or type(thing).__module__
    qualname = getattr(thing, "__qualname__", None)
    if qualname is None:
        module, qualname = type(thing).__module__, type(thing).__qualname__
    if module in ("__main__", "__mp_main__"):  # it differs by process
        module = script_name()
    return module, qualname


def name_of(thing: Any, place: str) -> str:
    """Return what a function, or anything else that only Python can hold, is called in the IR."""
    module, qualname = home_of(thing)
    name = f"{module}:{qualname}"
    return name if _leads_to(module, qualname, thing) else f"{name}#{place}"


def _leads_to(module: str, qualname: str, thing: Any) -> bool:
    homes = [sys.modules.get(module), *([sys.modules.get("__main__")] if module == script_name() else [])]
    return any(found is thing or getattr(found, "fn", None) is thing for found in _members(homes, qualname))


def _members(homes: list[ModuleType | None], qualname: str) -> Iterator[Any]:
    for home in homes:
        found: Any = None
        members: Mapping[str, Any] = vars(home) if home is not None else {}
        for part in qualname.split("."):
            found = members.get(part)
            members = vars(found) if isinstance(found, type) else {}
        yield found


def type_to_ir(hint: Any) -> tuple[Json, dict[str, type]]:
    """Return a hint as JSON, a name or its parts, and the classes that are named in it."""
    found: dict[str, type] = {}
    return _spelled(hint, found), found


def _spelled(hint: Any, found: dict[str, type]) -> Json:
    for word, meant in _WORDS.items():
        if hint is meant:
            return word
    if hint is type(None):
        return "none"
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"union": [_spelled(arg, found) for arg in args]}
    if origin is Literal and all(isinstance(arg, (str, int, bool)) or arg is None for arg in args):
        return {"literal": list(args)}
    if isinstance(origin, type) and args:
        return {"generic": _spelled(origin, found), "args": [_spelled(arg, found) for arg in args]}
    name = name_of(hint, "") if isinstance(hint, type) and origin is None else "#"
    if name.endswith("#"):
        raise Unspeakable
    if not _is_pythons(name):
        found[name] = hint
    return name


def type_from_ir(ir: Json, look_up: Callable[[str], Any]) -> Any:
    """Return the hint that `type_to_ir` wrote; `look_up` finds the names that are not Python's own."""
    if isinstance(ir, str):
        return _WORDS[ir] if ir in _WORDS else look_up(ir)
    if "union" in ir:
        members = [type_from_ir(part, look_up) for part in ir["union"]]
        return Union[tuple(members)]  # noqa: UP007  there may be any number of them
    if "literal" in ir:
        return Literal[tuple(ir["literal"])]
    args = tuple(type_from_ir(part, look_up) for part in ir["args"])
    return _of(type_from_ir(ir["generic"], look_up), args)


def _of(generic: Any, args: tuple[Any, ...]) -> Any:
    """Return a generic class of these types. `Enum["RED"]` is written alike, and is no type."""
    try:
        found = generic[args] if generic is type or hasattr(generic, "__class_getitem__") else None
    except Exception as error:  # a class may do with its arguments what it likes
        raise TypeError(f"{generic!r} cannot be made of {args!r:.60}") from error
    if found is None:
        raise TypeError(f"{generic!r} takes no other types")
    return found


def names_in(ir: Json) -> Iterator[str]:
    """Yield the names in a type that have to be looked up."""
    if isinstance(ir, str):
        if ir not in _WORDS and not _is_pythons(ir):
            yield ir
        return
    for part in (*ir.get("union", ()), *ir.get("args", ()), *([ir["generic"]] if "generic" in ir else [])):
        yield from names_in(part)


def _is_pythons(name: str) -> bool:
    return name.startswith("builtins:") and "#" not in name


def loaded_class(name: str) -> type | None:
    """Return the class of that `module:name` if its module is loaded; nothing is imported."""
    return next(loaded_classes(name), None)


def is_json(value: Any) -> bool:
    """True if a value comes back from JSON equal and of the same types."""
    match value:
        case None | bool() | int() | str():
            return type(value) in (type(None), bool, int, str)
        case float():
            return type(value) is float and math.isfinite(value)
        case list():
            return type(value) is list and all(map(is_json, value))
        case dict():
            return type(value) is dict and all(type(k) is str and is_json(v) for k, v in value.items())
        case _:
            return False
