"""Spans of time and moments, as users write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep import END, Breaker, Budget, Durability, Retention, Retry, ifelse, node, wait
from everstep.backends import Tools
from everstep.errors import BadRequest, EverstepError, InvalidDelay
from everstep.model.budgets import SECONDS
from everstep.model.durations import LONGEST, is_span, moment_of, span_of, spell
from everstep.testing.clock import ManualClock

BERLIN = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("2d 4h", timedelta(days=2, hours=4)),
        ("90m", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("500ms", timedelta(milliseconds=500)),
        ("2 weeks", timedelta(weeks=2)),
        ("1.5h", timedelta(minutes=90)),
        ("0.1s", timedelta(milliseconds=100)),
        ("  3 Days, 2 Hours ", timedelta(days=3, hours=2)),
        ("1 minute 1 second", timedelta(seconds=61)),
        ("5min", timedelta(minutes=5)),
        ("4h 2d", timedelta(days=2, hours=4)),
        ("0s", timedelta(0)),
        ("1w 1d 1h 1m 1s 1ms", timedelta(8, 3661, 0, 1)),
        ("P2DT4H", timedelta(days=2, hours=4)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("PT1,5H", timedelta(minutes=90)),
        ("P3W", timedelta(weeks=3)),
        ("PT90M", timedelta(minutes=90)),
        ("P1W2DT3H4M5S", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)),
    ],
)
def test_text_is_read_as_a_span(text: str, span: timedelta) -> None:
    assert span_of(text) == span
    assert is_span(text)


NONSENSE = [
    *("", " ", "soon", "5", "1.5", "h", "2x", "2d 4", "2d,", ", 2d", "2d 4h 2d", "1h 60 min 1 minute", "d2"),
    *("1..5h", "1.5.2h", "2d -4h", "+5m", "2 months", "1y", "٣h", "1e3s", "nan s", "2d;4h", "2d,,4h"),
    *(
        "P",
        "PT",
        "P1DT",
        "P1Y",
        "P2M",
        "PT1S1H",
        "p2d",
        "P2D 4h",
        "2dT4h",
        "summary",
        "x" * 10_000,
        "9" * 10_000,
    ),
]


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_is_refused_with_the_text_and_an_example(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        span_of(text, "timeout")
    assert caught.value.message.startswith(f"timeout is '{text.strip()[:20]}")
    assert '"2d 4h"' in caught.value.fix
    assert len(str(caught.value)) < 300
    assert not is_span(text)


@pytest.mark.parametrize("number", [5, 0, 1.5, 0.000001])
def test_a_number_counts_seconds(number: float) -> None:
    assert span_of(number) == timedelta(seconds=number)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), pytest.param(10**5000, id="huge")])
def test_a_number_that_is_no_time_is_refused(number: float) -> None:
    with pytest.raises(BadRequest):
        span_of(number)


@pytest.mark.parametrize("span", ["90s", "1.5m", "PT1M30S", 90, 90.0, timedelta(seconds=90)])
def test_a_span_means_the_same_wherever_one_is_taken(span: Any) -> None:
    def work(x: int) -> int:
        return x

    assert node(timeout=span)(work).timeout == 90.0
    assert ifelse(when_true=END, when_false=END, timeout=span)(work).timeout == 90.0
    retry = Retry(3, first=span, most=span)
    assert (retry.first, retry.most) == (90.0, 90.0)
    kept = Durability("strong", lease_ttl=span, checkpoint_ttl=span, retain_completed_for=span)
    assert {kept.lease_ttl, kept.checkpoint_ttl, kept.retain_completed_for} == {timedelta(seconds=90)}
    assert Retention(keep_for=span).keep_for == timedelta(seconds=90)
    assert Breaker("b", failures=1, cooldown=span).cooldown == timedelta(seconds=90)
    assert Budget(SECONDS, span).limit == 90
    for wait_node in (wait.timer("t", duration=span), wait.approval("a", timeout=span)):
        (kept_as,) = (v for v in wait_node.arguments.values() if isinstance(v, timedelta))
        assert kept_as == timedelta(seconds=90)
    clock = ManualClock()
    clock.advance(span)
    assert clock.monotonic() == 90.0
    assert repr(Tools(timeout=span)).startswith("Tools(timeout=90.0")


def test_an_interval_counts_steps_or_has_a_span() -> None:
    assert Durability("strong", interval="5s").interval_parts() == (None, timedelta(seconds=5))
    assert Durability("strong", interval=(100, "5s")).interval_parts() == (100, timedelta(seconds=5))
    assert Durability("strong", interval=5).interval_parts() == (5, None)


@pytest.mark.parametrize("value", [True, False, None, b"5m", ["5m"], date(2030, 1, 1)])
def test_other_things_are_no_spans(value: object) -> None:
    with pytest.raises(BadRequest, match="no span of time"):
        span_of(value)


@pytest.mark.parametrize(
    "value",
    ["-5m", "- 2d 4h", "-P1D", "−5m", timedelta(seconds=-1), timedelta.min, timedelta(microseconds=-1)],
)
def test_a_negative_span_is_an_invalid_delay(value: object) -> None:
    with pytest.raises(InvalidDelay, match="duration is"):
        span_of(value)
    assert not (isinstance(value, str) and is_span(value))


@pytest.mark.parametrize("value", ["9999999999d", "9" * 90 + "w", "P" + "9" * 50 + "D", timedelta.max])
def test_a_span_longer_than_any_calendar_is_refused(value: object) -> None:
    with pytest.raises(BadRequest, match="longer than 365000d"):
        span_of(value)


def test_a_timedelta_passes_unchanged_and_the_longest_makes_a_date() -> None:
    assert span_of(timedelta(microseconds=1)) == timedelta(microseconds=1)
    assert span_of("365000d") == LONGEST
    assert (datetime(2100, 1, 1, tzinfo=UTC) + LONGEST).year < 9999


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(days=2, hours=4), "2d 4h"),
        (timedelta(0), "0s"),
        (timedelta(microseconds=400), "0s"),
        (timedelta(microseconds=600), "1ms"),
        (timedelta(weeks=2), "14d"),
        (timedelta(minutes=90, milliseconds=5), "1h 30m 5ms"),
        (timedelta(minutes=-5), "-5m"),
        (timedelta.max, "1000000000d"),
    ],
)
def test_a_span_is_spelled_in_its_units(span: timedelta, text: str) -> None:
    assert spell(span) == text


@given(st.timedeltas(timedelta(0), LONGEST))
def test_what_was_spelled_is_read_back_to_the_millisecond(span: timedelta) -> None:
    assert abs(span_of(spell(span)) - span) <= timedelta(microseconds=500)


@given(st.integers(0, LONGEST // timedelta(milliseconds=1)))
def test_whole_milliseconds_come_back_exactly(count: int) -> None:
    span = timedelta(milliseconds=count)
    assert span_of(spell(span)) == span


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("0123456789.,- PTdhms"), max_size=120))
def test_any_text_is_a_span_or_an_error_of_ours(text: str) -> None:
    try:
        assert timedelta(0) <= span_of(text) <= LONGEST
    except EverstepError as error:
        assert error.message.startswith("duration is ")


@pytest.mark.parametrize(
    "value",
    [
        datetime(2030, 1, 1, 9, tzinfo=UTC),
        datetime(2030, 1, 1, 10, tzinfo=BERLIN),
        "2030-01-01T09:00:00Z",
        " 2030-01-01T10:00:00+01:00 ",
        "2030-01-01 09:00+00:00",
        "20300101T090000Z",
    ],
)
def test_a_moment_is_read_as_utc(value: object) -> None:
    moment = moment_of(value)
    assert (moment, moment.tzinfo) == (datetime(2030, 1, 1, 9, tzinfo=UTC), UTC)


@pytest.mark.parametrize("value", [datetime(2030, 1, 1), "2030-01-01T09:00:00", "2030-01-01"])
def test_a_moment_without_a_zone_is_refused(value: object) -> None:
    with pytest.raises(BadRequest, match=r"until is .* no time zone") as caught:
        moment_of(value)
    assert "+01:00" in caught.value.fix


@pytest.mark.parametrize(
    "value", [date(2030, 1, 1), 1_900_000_000, True, None, "tomorrow", "", "2d", "9" * 10_000]
)
def test_what_is_no_moment_is_refused(value: object) -> None:
    with pytest.raises(BadRequest, match="no moment") as caught:
        moment_of(value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_a_moment_outside_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="outside the years"):
        moment_of(text)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.timezones()))
def test_a_moment_comes_back_from_its_text(moment: datetime) -> None:
    if moment.utcoffset() is not None and moment.astimezone(UTC).astimezone(moment.tzinfo) == moment:
        assert moment_of(moment.astimezone(UTC).isoformat()) == moment_of(moment)
