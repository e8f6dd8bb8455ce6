"""Random pipelines that are killed somewhere end as if nothing had happened."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from everstep import Flow, Host
from everstep.errors import FlowError
from everstep.model.enums import Status
from everstep.registry import Opened
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing
from tests.unit.codec.fuzzing import IS_SOAK
from tests.unit.frontends.pipelines.test_random_pipelines import CHILD, pipelines

MOST_STEPS = 60
RACES = ("join_policy=first_success", "join_policy=quorum")
"""Who comes first is a matter of luck."""

PATIENCE = ("timeout=5m", "timeout=5d")
"""Between two lives pass hours, and an answer that came in the first one may come too late in the second."""


class World:
    """A store that outlives the processes, and their clock."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._data = MemoryData()
        self._clock = ManualClock(auto=True)

    def live(self, killer: Killer) -> tuple[str, str, dict[str, Any]]:
        """Drive the run until it ends, with the first answer to all; return status, error and context."""
        flow = Flow.from_dot(self._text, children={"child": CHILD}, max_steps=MOST_STEPS)
        self._clock.advance(timedelta(hours=2))
        store = Opened(MemoryStore(self._clock, self._data), None, "memory:")
        with Host(killing(store, by=killer), clock=self._clock) as host:
            result = host.run(flow, run_id="a")
            while result.status is Status.HALTED:
                for asked in host.waits("a"):
                    host.answer(asked.id, asked.options[0] if asked.options else "anything")
                result = host.resume("a", flow)
            error = result.error.message if result.error is not None else ""
            return result.status.value, error, told(host.channel("a"))


def told(channel: dict[str, Any]) -> dict[str, Any]:
    """Leave out the order of what ran side by side, and what a stage is told less after a resume."""
    kept = {key: value for key, value in channel.items() if not key.endswith(("internal.history", "resumed"))}
    for key in [key for key in kept if key.startswith("stages.")]:
        kept[key] = {k: v for k, v in kept[key].items() if k not in ("fidelity", "degraded_from", "preamble")}
    return kept


@settings(max_examples=60 if IS_SOAK else 20, deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines(), st.randoms(use_true_random=False))
def test_a_random_pipeline_that_is_killed_somewhere_ends_the_same(text: str, chance: random.Random) -> None:
    for race in RACES:
        text = text.replace(race, "join_policy=wait_all")
    text = text.replace(*PATIENCE)
    try:
        Flow.from_dot(text, children={"child": CHILD})
    except FlowError:
        assume(False)
    whole = Killer()
    expected = World(text).live(whole)
    assume("steps before" not in expected[1])  # where the limit finds branches is a matter of luck, too
    for point in chance.sample(whole.points, min(3, len(whole.points))):
        world = World(text)
        with suppress(Crashed):
            world.live(Killer(point, act=crash))
        assert world.live(Killer()) == expected, f"killed {point}"
