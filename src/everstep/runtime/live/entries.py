"""What nodes emit, as batches that lie beside a store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.plain_json import jsonable, spelled_out
from everstep.errors import StateCorrupted
from everstep.ports.live import LiveBatch
from everstep.runtime.live.bodies import Bound

MOST_BYTES = 64 * 1024
"""The largest entry. A larger one is left out, and says so."""


class LiveEntry(msgspec.Struct, frozen=True, array_like=True):
    """One thing that a node emitted or yielded."""

    kind: str
    node: str
    visit: int
    attempt: int
    at: datetime
    data: dict[str, Any]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[LiveEntry]).decode


def entry_bytes(entry: LiveEntry) -> bytes:
    """Return one entry as JSON, whatever its data are."""
    data = jsonable(_packed(entry.data))
    try:
        body = _encode(_plain(entry, data))
    except UnicodeEncodeError:
        body = _encode(_plain(entry, _as_text(data)))
    if len(body) <= MOST_BYTES:
        return body
    named = {key: entry.data[key] for key in ("name",) if isinstance(entry.data.get(key), str)}
    return _encode(_plain(entry, {**_as_text(named), "omitted": len(body)}))


def _packed(data: dict[str, Any]) -> dict[str, Any]:
    """Return what `ctx.emit` told without the copies of its data, which stand beside them by their names."""
    inner = data.get("data")
    if not isinstance(inner, dict) or data.keys() != {*inner, "name", "data"}:
        return data
    return {"name": data["name"], "data": inner}


def _unpacked(entry: LiveEntry) -> LiveEntry:
    data = entry.data
    if entry.kind != "emitted" or not isinstance(inner := data.get("data"), dict):
        return entry
    return _plain(entry, {**inner, **data})


def _as_text(data: Any) -> Any:
    """Return data of JSON with halves of characters spelled out, such as those in the name of a file."""
    if isinstance(data, str):
        return spelled_out(data)
    if isinstance(data, list):
        return [_as_text(one) for one in data]
    if isinstance(data, dict):
        return {_as_text(name): _as_text(one) for name, one in data.items()}
    return data


def _plain(entry: LiveEntry, data: Any) -> LiveEntry:
    return msgspec.structs.replace(entry, data=data)


def close_batch(codecs: Codecs, run_id: str, epoch: int, last: int, entries: list[bytes]) -> LiveBatch:
    """Return entries as a store keeps them."""
    body = b"[" + b",".join(entries) + b"]"
    return LiveBatch(run_id, epoch, last, len(entries), Bound.batch(run_id, epoch, last).closed(codecs, body))


def open_batch(codecs: Codecs, batch: LiveBatch) -> list[LiveEntry]:
    """Return the entries of a batch, or raise what keeps them from being read here."""
    bound = Bound.batch(batch.run_id, batch.epoch, batch.last)
    try:
        found = _decode(bound.opened(codecs, batch.body))
    except (msgspec.DecodeError, ValueError) as error:
        raise StateCorrupted(f"{bound.where} was altered: {error}.") from error
    if len(found) != batch.count:
        raise StateCorrupted(f"{bound.where} was altered: {len(found)} of {batch.count} entries are there.")
    return [_unpacked(entry) for entry in found]
