"""The attributes of a run on their way into its chain and its row. Apart, as most runs have none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from everstep.codec.values import Values
from everstep.graph.labels import attribute, check_many, check_plain, value_of
from everstep.model.commits import Attribute, Commit
from everstep.model.durability import Durability
from everstep.model.enums import ValueForm
from everstep.model.records import ATTRIBUTE, StepRecord
from everstep.runtime.drive.values import Slot, ValueSpace


def draft_attributes(
    space: ValueSpace, given: Mapping[str, Any], plain: Collection[str] | None
) -> list[Slot]:
    """Encode attributes that are to be set; `plain` are those that may be readable, none lets all be."""
    check_plain(given, plain)
    there = space.areas.get(ATTRIBUTE, {})
    check_many(len(there.keys() | given.keys()), "attributes")
    return [
        space.change(ATTRIBUTE + name, there[name].written.version + 1 if name in there else 1, value, _WHOLE)
        for name, value in given.items()
    ]


def inherited(values: Values, attributes: Iterable[Attribute]) -> list[Slot]:
    """Encode what a fork takes over from its parent's row. Version 0 is the one after the newest."""
    space = ValueSpace(values, None, Durability().blob_threshold)
    return [space.change(ATTRIBUTE + one.name, 0, value_of(one), _WHOLE) for one in attributes]


def with_attributes(commit: Commit, steps: Iterable[StepRecord], space: ValueSpace) -> Commit:
    """Return a commit with the attributes that its steps set, as they are now."""
    names = {w.name.removeprefix(ATTRIBUTE) for step in steps for w in step.writes if _is_one(w.name)}
    if not names:
        return commit
    found = tuple(attribute(name, space.peek(name, ATTRIBUTE)) for name in sorted(names))
    return msgspec.structs.replace(commit, attributes=found)


def attributes_in(space: ValueSpace) -> tuple[Attribute, ...]:
    """Return the attributes of a run, as its chain says."""
    return tuple(
        attribute(name, space.peek(name, ATTRIBUTE)) for name in sorted(space.areas.get(ATTRIBUTE, {}))
    )


def _is_one(name: str) -> bool:
    return name.startswith(ATTRIBUTE)


_WHOLE = ValueForm.WHOLE
