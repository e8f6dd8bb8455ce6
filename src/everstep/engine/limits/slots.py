"""Which unfinished runs have a key that one has at a time, as the starts of them know it.

A start writes itself down before its run is admitted, so of two that begin at once one finds the other.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from everstep.model.leases import ALONE, KeyLimit, Slot, keys_in, slots_body, slots_of

GRACE = 30_000_000
"""Microseconds that a start which was written down may take to admit its run.

After that who finds it takes its id, so that it never will."""

MOST = 100
"""So many runs are kept of a key, where more are unfinished than were started."""


class Entered(NamedTuple):
    """Whether a run was written down, those that were before it, the oldest first, and the time."""

    is_in: bool
    others: tuple[Slot, ...]
    now: int


class Standing(StrEnum):
    """What has become of a run that was written down."""

    UNFINISHED = "unfinished"
    STARTING = "starting"
    """Its start has yet to admit it."""
    GIVEN_UP = "given_up"
    """Its start had time enough, and is taken for dead."""
    OVER = "over"


def slot_name(flow_id: str, key: str) -> str:
    """Return under which name it is kept which runs have a key."""
    return f"one {flow_id} {key}"


def debounced_name(flow_id: str, key: str) -> str:
    """Return under which name it is kept which runs have yet to begin, as another start may come."""
    return f"soon {flow_id} {key}"


def key_alone(group: str | None) -> str | None:
    """Return the key that a run of this group has alone, as `@NAME=VALUE`; none if it has none."""
    return next((key for name, key in keys_in(group or "").items() if name.startswith(ALONE)), None)


def rules_alone(group: str | None) -> list[KeyLimit]:
    """Return the rule by which a run of this group goes on, as far as its group says."""
    key = key_alone(group)
    return [] if key is None else [KeyLimit(name=key.partition("=")[0], alone=True)]


def enter(
    body: bytes | None, run_id: str, now: int, over: Collection[Slot], *, needs_free: bool
) -> tuple[bytes, Entered]:
    """Write a run down for a key, unless that has to be free and is not; leave out those known to be over.

    One that is there keeps its place, and what is behind it is no matter of its: no two wait for each other.
    Of those that are over only what was looked at counts: what was written down anew may be unfinished again.
    """
    slots = [one for one in slots_of(body) if one not in over]
    place = next((k for k, one in enumerate(slots) if one.run_id == run_id), len(slots))
    others = tuple(slots[:place])
    is_in = place < len(slots) or not (others and needs_free)
    kept = [*others, Slot(run_id, now), *slots[place + 1 :]] if is_in else slots
    return slots_body(kept), Entered(is_in, others, now)


def push(body: bytes | None, run_id: str, now: int) -> bytes:
    """Write a run down behind all others, whatever has the key. Of very many the oldest are left out."""
    others = [one for one in slots_of(body) if one.run_id != run_id]
    return slots_body([*others, Slot(run_id, now)][-MOST:])


def stand_for(body: bytes | None, run_id: str, since: int) -> bytes:
    """Note since when there were starts that a run stands for."""
    return slots_body(
        [Slot(one.run_id, one.at, since) if one.run_id == run_id else one for one in slots_of(body)]
    )


def leave(body: bytes | None, run_id: str) -> bytes | None:
    """Strike a run out, as it was not admitted after all."""
    left = [one for one in slots_of(body) if one.run_id != run_id]
    return slots_body(left) if left else None


def standing(slot: Slot, now: int, *, is_there: bool, is_over: bool) -> Standing:
    """Say what has become of a run; one that is not there and not over has yet to be admitted."""
    if is_over:
        return Standing.OVER
    if is_there:
        return Standing.UNFINISHED
    return Standing.STARTING if now - slot.at <= GRACE else Standing.GIVEN_UP
