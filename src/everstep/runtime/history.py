"""Records as people look at them: with what a stored delta leaves out filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from everstep.errors import RunNotFound, StateCorrupted
from everstep.model.address import Part
from everstep.model.records import FORK, CheckpointRecord, StepRecord
from everstep.ports.store import RunRow
from everstep.runtime.lineage import Link, claimed_digest, headers, verified
from everstep.runtime.reader import RunReader

_PAGE = 256


class PrecedingRecord(NamedTuple):
    """What the record before some others says of them."""

    base: str | None = None
    digest: bytes | None = b""
    flow: tuple[str, str] = ("", "")
    versions: Mapping[str, int] = {}
    """By whole name; only a fork's edits need them."""


async def history(
    runs: RunReader,
    run_id: str,
    last: int | None = None,
    *,
    count: int | None = None,
    after: int | None = None,
    part: Part | None = None,
) -> list[CheckpointRecord]:
    """Return the checkpoints of a run that were not removed, with what deltas leave out filled in.

    With `count`, only the last so many, or the first behind `after`, and no more is read. With a part, those
    that hold steps of it.
    """
    row = await runs.row(run_id)
    try:
        if after is not None:
            return await following(runs, row, after, count, last=last, part=part)
        if count is not None:
            return await newest(runs, row, count, last=last, part=part)
        return narrowed(views(await runs.lineage.get(row, last=last)), part)
    except StateCorrupted as error:
        raise await runs.with_way_back(row, error) from error


async def newest(
    runs: RunReader, row: RunRow, count: int, *, last: int | None = None, part: Part | None = None
) -> list[CheckpointRecord]:
    """Return the last so many checkpoints up to one, oldest first, reading the chain from its end.

    With a part, the last ones that hold steps of it, and those steps alone.
    """
    found: list[CheckpointRecord] = []
    upper = row.checkpoints if last is None else min(last, row.checkpoints)
    while upper >= 1 and len(found) < count:
        first = max(1, upper - (_PAGE if part is not None else count - len(found)) + 1)
        page = await stretch(runs, row, first, upper)
        found = [*narrowed(page, part), *found]
        upper = first - 1 if page else 0
    return found[-count:]


async def following(
    runs: RunReader,
    row: RunRow,
    after: int,
    count: int | None,
    *,
    last: int | None = None,
    part: Part | None = None,
) -> list[CheckpointRecord]:
    """Return the first so many checkpoints behind one, oldest first, reading a stretch at a time."""
    found: list[CheckpointRecord] = []
    upper = row.checkpoints if last is None else min(last, row.checkpoints)
    while after < upper and (count is None or len(found) < count):
        size = _PAGE if part is not None or count is None else count - len(found)
        found += narrowed(await stretch(runs, row, after + 1, min(after + size, upper)), part)
        after += size
    return found[:count]


async def stretch(runs: RunReader, row: RunRow, first: int, last: int) -> list[CheckpointRecord]:
    """Return the checkpoints between two sequences; of those before them only one is read."""
    links = await runs.lineage.get(row, max(1, first - 1), last)
    if first <= 1 or not links:
        return views(links)
    before, rest = links[0], links[1:]
    flow, versions = await runs.lineage.flow_at(row, first - 1), dict[str, int]()
    if any(map(_begins_fork, rest)):
        with suppress(RunNotFound):  # they were removed, and a keyframe follows
            areas = (await runs.look_back(row.run_id, first - 1)).space.areas.items()
            versions = {
                prefix + name: slot.written.version for prefix, area in areas for name, slot in area.items()
            }
    return views(
        rest,
        PrecedingRecord(
            before.stored.checkpoint_id, claimed_digest(before), (flow.flow_version, flow.flow_hash), versions
        ),
    )


async def shared_until(runs: RunReader, one: tuple[str, int], other: tuple[str, int]) -> int | None:
    """Return the newest checkpoint that two moments of runs have in common; none if there is none.

    Only rows are read: a run shares with its forks what it had when they were made.
    """
    ends: list[dict[str, int]] = []
    for run_id, at in (one, other):
        last, found = at, dict[str, int]()
        with suppress(StateCorrupted):  # a run that it comes from is gone
            async for row in runs.lineage.back(await runs.row(run_id)):
                if last >= row.first:
                    found[row.run_id] = last
                last = min(last, row.forked_at or 0)
        ends.append(found)
    common = ends[0].keys() & ends[1].keys()
    return max((min(ends[0][run_id], ends[1][run_id]) for run_id in common), default=None)


async def told_by(
    runs: RunReader, row: RunRow, first: int, last: int, part: Part | None = None
) -> list[CheckpointRecord]:
    """Return what the checkpoints between two sequences say, without looking at the values they name."""
    links = await runs.lineage.get(row, max(1, first - 1), last)
    before = b""
    if first > 1 and links:
        before, links = claimed_digest(links[0]), links[1:]
    try:
        return narrowed((record for _, record in headers(links, before)), part)
    except StateCorrupted as error:
        raise await runs.with_way_back(row, error) from error


def narrowed(records: Iterable[CheckpointRecord], part: Part | None) -> list[CheckpointRecord]:
    """Return the records that hold steps of a part, with those alone; without a part, all as they are."""
    if part is None:
        return list(records)
    found = [(record, tuple(s for s in record.steps if part.holds(s.path, s.visit))) for record in records]
    return [msgspec.structs.replace(record, steps=steps) for record, steps in found if steps]


def views(links: Iterable[Link], before: PrecedingRecord | None = None) -> list[CheckpointRecord]:
    """Return the records that were not trimmed, each verified, with the run it lies in and its digest."""
    found: list[CheckpointRecord] = []
    before = before or PrecedingRecord()
    base, flow, versions = before.base, before.flow, dict(before.versions)
    links = list(links)
    is_numbered = any(map(_begins_fork, links))
    for link, opened in verified(links, before.digest, is_read_only=True):
        if opened is not None:
            record, row = opened.record, link.row
            if record.flow_hash:
                flow = (record.flow_version, record.flow_hash)
            if is_numbered and record.state is not None:
                versions = {w.name: w.version for w in record.state.values}
            view = msgspec.structs.replace(
                record,
                base=record.base or base,
                steps=tuple(_numbered(step, versions) for step in record.steps)
                if is_numbered
                else record.steps,
                run_id=row.run_id,
                parent_run_id=row.parent_run_id,
                flow_id=row.flow_id,
                flow_version=flow[0] or row.flow_version,
                flow_hash=flow[1] or row.flow_hash,
                digest=opened.digest.hex(),
            )
            found.append(view)
        base = link.stored.checkpoint_id
    return found


def _begins_fork(link: Link) -> bool:
    """True for the record that holds the edits of a fork."""
    return link.row.forked_at is not None and link.sequence == link.row.first


def _numbered(step: StepRecord, versions: dict[str, int]) -> StepRecord:
    """Note the versions a step writes; those of a fork's edits are only known here."""
    if step.path == FORK:
        numbered = (
            msgspec.structs.replace(w, version=w.version or versions.get(w.name, 0) + 1) for w in step.writes
        )
        step = msgspec.structs.replace(step, writes=tuple(numbered))
    versions.update((step.whole_name(w.name), w.version) for w in step.writes)
    return step
