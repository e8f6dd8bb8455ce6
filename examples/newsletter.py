"""Letters under a rate limit: so many a minute for each shop, and one at a time for each customer.

    python examples/newsletter.py sqlite:///runs.db

Start it in as many terminals as you like, kill any of them and start them again: the store counts, so all of
them together keep to the limits, and each letter is sent under one key. What waits, and why, shows

    everstep limits --store sqlite:///runs.db
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from everstep import Context, Flow, Host, Limit, node

OUTBOX = Path(os.environ.get("OUTBOX", "outbox.jsonl"))
SHOPS = ("books", "tools")
CUSTOMERS = ("ann", "bob", "cleo", "dan")


@node(output="sent", limit=Limit("mail-service", running=2, rate="6/1m"), retry="standard")
def send(shop: str, customer: str, text: str, ctx: Context) -> str:
    """Hand a letter to the mail service, which knows by its key that it has it already."""
    line = json.dumps({"key": ctx.idempotency_key, "shop": shop, "to": customer, "text": text})
    if not OUTBOX.exists() or line not in OUTBOX.read_text().splitlines():
        with OUTBOX.open("a") as outbox:
            outbox.write(line + "\n")
    return f"{text} to {customer}"


LETTER = Flow("letter", [send], limits=[Limit("shop", rate="3/1m"), Limit("customer", running=1)])


def accept(host: Host) -> None:
    """Accept a letter to every customer of every shop; one that is there already stays as it is."""
    for shop in SHOPS:
        for customer in CUSTOMERS:
            letter = {"shop": shop, "customer": customer, "text": f"News of {shop}"}
            host.start(LETTER, letter, run_id=f"{shop}-{customer}")


def are_sent(host: Host) -> bool:
    return not host.runs(flow="letter", status="running", limit=1)


def post(store: str) -> None:
    """Work until every letter is sent."""
    with Host(store) as host:
        accept(host)
        while not are_sent(host):
            host.work([LETTER], until_idle=True)  # it does not wait for a rate
            time.sleep(1)


if __name__ == "__main__":
    post(sys.argv[1])
