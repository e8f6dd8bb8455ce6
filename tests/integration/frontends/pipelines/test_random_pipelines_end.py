"""Random pipelines whose stages end as they like: each ends, or fails by a limit, and keeps every outcome."""

from __future__ import annotations

import os
import random
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from everstep import Flow, Host
from everstep.errors import FlowError
from everstep.frontends.pipelines.layers import ATTEMPTS
from everstep.frontends.pipelines.stage import Stage
from everstep.model.enums import Status
from everstep.testing.clock import ManualClock
from tests.integration.frontends.pipelines.test_random_pipelines_killed import RACES
from tests.unit.frontends.pipelines.test_random_pipelines import CHILD, pipelines

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
MOST_STEPS = 40
LIMITS = ("pipeline.failed", "pipeline.no_edge", "run.limit_exceeded")
STATUSES = ("success", "success", "partial_success", "fail", "fail", "retry", "skipped")


class Fickle:
    """A backend whose stages end in any way, each with an answer that tells it from all others."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.said: dict[str, str] = {}
        """How each call ended, by its answer."""

    def __call__(self, stage: Stage) -> dict[str, Any]:
        answer, status = f"answer {len(self.said)}", self._chance.choice(STATUSES)
        self.said[answer] = status
        wish = self._chance.choice(("", "fail", "[A] Yes"))
        return {
            "status": status,
            "response": answer,
            "notes": f"note on {stage.node}",
            "preferred_label": wish,
            "context_updates": {"x": self._chance.choice((0, 1, "1"))},
        }


def kept(host: Host) -> set[str]:
    """Return the answers in all records of the run."""
    found: set[str] = set()
    for record in host.history("r"):
        names = [w.name for step in record.steps for w in step.writes if w.form != "deleted"]
        names = [name for name in names if name.startswith("@channel/stages.") or ATTEMPTS in name]
        state = host.state("r", record.sequence) if names else {}
        found |= {state[name].get("response", "") for name in names if name in state}
    return found


@settings(max_examples=2_000 if IS_SOAK else 40, deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines(), st.randoms(use_true_random=False))
def test_every_random_pipeline_ends_or_fails_by_a_limit_with_every_outcome_kept(
    text: str, chance: random.Random
) -> None:
    for race in RACES:
        text = text.replace(race, "join_policy=wait_all")
    worker = Fickle(chance)
    try:
        flow = Flow.from_dot(text, children={"child": CHILD}, max_steps=MOST_STEPS, backend=worker)
    except FlowError:
        assume(False)
    with Host("memory:", clock=ManualClock(auto=True)) as host:
        result = host.run(flow, run_id="r")
        while result.status is Status.HALTED:
            for asked in host.waits("r"):
                host.answer(asked.id, asked.options[0] if asked.options else "anything")
            result = host.resume("r", flow)
        assert result.status in (Status.COMPLETED, Status.FAILED)
        assert result.error is None or result.error.code in LIMITS, result.error
        assert worker.said.keys() - kept(host) == set(), text
        if not (result.error is not None and result.error.code == LIMITS[-1]):
            told = host.transfer.checkpoint_as("r", "pipeline")
            assert told["outcome"]["status"] == ("fail" if result.error is not None else "success") or (
                result.error is not None and result.error.code == "pipeline.no_edge"
            )
