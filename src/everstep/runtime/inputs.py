"""What a run begins with, and whether one that is continued is the same: the same flow, the same inputs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from everstep.engine.state import RunState
from everstep.errors import BadRequest, InputsDiffer
from everstep.graph.author.flow import Flow
from everstep.graph.compile.plan import Plan, all_keys
from everstep.model.acts import Act
from everstep.model.commits import NO_LABELS, Labels, NoticeRow, StartedBy, Told
from everstep.model.durability import Durability
from everstep.model.enums import Mode, Status
from everstep.model.records import CHANNEL, INPUTS, KEPT, Written
from everstep.model.shapes import LONGEST_TEXT, PRIORITIES
from everstep.on_demand import on_demand
from everstep.ports.store import RunRow, Traits
from everstep.runtime.drive.chain_writer import Identity, Journal
from everstep.runtime.drive.values import Slot, ValueSpace, slot_of, write_aside
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.graph.labels import value_of
    from everstep.graph.limits import limited_group, rules_of
    from everstep.runtime.drive.attributes import draft_attributes
    from everstep.runtime.drive.channel import first_values
    from everstep.runtime.drive.external_channel import begin, mark
    from everstep.runtime.drive.timed.times import Times, opened_times
    from everstep.runtime.judges import is_other
    from everstep.runtime.reader import RunReader
    from everstep.runtime.travel.migrate import check, judge_run, kept_nowhere
    from everstep.runtime.waits.notices.told import told_at_admission
else:
    check = on_demand("everstep.runtime.travel.migrate:check")
    judge_run = on_demand("everstep.runtime.travel.migrate:judge_run")
    kept_nowhere = on_demand("everstep.runtime.travel.migrate:kept_nowhere")
    value_of = on_demand("everstep.graph.labels:value_of")
    limited_group = on_demand("everstep.graph.limits:limited_group")
    rules_of = on_demand("everstep.graph.limits:rules_of")
    draft_attributes = on_demand("everstep.runtime.drive.attributes:draft_attributes")
    first_values = on_demand("everstep.runtime.drive.channel:first_values")
    begin = on_demand("everstep.runtime.drive.external_channel:begin")
    mark = on_demand("everstep.runtime.drive.external_channel:mark")
    opened_times = on_demand("everstep.runtime.drive.timed.times:opened_times")
    told_at_admission = on_demand("everstep.runtime.waits.notices.told:told_at_admission")
    is_other = on_demand("everstep.runtime.judges:is_other")

log = logging.getLogger("everstep")


class Given(msgspec.Struct, frozen=True):
    """The values that a run is started with, and its place among those that wait for a worker."""

    inputs: Mapping[str, Any] | None
    channel: Mapping[str, Any] | None = None
    traits: Traits = Traits()
    act: Act | None = None
    """Who starts it, and why."""
    labels: Labels = NO_LABELS
    started_by: StartedBy | None = None
    """Which node of another run starts it, if one does."""
    times: Times | None = None
    """When it is to begin, and by when it is to have ended, if that is said."""

    def timed(self, times: Times | None) -> Given:
        """Return the same with the times of the run."""
        return msgspec.structs.replace(self, times=times)

    def check(self, flow: Flow, *, encrypts: bool = False) -> Mapping[str, Any]:
        """Return the inputs, or raise what is wrong with any of it."""
        priority, group = self.traits.priority, self.traits.group
        if type(priority) is not int or priority not in PRIORITIES:
            raise BadRequest(
                f"priority is {priority!r}.",
                fix="Give a whole number; the higher, the sooner. 0 is usual.",
            )
        if group is not None:
            check_name("group", group)
            if flow.limits and rules_of(flow.limits):
                raise BadRequest(
                    f"runs of flow {flow.name!r} are grouped by the keys of its limits.",
                    fix="Leave the group out, or make what it goes by a limit.",
                )
        flow.check_inputs({} if self.inputs is None else self.inputs, self.channel)
        if flow.limits:
            limited_group(flow.limits, self.inputs or {}, encrypts=encrypts)
        return self.inputs or {}


def check_name(what: str, name: object) -> None:
    """Raise unless this can be the name of a group."""
    is_text = isinstance(name, str) and 0 < len(name) <= LONGEST_TEXT
    # What no store could keep as text.
    if not is_text or any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in str(name)):
        raise BadRequest(f"{what} is {name!r:.60}.", fix=f"Give a text of 1 to {LONGEST_TEXT} characters.")


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
    is_apart = keeps and services.channels is not None
    elsewhere = begin(services, run_id, flow.durability, space) if is_apart else None
    if elsewhere is not None:
        drafts += (mark(space),)
    if given.labels.attributes:
        wanted = {one.name: value_of(one) for one in given.labels.attributes}
        plain = flow.plain_attributes if services.codecs.encrypts else None
        drafts += tuple(draft_attributes(space, wanted, plain))
    space.fit(drafts, services.record_bytes)
    for draft in drafts:
        if draft.spill is not None:
            await write_aside(services, space, draft)
    plan, traits = flow.plan, given.traits
    if flow.limits and rules_of(flow.limits):
        group = limited_group(flow.limits, given.inputs or {}, encrypts=services.codecs.encrypts)
        traits = msgspec.structs.replace(traits, group=group)
    told: Told | None = None
    tells: Sequence[NoticeRow] = ()
    if keeps and (flow.notify or services.notify):
        told, tells = told_at_admission(services, flow, given.labels.tags)
    identity = Identity(
        run_id,
        flow.name,
        flow.version,
        plan.hash,
        plan.blueprint,
        source=flow.source,
        traits=traits,
        retention=flow.retention,
        tags=given.labels.tags,
        told=told,
        started_by=given.started_by,
    )
    journal = Journal(services, identity, flow.durability, state, space)
    journal.elsewhere = elsewhere
    journal.act = given.act
    if tells:
        journal.tells = tuple(tells)
    if given.times is not None or flow.deadline is not None:
        journal.opening = await opened_times(journal, services, flow, given.times)
    return journal, state, space, drafts


async def check_same_flow(runs: RunReader, row: RunRow, flow: Flow) -> None:
    """Raise unless a run goes by this flow or can go on with it; one that is completed needs neither."""
    if row.flow_id == flow.name and (row.stop_request is not None or not is_other(row, flow)):
        return  # one that is being cancelled only ends
    if row.flow_id == flow.name and row.status is Status.COMPLETED:
        if row.flow_hash != flow.plan.hash:
            log.warning("flow %r has changed since run %r ended.", flow.name, row.run_id)
        return
    check(row, flow, await judge_run(runs, row, flow))


def check_kept(row: RunRow, flow: Flow) -> None:
    """Raise if a flow that keeps nothing is to drive a recorded run: its effects would be made for ever."""
    if flow.durability.mode is Mode.OFF:
        check(row, flow, kept_nowhere(row, flow))


async def check_same_inputs(
    services: Services,
    runs: RunReader,
    row: RunRow,
    flow: Flow,
    drafts: tuple[Slot, ...],
    inputs: Mapping[str, Any],
) -> None:
    """Refuse other inputs than the recorded ones; of another version of the flow, those that both know."""
    plan = flow.plan if row.flow_hash == flow.plan.hash else await runs.plan(row)
    stored, space, began_with = await _recorded_inputs(services, runs, row, plan)
    is_complete = began_with is not None
    given = {d.written.name: d.written.digest for d in drafts if not d.written.name.startswith(KEPT)}
    if space.has_channel_elsewhere:
        given = {name: digest for name, digest in given.items() if not name.startswith(CHANNEL)}
    if began_with not in (None, flow.plan.hash) or row.adopted_at is not None:
        cast = {rule.name for rule in flow.migrations if rule.kind == "upcast"}
        both = stored.keys() & given.keys() - cast
        stored = {name: write for name, write in stored.items() if name in both}
        given = {name: digest for name, digest in given.items() if name in both}
    if not is_complete:
        given = {name: digest for name, digest in given.items() if name in stored}
    canonical = services.values.canonical
    # The order of a dict's keys is no difference, so a digest that differs is not the last word.
    names = {name for name in stored.keys() | given.keys() if name[0] != "@" or name in given}
    differ = sorted(
        name
        for name in names
        if name not in stored
        or name not in given
        or (
            stored[name].digest != given[name]
            and (name[0] == "@" or canonical(space.peek(name)) != canonical(inputs[name]))
        )
    )
    if differ:
        raise InputsDiffer(
            f"run {row.run_id!r} began with other inputs; different: {', '.join(differ)}.",
            fix="Leave the inputs out to continue it. To give it something new, answer what it waits for, or "
            "fork it with other inputs; to start anew, use another run id.",
            inputs=differ,
        )


async def _recorded_inputs(
    services: Services, runs: RunReader, row: RunRow, plan: Plan
) -> tuple[dict[str, Written], ValueSpace, str | None]:
    """Return what a run was given: the inputs of the first of its family, and what forks edited since.

    With the structure it began with. Where that was removed, there is none, and what is left to compare are
    the inputs that no node writes.
    """
    family = [run async for run in runs.lineage.back(row)]
    if any(run.trimmed_before for run in family):
        folded = await runs.rehydrate(row, plan, Durability())
        slots = {n: s for n, s in folded.space.slots.items() if n in plan.free_inputs}
        return {name: slot.written for name, slot in slots.items()}, folded.space, None
    space = ValueSpace(services.values, services.blobs, 0)
    stored: dict[str, Written] = {}
    began_with = ""
    for run in reversed(family):
        _, opened = await runs.lineage.read(run, run.first)
        began_with = began_with or opened.record.flow_hash
        payloads = iter(opened.payloads)
        for step in opened.record.steps:
            for write in step.writes:
                payload = next(payloads) if write.is_inline else None
                if step.path == INPUTS or write.name in stored or write.name in plan.free_inputs:
                    space.place("", write.name, slot_of(write, payload))
                    stored[write.name] = write
    return stored, space, began_with
