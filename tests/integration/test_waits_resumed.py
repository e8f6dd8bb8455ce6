"""A run that was answered and goes on is found by others whatever becomes of its owner."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from everstep import Durability, Flow, Host, node, wait
from everstep.model.enums import Status

PATIENCE = 10.0


def test_an_answer_that_is_written_while_a_node_runs_no_longer_leaves_the_run_halted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    seen: list[Status] = []

    @node(output="used", effects="pure")
    def use(asked: str) -> str:
        with Host(url) as other:
            end = time.monotonic() + PATIENCE
            while other.info("run").checkpoints == halted_at and time.monotonic() < end:
                time.sleep(0.01)
            seen.append(other.info("run").status)
        return asked

    durability = Durability("strong", interval=timedelta(milliseconds=50))
    flow = Flow("f", [wait.question("asked", kind="text"), use], durability=durability)
    with Host(url) as host:
        result = host.run(flow, run_id="run")
        host.answer(result.waits[0].id, "x")
        halted_at = host.info("run").checkpoints
        assert host.resume("run", flow)["used"] == "x"
    assert seen == [Status.RUNNING]
