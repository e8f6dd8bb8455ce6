"""Which runs are asked for: a query as a tree, and the fields that it may name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

Value = str | float | bool | datetime


class Op(StrEnum):
    """How a field is compared with a value."""

    IS = "="
    IS_NOT = "!="
    BELOW = "<"
    UP_TO = "<="
    ABOVE = ">"
    FROM = ">="
    STARTS = "starts_with"
    CONTAINS = "contains"
    IN = "in"
    SET = "is set"


class Kind(StrEnum):
    """What a field holds."""

    TEXT = "text"
    STATUS = "status"
    NUMBER = "number"
    TIME = "time"
    FLAG = "true or false"
    ANY = "an attribute"
    """Whatever it is of each run."""


FIELDS: Final = {
    "id": Kind.TEXT,
    "flow": Kind.TEXT,
    "version": Kind.TEXT,
    "status": Kind.STATUS,
    "group": Kind.TEXT,
    "priority": Kind.NUMBER,
    "parent": Kind.TEXT,
    "started_by": Kind.TEXT,
    "owner": Kind.TEXT,
    "started": Kind.TIME,
    "ended": Kind.TIME,
    "changed": Kind.TIME,
    "pinned": Kind.FLAG,
    "needs_repair": Kind.FLAG,
    "paused": Kind.FLAG,
    "waiting": Kind.TEXT,
    "waiting_at": Kind.TEXT,
    "error": Kind.TEXT,
    "error_code": Kind.TEXT,
    "undoing": Kind.TEXT,
    "tag": Kind.TEXT,
}
"""What a query may name besides labels: the run's own line, what it waits for (the kind, the node), how it
failed, and how far it has come with undoing."""
ARGUMENTS: Final = {
    "version": ("version", Op.IS),
    "id_prefix": ("id", Op.STARTS),
    "group": ("group", Op.IS),
    "owner": ("owner", Op.IS),
    "started_by": ("started_by", Op.IS),
    "waiting": ("waiting", Op.IS),
    "waiting_at": ("waiting_at", Op.IS),
    "error": ("error", Op.CONTAINS),
    "error_code": ("error_code", Op.IS),
    "undoing": ("undoing", Op.IS),
    "started_since": ("started", Op.FROM),
    "started_until": ("started", Op.BELOW),
    "ended_since": ("ended", Op.FROM),
    "ended_until": ("ended", Op.BELOW),
    "changed_since": ("changed", Op.FROM),
    "changed_until": ("changed", Op.BELOW),
}
"""What listings take as arguments of their own, and the comparisons that these stand for."""
OF_TAG: Final = "tag."
"""What names the value of a tag, `tag.team`; the field `tag` holds the names of a run's tags."""
OF_ATTRIBUTE: Final = "attribute."
OF_WAITS: Final = frozenset({"waiting", "waiting_at"})
OF_ERRORS: Final = frozenset({"error", "error_code"})
OF_HEADS: Final = frozenset({"changed"})
OF_UNDO: Final = frozenset({"undoing"})
"""What stores keep in the run's row, and read with its labels only."""


def asks_for_undoing(query: Query) -> bool:
    """True if a query asks what runs say of undoing."""
    return any(one.field in OF_UNDO for one in comparisons_of(query))


def is_of_labels(field: str) -> bool:
    """True for what tags or attributes have."""
    return field == "tag" or field.startswith((OF_TAG, OF_ATTRIBUTE))


def arguments_in(asked: Mapping[str, object]) -> dict[str, object]:
    """Return those of `ARGUMENTS` that are given."""
    return {name: asked[name] for name in ARGUMENTS if asked.get(name) is not None}


def given_of(more: Mapping[str, object]) -> dict[str, object]:
    """Return which of the further arguments of a listing are given, or raise for one that there is not."""
    for name in more:
        if name not in ARGUMENTS:
            raise TypeError(f"runs() got an unexpected keyword argument {name!r}")
    return arguments_in(more)


class Compare(msgspec.Struct, frozen=True):
    """One comparison: of what a field holds, or whether it holds anything."""

    field: str
    op: Op
    values: tuple[Value, ...] = ()
    """One, several of `in`, none of `is set`. Where both may be meant, the word 7 is a number and a text."""

    @property
    def is_of_labels(self) -> bool:
        """True if it asks for a tag or an attribute."""
        return is_of_labels(self.field)


class Every(msgspec.Struct, frozen=True):
    """True where each part is."""

    parts: tuple[Query, ...]


class Some(msgspec.Struct, frozen=True):
    """True where one of the parts is."""

    parts: tuple[Query, ...]


class Not(msgspec.Struct, frozen=True):
    """True where its part is not."""

    part: Query


Query = Compare | Every | Some | Not


def comparisons_of(query: Query) -> Iterator[Compare]:
    """Yield the comparisons of a query."""
    match query:
        case Compare():
            yield query
        case Not():
            yield from comparisons_of(query.part)
        case _:
            for part in query.parts:
                yield from comparisons_of(part)
