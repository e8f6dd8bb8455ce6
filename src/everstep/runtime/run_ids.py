"""What runs are called, and how a checkpoint of one is written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from everstep.errors import BadRequest, RunErased, RunNotFound
from everstep.model.acts import split_act
from everstep.model.bundles import moved_to
from everstep.on_demand import on_demand
from everstep.ports.retention import RetainingStore
from everstep.ports.store import CheckpointStore, RunRow

if TYPE_CHECKING:
    from everstep.codec.wire import wire
    from everstep.runtime.waits.tokens import without_tokens
else:
    wire = on_demand("everstep.codec.wire:wire")
    without_tokens = on_demand("everstep.runtime.waits.tokens:without_tokens")


LONGEST = 128
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_run_id(run_id: str) -> str:
    """Return the id, or raise if no run can be called that."""
    if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
        if isinstance(run_id, str) and RUN_ID.fullmatch(head := run_id.partition("/")[0]) and head != run_id:
            raise BadRequest(
                f"{without_tokens(repr(run_id)):.160} is a part of a run, and this takes whole runs.",
                fix=f"Write {head}. Ids of runs have letters, digits, '.', '_' and '-', at most 128 of them.",
            )
        raise BadRequest(
            f"{without_tokens(repr(run_id)):.160} is not a run id.",
            fix="Use letters, digits, '.', '_' and '-', at most 128 of them.",
        )
    return run_id


def split_address(run_id: str, at: int | str | None) -> tuple[str, int | str | None]:
    """Take an address such as A17@3 apart: the run and the sequence of its checkpoint."""
    name, sign, sequence = run_id.partition("@") if isinstance(run_id, str) else (run_id, "", "")
    if not sign:
        return run_id, at
    if not sequence.isdecimal():
        raise BadRequest(
            f"{run_id!r} is not a checkpoint of a run.", fix="Write the run and a number: A17@3."
        )
    if at is not None:
        raise BadRequest("the checkpoint is given twice.", fix=f"Write {run_id} alone, or {name} with `at`.")
    return name, int(sequence)


async def missing_run(store: CheckpointStore, run_id: str) -> RunNotFound:
    """Say that there is no such run, or that there was one."""
    if store.capabilities.retains:
        left = await cast(RetainingStore, store).tombstone(run_id)
        if left is not None:
            reason, act = split_act(left.reason)
            return RunErased(
                f"run {run_id!r} was removed on {left.erased_at:%Y-%m-%d %H:%M} UTC: {reason}.",
                fix="Its id stays taken. Use another one.",
                run_id=run_id,
                erased_at=left.erased_at.isoformat(),
                reason=reason,
                **({"act": wire(act)} if act is not None else {}),
            )
    return RunNotFound(f"there is no run {without_tokens(run_id)!r}.", fix="List them with: everstep runs")


def check_still_here(row: RunRow) -> RunRow:
    """Return a run, or raise if it was moved: it must not go on in two places, nor be told things in one."""
    place = moved_to(row.needs_repair)
    if place is not None:
        raise BadRequest(
            f"run {row.run_id!r} was moved to {place}.",
            fix=f"Do it there. If it never arrived, move it again, or go on here: everstep fork {row.run_id}",
            run_id=row.run_id,
        )
    return row
