"""What undoes a durable call: what is kept of it, and how another process finds it. Apart from the calls, as
few are undone.

A store that was altered must not have just any function called: one that undoes lies in the flow's own code.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from everstep.codec.classes import script_name
from everstep.errors import BadRequest, UndoUnknown
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node, undo_node
from everstep.graph.check.undoing import KEY, name_of_undo
from everstep.graph.compile.plan import deep_nodes
from everstep.runtime.drive.units.kept_errors import ErrorClasses

RETURNED = "result"
"""What an undo calls what the call has returned."""


def undo_of_call(
    flow: Flow, path: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], undo: Any
) -> tuple[str, dict[str, Any]]:
    """Return what undoes a call, by name, and what that is given; raises if others would not find it."""
    node = undo_node(undo, getattr(fn, "__name__", "step"))
    name = name_of_undo(node)
    if _found(flow, name) is not undo:
        raise BadRequest(
            f"{name!r} undoes a step, and another process would not find it by that name.",
            fix="Define it in a module of the flow's own code, outside of any function or class.",
        )
    _played(flow, path, node)
    given = _by_name(fn, args, kwargs)
    for p in node.params:
        if p.required and p.name not in (*given, RETURNED, KEY):
            known = ", ".join([*given, RETURNED, KEY])
            raise BadRequest(
                f"{name!r}, which undoes a step, asks for {p.name!r}.", fix=f"It can have {known}."
            )
    return name, {p.name: given[p.name] for p in node.params if p.name in given}


def node_of_call(flow: Flow, path: str, name: str) -> Node:
    """Return what undoes the durable call at a path, by the name that is recorded."""
    found = _found(flow, name)
    if found is None:
        raise UndoUnknown(
            f"{name!r}, which undoes a step, is not in the code of flow {flow.name!r}.",
            fix="Undo it by hand, or bring the code back that has it, and try again.",
        )
    return _played(flow, path, undo_node(found, name))


def _played(flow: Flow, path: str, node: Node) -> Node:
    return node if flow.plays_undo is None else flow.plays_undo(path, node)


def _by_name(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        bound = inspect.signature(fn).bind_partial(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise BadRequest(
            f"what {fn!r:.60} is called with cannot be said by name: {error}.",
            fix="A step with undo= calls a function with named parameters.",
        ) from error
    bound.apply_defaults()
    return dict(bound.arguments)


def _found(flow: Flow, name: str) -> Any:
    """Return the function or node of this name in the flow's own code; none if there is none."""
    module, _, qualname = name.partition(":")
    own = ErrorClasses(node.fn for _, node in deep_nodes(flow.plan))
    if not module or "<" in qualname:
        return None
    if module == script_name():
        found: Any = sys.modules.get("__main__")
    elif not own.is_own(module):
        return None
    else:
        try:
            found = sys.modules.get(module) or importlib.import_module(module)
        except ImportError:
            return None
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, (FunctionType, Node)) else None
