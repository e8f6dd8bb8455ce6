"""Where the runs of a simulated fleet are kept, and what may go wrong there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from everstep.testing.simulation.faults import Fault

SKEWS = (0.0, 5.0, 3600.0)
"""By how many seconds the second machine is ahead of a store that is elsewhere."""
FAULTS: Mapping[str, list[Fault]] = {
    # Times on one machine go by its clock, and to wait an hour of it costs seconds of ours.
    "local": [fault for fault in Fault if fault is not Fault.CLOCK_BACK],
    "remote": list(Fault),
}


class Place(TypedDict):
    """Where it is, as trials take it."""

    is_remote: bool
    skew: float


def place(seed: int, store: str) -> Place:
    """Return where the store of a seed is: a local one is on one machine."""
    is_remote = store == "remote"
    return Place(is_remote=is_remote, skew=SKEWS[seed % len(SKEWS)] if is_remote else 0.0)
