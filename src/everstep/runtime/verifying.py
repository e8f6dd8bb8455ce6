"""Checking what is kept of runs: every digest of the chain, and what waits on this machine."""

from __future__ import annotations

import msgspec

from everstep.errors import EverstepError, StateCorrupted
from everstep.model.enums import Status
from everstep.ports.store import RunFilter, RunRow
from everstep.runtime.ahead import read_waiting
from everstep.runtime.lineage import verified
from everstep.runtime.outbox import foreign
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services

_PAGE = 256


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one run."""

    run_id: str
    checkpoints: int = 0
    """How many there are, those that a fork shares included."""
    removed: int = 0
    """How many of them clean-up has left only the digests of."""
    newest_valid: int | None = None
    """The newest checkpoint up to which everything is as it was written; a fork can go on from it."""
    problem: str = ""
    """What is wrong with the chain; empty if nothing is."""
    spooled: int = 0
    """Checkpoints that wait on this machine, and are as they were written."""
    spool_problem: str = ""
    """What is wrong with those; empty if nothing is."""

    @property
    def is_sound(self) -> bool:
        """True if nothing is wrong."""
        return not self.problem and not self.spool_problem


async def verify(services: Services, runs: Runs, run_id: str | None) -> list[Verified]:
    """Check one run, or all of them, newest first, and what waits here for runs that the store lacks."""
    if run_id is not None:
        return [await _verify_run(services, runs, await runs.row(run_id))]
    found: list[Verified] = []
    before: str | None = None
    while True:
        rows = await services.store.list(RunFilter(limit=_PAGE, before=before))
        found += [await _verify_run(services, runs, row) for row in rows]
        if len(rows) < _PAGE:
            break
        before = rows[-1].run_id
    for name in services.spool.runs():
        if await services.store.run(name) is None:
            found.append(Verified(run_id=name, spool_problem=str(foreign(services, name))))
    return found


async def _verify_run(services: Services, runs: Runs, row: RunRow) -> Verified:
    newest, removed, problem, spooled, spool_problem = 0, 0, "", 0, ""
    status: Status | None = None
    try:
        await runs.plan(row)
        before, seen = b"", 0
        while seen < row.checkpoints:
            links = await runs.lineage.get(row, seen + 1, min(seen + _PAGE, row.checkpoints))
            for link, opened in verified(links, before):
                if link.sequence != seen + 1:
                    break
                seen = link.sequence
                if opened is None:
                    removed, before = removed + 1, link.stored.digest or b""
                else:
                    newest, before, status = seen, opened.digest, opened.record.status
            if not links or links[-1].sequence != seen:
                raise StateCorrupted(f"checkpoint {seen + 1} of run {row.run_id!r} is missing.")
        if status is not row.status and (row.status.is_final or (status is not None and status.is_final)):
            told = status.value if status is not None else "nothing"
            raise StateCorrupted(
                f"run {row.run_id!r} is {row.status.value}, but its records end with {told}."
            )
    except EverstepError as error:
        problem = str(error)
    try:
        spooled = len(await read_waiting(services, row))
    except EverstepError as error:
        spool_problem = str(error)
    return Verified(
        run_id=row.run_id,
        checkpoints=row.checkpoints,
        removed=removed,
        newest_valid=newest or None,
        problem=problem,
        spooled=spooled,
        spool_problem=spool_problem,
    )
