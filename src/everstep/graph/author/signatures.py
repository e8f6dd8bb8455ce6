"""Reading the signature of a node's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

from everstep.errors import BadRequest
from everstep.graph.author.context import Context
from everstep.graph.check.hints import UNKNOWN


class Param(NamedTuple):
    """One input of a node: the function's parameter and the value's name it is filled from."""

    name: str
    source: str
    required: bool
    hint: Any


def accepted(fn: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names that a function takes; none if it takes any."""
    params = inspect.signature(fn).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in params):
        return None
    return frozenset(p.name for p in params)


def is_async(fn: Callable[..., Any]) -> bool:
    """True for coroutine functions, async generators, and objects whose call is one."""
    return any(
        inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called) for called in _called(fn)
    )


def streams(fn: Callable[..., Any]) -> bool:
    """True for generators, async ones too, and for objects whose call is one."""
    return any(
        inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called) for called in _called(fn)
    )


def _called(fn: Callable[..., Any]) -> tuple[Any, ...]:
    """Return what runs when it is called: an object may be a node too."""
    return (fn,) if inspect.isfunction(fn) else (fn, getattr(type(fn), "__call__", None))  # noqa: B004


def _wants_context(hint: object, fn: Callable[..., Any], param: str) -> bool:
    """True for a parameter annotated `Context`, also when the annotation could not be resolved."""
    if hint is Context or Context in get_args(hint):
        return True
    raw = getattr(fn, "__annotations__", {}).get(param)
    return isinstance(raw, str) and raw.rpartition(".")[2] == "Context"


def read_signature(
    fn: Callable[..., Any],
    signature: Mapping[str, inspect.Parameter],
    hints: Mapping[str, Any],
    extra: tuple[str, ...],
) -> tuple[str | None, tuple[Param, ...], tuple[str, ...]]:
    """Return the context parameter, the inputs, and what cannot be an input."""
    context: str | None = None
    params: list[Param] = []
    oddities: list[str] = []
    takes_any = False
    for p in signature.values():
        hint = hints.get(p.name, UNKNOWN)
        if _wants_context(hint, fn, p.name):
            context = p.name
        elif p.kind is p.VAR_KEYWORD:
            takes_any = True
        elif p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
            oddities.append(p.name)
        else:
            params.append(Param(p.name, p.name, p.default is p.empty, hint))
    known = {p.name for p in params}
    if takes_any and not extra:
        oddities.append("**" + next(p.name for p in signature.values() if p.kind is p.VAR_KEYWORD))
    if takes_any:
        params += [Param(name, name, True, UNKNOWN) for name in extra if name not in known]
    else:
        oddities += [name for name in extra if name not in known]
    return context, tuple(params), tuple(oddities)


def is_text(value: object) -> bool:
    """True for text that is not empty."""
    return isinstance(value, str) and value != ""


def names_of(output: Any, name: str) -> tuple[str, ...]:
    """Return the names of what a node writes or requires."""
    if output is None:
        return ()
    if not isinstance(output, (list, tuple)) or not all(isinstance(o, str) for o in output):
        raise BadRequest(f"node {name!r}: output is {output!r}.", fix="Give a name, or a tuple of names.")
    return tuple(output)


def count_of(value: Any, field: str, name: str) -> int | None:
    """Return a whole number from 1 on, or none."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadRequest(f"node {name!r}: {field} is {value!r}.", fix="Give a whole number of at least 1.")
    return value


def word_of(kind: Any, value: Any, field: str, name: str) -> Any:
    """Return one of the words of an enum."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(k)) for k in kind)
        raise BadRequest(f"node {name!r}: {field} is {value!r}.", fix=f"Use one of {known}.") from None


def flag_of(value: Any, field: str, name: str) -> bool:
    """Return a yes or no."""
    if not isinstance(value, bool):
        raise BadRequest(f"node {name!r}: {field} is {value!r}.", fix="Say True or False.")
    return value
