"""Orders that fail while the bank is down, and a worker that drives them."""

from __future__ import annotations

import os
import sys

from everstep import Flow, Host, node

DOWN = "BANK_IS_DOWN"


@node(effects="effectful", idempotency_key="auto", output="receipt")
def charge(order: int) -> str:
    if DOWN in os.environ:
        raise TimeoutError("the bank timed out")
    return f"order {order} paid"


ORDERS = Flow("orders", [charge])

if __name__ == "__main__":
    with Host(sys.argv[1]) as host:
        host.work([ORDERS], until_idle=True)
