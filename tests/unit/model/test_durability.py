"""Modes and their options: every wrong one is refused in words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from everstep import Durability, Retry
from everstep.engine.flush import FlushPolicy
from everstep.errors import BadRequest
from everstep.model.enums import Flush, Mode


def test_a_mode_is_read_from_its_name() -> None:
    assert Durability.of("strong") == Durability("strong") and Durability.of("off").mode is Mode.OFF
    assert Durability.of(Durability("strong", interval=3)).interval == 3
    assert Durability().mode is Mode.PARTIAL and Durability().flush is Flush.EVERY_STEP


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "weak"}, "mode is 'weak'"),
        ({"mode": "strong", "flush": "sometimes"}, "flush is 'sometimes'"),
        ({"mode": "strong", "interval": 0}, "at least 1 step"),
        ({"mode": "strong", "interval": timedelta(0)}, "a span above zero"),
        ({"mode": "strong", "interval": 2.5}, "a number of steps, a span"),
        ({"mode": "partial", "interval": 3}, "no meaning with mode 'partial'"),
        ({"mode": "partial", "flush": "before_effects"}, "no meaning with mode 'partial'"),
        ({"mode": "strong", "flush": "before_effects", "interval": 3}, "exclude each other"),
        ({"lease_ttl": timedelta(0)}, "must be positive"),
        ({"blob_threshold": -1}, "negative"),
        ({"on_store_failure": "ignore"}, "'ignore'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        Durability(**options)


def test_an_unknown_mode_names_the_known_ones() -> None:
    with pytest.raises(BadRequest, match="'off', 'partial', 'strong'"):
        Durability.of("eventual")  # type: ignore[arg-type]


def test_an_interval_may_be_both() -> None:
    policy = FlushPolicy(Durability("strong", interval=(3, timedelta(seconds=2))))
    assert policy.max_steps == 3 and policy.max_seconds == 2.0 and policy.has_deadline


def test_pauses_grow_to_a_limit_and_jitter_stays_in_bounds() -> None:
    retry = Retry(9, first=1.0, factor=2.0, most=10.0, jitter=0.5)
    middles = [retry.pause(n, 0.5).total_seconds() for n in range(1, 7)]
    assert middles == [1, 2, 4, 8, 10, 10]
    assert retry.pause(1, 0.0).total_seconds() == 0.5 and retry.pause(1, 0.999).total_seconds() < 1.5


@pytest.mark.parametrize(
    ("wanted", "times"), [(None, 0), (3, 3), ("none", 0), ("standard", 4), ("patient", 2)]
)
def test_a_retry_is_read_from_a_number_or_a_preset(wanted: Any, times: int) -> None:
    assert Retry.of(wanted).times == times


@pytest.mark.parametrize("wanted", [True, "often", 2.5, -1])
def test_a_wrong_retry_is_refused(wanted: Any) -> None:
    with pytest.raises(BadRequest):
        Retry.of(wanted)
