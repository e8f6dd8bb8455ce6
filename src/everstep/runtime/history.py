"""Records as people look at them: with what a stored delta leaves out filled in."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from everstep.model.records import FORK, CheckpointRecord, StepRecord
from everstep.runtime.lineage import Link, verified


def views(links: Iterable[Link]) -> list[CheckpointRecord]:
    """Return the records that were not trimmed, each verified, with the run it lies in and its digest."""
    found: list[CheckpointRecord] = []
    versions: dict[str, int] = {}
    base: str | None = None
    flow = ("", "")
    for link, opened in verified(links, needs_values=False):
        if opened is not None:
            record, row = opened.record, link.row
            if record.flow_hash:
                flow = (record.flow_version, record.flow_hash)
            if record.state is not None:
                versions = {w.name: w.version for w in record.state.values}
            view = msgspec.structs.replace(
                record,
                base=record.base or base,
                steps=tuple(_numbered(step, versions) for step in record.steps),
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


def _numbered(step: StepRecord, versions: dict[str, int]) -> StepRecord:
    """Note the versions a step writes; those of a fork's edits are only known here."""
    if step.path == FORK:
        numbered = (
            msgspec.structs.replace(w, version=w.version or versions.get(w.name, 0) + 1) for w in step.writes
        )
        step = msgspec.structs.replace(step, writes=tuple(numbered))
    versions.update((step.whole_name(w.name), w.version) for w in step.writes)
    return step
