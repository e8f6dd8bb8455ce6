"""A world as it stood at one of its points, to go on from there. Apart from the world, which can be without.

A process that dies leaves nothing behind but what others can see. So a schedule whose first fault is a death
needs what came before only once, however many deaths are tried.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from everstep.testing.simulation.ledger import Ledger

_LISTS = ("released", "trace", "story", "bodies", "ended", "settled", "spends", "spooled", "claims")
"""What a ledger has in order."""


class Snapshot(NamedTuple):
    """What outlives a death of the only process of a world, at one point."""

    label: str
    point: str
    now: int
    order: int
    lengths: tuple[int, ...]
    """How much of each list of the ledger was there."""
    puts: int
    accepted: int
    data: Any
    """A copy of what the store kept."""
    spooled: dict[str, list[Any]]
    dice: Any


def taken(
    label: str, point: str, now: int, ledger: Ledger, data: Any, spooled: dict[str, list[Any]]
) -> Snapshot:
    """Return the world as it stands."""
    return Snapshot(
        label,
        point,
        now,
        ledger.order,
        tuple(len(getattr(ledger, name)) for name in _LISTS),
        len(ledger.puts),
        len(ledger.accepted),
        data,
        {run_id: list(commits) for run_id, commits in spooled.items()},
        random.getstate(),
    )


def fill(ledger: Ledger, whole: Ledger, snapshot: Snapshot) -> None:
    """Give a ledger what another one had seen by then."""
    ledger.order = snapshot.order
    for name, length in zip(_LISTS, snapshot.lengths, strict=True):
        setattr(ledger, name, getattr(whole, name)[:length])
    ledger.puts = dict(list(whole.puts.items())[: snapshot.puts])
    ledger.accepted = dict(list(whole.accepted.items())[: snapshot.accepted])
