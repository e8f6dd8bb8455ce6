"""What a struct needs to be the one shape of a thing: in Python, with `--json`, over HTTP and in OpenAPI."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

K = TypeVar("K")

HOW: Final = "shown"
"""Where the type of a field says how it is shown."""

VALUE = Meta(extra={HOW: "value"})
Value = Annotated[Any, VALUE]
"""A value of a user's: any Python object. A field of another type holds what JSON has a form for."""

OrNull = Annotated[str, Meta(extra={HOW: "or_null"})]
"""Text that is shown as null where it is empty."""

HIDDEN = Meta(extra={HOW: "hidden"})
"""Marks what is kept and not shown: `Annotated[bytes, HIDDEN]`."""


def called(**names: str) -> Meta:
    """Mark structs whose fields are shown under other names: `Annotated[Pair, called(before="good")]`."""
    return Meta(extra={HOW: names})


LONGEST_TEXT: Final = 500
"""How long a group may be, and the reason for which a run is kept."""
LONGEST_QUERY: Final = 4000
"""Characters that a query may have."""
SPEEDS: Final = (0.001, 100_000.0)
"""The least and the most runs a second that an act on many may be bounded to."""
PRIORITIES: Final = range(-(1 << 31), 1 << 31)

Count = Annotated[int, Meta(ge=0)]
Instant = Annotated[datetime, Meta(tz=True)]


class shown(property):  # noqa: N801  # used as a decorator, as `property` is
    """A property that is shown beside the fields of its struct."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__(read)


_looking = threading.Lock()


def _understood(kind: Any) -> Any:
    with _looking:
        msgspec.msgpack.Decoder(kind)
    return kind


def _free_lock() -> None:
    global _looking
    _looking = threading.Lock()


os.register_at_fork(after_in_child=_free_lock)

if TYPE_CHECKING:

    def understood(kind: type[K]) -> type[K]:
        """Return a type once msgspec knows all about it.

        It looks at the types of a struct when that is first read, and a second thread that reads one
        meanwhile gets what is half made, which ends the process. So a type is handed to msgspec only like
        this: `Decoder(understood(Record))`, `msgspec.convert(found, understood(Record))`.
        """
else:
    understood = lru_cache(maxsize=1024)(_understood)
