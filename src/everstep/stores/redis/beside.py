"""Channels and a queue in Redis, for runs whose records are kept elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from everstep.ports.beside import KeptChannel
from everstep.ports.system import Clock
from everstep.stores.redis.fields import as_text, hash_of
from everstep.stores.redis.link import Links
from everstep.stores.redis.watch import RedisWatch

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode


class RedisChannels:
    """Keeps the channel of each run in a hash, and what is staged for it in another."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def load(self, run_id: str) -> KeptChannel:
        entries, staged = self._links.call("channel_load", "", run_id)
        return KeptChannel(
            {key.decode(): entry for key, entry in hash_of(entries).items()},
            {checkpoint_id.decode(): _decode(kept)[0] for checkpoint_id, kept in hash_of(staged).items()},
        )

    def stage(
        self, run_id: str, checkpoint_id: str, sequence: int, changes: Mapping[str, bytes | None]
    ) -> None:
        told = {key: as_text(entry) if entry is not None else False for key, entry in changes.items()}
        key = f"{self._links.address.keys}staged:{run_id}"
        self._links.command("HSET", key, checkpoint_id, _encode((sequence, told)))

    def settle(self, run_id: str, checkpoint_id: str, *, is_written: bool) -> None:
        self._links.call("channel_settle", "", run_id, checkpoint_id, int(is_written))

    def close(self) -> None:
        self._links.close()


class RedisQueue:
    """A sorted set of the runs that wait for a worker, by since when, and a bell that rings for each."""

    def __init__(self, links: Links, clock: Clock) -> None:
        self._links = links
        self._key = f"{links.address.keys}queue"
        self._watch = RedisWatch(links, clock, topic="bell")

    def announce(self, run_id: str, flow_id: str) -> bool:
        return bool(self._links.call("announce", "", run_id, flow_id))

    def take(self, run_ids: Collection[str]) -> None:
        if run_ids:
            self._links.command("ZREM", self._key, *run_ids)

    def waiting(self) -> list[str]:
        return [run_id.decode() for run_id in self._links.command("ZRANGE", self._key, 0, -1)]

    def changes(self) -> int:
        return self._watch.count()

    def close(self) -> None:
        self._watch.close()
        self._links.close()
