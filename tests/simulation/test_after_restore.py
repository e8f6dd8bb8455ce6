"""What is done once a store was put back from a backup may be cut off anywhere, and done again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from everstep import Flow, Host
from everstep.errors import BadRequest, EverstepError, LeaseLost, StoreError, WaitSettled
from everstep.testing.simulation.explore import Explorer, without_collector
from everstep.testing.simulation.faults import Chosen, parse
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.played import ITSELF, played
from everstep.testing.simulation.simulating import check
from everstep.testing.simulation.trial import RUN, FlowTrial
from everstep.testing.simulation.world import Here, World
from tests.simulation.flows import NOTIFIED, charge_if_approved, price, take
from tests.simulation.soaking import SEED, size

RESTORED = Flow("restored", [take, price, NOTIFIED, charge_if_approved])
BY_CHANCE = size(soak=3000, first=20)


class RestoredTrial(FlowTrial):
    """A run that halts; then someone does what is done after a restore, and answers with the new token."""

    def __init__(self, *, is_remote: bool) -> None:
        super().__init__(
            RESTORED, {"customer": "ada"}, doubles=ITSELF, is_remote=is_remote, options={"key": "k" * 32}
        )
        self._first = ""

    def _answer(self, here: Here, host: Host, told: set[str]) -> bool:
        waits = host.waits(RUN)
        if not waits:
            return False
        [asked] = waits
        assert asked.token is not None
        self._first = self._first or asked.token  # of the uninterrupted world
        # A world that begins with a death went like that one until then.
        first = vars(here.world).setdefault("first", asked.token if here.life == 1 else self._first)
        try:
            done = host.storage.after_restore()
            assert (done.fenced, done.tokens) == (1, 1)
        except BadRequest as error:  # a try before this one did it, and the new token was told since
            assert "this was done" in error.message
        here.sleep(1)
        with pytest.raises(EverstepError) as refused:
            host.answer(first, {"approved": False})
        if isinstance(refused.value, StoreError):
            raise refused.value
        [asked] = host.waits(RUN) or [asked]
        assert asked.token != first
        with suppress(WaitSettled):
            host.answer(asked.token, {"approved": True})
        return True


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
def test_what_is_done_after_a_restore_may_be_cut_off_anywhere_and_done_again(is_remote: bool) -> None:
    explorer = Explorer(RestoredTrial(is_remote=is_remote), seed=SEED)
    try:
        with without_collector():
            check(explorer, explorer.whole)
            assert any(" fence " in label for label, _ in explorer.points)
            for taken in explorer.single_faults():
                check(explorer, explorer.try_fault(taken))
            for number in range(BY_CHANCE):
                check(explorer, explorer.try_drawn(SEED * 1_000_003 + number, faults=3))
    finally:
        explorer.close()


def test_an_owner_that_slept_through_a_restore_cannot_write() -> None:
    heard: dict[str, Any] = {}
    flow = played(Flow("two", [take, price], durability="strong"), ITSELF)

    def sleeper(here: Here) -> None:
        with here.host() as host:
            try:
                host.run(flow, {"customer": "ada"}, run_id=RUN)
            except LeaseLost as error:
                heard["sleeper"] = type(error)

    def operator(here: Here) -> None:
        with here.host() as host:
            here.sleep(5)
            heard["done"] = host.storage.after_restore()
            heard["status"] = host.resume(RUN, flow).status.value
            heard["at"] = here.world.hub.now // SECOND

    world = World(0, Chosen([parse("sleeper.1 before put 2: stall")]))
    world.start("sleeper", sleeper)
    world.start("operator", operator)
    world.run()
    assert heard["sleeper"] is LeaseLost
    assert (heard["done"].fenced, heard["status"]) == (1, "completed")
    assert heard["at"] < 60, "the run was free at once, not when the lease of its owner had run out"
    assert not world.troubles
