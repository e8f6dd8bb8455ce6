"""Escalation: an expense that no one approves is asked about again, then goes to others, and at last expires.

    python examples/expense_escalation.py sqlite:///runs.db
    everstep answer E1 --approve --store sqlite:///runs.db

Kill it at any time and start it again: it goes on with what is still to be asked.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from everstep import Flow, Host, node, wait
from everstep.notify import Notice

POST = Path(os.environ.get("POST", "post.jsonl"))

approve = wait.approval(
    "approve",
    prompt="Pay it?",
    context="amount",
    notify="desk",
    remind="1d",
    escalate={"2d": "lead", "4d": ["lead", "head"]},
    timeout="5d",
)


@node(output="said")
def close(amount: int, approve: wait.ApprovalOutput) -> str:
    return f"{amount} is {'paid' if approve.approved else 'not paid'}"


FLOW = Flow("expense", [approve, close])


def letter_to(who: str, notice: Notice) -> None:
    """Put a letter into the post. Its id is the same however often it is sent."""
    line = {"id": notice.id, "to": who, "of": notice.occasion or "question", "link": notice.link}
    with POST.open("a") as post:
        post.write(json.dumps(line) + "\n")


PEOPLE = {
    "desk": lambda notice: letter_to("desk", notice),
    "lead": lambda notice: letter_to("lead", notice),
    "head": lambda notice: letter_to("head", notice),
}


def ask(host: Host) -> None:
    """Accept an expense, and do what is due: ask, remind, escalate, expire."""
    host.start(FLOW, {"amount": 250}, run_id="E1")
    host.work([FLOW], until_idle=True)
    host.notices.send()


if __name__ == "__main__":
    with Host(sys.argv[1], notifiers=PEOPLE, key=os.environ.get("EVERSTEP_KEY")) as host:
        ask(host)
        while not host.info("E1").status.is_final:
            time.sleep(60)
            ask(host)
