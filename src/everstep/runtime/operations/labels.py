"""The labels of runs: read where a run is shown, and tags changed by who may. Apart: most do neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from everstep.errors import BadRequest
from everstep.model.acts import Act
from everstep.model.commits import MOST_LABELS, Labels, Tag, Tagging
from everstep.on_demand import on_demand
from everstep.ports.labels import LabelStore
from everstep.ports.store import RunRow, no_such_run
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.runtime.operations.acting import riding, told, written
else:
    riding = on_demand("everstep.runtime.operations.acting:riding")
    told = on_demand("everstep.runtime.operations.acting:told")
    written = on_demand("everstep.runtime.operations.acting:written")


async def labels_of_runs(services: Services, rows: Sequence[RunRow]) -> Mapping[str, Labels]:
    """Return the labels of runs, by id."""
    if not rows or not services.store.capabilities.has_labels:
        return {}
    return await cast("LabelStore", services.store).labels([row.run_id for row in rows])


async def change_tags(
    services: Services,
    run_id: str,
    add: Sequence[Tag],
    remove: Sequence[str],
    act: Act | None,
    **at: int,
) -> bool:
    """Add tags to a run and take others away, or say why that cannot be.

    With `head`, false if the newest checkpoint of the run has another sequence.
    """
    if not services.store.capabilities.has_labels:
        raise BadRequest("this store keeps no tags.", fix="Use a store that does: all of everstep's own do.")
    audit = riding(act, run_id) if act is not None or services.notes_unnamed else None
    said: dict[str, Any] = told(audit) if audit is not None else {}
    said |= at
    changed = await cast("LabelStore", services.store).tag(run_id, add=add, remove=remove, **said)
    if changed is Tagging.MOVED:
        return False
    if changed is Tagging.UNKNOWN_RUN:
        raise no_such_run(run_id)
    if changed is Tagging.FULL:
        raise BadRequest(
            f"run {run_id!r} would have more than {MOST_LABELS} tags.", fix="Take some away first."
        )
    if audit is not None:
        written(audit)
    return True
