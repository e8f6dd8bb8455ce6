"""Cron: a report of each shop every night by the clock of its town, also when the clocks change.

    everstep schedule apply examples/nightly_reports.py
    everstep worker examples/nightly_reports.py

Kill the worker at any time, start two of them, or none for an hour: each night each shop has one report.
`everstep schedule list` shows what comes next, and what was missed.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

from everstep import Context, Flow, Schedule, node

SHELF = Path(os.environ.get("SHELF", "reports.jsonl"))


@node(output="report", effects="effectful", idempotency_key="auto")
def write(shop: str, at: datetime, ctx: Context) -> str:
    """Put a report on the shelf, which knows by its key that it has it already."""
    report = f"{shop}, {at:%d %b %H:%M} UTC"
    line = json.dumps({"key": ctx.idempotency_key, "report": report})
    if not SHELF.exists() or line not in SHELF.read_text().splitlines():
        with SHELF.open("a") as shelf:
            shelf.write(line + "\n")
    return report


def nightly(town: str, zone: str) -> Schedule:
    return Schedule(town, cron="30 2 * * *", zone=zone, inputs={"shop": town}, time_input="at", catch_up="6h")


flow = Flow(
    "sales", [write], schedules=[nightly("berlin", "Europe/Berlin"), nightly("lisbon", "Europe/Lisbon")]
)
