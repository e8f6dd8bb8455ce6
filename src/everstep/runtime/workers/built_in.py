"""Flows that come with everstep, as a worker claims their runs. Apart from it: it knows no flow by name."""

from __future__ import annotations

from typing import Final

from everstep.model.commits import BULK_FLOW, asking_about, scheduling
from everstep.model.durability import Durability


class BuiltIn:
    """A flow that comes with everstep, as workers claim its runs: it is made when the first was claimed."""

    def __init__(self, name: str, flow_hash: str, asks: str = "", starts: str = "") -> None:
        self.name = name
        self.hash = flow_hash
        self.asks = asks
        """The flow whose code its runs ask for, if they do."""
        self.starts = starts
        """The flow of which its runs start others, if they do."""
        self.durability = Durability()

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.hash


BULK: Final = BuiltIn(BULK_FLOW, "3c09449bf6d7a3bea6af4a21ce2eba05")
ASK_HASH: Final = "b689a6eabaf946ac24bb1a3d3e779058"
SCHEDULE_HASH: Final = "632c5ee6412927c987146b6291ac1934"


def asking(flow: str) -> BuiltIn:
    """Return the flow whose runs ask workers that have this one."""
    return BuiltIn(asking_about(flow), ASK_HASH, flow)


def schedules_of(flow: str) -> BuiltIn:
    """Return the flow whose runs are schedules of this one."""
    return BuiltIn(scheduling(flow), SCHEDULE_HASH, starts=flow)
