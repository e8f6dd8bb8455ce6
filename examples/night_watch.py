"""Reports that are made at night, and who is told of those that fail.

    python examples/night_watch.py sqlite:///runs.db https://hooks.example.com/everstep

Kill it at any time and start it again: it goes on with the reports that are under way, and with what is still
to be told. The receiver gets each notice at least once, always with the same `Idempotency-Key`.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

from everstep import Flow, Host, node, notify
from everstep.errors import RunErased
from everstep.results import Clock

SHOPS = range(1, int(os.environ.get("SHOPS", "20")) + 1)


@node(output="total")
def add_up(shop: int) -> int:
    if shop % 2:
        raise ValueError(f"the till of shop {shop} does not balance")
    return 100 * shop


NIGHTLY = Flow("nightly", [add_up], notify=notify.Tell("ops", on=["failed", "cancelled"], overdue="2h"))


def watch(store: str, hook: str, clock: Clock | None = None, pause: float = 10.0) -> None:
    """Make what reports there are to be made, and send what there is to be told."""
    ops = notify.Webhook(hook, secret="between you and me", timeout="5s")
    with Host(store, clock=clock, notifiers={"ops": ops}) as host:
        for shop in SHOPS:
            with suppress(RunErased):  # a report that was removed is not made again
                host.start(NIGHTLY, {"shop": shop}, run_id=f"shop-{shop}")
        host.work([NIGHTLY], until_idle=True)
        while host.notices.find(state="pending", limit=1):
            host.notices.send()
            time.sleep(pause)


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2])
