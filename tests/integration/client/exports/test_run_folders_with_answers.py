"""What a run folder tells of people who were asked."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from everstep import Host
from everstep.testing import ManualClock
from tests.integration.frontends.pipelines.pipelines import square


@pytest.mark.parametrize("more", ["timeout_action=first", "timeout_action=skip", '"human.default_choice"=N'])
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_run_folder_tells_answers_from_silence(tmp_path: Path, more: str, is_answered: bool) -> None:
    clock = ManualClock()
    flow = square(
        f"start -> ask; ask [shape=hexagon, timeout=1h, {more}];"
        'ask -> exit [label="[Y] Yes"]; ask -> start2 [label="[N] No"]; start2 -> exit'
    )
    with Host("memory:", clock=clock) as host:
        halted = host.run(flow, run_id="a")
        if is_answered:
            host.answer(halted.waits[0].id, "yes")
        clock.advance(timedelta(hours=2))
        assert host.resume("a", flow).status == "completed"
        folder = host.transfer.write_run_folder("a", tmp_path)
    told = [json.loads(line)["type"] for line in (folder / "events.jsonl").read_text().splitlines()]
    expected = "human.responded" if is_answered else "human.timeout"
    assert [kind for kind in told if kind.startswith("human.")] == ["human.waiting", expected]
