"""A wait in a store, without a flow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec

from everstep.model.enums import Status
from everstep.model.waits import WaitRow
from everstep.ports.durability import Handle
from everstep.ports.store import Admission, CheckpointStore, Commit, Verdict
from everstep.ports.system import Clock


async def open_wait(store: CheckpointStore, clock: Clock, **fields: Any) -> WaitRow:
    """Put a run that halts, and return its one wait as the store has it."""
    run_id = str(uuid4())
    row = WaitRow(
        wait_id=str(uuid4()),
        run_id=run_id,
        flow_id="f",
        path="ask",
        visit=1,
        kind="approval",
        opened_at=clock.now(),
        details=b"{}",
    )
    row = msgspec.structs.replace(row, **fields)
    admission = Admission(
        flow_id="f",
        flow_version="1",
        flow_hash="h",
        blueprint=b"",
        created_at=clock.now(),
        owner="me",
        ttl=timedelta(seconds=30),
        process=None,
    )
    first = Commit(run_id, 1, f"{run_id}/1", None, 1, b"one", admission=admission)
    halt = Commit(run_id, 2, f"{run_id}/2", f"{run_id}/1", 1, b"two", status=Status.HALTED, waits=(row,))
    assert await store.put([first, halt]) == [Verdict.ACCEPTED] * 2
    return row


async def cancel_run(store: CheckpointStore, row: WaitRow) -> None:
    """Put the end of a run that no longer wants an answer."""
    lease = await store.lease(row.run_id, owner="other", ttl=timedelta(seconds=30), process=None)
    end = Commit(
        row.run_id, 3, f"{row.run_id}/3", f"{row.run_id}/2", lease.epoch, b"three", status=Status.CANCELLED
    )
    assert await store.put([end]) == [Verdict.ACCEPTED]


def handle_of(row: WaitRow) -> Handle:
    return Handle(run_id=row.run_id, flow_id=row.flow_id, wait_id=row.wait_id)
