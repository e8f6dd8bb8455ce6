"""A ring of what runs emit, in a capped stream for each run. Apart from the store, which opens it only when
it is asked for.

The id of an entry is the offset of what it holds, so the server itself keeps the order, and keeps out what an
owner sends that has lost its run.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import msgspec
import redis

from everstep.ports.live import (
    ATTEMPTS,
    KEPT,
    MOST,
    PAGE,
    KeptLog,
    LiveBatch,
    LogPlace,
    Offset,
    RecodedBatch,
    RecodedLog,
)
from everstep.stores.redis.link import Links
from everstep.stores.redis.trouble import explain
from everstep.stores.redis.wire import Argument, Wire

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, int, int, int]).decode


class RedisRing:
    """Writes on the connections of the store, and waits on one of its own."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._keys = f"{links.address.keys}live:"
        self._logs = f"{links.address.keys}logs:"
        self._reading = threading.Lock()
        self._wire: Wire | None = None

    def append(self, batches: Sequence[LiveBatch]) -> None:
        told: list[Argument] = [MOST, int(KEPT.total_seconds() * 1000)]
        for batch in batches:
            told += (batch.run_id, f"{batch.epoch}-{batch.last}", batch.count, batch.body)
        self._links.call("live_append", b"", *told)

    def read(self, after: Mapping[str, Offset], seconds: float) -> list[LiveBatch]:
        names = list(after)
        waits: tuple[Argument, ...] = ("BLOCK", max(1, int(seconds * 1000))) if seconds > 0 else ()
        keys = [self._keys + name for name in names]
        ids = [f"{offset.epoch}-{offset.number}" for offset in after.values()]
        with self._reading:
            try:
                if self._wire is None:
                    self._wire = Wire(self._links.address)
                    self._wire.connect()
                found = self._wire.ask("XREAD", "COUNT", PAGE, *waits, "STREAMS", *keys, *ids)
            except (redis.RedisError, OSError) as error:
                self._drop()
                raise explain(error, self._links.address) from None
        prefix = len(self._keys.encode())
        return [
            _batch(key[prefix:].decode(), place, fields)
            for key, entries in found or ()
            for place, fields in entries
        ]

    def write_logs(self, logs: Sequence[KeptLog]) -> None:
        told: list[Argument] = []
        for place, body in logs:
            old = place._replace(attempt=place.attempt - ATTEMPTS)
            told += (place.run_id, _field(place), body, _field(old))
        self._links.call("logs_write", b"", *told)

    def read_logs(self, run_id: str, path: str | None = None) -> list[KeptLog]:
        key = self._logs + run_id
        places = [LogPlace(run_id, *_decode(field)) for field in self._links.command("HKEYS", key)]
        wanted = sorted(place for place in places if path in (None, place.path))
        if not wanted:
            return []
        bodies = self._links.command("HMGET", key, *map(_field, wanted))
        return [KeptLog(place, body) for place, body in zip(wanted, bodies, strict=True) if body is not None]

    def recode(self, batches: Sequence[RecodedBatch], logs: Sequence[RecodedLog]) -> int:
        runs: dict[str, list[Argument]] = {}
        for batch, body in batches:
            runs.setdefault(batch.run_id, []).extend((f"{batch.epoch}-{batch.last}", batch.body, body))
        replaced = sum(int(self._links.call("live_recode", b"", run, *told)) for run, told in runs.items())
        if logs:
            fields = ((log.place.run_id, _field(log.place), log.body, body) for log, body in logs)
            told = [part for log in fields for part in log]
            replaced += int(self._links.call("logs_recode", b"", *told))
        return replaced

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.disconnect()
            self._wire = None

    def close(self) -> None:
        with self._reading:
            self._drop()


def _field(place: LogPlace) -> bytes:
    """Return the field of a run's hash that holds a log."""
    return _encode(place[1:])


def _batch(run_id: str, place: bytes, fields: Sequence[bytes]) -> LiveBatch:
    epoch, _, last = place.partition(b"-")
    _, count, _, body = fields
    return LiveBatch(run_id, int(epoch), int(last), int(count), body)
