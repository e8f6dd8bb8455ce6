"""The channel as a node sees it: the run's shared key-value space, with the node's own changes on top.

What a node does to the channel is buffered while it runs and recorded with its step, so an attempt that fails
leaves no trace. Until then only the node itself sees it.
"""

from __future__ import annotations

import copy
import types
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, Union, get_args, get_origin

from everstep.errors import BadRequest, EverstepError, close_matches
from everstep.graph.check.hints import fits, spell
from everstep.model.durations import Span, seconds_of

MISSING: Final = object()
"""Stands for the value of a key that is not there."""

RESULT_SUFFIX: Final = ".__result__"
"""Keys that end so hold the results of nodes: anybody may read them, only the run writes them."""

LONGEST_KEY: Final = 256
_LISTS = (list, Sequence, MutableSequence, Collection, Iterable)


class ChannelOp(NamedTuple):
    """One change to the channel, applied when the step is recorded, to what is there by then."""

    kind: Literal["set", "append", "prepend", "add", "delete"]
    key: str
    value: Any
    ttl: timedelta | None
    """How long a set value lives, counted from the record; none means for good."""


class ChannelSource(Protocol):
    """What was committed, and the locks of the process."""

    def read(self, key: str) -> Any:
        """Return a fresh copy of the value; raise KeyError if it is absent or expired."""

    def keys(self) -> list[str]:
        """Return the keys that are there."""

    def check(self, key: str, value: Any) -> None:
        """Raise ValueNotStorable if the value cannot be kept under that key."""

    def lock(self, key: str, owner: object, timeout: float) -> None:
        """Hold the lock of `key` for `owner`, waiting for it at most `timeout` seconds."""

    async def lock_async(self, key: str, owner: object, timeout: float) -> None:
        """Do the same without blocking the loop."""


def apply(op: ChannelOp, current: Any) -> Any:
    """Return what the operation makes of a value, either of which may be `MISSING`; changes neither."""
    if op.kind == "set":
        return op.value
    if op.kind == "delete":
        return MISSING
    if op.kind == "add":
        return _plus(op.key, _number(op.key, current), op.value)
    items = _list(op.key, current)
    return [*items, op.value] if op.kind == "append" else [op.value, *items]


class Channel:
    """The run's shared values: read what was committed, with this node's own changes on top.

    Changes are recorded with the node's step and become visible to others then; if the node fails they are
    dropped. Values are copied on the way in and out, so only these methods change the channel.
    """

    __slots__ = ("_ops", "_owner", "_refusal", "_source", "_types")

    def __init__(
        self,
        source: ChannelSource,
        owner: object,
        types: Mapping[str, Any] | None = None,
        refusal: Callable[[], EverstepError] | None = None,
    ) -> None:
        self._source = source
        self._refusal = refusal
        """Says what is raised by whatever would change it; none if it may be changed."""
        self._owner = owner
        self._types = types
        self._ops: dict[str, list[ChannelOp]] = {}

    @property
    def ops(self) -> tuple[ChannelOp, ...]:
        """What to record: for each changed key one `set`, `delete` or `add`, or appends and prepends."""
        return tuple(op for ops in self._ops.values() for op in ops)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default if there is none."""
        value = self._seen(_checked_key(key))
        return default if value is MISSING else value

    def set(self, key: str, value: Any, *, ttl: Span | None = None) -> None:
        """Write a value; with `ttl` (seconds or a timedelta) it expires so long after it was recorded."""
        self._check_writable(key)
        self._check_type(key, value, fits)
        self._replace(ChannelOp("set", key, snapshot(key, value), _lifetime(key, ttl)))

    def check(self, key: str, value: Any) -> None:
        """Raise what setting the key to this value would end in, now or when the step is recorded."""
        self._check_writable(key)
        self._check_type(key, value, fits)
        self._source.check(key, snapshot(key, value))

    def delete(self, key: str) -> bool:
        """Remove a key, and say whether it was there."""
        self._check_own(key)
        was_there = self.exists(key)
        self._replace(ChannelOp("delete", key, None, None))
        return was_there

    def exists(self, key: str) -> bool:
        """True if the key has a value."""
        mine = self._ops.get(_checked_key(key))
        return mine[0].kind != "delete" if mine else self._committed(key) is not MISSING

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin so, sorted."""
        found = {*self._source.keys(), *self._ops}
        found -= {key for key, ops in self._ops.items() if ops[0].kind == "delete"}
        return sorted(key for key in found if key.startswith(prefix))

    def clear(self) -> None:
        """Remove every key this node sees, but not the results of nodes."""
        if self._refusal is not None:
            raise self._refusal()
        for key in self.keys():
            if not key.endswith(RESULT_SUFFIX):
                self._replace(ChannelOp("delete", key, None, None))

    def append(self, key: str, item: Any) -> int:
        """Add an item at the end of a list, which is made if it is not there; return the new length.

        It goes to the end of the list as it is when the step is recorded: what others append meanwhile stays.
        """
        return self._extend("append", key, item)

    def prepend(self, key: str, item: Any) -> int:
        """Add an item at the front of a list, which is made if it is not there; return the new length."""
        return self._extend("prepend", key, item)

    def atomic_add(self, key: str, amount: float = 1) -> int | float:
        """Add to a number, 0 if it is not there, and return what this node now sees.

        It is recorded as an addition, so nothing that others add meanwhile is lost.
        """
        self._check_writable(key)
        if type(amount) not in (int, float):
            raise BadRequest(
                f"channel key {key!r} was to grow by {amount!r:.60} ({type(amount).__name__}).",
                fix="Add an int or a float.",
            )
        mine = self._ops.get(key)
        if mine and mine[0].kind == "add":  # summed, so that what is seen is what the record will give
            amount, mine = _plus(key, mine[0].value, amount), None
        op = ChannelOp("add", key, amount, None)
        total: int | float = apply(op, self._fold(key, mine))
        self._check_type(key, total, fits)
        self._ops[key] = [ChannelOp("set", key, total, mine[0].ttl) if mine else op]
        return total

    def lock(self, key: str, timeout: Span = 30.0) -> ChannelLock:
        """Hold a key for this node: `with channel.lock(key):`, or `async with` in an async node.

        Leaving the block does not release it. It is held until the node's step is recorded, because what
        the node wrote is not visible before that, and the next holder would read the old value. It keeps out
        only those who ask for the lock of the same key.
        """
        seconds = seconds_of(timeout, f"timeout of the lock of channel key {key!r}", least=0)
        return ChannelLock(self._source, _checked_key(key), self._owner, seconds)

    def __getitem__(self, key: str) -> Any:
        value = self._seen(_checked_key(key))
        if value is MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        if not self.exists(key):
            raise KeyError(key)
        self.delete(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.exists(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        return f"<channel with {len(self.ops)} changes>"

    def _seen(self, key: str) -> Any:
        mine = self._ops.get(key)
        return snapshot(key, self._fold(key, mine)) if mine else self._committed(key)

    def _committed(self, key: str) -> Any:
        """Read anew each time, so that what a lock waited for is seen by the reads after it."""
        try:
            return self._source.read(key)
        except KeyError:
            return MISSING

    def _fold(self, key: str, mine: list[ChannelOp] | None) -> Any:
        """Return what was committed with these operations on top."""
        if not mine:
            return self._committed(key)
        if mine[0].kind in ("set", "delete"):
            return apply(mine[0], MISSING)
        if mine[0].kind == "add":
            return apply(mine[0], self._committed(key))
        front = [op.value for op in reversed(mine) if op.kind == "prepend"]
        back = [op.value for op in mine if op.kind == "append"]
        return [*front, *_list(key, self._committed(key)), *back]

    def _extend(self, kind: Literal["append", "prepend"], key: str, item: Any) -> int:
        self._check_writable(key)
        self._check_type(key, item, _fits_item)
        op = ChannelOp(kind, key, snapshot(key, item), None)
        mine = self._ops.get(key)
        if mine and mine[0].kind not in ("append", "prepend"):
            # On top of an own `set` or `delete` nothing of others can survive, so it becomes part of a `set`.
            items = apply(op, self._fold(key, mine))
            self._ops[key] = [ChannelOp("set", key, items, mine[0].ttl)]
            return len(items)
        length = len(_list(key, self._committed(key))) + len(mine or ()) + 1
        self._ops.setdefault(key, []).append(op)
        return length

    def _replace(self, op: ChannelOp) -> None:
        """Buffer an operation that leaves nothing of those before it."""
        self._ops.pop(op.key, None)
        self._ops[op.key] = [op]

    def _check_own(self, key: str) -> None:
        if self._refusal is not None:
            raise self._refusal()
        _check_own(_checked_key(key))

    def _check_writable(self, key: str) -> None:
        self._check_own(key)
        if self._types is not None and key not in self._types:
            close = close_matches(key, self._types, n=1)
            known = ", ".join(sorted(self._types)) or "none"
            raise BadRequest(
                f"channel key {key!r} is not declared.",
                fix=f"Did you mean {close[0]!r}?" if close else f"Declared are: {known}.",
            )

    def _check_type(self, key: str, value: Any, check: Any) -> None:
        hint = self._types[key] if self._types is not None else Any
        if not check(value, hint):
            what = "item" if check is _fits_item else "value"
            raise BadRequest(
                f"channel key {key!r} got the {what} {value!r:.60} ({type(value).__name__}), "
                f"but is declared {spell(hint)}.",
                fix="Write what was declared, or declare another type.",
            )


class ChannelLock:
    """The lock of one key, taken by entering `with` or `async with` and held until the step is recorded."""

    __slots__ = ("_key", "_owner", "_source", "_timeout")

    def __init__(self, source: ChannelSource, key: str, owner: object, timeout: float) -> None:
        self._source = source
        self._key = key
        self._owner = owner
        self._timeout = timeout

    def __enter__(self) -> None:
        self._source.lock(self._key, self._owner, self._timeout)

    def __exit__(self, *_: object) -> None:
        pass

    async def __aenter__(self) -> None:
        await self._source.lock_async(self._key, self._owner, self._timeout)

    async def __aexit__(self, *_: object) -> None:
        pass


def snapshot(key: str, value: Any) -> Any:
    """Return a copy of a container, and anything else as it is.

    Containers are what nodes go on changing after they handed them over. An object of a class is not copied:
    that may be costly or do anything, and only the codec knows whether the copy is equal; treat it as frozen.
    """
    if not isinstance(value, (dict, list, set, tuple, bytearray)):
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:  # copying runs the code of whatever is inside
        raise BadRequest(
            f"channel key {key!r}: {type(value).__name__} cannot be copied ({error}).",
            fix="Write plain values: text, numbers, lists, dicts.",
        ) from error


def _checked_key(key: Any) -> str:
    is_short = isinstance(key, str) and 0 < len(key) <= LONGEST_KEY
    if is_short and (key.isprintable() or all(unicodedata.category(c) not in ("Cc", "Cs") for c in key)):
        return str(key)
    raise BadRequest(
        f"{key!r:.80} is not a channel key.",
        fix=f"Use text of 1 to {LONGEST_KEY} characters without control characters.",
    )


def check_key(key: Any) -> str:
    """Return a key under which anybody may put a value."""
    _check_own(_checked_key(key))
    return str(key)


def _check_own(key: str) -> None:
    if key.endswith(RESULT_SUFFIX):
        raise BadRequest(
            f"channel key {key!r} is the result of a node and cannot be changed.", fix="Use another key."
        )


def _lifetime(key: str, ttl: Any) -> timedelta | None:
    if ttl is None:
        return None
    return timedelta(seconds=seconds_of(ttl, f"channel key {key!r}: ttl", least=1e-6))


def _number(key: str, value: Any) -> int | float:
    if value is MISSING:
        return 0
    if type(value) is int or type(value) is float:
        return value
    raise BadRequest(
        f"channel key {key!r} holds {value!r:.60} ({type(value).__name__}), not a number.",
        fix="Add to numbers only, or set the key first.",
    )


def _plus(key: str, one: float, other: float) -> int | float:
    try:
        return one + other
    except OverflowError as error:  # a float and an int beyond any float
        raise BadRequest(
            f"channel key {key!r}: the sum is too large for a float.", fix="Add whole numbers only."
        ) from error


def _list(key: str, value: Any) -> list[Any]:
    if value is MISSING:
        return []
    if isinstance(value, list):
        return value
    raise BadRequest(
        f"channel key {key!r} holds {value!r:.60} ({type(value).__name__}), not a list.",
        fix="Append and prepend to lists only, or set the key first.",
    )


def _fits_item(item: object, hint: Any) -> bool:
    """False only if a list with this item certainly is not what the hint says."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits_item(item, option) for option in get_args(hint))
    if origin is Annotated:
        return _fits_item(item, get_args(hint)[0])
    if not fits([item], hint):
        return False
    return fits(item, get_args(hint)[0]) if origin in _LISTS else True
