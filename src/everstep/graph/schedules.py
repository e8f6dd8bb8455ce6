"""Schedules that a flow declares: when runs of it are started by the clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

from everstep.errors import BadRequest
from everstep.model.durations import Span


@dataclass(frozen=True)
class Schedule:
    """A schedule as it stands beside its flow: `Schedule("nightly", cron="0 2 * * *", zone="Europe/Berlin")`.

    It takes what `host.schedules.create` takes. Nothing is started until it is applied.
    """

    id: str
    _: KW_ONLY
    cron: str | None = None
    every: Span | None = None
    zone: str | None = None
    inputs: Mapping[str, Any] | None = None
    time_input: str | None = None
    """The input that gets the scheduled time."""
    overlap: str | None = None
    catch_up: Span | None = None
    jitter: Span | None = None
    priority: int | None = None
    group: str | None = None
    tags: Iterable[str] | Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise BadRequest(f"a schedule is called {self.id!r:.60}.", fix='Write Schedule("nightly", ...).')
        if (self.cron is None) == (self.every is None):
            raise BadRequest(
                f"schedule {self.id!r} has either a cron expression or an interval.",
                fix='Give one of them: cron="30 2 * * *", or every="15m".',
            )

    def said(self) -> dict[str, Any]:
        """Return what it says, by the names of the call."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "id"}


def schedules_of(flow: str, given: Any) -> tuple[Schedule, ...]:
    """Return the schedules of a flow, or raise what is wrong with them."""
    if isinstance(given, Schedule) or not isinstance(given, Iterable):
        given = (given,)
    listed = tuple(given)
    for one in listed:
        if not isinstance(one, Schedule):
            raise BadRequest(
                f"flow {flow!r}: schedules has {one!r:.60}.",
                fix='Give Schedules: Flow(..., schedules=[Schedule("nightly", cron="0 2 * * *")]).',
            )
    ids = [one.id for one in listed]
    for twice in {one for one in ids if ids.count(one) > 1}:
        raise BadRequest(f"flow {flow!r} has two schedules {twice!r}.", fix="Call one of them otherwise.")
    return listed
