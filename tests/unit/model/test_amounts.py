"""What is spent is counted exactly, whatever it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from everstep import Breaker
from everstep.engine import breaking
from everstep.engine.books import Books
from everstep.engine.breaking import Happened
from everstep.model.budgets import amount_of, plain, seconds_of
from everstep.model.ledger import BreakerAt, BreakerState, Guarded
from everstep.model.records import StepRecord

AMOUNTS = st.one_of(
    st.integers(0, 10**20),
    st.decimals(0, 10**12, allow_nan=False, allow_infinity=False, places=9),
    st.floats(0, 10**9, allow_nan=False).map(lambda x: round(x, 6)),
)
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@given(st.lists(AMOUNTS, max_size=40))
def test_sums_are_exact_and_survive_a_keyframe(given_amounts: list[int | Decimal | float]) -> None:
    books, whole = Books(), Fraction(0)
    for given_amount in given_amounts:
        amount = amount_of(given_amount, "it")
        whole += Fraction(repr(given_amount)) if isinstance(given_amount, float) else Fraction(given_amount)
        books.take(StepRecord(path="n", spent={"usd": amount}))
        books = Books(books.to_ledger())
    assert Fraction(books.spent.get("usd", Decimal(0))) == whole


@given(st.timedeltas(timedelta(0), timedelta(days=3650)))
def test_time_is_exact_to_the_microsecond(span: timedelta) -> None:
    assert Fraction(seconds_of(span)) == Fraction(span // timedelta(microseconds=1), 10**6)


def test_amounts_are_written_without_exponents() -> None:
    assert [plain(amount_of(x, "it")) for x in (10**20, "1E+3", "0.10", 1e-7)] == [
        "100000000000000000000",
        "1000",
        "0.10",
        "0.0000001",
    ]


def test_a_limit_is_what_was_declared_and_what_was_approved() -> None:
    books = Books()
    assert books.limit_of("usd") is None
    books.take(StepRecord(path="@guards", guards=Guarded(limits={"usd": Decimal(5)})))
    books.take(StepRecord(path="n", guards=Guarded(raised={"usd": Decimal("0.5")})))
    assert books.limit_of("usd") == Decimal("5.5")


@given(st.lists(st.booleans(), max_size=60))
def test_a_breaker_opens_exactly_when_so_many_calls_in_a_row_failed(calls: list[bool]) -> None:
    rule, at, row = Breaker("api", failures=3), BreakerAt(), 0
    for ok in calls:
        before, at = at, breaking.after(rule, at, Happened(now=NOW, ok=ok))
        if before.state is BreakerState.OPEN:
            assert at == before, "what was under way changes nothing"
            at, row = breaking.closed(at, NOW), 0
            continue
        row = 0 if ok else row + 1
        assert (at.state is BreakerState.OPEN) == (row == 3)


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 8))
def test_a_breaker_opens_exactly_at_its_error_rate(calls: list[bool], window: int) -> None:
    rule, at = Breaker("api", error_rate=0.5, window=window), BreakerAt()
    recent: list[bool] = []
    for ok in calls:
        at = breaking.after(rule, at, Happened(now=NOW, ok=ok))
        recent = [*recent, ok][-window:]
        is_over = len(recent) == window and recent.count(False) * 2 >= window
        assert (at.state is BreakerState.OPEN) == is_over
        if is_over:
            return


def test_a_try_decides_and_a_breaker_that_has_rested_may_try() -> None:
    rule = Breaker("api", failures=1, cooldown="10m")
    at = breaking.after(rule, BreakerAt(), Happened(now=NOW, ok=False))
    assert not breaking.is_rested(rule, at, NOW + timedelta(minutes=9))
    assert breaking.is_rested(rule, at, NOW + timedelta(minutes=10))
    tried = breaking.half_open(at, NOW)
    assert breaking.after(rule, tried, Happened(now=NOW)) == tried, "a call under way says nothing yet"
    assert breaking.after(rule, tried, Happened(now=NOW, ok=True)).state is BreakerState.CLOSED
    assert breaking.after(rule, tried, Happened(now=NOW, ok=False)).trips == 2
    manual = Breaker("api", failures=1, cooldown="10m", manual=True)
    assert not breaking.is_rested(manual, at, NOW + timedelta(days=9))


def test_it_forgets_old_decisions_of_gates_but_not_recent_ones() -> None:
    rule, at = Breaker("gate", changed_decision=True), BreakerAt()
    for k in range(200):
        at = breaking.after(rule, at, Happened(now=NOW, ok=True, decided=(f"input {k}", ("a",))))
    assert len(at.decided) == 64 and at.state is BreakerState.CLOSED
    same = breaking.after(rule, at, Happened(now=NOW, ok=True, decided=("input 199", ("a",))))
    assert same.state is BreakerState.CLOSED
    other = breaking.after(rule, at, Happened(now=NOW, ok=True, decided=("input 199", ())))
    assert other.reason == "a gate chose to end where it had chosen a on the same input"
