"""Which runs a client gets: decided here on what their rows say, given by a script if they still say so.
Apart from the records, as only workers ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from everstep.engine import leases
from everstep.engine.claims import ClaimTurns, Lane, Room, choose
from everstep.model.leases import Lease, Process, Quota
from everstep.ports.store import RunRow
from everstep.stores.redis.fields import Hash, micros, moment, process_text
from everstep.stores.redis.wire import Argument

TRIES = 3
"""How often a client looks again if others were quicker with all that it chose."""
_NUMBER = 16
"""Digits of its number that precede a run's id in a lane."""


def chosen(
    found: Sequence[Sequence[Any]],
    live: Sequence[Sequence[bytes]],
    quotas: Mapping[str, Quota],
    limit: int,
    turns: ClaimTurns,
) -> list[tuple[str, Lane]]:
    """Return the runs to claim, in order, with their lanes."""
    room = Room(quotas, Counter((flow.decode(), group.decode()) for flow, group in live))
    return list(choose(_lanes(found), limit=limit, room=room, turns=turns))


def _lanes(found: Sequence[Sequence[Any]]) -> Iterator[Lane]:
    """Put the lanes of a flow's versions together."""
    lanes: dict[tuple[int, str, str], list[tuple[float, bytes]]] = {}
    for priority, flow, group, runs in found:
        due = zip(map(float, runs[1::2]), runs[::2], strict=True)
        lanes.setdefault((int(priority), flow.decode(), group.decode()), []).extend(due)
    return (Lane(*key, [name[_NUMBER:].decode() for _, name in sorted(due)]) for key, due in lanes.items())


def is_free(row: Hash, now: datetime) -> bool:
    """False if another worker was quicker."""
    return b"expires" not in row or moment(row[b"expires"]) <= now


def is_known(row: Hash, flows: Collection[tuple[str, str]]) -> bool:
    """False if the run goes by another version of its flow since we looked."""
    return (row[b"flow"].decode(), row[b"hash"].decode()) in flows


def decide(
    run: RunRow,
    row: Hash,
    *,
    owner: str,
    now: datetime,
    ttl: timedelta,
    process: Process | None,
    void_epoch: int | None = None,
) -> Lease:
    """Return the lease that a claimant gets, or raise `LeaseConflict`."""
    return leases.claim(
        run.lease,
        run_id=run.run_id,
        owner=owner,
        process=process,
        now=now,
        ttl=ttl,
        newest_epoch=int(row[b"epoch"]),
        has_progressed=int(row[b"head"]) > int(row[b"claimed"]),
        void_epoch=void_epoch,
    )


def lease_arguments(row: Hash, granted: Lease) -> tuple[Argument, ...]:
    """Return what the script is told of a lease: what it was decided on, and the lease."""
    return (
        granted.run_id,
        row[b"epoch"],
        row.get(b"owner", b""),
        row.get(b"expires", b""),
        row[b"head"],
        granted.owner,
        granted.epoch,
        micros(granted.expires_at),
        process_text(granted.process),
        granted.takeovers,
    )


def longer(lease: Lease, now: datetime, ttl: timedelta) -> Lease:
    """Return a lease that was prolonged."""
    prolonged = leases.renewed(lease, lease, now=now, ttl=ttl)
    assert prolonged is not None
    return prolonged
