"""What tags and attributes of a run become, and what they are called. Every store decides by this.

Apart from commits: most runs have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from everstep.graph.labels import value_of
from everstep.model.commits import MOST_LABELS, Attribute, AttributeValue, Tag


def tagged(
    there: Iterable[Tag], add: Iterable[Tag], remove: Collection[str], most: int = MOST_LABELS
) -> tuple[Tag, ...] | None:
    """Return the tags of a run once some are added and others taken away, by name; none if they are too many.

    One of the same name gets the new value. Every store asks here, or does the same.
    """
    found = {one.name: one for one in there if one.name not in remove}
    found |= {one.name: one for one in add}
    return tuple(found[name] for name in sorted(found)) if len(found) <= most else None


def attributed(there: Iterable[Attribute], new: Iterable[Attribute]) -> tuple[Attribute, ...]:
    """Return the attributes of a run once a put has set some, by name."""
    found = {one.name: one for one in there} | {one.name: one for one in new}
    return tuple(found[name] for name in sorted(found))


def named(value: AttributeValue) -> str:
    """Return what runs with a value are counted under."""
    if isinstance(value, datetime):
        return value.isoformat()
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def name_of(kept: Attribute) -> str:
    """Return what runs with an attribute are counted under."""
    return named(value_of(kept))
