"""Whatever a public call returns can be imported from a public module."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, cast

import msgspec
import pytest

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
    known = {
        **vars(collections.abc),
        "Any": Any,
        "Path": Path,
        "datetime": datetime,
        **public,
        **vars(sync_groups),
        **names,
    }
    return eval(hint, known) if isinstance(hint, str) else hint


AS_PORTS_SAY = ("KillingStore", "KillingSpool")
"""What stands before a store or a spool answers as that does; authors of stores import `everstep.ports`."""
HIDDEN = {"CheckpointBlobStore", "CheckpointStore", "ResumeScheduler", "ResumeSignalSource", "Wire"}
"""What is returned and cannot be imported from a public module yet. Nothing may be added."""


def exported_by(modules: list[types.ModuleType]) -> set[int]:
    """Return which objects these modules promise; what they import for themselves is none of it."""
    return {id(getattr(module, name)) for module in modules for name in module.__all__}


def returned_by_functions(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what the functions of a public module return: what it lists, and what it does not hide."""
    own = [
        name for name, found in vars(module).items() if getattr(found, "__module__", "") == module.__name__
    ]
    for name in dict.fromkeys([*module.__all__, *own]):
        found = getattr(module, name)
        if not name.startswith("_") and inspect.isfunction(found) and "return" in found.__annotations__:
            yield name, evaluated(found.__annotations__["return"], found.__globals__)


def classes_in(modules: list[types.ModuleType]) -> list[type]:
    listed = [getattr(module, name) for module in modules for name in module.__all__]
    return [found for found in listed if isinstance(found, type) and found.__name__ not in AS_PORTS_SAY]


def hidden_types(*faces: type, modules: list[types.ModuleType] | None = None) -> dict[str, str]:
    """Return the classes of ours that calls return and no public module lists, by where they are returned."""
    modules = modules or []
    exported = exported_by([*PUBLIC, *modules])
    hidden: dict[str, str] = {}
    waiting = [*faces, *classes_in(modules)]
    seen = {*waiting, *GROUPS}

    def look(place: str, hint: Any) -> None:
        for found in types_in(hint):
            if found in seen or not found.__module__.startswith("everstep"):
                continue
            seen.add(found)
            if id(found) in exported:
                waiting.append(found)
            else:
                hidden[place] = f"{found.__module__}.{found.__qualname__}"

    for module in modules:
        for name, hint in returned_by_functions(module):
            look(f"{module.__name__}.{name}", hint)
    while waiting:
        face = waiting.pop()
        for name, hint in returned_by(face):
            look(f"{face.__name__}.{name}", hint)
    return hidden


def test_everything_that_a_host_returns_is_exported() -> None:
    found = hidden_types(AsyncHost, Host, *GROUPS)
    assert {place: name for place, name in found.items() if name.rpartition(".")[2] not in HIDDEN} == {}
    assert len(GROUPS) > 10


def test_everything_that_public_modules_and_their_classes_return_is_exported() -> None:
    found = hidden_types(modules=PUBLIC)
    assert {place: name for place, name in found.items() if name.rpartition(".")[2] not in HIDDEN} == {}


class Inner(msgspec.Struct):
    part: int


def returning(hint: Any) -> types.FunctionType:
    def call(self: Any) -> object: ...

    call.__annotations__["return"] = hint
    return cast("types.FunctionType", call)


def test_a_type_that_is_not_exported_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inner, "__module__", "everstep.somewhere")
    face = type("Face", (), {"call": returning(list[Inner])})
    assert list(hidden_types(face)) == ["Face.call"]


def test_a_type_that_a_public_module_has_for_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inner, "__module__", "everstep.somewhere")
    monkeypatch.setattr(wait, "_Inner", Inner, raising=False)
    face = type("Face", (), {"call": returning(Inner)})
    assert list(hidden_types(face)) == ["Face.call"]


@pytest.mark.parametrize("listed", [[], ["call"]])
def test_a_type_that_a_function_of_a_module_returns_is_found(
    monkeypatch: pytest.MonkeyPatch, listed: list[str]
) -> None:
    monkeypatch.setattr(Inner, "__module__", "everstep.somewhere")
    module, call = types.ModuleType("everstep.public"), returning(Inner)
    call.__module__ = module.__name__
    vars(module).update(call=call, Inner=Inner, __all__=listed)
    assert list(hidden_types(modules=[module])) == ["everstep.public.call"]


def test_a_type_that_a_method_of_a_returned_class_returns_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inner, "__module__", "everstep.somewhere")
    monkeypatch.setattr(results.RunResult, "inner", returning(Inner), raising=False)
    face = type("Face", (), {"call": returning(results.RunResult)})
    assert list(hidden_types(face)) == ["RunResult.inner"]


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
