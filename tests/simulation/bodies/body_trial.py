"""What is tried with random bodies, and what must hold of it."""

from __future__ import annotations

from collections.abc import Mapping

from everstep.client.sync import Host
from everstep.client.views import WaitInfo
from everstep.graph.author.flow import Flow
from everstep.model.waits import SIGNAL_KIND
from everstep.testing.simulation.checks import Broken, Judge, Reader
from everstep.testing.simulation.faults import Decider
from everstep.testing.simulation.played import ITSELF
from everstep.testing.simulation.trial import RUN, End, FlowTrial
from everstep.testing.simulation.world import Here, World
from tests.simulation.bodies.parts import NOTES


class BodyTrial(FlowTrial):
    """A node with a random body. What it comes to may be a matter of time, and then it stays so."""

    def __init__(self, flow: Flow, wrong: list[str], seed: int, *, is_strict: bool) -> None:
        self._wrong = wrong
        self._is_strict = is_strict
        """True if nothing lets it go another way than recorded."""
        super().__init__(
            flow,
            {"x": 1},
            doubles=ITSELF,
            is_chancy=True,
            is_remote=seed % 3 == 1,
            is_awaited=seed % 3 == 2,
        )

    def world(self, seed: int, decider: Decider) -> World:
        self._wrong.clear()
        return super().world(seed, decider)

    def _answer(self, here: Here, host: Host, told: set[str]) -> bool:
        """Answer, and send a note with each answer."""
        for number, wait in enumerate(host.waits(RUN)):
            host.send(RUN, NOTES, f"{wait.opened_at} {number}", id=f"note {wait.id}")
            if wait.kind == SIGNAL_KIND:
                host.send(RUN, wait.listens_for, f"answer to {wait.listens_for}", id=wait.id)
                return True
        return super()._answer(here, host, told)

    def _answer_to(self, wait: WaitInfo) -> object:
        return f"answer to {wait.node.rpartition('$')[2]}" if wait.kind == "text" else None

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        broken = super().judge(world, reader, whole)
        broken += [Broken("result", wrong) for wrong in self._wrong]
        for kept in Judge(world, reader).kept.values():
            for _, step in kept.steps:
                other = () if step.unit is None else (*step.unit.changed, *step.unit.unasked)
                if other and self._is_strict:
                    broken.append(Broken("result", f"{step.path} went another way than recorded: {other}."))
        # Of parts that fail together one is heard of.
        return [one for one in broken if "exception was never retrieved" not in one.message]
