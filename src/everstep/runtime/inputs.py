"""What a run begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from everstep.engine.state import RunState
from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.graph.compile.plan import all_keys
from everstep.model.acts import Act
from everstep.model.enums import Mode
from everstep.runtime.drive.chain_writer import Identity, Journal
from everstep.runtime.drive.channel import first_values
from everstep.runtime.drive.external_channel import begin, mark
from everstep.runtime.drive.values import Slot, ValueSpace, write_aside
from everstep.runtime.services import Services

PRIORITIES = range(-(1 << 31), 1 << 31)
LONGEST_GROUP = 500


class Given(NamedTuple):
    """The values that a run is started with, and its place among those that wait for a worker."""

    inputs: Mapping[str, Any] | None
    channel: Mapping[str, Any] | None = None
    priority: int = 0
    group: str | None = None
    act: Act | None = None
    """Who starts it, and why."""

    def check(self, flow: Flow) -> dict[str, Any]:
        """Return the inputs, or raise what is wrong with any of it."""
        if type(self.priority) is not int or self.priority not in PRIORITIES:
            raise BadRequest(
                f"priority is {self.priority!r}.",
                fix="Give a whole number; the higher, the sooner. 0 is usual.",
            )
        if self.group is not None and not _is_group(self.group):
            raise BadRequest(
                f"group is {self.group!r:.60}.", fix=f"Give a text of 1 to {LONGEST_GROUP} characters."
            )
        flow.check_inputs({} if self.inputs is None else self.inputs, self.channel)
        return dict(self.inputs or {})


def _is_group(group: object) -> bool:
    if not isinstance(group, str) or not 0 < len(group) <= LONGEST_GROUP:
        return False
    # What no store could keep as text.
    return not any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in group)


async def draft_run(
    services: Services, flow: Flow, given: Given, run_id: str
) -> tuple[Journal, RunState, ValueSpace, tuple[Slot, ...]]:
    """Encode what a run begins with; large values are written aside."""
    state = RunState(flow.plan)
    keeps = flow.durability.mode is not Mode.OFF
    blobs = services.blobs if keeps else None
    space = ValueSpace(services.values, blobs, flow.durability.blob_threshold, keeps=keeps)
    drafts = tuple(space.draft(state, name, value) for name, value in (given.inputs or {}).items())
    if given.channel:
        types = None if flow.channel is None else all_keys(flow.plan)
        drafts += tuple(first_values(state, space, services.system, given.channel, types))
    elsewhere = begin(services, run_id, flow.durability, space) if keeps else None
    if elsewhere is not None:
        drafts += (mark(space),)
    space.fit(drafts, services.record_bytes)
    for draft in drafts:
        if draft.spill is not None:
            await write_aside(services, space, draft)
    plan = flow.plan
    identity = Identity(
        run_id,
        flow.name,
        flow.version,
        plan.hash,
        plan.blueprint,
        source=flow.source,
        priority=given.priority,
        group=given.group,
        retention=flow.retention,
    )
    journal = Journal(services, identity, flow.durability, state, space)
    journal.elsewhere = elsewhere
    journal.act = given.act
    return journal, state, space, drafts
