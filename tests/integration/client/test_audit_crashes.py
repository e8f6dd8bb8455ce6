"""A process that dies in a named act: the audit log says `done` of what was done, and of nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep import Flow, Host, node, wait
from tests.servers import warm


@node(output="priced")
def price(region: str) -> str:
    return f"price in {region}"


FLOW = Flow("asking", [wait.question("region", answer_type=str), price])
DONE: dict[str, Callable[[Host], bool]] = {
    "start": lambda host: any(info.run_id == "new" for info in host.runs()),
    "answer": lambda host: not host.waits("r"),
    "cancel": lambda host: host.info("r").is_cancelling or host.info("r").status == "cancelled",
    "fork": lambda host: any(info.run_id == "new" for info in host.runs()),
    "pin": lambda host: host.info("r").pinned is not None,
    "tag": lambda host: bool(host.info("r").tags),
    "erase": lambda host: bool(host.retention.removed()),
    "pause": lambda host: host.info("r").paused_at is not None,
    "unpause": lambda host: host.info("r").paused_at is None,
    "pause flow": lambda host: bool(host.fleet.pauses()),
    "unpause flow": lambda host: not host.fleet.pauses(),
}
"""Acts, and whether each was done."""
BEFORE: dict[str, Callable[[Host], object]] = {
    "erase": lambda host: host.cancel("r"),
    "unpause": lambda host: host.fleet.pause("r"),
    "unpause flow": lambda host: host.fleet.pause(flow="asking", group="acme"),
}
CHILD = f"""
import sys
from everstep import Host
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.testing.killing import killing
from {__name__} import FLOW

url, act, at = sys.argv[1:]
who = {{"by": "ada"}}
with Host(killing(open_store(url, SystemClock()), at=int(at))) as host:
    if act == "start":
        host.start(FLOW, run_id="new", **who)
    elif act == "answer":
        host.answer(host.waits("r")[0].id, "north", **who)
    elif act == "cancel":
        host.cancel("r", **who)
    elif act == "fork":
        host.fork("r", fork_id="new", **who)
    elif act == "pin":
        host.retention.pin("r", **who)
    elif act == "tag":
        host.fleet.tag("r", ["vip"], **who)
    elif act in ("pause", "unpause"):
        getattr(host.fleet, act)("r", **who)
    elif act.endswith("pause flow"):
        getattr(host.fleet, act.split()[0])(flow="asking", group="acme", **who)
    else:
        host.retention.erase("r", **who)
"""


@pytest.mark.parametrize("act", DONE)
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_what_was_done_has_its_row_and_what_was_not_has_none(kind: str, act: str, tmp_path: Path) -> None:
    ends = set()
    for at in range(1, 50):
        place = tmp_path / str(at)
        url = f"sqlite:///{place}.db" if kind == "sqlite" else f"file:{place}"
        with Host(url) as host:
            host.run(FLOW, run_id="r")
            if act in BEFORE:
                BEFORE[act](host)
        child = [sys.executable, "-c", CHILD, url, act, str(at)]
        died = warm.run(child, stderr=subprocess.PIPE, text=True, check=False)
        with Host(url) as host:
            rows = [(row.act, row.by, row.outcome) for row in host.fleet.audit()]
            was_done = DONE[act](host)
        assert rows == ([(act.split()[0], "ada", "done")] if was_done else []), f"at point {at}"
        ends.add(was_done)
        if died.returncode == 0:
            break
        assert died.returncode == -9, died.stderr
    assert ends == {True, False}, "it died before and after"
