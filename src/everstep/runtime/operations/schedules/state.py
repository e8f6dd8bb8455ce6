"""How far a schedule has come, as its run keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from everstep.model.shapes import understood


class Backfill(msgspec.Struct, kw_only=True):
    """Times gone by that are run after all."""

    after: datetime
    until: datetime
    left: int
    """So many more may be started."""
    at_once: int
    started: int = 0
    there: int = 0
    """Times whose run was there already."""
    running: list[str] = []


class State(msgspec.Struct, kw_only=True):
    """What is kept between two wakings."""

    spec: dict[str, Any]
    created: datetime
    after: datetime
    """Times up to here are decided."""
    wake: datetime | None = None
    last: datetime | None = None
    last_run: str | None = None
    running: list[str] = []
    """Runs that were not over when it last looked; none are kept in mind where they may overlap."""
    pending: list[datetime] = []
    """Times that wait for those."""
    poll: float = 0.0
    started: int = 0
    skipped: int = 0
    missed: int = 0
    refused: int = 0
    said: str = ""
    """Why the last was refused."""
    backfill: Backfill | None = None
    change: dict[str, Any] | None = None
    """The spec that it will have once all is started that was due before."""
    wakings: int = 0

    def told(self) -> dict[str, Any]:
        """Return it as a plain value, the inputs of runs as they are."""
        plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, spec={}, change=None))
        return {**plain, "spec": self.spec, "change": self.change}


def state_of(told: Mapping[str, Any]) -> State:
    """Read what `told` returned."""
    plain = msgspec.convert({**told, "spec": {}, "change": None}, understood(State))
    return msgspec.structs.replace(plain, spec=told["spec"], change=told.get("change"))
