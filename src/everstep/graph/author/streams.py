"""What a streaming node may yield besides plain values."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin

from everstep.errors import BadRequest
from everstep.graph.check.hints import UNKNOWN

T = TypeVar("T")
_STREAMS = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)


class Chunk(NamedTuple, Generic[T]):
    """A value that a generator yields, and where its stream goes on behind it.

    A stream that is resumed finds the newest cursor that was kept in `ctx.cursor`.
    """

    value: T
    cursor: str


def opened(chunk: Any) -> tuple[Any, str | None]:
    """Return the value that was yielded, and the cursor that came with it."""
    if type(chunk) is not Chunk:
        return chunk, None
    if not isinstance(chunk.cursor, str) or not chunk.cursor:
        raise BadRequest(
            f"a chunk was yielded with cursor {chunk.cursor!r}.", fix="Give text, as in Chunk(row, str(n))."
        )
    return chunk.value, chunk.cursor


def collected(returns: Any) -> Any:
    """Return the type of what is collected from a generator that is annotated like this."""
    if returns in _STREAMS:
        return list
    if get_origin(returns) not in _STREAMS:
        return UNKNOWN
    yielded = get_args(returns)[0]
    members = get_args(yielded) if get_origin(yielded) in (Union, UnionType) else (yielded,)
    values = [_value_type(member) for member in members]
    if Any in values:
        return list
    return list[Union[tuple(values)]]  # type: ignore[misc]  # noqa: UP007  # made here


def _value_type(yielded: Any) -> Any:
    if yielded is Chunk:
        return Any
    return get_args(yielded)[0] if get_origin(yielded) is Chunk else yielded
