"""Calls of what may hang, as notifiers do: on threads that nothing else needs or waits for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def apart(
    spawn: Callable[[Callable[[], None], str], object], work: Callable[..., T], /, *arguments: Any
) -> Future[T]:
    """Make a blocking call that may never return, on a thread of its own, which `spawn` starts."""
    future: Future[T] = Future()
    within = partial(copy_context().run, work, *arguments)

    def call() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            answer = within()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(answer)

    spawn(call, "everstep-apart")
    return future
