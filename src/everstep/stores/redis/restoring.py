"""Runs that come whole from another store, as the script takes them. Apart, as few stores are ever restored
into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from everstep.ports.restoring import EPOCHS_OF_A_LIFE, Restored, WholeRun, judge_there
from everstep.ports.store import StoredRecord
from everstep.stores.columns import check_run
from everstep.stores.notice_rows import told_text
from everstep.stores.redis.blobs import MOST
from everstep.stores.redis.fields import (
    KEYFRAME,
    STUB,
    WHOLE,
    as_text,
    attribute_fields,
    audit_fields,
    packed,
    run_fields,
    signal_fields,
    tag_fields,
    wait_fields,
)
from everstep.stores.redis.notices import notice_fields
from everstep.stores.redis.wire import Argument

_encode = msgspec.msgpack.Encoder().encode
ALL = 2**30 - 2**20
"""Bytes of all records of a run: one call brings them, and a server takes 1 GiB at once."""


def restore(call: Callable[..., Any], run: WholeRun) -> Restored:
    """Call the script and judge what it found."""
    check_run(run, MOST, "Redis", at_once=ALL)
    head = run.head
    verdict, *there = call("restore", *_arguments(run))
    if verdict != b"there":
        return Restored(verdict.decode())
    newest, id_there, id_at_ours = there
    ids = {newest: id_there.decode(), head.sequence: id_at_ours.decode()}
    return judge_there(run, newest, ids.get)


def _arguments(run: WholeRun) -> list[Argument]:
    brings: dict[str, Any] = {
        "epochs": EPOCHS_OF_A_LIFE,
        "fields": run_fields(run.row),
        "waits": [
            {"id": wait.wait_id, "fields": wait_fields(wait)}
            | ({} if wait.token_hash is None else {"token": as_text(wait.token_hash)})
            for wait in run.waits
        ],
        "structures": [(flow_hash, as_text(blueprint)) for flow_hash, blueprint in run.blueprints],
    }
    if run.inbox:
        brings["inbox"] = [
            {
                "id": signal.signal_id,
                "number": signal.number,
                "taken": signal.taken_at is not None,
                "fields": signal_fields(signal),
            }
            for signal in run.inbox
        ]
    if run.had:
        brings["had"] = run.had
    if run.audit is not None:
        brings["audit"] = audit_fields(run.audit)
    if run.labels.tags:
        brings["tags"] = tag_fields(run.labels.tags)
    if run.labels.attributes:
        brings["attributes"] = attribute_fields(run.labels.attributes)
    if run.labels.undoing:
        brings["undoing"] = run.labels.undoing
    if run.told:
        brings["told"] = told_text(run.told)
    if run.notices:
        brings["notices"] = [notice_fields(row) for row in run.notices]
    if run.row.forked_at is not None:
        brings |= {"forked": run.row.forked_at, "parent": run.row.parent_run_id or ""}
    head, first = run.head, run.records[0].sequence
    told: list[Argument] = [
        run.row.run_id,
        head.sequence,
        head.checkpoint_id,
        run.base or "",
        _encode(brings),
    ]
    return [*told, first, *map(_record, run.records)]


def _record(record: StoredRecord) -> bytes:
    if record.digest is not None:
        return packed(STUB, record.checkpoint_id, record.digest)
    return packed(KEYFRAME if record.keyframe else WHOLE, record.checkpoint_id, record.body)
