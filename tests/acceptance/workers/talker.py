"""A program that sends and publishes what a plan says, and goes on where the one before it was killed.

`python -m tests.acceptance.workers.talker URL PLAN JOURNAL`: each line of the plan is an act, and the journal
gets a line for each whose reply came.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from everstep import Host
from everstep.errors import RunNotFound, StoreError


def main(url: str, plan: str, journal: str) -> None:
    acts = [json.loads(line) for line in Path(plan).read_text().splitlines()]
    done = len(told(Path(journal)))
    with Host(url) as host:
        for act in acts[done:]:
            came = patiently(host, act)
            file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(file, json.dumps({**act, "came": came}).encode() + b"\n")
            os.close(file)
            time.sleep(act["pause"])


def told(journal: Path) -> list[dict[str, Any]]:
    """Return the acts of a journal."""
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


def patiently(host: Host, act: dict[str, Any]) -> str:
    """Do an act, however often the store is busy, and say what came of it."""
    for _ in range(100):
        try:
            return do(host, act)
        except StoreError:
            time.sleep(0.05)
    return do(host, act)


def do(host: Host, act: dict[str, Any]) -> str:
    if act["kind"] == "publish":
        value = {"order": act["order"], "id": act["id"]}
        host.publish("paid", value, id=act["id"], keep="1d")
        return "published"
    try:
        host.send(act["run"], act["name"], act["id"], id=act["id"])
    except RunNotFound:
        return "no run"
    return "sent"


if __name__ == "__main__":
    main(*sys.argv[1:])
