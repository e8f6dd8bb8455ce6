"""What lies beside a store as bytes: JSON, encrypted where payloads are, and then bound to its place."""

from __future__ import annotations

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.payload import FORMAT, HEADER, body_of
from everstep.ports.live import KeptLog, LiveBatch, LogPlace


class Bound:
    """The body of a batch or of a log, and what it is bound to."""

    def __init__(self, run_id: str, place: bytes, where: str) -> None:
        self._run_id = run_id
        self._place = place
        self.where = where
        """What it is, in words."""

    @classmethod
    def batch(cls, run_id: str, epoch: int, last: int) -> Bound:
        """Return what a batch is bound to: it opens only at its place in its run."""
        return cls(run_id, b"live/%d.%d" % (epoch, last), f"what run {run_id!r} emitted")

    @classmethod
    def log(cls, place: LogPlace) -> Bound:
        """Return what a log is bound to: one attempt at one step."""
        return cls(place.run_id, b"log/" + msgspec.json.encode(place[1:]), f"the log of {place.path!r}")

    def closed(self, codecs: Codecs, body: bytes) -> bytes:
        """Return JSON as a store keeps it."""
        return codecs.close(HEADER + body, self._run_id, self._place) if codecs.encrypts else body

    def opened(self, codecs: Codecs, body: bytes) -> bytes:
        """Return the JSON of what a store keeps, or raise what keeps it from being read here."""
        is_closed = body[:1] == bytes((FORMAT,))  # with which no JSON begins
        if not is_closed and not codecs.requires_key:
            return body
        closed = body if is_closed else HEADER + body
        return bytes(body_of(codecs.open(closed, self._run_id, self._place, self.where, None), self.where))

    def anew(self, codecs: Codecs, body: bytes) -> bytes | None:
        """Return what a store keeps encrypted with the active key; none if it is already."""
        if body[:1] == bytes((FORMAT,)) and codecs.is_current(body, self.where):
            return None
        return self.closed(codecs, self.opened(codecs, body))


def batch_anew(codecs: Codecs, batch: LiveBatch) -> bytes | None:
    """Return the body of a batch encrypted with the active key; none if it is already."""
    return Bound.batch(batch.run_id, batch.epoch, batch.last).anew(codecs, batch.body)


def log_anew(codecs: Codecs, kept: KeptLog) -> bytes | None:
    """Return the body of a log encrypted with the active key; none if it is already."""
    return Bound.log(kept.place).anew(codecs, kept.body)
