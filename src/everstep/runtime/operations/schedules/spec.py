"""What a schedule starts, when, and what becomes of times that come too late or too soon."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec

from everstep.errors import BadRequest
from everstep.graph.labels import tags_of
from everstep.model.durations import span_of, spell
from everstep.model.shapes import PRIORITIES, understood
from everstep.runtime.inputs import check_name
from everstep.runtime.operations.schedules.calendar import Calendar, Cron, Every

SCHEDULE_TAG = "schedule"
"""The tag of runs that a schedule has started, with the schedule's id."""
BACKFILL_TAG = "backfill"
"""The tag of runs that were started for times gone by."""
SHORTEST = timedelta(seconds=1)


class Overlap(StrEnum):
    """What becomes of a time at which a run that was started before is not over."""

    SKIP = "skip"
    """Nothing is started."""
    QUEUE = "queue"
    """It is started when those before it are over."""
    REPLACE = "replace"
    """Those before it are cancelled, and it is started."""
    ALLOW = "allow"
    """It is started beside them."""


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule as it was declared. Spans are text, so that it can be read wherever it is shown."""

    flow: str
    cron: str | None = None
    every: str | None = None
    zone: str = "UTC"
    inputs: Mapping[str, Any] = {}
    time_input: str | None = None
    """The input that gets the scheduled time."""
    overlap: Overlap = Overlap.SKIP
    catch_up: str = "1h"
    """So late a time is still started; later, it is missed."""
    jitter: str = "0s"
    """Starts are put off by up to this, always by the same for the same time."""
    priority: int = 0
    group: str | None = None
    tags: Mapping[str, str] = {}

    def calendar(self, created: datetime) -> Calendar:
        """Return when it is due; an interval counts from when the schedule was made."""
        if self.cron is not None:
            return Cron(self.cron, self.zone)
        return Every(span_of(self.every, "every"), created)

    def put_off(self, schedule_id: str, at: datetime) -> timedelta:
        """Return by how much a start is put off."""
        most = span_of(self.jitter, "jitter")
        drawn = sha256(f"jitter\0{schedule_id}\0{at.isoformat()}".encode()).digest()
        return most * (int.from_bytes(drawn[:6]) / (1 << 48))

    def inputs_at(self, at: datetime) -> dict[str, Any]:
        """Return what a run is started with for a time."""
        return {**self.inputs, **({} if self.time_input is None else {self.time_input: at})}

    def told(self) -> dict[str, Any]:
        """Return it as a plain value."""
        return {
            **{name: getattr(self, name) for name in self.__struct_fields__},
            "overlap": str(self.overlap),
        }


def spec_of(told: Mapping[str, Any]) -> ScheduleSpec:
    """Read what `told` returned."""
    plain = msgspec.convert({**told, "inputs": {}}, understood(ScheduleSpec))
    return msgspec.structs.replace(plain, inputs=told["inputs"])  # as they are: times, classes


def checked(flow: str, given: Mapping[str, Any]) -> ScheduleSpec:
    """Return a schedule that can be, or raise what is wrong with it."""
    said = {name: value for name, value in given.items() if value is not None}
    for name in ("catch_up", "jitter", "every"):
        if name in said:
            said[name] = spell(span_of(said[name], name))
    if ("cron" in said) == ("every" in said):
        raise BadRequest(
            "a schedule has either a cron expression or an interval.",
            fix='Give one of them: cron="30 2 * * *", or every="15m".',
        )
    if "every" in said and span_of(said["every"]) < SHORTEST:
        raise BadRequest(f"every is {given['every']!r}.", fix="Give a second or more.")
    if "every" in said and "zone" in said and said["zone"] != "UTC":
        raise BadRequest("an interval counts seconds, in every zone the same.", fix="Leave zone= out.")
    if said.get("overlap", "skip") not in tuple(Overlap):
        known = ", ".join(Overlap)
        raise BadRequest(f"overlap is {said['overlap']!r:.40}.", fix=f"Use one of {known}.")
    inputs = said.pop("inputs", {})
    if not isinstance(inputs, Mapping) or not all(isinstance(name, str) for name in inputs):
        raise BadRequest(f"inputs are {inputs!r:.60}.", fix='Give names and values: {"region": "eu"}.')
    if (taken := said.get("time_input")) is not None and (not isinstance(taken, str) or taken in inputs):
        raise BadRequest(f"time_input is {taken!r:.60}.", fix="Name an input that is not given otherwise.")
    said["tags"] = {tag.name: tag.value for tag in tags_of(said.get("tags"))}
    if type(said.get("priority", 0)) is not int or said.get("priority", 0) not in PRIORITIES:
        raise BadRequest(f"priority is {said['priority']!r:.40}.", fix="Give a whole number; 0 is usual.")
    if "group" in said:
        check_name("group", said["group"])
    try:
        spec = msgspec.convert({**said, "flow": flow}, understood(ScheduleSpec))
    except msgspec.ValidationError as error:
        raise BadRequest(
            f"the schedule cannot be read: {error}.",
            fix="Give text for names and expressions, spans as in '15m'.",
        ) from None
    spec = msgspec.structs.replace(spec, inputs=dict(inputs))
    spec.calendar(datetime.min)  # which raises for what cannot be read
    return spec
