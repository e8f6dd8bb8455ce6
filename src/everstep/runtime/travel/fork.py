"""Making a fork: one record that names another run's checkpoint as its base. Nothing is copied."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from everstep.codec.sealing import seal_closed
from everstep.engine.commits import opening_of_fork
from everstep.engine.fold import enter
from everstep.engine.forks import outdated, run_again
from everstep.engine.scope import OpenedVisit, Scope
from everstep.engine.state import RunState
from everstep.errors import BadRequest, InputError, RunNotFound, RunUndone, close_matches
from everstep.graph.author.channel import check_key
from everstep.graph.author.node import Gate
from everstep.graph.compile.plan import Plan, all_keys
from everstep.model.acts import Act
from everstep.model.address import Address, Segment
from everstep.model.commits import NO_LABELS, OWN_FLOWS, Labels
from everstep.model.durability import Durability
from everstep.model.enums import Trigger, ValueForm
from everstep.model.leases import ALONE
from everstep.model.records import CHANNEL, FORK, CheckpointRecord, StepRecord, Undo, Written
from everstep.model.waits import HadEvent
from everstep.on_demand import on_demand
from everstep.ports.store import Commit, RunRow, Verdict
from everstep.runtime.drive.apply import apply
from everstep.runtime.drive.values import Slot, ValueSpace, write_aside
from everstep.runtime.lineage import FlowAt, Link
from everstep.runtime.operations.labels import labels_of_runs
from everstep.runtime.outage.store_retry import outage, patiently
from everstep.runtime.reader import RunReader
from everstep.runtime.run_ids import check_run_id
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.runtime.drive.attributes import inherited
    from everstep.runtime.guards.slots import note_unfinished
    from everstep.runtime.operations.acting import riding, written
    from everstep.runtime.travel.had_events import had_by
else:
    inherited = on_demand("everstep.runtime.drive.attributes:inherited")
    note_unfinished = on_demand("everstep.runtime.guards.slots:note_unfinished")
    riding = on_demand("everstep.runtime.operations.acting:riding")
    written = on_demand("everstep.runtime.operations.acting:written")
    had_by = on_demand("everstep.runtime.travel.had_events:had_by")

log = logging.getLogger("everstep")


class Edits(NamedTuple):
    """What a fork changes before it goes on."""

    inputs: Mapping[str, Any]
    state: Mapping[str, Any]
    channel: Mapping[str, Any]


class EditedValue(NamedTuple):
    """Where an edited value lies: its whole name, and the version it gets."""

    name: str
    version: int


async def fork(
    services: Services,
    runs: RunReader,
    run_id: str,
    at: int | str | None,
    edits: Edits,
    *,
    fork_id: str | None,
    keep_keys: bool,
    choose_again: bool = False,
    keep_undo: bool = False,
    act: Act | None = None,
) -> RunRow:
    """Admit a run that goes on from a checkpoint of another; returns its row.

    This reads the row, the structure of the flow and two records, and writes one: it costs the same however
    long the run is, unless a value of a flow with inner flows is edited: then it reads what is since the
    last keyframe.
    """
    new_id = services.ids.new_id() if fork_id is None else check_run_id(fork_id)
    row, sequence = await runs.find(run_id, at)
    _check_may_fork(row)
    link, digest = await runs.lineage.digest(row, sequence)
    origin = await runs.lineage.flow_at(link.row, sequence)
    plan = await runs.plan(link.row, origin.flow_hash)
    if edits.channel or services.channels is not None:
        await _say_what_is_left_out(runs, row.run_id, sequence, edits)
    inner = [name for name in edits.state if isinstance(name, str) and "/" in name]
    # Only an edit inside an open flow, or of what one reads, needs to know what was open.
    is_deep = bool(inner) or (bool(plan.children) and bool(edits.inputs or edits.state))
    folded = await runs.look_back(row.run_id, sequence) if is_deep else None
    inside = {} if folded is None else _inside(folded.state, inner, sequence)
    drafts = await _draft(services, plan, edits, inside)
    labels = (await labels_of_runs(services, [row])).get(row.run_id, NO_LABELS)
    if labels.undoing and not keep_undo:
        await _check_goes_forward(runs, row.run_id, sequence)
    if labels.attributes:
        drafts += inherited(services.values, labels.attributes)
    again = await _choices(runs, row, sequence) if choose_again else {}
    if folded is not None:
        again |= _outdated(folded.state, [d.written.name for d in drafts])
    commit = _commit(
        services,
        plan,
        origin,
        new_id,
        link,
        digest,
        drafts,
        act,
        keep_keys=keep_keys,
        keep_undo=keep_undo,
        again=again or None,
        labels=labels,
        # What is edited may ask for the same events again.
        had=() if any(edits) or again else await had_by(services, runs, plan, link.row, sequence),
    )
    is_noted = act is not None or services.notes_unnamed
    audit = riding(act, new_id, f"{row.run_id}@{sequence}", of=row.run_id) if is_noted else None
    if audit is not None:
        commit = msgspec.structs.replace(commit, audit=audit)
    verdict = await patiently(services.clock, partial(services.committer.put, commit), outage(services.store))
    if audit is not None:
        written(audit, is_done=verdict is Verdict.ACCEPTED)
    _check_admitted(verdict, new_id, link.where)
    return await _told(services, runs, row, new_id)


async def _told(services: Services, runs: RunReader, parent: RunRow, new_id: str) -> RunRow:
    """Let those know of a fork who have to."""
    if parent.group is not None and ALONE in parent.group:
        await note_unfinished(services, parent.flow_id, parent.group, new_id)
    if services.meter is not None:
        services.meter.of(parent.flow_id).forked()
    await services.ring(new_id, parent.flow_id)
    return await runs.row(new_id)


def _check_admitted(verdict: Verdict, new_id: str, where: str) -> None:
    if verdict is Verdict.EXISTS:
        raise BadRequest(f"there is a run {new_id!r} already.", fix="Choose another id for the fork.")
    if verdict is not Verdict.ACCEPTED:
        raise RunNotFound(
            f"{where} was removed while it was forked ({verdict.value}).", fix="Take a newer one."
        )


def _check_may_fork(row: RunRow) -> None:
    """Raise for runs of everstep's own flows: a fork with other inputs would be another order, in the name of
    who gave the first.
    """
    if row.flow_id.startswith(OWN_FLOWS):
        raise BadRequest(
            f"run {row.run_id!r} is of {row.flow_id!r}, a flow of everstep itself: it cannot be forked.",
            fix="Order it again, under your own name.",
        )


async def _check_goes_forward(runs: RunReader, run_id: str, sequence: int) -> None:
    """Raise for a checkpoint of a run that undoes what it did, or has: nothing goes forward from there."""
    undo = (await runs.look_back(run_id, sequence)).state.undo
    if undo is not None and undo.has_begun:
        raise RunUndone(
            f"at checkpoint {sequence} run {run_id!r} undoes what it did.",
            fix="Fork it at a checkpoint before that: everstep checkpoints RUN shows where it began.",
        )


class AgainNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was visited, and that a fork would run once more."""

    path: str = msgspec.field(name="node")
    visits: int
    had_key: bool
    """True if its last visit used an idempotency key: what it did to the world it may do again."""


class ForkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a fork would do, as far as that is known before it runs."""

    run_id: str
    at: int
    """The checkpoint that it goes on from."""
    starts: tuple[str, ...]
    """The nodes that start first."""
    again: tuple[AgainNode, ...]
    """The nodes that run once more."""
    asks: tuple[str, ...]
    """The nodes whose waits were open there: they ask once more."""
    kept: int
    """How many nodes keep what they wrote."""


async def preview_fork(
    services: Services,
    runs: RunReader,
    run_id: str,
    at: int | str | None,
    edits: Edits,
    *,
    choose_again: bool = False,
) -> ForkPreview:
    """Say what a fork would do first, and again; of what would be edited only the names count."""
    row, sequence = await runs.find(run_id, at)
    _check_may_fork(row)
    folded = await runs.look_back(row.run_id, sequence)
    state, space = folded.state, folded.space
    inside = _inside(state, [name for name in edits.state if "/" in name], sequence)
    _check_edits(state.plan, edits, inside)
    names = [inside[name].name if name in inside else name for name in (*edits.inputs, *edits.state)]
    again = await _choices(runs, row, sequence) if choose_again else {}
    again |= _outdated(state, names)
    asks = tuple(dict.fromkeys(scope.path_of(i) for scope, i in state.waits.values()))
    writes = tuple(Written(name=name, version=0, digest=b"", size=0) for name in names)
    apply(state, space, StepRecord(path=FORK, writes=writes, key=row.run_id, again=again or None), ())
    state.look_around()
    first = state.startable(services.clock.now) or state.stuck()
    starts = tuple(scope.path_of(i) for scope, i in first)
    found: list[AgainNode] = []
    kept = 0
    for scope in state.scopes():
        if scope.is_hidden:
            continue
        coming = run_again(scope)
        for i, visits in enumerate(scope.visits):
            if visits and i in coming:
                had_key = i in scope.consumed
                found.append(AgainNode(path=scope.path_of(i), visits=visits, had_key=had_key))
            kept += bool(visits) and i not in coming
    return ForkPreview(
        run_id=row.run_id, at=sequence, starts=starts, again=tuple(found), asks=asks, kept=kept
    )


async def _choices(runs: RunReader, row: RunRow, sequence: int) -> dict[str, tuple[str, ...]]:
    """Return the gates whose choice nothing has acted on yet, by path, each with what it chose.

    Those are gates of which a target is still due, and those in the checkpoint itself that chose the end.
    """
    folded = await runs.look_back(row.run_id, sequence)
    open_: set[str] = set()
    for scope in folded.state.scopes():
        due = {scope.plan.paths[t] for t in scope.due if scope.chosen[t] and t not in scope.opened}
        gates = [(i, n) for i, n in enumerate(scope.plan.nodes) if isinstance(n, Gate) and scope.visits[i]]
        open_ |= {scope.path_of(i) for i, n in gates if i not in scope.due and due & set(n.targets)}
    found: dict[str, tuple[str, ...]] = {}
    for at in range(sequence, 0, -1):
        try:
            _, opened = await runs.lineage.read(row, at, needs_values=False)
        except RunNotFound:
            break
        for step in reversed(opened.record.steps):
            if step.decision is None or step.path[0] == "@" or step.path in found:
                continue
            if step.path in open_ or (at == sequence and not step.decision):
                found[step.path] = step.decision
                open_.discard(step.path)
        if not open_:
            break
    if not found:
        raise BadRequest(
            f"at checkpoint {sequence} of run {row.run_id!r} no gate has chosen what is still to come.",
            fix="Fork it at the checkpoint in which the gate chose.",
        )
    return found


def _outdated(state: RunState, edited: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the inner flows under way that are to begin anew, for what they read is edited."""
    names: dict[Scope, list[str]] = {}
    for full in edited:
        if full[0] != "@":
            head, _, name = full.rpartition("/")
            names.setdefault(state.scope_at(head) if head else state, []).append(name)
    paths = [path for scope, own in names.items() for path in outdated(scope, own)]
    for path in paths:
        for full in edited:
            if full.startswith((f"{path}/", f"{path}#", f"{path}@")):
                raise BadRequest(
                    f"{full!r} cannot be edited: what {path} reads is edited too, so that it begins anew.",
                    fix=f"Edit one or the other, or fork again once {path} is under way.",
                )
    return dict.fromkeys(paths, ())


async def _say_what_is_left_out(runs: RunReader, run_id: str, sequence: int, edits: Edits) -> None:
    """A channel that is kept beside the chain has no past that a fork could go on from."""
    if not (await runs.look_back(run_id, sequence)).space.has_channel_elsewhere:
        return
    if edits.channel:
        raise BadRequest(
            f"run {run_id!r} keeps its channel beside its records, outside forks.",
            fix="Fork it without channel edits; the channel of the fork begins empty.",
        )
    log.warning("run %r keeps its channel beside its records: the fork's begins empty.", run_id)


def _inside(state: RunState, names: Collection[str], sequence: int) -> dict[str, EditedValue]:
    """Return the whole name and the next version of each value inside an open flow."""
    found: dict[str, EditedValue] = {}
    for name in names:
        scope, local = find_inside(state, name, sequence)
        found[name] = EditedValue(scope.prefix + local, scope.versions.get(local, 0) + 1)
    whole = [place.name for place in found.values()]
    for name in whole:
        if whole.count(name) > 1:
            raise BadRequest(f"{name!r} is edited twice.", fix="Give it once.")
    return found


async def _draft(
    services: Services, plan: Plan, edits: Edits, inside: Mapping[str, EditedValue]
) -> list[Slot]:
    """Encode what is edited; large values are written aside. Version 0 is the one after the newest."""
    _check_edits(plan, edits, inside)
    channel = {CHANNEL + check_key(key): value for key, value in edits.channel.items()}
    space = ValueSpace(services.values, services.blobs, Durability().blob_threshold)
    drafts = []
    for name, value in {**edits.inputs, **edits.state, **channel}.items():
        place = inside.get(name, EditedValue(name, 0))
        draft = space.change(place.name, place.version, value, ValueForm.WHOLE)
        if draft.spill is not None:
            await write_aside(services, space, draft)
        drafts.append(draft)
    return drafts


def _check_edits(plan: Plan, edits: Edits, inside: Mapping[str, EditedValue]) -> None:
    """Raise unless the flow has all that is edited, and each is edited once."""
    twice = sorted(edits.inputs.keys() & edits.state.keys())
    if twice:
        raise BadRequest(f"{twice[0]!r} is edited twice.", fix="Give it as an input or as a value, not both.")
    _check_names("input", edits.inputs, plan.free_inputs | plan.seeds, InputError)
    own = {name: value for name, value in edits.state.items() if name not in inside}
    _check_names("value", own, plan.readers.keys() | plan.writers.keys(), BadRequest)
    if plan.channel:
        _check_names("channel key", edits.channel, all_keys(plan), BadRequest)


def _check_names(
    what: str, names: Collection[str], known: Collection[str], error: type[InputError] | type[BadRequest]
) -> None:
    for name in names:
        if name not in known:
            close = close_matches(str(name), known, n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            raise error(
                f"the flow has no {what} {name!r}.{guess}",
                fix=f"It has {', '.join(sorted(known)) or 'none'}.",
            )


def _commit(
    services: Services,
    plan: Plan,
    origin: FlowAt,
    new_id: str,
    link: Link,
    base_digest: bytes,
    drafts: list[Slot],
    act: Act | None,
    *,
    keep_keys: bool,
    keep_undo: bool,
    again: dict[str, tuple[str, ...]] | None,
    labels: Labels,
    had: tuple[HadEvent, ...],
) -> Commit:
    parent, now = link.row, services.clock.now()
    writes = tuple(d.written for d in drafts)
    step = StepRecord(
        path=FORK,
        writes=writes,
        key=None if keep_keys else new_id,
        again=again,
        undo=Undo(is_kept=True) if keep_undo else None,
    )
    record = CheckpointRecord(
        checkpoint_id=services.ids.new_id(),
        sequence=link.sequence + 1,
        base=link.stored.checkpoint_id,
        trigger=Trigger.FORK,
        created_at=now,
        steps=(step,),
        run_id=new_id,
        parent_run_id=parent.run_id,
        flow_id=parent.flow_id,
        flow_version=origin.flow_version,
        flow_hash=origin.flow_hash,
        act=act,
    )
    payloads = [d.payload for d in drafts if d.payload is not None]
    body, _ = seal_closed(services.codecs, new_id, record, base_digest, payloads)
    return opening_of_fork(record, parent, link.sequence, body, plan.blueprint, labels, had)


def find_inside(state: RunState, name: str, sequence: int) -> tuple[Scope, str]:
    """Return the open flow that a name such as `rag/embedding` leads into, and the local name.

    A visit that is left out is the one that is open.
    """
    head, _, local = name.rpartition("/")
    address = Address.parse(head)
    if address is None or address.visit is not None:
        raise BadRequest(f"{name!r} is not the name of a value.", fix="Write rag/NAME, or check#7/NAME.")
    scope: Scope = state
    for segment in address.segments:
        scope = _enter(scope, segment, sequence)
    _check_known("value", local, scope.plan.readers.keys() | scope.plan.writers.keys(), f"flow {head!r}")
    return scope, local


def _enter(scope: Scope, segment: Segment, sequence: int) -> Scope:
    plan, path = scope.plan, scope.prefix + segment.name
    i = plan.index.get(segment.name)
    if i is None or i not in plan.children:
        flows = [plan.paths[k] for k in plan.children]
        _check_known(
            "flow", segment.name, flows, f"flow {scope.prefix[:-1]!r}" if scope.prefix else "the flow"
        )
    assert i is not None
    child, visit = plan.children[i], scope.opened.get(i)
    if child.is_atomic and child.over is None:
        raise BadRequest(
            f"{path} is atomic: nothing inside it is kept.",
            fix=f"Edit what it gave: {_listed(child.exports)}.",
        )
    if visit is None:
        _say_closed(scope, i, path, sequence)
    if segment.visit is not None and segment.visit != visit.visit:
        raise BadRequest(
            f"at checkpoint {sequence}, visit {visit.visit} of {path} was open, not {segment.visit}.",
            fix=f"Edit {path}@{visit.visit}/NAME, or fork where the other was open.",
        )
    return enter(scope, i, _item(visit, segment, path, sequence))


def _item(visit: OpenedVisit, segment: Segment, path: str, sequence: int) -> int:
    item = segment.item
    if not visit.is_map:
        if item is not None:
            raise BadRequest(f"{path} has no items.", fix=f"Write {path}/NAME.")
        return 0
    if item is None:
        raise BadRequest(f"{path} goes over {visit.count} items.", fix=f"Name one of them: {path}#0/NAME.")
    if item >= visit.count:
        raise BadRequest(f"{path} has no item {item}.", fix=f"It has 0 to {visit.count - 1}.")
    if item in visit.done or item in visit.failed:
        raise BadRequest(
            f"item {item} of {path} had ended at checkpoint {sequence}.",
            fix="Fork earlier, or edit what the map gave once it has ended.",
        )
    return item


def _say_closed(scope: Scope, i: int, path: str, sequence: int) -> NoReturn:
    if not scope.visits[i]:
        raise BadRequest(
            f"{path} had not begun at checkpoint {sequence}.", fix="Edit its inputs, or fork later."
        )
    gave = _listed(scope.plan.children[i].exports.values())
    raise BadRequest(
        f"{path} had ended at checkpoint {sequence}.", fix=f"Edit what it gave: {gave}; or fork earlier."
    )


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _check_known(what: str, name: str, known: Collection[str], where: str) -> None:
    if name not in known:
        close = close_matches(name, known, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise BadRequest(f"{where} has no {what} {name!r}.{guess}", fix=f"It has {_listed(known)}.")
