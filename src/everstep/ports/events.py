"""Events that are published: found by equal values of their fields, kept by stores, brought to waits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from everstep.errors import BadRequest
from everstep.model.acts import AuditRow
from everstep.model.waits import HadEvent

MOST_FIELDS: Final = 100
"""So many fields with text, a number or a bool an event may have: all of them can be matched."""
_TOPIC = "event:"


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event as a store keeps it."""

    event_id: str
    """Given by the publisher, within the name: no node of a run has the same one twice."""
    name: str
    value: bytes
    """JSON, with who published it."""
    fields: dict[str, str]
    """Hashes of its fields by their names."""
    published_at: datetime
    expires_at: datetime | None = None
    """Until when it is kept for waits that open later; none if it is not."""

    def had_by(self, path: str) -> HadEvent:
        """Return what is kept of a node that has it."""
        return HadEvent(path, self.name, self.event_id)

    def meets(self, topic: str) -> bool:
        """True if a wait that listens for this topic is for it."""
        wanted = Wanted.of(topic)
        return (
            wanted is not None and wanted.name == self.name and wanted.hashes.items() <= self.fields.items()
        )

    def topics(self, shapes: Sequence[str]) -> list[str]:
        """Return what waits for it listen for, of those that are for fields of these names."""
        found = []
        for shape in shapes:
            names = msgspec.json.decode(shape, type=list[str])
            if all(name in self.fields for name in names):
                found.append(Wanted(self.name, {name: self.fields[name] for name in names}).topic)
        return found


class Wanted(msgspec.Struct, frozen=True):
    """Which events a wait is for."""

    name: str
    hashes: dict[str, str]
    """What the hashes of fields must be."""

    @property
    def prefix(self) -> str:
        """What the topics of all waits for events of this name begin with."""
        return f"{_TOPIC}{len(self.name.encode())}:{self.name}:"  # in bytes, as all languages count them

    @property
    def shape(self) -> str:
        """The names of the fields, in order, as JSON."""
        return msgspec.json.encode(sorted(self.hashes)).decode()

    @property
    def topic(self) -> str:
        """What a wait listens for, as stores keep it."""
        hashes = "".join(self.hashes[name] for name in sorted(self.hashes))
        return f"{self.prefix}{self.shape}:{hashes}"

    @classmethod
    def of(cls, topic: str | None) -> Wanted | None:
        """Read what a wait listens for; none if it is for something else."""
        if topic is None or not topic.startswith(_TOPIC):
            return None
        length, _, behind = topic.removeprefix(_TOPIC).partition(":")
        told, end = behind.encode(), int(length)
        name, rest = told[:end].decode(), told[end + 1 :].decode()
        shape, _, hashes = rest.rpartition(":")
        names = msgspec.json.decode(shape, type=list[str])
        return cls(name, {one: hashes[_HEX * k : _HEX * (k + 1)] for k, one in enumerate(names)})


_HEX = 32


def hash_of_field(value: Any) -> str | None:
    """Return what equal values of a field have in common; none of a value that cannot be matched.

    One of a class of its own, such as a member of an enum, is what it is in JSON.
    """
    if isinstance(value, bool):
        said = f"bool:{value}"
    elif isinstance(value, str):
        said = f"text:{str.__str__(value)}"
    elif isinstance(value, float) and not math.isfinite(value):
        return None
    elif isinstance(value, float) and not value.is_integer():
        said = f"number:{float.__repr__(value)}"
    elif isinstance(value, int | float):
        said = f"number:{int(value)}"
    else:
        return None
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:_HEX]


def fields_of(value: Any) -> dict[str, str]:
    """Return the hashes of the fields of an event by which waits can find it."""
    if not isinstance(value, Mapping):
        return {}
    hashes = ((str(name), hash_of_field(one)) for name, one in value.items())
    fields = {name: found for name, found in hashes if found is not None}
    if len(fields) > MOST_FIELDS:
        raise BadRequest(
            f"the event has {len(fields):,} fields that could be matched; at most {MOST_FIELDS} can be.",
            fix="Nest those that no wait goes by: only what is outermost is matched.",
        )
    return fields


def wanted_by(name: str, match: Mapping[str, Any]) -> Wanted:
    """Return which events a wait is for that must have these values in their fields."""
    hashes: dict[str, str] = {}
    for field, value in match.items():
        found = hash_of_field(value)
        if found is None:
            raise BadRequest(
                f"{field!r} of event {name!r} is to equal {value!r:.60}.",
                fix="Match text, a number or a bool.",
            )
        hashes[field] = found
    return Wanted(name, hashes)


@runtime_checkable
class EventStore(Protocol):
    """A store whose waits can be for events.

    Who publishes keeps the event first and looks for waits afterwards; the put that opens a wait looks for
    kept events in the same act. So of the two that come at once, one sees the other. A wait is settled by
    compare-and-set, and no node of a run has the same event twice: to look again is harmless.
    """

    async def keep_event(self, event: EventRow, *, audit: AuditRow | None = None) -> list[str]:
        """Keep an event as long as it says, once, and return the shapes of open waits for its name."""

    async def had_events(self, run_id: str) -> list[HadEvent]:
        """Return which events the nodes of a run had, in order."""

    async def settle_event(
        self, event: EventRow, topics: Collection[str], *, audit: AuditRow | None = None
    ) -> int:
        """Settle open waits that listen for one of these topics, and return how many.

        At least one if there is any, and at most as many as suit the store: it is called until there is none.
        """
