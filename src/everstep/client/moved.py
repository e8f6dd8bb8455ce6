"""Where calls of 0.1 are now. They work until 0.3, and say so.

Apart from the hosts because both need it, and because it goes as a whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar
from warnings import warn

H = TypeVar("H")

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "debug": ("bisect", "diff", "recall", "replay"),
    "fleet": ("breakers", "counts", "reset_breaker", "workers"),
    "retention": ("clean_up", "erase", "gc", "pin", "removals", "removed", "unpin"),
    "storage": ("doctor", "drain", "rekey", "spool", "spooled", "verify"),
    "transfer": ("checkpoint_as", "copy", "export", "import_", "write_run_folder"),
    "versions": ("compat", "migrate"),
    "waiting": ("fire", "reissue", "revoke", "settle"),
}
MOVED_CALLS: Mapping[str, str] = {
    call: f"{group}.{call}" for group, calls in _GROUPS.items() for call in calls
}
"""What was an attribute of a host in 0.1, and where it is now."""


class MovedCall:
    """A call under the name that a host had it by in 0.1. It warns when it is used on a host.

    Of the class it is a function, so that `Host.pin`, `super().pin(...)` and `create_autospec(Host)` work.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._group, _, self._name = place.partition(".")

    def __get__(self, host: object, owner: type) -> Any:
        if host is None:
            return self._of_class(owner)
        return self._of_host(host)

    def _of_host(self, host: object) -> Any:
        message = f"host.{self._name} is host.{self._place} now; the old name works until everstep 0.3."
        warn(message, DeprecationWarning, stacklevel=3)
        return attrgetter(self._place)(host)

    def _of_class(self, owner: type) -> Any:
        group = getattr(owner, self._group)
        if isinstance(group, property):
            getter: Any = group.fget
            group = getattr(getter.__globals__["sync_groups"], getter.__annotations__["return"])
        call = getattr(group, self._name)
        return self._function(call) if inspect.isfunction(call) else call

    def _function(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def moved(host: object, *args: Any, **options: Any) -> Any:
            return self._of_host(host)(*args, **options)

        async def awaited(host: object, *args: Any, **options: Any) -> Any:
            return await self._of_host(host)(*args, **options)

        made = wraps(call)(awaited if inspect.iscoroutinefunction(call) else moved)
        _, *others = inspect.signature(call).parameters.values()
        made.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]  # autospec drops no `self`
        return made


def with_moved_calls(host: type[H]) -> type[H]:
    """Give a class of hosts the names of 0.1. Type checkers do not see them, and name what uses them."""
    for name, place in MOVED_CALLS.items():
        setattr(host, name, MovedCall(place))
    return host
