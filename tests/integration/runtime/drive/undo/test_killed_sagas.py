"""A saga that is killed before and after every write of it, and undone to the last effect all the same."""

from __future__ import annotations

import os

import pytest

from everstep import Status
from tests.integration.runtime.drive.undo.saga import RUN, Killer, Life, crash
from tests.keyframes import space_keyframes

pytestmark = pytest.mark.stores("memory")
STRIDE = 1 if os.environ.get("EVERSTEP_SOAK") == "1" else 3
"""Every so manyth point is tried; with the soak tests, all."""


def test_a_saga_is_undone_in_reverse_order_of_its_chain() -> None:
    life = Life()
    result = life.live()
    assert result is not None and result.error is not None
    assert result.error.message == "the printer is out of paper"
    life.check(result)
    assert life.outside.failures == 2


@pytest.mark.slow
@pytest.mark.parametrize("keyframe_bytes", [0, 1 << 16])
def test_a_saga_killed_at_every_write_undoes_each_effect_once_by_key(
    monkeypatch: pytest.MonkeyPatch, keyframe_bytes: int
) -> None:
    space_keyframes(monkeypatch, lambda: keyframe_bytes)
    whole, life = Killer(), Life()
    result = life.live(whole)
    assert result is not None
    life.check(result)
    assert len(whole.points) > 80
    for at in range(1 + (keyframe_bytes > 0), len(whole.points) + 1, STRIDE):
        life = Life()
        assert life.live(Killer(at, act=crash)) is None, whole.points[at - 1]
        result = life.live()
        assert result is not None
        life.check(result)


@pytest.mark.slow
def test_a_saga_whose_owner_died_anywhere_is_undone_when_it_is_cancelled() -> None:
    whole, life = Killer(), Life()
    assert life.live(whole) is not None
    settled = 0
    for at in range(2, len(whole.points) + 1, STRIDE):
        life = Life()
        assert life.live(Killer(at, act=crash)) is None
        before = set(life.outside.done)
        with life.host() as host:
            host.cancel(RUN)
            steps = [step for record in host.history(RUN) for step in record.steps]
        recorded = {step.key for step in steps if step.status is Status.COMPLETED}
        result = life.live()
        assert result is not None
        if result.status is Status.CANCELLED:
            life.check(result, Status.CANCELLED)
            settled += not before <= recorded
            assert len(life.outside.done) <= len(before) + 1  # one was announced and had not begun
        else:
            life.check(result)
    assert settled > 2  # effects that were made and of which no record told


@pytest.mark.slow
def test_a_saga_that_is_killed_twice_while_it_undoes_is_undone_all_the_same() -> None:
    whole, life = Killer(), Life()
    assert life.live(whole) is not None
    half = len(whole.points) // 2
    for at in range(half, len(whole.points), 2 * STRIDE):
        for then in (3, 7):
            life = Life()
            assert life.live(Killer(at, act=crash)) is None
            life.live(Killer(then, act=crash))
            result = life.live()
            assert result is not None
            life.check(result)
