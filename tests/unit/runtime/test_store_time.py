"""What a host takes for the time of its store, which it has to ask for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from everstep.ports.store import CheckpointStore
from everstep.runtime.services import StoreTime
from everstep.runtime.system import SystemClock

START = datetime(2030, 1, 1, tzinfo=UTC)


class World(SystemClock):
    """A host whose seconds pass only while it asks its store, and that store."""

    def __init__(self, waits: list[float], answers: list[float], skew: float) -> None:
        super().__init__()
        self._waits, self._answers = waits, answers
        self._skew = timedelta(seconds=skew)
        self._seconds = 1000.0
        self.asked = 0

    def monotonic(self) -> float:
        return self._seconds

    def now(self) -> datetime:
        return START + timedelta(seconds=self._seconds)

    @property
    def stores(self) -> datetime:
        return self.now() + self._skew

    def store(self) -> CheckpointStore:
        return cast(CheckpointStore, _Store(self))

    def ask(self) -> datetime:
        self._seconds += self._waits[self.asked]
        said = self.stores
        self._seconds += self._answers[self.asked]
        self.asked += 1
        return said


class _Store:
    def __init__(self, world: World) -> None:
        self._world = world

    async def now(self) -> datetime | None:
        return self._world.ask()


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
@pytest.mark.parametrize(
    ("waits", "answers", "late", "asked"),
    [
        ([0.0], [0.0], 0.0, 1),
        ([0.04], [0.0], 0.0, 1),
        ([2.0, 0.001], [0.0, 0.001], 0.001, 2),
        ([2.0, 1.0, 3.0], [0.0, 0.2, 0.1], 0.2, 3),
    ],
    ids=["at once", "soon", "after a connection was made", "never soon"],
)
def test_the_time_of_a_store_is_never_taken_for_later_than_it_is(
    waits: list[float], answers: list[float], late: float, asked: int, skew: float
) -> None:
    world = World(waits, answers, skew)
    time = StoreTime(world.store(), world)
    asyncio.run(time.hear())
    behind = (world.stores - time.now()).total_seconds()
    assert behind == pytest.approx(late, abs=1e-5)
    assert world.asked == asked
    asyncio.run(time.hear())
    assert world.asked == asked, "it is believed for a while"
