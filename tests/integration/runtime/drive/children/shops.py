"""A shop whose runs start others, written as a sync and as an async node, and what its parcels note."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from everstep import AsyncContext, Context, Flow, Host, node
from everstep.results import RunInfo

MODES = ("sync", "async")


class Shop:
    """A flow that starts a run for each order, and how often each was packed."""

    def __init__(self, mode: str, **options: Any) -> None:
        self.packed: Counter[str] = Counter()

        @node(output="parcel")
        def pack(order: str) -> str:
            self.packed[order] += 1
            return f"parcel {order}"

        self.ship = Flow("ship", [pack])

        def sync_send(orders: list[str], ctx: Context) -> list[str]:
            return [ctx.start(self.ship, {"order": one}, key=one).run_id for one in orders]

        async def async_send(orders: list[str], ctx: AsyncContext) -> list[str]:
            made = [ctx.start("ship", {"order": one}, key=one) for one in orders]
            return [child.run_id for child in await asyncio.gather(*made)]

        given: Any = sync_send if mode == "sync" else async_send
        send = node(name="send", output="started")(given)
        self.flow = Flow("shop", [send], starts=[self.ship], **options)


def children_of(host: Host, run_id: str) -> list[RunInfo]:
    """Return the runs that a run has started, the oldest first."""
    return list(reversed(host.runs(started_by=run_id)))
