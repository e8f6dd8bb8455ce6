"""A saga that is killed before and after every write of it, and undone to the last effect all the same."""

from __future__ import annotations

import pytest

from tests.integration.runtime.drive.undo.saga import Killer, Life, crash
from tests.keyframes import space_keyframes

pytestmark = pytest.mark.stores("memory")


def test_a_saga_is_undone_in_reverse_order_of_its_chain() -> None:
    life = Life()
    result = life.live()
    assert result is not None and result.error is not None
    assert result.error.message == "the printer is out of paper"
    life.check(result)
    assert life.outside.failures == 2


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
    for at in range(1, len(whole.points) + 1):
        life = Life()
        assert life.live(Killer(at, act=crash)) is None, whole.points[at - 1]
        result = life.live()
        assert result is not None
        life.check(result)
