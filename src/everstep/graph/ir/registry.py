"""Who knows the functions and classes that an IR names."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

from everstep.graph.check.hints import UNKNOWN
from everstep.graph.ir.check import Faults
from everstep.graph.ir.names import Json, loaded_class, type_from_ir


class Registry(Protocol):
    """A mapping, or anything else that gives what is known by an identifier, or none."""

    def get(self, identifier: str, /) -> Any: ...


class LookUp:
    """Looks names up for one flow, notes unknown ones, and remembers what was asked for where."""

    def __init__(self, registry: Registry, faults: Faults) -> None:
        self._registry = registry
        self.faults = faults
        self.names: dict[str, Json] = {}
        """What was asked for, by its place in the flow."""
        self.found: dict[str, Any] = {}
        """What was found, by its name."""

    def thing(self, identifier: str, place: str, path: str) -> Any:
        """Return what the registry has under an identifier; none if that is nothing."""
        self.names[place] = identifier
        found = self._registry.get(identifier)
        if found is None:
            self.faults.add(
                "ir.missing", path, f"the registry has no {identifier!r}.", "Add it to the registry."
            )
        self.found[identifier] = found
        return found

    def function(self, identifier: str, place: str, path: str) -> Any:
        """Return a function, or a node with one."""
        found = self.thing(identifier, place, path)
        if found is None or _has_signature(getattr(found, "fn", found)):
            return found
        self.faults.add(
            "ir.missing", path, f"the registry has {found!r:.80} as {identifier!r}.", "Give a function."
        )
        return None

    def type(self, ir: Json, place: str, path: str) -> Any:
        """Return a type. Classes of loaded modules need not be in the registry."""
        self.names[place] = ir
        try:
            return type_from_ir(ir, lambda name: self._class(name, path))
        except TypeError as error:  # a class that takes no arguments, or other ones
            self.faults.add("ir.bad_value", path, f"it is no type: {error}.")
            return UNKNOWN

    def _class(self, name: str, path: str) -> Any:
        found = self._registry.get(name)
        found = loaded_class(name) if found is None else found
        if found is None:
            self.faults.add(
                "ir.missing",
                path,
                f"there is no class {name!r}.",
                "Add it to the registry, or import its module first.",
            )
            return UNKNOWN
        self.found[name] = found
        return found


def _has_signature(thing: Any) -> bool:
    """True for a function whose parameters are known."""
    try:
        inspect.signature(thing)
    except (TypeError, ValueError):  # it cannot be called, or its signature is unknown
        return False
    return not isinstance(thing, type)
