"""Whatever a public call returns can be imported from a public module."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import msgspec

import everstep
from everstep import (
    AsyncHost,
    Host,
    backends,
    checkpoints,
    migrate,
    notify,
    pipelines,
    results,
    testing,
    wait,
)
from everstep import types as options
from everstep.client import groups, sync_groups

GROUP_MODULES = [
    sync_groups,
    *(import_module(f"{groups.__name__}.{module.name}") for module in iter_modules(groups.__path__)),
]
GROUPS = [
    found
    for module in GROUP_MODULES
    for name, found in vars(module).items()
    if name.endswith("Calls") and isinstance(found, type)
]
"""The calls under a name of the host, such as `host.fleet`."""

PUBLIC: list[types.ModuleType] = [
    everstep,
    results,
    wait,
    backends,
    checkpoints,
    migrate,
    notify,
    pipelines,
    testing,
    options,
]


def types_in(hint: Any) -> Iterator[type]:
    """Yield the classes that a hint names, also inside lists and unions."""
    parts = typing.get_args(hint)
    for part in parts:
        yield from types_in(list(part) if isinstance(part, list) else part)
    origin = typing.get_origin(hint) if parts else hint
    if isinstance(origin, type):
        yield origin


def returned_by(face: type) -> Iterator[tuple[str, Any]]:
    """Yield what the public calls and properties of a class return, and the fields of a struct."""
    for name, found in inspect.getmembers_static(face):
        if name.startswith("_"):
            continue
        found = (
            getattr(found, "fget", None) or getattr(found, "func", None) or getattr(found, "__func__", found)
        )
        if inspect.isfunction(found) and "return" in found.__annotations__:
            yield name, evaluated(found.__annotations__["return"], found.__globals__)
    if issubclass(face, msgspec.Struct):
        yield from ((field.name, field.type) for field in msgspec.structs.fields(face))


def evaluated(hint: Any, names: dict[str, Any]) -> Any:
    """Return a hint as types; a name that is imported for checkers alone is looked for in public modules."""
    public = {name: found for module in PUBLIC for name, found in vars(module).items()}
    known = {**vars(collections.abc), "Any": Any, "Path": Path, **public, **vars(sync_groups), **names}
    return eval(hint, known) if isinstance(hint, str) else hint


def hidden_types(*faces: type) -> dict[str, str]:
    """Return the classes of ours that calls return and no public module has, by where they are returned."""
    exported = {id(found) for module in PUBLIC for found in vars(module).values()}
    exported |= {id(getattr(everstep, name)) for name in everstep.__all__}
    hidden: dict[str, str] = {}
    waiting, seen = list(faces), {*faces, *GROUPS}
    while waiting:
        face = waiting.pop()
        for name, hint in returned_by(face):
            for found in types_in(hint):
                if found in seen or not found.__module__.startswith("everstep"):
                    continue
                seen.add(found)
                if id(found) not in exported:
                    hidden[f"{face.__name__}.{name}"] = f"{found.__module__}.{found.__qualname__}"
                elif issubclass(found, msgspec.Struct):
                    waiting.append(found)
    return hidden


def test_everything_that_a_host_returns_is_exported() -> None:
    assert hidden_types(AsyncHost, Host, *GROUPS) == {}
    assert len(GROUPS) > 10


def test_a_type_that_is_not_exported_is_found() -> None:
    class Inner(msgspec.Struct):
        part: int

    class Face:
        def call(self) -> object: ...

    Inner.__module__ = "everstep.somewhere"
    Face.call.__annotations__["return"] = types.GenericAlias(list, (Inner,))
    assert list(hidden_types(Face)) == ["Face.call"]


def test_results_are_in_order_and_structs_are_frozen() -> None:
    assert list(results.__all__) == sorted(results.__all__)
    loose = [
        name
        for name in results.__all__
        if isinstance(found := getattr(results, name), type)
        and issubclass(found, msgspec.Struct)
        and not found.__struct_config__.frozen
    ]
    assert loose == ["Stats"], "the counters of a worker at work are alive, all else is as it was returned"
