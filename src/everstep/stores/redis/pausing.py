"""What is paused, as scripts take and give it. Apart from the store, as few stores have anything of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everstep.model.leases import Held, LanePause

_lanes = msgspec.msgpack.Decoder(LanePause)


def lane_bytes(lane: LanePause) -> bytes:
    """Return what is kept of a flow or a group that is paused."""
    return msgspec.msgpack.encode(lane)


def read_held(runs: Sequence[Sequence[bytes]], lanes: Sequence[bytes]) -> Held:
    """Return what is paused."""
    marks = {name.decode(): mark.decode() for name, mark in runs}
    read = sorted(map(_lanes.decode, lanes), key=lambda lane: (lane.flow_id, lane.group))
    return Held(marks, tuple(read))
