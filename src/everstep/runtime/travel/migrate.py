"""Going on with a run whose flow has changed.

The chain is folded with the wiring it was written with, the state is told in the words of the new one, and
that is written as a keyframe. Everything before it stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from everstep.engine.keyframe import restore, snapshot
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.engine.translate import translate, wake
from everstep.engine.undo.stack import Undoing
from everstep.engine.verdict import judge
from everstep.errors import (
    BadRequest,
    DurabilityOff,
    EverstepError,
    FlowChanged,
    TaskGone,
    ValueNotStorable,
)
from everstep.graph.author.flow import Flow
from everstep.graph.check.hints import UNKNOWN, fits, spell
from everstep.graph.check.validate import mode_on
from everstep.graph.compile.plan import Plan
from everstep.graph.compile.renaming import Renaming, plain_path
from everstep.model.acts import Act
from everstep.model.compat import Compat, Compatibility
from everstep.model.enums import Mode, Persist, Status, ValueForm
from everstep.model.leases import Lease
from everstep.model.records import CHANNEL, STREAM, TRACE, WAIT, Counters, SerializedState
from everstep.ports.store import RunRow
from everstep.runtime.at_rest import RestingRuns
from everstep.runtime.drive.apply import Lists
from everstep.runtime.drive.chain_writer import Identity, Journal
from everstep.runtime.drive.values import Slot, ValueSpace
from everstep.runtime.judges import is_other
from everstep.runtime.outage.outbox import drain
from everstep.runtime.outage.store_retry import patiently
from everstep.runtime.preflight import preflight
from everstep.runtime.reader import RunReader
from everstep.runtime.rehydrate import Rehydrated
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.services import Services

LOOKED_AT = 64 * 1024
"""Bytes up to which a value is read to see whether it fits."""


async def judge_run(runs: RunReader, row: RunRow, flow: Flow) -> Compat:
    """Say whether a run can go on with a flow, as far as its wiring goes."""
    if row.flow_id == flow.name and not is_other(row, flow):
        return Compat(verdict=Compatibility.CONTINUES, is_same=True)
    return await _judge(runs, row, flow, await runs.rehydrate(row, await runs.plan(row)))


async def _judge(
    runs: RunReader, row: RunRow, flow: Flow, folded: Rehydrated, *, unpins: bool = False
) -> Compat:
    if row.flow_id != flow.name:
        return Compat(
            verdict=Compatibility.REFUSED,
            reason=f"run {row.run_id!r} belongs to flow {row.flow_id!r}, not {flow.name!r}.",
            fix="Use another run id, or the flow it began with.",
            code=FlowChanged.code,
        )
    if not unpins and (kept := _pinned(row, flow, folded.state.plan)) is not None:
        return kept
    compat = runs.judges.of(row, flow, folded.state.plan)(folded.state)
    if compat.verdict is not Compatibility.CONTINUES:
        return await _or_left(runs, row, flow, compat)
    return compat


def _pinned(row: RunRow, flow: Flow, plan: Plan) -> Compat | None:
    """Return the verdict on a run that stays with its version, for another one; none of any other run."""
    if plan.pinned is None:
        return None
    other = (
        f"this is version {flow.version!r}"
        if flow.version != plan.pinned
        else "this one has the same number and another structure"
    )
    return Compat(
        verdict=Compatibility.NEEDS_MIGRATION,
        reason=f"the run is pinned to version {plan.pinned!r} of its flow, and {other}.",
        fix=f"Drive it with version {plan.pinned!r}, or take it over: everstep migrate {row.run_id} FILE.py",
        code=FlowChanged.code,
    )


async def _or_left(runs: RunReader, row: RunRow, flow: Flow, compat: Compat) -> Compat:
    """Return the verdict, which for the version that a run went over from is not about rules."""
    home = await runs.lineage.home(row, row.checkpoints)
    if home.adopted_at is None or home.adopted_at < home.trimmed_before:
        return compat
    _, opened = await runs.lineage.read(home, home.adopted_at)
    said = opened.record.metadata or {}
    if said.get("from", {}).get("flow_hash") != flow.plan.hash:
        return compat
    source = f", in {said['source']}" if "source" in said else ""
    return msgspec.structs.replace(
        compat,
        reason=(
            f"at checkpoint {home.adopted_at} it went over to version {row.flow_version!r}, "
            f"from the one that this is (version {flow.version!r})."
        ),
        fix=f"Use version {row.flow_version!r} of the flow{source}.",
    )


def kept_nowhere(row: RunRow, flow: Flow) -> Compat:
    """Return the verdict for a flow that keeps nothing: what it did to a recorded run would be lost."""
    return Compat(
        verdict=Compatibility.REFUSED,
        reason=f"run {row.run_id!r} is recorded, and flow {flow.name!r} keeps nothing here (durability off).",
        fix="Use durability 'partial' or 'strong', on a host that allows it, or another run id.",
        code=DurabilityOff.code,
    )


def _unfit(compat: Compat, error: FlowChanged) -> Compat:
    """Return the verdict for a run whose values the rules of a flow cannot take over."""
    return Compat(
        verdict=Compatibility.NEEDS_MIGRATION,
        values=(str(error.details["value"]),),
        reason=error.message,
        fix=error.fix,
        migrations=compat.migrations,
        code=error.code,
    )


def check(row: RunRow, flow: Flow, compat: Compat) -> None:
    """Raise unless a run goes on."""
    if compat.verdict is Compatibility.CONTINUES:
        return
    if compat.code == DurabilityOff.code:
        raise DurabilityOff(compat.reason, fix=compat.fix, run_id=row.run_id)
    if row.flow_id != flow.name:
        raise FlowChanged(compat.reason, fix=compat.fix)
    error = TaskGone if compat.code == TaskGone.code else FlowChanged
    raise error(
        f"flow {flow.name!r} has changed since run {row.run_id!r} was written: {compat.reason}",
        fix=compat.fix,
        verdict=compat.verdict.value,
        nodes=list(compat.nodes),
        values=list(compat.values),
    )


async def migrate(
    services: Services, runs: RestingRuns, run_id: str, flow: Flow, *, dry_run: bool, act: Act | None = None
) -> Compat:
    """Take a run over to another version of its flow and let it go again, or only rehearse that."""
    flow = preflight(flow, services)
    if not dry_run and services.spool.has(check_run_id(run_id)):
        await drain(services, run_id)
    row = await runs.reader.row(run_id)
    if row.status in (Status.COMPLETED, Status.CANCELLED):
        raise BadRequest(f"run {run_id!r} is {row.status.value}.", fix="Only a run that goes on can migrate.")
    compat = (await rehearse(services, runs.reader, row, flow, unpins=True)).compat
    if dry_run or compat.is_same:
        return compat
    check(row, flow, compat)
    lease = await runs.claim(run_id, flow.durability, waits=False)
    try:
        now = await runs.reader.row(run_id)
        await migrated(services, runs.reader, now, lease, flow, act, unpins=True)
    finally:
        await runs.release(lease)
    return compat


async def migrated(
    services: Services,
    runs: RunReader,
    row: RunRow,
    lease: Lease,
    flow: Flow,
    act: Act | None = None,
    *,
    unpins: bool = False,
) -> tuple[Journal, RunState, ValueSpace]:
    """Take a run over to another version of its flow with one put, and return it as it goes on.

    One that is pinned goes over only with `unpins`: when a person asks for it.
    """
    folded = await runs.rehydrate(row, await runs.plan(row), flow.durability)
    if not unpins and (kept := _pinned(row, flow, folded.state.plan)) is not None:
        check(row, flow, kept)
    names = _renaming(row, flow, folded)
    compat = judge(folded.state, names)
    check(row, flow, compat)
    key_run = await runs.key_run(row, folded.state)
    state, cast = await _carry_over(services, folded, names, key_run, is_dry=False)
    plan = flow.plan
    about = row.run_id, row.flow_id, flow.version, plan.hash, plan.blueprint, row.parent_run_id
    identity = Identity(*about, started_by=row.started_by)
    journal = Journal(services, identity, flow.durability, state, folded.space)
    journal.head, journal.lease, journal.key_run = folded.head, lease, key_run
    journal.is_halted, journal.act, journal.noted = row.status is Status.HALTED, act, folded.note
    metadata: dict[str, Any] = {
        "from": {"flow_version": row.flow_version, "flow_hash": row.flow_hash},
        "migrations": [*compat.migrations, *cast],
        "starts": list(compat.starts),
        **({"source": flow.source} if flow.source is not None else {}),
        **({TRACE: folded.note} if folded.note is not None else {}),
    }
    await journal.migrate(row.status, folded.error, metadata)
    journal.noted_from = journal.head.sequence
    return journal, state, folded.space


class Rehearsal(NamedTuple):
    """A run as it would go on with a flow."""

    compat: Compat
    state: RunState
    """Under the flow's plan if it continues, else under its own."""
    space: ValueSpace


async def rehearse(
    services: Services, runs: RunReader, row: RunRow, flow: Flow, *, unpins: bool = False
) -> Rehearsal:
    """Take a run over on a copy, up-casts and all, and say what would change. Nothing is written."""
    if mode_on(flow, services.offers) is Mode.OFF:
        folded = await runs.rehydrate(row, await runs.plan(row))
        return Rehearsal(kept_nowhere(row, flow), folded.state, folded.space)
    if row.flow_id == flow.name and not is_other(row, flow):
        folded = await runs.rehydrate(row, flow.plan, flow.durability)
        same = Compat(verdict=Compatibility.CONTINUES, is_same=True)
        return Rehearsal(_with_values(same, folded.state, folded.space), folded.state, folded.space)
    folded = await runs.rehydrate(row, await runs.plan(row), flow.durability)
    compat = await _judge(runs, row, flow, folded, unpins=unpins)
    if compat.verdict is not Compatibility.CONTINUES:
        return Rehearsal(compat, folded.state, folded.space)
    names = runs.judges.of(row, flow, folded.state.plan).names
    key_run = await runs.key_run(row, folded.state)
    try:
        state, cast = await _carry_over(services, folded, names, key_run, is_dry=True)
    except FlowChanged as error:
        return Rehearsal(_unfit(compat, error), folded.state, folded.space)
    rules = (*compat.migrations, *cast)
    told = Compat(verdict=compat.verdict, migrations=rules, starts=compat.starts)
    return Rehearsal(_with_values(told, state, folded.space), state, folded.space)


def _with_values(compat: Compat, state: RunState, space: ValueSpace) -> Compat:
    """Return the verdict on a run that may go on by its wiring, with what is to be said of its values.

    One that a node to come reads and that cannot be read as things are now, such as one of a class that lost
    a field, refuses it: no rule helps, for rules get values that were read.
    """
    read: dict[str, Any] = {}
    needed, others = _unreadable(state, space, read)
    warnings = (*misfits(state, read), *(f"{error.message} No node to come reads it." for error in others))
    if not needed:
        return msgspec.structs.replace(compat, warnings=warnings)
    return Compat(
        verdict=Compatibility.REFUSED,
        values=tuple(needed),
        reason=" ".join(error.message for error in needed.values()),
        fix=" ".join(dict.fromkeys(error.fix for error in needed.values())),
        migrations=compat.migrations,
        warnings=warnings,
        is_same=compat.is_same,
        code=next(iter(needed.values())).code,
    )


def _unreadable(
    state: RunState, space: ValueSpace, read: dict[str, Any]
) -> tuple[dict[str, EverstepError], list[EverstepError]]:
    """Return what cannot be read of a run's values: those that it needs, by whole name, and the others.

    Those of flows that can, and are not too large to be looked at, are in `read` by whole name.
    """
    reads: dict[str, set[str]] = {}
    for scope in state.scopes():  # outer ones come first
        reads[scope.prefix] = _reads_to_come(scope)
        if scope.parent is not None:
            outer, exports = reads[scope.parent.prefix], scope.parent.plan.children[scope.place].exports
            reads[scope.prefix] |= {inner for inner, name in exports.items() if name in outer}
    reads[CHANNEL] = set().union(*reads.values())
    needed: dict[str, EverstepError] = {}
    others: list[EverstepError] = []
    for prefix, area in space.areas.items():
        for name, slot in area.items() if prefix not in space.hidden else ():
            if slot.is_transient or slot.written.form in (ValueForm.TRANSIENT, ValueForm.DELETED):
                continue
            try:
                value = space.peek(name, prefix)
                if prefix in reads and slot.written.size <= LOOKED_AT:
                    read[prefix + name] = value
            except EverstepError as error:
                # The arguments of a task, the chunks of a stream and what an item gave are read later.
                if name in reads[prefix] if prefix in reads else not prefix.startswith(WAIT):
                    needed[prefix + name] = error
                else:
                    others.append(error)
    return needed, others


def _reads_to_come(scope: Scope) -> set[str]:
    """Return the values that nodes of a flow which may still run read."""
    plan = scope.plan
    todo = list(scope.due)
    if any(plan.nodes[i].context_param is not None for i in range(len(plan.nodes))):
        todo += plan.tasks
    found: set[int] = set()
    while todo:
        i = todo.pop()
        if i not in found:
            found.add(i)
            todo += plan.graph[i]
    read = [name for i in found for name in plan.sources[i]]
    needed: set[str] = set()
    while read:
        name = read.pop()
        if name not in needed:
            needed.add(name)
            for w in plan.writers.get(name, ()):  # a value that is not kept is made again from what is
                read += plan.sources[w] if plan.nodes[w].persist is Persist.NO else ()
    return needed


def misfits(state: RunState, read: Mapping[str, Any]) -> Iterator[str]:
    """Yield which recorded values are not what a node that is still to come says it takes.

    `read` are those that can be read, by whole name; of the others a resume says why they cannot be.
    """
    for scope in state.scopes():
        if scope.is_hidden:
            continue
        for i, node in enumerate(scope.plan.nodes):
            if scope.visits[i] and i not in scope.due and i not in scope.plan.looping:
                continue
            for p in node.params:
                if p.hint is UNKNOWN or (full := scope.prefix + p.source) not in read:
                    continue
                value = read[full]
                if not fits(value, p.hint):
                    was, path = type(value).__name__, scope.path_of(i)
                    yield f"{p.source!r} was recorded as {was}, but {path!r} wants {spell(p.hint)}."


def _renaming(row: RunRow, flow: Flow, folded: Rehydrated) -> Renaming:
    return Renaming(folded.state.plan, flow.plan, flow.migrations, row.flow_version)


async def _carry_over(
    services: Services, folded: Rehydrated, names: Renaming, key_run: str, *, is_dry: bool
) -> tuple[RunState, list[str]]:
    """Return the state under the new plan and the rules that changed values; the values move along."""
    space, old = folded.space, folded.state
    lists = Lists(space)
    for scope in tuple(old.scopes()):
        if scope.parent is not None:
            lists.fill(scope)
    kept, streams = snapshot(old, ()), _streams(old, names)
    prefixes = [p for s in old.scopes() if not s.is_hidden and (p := names.prefix(s.prefix)) is not None]
    space.rename(names.value)
    drafts, bumps, told = _cast(space, names, streams)
    if told:
        _begin_anew(kept, space)
    given, gifts = _give(space, names, prefixes)
    for draft in drafts + given:
        if draft.spill is not None and not is_dry:
            await patiently(services.clock, partial(_write_aside, space, draft))
    versions = {
        prefix + name: slot.written.version
        for prefix, area in space.areas.items()
        for name, slot in area.items()
    }
    state = RunState(names.new)
    moved = translate(kept, names, key_run=key_run, bumps=bumps)
    if moved.undo is not None:
        state.undo = Undoing(moved.undo)
    restore(state, versions, moved, Counters(old.total))
    wake(state, names)
    return state, told + gifts


def _streams(old: RunState, names: Renaming) -> dict[str, str]:
    """Return what each stream under way will give, by what the names of its chunks begin with."""
    found: dict[str, str] = {}
    for scope in old.scopes():
        for i, at in scope.streams.items():
            for output in scope.plan.nodes[i].outputs:
                place = names.value(scope.prefix, output)
                if place is not None:
                    found[f"{STREAM}{at.stream_id}/"] = plain_path("".join(place))
    return found


def _begin_anew(kept: SerializedState, space: ValueSpace) -> None:
    """Let a stream whose chunks are no list any more begin anew; of the others, say how many there are."""
    for path, node in kept.nodes.items():
        at = node.stream
        if at is None:
            continue
        prefix = f"{STREAM}{at.stream_id}/"
        chunks = space.peek("chunks", prefix)
        if isinstance(chunks, list):
            at = msgspec.structs.replace(at, chunks=len(chunks))
        else:
            at = None
            space.drop(prefix)
        kept.nodes[path] = msgspec.structs.replace(node, stream=at)


def _cast(
    space: ValueSpace, names: Renaming, streams: Mapping[str, str]
) -> tuple[list[Slot], dict[str, tuple[int, int]], list[str]]:
    """Put values of the new form in the place of the old ones; each is a new version.

    What a stream has given so far is a value of the old form too.
    """
    drafts: list[Slot] = []
    bumps: dict[str, tuple[int, int]] = {}
    told: dict[str, None] = {}
    for prefix, area in space.areas.items() if names.casts else ():
        for name, slot in list(area.items()):
            cast = streams.get(prefix) if prefix[:1] == "@" else plain_path(prefix + name)
            rule = names.casts.get(cast) if cast is not None else None
            if rule is None or rule.fn is None or slot.is_transient:
                continue
            version = slot.written.version
            try:
                draft = space.change(name, version + 1, rule.fn(space.peek(name, prefix)), ValueForm.WHOLE)
            except Exception as error:
                raise FlowChanged(
                    f"{rule} failed on {prefix + name!r}: {type(error).__name__}: {error}",
                    fix="Fix the function; nothing was changed.",
                    value=prefix + name,
                ) from error
            space.size += draft.cost - slot.cost
            area[name] = draft
            drafts.append(draft)
            bumps[prefix + name] = (version, version + 1)
            told[str(rule)] = None
    return drafts, bumps, list(told)


def _give(space: ValueSpace, names: Renaming, prefixes: list[str]) -> tuple[list[Slot], list[str]]:
    """Give the flows that are open the values that they did not begin with."""
    drafts: list[Slot] = []
    told: dict[str, None] = {}
    for prefix in prefixes:
        area = space.area(prefix)
        for name, value in names.gifts_at(prefix).items():
            if name not in area:
                try:
                    draft = space.change(name, 1, value, ValueForm.WHOLE)
                except ValueNotStorable as error:
                    raise FlowChanged(
                        f"add_value({plain_path(prefix + name)!r}) gives what cannot be stored: {error}",
                        fix="Give a value that can; nothing was changed.",
                        value=prefix + name,
                    ) from error
                area[name] = draft
                space.size += draft.cost
                drafts.append(draft)
                told[f"add_value({plain_path(prefix + name)!r})"] = None
    return drafts, list(told)


async def _write_aside(space: ValueSpace, draft: Slot) -> None:
    space.write_aside(draft)
