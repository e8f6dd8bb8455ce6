"""Helper functions that are durable inside a node, and the node that is running: `@step` and `current`.

A drive marks which node runs only once this is loaded, so a program that uses neither pays nothing. The
context of a node is made when it asks, so in other programs a node that does not ask pays next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from everstep.errors import BadRequest
from everstep.graph.author.context import Context, Keep, OnChange, UnitOptions
from everstep.model.durations import Span
from everstep.model.retry import Retry, RetryPreset

P = ParamSpec("P")
T = TypeVar("T")


class Running(Protocol):
    """The node that some code runs in."""

    task: Any
    """The task of an async node."""

    def open(self) -> Context | None:
        """Return its context, made now unless it is: most nodes never ask."""


MARKS: ContextVar[Running | None] = ContextVar("everstep_current", default=None)
"""The node that this code runs in; none inside a durable call of it."""
Context.marks = MARKS


def running() -> Context | None:
    """Return the context of the node that is running; none outside of one, and inside a durable call."""
    found = MARKS.get()
    return None if found is None else found.open()


def current() -> Context:
    """Return the context of the node that is running: for its code, its tasks, and threads like them."""
    found = running()
    if found is None:
        raise BadRequest(
            "no node is running here.",
            fix="Call it inside a node. A thread of your own needs contextvars.copy_context().run(...).",
        )
    return found


@overload
def step(fn: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def step(
    *,
    name: str | None = None,
    key: Callable[..., Any] | None = None,
    retry: int | RetryPreset | Retry | None = None,
    timeout: Span | None = None,
    effects: str = "effectful",
    on_change: OnChange = "warn",
    keep: Keep = "visit",
    undo: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    key: Callable[..., Any] | None = None,
    retry: int | RetryPreset | Retry | None = None,
    timeout: Span | None = None,
    effects: str = "effectful",
    on_change: str = "warn",
    keep: str = "visit",
    undo: Callable[..., Any] | None = None,
) -> Any:
    """Make a helper function durable: called inside a node it is a step of it, elsewhere a plain call.

    `key` is called with the arguments, and tells calls apart that are under way at the same time. A helper
    that is async is known by name and number in the order in which its calls are awaited, or begin as tasks.
    `undo` undoes a call if the run fails or is cancelled, as that of `ctx.step` does.
    """
    options = UnitOptions.of(
        retry=retry, timeout=timeout, effects=effects, on_change=on_change, keep=keep, undo=undo
    )

    def decorate(made: Callable[..., Any]) -> Callable[..., Any]:
        called = _name_of(made, name)
        is_async = _is_async(made)

        def options_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> UnitOptions:
            return options if key is None else options.with_key(key(*args, **kwargs))

        @wraps(made)
        def helper(*args: Any, **kwargs: Any) -> Any:
            context = running()
            if context is None:
                return made(*args, **kwargs)
            own = options_of(args, kwargs)
            return context.make_step(called, made, args, kwargs, own, is_async=False)

        # A node or a framework for agents that is handed it awaits what says that it is to be awaited.
        @wraps(made)
        async def helper_async(*args: Any, **kwargs: Any) -> Any:
            context = running()
            if context is None:
                return await made(*args, **kwargs)
            own = options_of(args, kwargs)
            return await context.make_step(called, made, args, kwargs, own, is_async=True)

        return helper_async if is_async else helper

    return decorate if fn is None else decorate(fn)


def _name_of(made: Any, given: str | None) -> str:
    """Return under which name a function is durable; raises for what cannot be."""
    if isinstance(made, staticmethod | classmethod):
        kind = type(made).__name__
        raise BadRequest(
            f"@step is given a {kind}: {made!r:.80}.", fix=f"Put @{kind} above @step, so that it comes last."
        )
    if not callable(made):
        raise BadRequest(f"@step is given {made!r:.80}.", fix="Give a function.")
    if isgeneratorfunction(made) or isasyncgenfunction(made):
        raise BadRequest(
            f"@step is given {made!r:.80}, which yields.",
            fix="Return a list: what is recorded of a step is one result.",
        )
    found = given or getattr(made, "__name__", None)
    if not isinstance(found, str):  # functools.partial, an object that can be called
        raise BadRequest(
            f"@step is given {made!r:.80}, which has no name of its own.",
            fix='Give it one that stays: step(name="search")(...).',
        )
    return found


def _is_async(made: Any) -> bool:
    """True if a call of this returns something to await."""
    while isinstance(made, partial):
        made = made.func
    return iscoroutinefunction(made) or iscoroutinefunction(getattr(made, "__call__", None))  # noqa: B004


__all__ = ["current", "step"]
